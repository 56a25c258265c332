//! An attacker on the underlay.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

use super::packet::{ROCE_PORT, Ud};
use super::{Host, Load};

/// The first half of the addresses of invented neighbours, 10.99.0.0/16: no host has one.
pub const INVENTED: [u8; 2] = [10, 99];

impl Host {
    /// From now on, the kernel of this host does not see ARP requests of invented neighbours that arrive over `ib0`. It
    /// would make an entry for each. All namespaces of the machine share one table of 1024 entries (`gc_thresh3`): a flood
    /// fills it for a minute, and other tests lose packets.
    pub fn hides_invented_neighbours(&self) {
        let [a, b] = INVENTED;
        self.nft(&format!(
            "table netdev invented {{\n\
               chain ingress {{\n\
                 type filter hook ingress device \"ib0\" priority 0;\n\
                 arp saddr ip {a}.{b}.0.0/16 drop\n\
               }}\n\
             }}\n"
        ));
    }
}

/// Packets that found a queue between namespaces full, of any test, since the machine started. The kernel has one queue for
/// each processor, for all namespaces together: the second number, in hexadecimal digits, of each processor's line.
pub fn backlog_drops() -> u64 {
    let lines = std::fs::read_to_string("/proc/net/softnet_stat").expect("the kernel has it");
    let drops = |line: &str| {
        let word = line.split_whitespace().nth(1).expect("a second number");
        u64::from_str_radix(word, 16).expect("a number")
    };
    lines.lines().map(drops).sum()
}

/// A small random number generator with the same numbers in every run (xorshift64, Marsaglia 2003).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// `count` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// An attacker on host `a`'s underlay, and its victim's queue pair.
pub struct Attacker {
    socket: UdpSocket,
    /// Source address.
    pub own: Ipv6Addr,
    /// The victim's port.
    pub victim: SocketAddrV6,
    /// The victim's UD queue pair.
    pub qpn: u32,
}

impl Attacker {
    /// Creates a socket on `from`'s underlay, against `ib0`.
    pub fn new(from: &Host, victim: &Host) -> Attacker {
        Attacker::of(from, victim, "ib0")
    }

    /// The same against another interface that both hosts have.
    pub fn of(from: &Host, victim: &Host, interface: &str) -> Attacker {
        let gid = |host: &Host| -> Ipv6Addr {
            let shown = host.show(interface);
            shown["gid"]
                .as_str()
                .expect("a GID")
                .parse()
                .expect("an address")
        };
        let index = from.link("eth0")["ifindex"].as_u64().expect("an index");
        let own = gid(from);
        let scope = u32::try_from(index).expect("an index");
        let socket = from
            .namespace()
            .within(|| UdpSocket::bind(SocketAddrV6::new(own, 0, 0, scope)).expect("a socket"));
        let qpn = victim.show(interface)["qpn"].as_u64().expect("a number");
        Attacker {
            socket,
            own,
            victim: SocketAddrV6::new(gid(victim), ROCE_PORT, 0, scope),
            qpn: u32::try_from(qpn).expect("24 bits"),
        }
    }

    /// Changes the source address, which may be unused.
    pub fn move_to(&mut self, from: &Host, address: Ipv6Addr) {
        let scope = self.victim.scope_id();
        self.own = address;
        self.socket = from
            .namespace()
            .within(|| UdpSocket::bind(SocketAddrV6::new(address, 0, 0, scope)).expect("a socket"));
    }

    /// Makes the attacker a user without any rights.
    pub fn into_nobody(mut self, from: &Host) -> Attacker {
        let address = SocketAddrV6::new(self.own, 0, 0, self.victim.scope_id());
        // `within` has a thread of its own, and the kernel notes the user when a socket is created.
        self.socket = from.namespace().within(|| {
            let nobody = Uid::from_raw(65534);
            set_thread_res_uid(None, nobody, None).expect("root may become anyone");
            UdpSocket::bind(address).expect("a socket")
        });
        self
    }

    /// A correct packet, to be modified.
    pub fn packet(&self, payload: Vec<u8>) -> Ud {
        Ud {
            source: self.own,
            destination: *self.victim.ip(),
            source_port: self.source_port(),
            pkey: 0xffff,
            destination_qpn: self.qpn,
            psn: 0,
            qkey: 0x0b1b,
            source_qpn: 0x123456,
            payload,
        }
    }

    /// Source UDP port.
    pub fn source_port(&self) -> u16 {
        self.socket.local_addr().expect("an address").port()
    }

    /// Sends a datagram to the victim.
    pub fn send(&self, datagram: &[u8]) {
        self.send_to(datagram, self.victim);
    }

    /// Sends a datagram to another address, for example a group.
    pub fn send_to(&self, datagram: &[u8], to: SocketAddrV6) {
        // Errors are fine: the victim's socket may be full, and a datagram too long for the link.
        let _ = self.socket.send_to(datagram, to);
    }

    /// Sends `per_second` datagrams a second for three seconds.
    pub fn storm(&self, per_second: u32, mut make: impl FnMut(u32) -> Vec<u8>) {
        let _turn = Load::begin();
        let start = Instant::now();
        for number in 0..3 * per_second {
            let due = start + Duration::from_secs(1) * number / per_second;
            if number % 16 == 0 {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            self.send(&make(number));
        }
    }

    /// Sends `count` datagrams in bursts that leave some CPU time to the victim.
    pub fn flood(&self, count: usize, mut make: impl FnMut(usize) -> Vec<u8>) {
        let _turn = Load::begin();
        for number in 0..count {
            self.send(&make(number));
            if number % 64 == 63 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
