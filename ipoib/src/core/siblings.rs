//! Siblings: other interfaces of the daemon on the same port and partition. Packets between siblings do not
//! leave the host and need not be cut.
//!
//! The address of a sibling is the port's GID and its queue pair number. Siblings are neighbours, learned
//! by ARP and neighbour discovery, with a different path. Multicast goes to the fabric and comes back from
//! there.
//!
//! An interface of the same daemon, port, partition and Q_Key has a known address, the port's GID and its
//! queue pair; the core learns it by ARP like any peer. Unicast to a sibling never reaches the fabric: the
//! data thread that read the frame writes it to the other TAP, with the Ethernet header from the other
//! core; a large send stays uncut and its checksum partial. Frames that the other core must read (ARP,
//! neighbour discovery, DHCP) or hold are cut and completed first, and received like packets of the fabric.
//! The control thread selects siblings: limited members only with full ones. There is no connection between
//! siblings. Packets up to the smaller MTU pass; larger ones get an error, as on the wire. Multicast goes
//! to the fabric and comes back through the underlay's loopback to all interfaces except its sender.

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
    /// The largest IP packet that it accepts, in bytes.
    pub mtu: usize,
}

/// The siblings, sorted by queue pair number.
#[derive(Default)]
pub(super) struct Siblings(Box<[Sibling]>);

impl Ipoib {
    /// Replaces the list of siblings. The interface itself is ignored. The list must contain only
    /// interfaces that may communicate with this one: P_Keys and Q_Keys are not checked on this path.
    pub fn set_siblings(&mut self, siblings: impl IntoIterator<Item = Sibling>) {
        let own = self.config.local.qpn();
        let mut list: Vec<Sibling> = siblings.into_iter().filter(|s| s.qpn != own).collect();
        list.sort_unstable_by_key(|s| s.qpn.get());
        self.siblings = Siblings(list.into());
    }

    /// The sibling of a target, if it is one.
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

    /// The metadata of packets from this interface for its siblings.
    pub fn meta_for_siblings(&self) -> Meta {
        let local = self.config.local;
        Meta {
            src_qpn: local.qpn(),
            src_gid: local.gid(),
            has_src_gid: true,
            dst_gid: local.gid(),
            multicast: false,
        }
    }

    /// Decides on an IP packet from a sibling, as its host sent it: perhaps a large send or with a partial
    /// checksum. Returns the Ethernet header to put before it.
    ///
    /// `None` if the packet must be cut, completed and passed to [`Ipoib::from_fabric`] instead: this
    /// interface reads its contents, keeps it until a guest is found, or refuses it.
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
