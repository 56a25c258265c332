//! The carrier of VNICs.

use std::time::Duration;

use control::api::Happening;
use fabric::PortState;

use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::port::PortId;
use crate::vnic::{Vnic, now};

impl Daemon {
    /// Gives the VNICs of a port their carrier, or takes it.
    pub(in crate::daemon) fn set_vnic_carriers(&mut self, at: PortId) {
        let on_port = self.vnics.values().filter(|v| v.at == at);
        let on_port = on_port.filter(|v| !self.keeps_left_carrier(v));
        let wanted = on_port.map(|v| (v.id, self.vnic_misses(v).is_none()));
        let mut changed = false;
        for (id, on) in wanted.collect::<Vec<_>>() {
            changed |= self.set_vnic_carrier(id, on);
        }
        if changed {
            self.sync_vnic_siblings();
        }
    }

    /// Gives a VNIC its carrier, or takes it; whether that is a change. Its siblings are to be told.
    pub(in crate::daemon) fn set_vnic_carrier(&mut self, id: DeviceId, on: bool) -> bool {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return false;
        };
        // What a former daemon left may be either.
        let left = vnic.carrier_left.take().is_some();
        if vnic.carrier == on && !left {
            return false;
        }
        vnic.set_carrier(on);
        let what = match vnic.carrier {
            true => Happening::CarrierOn,
            false => Happening::CarrierOff,
        };
        self.watchers.tell(vnic.subject(), what);
        self.vnic_state_changed(id);
        true
    }

    /// Whether a VNIC that an Ethernet Manager has yet to configure stays as a former daemon left it, so
    /// that a restart does not show.
    fn keeps_left_carrier(&self, vnic: &Vnic) -> bool {
        let is_in_time = vnic.carrier_left.is_some_and(|until| now() < until);
        // It says which switch, and then that it forwards.
        let waits = vnic.spec.switch.is_none() && !vnic.is_to_forward() && vnic.failed.is_none();
        let state = self.ports[vnic.at].port.attributes().state;
        is_in_time && waits && state == PortState::Active
    }

    /// How long until [`Daemon::tick_vnic_carriers`] has something to do.
    pub(in crate::daemon) fn next_vnic_carrier_tick(&self) -> Option<Duration> {
        let now = now();
        let all = self.vnics.values().filter_map(|v| v.carrier_left);
        all.map(|until| Duration::from_millis(until.since(now)))
            .min()
    }

    /// Takes the carrier that was left from those that no manager has configured in time.
    pub(in crate::daemon) fn tick_vnic_carriers(&mut self) {
        let now = now();
        let is_due = |v: &&Vnic| v.carrier_left.is_some_and(|until| until <= now);
        let due: Vec<PortId> = self.vnics.values().filter(is_due).map(|v| v.at).collect();
        due.into_iter().for_each(|at| self.set_vnic_carriers(at));
    }
}
