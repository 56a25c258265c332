//! A daemon's answers to a handmade peer, packet by packet.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::lab::frame::udp4;
use crate::lab::rc_peer::{Accepted, Answer, LINUX_SERVICE, RFC_SERVICE, RcPeer};
use crate::lab::reliable::{Rc, Request, attribute, opcode, private_data, syndrome};
use crate::lab::{CONNECTED, Host, Lab, SOON, eventually};

const PATH_MTU: usize = 4096;
/// Destination of the datagrams of [`udp4`].
const DISCARD: u16 = 9;
/// An unwanted answer would have arrived in this time.
const SILENCE: Duration = Duration::from_millis(500);

/// Runs a test with a handmade peer and the daemon of the other host.
fn with_peer(test: impl FnOnce(&RcPeer, &mut Host)) {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    b.start(&CONNECTED);
    b.configure("ib0");
    test(&RcPeer::on(a, b), b);
}

/// A socket on the discard port of a host's `ib0`.
fn listener(host: &Host) -> UdpSocket {
    let to = (host.v4(), DISCARD);
    let socket = host
        .namespace()
        .within(|| UdpSocket::bind((to.0.as_str(), to.1)).expect("a socket"));
    socket.set_read_timeout(Some(SILENCE)).expect("a timeout");
    socket
}

fn hears(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut bytes = [0; 65_536];
    let n = socket.recv(&mut bytes).ok()?;
    Some(bytes[..n].to_vec())
}

/// The next datagram, on a busy machine too.
fn awaits(socket: &UdpSocket) -> Vec<u8> {
    eventually(SOON, "a datagram", || hears(socket))
}

/// An IPoIB message with this UDP data for that socket, split by the path MTU.
fn message(host: &Host, data: &[u8]) -> Vec<Vec<u8>> {
    let to: Ipv4Addr = host.v4().parse().expect("an address");
    let frame = udp4(([0; 6], [0; 6]), Ipv4Addr::new(10, 9, 0, 1), to, data);
    let mut bytes = vec![8, 0, 0, 0];
    bytes.extend(&frame[14..]);
    bytes.chunks(PATH_MTU).map(<[u8]>::to_vec).collect()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31) >> 3) as u8).collect()
}

/// The packets of a message; the last requests an acknowledgement. `first` packets were sent before.
fn packets(to: &Accepted, first: u32, pieces: &[Vec<u8>]) -> Vec<Rc> {
    let last = pieces.len() - 1;
    let packet = |(i, piece): (usize, &Vec<u8>)| Rc {
        opcode: match (i, last) {
            (_, 0) => opcode::SEND_ONLY,
            (0, _) => opcode::SEND_FIRST,
            (i, last) if i == last => opcode::SEND_LAST,
            _ => opcode::SEND_MIDDLE,
        },
        destination_qpn: to.qpn,
        psn: to.psn(first + i as u32),
        asks_ack: i == last,
        rest: piece.clone(),
    };
    pieces.iter().enumerate().map(packet).collect()
}

/// An acknowledgement of packet `n`.
fn is_ack(accepted: &Accepted, n: u32) -> impl Fn(u32, u8, u32) -> bool {
    let expected = accepted.psn(n);
    move |psn, code, _| psn == expected && syndrome::is_ack(code)
}

#[test]
fn c92_c93_linuxs_and_the_rfcs_service_ids_are_served_and_no_others() {
    with_peer(|peer, b| {
        for (n, service) in [LINUX_SERVICE, RFC_SERVICE].into_iter().enumerate() {
            let n = n as u32;
            let accepted = peer.connect(&peer.request(service, 0x100 + n, 0x40 + n));
            assert!((2..0xff_ffff).contains(&accepted.qpn), "{accepted:?}");
        }
        eventually(SOON, "two passive connections", || {
            let made = b.connections("ib0");
            let passive = made.iter().filter(|c| !c.is_active() && c.is_established());
            (passive.count() == 2).then_some(())
        });
        let mut other = peer.request(LINUX_SERVICE, 0x200, 0x50);
        other.service ^= 0x1000;
        peer.send_cm(&other.message());
        let reject = peer.expect_cm("a reject", attribute::REJ);
        assert_eq!(reject.word(4), 0x200);
        assert_eq!(reject.half(10), 8, "invalid service id");
    });
}

