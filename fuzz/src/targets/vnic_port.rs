//! Two replicas of a virtual port with arbitrary actions of hosts, peers and managers, while time passes.
//! Their updates do not circulate, an address is at one place, tables keep their bounds, and the counters add
//! up.
//!
//! Input: records of a byte that selects the action (and, with 128, the second replica), a length, and that
//! many bytes of details.

use std::collections::HashSet;
use std::sync::Arc;

use fabric::{AddressHandle, Gid, PKey, Qpn};
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::counters::Counters;
use vnic::directory::{Directory, NodeAddress};
use vnic::mac_table::{MAC_TABLE_ENTRIES, MacEntry, MacTable};
use vnic::packet::{Header16B, Profile, encode, packet_len};
use vnic::port::{Forward, Meta, Settings, Sizes, Unsent, VeswPort};
use vnic::{Lid, Mac, Time};

const OWN: Mac = [0, 0x10, 0, 0, 0, 5];
const ALL: Lid = Lid::new(0xf0_0002);
/// Learned addresses; few, so that they replace each other.
const MACS_MAX: usize = 8;

struct World {
    replicas: [VeswPort; 2],
    now: u64,
    table: MacTable,
    /// Referenced address handles.
    handles: HashSet<u32>,
    next_handle: u32,
}

fn address(n: u8) -> NodeAddress {
    NodeAddress {
        gid: Gid([n >> 4; 16]),
        qpn: Qpn::new(u32::from(n & 0xf)),
    }
}

fn info(detail: &[u8]) -> VeswPortInfo {
    let byte = |at: usize| detail.get(at).copied().unwrap_or(0);
    let mut info = VeswPortInfo {
        vesw_id: 1 + u16::from(byte(0) & 1),
        fabric_id: u16::from(byte(0) >> 1 & 1),
        def_port_mask: u16::from_be_bytes([byte(1), byte(2)]),
        pkey: PKey::DEFAULT,
        u_mcast_dlid: if byte(0) & 4 == 0 {
            ALL
        } else {
            Lid::new(u32::from(byte(3)))
        },
        rc: u32::from_be_bytes([byte(4), byte(5), byte(6), byte(7)]),
        eth_mtu: 1500 >> (byte(0) >> 6),
        encap_slid: Lid::new(5 + u32::from(byte(0) >> 3 & 1)),
        config_state: match byte(0) >> 4 & 3 {
            3 => ConfigState::Init,
            _ => ConfigState::Forwarding,
        },
        ..VeswPortInfo::default()
    };
    for (lid, byte) in info.u_ucast_dlid.iter_mut().zip(detail.iter().skip(8)) {
        *lid = Lid::new(u32::from(*byte));
    }
    info
}

impl World {
    fn new() -> World {
        let replica = |reports| {
            let mut port = VeswPort::new(Settings {
                mac: OWN,
                local: address(0xff),
                mac_limit: MACS_MAX,
                reports,
                ..Settings::default()
            });
            port.configure(&info(&[]));
            port.set_up(true);
            port
        };
        World {
            replicas: [true, false].map(replica),
            now: 0,
            table: MacTable::default(),
            handles: HashSet::new(),
            next_handle: 0,
        }
    }

    fn both(&mut self, mut change: impl FnMut(&mut VeswPort)) {
        self.replicas.iter_mut().for_each(&mut change);
    }

