//! The QP1 of another port, for tests: a thread answers management datagrams on an interface of the calling
//! thread's namespace.

use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use proto::{Gid, PKey, QKey, Qpn};

use super::gsi::{Gsi, MAD_PACKET_LEN};
use super::icrc_check::IcrcCheck;
use super::train::{self, HEAD, Ipv4Id, Route};
use super::ud::Path;
use super::wire::{Bth, Deth, ROCE_V2_PORT, opcode};
use crate::mad::MAD_LEN;
use zerocopy::FromBytes;

/// See the module.
pub struct FakeGsi {
    socket: UdpSocket,
    source: SocketAddrV6,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeGsi {
    /// At an IPv6 address of the interface with this index.
    pub fn start(
        address: Gid,
        ifindex: u32,
        mut answer: impl FnMut(&[u8; MAD_LEN]) -> Vec<[u8; MAD_LEN]> + Send + 'static,
    ) -> FakeGsi {
        let source = SocketAddrV6::new(address.0.into(), ROCE_V2_PORT, 0, ifindex);
        let socket = UdpSocket::bind(source).unwrap();
        let wait = Some(Duration::from_millis(20));
        socket.set_read_timeout(wait).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let mut fake = FakeGsi {
            socket,
            source,
            ended: Arc::clone(&ended),
            thread: None,
        };
        let (from_port, source) = (fake.socket.try_clone().unwrap(), fake.source);
        fake.thread = Some(thread::spawn(move || {
            let mut packet = [0; 9000];
            while !ended.load(Ordering::Relaxed) {
                let Ok((len, SocketAddr::V6(from))) = from_port.recv_from(&mut packet) else {
                    continue;
                };
                let mad = checked(&packet[..len], from, source);
                for answer in answer(&mad) {
                    send(&from_port, source, Gid(from.ip().octets()), &answer);
                }
            }
        }));
        fake
    }

    /// Sends a datagram to the QP1 of a port.
    pub fn send(&self, to: Gid, mad: &[u8; MAD_LEN]) {
        send(&self.socket, self.source, to, mad);
    }
}

impl Drop for FakeGsi {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Sends a datagram from the QP1 of `source`, the address of the socket.
pub fn send(socket: &UdpSocket, source: SocketAddrV6, to: Gid, mad: &[u8; MAD_LEN]) {
    let mut gsi = Gsi::new(1);
    gsi.load(PKey::DEFAULT, mad);
    let route = Route {
        source: source.into(),
        destination: to.to_ip(),
        ids: Ipv4Id::Zero,
    };
    train::seal_run(&mut gsi.packet[..], MAD_PACKET_LEN, &route).unwrap();
    let to = SocketAddrV6::new(to.0.into(), ROCE_V2_PORT, 0, source.scope_id());
    socket.send_to(&gsi.packet[..], to).unwrap();
}

/// The datagram in a packet, which must be complete and from QP1 to QP1.
fn checked(packet: &[u8], from: SocketAddrV6, to: SocketAddrV6) -> [u8; MAD_LEN] {
    let path = Path {
        src: Gid(from.ip().octets()),
        dst: Gid(to.ip().octets()),
        src_port: from.port(),
    };
    IcrcCheck::default().verify(&path, packet).unwrap();
    let (bth, rest) = Bth::ref_from_prefix(packet).unwrap();
    let (deth, _) = Deth::ref_from_prefix(rest).unwrap();
    assert_eq!(
        (bth.opcode, bth.pkey(), bth.dest_qp()),
        (opcode::UD_SEND_ONLY, PKey::DEFAULT, Qpn::GSI)
    );
    assert_eq!((deth.qkey(), deth.src_qp()), (QKey::GSI, Qpn::GSI));
    packet[HEAD..][..MAD_LEN].try_into().unwrap()
}