/// A form that the kernel's rdma_cm passes, where it owns communication management: several interfaces share
/// the service, and the request names one of them.
#[test]
fn the_service_of_rdma_cm_is_served_in_the_name_of_a_queue_pair() {
    with_peer(|peer, b| {
        let socket = listener(b);
        for (n, listener) in [peer.ud_qpn, 0].into_iter().enumerate() {
            let n = n as u32;
            let request = peer.request_by_rdma_cm(listener, 0x100 + n, 0x40 + n);
            let accepted = peer.connect(&request);
            let data = pattern(100);
            for packet in packets(&accepted, 0, &message(b, &data)) {
                peer.send(&packet);
            }
            peer.acknowledgement("an acknowledgement", is_ack(&accepted, 0));
            assert_eq!(awaits(&socket), data);
        }
        let reject = |request: &Request| {
            peer.send_cm(&request.message());
            let reject = peer.expect_cm("a reject", attribute::REJ);
            assert_eq!(reject.word(4), request.id);
            reject.half(10)
        };
        let other = peer.request_by_rdma_cm(peer.ud_qpn ^ 1, 0x200, 0x50);
        assert_eq!(reject(&other), 8, "invalid service id");
        let mut other = peer.request_by_rdma_cm(peer.ud_qpn, 0x201, 0x51);
        other.private_data[0] = 1;
        assert_eq!(reject(&other), 28, "a header of another version");
        let mut other = peer.request_by_rdma_cm(peer.ud_qpn, 0x202, 0x52);
        other.private_data[19] ^= 1;
        assert_eq!(reject(&other), 12, "in the name of another address");
    });
}

#[test]
fn c94_the_reply_has_the_queue_pair_and_the_receive_mtu() {
    with_peer(|peer, _| {
        peer.send_cm(&peer.request(LINUX_SERVICE, 0x100, 0x40).message());
        let reply = peer.expect_cm("a reply", attribute::REP);
        let private = &reply.data[36..44];
        assert_eq!(private, private_data(peer.ud_qpn, 65_524));
    });
}

#[test]
fn a_message_of_several_packets_arrives_and_is_acknowledged() {
    with_peer(|peer, b| {
        let socket = listener(b);
        let accepted = peer.connect(&peer.request(LINUX_SERVICE, 0x100, 0x40));
        let mut before = 0;
        for (n, length) in [1, 100, 4000, 4096, 10_000, 65_492].into_iter().enumerate() {
            let data = pattern(length);
            let sent = packets(&accepted, before, &message(b, &data));
            before += sent.len() as u32;
            sent.iter().for_each(|packet| peer.send(packet));
            peer.acknowledgement("an acknowledgement", |last, code, msn| {
                is_ack(&accepted, before - 1)(last, code, msn) && msn == n as u32 + 1
            });
            assert_eq!(awaits(&socket), data, "{length} bytes");
        }
        let made = b.connections("ib0");
        assert_eq!(made[0].number("rx_messages"), 6, "{made:?}");
    });
}

/// The kernel confirms after its first message, which does not wait for the confirmation.
#[test]
fn a_message_that_comes_before_the_ready_to_use_arrives() {
    with_peer(|peer, b| {
        let socket = listener(b);
        let request = peer.request(LINUX_SERVICE, 0x100, 0x40);
        peer.send_cm(&request.message());
        let reply = peer.expect_cm("a reply", attribute::REP);
        let accepted = Accepted::of(request.id, &reply);
        let data = pattern(1000);
        for packet in packets(&accepted, 0, &message(b, &data)) {
            peer.send(&packet);
        }
        peer.acknowledgement("an acknowledgement", is_ack(&accepted, 0));
        assert_eq!(awaits(&socket), data);
    });
}

#[test]
fn a_gap_is_reported_and_what_fills_it_completes_the_message() {
    with_peer(|peer, b| {
        let socket = listener(b);
        let accepted = peer.connect(&peer.request(LINUX_SERVICE, 0x100, 0x40));
        let data = pattern(12_000);
        let sent = packets(&accepted, 0, &message(b, &data));
        peer.send(&sent[0]);
        peer.send(&sent[2]);
        peer.acknowledgement("a sequence error", |psn, code, _| {
            psn == accepted.psn(1) && code == syndrome::NAK_SEQUENCE
        });
        assert!(b.counter("ib0", "out_of_sequence") > 0);
        // A peer that goes back repeats everything from the gap, whether it arrived or not.
        peer.send(&sent[1]);
        peer.send(&sent[2]);
        peer.acknowledgement("an acknowledgement", is_ack(&accepted, 2));
        assert_eq!(awaits(&socket), data);
    });
}

#[test]
fn what_comes_twice_is_acknowledged_twice_and_delivered_once() {
    with_peer(|peer, b| {
        let socket = listener(b);
        let accepted = peer.connect(&peer.request(LINUX_SERVICE, 0x100, 0x40));
        let data = pattern(6000);
        let sent = packets(&accepted, 0, &message(b, &data));
        for _ in 0..2 {
            sent.iter().for_each(|packet| peer.send(packet));
            peer.acknowledgement("an acknowledgement", is_ack(&accepted, 1));
        }
        assert_eq!(awaits(&socket), data);
        assert_eq!(hears(&socket), None);
        assert!(b.counter("ib0", "duplicate_request") > 0);
    });
}

