//! What is done with interfaces: they are renamed, set up and down, enslaved, get another MAC,
//! another MTU, other offload features. The daemon follows.

use std::io;

use control::api::{Happening, LinkAddress};
use netdev::ethtool::Features;

use super::{Daemon, Place};
use crate::datapath::{Command, DeviceId};

impl Daemon {
    /// The device whose interface has this index at this place.
    pub(super) fn by_index(&self, place: Place, ifindex: u32) -> Option<DeviceId> {
        self.devices
            .iter()
            .find(|(_, (_, d))| d.ifindex == ifindex && d.place == place)
            .map(|(id, _)| *id)
    }

    /// What a device's interface is like now.
    pub(super) fn link_changed(&mut self, id: DeviceId, link: &rtnl::Link) {
        let asked = self.inside(id, |device, netlink| {
            // What was a bridge is one still: asked for once, and not at each change of the link.
            let bridge = link
                .master
                .filter(|m| device.bridge == Some(*m) || is_bridge(netlink, *m));
            (bridge, Features::read(&link.name))
        });
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        // Where the daemon cannot go, what was told is followed at least.
        let unread = || (device.bridge, Err(io::ErrorKind::NotFound.into()));
        let (bridge, features) = asked.unwrap_or_else(unread);
        let bridged = std::mem::replace(&mut device.bridge, bridge) != bridge;
        let went_up_or_down = std::mem::replace(&mut device.up, link.up) != link.up;
        let is_parent = device.parent.is_none();
        // All that follows says the new name.
        let renamed = self.name_seen(id, &link.name);
        if went_up_or_down {
            self.up_changed(id);
        }
        if renamed && is_parent {
            self.parent_renamed(id, &link.name);
        }
        self.mtu_seen(id, link.mtu);
        if let Some(mac) = link.address {
            self.mac_seen(id, mac);
        }
        self.features_seen(id, features);
        if bridged {
            self.read_addresses(id);
        }
        self.membership_changed.insert(id);
    }

    /// True if it is another name than before.
    fn name_seen(&mut self, id: DeviceId, name: &str) -> bool {
        let Some((_, device)) = self.devices.get_mut(&id).filter(|(_, d)| d.name != name) else {
            return false;
        };
        let was = std::mem::replace(&mut device.name, name.to_owned());
        self.tell_device(id, Happening::Renamed { was });
        true
    }

    fn mac_seen(&mut self, id: DeviceId, mac: [u8; 6]) {
        let Some((at, device)) = self.devices.get_mut(&id).filter(|(_, d)| d.mac != mac) else {
            return;
        };
        device.mac = mac;
        self.ports[*at].tell(|| Command::SetMac(id, mac));
        let mac = LinkAddress(mac);
        self.tell_device(id, Happening::MacChanged { mac });
    }

    /// Offload features of the interface: its GRO says whether received segments are coalesced here.
    fn features_seen(&mut self, id: DeviceId, features: io::Result<Features>) {
        let Some((at, device)) = self.devices.get_mut(&id) else {
            return;
        };
        let name = &device.name;
        match features {
            Ok(f) if f.gro != device.coalesce => {
                log::debug!("{name}: coalescing {}", if f.gro { "on" } else { "off" });
                device.coalesce = f.gro;
                self.ports[*at].tell(|| Command::SetCoalesce(id, f.gro));
            }
            Ok(_) => {}
            Err(e) => log::debug!("{name}: cannot read the offload features: {e}"),
        }
    }
}

fn is_bridge(netlink: &mut rtnl::Requests, ifindex: u32) -> bool {
    netlink
        .link_by_index(ifindex)
        .is_ok_and(|link| link.kind.as_deref() == Some("bridge"))
}
