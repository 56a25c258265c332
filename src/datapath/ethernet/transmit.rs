//! Ethernet frames from the TAP to the fabric.

use fabric::Worker;
use ipoib::Time;
use netdev::segment::{SegmentError, Segmenter};
use netdev::vnet::{VNET_HEADER_LEN, VnetHeader};
use vnic::packet::Prefix;
use vnic::port::{Class, Forward, Sizes, Target, Unsent};

use super::super::train::{OpenTrain, Packets, Pushed, To};
use super::handover::Handover;
use super::lane::EthernetLane;
use super::packets::Encapsulated;

/// The result for one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Sent, in a train, or dropped and counted.
    Done,
    /// For another VNIC of this daemon.
    Sibling(Handover),
}

/// Sends one frame as read from the TAP: virtio-net header, then Ethernet.
pub fn frame(
    lane: &mut EthernetLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    raw: &[u8],
) -> Fate {
    lane.base.stats.tap_reads += 1;
    let Some((prefix, ethernet)) = raw.split_first_chunk::<VNET_HEADER_LEN>() else {
        // The TAP returns at least its header.
        return Fate::Done;
    };
    let vnet: VnetHeader = zerocopy::transmute!(*prefix);
    match lane.core.from_tap(now, ethernet) {
        Forward::Fabric { prefix, to, class } => {
            send(lane, fabric, train, &vnet, ethernet, (prefix, to, class));
            Fate::Done
        }
        Forward::Sibling { lid, class } => Fate::Sibling(Handover { lid, class }),
        Forward::Dropped => Fate::Done,
    }
}

/// Cuts a frame and sends the packets.
fn send(
    lane: &mut EthernetLane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    vnet: &VnetHeader,
    ethernet: &[u8],
    (prefix, to, class): (Prefix, Target, Class),
) {
    let Some(frames) = cut(lane, vnet, ethernet) else {
        return;
    };
    let sizes = sizes(&frames);
    let Some(destination) = lane.destination(fabric, to, prefix.sc()) else {
        return lane.core.count_unsent(Unsent::Refused, sizes);
    };
    let mut packets = Encapsulated::new(frames, prefix);
    let to = To::Datagrams(lane.base.endpoint, destination);
    match train.push(fabric, &to, &mut packets) {
        Pushed::All => lane.core.count_sent(class, sizes),
        Pushed::NoRoom => {
            // Only the last frame, which was not sent, can be shorter.
            let left = packets.remaining();
            let sent = Sizes {
                count: sizes.count - left,
                last: sizes.full,
                ..sizes
            };
            if sent.count > 0 {
                lane.core.count_sent(class, sent);
            }
            let unsent = Sizes {
                count: left,
                ..sizes
            };
            lane.core.count_unsent(Unsent::NoRoom, unsent);
        }
    }
}

/// Cuts a frame of the host. Counts the frame and returns `None` if it cannot be sent.
pub fn cut<'f>(
    lane: &mut EthernetLane,
    vnet: &VnetHeader,
    ethernet: &'f [u8],
) -> Option<Segmenter<'f>> {
    let why = match Segmenter::ethernet(vnet, ethernet, lane.frame_max()) {
        Ok(frames) => return Some(frames),
        Err(SegmentError::TooBig { .. }) => Unsent::TooBig,
        Err(_) => Unsent::BadFrame,
    };
    lane.core.count_unsent(why, Sizes::one(ethernet.len()));
    None
}

/// The lengths of the frames, before the first one is written.
pub fn sizes(frames: &Segmenter<'_>) -> Sizes {
    Sizes {
        full: frames.full_len(),
        count: frames.remaining(),
        last: frames.last_len(),
    }
}
