//! Cost of one frame: transmit by number of learned addresses and by the manager's table, receive by number
//! of sources, and a storm of new addresses.

use std::sync::Arc;

use divan::{Bencher, black_box};
use proto::{Gid, Mac, PKey, Qpn, Time};
use vnic::Lid;
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::directory::NodeAddress;
use vnic::mac_table::{MAC_TABLE_ENTRIES, MacEntry, MacTable};
use vnic::packet::{self, Header16B, Profile, packet_len};
use vnic::port::{Forward, Meta, Settings, VeswPort};

const OWN: Mac = [0, 0x10, 0, 0, 0, 5];
const ALL: Lid = Lid::new(0xf0_0002);
/// Number of members with learned addresses.
const MEMBERS: u32 = 64;

fn main() {
    divan::main();
}

fn mac(n: u32) -> Mac {
    let [a, b, c, d] = n.to_be_bytes();
    [0x52, 0x54, a, b, c, d]
}

fn lid(n: u32) -> Lid {
    Lid::new(100 + n % MEMBERS)
}

fn meta(n: u32) -> Meta {
    let mut gid = [0xfe; 16];
    gid[15] = (n % MEMBERS) as u8;
    Meta {
        src_gid: Gid(gid),
        src_qpn: Qpn::new(0x100 + n % MEMBERS),
        multicast: false,
    }
}

/// A frame with IPv4 and TCP.
fn frame(destination: Mac, source: Mac) -> Vec<u8> {
    let mut frame = [&destination[..], &source, &[8, 0, 0x45, 0, 5, 220]].concat();
    frame.resize(1514, 0);
    frame[22..24].copy_from_slice(&[64, 6]);
    frame
}

/// A packet from a learned address to the port.
fn packet(n: u32) -> Vec<u8> {
    let frame = frame(OWN, mac(n));
    let header = Header16B {
        slid: lid(n),
        dlid: Lid::new(5),
        pkey: PKey::DEFAULT,
        vesw_id: 2,
        ..Header16B::default()
    };
    let mut packet = vec![0; packet_len(frame.len())];
    let len = packet::encode(&header, &frame, Profile::Wire0, &mut packet);
    assert_eq!(len, Ok(packet.len()));
    packet
}

/// A port with `learned` learned addresses.
fn port(learned: u32) -> VeswPort {
    let mut port = VeswPort::new(Settings {
        mac: OWN,
        local: NodeAddress {
            gid: Gid([1; 16]),
            qpn: Qpn::new(0x99),
        },
        ..Settings::default()
    });
    port.configure(&VeswPortInfo {
        vesw_id: 2,
        pkey: PKey::DEFAULT,
        u_mcast_dlid: ALL,
        encap_slid: Lid::new(5),
        config_state: ConfigState::Forwarding,
        ..VeswPortInfo::default()
    });
    port.set_up(true);
    for n in 0..learned {
        receive_one(&mut port, &meta(n), &packet(n));
        port.drain_updates().for_each(drop);
    }
    port
}

fn receive_one(port: &mut VeswPort, meta: &Meta, packet: &[u8]) {
    let taken = port.from_fabric(Time(0), black_box(meta), black_box(packet));
    assert!(black_box(taken).is_ok());
}

/// Decides about a frame, and counts it as sent.
fn send_one(port: &mut VeswPort, frame: &[u8]) {
    match black_box(port.from_tap(Time(0), black_box(frame))) {
        Forward::Fabric { to, class, .. } => {
            black_box((port.address(to), port.ah(to)));
            port.count_sent(class, vnic::port::Sizes::one(frame.len()));
        }
        other => unreachable!("{other:?}"),
    }
}

/// Advances in an order that caches do not predict.
fn scatter(i: &mut u32, n: u32) -> u32 {
    *i = i.wrapping_add(7919);
    *i % n
}

/// Sends to each learned address in turn. The frame is in the cache, as after a read from the TAP.
#[divan::bench(args = [10, 1000, 100_000])]
fn send_to_learned(bencher: Bencher<'_, '_>, addresses: u32) {
    let mut port = port(addresses);
    let mut frame = frame(mac(0), OWN);
    let mut i = 0;
    bencher.bench_local(|| {
        frame[..6].copy_from_slice(&mac(scatter(&mut i, addresses)));
        send_one(&mut port, &frame);
    });
}

/// Sends to one of the learned addresses.
#[divan::bench(args = [10, 1000, 100_000])]
fn send_to_one_of(bencher: Bencher<'_, '_>, addresses: u32) {
    let mut port = port(addresses);
    let frame = frame(mac(addresses / 2), OWN);
    bencher.bench_local(|| send_one(&mut port, &frame));
}

/// Sends to each address of the manager's full table in turn, beside learned addresses.
#[divan::bench(args = [10, 100_000])]
fn send_to_table(bencher: Bencher<'_, '_>, addresses: u32) {
    let mut port = port(addresses);
    let entries: Vec<MacEntry> = (0..MAC_TABLE_ENTRIES as u32)
        .map(|n| MacEntry {
            mac: mac(0x1000_0000 + n),
            mask: [0xff; 6],
            dlid_sd: lid(n).get() << 8,
        })
        .collect();
    let table = MacTable::default().update(0, &entries, 1);
    port.set_table(Arc::new(table.expect("a full table")));
    let mut frame = frame(mac(0), OWN);
    let mut i = 0;
    bencher.bench_local(|| {
        let n = scatter(&mut i, MAC_TABLE_ENTRIES as u32);
        frame[..6].copy_from_slice(&mac(0x1000_0000 + n));
        send_one(&mut port, &frame);
    });
}

/// Receives from each learned address in turn. Only with one address, the source equals that of the packet
/// before.
#[divan::bench(args = [1, 10, 1000, 100_000])]
fn receive_from(bencher: Bencher<'_, '_>, addresses: u32) {
    let mut port = port(addresses);
    let mut packet = packet(0);
    let slid = packet[0];
    let mut i = 0;
    bencher.bench_local(|| {
        let n = scatter(&mut i, addresses);
        packet[0] = slid + (n % MEMBERS) as u8;
        packet[26..32].copy_from_slice(&mac(n));
        receive_one(&mut port, &meta(n), &packet);
    });
}

/// Receives from new addresses into a full table.
#[divan::bench]
fn receive_in_a_storm(bencher: Bencher<'_, '_>) {
    let mut port = port(Settings::MAC_LIMIT as u32);
    let mut packet = packet(0);
    let mut n = Settings::MAC_LIMIT as u32;
    bencher.bench_local(|| {
        n = n.wrapping_add(1);
        packet[26..32].copy_from_slice(&mac(n));
        receive_one(&mut port, &meta(0), &packet);
        port.drain_updates().for_each(drop);
    });
}