    fn step(&mut self, what: u8, detail: &[u8]) {
        let at = usize::from(what >> 7);
        let byte = |at: usize| detail.get(at).copied().unwrap_or(0);
        match what & 0x7f {
            0 => self.tap_frame(at, detail),
            1 => self.fabric_packet(at, byte(0), detail.get(1..).unwrap_or(&[])),
            2 => self.framed(at, detail),
            3 => self.now += u64::from(byte(0)) * u64::from(byte(1)) * 10,
            4 => self.both(|port| port.configure(&info(detail))),
            5 => self.set_table(detail),
            6 => self.set_directory(detail),
            7 => self.both(|port| port.set_up(byte(0) & 1 == 0)),
            8 => self.both(|port| port.set_learning(byte(0) & 1 == 0)),
            9 => self.both(|port| port.set_siblings(detail.iter().map(|b| Lid::new((*b).into())))),
            10 => self.both(|port| port.set_ageing(u64::from(byte(0)) * 100)),
            11 => self.both(|port| port.set_mac([0x02, 0, 0, 0, 0, byte(0)])),
            12 => self.both(|port| port.set_mtu(u16::from_be_bytes([byte(0), byte(1)]))),
            13 => self.both(VeswPort::release_all),
            _ => self.sibling_frame(at, byte(0), detail.get(1..).unwrap_or(&[])),
        }
        self.settle(at);
    }

    fn tap_frame(&mut self, at: usize, frame: &[u8]) {
        let port = &mut self.replicas[at];
        let sizes = Sizes::one(frame.len());
        match port.from_tap(Time(self.now), frame) {
            Forward::Dropped => {}
            Forward::Sibling { lid, class } => {
                assert!(lid.is_unicast() && lid != port.slid());
                port.count_sent(class, sizes);
            }
            Forward::Fabric { prefix, to, class } => {
                let (gid, qpn) = port.address(to);
                assert!(qpn.get() != 0 && (gid.0[0] == 0xff) == (qpn == Qpn::MULTICAST));
                if port.ah(to).is_none() {
                    self.next_handle += 1;
                    self.handles.insert(self.next_handle);
                    port.set_ah(to, AddressHandle(self.next_handle));
                }
                let mut packet = vec![0; packet_len(frame.len())];
                let room = packet.len();
                let sent = prefix.wrap(Profile::Wire0, frame.len(), &mut packet);
                assert_eq!(sent, Ok(room));
                match frame.len() % 7 {
                    0 => port.count_unsent(Unsent::NoRoom, sizes),
                    _ => port.count_sent(class, sizes),
                }
            }
        }
    }

    fn fabric_packet(&mut self, at: usize, from: u8, packet: &[u8]) {
        let NodeAddress { gid, qpn } = address(from);
        let meta = Meta {
            src_gid: gid,
            src_qpn: qpn,
            multicast: from & 1 != 0,
        };
        let port = &mut self.replicas[at];
        if let Ok(frame) = port.from_fabric(Time(self.now), &meta, packet) {
            assert!((60..=port.frame_max()).contains(&frame.len()));
            assert!(port.is_forwarding());
        }
    }

    /// A packet with a valid header: sender, destination, and the last bytes of the source address.
    fn framed(&mut self, at: usize, detail: &[u8]) {
        let byte = |at: usize| detail.get(at).copied().unwrap_or(0);
        let mut frame = [0x02; 60];
        frame[..6].copy_from_slice(&[0xff; 6]);
        frame[11] = byte(3);
        let header = Header16B {
            slid: Lid::new(u32::from(byte(1))),
            dlid: if byte(2) == 0 {
                ALL
            } else {
                Lid::new(u32::from(byte(2)))
            },
            pkey: PKey::DEFAULT,
            vesw_id: 1 + u16::from(byte(4) & 1),
            ..Header16B::default()
        };
        let mut packet = [0; packet_len(60)];
        encode(&header, &frame, Profile::Wire0, &mut packet).expect("a packet of the shortest");
        self.fabric_packet(at, byte(0), &packet);
    }

    fn sibling_frame(&mut self, at: usize, lid: u8, frame: &[u8]) {
        let port = &mut self.replicas[at];
        let sizes = Sizes::one(frame.len());
        port.from_sibling(Time(self.now), Lid::new(lid.into()), frame, sizes);
    }

