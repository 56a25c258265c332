//! Services besides address translation: membership reports, DHCP, echoes.
//!
//! * **Membership reports** (IGMPv1 to 3, MLDv1 and 2) in frames from the TAP become events, and pass
//!   unchanged. `Snooper` keeps the groups of the hosts behind the interface and writes a querier's queries
//!   to the TAP. IGMP queries have the source 0.0.0.0, so they never win an election against a router (RFC
//!   4541, section 2.1.1).
//! * **DHCPv4**: a server on the link cannot send to an Ethernet address, so DISCOVER and REQUEST get the
//!   BROADCAST flag. A reply without a hardware address gets the client's, found by its transaction id.
//!   `Rfc4390` mode writes requests as an IPoIB client does: hardware type 32, no address, an identifier.
//!   Messages that are malformed, relayed or fragmented, or have a wrong checksum, pass unchanged.
//! * **Router advertisements**: an MTU option above the link's MTU is lowered, in both directions, unless
//!   signed. In connected mode the limit is 65520, not the datagram's MTU.
//! * **Echo** (`ipoib/src/echo.rs`): EtherType 0x88b5 between daemons, for `ibtap ping`. A multicast
//!   request of up to 128 bytes is answered. At most 1000 requests are answered in a second.

use std::net::{IpAddr, Ipv4Addr};

use proto::{DhcpMode, Gid, Mac, Time};

use super::incoming::sender;
use super::outgoing::{Step, Tap};
use super::types::{EchoRequest, EchoTarget};
use super::{Ipoib, Meta, Target, Update};
use crate::counters::DropReason;
use crate::dhcp::{self, Clients};
use crate::echo::{self, Echo, EchoQueue, Operation, To};
use crate::event::Event;
use crate::group::BROADCAST;
use crate::nd::Rewritten;
use crate::snoop::{self, Lately};
use crate::wire::{ENCAP_LEN, ETHERNET_LEN, TYPE_IPV4, encap};

/// The requester of a group on the fabric is irrelevant: the same key for all in [`Lately`].
const FABRIC: Mac = [0; 6];

/// The state of the services.
pub struct Services {
    lately: Lately,
    pub(super) clients: Clients,
    pub(super) echo: EchoQueue,
}

impl Services {
    pub fn new() -> Services {
        Services {
            lately: Lately::new(),
            clients: Clients::default(),
            echo: EchoQueue::default(),
        }
    }
}

impl Ipoib {
    pub(super) fn count_nd(&mut self, written: &Rewritten) {
        self.counters.nd_options_stripped += written.stripped;
        self.counters.ra_mtu_clamped += written.clamped;
        self.counters.nd_translated += 1;
    }

    /// Reports the contents of a membership report from the host side. The frame passes unchanged.
    pub(super) fn snoop_from_tap(&mut self, now: Time, tap: Tap<'_>, ethertype: u16) {
        let mac: Mac = tap.source();
        let unfinished = tap.checksum_is_partial();
        let mut any = false;
        for record in snoop::records(ethertype, tap.l3(), unfinished) {
            any = true;
            if !self.services.lately.is_news(now, mac, record) {
                continue;
            }
            let group = record.group;
            self.report(if record.joined {
                Event::GroupJoined { mac, group }
            } else {
                Event::GroupLeft { mac, group }
            });
        }
        self.counters.reports_snooped += u64::from(any);
    }

    /// Reports groups wanted on the fabric, for a host that routes multicast.
    pub(super) fn snoop_from_fabric(&mut self, now: Time, ethertype: u16, packet: &[u8]) {
        for record in snoop::records(ethertype, packet, false) {
            if record.joined && self.services.lately.is_news(now, FABRIC, record) {
                let group = record.group;
                self.report(Event::GroupSeen { group });
            }
        }
    }

    /// Changes a client's DHCP message as configured; `None` if it passes unchanged.
    pub(super) fn dhcp_out(&mut self, now: Time, tap: Tap<'_>) -> Option<Result<Step, DropReason>> {
        let [_, segmentation, ..] = *tap.prefix;
        if self.config.dhcp == DhcpMode::Off || segmentation != 0 {
            return None;
        }
        let message = dhcp::parse(tap.l3(), tap.checksum_is_partial())?;
        let client = message.client().filter(|_| message.is_request())?;
        let xid = message.xid();
        if self.services.clients.remember(now, xid, client) {
            self.publish(Update::Dhcp { xid, client });
        }
        // A held frame comes again and is changed then.
        let to = match self.ip_target(now, tap, TYPE_IPV4) {
            Ok(Some(to)) => to,
            Ok(None) => return Some(Ok(Step::Held)),
            Err(reason) => return Some(Err(reason)),
        };
        let room = ENCAP_LEN + self.config.link_mtu;
        let end = room.min(self.scratch.len());
        let out = self.scratch.get_mut(ENCAP_LEN..end)?;
        let infiniband = match self.config.dhcp {
            DhcpMode::Rfc4390 => message.write_infiniband(client, out),
            _ => None,
        };
        let written = infiniband.or_else(|| message.write_broadcast(out));
        let Some(len) = written else {
            return Some(Ok(Step::Datagram(to, TYPE_IPV4)));
        };
        self.scratch[..ENCAP_LEN].copy_from_slice(&encap(TYPE_IPV4));
        self.counters.dhcp_translated += 1;
        Some(Ok(Step::Rewritten(to, ENCAP_LEN + len)))
    }

