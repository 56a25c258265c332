//! Which devices of this daemon reach each other without the wire.

use std::collections::BTreeMap;

use fabric::PKey;

use super::Daemon;
use crate::datapath::{Command, DeviceId, Sibling};
use crate::interface::Interface;
use crate::ip::Ip;
use crate::port::PortId;

/// One that may be another's sibling.
struct Member {
    sibling: Sibling,
    entry: PKey,
}

impl Daemon {
    /// Tells the data threads about siblings where that has changed. Cheap enough to be asked after
    /// everything that happens.
    pub(super) fn sync_siblings(&mut self) {
        let mut links = self.links();
        for (id, partition) in self.vlans.all() {
            if let Some(entry) = partition.usable_entry() {
                let sibling = partition.as_sibling(id);
                let members = links.entry(partition.link()).or_default();
                members.push(Member { sibling, entry });
            }
        }
        for (interface, ip) in self.interfaces.ips_mut() {
            let link = link_of(interface, ip);
            let members = links.get(&link).map_or(&[][..], Vec::as_slice);
            let siblings = siblings_of(interface.id, members);
            if *ip.siblings != *siblings {
                ip.siblings = siblings.into();
                let (id, siblings) = (interface.id, &ip.siblings);
                self.ports[interface.port].tell(|| Command::SetSiblings(id, siblings.clone()));
            }
        }
        for (id, partition) in self.vlans.all() {
            let members = links.get(&partition.link()).map_or(&[][..], Vec::as_slice);
            let siblings = siblings_of(id, members);
            if *partition.siblings != *siblings {
                partition.siblings = siblings.into();
                let siblings = &partition.siblings;
                self.ports[partition.at].tell(|| Command::SetSiblings(id, siblings.clone()));
            }
        }
    }

    /// The devices that can be used, by port, partition and Q_Key.
    fn links(&self) -> BTreeMap<Link, Vec<Member>> {
        let mut links: BTreeMap<_, Vec<Member>> = BTreeMap::new();
        for (interface, ip) in self.interfaces.ips() {
            let usable = interface.up && interface.carrier;
            let Some(entry) = ip.endpoint.pkey.filter(|_| usable) else {
                continue;
            };
            let link = link_of(interface, ip);
            let sibling = Sibling {
                device: interface.id,
                qpn: ip.endpoint.qpn,
                mtu: interface.mtu,
            };
            links
                .entry(link)
                .or_default()
                .push(Member { sibling, entry });
        }
        links
    }
}

/// An IP link of a port: its partition with bit 15 set, its Q_Key.
pub(super) type Link = (PortId, u16, u32);

fn link_of(interface: &Interface, ip: &Ip) -> Link {
    let pkey = ip.spec.pkey.full().get();
    (interface.port, pkey, ip.spec.qkey.get())
}

/// The others that a member may talk to; none for who is no member. Two limited members of a
/// partition may not (IBA vol. 1, 10.9.3).
fn siblings_of(id: DeviceId, members: &[Member]) -> Vec<Sibling> {
    let Some(own) = members.iter().find(|m| m.sibling.device == id) else {
        return Vec::new();
    };
    members
        .iter()
        .filter(|m| m.sibling.device != id && m.entry.matches(own.entry))
        .map(|m| m.sibling)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::Qpn;

    fn member(device: u32, entry: u16) -> Member {
        Member {
            sibling: Sibling {
                device: DeviceId(device),
                qpn: Qpn::new(device + 0x100),
                mtu: 2044,
            },
            entry: PKey::new(entry),
        }
    }

    #[test]
    fn siblings_are_all_others_but_limited_ones_of_limited_ones() {
        let names = |id, members: &[Member]| -> Vec<u32> {
            let siblings = siblings_of(DeviceId(id), members);
            siblings.iter().map(|s| s.device.0).collect()
        };
        let full = [member(1, 0x8001), member(2, 0x8001), member(3, 0x8001)];
        assert_eq!(names(1, &full), [2, 3]);
        assert_eq!(names(3, &full), [1, 2]);
        assert!(names(4, &full).is_empty(), "one that is down is none");
        let mixed = [member(1, 0x8001), member(2, 0x0001), member(3, 0x0001)];
        assert_eq!(names(1, &mixed), [2, 3]);
        assert_eq!(names(2, &mixed), [1]);
    }
}
