//! Messages larger than the path MTU of their connection. A message is written across one place for each
//! network packet, and posted once.

use fabric::{ConnectionId, Posted, Train, Worker};
use netdev::segment::{Pieces, Segmenter};

/// The places of a message.
struct Places<'p, 'm>(&'p mut Train<'m>);

impl Pieces for Places<'_, '_> {
    #[inline]
    fn piece(&mut self, index: usize) -> &mut [u8] {
        self.0.taken(index).unwrap_or_default()
    }
}

/// The result for a frame's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Messages {
    /// Posted messages.
    pub posted: u64,
    /// Bytes of the posted messages, with encapsulation.
    pub bytes: u64,
    /// The connection refused the remaining messages.
    pub refused: bool,
}

/// Posts each remaining packet as one message.
pub fn post(
    fabric: &mut dyn Worker,
    connection: ConnectionId,
    packets: &mut Segmenter<'_>,
) -> Messages {
    let mut done = Messages::default();
    while let Some(len) = packets.next_len() {
        if !post_one(fabric, connection, packets, len) {
            done.refused = true;
            return done;
        }
        done.posted += 1;
        done.bytes += len as u64;
    }
    done
}

fn post_one(
    fabric: &mut dyn Worker,
    connection: ConnectionId,
    packets: &mut Segmenter<'_>,
    len: usize,
) -> bool {
    let Some(connections) = fabric.connections() else {
        return false;
    };
    let Some(mut places) = connections.message(connection, len) else {
        return false;
    };
    if !places.take(len) || !packets.write_next_scattered(&mut Places(&mut places)) {
        return false;
    }
    let ticket = places.finish();
    match connections.post(connection, ticket) {
        Posted::Done | Posted::Full => true,
        Posted::Refused => false,
    }
}

#[cfg(test)]
mod tests {
    use netdev::segment::LinkHeader;
    use netdev::vnet::{GSO_UDP_L4, VnetHeader};
    use zerocopy::little_endian::U16;

    use super::super::super::testing::{Call, FakeFabric, udp_frame as frame};
    use super::*;

    const CONNECTION: ConnectionId = ConnectionId(3);

    fn packets<'f>(vnet: &VnetHeader, frame: &'f [u8]) -> Segmenter<'f> {
        Segmenter::new(vnet, frame, LinkHeader::new(&[8, 0, 0, 0]), 65_520).unwrap()
    }

    fn in_pieces(count: usize, size: u16) -> (VnetHeader, Vec<u8>) {
        let vnet = VnetHeader {
            gso_type: GSO_UDP_L4,
            gso_size: U16::new(size),
            ..VnetHeader::default()
        };
        (vnet, frame(count * usize::from(size)))
    }

    #[test]
    fn a_large_packet_is_one_message_of_packets_of_the_path_mtu() {
        let mut fabric = FakeFabric::new(64);
        let frame = frame(60_000);
        let done = post(
            &mut fabric,
            CONNECTION,
            &mut packets(&VnetHeader::default(), &frame),
        );
        let expected = Messages {
            posted: 1,
            bytes: 4 + 28 + 60_000,
            refused: false,
        };
        assert_eq!(done, expected);
        let sizes = &fabric.sizes()[0];
        assert_eq!(sizes.len(), 60_032usize.div_ceil(1024));
        assert!(sizes[..58].iter().all(|len| *len == 1024) && sizes[58] == 60_032 - 58 * 1024);
        let message = fabric.trains()[0].concat();
        assert_eq!(message[..4], [8, 0, 0, 0]);
        assert_eq!(message[4..], frame[14..]);
    }

    #[test]
    fn pieces_of_a_large_send_are_messages_in_order() {
        let mut fabric = FakeFabric::new(64);
        let (vnet, frame) = in_pieces(3, 5000);
        let done = post(&mut fabric, CONNECTION, &mut packets(&vnet, &frame));
        assert_eq!((done.posted, done.bytes), (3, 3 * 5032));
        let messages: Vec<Vec<u8>> = fabric.trains().iter().map(|t| t.concat()).collect();
        for (i, message) in messages.iter().enumerate() {
            assert_eq!(message[32..], frame[42 + i * 5000..][..5000]);
        }
        let to_it = |call: &Call| matches!(call, Call::Post(CONNECTION, _));
        assert!(fabric.state().calls.iter().all(to_it));
    }

    #[test]
    fn messages_before_the_refusal_are_counted() {
        let mut fabric = FakeFabric::new(64);
        fabric.state().takes = 2;
        let (vnet, frame) = in_pieces(4, 5000);
        let done = post(&mut fabric, CONNECTION, &mut packets(&vnet, &frame));
        let expected = Messages {
            posted: 2,
            bytes: 2 * 5032,
            refused: true,
        };
        assert_eq!(done, expected);
        assert_eq!(fabric.trains().len(), 2);
    }
}
