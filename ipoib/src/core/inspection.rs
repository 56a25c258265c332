//! Claims of IP addresses that an administrator does not expect.
//!
//! A claim is suspicious if it contradicts a pin, or if the address belongs to another port that was heard
//! recently. Claims of another queue pair of the same port are usual: an interface restarts, or a host has several
//! interfaces. A pinned address has no other check.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use proto::{Inspect, Pin, Time};

use super::{Ipoib, Update};
use crate::address::HardwareAddress;
use crate::counters::DropReason;
use crate::event::Event;

/// A neighbour is live for this time after its last packet.
const LIVE_MS: u64 = 30_000;

/// Replicas inform each other about packets of a neighbour once in 2 to the power of this, in milliseconds.
const HEARD_SHIFT: u32 = 13;

/// The minimum time between two reports of a replica.
const REPORT_MS: u64 = 1000;

/// Pinned addresses.
pub type Pins = HashMap<IpAddr, Pin, foldhash::fast::RandomState>;

/// The state of a replica.
#[derive(Default)]
pub(super) struct Inspection {
    action: Inspect,
    pins: Option<Arc<Pins>>,
    quiet_until: Time,
}

impl Inspection {
    fn pin(&self, ip: IpAddr) -> Option<&Pin> {
        self.pins.as_ref()?.get(&ip)
    }
}

fn suits(pin: &Pin, address: &HardwareAddress) -> bool {
    pin.gid == address.gid() && pin.qpn.is_none_or(|qpn| qpn == address.qpn())
}

impl Ipoib {
    /// Changes the action for suspicious claims, and the pinned addresses.
    pub fn set_inspection(&mut self, action: Inspect, pins: Option<Arc<Pins>>) {
        self.inspection.action = action;
        self.inspection.pins = pins;
    }

    /// Decides on a claim of an IP address.
    pub(super) fn inspect(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        ip: IpAddr,
    ) -> Result<(), DropReason> {
        let action = self.inspection.action;
        if action == Inspect::Off {
            return Ok(());
        }
        let contradicts = match self.inspection.pin(ip) {
            Some(pin) if suits(pin, address) => return Ok(()),
            Some(_) => true,
            None if self.takes_over(now, address, ip) => false,
            None => return Ok(()),
        };
        let counters = &mut self.counters;
        match contradicts {
            true => counters.claims_against_pins += 1,
            false => counters.claims_of_live_addresses += 1,
        }
        let refused = action == Inspect::Enforce;
        if now >= self.inspection.quiet_until {
            self.inspection.quiet_until = now.after(REPORT_MS);
            self.report(Event::SuspiciousClaim {
                address: *address,
                ip,
                pinned: contradicts,
                refused,
            });
        }
        match refused {
            true => Err(DropReason::RefusedClaim),
            false => Ok(()),
        }
    }

    /// Whether another port, or a guest, has the address and is live.
    fn takes_over(&self, now: Time, address: &HardwareAddress, ip: IpAddr) -> bool {
        if self.is_at_guest(now, ip) {
            return true;
        }
        self.neighbours.by_claimed_ip(ip).is_some_and(|slot| {
            let owner = self.neighbours.get(slot);
            owner.address.gid() != address.gid() && now < owner.last_heard.after(LIVE_MS)
        })
    }

    /// Whether data of a peer is no hint that the peer has the address.
    pub(super) fn is_pinned_elsewhere(&self, address: &HardwareAddress, ip: IpAddr) -> bool {
        let enforced = self.inspection.action == Inspect::Enforce;
        let pin = self.inspection.pin(ip).filter(|_| enforced);
        pin.is_some_and(|pin| !suits(pin, address))
    }

    /// Notes a packet of a neighbour, and informs the other replicas now and then.
    #[inline]
    pub(super) fn heard(&mut self, slot: u32, now: Time) {
        let Some(before) = self.neighbours.heard(slot, now) else {
            return;
        };
        self.outlive(slot);
        if self.inspection.action != Inspect::Off && before.0 >> HEARD_SHIFT != now.0 >> HEARD_SHIFT
        {
            let address = self.neighbours.get(slot).address;
            self.publish(Update::Heard { address });
        }
    }
}
