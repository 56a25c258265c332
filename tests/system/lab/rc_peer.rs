//! The other end of a connection, handmade, on a host without a daemon.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use super::packet::{GSI_QKEY, GSI_QPN, ROCE_PORT, Ud};
use super::reliable::{CmMessage, Ends, Rc, Request, attribute, private_data};
use super::{Host, SOON};

/// Code of the MTU 4096.
const MTU_4096: u8 = 5;

/// First bytes of Linux's service ids; the listener's UD queue pair follows.
pub const LINUX_SERVICE: u64 = 0x10 << 56;
/// The same for RFC 4755, section 3.5.
pub const RFC_SERVICE: u64 = 0x01 << 56;

/// Port 4755 of rdma_cm's TCP port space.
const RDMA_CM_SERVICE: u64 = 0x0106_1293;

/// A socket on a host's RoCE port, and the daemon of the other host.
pub struct RcPeer {
    socket: UdpSocket,
    ends: Ends,
    scope: u32,
    /// The daemon's UD queue pair.
    pub ud_qpn: u32,
}

/// An answer of the daemon.
#[derive(Debug)]
pub enum Answer {
    /// A message of communication management.
    Cm(CmMessage),
    /// A packet of a reliable connection.
    Rc(Rc),
}

/// The daemon's values of its end.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// The peer's communication id.
    pub own_id: u32,
    /// The daemon's communication id.
    pub id: u32,
    /// Its RC queue pair.
    pub qpn: u32,
    /// First sequence number for packets to the daemon.
    pub first_psn: u32,
}

impl Accepted {
    /// The values of a reply to the request `own_id`.
    pub fn of(own_id: u32, reply: &CmMessage) -> Accepted {
        assert_eq!(reply.word(4), own_id, "for our request");
        Accepted {
            own_id,
            id: reply.word(0),
            qpn: reply.word(12) >> 8,
            first_psn: reply.word(20) >> 8,
        }
    }

    /// The sequence number of packet `n` to the daemon, counted from 0.
    pub fn psn(&self, n: u32) -> u32 {
        (self.first_psn + n) & 0xff_ffff
    }
}

impl RcPeer {
    /// Creates a peer on `host`, which has no daemon, for the daemon of `other`.
    pub fn on(host: &Host, other: &Host) -> RcPeer {
        let gid = other.show("ib0")["gid"].clone();
        let destination: Ipv6Addr = gid.as_str().expect("a GID").parse().expect("an address");
        let source: Ipv6Addr = host.await_link_local("eth0").parse().expect("an address");
        let index = host.link("eth0")["ifindex"].as_u64().expect("an index");
        let socket = host
            .namespace()
            .within(|| UdpSocket::bind(("::", ROCE_PORT)).expect("a socket"));
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a timeout");
        let qpn = other.show("ib0")["qpn"].as_u64().expect("a number");
        RcPeer {
            socket,
            ends: Ends {
                source,
                destination,
                source_port: ROCE_PORT,
            },
            scope: u32::try_from(index).expect("an index"),
            ud_qpn: u32::try_from(qpn).expect("24 bits"),
        }
    }

    fn send_datagram(&self, datagram: &[u8]) {
        let to = SocketAddrV6::new(self.ends.destination, ROCE_PORT, 0, self.scope);
        self.socket.send_to(datagram, to).expect("sent");
    }

    /// Sends a message of communication management to the daemon's QP1.
    pub fn send_cm(&self, message: &CmMessage) {
        let ud = Ud {
            source: self.ends.source,
            destination: self.ends.destination,
            source_port: self.ends.source_port,
            pkey: 0xffff,
            destination_qpn: GSI_QPN,
            psn: 0,
            qkey: GSI_QKEY,
            source_qpn: GSI_QPN,
            payload: message.mad(),
        };
        self.send_datagram(&ud.datagram());
    }

    /// Sends a packet of a reliable connection.
    pub fn send(&self, packet: &Rc) {
        self.send_datagram(&packet.datagram(self.ends));
    }

