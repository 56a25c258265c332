//! Whether an interface can be used: its carrier, and what setting it up and down means (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_main.c, `ipoib_open` and `ipoib_stop`).

use control::api::Happening;
use fabric::{PortAttributes, PortState};

use super::Daemon;
use crate::datapath::{Command, DeviceId};
use crate::device::Device;
use crate::port::PortId;

impl Daemon {
    /// Why a device of a port has no carrier, for people; `None` if it has one. The port, the
    /// partition and the parent decide.
    pub(crate) fn no_carrier(&self, at: PortId, device: &Device) -> Option<String> {
        self.missing(&self.ports[at].port.attributes(), device)
    }

    fn missing(&self, port: &PortAttributes, device: &Device) -> Option<String> {
        if port.state != PortState::Active {
            let why = port.state_reason.clone();
            return Some(why.unwrap_or_else(|| "its port is down".into()));
        }
        if device.endpoint.pkey.is_none() {
            return Some(format!(
                "the P_Key {} is not in the P_Key table of {}",
                device.spec.pkey, port.name
            ));
        }
        let (_, parent) = self.devices.get(&device.parent?)?;
        (!parent.up).then(|| format!("its parent {} is down", parent.name))
    }

    /// Gives the devices of a port their carrier, or takes it.
    pub(super) fn set_carriers(&mut self, at: PortId) {
        let port = self.ports[at].port.attributes();
        let on_port = self.devices.iter().filter(|(_, (on, _))| *on == at);
        let wanted = on_port.map(|(id, (_, d))| (*id, self.missing(&port, d).is_none()));
        for (id, on) in wanted.collect::<Vec<_>>() {
            self.set_carrier(id, on);
        }
    }

    fn set_carrier(&mut self, id: DeviceId, on: bool) {
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        if device.carrier == on {
            return;
        }
        device.set_carrier(on);
        let what = match device.carrier {
            true => Happening::CarrierOn,
            false => Happening::CarrierOff,
        };
        self.watchers.tell(device.subject(), what);
    }

    /// An interface was set up, or down: then it leaves all groups, the broadcast group too, and
    /// forgets neighbours, paths and connections. A parent takes its children's carrier with it.
    pub(super) fn up_changed(&mut self, id: DeviceId) {
        let Some((at, device)) = self.devices.get(&id) else {
            return;
        };
        let (at, up) = (*at, device.up);
        log::info!("{}: {}", device.name, if up { "up" } else { "down" });
        let what = match up {
            true => Happening::Up,
            false => Happening::Down,
        };
        self.watchers.tell(device.subject(), what);
        if !up {
            for ip in &device.addresses {
                self.ports[at].tell_first(Command::Withdraw(id, *ip));
            }
            self.ports[at].tell(|| Command::Flush(id));
        }
        self.membership_changed.insert(id);
        self.announce(id);
        self.set_carriers(at);
    }
}
