//! From the fabric to the TAP.

use std::net::IpAddr;

use proto::{ClaimCheck, Mac, Time};

use super::{Incoming, Ipoib, Meta};
use crate::address::{HardwareAddress, MAC_BROADCAST, peer_mac};
use crate::arp::{Arp, ETHERNET_ARP_LEN, REQUEST};
use crate::counters::DropReason;
use crate::dhcp;
use crate::echo::TYPE_ECHO;
use crate::multicast::group_mac;
use crate::nd::{self, Kind, Message, put_mac};
use crate::snoop;
use crate::wire::{
    ENCAP_LEN, ETHERNET_LEN, IpHeader, NEXT_HEADER_FRAGMENT, NEXT_HEADER_ICMPV6, TYPE_ARP,
    TYPE_IPV4, TYPE_IPV6, TYPE_RARP, be16, ip_header_of,
};

/// The required hop limit of neighbour discovery: a lower one means that it crossed a router and is forged
/// (RFC 4861, section 6.1).
const ND_HOP_LIMIT: u8 = 255;

pub(super) enum Step {
    /// The Ethernet header, and the length of the packet behind the encapsulation header.
    Packet([u8; ETHERNET_LEN], usize),
    /// A frame of this length in the scratch buffer.
    Frame(usize),
    /// A packet for the core itself.
    Consumed,
    /// Kept until its guest is known.
    Held,
}

pub(super) fn ethernet(destination: Mac, source: Mac, ethertype: u16) -> [u8; ETHERNET_LEN] {
    let mut e = [0; ETHERNET_LEN];
    e[..6].copy_from_slice(&destination);
    e[6..12].copy_from_slice(&source);
    e[12..].copy_from_slice(&ethertype.to_be_bytes());
    e
}

/// A received datagram or message of `len` bytes, encapsulation header included. `head` is all of it, or
/// its beginning.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'p> {
    pub head: &'p [u8],
    pub len: usize,
}

impl Arrived<'_> {
    fn is_whole(&self) -> bool {
        self.head.len() >= self.len
    }
}

/// Whether a packet, at least as long as its header, must be checked for neighbour discovery.
#[inline]
pub(super) fn is_nd_or_may_be(ethertype: u16, packet: &[u8]) -> bool {
    ethertype == TYPE_IPV6 && matches!(packet[6], NEXT_HEADER_ICMPV6 | NEXT_HEADER_FRAGMENT)
}

pub(super) fn sender(meta: &Meta) -> HardwareAddress {
    HardwareAddress::new(0, meta.src_qpn, meta.src_gid)
}

