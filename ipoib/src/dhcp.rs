//! DHCPv4 (RFC 2131) between Ethernet clients and servers on an IPoIB link (RFC 4390).
//!
//! A server on the link cannot send to a client's MAC, so the client must request broadcast answers. A
//! server that follows RFC 4390 omits the client's hardware address from answers, which Ethernet clients
//! need. Malformed messages pass unchanged; the receiver reports their errors.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use proto::{Mac, Time};

use crate::checksum::{checksum, udp_v4};
use crate::wire::{TYPE_IPV4, array, be16, ip_header, ipv4_at};

const PROTOCOL_UDP: u8 = 17;
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
const UDP_LEN: usize = 8;

// Offsets in a message (RFC 2131, section 2).
const OP: usize = 0;
const HTYPE: usize = 1;
const HLEN: usize = 2;
const XID: usize = 4;
const FLAGS: usize = 10;
const CIADDR: usize = 12;
const YIADDR: usize = 16;
const GIADDR: usize = 24;
const CHADDR: usize = 28;
const CHADDR_LEN: usize = 16;
/// The fixed part, before the magic cookie.
const FIXED_LEN: usize = 236;
const OPTIONS: usize = FIXED_LEN + 4;
const COOKIE: [u8; 4] = [99, 130, 83, 99];

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const FLAG_BROADCAST: u8 = 0x80;
const HTYPE_ETHERNET: u8 = 1;
const HTYPE_INFINIBAND: u8 = 32;

const OPTION_PAD: u8 = 0;
const OPTION_TYPE: u8 = 53;
const OPTION_CLIENT: u8 = 61;
const OPTION_END: u8 = 255;

const DISCOVER: u8 = 1;
const SELECT: u8 = 3;
const ACK: u8 = 5;

/// Type and length, the type of an RFC 4361 identifier, IAID, DUID-LL of a MAC.
const CLIENT_OPTION_LEN: usize = 2 + CLIENT_DATA_LEN as usize;
/// Bytes behind type and length of this option.
const CLIENT_DATA_LEN: u8 = 1 + 4 + 4 + 6;

/// Whether an IPv4 packet, at least as long as its header, may be DHCP from a client to a server: a quick
/// check of a few bytes.
#[inline]
pub fn may_be_request(l3: &[u8]) -> bool {
    l3[9] == PROTOCOL_UDP && ports(l3) == Some((CLIENT_PORT, SERVER_PORT))
}

/// Whether an IPv4 packet may be DHCP from a server to a client, as [`may_be_request`].
#[inline]
pub fn may_be_reply(l3: &[u8]) -> bool {
    l3[9] == PROTOCOL_UDP && ports(l3) == Some((SERVER_PORT, CLIENT_PORT))
}

#[inline]
fn ports(l3: &[u8]) -> Option<(u16, u16)> {
    let at = usize::from(l3[0] & 0x0f) * 4;
    let ports: [u8; 4] = *l3.get(at..)?.first_chunk()?;
    Some((be16(&ports, 0), be16(&ports, 2)))
}

/// A message in an IPv4 packet with valid lengths and checksums.
#[derive(Clone, Copy, Debug)]
pub struct Message<'p> {
    packet: &'p [u8],
    /// Bytes of the IPv4 header.
    head: usize,
    /// Bytes of IPv4 header, UDP header and message.
    len: usize,
    /// There is no UDP checksum.
    unsummed: bool,
    /// Offset of the End option in the message. `None` for a BOOTP message without the magic cookie, which
    /// has no options.
    end: Option<usize>,
    kind: Option<u8>,
    has_client: bool,
}

/// Parses a message. `l3` may be longer than the packet. With `unfinished` the UDP checksum is partial and
/// not verified.
pub fn parse(l3: &[u8], unfinished: bool) -> Option<Message<'_>> {
    let header = ip_header(TYPE_IPV4, l3).ok()?;
    let packet = &l3[..header.len];
    let head = usize::from(packet[0] & 0x0f) * 4;
    // All bits except "don't fragment".
    let fragment = be16(packet, 6) & 0xbfff != 0;
    if fragment || packet[9] != PROTOCOL_UDP || packet.len() < head + UDP_LEN + FIXED_LEN {
        return None;
    }
    let udp = &packet[head..];
    let udp_len = usize::from(be16(udp, 4));
    if udp_len < UDP_LEN + FIXED_LEN || udp_len > udp.len() {
        return None;
    }
    let udp = &udp[..udp_len];
    let unsummed = be16(udp, 6) == 0 && !unfinished;
    let right = unfinished || unsummed || udp_v4(packet, udp) == 0;
    if !right || checksum(&[&packet[..head]]) != 0 {
        return None;
    }
    let mut message = Message {
        packet,
        head,
        len: head + udp_len,
        unsummed,
        end: None,
        kind: None,
        has_client: false,
    };
    message.read_options()?;
    Some(message)
}

