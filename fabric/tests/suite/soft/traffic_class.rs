//! The traffic class of an address handle is in every packet of a train.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::soft::SoftConfig;
use fabric::{AhAttributes, Gid, Qpn, Sent};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

use super::exchange::ipv4;
use crate::net::{Cable, Namespace};
use crate::node::{Node, QKEY, payloads};

const SOON: Duration = Duration::from_secs(10);

/// All frames of a namespace, captured with a packet socket (packet(7)).
struct Capture(OwnedFd);

impl Capture {
    fn begin(ns: &Namespace) -> Capture {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (family, all) = (AddressFamily::PACKET, Some(eth::ALL));
        Capture(
            ns.run(|| socket_with(family, SocketType::RAW, flags, all))
                .unwrap(),
        )
    }

    /// Traffic classes and RoCEv2 bytes of the next frames, until they have `bytes` in total. The
    /// kernel may show a train as one frame.
    fn classes(&self, bytes: usize) -> Vec<(u8, usize)> {
        let deadline = Instant::now() + SOON;
        let mut found = Vec::new();
        let mut frame = vec![0; 1 << 17];
        while found.iter().map(|f: &(u8, usize)| f.1).sum::<usize>() < bytes {
            assert!(Instant::now() < deadline, "only {found:?} of {bytes}");
            match recv(&self.0, &mut frame[..], RecvFlags::empty()) {
                Ok((len, _)) => found.extend(roce(&frame[..len])),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(Duration::from_millis(1)),
                Err(e) => panic!("{e}"),
            }
        }
        found
    }
}

/// Traffic class and UDP payload bytes of a RoCEv2 frame.
fn roce(frame: &[u8]) -> Option<(u8, usize)> {
    let ip = frame.get(14..)?;
    let word = |at: usize| Some(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?]));
    let (class, udp) = match frame.get(12..14)? {
        [0x86, 0xdd] if ip[6] == 17 => ((word(0)? >> 4) as u8, 40),
        [0x08, 0x00] if ip[9] == 17 => (ip[1], 20),
        _ => return None,
    };
    (word(udp + 2)? == 4791).then_some((class, ip.len() - udp - 8))
}

fn classes_are_sent(of_a: SoftConfig, of_b: SoftConfig) {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, of_a);
    let mut b = Node::open(&cable.b, of_b);
    let (s, r) = (a.endpoint(), b.endpoint());
    let mgid: Gid = "ff12:401b:ffff::ffff:ffff".parse().unwrap();
    b.attach(&r, mgid);
    let capture = Capture::begin(&cable.b);
    let sent = payloads(9, 1000, 100);
    // BTH, DETH and ICRC are 24 bytes.
    let bytes = sent.iter().map(|p| p.len() + 24).sum();
    let unicast = (b.gid(), r.qpn);
    // The last two bits belong to the network (RFC 3168), and a class applies to its train only.
    for (asked, class) in [
        (0, 0),
        (0xb8, 0xb8),
        (0, 0),
        (0x20, 0x20),
        (0xff, 0xfc),
        (3, 0),
    ] {
        for (dgid, qpn) in [unicast, (mgid, Qpn::MULTICAST)] {
            let to = AhAttributes {
                traffic_class: asked,
                ..AhAttributes::to(dgid, fabric::PKey::DEFAULT)
            };
            assert_eq!(a.send_as(&s, &to, qpn, QKEY, &sent), Sent::Done);
            let found = capture.classes(bytes);
            assert!(found.iter().all(|f| f.0 == class), "{asked:#x}: {found:x?}");
            // The ICRC does not cover the traffic class.
            let got = b.receive(sent.len());
            assert!(got.iter().map(|g| &g.2).eq(&sent), "{asked:#x}");
        }
    }
    assert_eq!(b.counter("rx_icrc_errors"), 0);
}

#[test]
fn traffic_classes_are_on_the_wire_over_ipv6() {
    let config = || SoftConfig::new("u0");
    classes_are_sent(config(), config());
}

#[test]
fn traffic_classes_are_on_the_wire_over_ipv4() {
    classes_are_sent(ipv4("192.0.2.2"), ipv4("192.0.2.1"));
}
