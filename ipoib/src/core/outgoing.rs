//! From the TAP to the fabric.

use std::net::IpAddr;

use proto::{Mac, Mode, Time};

use super::learning::is_claimable;
use super::{Ipoib, Outgoing, Target, Update};
use crate::address::{HardwareAddress, MAC_BROADCAST};
use crate::arp::{Arp, INFINIBAND_ARP_LEN, REQUEST};
use crate::counters::DropReason;
use crate::dhcp;
use crate::group::BROADCAST;
use crate::nd::{self, Message, OPTION_SOURCE, put_hardware_address};
use crate::snoop;
use crate::wire::{
    ENCAP_LEN, ETHERNET_LEN, NEXT_HEADER_FRAGMENT, NEXT_HEADER_ICMPV6, TYPE_ARP, TYPE_IPV4,
    TYPE_IPV6, TYPE_RARP, TYPE_VLAN, array, be16, encap, ip_header, ipv4_at, ipv6_at,
};

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` in the first byte of a virtio-net header: the checksum field contains only
/// the pseudo header's sum (VIRTIO 1.2, section 5.1.6).
const NEEDS_CHECKSUM: u8 = 1;

/// A frame from the TAP with its virtio-net header.
#[derive(Clone, Copy)]
pub(super) struct Tap<'f> {
    pub(super) prefix: &'f [u8; 12],
    frame: &'f [u8],
    /// The frame was held: the core has already learned from it.
    pub(super) waited: bool,
}

impl<'f> Tap<'f> {
    pub(super) fn l3(&self) -> &'f [u8] {
        &self.frame[ETHERNET_LEN..]
    }

    pub(super) fn destination(&self) -> Mac {
        array(self.frame, 0)
    }

    pub(super) fn source(&self) -> Mac {
        array(self.frame, 6)
    }

    pub(super) fn checksum_is_partial(&self) -> bool {
        self.prefix[0] & NEEDS_CHECKSUM != 0
    }
}

pub(super) enum Step {
    /// Send it on the target's usual path.
    Forward(Target, u16),
    /// Send it as a datagram in any mode.
    Datagram(Target, u16),
    Rewritten(Target, usize),
    Held,
    Tagged,
}

const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// Source and destination of an IP packet, at least as long as its header.
pub(super) fn endpoints(ethertype: u16, l3: &[u8]) -> (IpAddr, IpAddr) {
    match ethertype {
        TYPE_IPV4 => (ipv4_at(l3, 12).into(), ipv4_at(l3, 16).into()),
        _ => (ipv6_at(l3, 8).into(), ipv6_at(l3, 24).into()),
    }
}

impl Ipoib {
    /// Decides on a frame that the host sent. `frame` starts at the destination MAC and has any size that
    /// the TAP returns. `prefix` is its virtio-net header, returned with a held frame.
    pub fn from_tap(&mut self, now: Time, prefix: &[u8; 12], frame: &[u8]) -> Outgoing<'_> {
        let waited = false;
        self.decide(
            now,
            Tap {
                prefix,
                frame,
                waited,
            },
        )
    }

    /// Decides again on a frame from [`Ipoib::pop_released`]. Learns nothing from it: two frames that
    /// release each other would loop for ever.
    pub fn from_released(&mut self, now: Time, prefix: &[u8; 12], frame: &[u8]) -> Outgoing<'_> {
        let waited = true;
        self.decide(
            now,
            Tap {
                prefix,
                frame,
                waited,
            },
        )
    }

    fn decide(&mut self, now: Time, tap: Tap<'_>) -> Outgoing<'_> {
        match self.step(now, tap) {
            Ok(Step::Forward(to, ethertype)) => self.way(now, to, ethertype),
            Ok(Step::Datagram(to, ethertype)) => {
                let encap = encap(ethertype);
                let sibling = self.way_to_sibling(to, encap);
                sibling.unwrap_or(Outgoing::Forward { to, encap })
            }
            Ok(Step::Rewritten(to, len)) => Outgoing::Rewritten {
                to,
                packet: &self.scratch[..len],
            },
            Ok(Step::Held) => {
                self.counters.frames_held += 1;
                Outgoing::Held
            }
            Ok(Step::Tagged) => Outgoing::Tagged,
            Err(reason) => {
                self.counters.drop_tx(reason);
                Outgoing::Dropped(reason)
            }
        }
    }

    /// The path of a unicast packet: to a sibling, over the peer's connection, or as a datagram.
    #[inline]
    fn way(&mut self, now: Time, to: Target, ethertype: u16) -> Outgoing<'static> {
        let encap = encap(ethertype);
        if let Some(sibling) = self.way_to_sibling(to, encap) {
            return sibling;
        }
        let found = match to {
            Target::Neighbour(slot) if self.config.mode == Mode::Connected => {
                self.connection_to(now, slot)
            }
            _ => None,
        };
        match found {
            None => Outgoing::Forward { to, encap },
            Some((connection, mtu)) => Outgoing::Message {
                connection,
                to,
                encap,
                mtu,
            },
        }
    }

    #[inline]
    fn step(&mut self, now: Time, tap: Tap<'_>) -> Result<Step, DropReason> {
        if tap.frame.len() < ETHERNET_LEN {
            return Err(DropReason::Malformed);
        }
        let ethertype = be16(tap.frame, 12);
        let header_len = match ethertype {
            TYPE_IPV4 => 20,
            TYPE_IPV6 => 40,
            TYPE_ARP | TYPE_RARP => return self.arp_out(now, tap, ethertype),
            TYPE_VLAN if self.vlans => return Ok(Step::Tagged),
            _ => return Err(DropReason::UnsupportedType),
        };
        let l3 = tap.l3();
        if l3.len() < header_len {
            return Err(DropReason::Malformed);
        }
        self.learn_ip(now, &tap, ethertype)?;
        if ethertype == TYPE_IPV6 && matches!(l3[6], NEXT_HEADER_ICMPV6 | NEXT_HEADER_FRAGMENT) {
            return self.icmpv6_out(now, tap);
        }
        if snoop::may_report(ethertype, l3) {
            self.snoop_from_tap(now, tap, ethertype);
        }
        if ethertype == TYPE_IPV4
            && dhcp::may_be_request(l3)
            && let Some(step) = self.dhcp_out(now, tap)
        {
            return step;
        }
        self.forward(now, tap, ethertype)
    }

    #[inline]
    fn forward(&mut self, now: Time, tap: Tap<'_>, ethertype: u16) -> Result<Step, DropReason> {
        Ok(match self.ip_target(now, tap, ethertype)? {
            Some(to) => Step::Forward(to, ethertype),
            None => Step::Held,
        })
    }

    /// Sends unchanged neighbour discovery: always a datagram (RFC 4755, section 7).
    fn nd_untouched(&mut self, now: Time, tap: Tap<'_>) -> Result<Step, DropReason> {
        Ok(match self.ip_target(now, tap, TYPE_IPV6)? {
            Some(to) => Step::Datagram(to, TYPE_IPV6),
            None => Step::Held,
        })
    }

    /// The target of an IP packet; `None` if the frame is held.
    #[inline]
    pub(super) fn ip_target(
        &mut self,
        now: Time,
        tap: Tap<'_>,
        ethertype: u16,
    ) -> Result<Option<Target>, DropReason> {
        let mac = tap.destination();
        if is_group(mac) {
            return self
                .ip_group(now, mac, endpoints(ethertype, tap.l3()).1)
                .map(Some);
        }
        self.is_not_stale(now, &tap, ethertype)?;
        if let Some(to) = self.peer(now, mac) {
            return Ok(Some(to));
        }
        let (source, destination) = endpoints(ethertype, tap.l3());
        self.unknown(now, tap, source, destination)
    }

    /// The group of an IP destination. The MGID follows from the IP address, because a MAC has too few bits
    /// (RFC 4391, section 4). A broadcast frame whose IP destination is no group has a subnet broadcast
    /// address.
    fn ip_group(&mut self, now: Time, mac: Mac, destination: IpAddr) -> Result<Target, DropReason> {
        match self.mgid_for(destination) {
            Some(mgid) => Ok(self.group(now, mgid)),
            None if mac == MAC_BROADCAST && destination.is_ipv4() => Ok(Target::Group(BROADCAST)),
            None => Err(DropReason::NotAGroup),
        }
    }

    /// The peer with a MAC.
    #[inline]
    fn peer(&mut self, now: Time, mac: Mac) -> Option<Target> {
        let slot = self.neighbours.by_mac(mac)?;
        let current = self.neighbours.current(slot)?;
        self.neighbours.touch(slot, now);
        if current != slot {
            self.neighbours.touch(current, now);
        }
        Some(Target::Neighbour(current))
    }

    /// Handles an unknown destination MAC: uses the IP address, or queries it. An owner that is known from data only
    /// does not count: one forged packet would divert those of the host. The MAC of the true owner is known.
    fn unknown(
        &mut self,
        now: Time,
        tap: Tap<'_>,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<Option<Target>, DropReason> {
        self.is_for_fabric(now, tap.destination(), destination)?;
        if let Some(slot) = self.neighbours.by_claimed_ip(destination) {
            self.neighbours.touch(slot, now);
            return Ok(Some(Target::Neighbour(slot)));
        }
        if !is_claimable(source) || !is_claimable(destination) {
            return Err(DropReason::Unresolvable);
        }
        let resolver = &mut self.resolver;
        if resolver.hold(now, destination, source, tap.prefix, tap.frame)? {
            self.publish(Update::Wanted { ip: destination });
        }
        Ok(None)
    }

    /// Refuses frames flooded by a bridge: no peer has the destination MAC, and the host side has the MAC
    /// or the IP address.
    fn is_for_fabric(&self, now: Time, mac: Mac, ip: IpAddr) -> Result<(), DropReason> {
        if mac == self.config.mac {
            return Err(DropReason::ToSelf);
        }
        // A guest may still use the former MAC of an address that moved to a peer.
        let to_guest = self.guests.knows(mac) && self.neighbours.strong_owner(ip).is_none();
        if to_guest || self.is_at_guest(now, ip) {
            return Err(DropReason::ToGuest);
        }
        Ok(())
    }

    fn icmpv6_out(&mut self, now: Time, tap: Tap<'_>) -> Result<Step, DropReason> {
        let header = ip_header(TYPE_IPV6, tap.l3())?;
        let packet = &tap.l3()[..header.len];
        let Some(message) = nd::parse(packet)? else {
            return self.forward(now, tap, TYPE_IPV6);
        };
        self.learn_solicitation(&tap, &message);
        if message.is_signed() {
            self.signed_nd();
            return self.nd_untouched(now, tap);
        }
        if !message.needs_rewriting(self.interface_mtu()) {
            return self.nd_untouched(now, tap);
        }
        if !tap.checksum_is_partial() && !message.checksum_is_right() {
            return Err(DropReason::BadChecksum);
        }
        let Some(to) = self.ip_target(now, tap, TYPE_IPV6)? else {
            return Ok(Step::Held);
        };
        Ok(Step::Rewritten(to, self.nd_out(&message)?))
    }

    fn nd_out(&mut self, message: &Message<'_>) -> Result<usize, DropReason> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = message.rewrite(
            self.interface_mtu(),
            &mut scratch[ENCAP_LEN..],
            |option, out| {
                let mac = option.mac()?;
                // The source is always this interface; the target of a redirect may be a third host.
                let address = if option.kind == OPTION_SOURCE || message.kind != nd::Kind::Redirect
                {
                    self.config.local
                } else {
                    self.hardware_of(mac)?
                };
                Some(put_hardware_address(option.kind, &address, out))
            },
        );
        self.scratch = scratch;
        let written = written?;
        self.scratch[..ENCAP_LEN].copy_from_slice(&encap(TYPE_IPV6));
        self.count_nd(&written);
        Ok(ENCAP_LEN + written.len)
    }

    fn arp_out(&mut self, now: Time, tap: Tap<'_>, ethertype: u16) -> Result<Step, DropReason> {
        let arp = Arp::<Mac>::parse(tap.l3()).ok_or(DropReason::BadArp)?;
        self.learn_arp(now, &tap, ethertype, &arp)?;
        let Some(to) = self.arp_target(now, tap, ethertype, &arp)? else {
            return Ok(Step::Held);
        };
        let broadcast_request = arp.operation == REQUEST && to == Target::Group(BROADCAST);
        let target = if broadcast_request {
            None
        } else if arp.target == arp.sender {
            // A gratuitous reply: this interface stands for the guest in both places.
            Some(self.config.local)
        } else {
            self.hardware_of(arp.target)
        };
        let mut packet = [0; INFINIBAND_ARP_LEN];
        Arp {
            operation: arp.operation,
            sender: self.config.local,
            sender_ip: arp.sender_ip,
            target: target.unwrap_or(HardwareAddress([0; 20])),
            target_ip: arp.target_ip,
        }
        .write(&mut packet);
        let len = ENCAP_LEN + INFINIBAND_ARP_LEN;
        self.scratch[..ENCAP_LEN].copy_from_slice(&encap(ethertype));
        self.scratch[ENCAP_LEN..len].copy_from_slice(&packet);
        self.counters.arp_translated += 1;
        Ok(Step::Rewritten(to, len))
    }

    fn arp_target(
        &mut self,
        now: Time,
        tap: Tap<'_>,
        ethertype: u16,
        arp: &Arp<Mac>,
    ) -> Result<Option<Target>, DropReason> {
        let mac = tap.destination();
        if is_group(mac) {
            return Ok(Some(Target::Group(BROADCAST)));
        }
        if let Some(to) = self.peer(now, mac) {
            return Ok(Some(to));
        }
        self.is_for_fabric(now, mac, arp.target_ip.into())?;
        if ethertype == TYPE_ARP && arp.operation == REQUEST {
            // The host checks a forgotten peer, for example after a restart of the daemon. A broadcast
            // finds the peer, and its answer shows the host that the peer is alive.
            let known = self.neighbours.by_claimed_ip(arp.target_ip.into());
            return Ok(Some(
                known.map_or(Target::Group(BROADCAST), Target::Neighbour),
            ));
        }
        if ethertype == TYPE_RARP {
            return Err(DropReason::Unresolvable);
        }
        self.unknown(now, tap, arp.sender_ip.into(), arp.target_ip.into())
    }

    /// The 20-byte address of a MAC, if known. That of a guest is the interface's.
    fn hardware_of(&self, mac: Mac) -> Option<HardwareAddress> {
        if mac == self.config.mac {
            return Some(self.config.local);
        }
        if mac == MAC_BROADCAST {
            let qpn = proto::Qpn::MULTICAST;
            return Some(HardwareAddress::new(0, qpn, self.broadcast_mgid()));
        }
        let Some(slot) = self.neighbours.by_mac(mac) else {
            return self.guests.knows(mac).then_some(self.config.local);
        };
        let current = self.neighbours.current(slot)?;
        Some(self.neighbours.get(current).address)
    }
}
