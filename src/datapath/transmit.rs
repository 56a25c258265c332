//! From the TAP to the fabric.

use fabric::{ConnectionId, Worker};
use ipoib::{HeldFrame, Outgoing, Target, Time, TooBig};
use netdev::segment::{LinkHeader, SegmentError, Segmenter};
use netdev::vnet::{VNET_HEADER_LEN, VnetHeader};

use super::lane::Lane;
use super::message;
use super::receive;
use super::train::{OpenTrain, Packets, Pushed, Single, To};

/// Bytes of an Ethernet header without tags.
const ETHERNET_LEN: usize = 14;

/// What became of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// In a train, or sent.
    Sent,
    /// Kept by the core until its destination is known.
    Held,
    /// It has a tag, and tags select partitions: nothing was done with it.
    Tagged,
    /// Dropped and counted.
    Dropped,
}

enum Step {
    Send(Way),
    Done(Fate),
}

/// Which way a frame's packets go.
#[derive(Clone, Copy)]
struct Way {
    to: Target,
    encapsulation: [u8; 4],
    /// Over a connection; else in datagrams.
    connection: Option<ConnectionId>,
    /// The largest IP packet, in bytes.
    mtu: usize,
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
    match step(lane, fabric, train, now, prefix, ethernet, Came::FromTap) {
        Step::Done(fate) => fate,
        Step::Send(way) => send(lane, fabric, train, now, &way, prefix, ethernet),
    }
}

/// Sends one frame that the core no longer holds.
pub fn released(
    lane: &mut Lane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    held: &HeldFrame,
) -> Fate {
    let (prefix, ethernet) = (&held.prefix, &held.frame);
    match step(lane, fabric, train, now, prefix, ethernet, Came::Released) {
        Step::Done(fate) => fate,
        Step::Send(way) => send(lane, fabric, train, now, &way, prefix, ethernet),
    }
}

/// Where a frame is from.
#[derive(Clone, Copy)]
enum Came {
    FromTap,
    Released,
}

/// Asks the core what to do, and sends what it has rewritten.
fn step(
    lane: &mut Lane,
    fabric: &mut dyn Worker,
    train: &mut OpenTrain,
    now: Time,
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &[u8],
    came: Came,
) -> Step {
    let mut scratch = [0; REWRITTEN_MAX];
    let outgoing = match came {
        Came::FromTap => lane.core.from_tap(now, prefix, ethernet),
        Came::Released => lane.core.from_released(now, prefix, ethernet),
    };
    let (to, len) = match outgoing {
        Outgoing::Forward { to, encap } => {
            return Step::Send(Way {
                to,
                encapsulation: encap,
                connection: None,
                mtu: lane.link_mtu,
            });
        }
        Outgoing::Message {
            connection,
            to,
            encap,
            mtu,
        } => {
            return Step::Send(Way {
                to,
                encapsulation: encap,
                connection: Some(connection),
                mtu,
            });
        }
        Outgoing::Held => return Step::Done(Fate::Held),
        Outgoing::Tagged => return Step::Done(Fate::Tagged),
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
    let mut packets = Single(Some(payload));
    let bytes = payload.len();
    datagrams(lane, fabric, train, to, &mut packets, 1, bytes)
}

fn send(
    lane: &mut Lane,
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
            let bytes = ethernet.len() - ETHERNET_LEN + count * way.encapsulation.len();
            match way.connection {
                Some(c) => messages(lane, fabric, train, c, &mut packets, count, bytes),
                None => datagrams(lane, fabric, train, way.to, &mut packets, count, bytes),
            }
        }
        Err(SegmentError::TooBig { len }) => answer(lane, now, way.to, prefix, ethernet, len),
        Err(_) => {
            lane.stats.tx_bad_frame += 1;
            dropped(lane)
        }
    }
}

fn datagrams(
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
    let to = To::Datagrams(lane.endpoint, destination);
    let pushed = train.push(fabric, &to, packets);
    count_pushed(lane, pushed, count, bytes)
}