    /// The first answer within `limit` for which `keep` returns a value.
    pub fn answer<T>(&self, limit: Duration, keep: impl Fn(&Answer) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut bytes = [0; 9000];
        while Instant::now() < end {
            match self.socket.recv_from(&mut bytes) {
                Ok((n, SocketAddr::V6(from))) => {
                    let read = self.read(*from.ip(), from.port(), &bytes[..n]);
                    if let Some(found) = read.as_ref().and_then(&keep) {
                        return Some(found);
                    }
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => panic!("cannot receive: {e}"),
            }
        }
        None
    }

    /// The same; panics without such an answer.
    pub fn expect<T>(&self, what: &str, keep: impl Fn(&Answer) -> Option<T>) -> T {
        self.answer(SOON, keep)
            .unwrap_or_else(|| panic!("waited in vain for {what}"))
    }

    /// An acknowledgement, positive or negative, of a packet: PSN, syndrome and message number.
    pub fn acknowledgement(&self, what: &str, keep: impl Fn(u32, u8, u32) -> bool) {
        self.expect(what, |answer| match answer {
            Answer::Rc(rc) => {
                let (syndrome, msn) = rc.aeth()?;
                keep(rc.psn, syndrome, msn).then_some(())
            }
            Answer::Cm(_) => None,
        });
    }

    /// A message of communication management of this kind.
    pub fn expect_cm(&self, what: &str, kind: u16) -> CmMessage {
        self.expect(what, |answer| match answer {
            Answer::Cm(message) if message.attribute == kind => Some(message.clone()),
            _ => None,
        })
    }

    fn read(&self, from: Ipv6Addr, port: u16, datagram: &[u8]) -> Option<Answer> {
        let ends = Ends {
            source: from,
            destination: self.ends.source,
            source_port: port,
        };
        if let Some(rc) = Rc::parse(ends, datagram) {
            return Some(Answer::Rc(rc));
        }
        let ud = Ud::parse(ends.source, ends.destination, port, datagram)?;
        (ud.destination_qpn == GSI_QPN)
            .then(|| CmMessage::parse(&ud.payload))?
            .map(Answer::Cm)
    }

    /// A request for a service whose id begins with these bytes, like the kernel's.
    pub fn request(&self, service: u64, id: u32, qpn: u32) -> Request {
        Request {
            id,
            service: service | u64::from(self.ud_qpn),
            guid: 0x0002_c903_00aa_0001,
            qpn,
            psn: 0,
            own: self.ends.source,
            peer: self.ends.destination,
            mtu: MTU_4096,
            private_data: private_data(0x77_7777, 65_524),
        }
    }

    /// A request like rdma_cm's for port 4755: its header of addresses (kernel drivers/infiniband/core/cma.c,
    /// `struct cma_hdr`) precedes IPoIB's bytes, and the UD queue pair of the listener is in the last four of
    /// all.
    pub fn request_by_rdma_cm(&self, listener: u32, id: u32, qpn: u32) -> Request {
        let mut data = vec![0, 6 << 4, 0xc0, 0x01];
        data.extend(self.ends.source.octets());
        data.extend(self.ends.destination.octets());
        data.extend(private_data(0x77_7777, 65_524));
        data.resize(88, 0);
        data.extend(listener.to_be_bytes());
        Request {
            service: RDMA_CM_SERVICE,
            private_data: data,
            ..self.request(LINUX_SERVICE, id, qpn)
        }
    }

    /// Makes a connection.
    pub fn connect(&self, request: &Request) -> Accepted {
        self.send_cm(&request.message());
        let reply = self.expect_cm("a reply", attribute::REP);
        let accepted = Accepted::of(request.id, &reply);
        let ids = [accepted.own_id.to_be_bytes(), accepted.id.to_be_bytes()].concat();
        self.send_cm(&CmMessage::new(attribute::RTU, u64::from(request.id), &ids));
        accepted
    }

    /// Ends a connection, and waits for the answer.
    pub fn disconnect(&self, accepted: &Accepted) {
        let mut data = [accepted.own_id.to_be_bytes(), accepted.id.to_be_bytes()].concat();
        data.extend(&accepted.qpn.to_be_bytes()[1..]);
        self.send_cm(&CmMessage::new(attribute::DREQ, 0x99, &data));
        let reply = self.expect_cm("an answer to the disconnect", attribute::DREP);
        assert_eq!(reply.transaction, 0x99);
        assert_eq!(
            (reply.word(0), reply.word(4)),
            (accepted.id, accepted.own_id)
        );
    }
}
