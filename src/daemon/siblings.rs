//! Which devices of this daemon reach each other without the wire.

use std::collections::BTreeMap;

use fabric::PKey;

use super::Daemon;
use crate::datapath::{Command, LinkId, Sibling};

/// One that may be another's sibling.
struct Member {
    sibling: Sibling,
    entry: PKey,
}

impl Daemon {
    /// Tells the data threads about siblings where that has changed. Cheap enough to be asked after
    /// everything that happens.
    pub(super) fn sync_siblings(&mut self) {
        let mut members: BTreeMap<_, Vec<Member>> = BTreeMap::new();
        for (interface, ip) in self.interfaces.ips() {
            for link in ip.links() {
                let Some(entry) = link.usable_entry(interface) else {
                    continue;
                };
                let sibling = Sibling {
                    device: link.id(),
                    qpn: link.fabric.endpoint.qpn,
                    mtu: interface.mtu,
                };
                let of_link = members.entry((interface.port, link.key()));
                of_link.or_default().push(Member { sibling, entry });
            }
        }
        for (interface, ip) in self.interfaces.ips_mut() {
            for link in ip.links_mut() {
                let of_link = members.get(&(interface.port, link.key()));
                let id = link.id();
                let siblings = siblings_of(id, of_link.map_or(&[][..], Vec::as_slice));
                if *link.siblings != *siblings {
                    link.siblings = siblings.into();
                    let siblings = &link.siblings;
                    let command = || Command::SetSiblings(id, siblings.clone());
                    self.ports[interface.port].tell(command);
                }
            }
        }
    }
}

/// The others that a member may talk to; none for who is no member. Two limited members of a
/// partition may not (IBA vol. 1, 10.9.3).
fn siblings_of(id: LinkId, members: &[Member]) -> Vec<Sibling> {
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
                device: LinkId(device),
                qpn: Qpn::new(device + 0x100),
                mtu: 2044,
            },
            entry: PKey::new(entry),
        }
    }

    #[test]
    fn siblings_are_all_others_but_limited_ones_of_limited_ones() {
        let names = |id, members: &[Member]| -> Vec<u32> {
            let siblings = siblings_of(LinkId(id), members);
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
