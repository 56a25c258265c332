//! From the TAP to the fabric.

use fabric::Worker;
use ipoib::{Outgoing, Target, Time};
use netdev::segment::{LinkHeader, SegmentError, Segmenter};
use netdev::vnet::{VNET_HEADER_LEN, VnetHeader};

use super::lane::Lane;
use super::train::{OpenTrain, Packets, Pushed, Single};

/// Bytes of an Ethernet header without tags.
const ETHERNET_LEN: usize = 14;

/// What became of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// In a train, or sent.
    Sent,
    /// Kept by the core until its destination is known.
    Held,
    /// Dropped and counted.
    Dropped,
}

enum Step {
    Forward(Target, [u8; 4]),
    Done(Fate),
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

/// Sends one frame as read from the TAP: virtio-net header, then Ethernet.
pub fn frame(
    lane: &mut Lane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    raw: &[u8],
) -> Fate {
    lane.stats.tap_reads += 1;
    let Some((prefix, ethernet)) = raw.split_first_chunk::<VNET_HEADER_LEN>() else {
        lane.stats.tx_bad_frame += 1;
        return dropped(lane);
    };
    match step(lane, fabric, train, now, prefix, ethernet) {
        Step::Done(fate) => fate,
        Step::Forward(to, encapsulation) => {
            forward(lane, fabric, train, to, encapsulation, prefix, ethernet)
        }
    }
}

/// Asks the core what to do, and sends what it has rewritten.
fn step(
    lane: &mut Lane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &[u8],
) -> Step {
    let mut scratch = [0; REWRITTEN_MAX];
    let (to, len) = match lane.core.from_tap(now, prefix, ethernet) {
        Outgoing::Forward { to, encap } => return Step::Forward(to, encap),
        Outgoing::Message { .. } => return Step::Done(dropped(lane)),
        Outgoing::Held => return Step::Done(Fate::Held),
        // The core has counted why.
        Outgoing::Dropped(_) => return Step::Done(dropped(lane)),
        Outgoing::Rewritten { to, packet } => match scratch.get_mut(..packet.len()) {
            Some(copy) => {
                copy.copy_from_slice(packet);
                (to, packet.len())
            }
            None => return Step::Done(too_big(lane)),
        },
    };
    Step::Done(packet(lane, fabric, train, to, &scratch[..len]))
}

/// ARP and neighbour discovery are small; a redirect may quote up to 1280 bytes, and options of
/// router advertisements may fill an Ethernet frame.
const REWRITTEN_MAX: usize = 2048;

/// Sends one complete payload of the core's making.
pub fn packet(
    lane: &mut Lane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    to: Target,
    payload: &[u8],
) -> Fate {
    if payload.len() > lane.link_mtu + 4 {
        return too_big(lane);
    }
    push(
        lane,
        fabric,
        train,
        to,
        &mut Single(Some(payload)),
        1,
        payload.len(),
    )
}

fn forward(
    lane: &mut Lane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    to: Target,
    encapsulation: [u8; 4],
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &[u8],
) -> Fate {
    let vnet: VnetHeader = zerocopy::transmute!(*prefix);
    let header = LinkHeader::new(&encapsulation);
    match Segmenter::new(&vnet, ethernet, header, lane.link_mtu) {
        Ok(mut packets) => {
            let count = packets.remaining();
            let bytes = ethernet.len() - ETHERNET_LEN + count * encapsulation.len();
            push(lane, fabric, train, to, &mut packets, count, bytes)
        }
        Err(SegmentError::TooBig { .. }) => too_big(lane),
        Err(_) => {
            lane.stats.tx_bad_frame += 1;
            dropped(lane)
        }
    }
}

fn push(
    lane: &mut Lane,
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
    match train.push(fabric, lane.endpoint, &destination, packets) {
        Pushed::All => {
            lane.stats.tx_packets += count as u64;
            lane.stats.tx_bytes += bytes as u64;
            Fate::Sent
        }
        Pushed::NoRoom => {
            lane.stats.tx_no_room += 1;
            dropped(lane)
        }
    }
}

fn too_big(lane: &mut Lane) -> Fate {
    lane.stats.tx_too_big += 1;
    lane.stats.tx_errors += 1;
    dropped(lane)
}

fn dropped(lane: &mut Lane) -> Fate {
    lane.stats.tx_dropped += 1;
    Fate::Dropped
}
