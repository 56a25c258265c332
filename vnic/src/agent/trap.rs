//! Traps and their rate limit.

use proto::{Gid, Time};

use super::vport::Vport;
use super::{Agent, Destination, Event, OUTBOX_MAX, Transmit};
use crate::directory::NodeAddress;
use crate::mad::{self, Header, Notice, TrapKind, attribute, method};

/// Maximum number of traps of a virtual port in a window (kernel opa_vnic_vema.c,
/// `opa_vnic_vema_send_trap`).
const WINDOW_TRAPS: u8 = 5;
/// Length of a window in milliseconds: the response time of [`mad::ClassPortInfo`], 4.096 us times 2^18,
/// rounded up. A window begins with its first trap.
const WINDOW_MS: u64 = 1074;

/// Trap rate limit of a virtual port.
#[derive(Default)]
pub struct Limiter {
    since: Option<Time>,
    used: u8,
    reported: bool,
}

/// Decision about a trap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Send,
    Suppress {
        /// First suppressed trap of its window.
        first: bool,
    },
}

/// A set of trap kinds, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds(u8);

impl Kinds {
    const ALL: [TrapKind; 3] = [
        TrapKind::UcastMacs,
        TrapKind::McastMacs,
        TrapKind::LinkStatus,
    ];

    fn add(&mut self, kind: TrapKind) {
        self.0 |= 1 << kind.opcode();
    }

    fn iter(self) -> impl Iterator<Item = TrapKind> {
        let has = move |kind: &TrapKind| self.0 & 1 << kind.opcode() != 0;
        Kinds::ALL.into_iter().filter(has)
    }
}

impl Limiter {
    /// End of the window; time 0 without a window.
    fn end(&self) -> Time {
        self.since.map_or(Time(0), |since| since.after(WINDOW_MS))
    }

    pub fn verdict(&mut self, now: Time) -> Verdict {
        if self.end() <= now {
            *self = Limiter {
                since: Some(now),
                ..Limiter::default()
            };
        }
        if self.used < WINDOW_TRAPS {
            self.used += 1;
            return Verdict::Send;
        }
        let first = !self.reported;
        self.reported = true;
        Verdict::Suppress { first }
    }
}

impl Agent {
    /// Sends a trap if a manager wants traps. At the end of a window, one trap of each suppressed kind
    /// follows. (The kernel's driver drops suppressed traps, so its manager misses the last change until it
    /// polls.) Traps are not repeated.
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
            vport.late.add(kind);
            self.counts.traps_suppressed += 1;
            if first {
                self.report(Event::TrapsSuppressed { index });
            }
            return;
        }
        if self.outbox.len() >= OUTBOX_MAX {
            vport.late.add(kind);
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

    /// Time of the next suppressed trap.
    pub(super) fn late_traps_due(&self) -> Option<Time> {
        let late = self.vports.values().filter(|v| v.late != Kinds::default());
        late.map(|vport| vport.limiter.end()).min()
    }

    /// Sends the suppressed traps of windows that have ended.
    pub(super) fn send_late_traps(&mut self, now: Time) {
        if self.late_traps_due().is_none_or(|due| now < due) {
            return;
        }
        let over = |vport: &Vport| vport.late != Kinds::default() && vport.limiter.end() <= now;
        let due = self.vports.iter_mut().filter(|(_, vport)| over(vport));
        let due: Vec<(u8, Kinds)> = due
            .map(|(index, vport)| (*index, std::mem::take(&mut vport.late)))
            .collect();
        for (index, kinds) in due {
            for kind in kinds.iter() {
                self.trap(now, index, kind);
            }
        }
    }

    /// Destination of traps: the address in ClassPortInfo, or the owner if ClassPortInfo requests traps
    /// without an address. Traps are not sent to groups.
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
