//! Floods against connected mode: requests for connections, and packets of connections.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use crate::lab::attacker::{Attacker, Numbers};
use crate::lab::packet::{GSI_QKEY, GSI_QPN, Ud};
use crate::lab::rc_peer::LINUX_SERVICE;
use crate::lab::reliable::{Ends, Rc, Request, opcode, private_data};
use crate::lab::{Alone, CONNECTED_MTU, Host, Lab, SOON, eventually, iperf, iperf_above};

use super::{full_packets_pass, v4_payload};

/// Maximum growth of resident memory.
const GROWTH_MAX_KIB: u64 = 64 << 10;

/// The daemon's default limit of connections of an interface.
const CONNECTIONS_MAX: usize = 4096;

/// Creates the next datagram of a flood.
type Hostile = fn(&Attacker, &mut Numbers, usize) -> Vec<u8>;

/// Attackers on host `a`, with that many unused addresses.
fn strangers(a: &Host, b: &Host, count: usize) -> Vec<Attacker> {
    a.ok("sysctl -qw net.ipv6.ip_nonlocal_bind=1");
    let mut numbers = Numbers(17);
    let mut all: Vec<Attacker> = (0..count).map(|_| Attacker::new(a, b)).collect();
    for attacker in &mut all {
        let address = Ipv6Addr::from(u128::from(numbers.next()) | 0xfe80 << 112);
        attacker.move_to(a, address);
    }
    all
}

/// Counts requests, before any limit.
const REQUESTS: &[&str] = &["cm_rx_msgs_req"];

/// Drops before the daemon: the socket was full.
const LOST: &str = "rx_socket_drops";

/// Length of a flood.
const DATAGRAMS: usize = 30_000;

/// Runs a flood from that many unused addresses.
fn survives(addresses: usize, causes: &[&str], make: Hostile) {
    survives_from(|a, b| strangers(a, b, addresses), causes, make);
}

/// Runs a flood of datagrams from host `a` to host `b`, while large packets and a stream pass between
/// the two over existing connections. Some of these may be lost while the daemons have no time for
/// acknowledgements, most must not; memory stays bounded, and afterwards everything is as before. Each datagram that
/// arrived must be counted under one of `causes`. Other load would take the time of the daemons, so the test runs
/// alone.
fn survives_from(
    attackers: impl FnOnce(&Host, &Host) -> Vec<Attacker>,
    causes: &[&str],
    make: Hostile,
) {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    every_thread_connects(a, b);
    full_packets_pass(a, b, CONNECTED_MTU);
    let attackers = attackers(a, b);
    let counted = |host: &Host| host.counters("ib0", causes) + host.counter("ib0", LOST);
    let before = counted(b);
    let memory = b.daemon().resident_kib();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
            for number in 0..DATAGRAMS {
                let attacker = &attackers[number % attackers.len()];
                attacker.send(&make(attacker, &mut numbers, number));
                if number % 64 == 63 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let payload = v4_payload(CONNECTED_MTU);
        let output = a.ok(&format!(
            "ping -M do -q -c 20 -i 0.05 -W 5 -s {payload} {}",
            b.v4()
        ));
        let answered = output.split(" received").next();
        let answered = answered.and_then(|s| s.rsplit(' ').next()?.parse::<u32>().ok());
        assert!(answered.is_some_and(|n| n >= 10), "{output}");
        iperf_above(a, b, &b.v6(), "-t 2", 10e6);
    });
    assert!(b.daemon().is_running());
    let counted = counted(b) - before;
    assert!(
        counted >= DATAGRAMS as u64 * 9 / 10,
        "{counted} of {DATAGRAMS} counted"
    );
    // Answers to addresses that do not exist wait in the kernel; they take no room from other packets.
    assert_eq!(b.counter("ib0", "tx_blocked"), 0);
    let all = b.connections("ib0").len();
    assert!(all <= CONNECTIONS_MAX, "{all} connections");
    goes_on(a, b, memory);
}

/// Waits until each data thread of both hosts has a connection. The ports of a TCP stream select the thread. A ping has
/// none: one after the other selects the same thread.
fn every_thread_connects(a: &Host, b: &Host) {
    let all_send = |from: &Host, to: &Host| {
        let made = from.connections_with(to, true);
        let workers: BTreeSet<u64> = made.iter().map(|c| c.number("worker")).collect();
        from.show("ib0")["queues"] == workers.len()
    };
    eventually(SOON, "a connection of each data thread", || {
        iperf(a, b, &b.v4(), "-n 4M -P 4");
        (all_send(a, b) && all_send(b, a)).then_some(())
    });
}

/// Checks that memory has not grown much, and that full packets pass both ways.
fn goes_on(a: &Host, b: &mut Host, memory: u64) {
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(
        grown < GROWTH_MAX_KIB,
        "resident memory grew by {grown} KiB"
    );
    full_packets_pass(a, b, CONNECTED_MTU);
    full_packets_pass(b, a, CONNECTED_MTU);
}

/// A request from the attacker for any service id with any private data.
fn request(
    attacker: &Attacker,
    numbers: &mut Numbers,
    service: u64,
    private_data: Vec<u8>,
) -> Vec<u8> {
    let request = Request {
        id: numbers.next() as u32,
        service,
        guid: numbers.next(),
        qpn: numbers.next() as u32 & 0xff_ffff,
        psn: numbers.next() as u32 & 0xff_ffff,
        own: attacker.own,
        peer: *attacker.victim.ip(),
        mtu: 5,
        private_data,
    };
    mad(attacker, request.message().mad())
}