    /// Adds the client's hardware address to a server's reply that lacks it, and addresses the reply to
    /// this client only. Returns the length of the frame in the scratch buffer, or `None` if the reply
    /// needs no change.
    pub(super) fn dhcp_in(
        &mut self,
        now: Time,
        mut ethernet: [u8; ETHERNET_LEN],
        packet: &[u8],
    ) -> Option<usize> {
        if self.config.dhcp == DhcpMode::Off {
            return None;
        }
        let message = dhcp::parse(packet, false).filter(dhcp::Message::is_reply)?;
        let asked = self.services.clients.find(now, message.xid());
        let named = message.client();
        // Another client on the link may use the same transaction id; a hardware address is more reliable.
        let client = named.or(asked)?;
        if asked == Some(client)
            && let Some(ip) = message.lease()
        {
            self.leased(now, ip.into(), client);
        }
        let broadcast = ethernet[0] & 1 != 0;
        let arrived = broadcast || ethernet[..6] == client || !self.serves_guests();
        if named.is_some() && arrived {
            return None;
        }
        if !broadcast {
            ethernet[..6].copy_from_slice(&client);
        }
        let out = &mut self.scratch[ETHERNET_LEN..];
        let len = if named.is_none() {
            self.counters.dhcp_translated += 1;
            message.write_client(client, out)?
        } else {
            out.get_mut(..packet.len())?.copy_from_slice(packet);
            packet.len()
        };
        self.scratch[..ETHERNET_LEN].copy_from_slice(&ethernet);
        Some(ETHERNET_LEN + len)
    }

    /// Sends an echo request to a peer. False if that is impossible: the address is unknown, the length is
    /// below the header's (40 bytes) or above the link's, or too many requests wait.
    pub fn echo(&mut self, request: &EchoRequest) -> bool {
        let room = ENCAP_LEN + self.config.link_mtu;
        if !(echo::HEADER_LEN..=room).contains(&request.len) {
            return false;
        }
        let Some((to, target)) = self.echo_target(request.target) else {
            return false;
        };
        let payload = Echo {
            operation: Operation::Request,
            id: request.id,
            sequence: request.sequence,
            stamp: request.stamp,
            target,
        }
        .write(request.len);
        self.services.echo.ask(to, payload)
    }

    /// The destination of a request, and the GID in it.
    fn echo_target(&self, target: EchoTarget) -> Option<(To, Gid)> {
        let peer = |slot| {
            let address = self.neighbours.get(slot).address;
            (To::Peer(address), address.gid())
        };
        match target {
            EchoTarget::Ip(ip) => self.neighbours.by_ip(ip).map(peer),
            EchoTarget::Gid(gid) => {
                let known = self.neighbours.live().filter(|(_, n)| {
                    n.address.gid() == gid && n.confirmed && n.successor.is_none()
                });
                let newest = known.max_by_key(|(_, n)| n.used);
                Some(newest.map_or((To::Everybody, gid), |(link, _)| peer(link.slot)))
            }
            EchoTarget::All => Some((To::Everybody, Gid::UNSPECIFIED)),
        }
    }

    /// Handles a received request or reply.
    pub(super) fn echo_in(&mut self, now: Time, meta: &Meta, payload: &[u8]) {
        match Echo::parse(payload) {
            Some(e) if e.operation == Operation::Reply => self.echo_reply(now, meta, &e, payload),
            Some(e) => self.echo_request(now, meta, &e, payload),
            None => self.counters.echo_refused += 1,
        }
    }

    fn echo_reply(&mut self, now: Time, meta: &Meta, reply: &Echo, payload: &[u8]) {
        if meta.multicast || !self.services.echo.may_report_answer(now) {
            self.counters.echo_refused += 1;
            return;
        }
        self.report(Event::Echo {
            from: sender(meta),
            id: reply.id,
            sequence: reply.sequence,
            stamp: reply.stamp,
            len: payload.len(),
        });
    }

    fn echo_request(&mut self, now: Time, meta: &Meta, request: &Echo, payload: &[u8]) {
        let ours = self.config.local.gid();
        if request.target != Gid::UNSPECIFIED && request.target != ours {
            return;
        }
        let long = meta.multicast && payload.len() > echo::GROUP_LEN_MAX;
        let answered =
            !long && self.services.echo.may_answer(now) && self.answer_echo(now, meta, payload);
        if answered {
            self.counters.echo_answered += 1;
        } else {
            self.counters.echo_refused += 1;
        }
    }

    /// Queues the answer; its sender must be in the neighbour table.
    fn answer_echo(&mut self, now: Time, meta: &Meta, request: &[u8]) -> bool {
        let address = sender(meta);
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let known = self.neighbours.by_address(meta.src_gid, meta.src_qpn);
        if known
            .or_else(|| self.data_from(now, &address, nobody))
            .is_none()
        {
            return false;
        }
        let answer = echo::answer(request);
        self.services.echo.answer(To::Peer(address), answer)
    }

    /// Returns the next queued echo. If its peer was removed meanwhile, the echo is dropped.
    pub(super) fn next_echo(&mut self, now: Time) -> Option<Target> {
        while let Some(to) = self.services.echo.next() {
            let peer = match to {
                To::Everybody => return Some(Target::Group(BROADCAST)),
                To::Peer(peer) => peer,
            };
            if let Some(slot) = self.neighbours.by_address(peer.gid(), peer.qpn()) {
                self.neighbours.touch(slot, now);
                return Some(Target::Neighbour(slot));
            }
        }
        None
    }
}