/// Posts packets over a connection: those that fit its network packets side by side, larger ones
/// one by one.
fn messages(
    lane: &mut Lane,
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
        return count_pushed(lane, pushed, count, bytes);
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

fn count_pushed(lane: &mut Lane, pushed: Pushed, count: usize, bytes: usize) -> Fate {
    match pushed {
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

/// A packet of `len` bytes is larger than its way takes: the core keeps it for a connection, or says
/// what the host is told.
#[cold]
fn answer(
    lane: &mut Lane,
    now: Time,
    to: Target,
    prefix: &[u8; VNET_HEADER_LEN],
    ethernet: &[u8],
    len: usize,
) -> Fate {
    match lane.core.too_big(now, to, prefix, ethernet, len) {
        TooBig::Held => return Fate::Held,
        TooBig::Answer(frame) => receive::write(&lane.tap, &mut lane.stats, frame),
        TooBig::Dropped => {}
    }
    too_big(lane)
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

#[cfg(test)]
mod tests {
    use netdev::vnet::GSO_UDP_L4;
    use zerocopy::IntoBytes;
    use zerocopy::little_endian::U16;

    use super::super::testing::{Call, FakeFabric, lane, udp_frame};
    use super::*;

    const CONNECTION: ConnectionId = ConnectionId(3);

    /// A connection whose peer takes packets of `mtu` bytes.
    fn over(mtu: usize) -> Way {
        Way {
            to: Target::Neighbour(0),
            encapsulation: [8, 0, 0, 0],
            connection: Some(CONNECTION),
            mtu,
        }
    }

    struct Rig {
        lane: Lane,
        fabric: FakeFabric,
        train: OpenTrain,
    }

    impl Rig {
        fn new() -> Rig {
            Rig {
                lane: lane(16).0,
                fabric: FakeFabric::new(64),
                train: OpenTrain::default(),
            }
        }

        fn send(&mut self, mtu: usize, vnet: &VnetHeader, frame: &[u8]) -> Fate {
            let prefix = vnet.as_bytes().try_into().unwrap();
            let Rig {
                lane,
                fabric,
                train,
            } = self;
            send(lane, fabric, train, Time(0), &over(mtu), prefix, frame)
        }

        fn posted(&mut self) -> Vec<Vec<usize>> {
            self.train.flush(&mut self.fabric);
            self.fabric.sizes()
        }
    }

    #[test]
    fn messages_of_all_sizes_leave_in_order_and_are_counted() {
        let mut rig = Rig::new();
        rig.train.expect_more(true);
        let plain = VnetHeader::default();
        for payload in [100, 100, 5000, 100, 992, 993] {
            assert_eq!(rig.send(65_520, &plain, &udp_frame(payload)), Fate::Sent);
        }
        let expected = [
            vec![132, 132],
            vec![1024, 1024, 1024, 1024, 936],
            vec![132],
            vec![1024],
            vec![1024, 1],
        ];
        assert_eq!(rig.posted(), expected);
        let stats = rig.lane.stats;
        assert_eq!((stats.tx_packets, stats.tx_dropped), (6, 0));
        assert_eq!(stats.tx_bytes, 6 * 32 + 100 + 100 + 5000 + 100 + 992 + 993);
    }

    #[test]
    fn a_large_send_is_cut_as_the_sender_asked() {
        let mut rig = Rig::new();
        let cut = |size| VnetHeader {
            gso_type: GSO_UDP_L4,
            gso_size: U16::new(size),
            ..VnetHeader::default()
        };
        assert_eq!(rig.send(65_520, &cut(500), &udp_frame(1200)), Fate::Sent);
        assert_eq!(rig.send(65_520, &cut(1500), &udp_frame(4500)), Fate::Sent);
        let expected = [
            vec![532, 532, 232],
            vec![1024, 508],
            vec![1024, 508],
            vec![1024, 508],
        ];
        assert_eq!(rig.posted(), expected);
        assert_eq!(rig.lane.stats.tx_packets, 6);
        let to_it = |call: &Call| matches!(call, Call::Post(CONNECTION, _));
        assert!(rig.fabric.state().calls.iter().all(to_it));
    }

    #[test]
    fn what_a_connection_does_not_take_is_dropped_and_counted() {
        let mut rig = Rig::new();
        rig.fabric.state().takes = 0;
        for payload in [100, 5000] {
            let fate = rig.send(65_520, &VnetHeader::default(), &udp_frame(payload));
            assert_eq!(fate, Fate::Dropped);
        }
        let stats = rig.lane.stats;
        assert_eq!((stats.tx_no_room, stats.tx_dropped), (2, 2));
        assert_eq!((stats.tx_packets, stats.tx_bytes), (0, 0));
        assert!(rig.posted().is_empty());
    }

    /// The link's broadcast group is always there, and nobody is told about its MTU.
    #[test]
    fn a_multicast_over_the_mtu_is_dropped_and_counted() {
        let mut rig = Rig::new();
        let way = Way {
            to: Target::Group(0),
            connection: None,
            ..over(2044)
        };
        for (payload, fate) in [(2016, Fate::Sent), (2017, Fate::Dropped)] {
            let Rig {
                lane,
                fabric,
                train,
            } = &mut rig;
            let frame = udp_frame(payload);
            let prefix = [0; VNET_HEADER_LEN];
            let sent = send(lane, fabric, train, Time(0), &way, &prefix, &frame);
            assert_eq!(sent, fate, "{payload}");
        }
        assert_eq!(rig.posted(), [[2048]]);
        let stats = rig.lane.stats;
        assert_eq!(
            (stats.tx_too_big, stats.tx_errors, stats.tx_dropped),
            (1, 1, 1)
        );
    }
}
