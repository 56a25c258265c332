//! Traps, and how many of them there may be.

use fabric::Gid;

use super::{Agent, Destination, Event, OUTBOX_MAX, Transmit};
use crate::Time;
use crate::directory::NodeAddress;
use crate::mad::{self, Header, Notice, TrapKind, attribute, method};

/// In each window a virtual port sends so many, and no more (kernel opa_vnic_vema.c,
/// `opa_vnic_vema_send_trap`).
const WINDOW_TRAPS: u8 = 5;
/// The window: the response time of [`mad::ClassPortInfo`], 4.096 us times 2^18, rounded up to
/// milliseconds. It begins with its first trap.
const WINDOW_MS: u64 = 1074;

/// A virtual port's limit.
#[derive(Default)]
pub struct Limiter {
    since: Option<Time>,
    used: u8,
    told: bool,
}

/// Whether a trap may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Send,
    Suppress {
        /// The first one of its window.
        first: bool,
    },
}

impl Limiter {
    pub fn verdict(&mut self, now: Time) -> Verdict {
        if self.since.is_none_or(|since| since.after(WINDOW_MS) <= now) {
            *self = Limiter {
                since: Some(now),
                ..Limiter::default()
            };
        }
        if self.used < WINDOW_TRAPS {
            self.used += 1;
            return Verdict::Send;
        }
        let first = !self.told;
        self.told = true;
        Verdict::Suppress { first }
    }
}

impl Agent {
    /// Sends a trap, if somebody wants it and there were not too many. None is sent again: who manages
    /// looks for itself from time to time.
    pub(super) fn trap(&mut self, now: Time, index: u8, kind: TrapKind) {
        let Some(to) = self.trap_to(now) else {
            self.counts.traps_unwanted += 1;
            return;
        };
        let Some(vport) = self.vports.get_mut(&index) else {
            return;
        };
        let verdict = vport.limiter.verdict(now);
        let notice = Notice {
            issuer_lid: vport.info.encap_slid,
            fabric_id: vport.info.fabric_id,
            vesw_id: vport.info.vesw_id,
            port_num: vport.info.port_num,
            opa_port: self.config.port.into(),
            index,
            kind,
        };
        if let Verdict::Suppress { first } = verdict {
            self.counts.traps_suppressed += 1;
            if first {
                self.tell(Event::TrapsSuppressed { index });
            }
            return;
        }
        if self.outbox.len() >= OUTBOX_MAX {
            self.counts.traps_suppressed += 1;
            return;
        }
        self.counts.traps += 1;
        let header = Header::new(method::TRAP, attribute::NOTICE, 0, self.tid());
        self.outbox.push_back(Transmit {
            to: Destination::Node(to),
            mad: mad::write(&header, &notice),
        });
    }

    /// Where traps go: to where ClassPortInfo says, or to the manager if it says only that they are
    /// wanted. None go to a group.
    fn trap_to(&self, now: Time) -> Option<NodeAddress> {
        let (gid, qpn) = self.class.trap_to()?;
        if gid.is_multicast() {
            return None;
        }
        if gid != Gid::UNSPECIFIED && qpn.get() != 0 {
            return Some(NodeAddress { gid, qpn });
        }
        let owner = self.ownership.owner(now)?;
        Some(NodeAddress {
            gid: owner.gid,
            qpn: owner.qpn,
        })
    }
}