/// Refused with this answer; the connection has ended and a new one can be made.
fn is_refused(counter: &str, codes: &[u8], spoil: impl Fn(&Accepted) -> Vec<Rc>) {
    with_peer(|peer, b| {
        let accepted = peer.connect(&peer.request(LINUX_SERVICE, 0x100, 0x40));
        let before = b.counter("ib0", counter);
        for packet in spoil(&accepted) {
            peer.send(&packet);
        }
        peer.acknowledgement("a negative acknowledgement", |_, code, _| {
            codes.contains(&code)
        });
        assert!(b.counter("ib0", counter) > before, "{counter}");
        eventually(SOON, "the connection to end", || {
            let all = b.connections("ib0");
            let left = all.iter().any(|c| c.is_established());
            (!left).then_some(())
        });
        peer.connect(&peer.request(LINUX_SERVICE, 0x101, 0x41));
        assert!(b.daemon().is_running());
    });
}

#[test]
fn a_message_longer_than_the_buffer_is_an_invalid_request() {
    is_refused(
        "resp_local_length_error",
        &[syndrome::NAK_INVALID_REQUEST],
        |accepted| packets(accepted, 0, &vec![vec![0; PATH_MTU]; 20]),
    );
}

#[test]
fn a_middle_without_a_first_is_an_invalid_request() {
    is_refused(
        "resp_invalid_request",
        &[syndrome::NAK_INVALID_REQUEST],
        |accepted| {
            let pieces = vec![vec![0; PATH_MTU]; 3];
            let mut packet = packets(accepted, 0, &pieces)[1].clone();
            packet.psn = accepted.psn(0);
            vec![packet]
        },
    );
}

/// They name invalid memory (RETH: address, key, length).
#[test]
fn reads_and_writes_of_memory_are_refused() {
    for code in [opcode::RDMA_READ_REQUEST, opcode::RDMA_WRITE_ONLY] {
        is_refused(
            "resp_invalid_request",
            &[syndrome::NAK_INVALID_REQUEST, syndrome::NAK_REMOTE_ACCESS],
            |accepted| {
                let mut rest = vec![0; 12];
                rest.extend(8u32.to_be_bytes());
                if code == opcode::RDMA_WRITE_ONLY {
                    rest.extend([0; 8]);
                }
                vec![Rc {
                    opcode: code,
                    destination_qpn: accepted.qpn,
                    psn: accepted.psn(0),
                    asks_ack: true,
                    rest,
                }]
            },
        );
    }
}

#[test]
fn c103_a_disconnect_is_answered_and_answered_again() {
    with_peer(|peer, b| {
        let accepted = peer.connect(&peer.request(LINUX_SERVICE, 0x100, 0x40));
        // The second request simulates the loss of the first answer.
        for _ in 0..2 {
            peer.disconnect(&accepted);
        }
        assert!(!b.connections("ib0").iter().any(|c| c.is_established()));
        // Late packets to a removed queue pair are harmless.
        for packet in packets(&accepted, 0, &message(b, &[0; 100])) {
            peer.send(&packet);
        }
        let late = peer.answer(SILENCE, |answer| match answer {
            Answer::Rc(rc) => rc.aeth().filter(|&(code, _)| syndrome::is_ack(code)),
            Answer::Cm(_) => None,
        });
        assert_eq!(late, None);
    });
}

/// The address in the request must be the source address of its packet.
#[test]
fn a_request_with_a_false_source_is_refused() {
    with_peer(|peer, b| {
        let mut request = peer.request(LINUX_SERVICE, 0x100, 0x40);
        request.own = "fe80::1:2:3:4".parse().expect("an address");
        peer.send_cm(&request.message());
        let replied = peer.answer(SILENCE, |answer| match answer {
            Answer::Cm(message) => (message.attribute == attribute::REP).then_some(()),
            Answer::Rc(_) => None,
        });
        assert_eq!(replied, None);
        assert_eq!(b.connections("ib0").len(), 0);
    });
}

/// A repeated request gets the same answer, and creates one connection.
#[test]
fn a_request_that_comes_twice_makes_one_connection() {
    with_peer(|peer, b| {
        let request = peer.request(LINUX_SERVICE, 0x100, 0x40).message();
        peer.send_cm(&request);
        let first = peer.expect_cm("a reply", attribute::REP);
        peer.send_cm(&request);
        let again = peer.expect_cm("the reply again", attribute::REP);
        assert_eq!(again.data, first.data);
        assert_eq!(b.connections("ib0").len(), 1);
    });
}
