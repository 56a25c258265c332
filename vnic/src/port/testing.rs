//! Common code of the tests.

use proto::{Gid, Mac, PKey, Qpn, Time};

use super::{Forward, Meta, Settings, Sizes, VeswPort};
use crate::Lid;
use crate::attribute::{ConfigState, VeswPortInfo};
use crate::directory::NodeAddress;
use crate::mac_table::{MacEntry, MacTable};
use crate::packet::{self, HEADER_LEN, Header16B, Profile, Strictness, packet_len};

/// Multicast LID of the switch of [`info`].
pub const ALL: Lid = Lid::new(0xf0_0002);
/// The broadcast address.
pub const BROADCAST: Mac = [0xff; 6];

/// Test vectors of the format.
pub fn vectors() -> serde_json::Value {
    let text = include_str!("../../../tests/data/opa_vnic_vectors.json");
    serde_json::from_str(text).expect("the vectors are JSON")
}

/// Settings of port `lid` of a switch.
pub fn info(lid: u32) -> VeswPortInfo {
    VeswPortInfo {
        fabric_id: 3,
        vesw_id: 2,
        pkey: PKey::new(0x8001),
        u_mcast_dlid: ALL,
        encap_slid: Lid::new(lid),
        config_state: ConfigState::Forwarding,
        ..VeswPortInfo::default()
    }
}

/// Address of the member with a LID.
pub fn address(lid: u32) -> NodeAddress {
    let mut gid = [0; 16];
    gid[0] = 0xfe;
    gid[12..].copy_from_slice(&lid.to_be_bytes());
    NodeAddress {
        gid: Gid(gid),
        qpn: Qpn::new(0x100 + lid),
    }
}

/// Source of a datagram from the member with a LID.
pub fn from(lid: u32, multicast: bool) -> Meta {
    from_address(address(lid), multicast)
}

/// Source of a datagram from an address.
pub fn from_address(NodeAddress { gid, qpn }: NodeAddress, multicast: bool) -> Meta {
    Meta {
        src_gid: gid,
        src_qpn: qpn,
        multicast,
    }
}

/// Interface address of port `lid`: globally administered, so it contains no LID.
pub fn mac(lid: u32) -> Mac {
    let [a, b, c, d] = lid.to_be_bytes();
    [0, 0x10, a, b, c, d]
}

pub fn settings(lid: u32) -> Settings {
    Settings {
        mac: mac(lid),
        local: address(lid),
        hash_key: 7,
        ..Settings::default()
    }
}

/// A port that forwards.
pub fn port_with(settings: Settings, info: &VeswPortInfo) -> VeswPort {
    let mut port = VeswPort::new(settings);
    port.configure(info);
    port.set_up(true);
    port
}

pub fn port(lid: u32) -> VeswPort {
    port_with(settings(lid), &info(lid))
}

/// A port with only the driver's rules.
pub fn port_without_learning(lid: u32, info: &VeswPortInfo) -> VeswPort {
    let settings = Settings {
        learning: false,
        ..settings(lid)
    };
    port_with(settings, info)
}

pub fn table(entries: &[(Mac, u32)]) -> MacTable {
    let entries: Vec<MacEntry> = entries
        .iter()
        .map(|(mac, dlid_sd)| MacEntry {
            mac: *mac,
            mask: [0; 6],
            dlid_sd: *dlid_sd,
        })
        .collect();
    let table = MacTable::default().update(0, &entries, 1);
    table.expect("few entries")
}

/// A frame of `len` bytes without IP.
pub fn frame_of(len: usize, destination: Mac, source: Mac) -> Vec<u8> {
    let mut frame = [&destination[..], &source, &[0x88, 0xb5]].concat();
    frame.resize(len, 0x5a);
    frame
}

pub fn frame(destination: Mac, source: Mac) -> Vec<u8> {
    frame_of(60, destination, source)
}

/// Result of sending a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// A packet for this destination.
    Packet(Header16B, (Gid, Qpn), Vec<u8>),
    /// Delivered to a sibling.
    Sibling(Lid),
    Dropped,
}

impl Sent {
    /// Destination LID.
    pub fn dlid(&self) -> Option<Lid> {
        match self {
            Sent::Packet(header, ..) => Some(header.dlid),
            Sent::Sibling(lid) => Some(*lid),
            Sent::Dropped => None,
        }
    }

    /// Whether the frame went to the group of all members.
    pub fn by_group(&self) -> bool {
        matches!(self, Sent::Packet(_, (_, qpn), _) if *qpn == Qpn::MULTICAST)
    }
}

/// Sends a frame as the data path does.
pub fn send_at(port: &mut VeswPort, now: u64, frame: &[u8]) -> Sent {
    match port.from_tap(Time(now), frame) {
        Forward::Dropped => Sent::Dropped,
        Forward::Sibling { lid, class } => {
            port.count_sent(class, Sizes::one(frame.len()));
            Sent::Sibling(lid)
        }
        Forward::Fabric { prefix, to, class } => {
            let mut packet = vec![0; packet_len(frame.len())];
            packet[HEADER_LEN..HEADER_LEN + frame.len()].copy_from_slice(frame);
            let len = prefix.wrap(Profile::Wire0, frame.len(), &mut packet);
            assert_eq!(len, Ok(packet.len()));
            port.count_sent(class, Sizes::one(frame.len()));
            let decoded = packet::decode(&packet, Profile::Wire0, Strictness::Strict);
            let header = decoded.expect("what is sent can be read").header;
            Sent::Packet(header, port.address(to), packet)
        }
    }
}

pub fn send(port: &mut VeswPort, frame: &[u8]) -> Sent {
    send_at(port, 0, frame)
}

/// Header of packets from `slid` to `dlid` on the switch of [`info`].
pub fn header(slid: u32, dlid: Lid) -> Header16B {
    Header16B {
        slid: Lid::new(slid),
        dlid,
        pkey: PKey::new(0x8001),
        vesw_id: 2,
        ..Header16B::default()
    }
}

/// A packet with a frame, which is not padded to the minimum.
pub fn packet(header: &Header16B, frame: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; packet_len(frame.len())];
    let len = packet::encode(header, frame, Profile::Wire0, &mut packet);
    assert_eq!(len, Ok(packet.len()));
    packet
}

/// A packet from port `slid` with a broadcast frame of its interface.
pub fn packet_to(dlid: Lid, slid: u32) -> Vec<u8> {
    packet(&header(slid, dlid), &frame(BROADCAST, mac(slid)))
}