impl Ipoib {
    /// Decides on a datagram; `payload` starts at the encapsulation header.
    pub fn from_fabric<'p>(
        &mut self,
        now: Time,
        meta: &Meta,
        payload: &'p [u8],
    ) -> Incoming<'_, 'p> {
        let len = payload.len();
        self.arrived(now, meta, Arrived { head: payload, len })
    }

    #[inline]
    pub(super) fn arrived<'p>(
        &mut self,
        now: Time,
        meta: &Meta,
        arrived: Arrived<'p>,
    ) -> Incoming<'_, 'p> {
        match self.receive(now, meta, arrived) {
            Ok(Step::Packet(ethernet, len)) => {
                let l3 = &arrived.head[ENCAP_LEN..];
                Incoming::Packet {
                    ethernet,
                    l3: &l3[..len.min(l3.len())],
                }
            }
            Ok(Step::Frame(len)) => Incoming::Frame(&self.scratch[..len]),
            Ok(Step::Consumed) => Incoming::Consumed,
            Ok(Step::Held) => Incoming::Held,
            Err(reason) => {
                self.counters.drop_rx(reason);
                Incoming::Dropped(reason)
            }
        }
    }

    #[inline]
    fn receive(
        &mut self,
        now: Time,
        meta: &Meta,
        arrived: Arrived<'_>,
    ) -> Result<Step, DropReason> {
        let payload = arrived.head;
        if payload.len() < ENCAP_LEN {
            return Err(DropReason::Malformed);
        }
        let is_from =
            |own: &HardwareAddress| meta.src_qpn == own.qpn() && meta.src_gid == own.gid();
        let is_late = || self.former_local.get(now).as_ref().is_some_and(is_from);
        if is_from(&self.config.local) || (meta.multicast && is_late()) {
            return Err(DropReason::SelfEcho);
        }
        // The reserved half of the header is ignored (RFC 4391, section 6).
        let ethertype = be16(payload, 0);
        let l3 = &payload[ENCAP_LEN..];
        match ethertype {
            TYPE_IPV4 | TYPE_IPV6 => {
                let room = l3.len().max(arrived.len - ENCAP_LEN);
                self.ip_in(now, meta, ethertype, l3, room)
            }
            TYPE_ARP | TYPE_RARP => self.arp_in(now, meta, ethertype, l3),
            TYPE_ECHO if !arrived.is_whole() => Err(DropReason::TooLong),
            TYPE_ECHO => {
                self.echo_in(now, meta, payload);
                Ok(Step::Consumed)
            }
            _ => Err(DropReason::UnsupportedType),
        }
    }

    #[inline]
    fn ip_in(
        &mut self,
        now: Time,
        meta: &Meta,
        ethertype: u16,
        l3: &[u8],
        room: usize,
    ) -> Result<Step, DropReason> {
        let header = ip_header_of(ethertype, l3, room)?;
        let packet = &l3[..header.len.min(l3.len())];
        let Some(destination) = self.destination(meta, &header)? else {
            let step = self.ip_to(now, meta, ethertype, packet, header, self.config.mac)?;
            // A DHCP client without an address cannot answer a query.
            if ethertype == TYPE_IPV4 && dhcp::may_be_reply(packet) {
                return Ok(step);
            }
            return self.hold_for_guest(now, step, &header, packet);
        };
        self.ip_to(now, meta, ethertype, packet, header, destination)
    }

    #[inline]
    fn ip_to(
        &mut self,
        now: Time,
        meta: &Meta,
        ethertype: u16,
        packet: &[u8],
        header: IpHeader,
        destination: Mac,
    ) -> Result<Step, DropReason> {
        let whole = packet.len() == header.len;
        if is_nd_or_may_be(ethertype, packet) {
            if !whole && nd::begins(packet) {
                return Err(DropReason::TooLong);
            }
            if let Some(message) = nd::parse(packet)? {
                return self.nd_in(now, meta, destination, header, &message);
            }
        }
        if self.routes_multicast && whole && snoop::may_report(ethertype, packet) {
            self.snoop_from_fabric(now, ethertype, packet);
        }
        let source = self.source(now, meta, header.source);
        let ethernet = ethernet(destination, source, ethertype);
        if ethertype == TYPE_IPV4
            && whole
            && dhcp::may_be_reply(packet)
            && let Some(len) = self.dhcp_in(now, ethernet, packet)
        {
            return Ok(Step::Frame(len));
        }
        Ok(Step::Packet(ethernet, header.len))
    }

    /// The destination MAC. Packets to the broadcast GID are broadcast; for other groups and for unicast
    /// copies the IP destination decides. `None` if the guest must be searched first.
    #[inline]
    fn destination(&self, meta: &Meta, header: &IpHeader) -> Result<Option<Mac>, DropReason> {
        if !meta.multicast {
            return Ok(self.guest_for(header.destination));
        }
        if meta.dst_gid == self.broadcast_mgid() {
            return Ok(Some(MAC_BROADCAST));
        }
        match header.destination {
            ip if ip.is_multicast() => Ok(Some(group_mac(ip))),
            IpAddr::V4(ip) if ip.is_broadcast() => Ok(Some(MAC_BROADCAST)),
            // A unicast copy of a subnet broadcast.
            IpAddr::V4(_) if !meta.dst_gid.is_multicast() => Ok(Some(MAC_BROADCAST)),
            _ => Err(DropReason::NotAGroup),
        }
    }

    /// The MAC of the sender of data, which is learned if new.
    #[inline]
    pub(super) fn source(&mut self, now: Time, meta: &Meta, ip: IpAddr) -> Mac {
        if let Some((gid, qpn, link, mac)) = self.last_source
            && qpn == meta.src_qpn
            && gid == meta.src_gid
            && let Some(slot) = self.neighbours.follow(link)
        {
            self.heard(slot, now);
            return mac;
        }
        self.look_up_source(now, meta, ip)
    }

    fn look_up_source(&mut self, now: Time, meta: &Meta, ip: IpAddr) -> Mac {
        let address = sender(meta);
        let known = self.sender_of(meta, ip);
        let Some(slot) = known.or_else(|| self.data_from(now, &address, ip)) else {
            return peer_mac(&address);
        };
        self.heard(slot, now);
        let mac = self.neighbours.get(slot).mac;
        let link = self.neighbours.link(slot);
        self.last_source = Some((meta.src_gid, meta.src_qpn, link, mac));
        mac
    }

    /// The neighbour that sent a packet from an IP address. A peer with several data threads over an RDMA
    /// device also sends from queue pairs that are not in its address; then the IP address tells which
    /// interface of the port the packet is from.
    fn sender_of(&self, meta: &Meta, ip: IpAddr) -> Option<u32> {
        let known = self.neighbours.by_address(meta.src_gid, meta.src_qpn);
        known.or_else(|| {
            let slot = self.neighbours.by_ip(ip)?;
            let neighbour = self.neighbours.get(slot);
            let same_port = neighbour.address.gid() == meta.src_gid;
            (same_port && neighbour.confirmed).then_some(slot)
        })
    }

    fn nd_in(
        &mut self,
        now: Time,
        meta: &Meta,
        destination: Mac,
        header: IpHeader,
        message: &Message<'_>,
    ) -> Result<Step, DropReason> {
        if message.hop_limit() != ND_HOP_LIMIT {
            return Err(DropReason::BadHopLimit);
        }
        // Rewriting computes a new checksum: it must not make a wrong one right.
        if !message.checksum_is_right() {
            return Err(DropReason::BadChecksum);
        }
        self.limit_source(now, meta)?;
        self.learn_from_nd(now, meta, message)?;
        let source = self.source(now, meta, header.source);
        let ethernet = ethernet(destination, source, TYPE_IPV6);
        let signed = message.is_signed();
        if signed {
            self.signed_nd();
        }
        let mtu = self.interface_mtu();
        if signed || !message.needs_rewriting(mtu) {
            return Ok(Step::Packet(ethernet, header.len));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = message.rewrite(mtu, &mut scratch[ETHERNET_LEN..], |option, out| {
            let address = option.hardware_address()?;
            // The address in a redirect to another host: the host resolves the IP address itself.
            if !self.may_claim(meta, &address) {
                return None;
            }
            let mac = self.mac_of(&address);
            Some(put_mac(option.kind, mac, out))
        });
        self.scratch = scratch;
        let written = written?;
        self.scratch[..ETHERNET_LEN].copy_from_slice(&ethernet);
        self.count_nd(&written);
        Ok(Step::Frame(ETHERNET_LEN + written.len))
    }

    /// Whether the sender of a datagram may claim a hardware address. Hosts behind a peer have the peer's
    /// address, and a proxy claims IP addresses with its own hardware address. So a valid claim has the GID of
    /// its sender; the queue pair may be another one of its port.
    fn may_claim(&self, meta: &Meta, address: &HardwareAddress) -> bool {
        let check = self.config.claims;
        let has_gid = !meta.has_src_gid || address.gid() == meta.src_gid;
        let has_qpn = check != ClaimCheck::Qpn || address.qpn() == meta.src_qpn;
        check == ClaimCheck::Off || (has_gid && has_qpn)
    }

    fn limit_source(&mut self, now: Time, meta: &Meta) -> Result<(), DropReason> {
        match self.source_limits.take(now, meta.src_gid, meta.src_qpn) {
            true => Ok(()),
            false => Err(DropReason::OverLimit),
        }
    }

    fn learn_from_nd(
        &mut self,
        now: Time,
        meta: &Meta,
        message: &Message<'_>,
    ) -> Result<(), DropReason> {
        let (wanted, ip) = message.claim();
        let mut claimed = false;
        for option in message.options() {
            let Some(address) = option.hardware_address() else {
                continue;
            };
            if !address.is_unicast() {
                return Err(DropReason::BadAddress);
            }
            if !self.may_claim(meta, &address) {
                // A router names the better next hop (RFC 4861, section 4.5).
                if message.kind == Kind::Redirect {
                    continue;
                }
                return Err(DropReason::ForgedClaim);
            }
            if option.kind == wanted {
                claimed = true;
                self.learn_neighbour(now, &address, Some(ip), message.overrides())?;
                if meta.multicast && message.kind == Kind::NeighbourAdvertisement {
                    self.announced(now, &address);
                }
            }
        }
        if !claimed && message.kind == Kind::NeighbourAdvertisement {
            self.advertised_by_sender(now, meta, ip, message.overrides())?;
        }
        Ok(())
    }

    /// Learns from an advertisement without an option, the answer to a unicast solicitation: its sender has
    /// the address (RFC 4861, section 4.4). It contains no flags of the sender: the last known flags stay,
    /// and without known flags it counts as data only.
    fn advertised_by_sender(
        &mut self,
        now: Time,
        meta: &Meta,
        ip: IpAddr,
        overrides: bool,
    ) -> Result<(), DropReason> {
        let known = self.sender_of(meta, ip);
        let known = known.map(|slot| self.neighbours.get(slot));
        match known.filter(|n| n.confirmed).map(|n| n.address) {
            Some(address) => self.learn_neighbour(now, &address, Some(ip), overrides),
            None => {
                self.data_from(now, &sender(meta), ip);
                Ok(())
            }
        }
    }

    fn arp_in(
        &mut self,
        now: Time,
        meta: &Meta,
        ethertype: u16,
        l3: &[u8],
    ) -> Result<Step, DropReason> {
        let arp = Arp::<HardwareAddress>::parse(l3).ok_or(DropReason::BadArp)?;
        if !arp.sender.is_unicast() {
            return Err(DropReason::BadAddress);
        }
        if !self.may_claim(meta, &arp.sender) {
            return Err(DropReason::ForgedClaim);
        }
        self.limit_source(now, meta)?;
        // A reverse request contains no IP address of its sender.
        let ip = (ethertype == TYPE_ARP).then(|| arp.sender_ip.into());
        self.learn_neighbour(now, &arp.sender, ip, true)?;
        if meta.multicast && ip == Some(arp.target_ip.into()) {
            self.announced(now, &arp.sender);
        }
        let sender = self.mac_of(&arp.sender);
        let guest = self.arp_guest(&arp);
        let destination = if meta.multicast { MAC_BROADCAST } else { guest };
        let mut packet = [0; ETHERNET_ARP_LEN];
        Arp {
            operation: arp.operation,
            sender,
            sender_ip: arp.sender_ip,
            target: self.arp_target_in(&arp, ethertype, guest),
            target_ip: arp.target_ip,
        }
        .write(&mut packet);
        let len = ETHERNET_LEN + ETHERNET_ARP_LEN;
        self.scratch[..ETHERNET_LEN].copy_from_slice(&ethernet(destination, sender, ethertype));
        self.scratch[ETHERNET_LEN..len].copy_from_slice(&packet);
        self.counters.arp_translated += 1;
        Ok(Step::Frame(len))
    }

    /// The target of a request is the requested host, that of a reply is the requester.
    fn arp_target_in(&self, arp: &Arp<HardwareAddress>, ethertype: u16, guest: Mac) -> Mac {
        if ethertype == TYPE_ARP && arp.operation == REQUEST {
            [0; 6]
        } else if arp.target.same_peer(&self.config.local) {
            guest
        } else if arp.target.is_unicast() {
            self.mac_of(&arp.target)
        } else if arp.target.qpn() == proto::Qpn::MULTICAST {
            MAC_BROADCAST
        } else {
            [0; 6]
        }
    }
}
