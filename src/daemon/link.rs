//! What is done with interfaces: they are renamed, set up and down, enslaved, get another MAC,
//! another MTU, other offload features. The daemon follows.

use netdev::ethtool::Features;

use super::{Daemon, Place};
use crate::api::{Happening, LinkAddress};
use crate::datapath::{Command, DeviceId};

impl Daemon {
    /// The device whose interface has this index at this place.
    pub(super) fn by_index(&self, place: Place, ifindex: u32) -> Option<DeviceId> {
        self.devices
            .iter()
            .find(|(_, (_, d))| d.ifindex == ifindex && d.place == place)
            .map(|(id, _)| *id)
    }

    pub(super) fn link_changed(&mut self, id: DeviceId, link: &rtnl::Link) {
        let asked = self.inside(id, |device, netlink| {
            // What was a bridge is one still: asked for once, and not at each change of the link.
            let bridge = link
                .master
                .filter(|m| device.bridge == Some(*m) || is_bridge(netlink, *m));
            (bridge, Features::read(&link.name))
        });
        let Some((at, device)) = self.devices.get_mut(&id) else {
            return;
        };
        let at = *at;
        // Where the daemon cannot go, what was told is followed at least.
        let unread = || (device.bridge, Err(std::io::ErrorKind::NotFound.into()));
        let (bridge, features) = asked.unwrap_or_else(unread);
        let bridged = std::mem::replace(&mut device.bridge, bridge) != bridge;
        let was = std::mem::replace(&mut device.name, link.name.clone());
        let mut tell = |what| self.watchers.tell(device.subject(), what);
        let renamed = was != link.name;
        if renamed {
            tell(Happening::Renamed { was });
        }
        let is_parent = device.parent.is_none();
        if std::mem::replace(&mut device.up, link.up) != link.up {
            self.up_changed(id);
        }
        if renamed && is_parent {
            self.parent_renamed(id, &link.name);
        }
        self.mtu_seen(id, link.mtu);
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        if let Some(mac) = link.address
            && mac != device.mac
        {
            device.mac = mac;
            let what = Happening::MacChanged {
                mac: LinkAddress(mac),
            };
            self.watchers.tell(device.subject(), what);
            self.ports[at].tell(|| Command::SetMac(id, mac));
        }
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        match features {
            Ok(f) if f.gro != device.coalesce => {
                device.coalesce = f.gro;
                log::debug!(
                    "{}: coalescing {}",
                    device.name,
                    if f.gro { "on" } else { "off" }
                );
                self.ports[at].tell(|| Command::SetCoalesce(id, f.gro));
            }
            Ok(_) => {}
            Err(e) => log::debug!("{}: cannot read the offload features: {e}", device.name),
        }
        if bridged {
            self.read_addresses(id);
        }
        self.membership_changed.insert(id);
    }
}

fn is_bridge(netlink: &mut rtnl::Requests, ifindex: u32) -> bool {
    netlink
        .link_by_index(ifindex)
        .is_ok_and(|link| link.kind.as_deref() == Some("bridge"))
}
