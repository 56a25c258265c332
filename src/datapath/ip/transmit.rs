//! IP frames from the TAP to the fabric.

use fabric::{ConnectionId, Worker};
use ipoib::{HeldFrame, Outgoing, Target, Time, TooBig};
use netdev::segment::{LinkHeader, SegmentError, Segmenter};
use netdev::vnet::{FLAG_NEEDS_CSUM, VNET_HEADER_LEN, VnetHeader};

use super::super::ETHERNET_LEN;
use super::super::train::{OpenTrain, Packets, Pushed, Single, To};
use super::lane::IpLane;
use super::message;
use super::receive;
use super::sibling::Handover;

/// Bytes of the IPoIB header.
const ENCAPSULATION_LEN: usize = 4;

/// The result for one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Sent, or in a train.
    Sent,
    /// Held by the core until the destination is known.
    Held,
    /// Not handled: the frame has a tag, and tags select partitions.
    Tagged,
    /// Dropped and counted.
    Dropped,
    /// For a sibling. The caller hands the frame over.
    Sibling(Handover),
}

enum Step {
    Send(Way),
    /// Send the payload that the core wrote.
    Rewritten(Target),
    Done(Fate),
}

/// How a frame's packets are sent.
#[derive(Clone, Copy)]
pub struct Way {
    to: Target,
    encapsulation: [u8; 4],
    /// The connection, or `None` for datagrams.
    connection: Option<ConnectionId>,
    /// The largest IP packet, in bytes.
    mtu: usize,
}

impl Way {
    /// Datagrams up to the link MTU.
    pub fn datagrams(lane: &IpLane, to: Target, encapsulation: [u8; 4]) -> Way {
        Way {
            to,
            encapsulation,
            connection: None,
            mtu: lane.settings.link_mtu,
        }
    }
}

impl Packets for Segmenter<'_> {
    fn full_len(&self) -> usize {
        Segmenter::full_len(self)
    }

    fn remaining(&self) -> usize {
        Segmenter::remaining(self)
    }

    fn next_len(&self) -> Option<usize> {
        Segmenter::next_len(self)
    }

    fn write_next(&mut self, out: &mut [u8]) {
        Segmenter::write_next(self, out);
    }
}

/// Sends one frame as read from the TAP: virtio-net header, then Ethernet. `rewritten` is memory for a
/// payload that the core writes.
pub fn frame(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    raw: &[u8],
    rewritten: &mut Vec<u8>,
) -> Fate {
    lane.base.stats.tap_reads += 1;
    let Some((prefix, ethernet)) = raw.split_first_chunk::<VNET_HEADER_LEN>() else {
        return bad_frame(lane);
    };
    let outgoing = lane.core.from_tap(now, prefix, ethernet);
    let step = step(outgoing, lane.settings.link_mtu, rewritten);
    let parts = (prefix, ethernet);
    carry_out(lane, fabric, train, now, parts, step, rewritten)
}

/// Sends one frame that the core has released.
pub fn released(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    held: &HeldFrame,
    rewritten: &mut Vec<u8>,
) -> Fate {
    let (prefix, ethernet) = (&held.prefix, &held.frame[..]);
    let outgoing = lane.core.from_released(now, prefix, ethernet);
    let step = step(outgoing, lane.settings.link_mtu, rewritten);
    let parts = (prefix, ethernet);
    carry_out(lane, fabric, train, now, parts, step, rewritten)
}

/// Carries out a step.
#[inline]
fn carry_out(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    (prefix, ethernet): (&[u8; VNET_HEADER_LEN], &[u8]),
    step: Step,
    rewritten: &mut Vec<u8>,
) -> Fate {
    match step {
        // The core has counted the reason.
        Step::Done(Fate::Dropped) => dropped(lane),
        Step::Done(fate) => fate,
        Step::Send(way) => {
            let ethernet = with_mss(lane, prefix, ethernet, rewritten);
            send(lane, fabric, train, now, &way, prefix, ethernet)
        }
        Step::Rewritten(to) => self::rewritten(lane, fabric, train, to, rewritten),
    }
}

/// The frame, or its copy in `copy` if the segment size in the frame is too large.
#[inline]
fn with_mss<'f>(
    lane: &IpLane,
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &'f [u8],
    copy: &'f mut Vec<u8>,
) -> &'f [u8] {
    let Some(limit) = lane.settings.mss else {
        return ethernet;
    };
    let Some(excess) = ethernet.get(ETHERNET_LEN..).and_then(|l3| limit.excess(l3)) else {
        return ethernet;
    };
    copy.clear();
    copy.extend_from_slice(ethernet);
    let vnet: VnetHeader = zerocopy::transmute!(*prefix);
    let partial = vnet.flags & FLAG_NEEDS_CSUM != 0;
    excess.lower(&mut copy[ETHERNET_LEN..], partial);
    copy
}

/// The step for a decision of the core. Copies a payload that the core wrote to `rewritten`.
#[inline]
fn step(outgoing: Outgoing<'_>, link_mtu: usize, rewritten: &mut Vec<u8>) -> Step {
    match outgoing {
        Outgoing::Forward { to, encap } => Step::Send(Way {
            to,
            encapsulation: encap,
            connection: None,
            mtu: link_mtu,
        }),
        Outgoing::Message {
            connection,
            to,
            encap,
            mtu,
        } => Step::Send(Way {
            to,
            encapsulation: encap,
            connection: Some(connection),
            mtu,
        }),
        Outgoing::Sibling {
            to,
            qpn,
            encap,
            mtu,
        } => Step::Done(Fate::Sibling(Handover {
            qpn,
            to,
            encapsulation: encap,
            mtu,
            rewritten: false,
        })),
        Outgoing::Held => Step::Done(Fate::Held),
        Outgoing::Tagged => Step::Done(Fate::Tagged),
        Outgoing::Dropped(_) => Step::Done(Fate::Dropped),
        Outgoing::Rewritten { to, packet } => {
            rewritten.clear();
            rewritten.extend_from_slice(packet);
            Step::Rewritten(to)
        }
    }
}

