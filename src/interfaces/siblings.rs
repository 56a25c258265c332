//! Siblings: interfaces of this daemon that reach each other without the fabric.

use std::collections::BTreeMap;

use fabric::PKey;

use crate::datapath::{Command, EthernetSibling, LinkId, Sibling};
use crate::ethernet::Ethernet;
use crate::interface::Interface;
use crate::interfaces::Interfaces;
use crate::port::{PortId, Ports};

/// The links of one partition or switch, with their entries in the port's P_Key table.
type Members<S> = Vec<(LinkId, PKey, S)>;

impl Interfaces {
    /// Sends changed lists of siblings to the data threads. Cheap enough to be called after every change.
    pub fn sync_siblings(&mut self, ports: &Ports) {
        self.sync_ip_siblings(ports);
        self.sync_vnic_siblings(ports);
    }

    /// Links with the same partition and Q_Key are siblings.
    fn sync_ip_siblings(&mut self, ports: &Ports) {
        let mut members: BTreeMap<_, Members<Sibling>> = BTreeMap::new();
        for (interface, ip) in self.ips() {
            for link in ip.links() {
                let Some(entry) = link.usable_entry(interface) else {
                    continue;
                };
                let sibling = Sibling {
                    link: link.id(),
                    qpn: link.fabric.endpoint.qpn,
                    mtu: interface.mtu,
                };
                let of_link = members.entry((interface.port, link.key()));
                of_link.or_default().push((link.id(), entry, sibling));
            }
        }
        for (interface, ip) in self.ips_mut() {
            for link in ip.links_mut() {
                let id = link.id();
                let siblings = siblings_of(id, members.get(&(interface.port, link.key())));
                if *link.siblings != *siblings {
                    link.siblings = siblings.into();
                    let siblings = &link.siblings;
                    ports[interface.port].send(|| Command::SetSiblings(id, siblings.clone()));
                }
            }
        }
    }

    /// VNICs on one switch are siblings.
    fn sync_vnic_siblings(&mut self, ports: &Ports) {
        let mut members: BTreeMap<_, Members<EthernetSibling>> = BTreeMap::new();
        for (interface, ethernet) in self.ethernets().filter(|(i, e)| e.forwards(i)) {
            if let Some(entry) = ethernet.entry() {
                let link = interface.id.link();
                let sibling = EthernetSibling {
                    link,
                    lid: ethernet.lid(),
                };
                let of_switch = members.entry(switch_of(interface, ethernet)).or_default();
                of_switch.push((link, entry, sibling));
            }
        }
        for (interface, ethernet) in self.ethernets_mut() {
            let id = interface.id.link();
            let siblings = siblings_of(id, members.get(&switch_of(interface, ethernet)));
            if *ethernet.siblings != *siblings {
                ethernet.siblings = siblings.into();
                let siblings = &ethernet.siblings;
                ports[interface.port].send(|| Command::SetEthernetSiblings(id, siblings.clone()));
            }
        }
    }
}

/// The identity of a switch on a port: partition with bit 15 set, fabric id, switch id.
fn switch_of(interface: &Interface, ethernet: &Ethernet) -> (PortId, u16, u16, u16) {
    let info = &ethernet.info;
    let pkey = info.pkey.full().get();
    (interface.port, pkey, info.fabric_id, info.vesw_id)
}

/// The members to which a member may send; none if the link is not a member. Limited members of a partition
/// may not send to each other (IBA vol. 1, 10.9.3).
fn siblings_of<S: Copy>(id: LinkId, members: Option<&Members<S>>) -> Vec<S> {
    let members = members.map_or(&[][..], Vec::as_slice);
    let Some((_, own, _)) = members.iter().find(|(link, ..)| *link == id) else {
        return Vec::new();
    };
    let others = members.iter().filter(|(link, ..)| *link != id);
    let others = others.filter(|(_, entry, _)| entry.matches(*own));
    others.map(|(.., sibling)| *sibling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_all_others_but_limited_ones_of_limited_ones() {
        let member = |link, entry| (LinkId(link), PKey::new(entry), link);
        let siblings = |id, members: &Members<u32>| siblings_of(LinkId(id), Some(members));
        let full = vec![member(1, 0x8001), member(2, 0x8001), member(3, 0x8001)];
        assert_eq!(siblings(1, &full), [2, 3]);
        assert_eq!(siblings(3, &full), [1, 2]);
        assert!(
            siblings(4, &full).is_empty(),
            "a link that is down has none"
        );
        assert!(siblings_of::<u32>(LinkId(1), None).is_empty());
        let mixed = vec![member(1, 0x8001), member(2, 0x0001), member(3, 0x0001)];
        assert_eq!(siblings(1, &mixed), [2, 3]);
        assert_eq!(siblings(2, &mixed), [1]);
    }
}