impl<'p> Message<'p> {
    /// Parses the options; `None` if one does not fit, or the End option is missing.
    fn read_options(&mut self) -> Option<()> {
        let body = self.body();
        if body.get(FIXED_LEN..OPTIONS) != Some(&COOKIE) {
            return Some(());
        }
        let mut at = OPTIONS;
        loop {
            match *body.get(at)? {
                OPTION_PAD => at += 1,
                OPTION_END => break,
                kind => {
                    let len = usize::from(*body.get(at + 1)?);
                    let value = body.get(at + 2..at + 2 + len)?;
                    match (kind, value) {
                        (OPTION_TYPE, [message]) => self.kind = Some(*message),
                        (OPTION_TYPE, _) => return None,
                        (OPTION_CLIENT, _) => self.has_client = true,
                        _ => {}
                    }
                    at += 2 + len;
                }
            }
        }
        self.end = Some(at);
        Some(())
    }

    fn body(&self) -> &'p [u8] {
        &self.packet[self.head + UDP_LEN..self.len]
    }

    fn ip(&self, at: usize) -> Ipv4Addr {
        ipv4_at(self.body(), at)
    }

    /// Whether a client on this link sent the message to a server, not a relay.
    pub fn is_request(&self) -> bool {
        self.body()[OP] == REQUEST && self.ip(GIADDR).is_unspecified()
    }

    /// Whether a server or a relay sent the message to a client.
    pub fn is_reply(&self) -> bool {
        self.body()[OP] == REPLY
    }

    /// The transaction id.
    pub fn xid(&self) -> u32 {
        u32::from_be_bytes(array(self.body(), XID))
    }

    /// The client's hardware address, if it is a MAC.
    pub fn client(&self) -> Option<Mac> {
        let b = self.body();
        let mac: Mac = array(b, CHADDR);
        (b[HTYPE] == HTYPE_ETHERNET && b[HLEN] == 6 && mac != [0; 6]).then_some(mac)
    }

    /// The address that a server's acknowledgement assigns to the client.
    pub fn lease(&self) -> Option<Ipv4Addr> {
        let ip = self.ip(YIADDR);
        (self.kind == Some(ACK) && !ip.is_unspecified()).then_some(ip)
    }

    /// Whether the client must be answered by broadcast: it requests an address and has none yet (RFC 4390,
    /// section 2.2).
    fn wants_broadcast(&self) -> bool {
        let asks = matches!(self.kind, None | Some(DISCOVER | SELECT));
        asks && self.ip(CIADDR).is_unspecified()
    }

    /// Writes the packet with the BROADCAST flag, if necessary. Returns its length, or `None` if no change
    /// is necessary or `out` is too small.
    pub fn write_broadcast(&self, out: &mut [u8]) -> Option<usize> {
        if !self.wants_broadcast() || self.body()[FLAGS] & FLAG_BROADCAST != 0 {
            return None;
        }
        let body = self.copy(out, self.packet.len())?;
        body[FLAGS] |= FLAG_BROADCAST;
        self.finish(out, self.packet.len(), self.len)
    }

    /// Writes the packet in the form of a client on an IPoIB link: hardware type 32, no hardware address, a
    /// client identifier, the BROADCAST flag if necessary (RFC 4390, section 2). Returns its length, or
    /// `None` if `out` is too small or the message has no options for an identifier.
    pub fn write_infiniband(&self, client: Mac, out: &mut [u8]) -> Option<usize> {
        let end = self.end?;
        let grown = if self.has_client {
            0
        } else {
            // Up to the end of the options; the padding behind may be used.
            let needed = self.head + UDP_LEN + end + CLIENT_OPTION_LEN + 1;
            needed.saturating_sub(self.len)
        };
        let len = self.len + grown;
        let wants_broadcast = self.wants_broadcast();
        let body = self.copy(out, len)?;
        body[HTYPE] = HTYPE_INFINIBAND;
        body[HLEN] = 0;
        body[CHADDR..CHADDR + CHADDR_LEN].fill(0);
        if wants_broadcast {
            body[FLAGS] |= FLAG_BROADCAST;
        }
        if !self.has_client {
            body[end..end + CLIENT_OPTION_LEN].copy_from_slice(&client_option(client));
            body[end + CLIENT_OPTION_LEN] = OPTION_END;
            body[end + CLIENT_OPTION_LEN + 1..].fill(OPTION_PAD);
        }
        self.finish(out, len, len)
    }

    /// Writes a reply with the client's hardware address added. Returns its length, or `None` if `out` is
    /// too small.
    pub fn write_client(&self, client: Mac, out: &mut [u8]) -> Option<usize> {
        let body = self.copy(out, self.packet.len())?;
        body[HTYPE] = HTYPE_ETHERNET;
        body[HLEN] = u8::try_from(client.len()).ok()?;
        body[CHADDR..CHADDR + CHADDR_LEN].fill(0);
        body[CHADDR..CHADDR + client.len()].copy_from_slice(&client);
        self.finish(out, self.packet.len(), self.len)
    }

    /// Copies the packet to `out`, shortened or extended to `len` bytes; returns the message there.
    fn copy<'o>(&self, out: &'o mut [u8], len: usize) -> Option<&'o mut [u8]> {
        let out = out.get_mut(..len)?;
        let kept = len.min(self.packet.len());
        out[..kept].copy_from_slice(&self.packet[..kept]);
        out[kept..].fill(OPTION_PAD);
        out.get_mut(self.head + UDP_LEN..len)
    }

    /// Sets lengths and checksums of the packet of `len` bytes in `out`. Its UDP datagram ends at `end`;
    /// bytes behind it are not part of it and stay.
    fn finish(&self, out: &mut [u8], len: usize, end: usize) -> Option<usize> {
        let (header, udp) = out.get_mut(..end)?.split_at_mut(self.head);
        header[2..4].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum(&[header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let udp_len = u16::try_from(udp.len()).ok()?;
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        if !self.unsummed {
            udp[6..8].fill(0);
            // 0 would mean no checksum (RFC 768).
            let sum = match udp_v4(header, udp) {
                0 => 0xffff,
                sum => sum,
            };
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        Some(len)
    }
}

/// A client identifier made from a MAC (RFC 4361, section 6.1): type 255, an IAID of the last four bytes of
/// the MAC, a DUID-LL (RFC 8415, section 11.4).
fn client_option(mac: Mac) -> [u8; CLIENT_OPTION_LEN] {
    let mut o = [0; CLIENT_OPTION_LEN];
    o[..3].copy_from_slice(&[OPTION_CLIENT, CLIENT_DATA_LEN, 255]);
    o[3..7].copy_from_slice(&mac[2..]);
    o[7..11].copy_from_slice(&[0, 3, 0, HTYPE_ETHERNET]);
    o[11..].copy_from_slice(&mac);
    o
}

struct Client {
    xid: u32,
    mac: Mac,
    at: Time,
}

/// The transactions of clients behind the interface, oldest first.
#[derive(Default)]
pub struct Clients {
    list: VecDeque<Client>,
}

impl Clients {
    const MAX: usize = 1024;
    /// Time for which a transaction is remembered.
    const LIFE_MS: u64 = 300_000;
    /// After this time, a known transaction is published to the other replicas again.
    const FRESH_MS: u64 = 60_000;

    /// Remembers a client's transaction; if two clients use the same id, the latest has it. True if the
    /// other replicas need an update.
    pub fn remember(&mut self, now: Time, xid: u32, mac: Mac) -> bool {
        let known = self.list.iter().position(|c| c.xid == xid);
        if let Some(at) = known {
            let c = &self.list[at];
            if c.mac == mac && now < c.at.after(Clients::FRESH_MS) {
                return false;
            }
            self.list.remove(at);
        } else if self.list.len() >= Clients::MAX {
            self.list.pop_front();
        }
        self.list.push_back(Client { xid, mac, at: now });
        true
    }

    /// The client of a transaction.
    pub fn find(&self, now: Time, xid: u32) -> Option<Mac> {
        let client = self.list.iter().rev().find(|c| c.xid == xid)?;
        (now < client.at.after(Clients::LIFE_MS)).then_some(client.mac)
    }
}

#[cfg(test)]
mod tests;