    fn set_table(&mut self, detail: &[u8]) {
        let Some((place, entries)) = detail.split_first() else {
            return;
        };
        let entries: Vec<MacEntry> = entries
            .chunks_exact(4)
            .map(|e| MacEntry {
                mac: [e[0], 0, 0, 0, 0, e[1]],
                mask: [0; 6],
                dlid_sd: u32::from_be_bytes([0xf0 * (e[3] >> 7), 0, e[2], e[3]]),
            })
            .collect();
        let offset = usize::from(*place) * 8 + 20;
        let beyond = offset + entries.len() > MAC_TABLE_ENTRIES;
        match self.table.update(offset, &entries, 1) {
            Ok(table) => self.table = table,
            Err(_) => return assert!(beyond),
        }
        assert!(!beyond);
        let table = Arc::new(self.table.clone());
        self.both(|port| port.set_table(table.clone()));
    }

    fn set_directory(&mut self, detail: &[u8]) {
        let nodes = detail.chunks_exact(2);
        let directory = Directory {
            nodes: nodes
                .map(|n| (Lid::new(n[0].into()), address(n[1])))
                .collect(),
            closed: detail.len() % 2 == 1,
        };
        self.both(|port| port.set_directory(&directory));
    }

    /// Updates the other replica, advances time, and checks the invariants.
    fn settle(&mut self, at: usize) {
        let now = Time(self.now);
        let [one, two] = &mut self.replicas;
        let (source, other) = if at == 0 { (one, two) } else { (two, one) };
        let before = other.drain_updates().count();
        assert_eq!(before, 0);
        for update in source.drain_updates() {
            other.apply(now, &update);
        }
        assert!(!other.has_updates());
        for port in &mut self.replicas {
            let mut calls = 0;
            while port.next_deadline().is_some_and(|due| due <= now) {
                port.handle_timeout(now);
                calls += 1;
                assert!(calls < 10, "the deadline does not advance");
            }
            while port.poll_event().is_some() {}
            while let Some(AddressHandle(ah)) = port.pop_released_ah() {
                assert!(self.handles.remove(&ah), "released twice");
            }
            check(port, now);
        }
    }
}

fn check(port: &VeswPort, now: Time) {
    let macs: Vec<Mac> = port.learned(now).map(|learned| learned.mac).collect();
    let different: HashSet<Mac> = macs.iter().copied().collect();
    assert_eq!(macs.len(), different.len(), "an address at two places");
    assert!(macs.len() <= MACS_MAX + 256);
    assert!(!different.contains(&port.settings().mac));
    assert!(port.joined().is_sorted());
    reconcile(port.counters());
}

fn reconcile(c: &Counters) {
    let small = c.tx_64_size + c.tx_65_127 + c.tx_128_255 + c.tx_256_511;
    assert_eq!(
        small + c.tx_512_1023 + c.tx_1024_1518 + c.tx_1519_max,
        c.tx_packets
    );
    assert_eq!(c.tx_unicast + c.tx_mcastbcast + c.tx_errors, c.tx_packets);
    assert_eq!(c.tx_vlan + c.tx_untagged, c.tx_unicast + c.tx_mcastbcast);
    let small = c.rx_64_size + c.rx_65_127 + c.rx_128_255 + c.rx_256_511;
    assert_eq!(
        small + c.rx_512_1023 + c.rx_1024_1518 + c.rx_1519_max,
        c.rx_packets
    );
    let delivered = c.rx_unicast + c.rx_mcastbcast;
    assert_eq!(delivered + c.rx_oversize + c.rx_runt, c.rx_packets);
    assert_eq!(c.rx_vlan + c.rx_untagged, delivered);
}

pub fn run(data: &[u8]) {
    let mut world = World::new();
    let mut rest = data;
    while let [what, len, behind @ ..] = rest {
        let (detail, next) = behind.split_at(usize::from(*len).min(behind.len()));
        world.step(*what, detail);
        rest = next;
    }
    world.both(VeswPort::release_all);
    world.settle(0);
    assert!(world.handles.is_empty(), "handles are lost");
}