/// Sends a complete payload that the core wrote, or returns its sibling.
pub fn rewritten(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    to: Target,
    payload: &[u8],
) -> Fate {
    match lane.core.sibling(to) {
        Some(sibling) if payload.len() > sibling.mtu + ENCAPSULATION_LEN => too_big(lane),
        Some(sibling) => Fate::Sibling(Handover {
            qpn: sibling.qpn,
            to,
            encapsulation: [0; 4],
            mtu: sibling.mtu,
            rewritten: true,
        }),
        None => packet(lane, fabric, train, to, payload),
    }
}

/// Sends a complete payload that the core wrote as one datagram.
pub fn packet(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    to: Target,
    payload: &[u8],
) -> Fate {
    if payload.len() > lane.settings.link_mtu + ENCAPSULATION_LEN {
        return too_big(lane);
    }
    let mut packets = Single(Some(payload));
    let bytes = payload.len();
    datagrams(lane, fabric, train, to, &mut packets, 1, bytes)
}

/// Cuts a frame and sends the packets.
pub fn send(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    way: &Way,
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &[u8],
) -> Fate {
    let vnet: VnetHeader = zerocopy::transmute!(*prefix);
    let header = LinkHeader::new(&way.encapsulation);
    match Segmenter::new(&vnet, ethernet, header, way.mtu) {
        Ok(mut packets) => {
            let count = packets.remaining();
            let bytes = packets.remaining_len();
            match way.connection {
                Some(c) => messages(lane, fabric, train, c, &mut packets, count, bytes),
                None => datagrams(lane, fabric, train, way.to, &mut packets, count, bytes),
            }
        }
        Err(SegmentError::TooBig { len }) => answer(lane, now, way.to, prefix, ethernet, len),
        Err(_) => bad_frame(lane),
    }
}

fn datagrams(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    to: Target,
    packets: &mut dyn Packets,
    count: usize,
    bytes: usize,
) -> Fate {
    let Some(destination) = lane.destination(fabric, to) else {
        lane.stats.tx_errors += 1;
        return dropped(lane);
    };
    let to = To::Datagrams(lane.base.endpoint, destination);
    let pushed = train.push(fabric, &to, packets);
    count_pushed(lane, pushed, packets, count, bytes)
}

/// Posts packets over a connection. Packets up to the path MTU share a train; larger packets are posted one
/// by one.
fn messages(
    lane: &mut IpLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    connection: ConnectionId,
    packets: &mut Segmenter<'_>,
    count: usize,
    bytes: usize,
) -> Fate {
    let path_mtu = fabric.connections().map_or(0, |c| c.path_mtu(connection));
    if packets.full_len() <= path_mtu {
        let pushed = train.push(fabric, &To::Messages(connection), packets);
        return count_pushed(lane, pushed, packets, count, bytes);
    }
    train.flush(fabric);
    let done = message::post(fabric, connection, packets);
    lane.stats.tx_packets += done.posted;
    lane.stats.tx_bytes += done.bytes;
    if done.refused {
        lane.stats.tx_no_room += 1;
        return dropped(lane);
    }
    Fate::Sent
}

/// Counts the packets of a frame: `count` packets of `bytes` bytes in total, before the push.
fn count_pushed(
    lane: &mut IpLane,
    pushed: Pushed,
    packets: &dyn Packets,
    count: usize,
    bytes: usize,
) -> Fate {
    match pushed {
        Pushed::All => {
            count_sent(lane, count, bytes);
            Fate::Sent
        }
        Pushed::NoRoom => {
            // Only the last packet, which was not sent, can be shorter.
            let sent = count - packets.remaining();
            count_sent(lane, sent, sent * packets.full_len());
            lane.stats.tx_no_room += 1;
            dropped(lane)
        }
    }
}

/// Counts sent packets. `bytes` is their total, with encapsulation.
pub fn count_sent(lane: &mut IpLane, packets: usize, bytes: usize) {
    lane.stats.tx_packets += packets as u64;
    lane.stats.tx_bytes += bytes as u64;
}

/// Handles a packet of `len` bytes, larger than the path allows: the core holds it for a connection, answers
/// the host with ICMP, or drops it.
#[cold]
pub fn answer(
    lane: &mut IpLane,
    now: Time,
    to: Target,
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &[u8],
    len: usize,
) -> Fate {
    match lane.core.too_big(now, to, prefix, ethernet, len) {
        TooBig::Held => return Fate::Held,
        TooBig::Answer(frame) => receive::write(&mut lane.base, &mut lane.stats, frame),
        TooBig::Dropped => {}
    }
    too_big(lane)
}

fn too_big(lane: &mut IpLane) -> Fate {
    lane.stats.tx_too_big += 1;
    lane.stats.tx_errors += 1;
    dropped(lane)
}

/// Counts and drops a frame with inconsistent headers.
pub fn bad_frame(lane: &mut IpLane) -> Fate {
    lane.stats.tx_bad_frame += 1;
    dropped(lane)
}

fn dropped(lane: &mut IpLane) -> Fate {
    lane.stats.tx_dropped += 1;
    Fate::Dropped
}

#[cfg(test)]
mod tests;