fn mad(attacker: &Attacker, payload: Vec<u8>) -> Vec<u8> {
    Ud {
        destination_qpn: GSI_QPN,
        qkey: GSI_QKEY,
        source_qpn: GSI_QPN,
        ..attacker.packet(payload)
    }
    .datagram()
}

#[test]
fn a_flood_of_requests_with_lying_private_data_is_bounded() {
    survives(1, REQUESTS, |attacker, numbers, number| {
        let listener = LINUX_SERVICE | u64::from(attacker.qpn);
        let lies = match number % 6 {
            0 => private_data(0, 65_524),
            1 => private_data(0xff_ffff, 65_524),
            2 => private_data(attacker.qpn, 65_524),
            3 => private_data(0x1234, 0),
            4 => private_data(0x1234, u32::MAX),
            _ => numbers.bytes(92),
        };
        request(attacker, numbers, listener, lies)
    });
}

/// No host answers a reply to such an address, so all of them stay half-open.
#[test]
fn a_flood_of_requests_from_unknown_addresses_is_bounded() {
    survives(192, REQUESTS, |attacker, numbers, _| {
        let listener = LINUX_SERVICE | u64::from(attacker.qpn);
        let private = private_data(numbers.next() as u32 & 0xff_ffff, 65_524);
        request(attacker, numbers, listener, private)
    });
}

/// They replace each other, not the connection of the real peer.
#[test]
fn a_flood_of_requests_in_a_peers_name_is_bounded() {
    let peer = |a: &Host, b: &Host| vec![Attacker::new(a, b)];
    survives_from(peer, REQUESTS, |attacker, numbers, _| {
        let listener = LINUX_SERVICE | u64::from(attacker.qpn);
        let private = private_data(numbers.next() as u32 & 0xff_ffff, 65_524);
        request(attacker, numbers, listener, private)
    });
}

/// Counts messages of every kind, and what is none.
const MESSAGES: &[&str] = &[
    "cm_rx_msgs_req",
    "cm_rx_msgs_mra",
    "cm_rx_msgs_rej",
    "cm_rx_msgs_rep",
    "cm_rx_msgs_rtu",
    "cm_rx_msgs_dreq",
    "cm_rx_msgs_drep",
    "cm_rx_msgs_sidr_req",
    "cm_rx_msgs_sidr_rep",
    "cm_rx_msgs_lap",
    "cm_rx_msgs_apr",
    "cm_rx_malformed",
    "rx_mads_unhandled",
];

#[test]
fn random_messages_of_communication_management_are_dropped() {
    survives(1, MESSAGES, |attacker, numbers, number| {
        // Any kind of message with any contents, possibly truncated.
        let mut bytes = vec![1, 7, 2, 3];
        bytes.extend(numbers.bytes(252));
        bytes[16] = 0;
        bytes[17] = 0x10 + (numbers.next() as u8 & 0xf);
        if number % 8 == 0 {
            bytes.truncate(numbers.next() as usize % 256);
        }
        mad(attacker, bytes)
    });
}

/// Drop reasons for packets of connections, including the full socket.
const REFUSALS: &[&str] = &[
    "rx_length_errors",
    "rx_bad_opcode",
    "rx_unknown_qpn",
    "rx_bad_state",
    "rx_not_peer",
    LOST,
];

/// Packets for missing queue pairs, and from strangers for existing ones.
#[test]
fn packets_of_no_connection_and_of_other_peoples_are_dropped() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    b.connects_to(a);
    full_packets_pass(a, b, CONNECTED_MTU);
    let known: Vec<u32> = b
        .connections("ib0")
        .iter()
        .map(|c| u32::try_from(c.number("qpn")).expect("24 bits"))
        .collect();
    let attackers = strangers(a, b, 1);
    let attacker = &attackers[0];
    let before = b.counters("ib0", REFUSALS);
    let memory = b.daemon().resident_kib();
    let passed = b.of_connections("rx_messages");
    let mut numbers = Numbers(23);
    attacker.flood(30_000, |number| {
        let packet = Rc {
            opcode: match number % 4 {
                0 => opcode::SEND_ONLY,
                1 => opcode::SEND_FIRST,
                2 => opcode::ACKNOWLEDGE,
                _ => numbers.next() as u8 & 0x1f,
            },
            destination_qpn: match number % 2 {
                0 => known[number / 2 % known.len()],
                _ => numbers.next() as u32 & 0xff_ffff,
            },
            psn: numbers.next() as u32 & 0xff_ffff,
            asks_ack: number % 3 == 0,
            rest: numbers.bytes(number % 200),
        };
        packet.datagram(Ends {
            source: attacker.own,
            destination: *attacker.victim.ip(),
            source_port: attacker.source_port(),
        })
    });
    let counted = b.counters("ib0", REFUSALS) - before;
    assert!(counted > 20_000, "{counted} counted");
    let after = b.of_connections("rx_messages");
    assert_eq!(after, passed, "none was taken for the peer's");
    assert!(b.daemon().is_running());
    goes_on(a, b, memory);
}
