//! Outgoing packets: management datagrams first, then the queue pairs in turn.

use proto::{Gid, Instant, PKey};

use super::super::gsi::MAD_PACKET_LEN;
use super::lookup::Place;
use super::{Engine, OWING_MAX};
use crate::cm::{CmId, Outgoing};
use crate::mad::{MAD_LEN, cm};
use crate::soft::rc::Ack;

/// Bytes of the common header of management datagrams.
const MAD_HEADER_LEN: usize = size_of::<crate::mad::Header>();

/// Offset of the P_Key in a ConnectRequest, after the common header (IBA vol. 1, 12.6.5).
const REQ_PKEY: usize = 48;

/// Offset of the P_Key in a ServiceIDResReq (IBA vol. 1, 12.11.1.1).
const SIDR_REQ_PKEY: usize = 4;

/// Contiguous packets for one peer, from BTH to ICRC, all of one length except the last. The last 4
/// bytes of each are room for the ICRC.
#[derive(Debug)]
pub struct Run<'a> {
    /// The peer.
    pub to: Gid,
    /// The packets.
    pub memory: &'a mut [u8],
    /// Distance between packets in bytes.
    pub stride: usize,
    /// Number of packets.
    pub count: usize,
    /// The packet is a management datagram, which is not offered again.
    pub is_management: bool,
}

impl Engine {
    /// Passes all packets that may be sent to `send`, which returns how many packets the network took.
    /// If the network took only some of a connection, transmission stops and the next call offers the rest again.
    /// `flush` also sends acknowledgements that wait for the end of the round.
    pub fn transmit(&mut self, now: Instant, flush: bool, mut send: impl FnMut(Run<'_>) -> usize) {
        self.send_management(&mut send);
        self.blocked = false;
        if flush {
            self.flush_lists();
        }
        while !self.blocked
            && let Some(place) = self.ready.pop_front()
        {
            let rider = self.rider(place);
            let Engine {
                table,
                shared,
                unflushed,
                ..
            } = self;
            let Some(c) = table.get_mut(place) else {
                continue;
            };
            c.ready = false;
            let ack = rider.as_ref().map(|(_, ack)| ack);
            let Some(packets) = c.qp.poll_transmit_with(flush, ack) else {
                if !flush && !std::mem::replace(&mut c.unflushed, true) {
                    unflushed.push(place);
                }
                self.note_owing(place);
                self.settle(now, place);
                continue;
            };
            let (count, carries) = (packets.count, packets.carries);
            let taken = send(Run {
                to: c.peer,
                memory: packets.memory,
                stride: packets.stride,
                count,
                is_management: false,
            });
            c.qp.transmitted(now, shared, taken.min(count));
            c.ready = true;
            if let Some((owing, _)) = rider
                && let Some(c) = table.get_mut(owing)
            {
                c.qp.transmitted(now, shared, usize::from(carries && taken >= count));
            }
            self.blocked = taken < count;
            if self.blocked {
                self.ready.push_front(place);
            } else {
                self.ready.push_back(place);
            }
        }
    }

    /// An acknowledgement that may leave with the packets of a connection: for the same peer. Removes
    /// connections without one from the list.
    fn rider(&mut self, place: Place) -> Option<(Place, Ack)> {
        if self.owing.is_empty() {
            return None;
        }
        let Engine { owing, table, .. } = self;
        let peer = table.get(place)?.peer;
        owing.retain(|&p| table.get(p).is_some_and(|c| c.qp.owes()));
        let with = |p: &Place| table.get(*p).is_some_and(|c| c.peer == peer);
        // Its own acknowledgement would be a reply of its own.
        let owing = owing.iter().copied().find(|p| *p != place && with(p))?;
        Some((owing, table.get_mut(owing)?.qp.ride()?))
    }

    /// Adds a connection whose acknowledgement waits to the list.
    fn note_owing(&mut self, place: Place) {
        let Engine { owing, table, .. } = self;
        if table.get(place).is_some_and(|c| c.qp.owes()) && !owing.contains(&place) {
            if owing.len() == OWING_MAX {
                owing.retain(|&p| table.get(p).is_some_and(|c| c.qp.owes()));
            }
            if owing.len() < OWING_MAX {
                owing.push(place);
            }
        }
    }

    /// Whether there may be something to send.
    pub fn wants_to_send(&self) -> bool {
        !self.ready.is_empty()
    }

    fn flush_lists(&mut self) {
        let mut unflushed = std::mem::take(&mut self.unflushed);
        for place in unflushed.drain(..) {
            if let Some(c) = self.table.get_mut(place) {
                c.unflushed = false;
                self.make_ready(place);
            }
        }
        self.unflushed = unflushed;
    }

    /// Sends management datagrams. What the network does not take is lost: the sender repeats it if no answer
    /// comes.
    fn send_management(&mut self, send: &mut impl FnMut(Run<'_>) -> usize) {
        while let Some(out) = self.cm.poll_transmit() {
            let pkey = self.management_pkey(&out);
            self.gsi.load(pkey, &out.datagram);
            send(Run {
                to: out.to,
                memory: &mut self.gsi.packet[..],
                stride: MAD_PACKET_LEN,
                count: 1,
                is_management: true,
            });
        }
    }

    /// The P_Key for a management datagram: the entry of its connection's partition, or of the
    /// partition of the datagram that it answers. If the table has neither, another entry carries the
    /// datagram; QP1 accepts all P_Keys of its port (IBA vol. 1, 10.9.8).
    fn management_pkey(&self, out: &Outgoing) -> PKey {
        let entry = |partition| self.port.pkeys.find(partition);
        let own = self.partition_of(&out.datagram).and_then(entry);
        let entry = own.or_else(|| out.answers.and_then(entry));
        entry.unwrap_or_else(|| self.port.pkeys.management()).pkey
    }

    /// The partition that a management datagram belongs to, if known.
    fn partition_of(&self, mad: &[u8; MAD_LEN]) -> Option<PKey> {
        let word = |at: usize| u16::from_be_bytes([mad[at], mad[at + 1]]);
        let pkey = match word(16) {
            cm::REQ => Some(REQ_PKEY),
            cm::SIDR_REQ => Some(SIDR_REQ_PKEY),
            _ => None,
        };
        if let Some(at) = pkey {
            return Some(PKey::new(word(MAD_HEADER_LEN + at)));
        }
        let at = MAD_HEADER_LEN;
        let local = u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]]);
        self.table.pkey(CmId(local))
    }
}
