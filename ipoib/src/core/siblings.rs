//! Siblings: other interfaces of the same program, on the same port and in the same partition. What
//! goes from one to the other need not leave the host, nor be cut.
//!
//! Their addresses are the port's GID and a queue pair number each. They are neighbours like others,
//! learned by ARP and neighbour discovery; only the way to them is another. Groups are not: a
//! multicast goes to the fabric, and comes back from there.
//!
//! An interface of the same daemon, port, partition and Q_Key has a known address, the port's GID
//! and its queue pair; the core learns it by ARP like any peer. Unicast to a sibling never reaches
//! the fabric: the data thread that read the frame writes it to the other TAP, a large send uncut
//! and its checksum unfinished, with the Ethernet header from the other core. Frames that the other
//! core must read (ARP, neighbour discovery, DHCP) or hold are cut and finished first, and received
//! like packets of the fabric. The control thread selects siblings: limited members only of full
//! ones. There is no connection between siblings. Packets up to the smaller MTU pass; larger ones
//! are answered as on the wire. Multicast goes to the fabric and comes back through the underlay's
//! loopback to all interfaces but its sender.

use proto::{Qpn, Time};

use super::incoming::{ethernet, is_nd_or_may_be};
use super::{Ipoib, Meta, Outgoing, Target};
use crate::dhcp;
use crate::snoop;
use crate::wire::{ETHERNET_LEN, TYPE_IPV4, ip_header_of};

/// An interface that is reached without the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sibling {
    /// Its queue pair number.
    pub qpn: Qpn,
    /// The largest IP packet that it takes, in bytes.
    pub mtu: usize,
}

/// By queue pair number.
#[derive(Default)]
pub(super) struct Siblings(Box<[Sibling]>);

impl Ipoib {
    /// Says which interfaces are reached without the fabric, instead of those before. The interface
    /// itself is none. Whoever may not talk with whom must not be named here: no P_Key and no Q_Key is
    /// looked at on that way.
    pub fn set_siblings(&mut self, siblings: impl IntoIterator<Item = Sibling>) {
        let own = self.config.local.qpn();
        let mut list: Vec<Sibling> = siblings.into_iter().filter(|s| s.qpn != own).collect();
        list.sort_unstable_by_key(|s| s.qpn.get());
        self.siblings = Siblings(list.into());
    }

    /// The sibling that a target is, if it is one, with the largest packet that goes there.
    #[inline]
    pub fn sibling(&self, to: Target) -> Option<Sibling> {
        if self.siblings.0.is_empty() {
            return None;
        }
        let Target::Neighbour(slot) = to else {
            return None;
        };
        self.sibling_at(slot)
    }

    pub(super) fn sibling_at(&self, slot: u32) -> Option<Sibling> {
        let address = &self.neighbours.get(slot).address;
        if address.gid() != self.config.local.gid() {
            return None;
        }
        let (list, qpn) = (&self.siblings.0, address.qpn().get());
        let at = list.binary_search_by_key(&qpn, |s| s.qpn.get()).ok()?;
        let mtu = list[at].mtu.min(self.interface_mtu());
        Some(Sibling { mtu, ..list[at] })
    }

    #[inline]
    pub(super) fn way_to_sibling(&self, to: Target, encap: [u8; 4]) -> Option<Outgoing<'static>> {
        let Sibling { qpn, mtu } = self.sibling(to)?;
        Some(Outgoing::Sibling {
            to,
            qpn,
            encap,
            mtu,
        })
    }

    /// What siblings know about what comes from this interface.
    pub fn meta_for_siblings(&self) -> Meta {
        let local = self.config.local;
        Meta {
            src_qpn: local.qpn(),
            src_gid: local.gid(),
            dst_gid: local.gid(),
            multicast: false,
        }
    }

    /// Decides on an IP packet that a sibling sent, as its host gave it: perhaps a large send, perhaps
    /// with an unfinished checksum. The Ethernet header to put before it.
    ///
    /// `None` if it must be given to [`Ipoib::from_fabric`], cut and finished, instead: this interface
    /// reads what is behind its headers, keeps it until a guest is found, or refuses it.
    #[inline]
    pub fn from_sibling(
        &mut self,
        now: Time,
        meta: &Meta,
        ethertype: u16,
        l3: &[u8],
    ) -> Option<[u8; ETHERNET_LEN]> {
        let header = ip_header_of(ethertype, l3, l3.len()).ok()?;
        let packet = &l3[..header.len];
        let is_read = is_nd_or_may_be(ethertype, packet)
            || (ethertype == TYPE_IPV4 && dhcp::may_be_reply(packet))
            || (self.routes_multicast && snoop::may_report(ethertype, packet));
        if is_read {
            return None;
        }
        let destination = self.guest_for(header.destination)?;
        let source = self.source(now, meta, header.source);
        Some(ethernet(destination, source, ethertype))
    }
}
