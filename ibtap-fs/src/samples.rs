//! Interfaces for tests.

use control::api::{
    DhcpMode, InterfaceInfo, LinkAddress, LinkInfo, LinkLayer, Mode, PortInfo, PortState,
};
use proto::{Gid, PKey, QKey, Qpn};

/// A parent in the default partition, in the daemon's network namespace.
pub fn interface(name: &str, qpn: u32) -> InterfaceInfo {
    let gid: Gid = "fe80::2:c903:e7:7e12".parse().unwrap();
    let mut address = [0; 20];
    address[1..4].copy_from_slice(&Qpn::new(qpn).to_bytes());
    address[4..].copy_from_slice(&gid.0);
    InterfaceInfo {
        name: name.to_owned(),
        ifindex: 7,
        port: "soft/eth0".to_owned(),
        underlay: Some("eth0".to_owned()),
        link_layer: LinkLayer::Ethernet,
        lid: None,
        sm_lid: None,
        sm_sl: None,
        sa_gid: None,
        state: PortState::Active,
        reason: None,
        up: true,
        carrier: true,
        mode: Mode::Datagram,
        connections: None,
        connections_max: 0,
        pkey: PKey::DEFAULT,
        parent: None,
        netns: None,
        qkey: QKey::new(0xb1b),
        qpn: Qpn::new(qpn),
        gid,
        address: LinkAddress(address),
        mac: LinkAddress([2, 0, 0, 0, 0, 1]),
        broadcast: "ff12:401b:ffff::ffff:ffff".parse().unwrap(),
        broadcast_record: None,
        mtu: 2044,
        link_mtu: 2048,
        queues: 1,
        persist: false,
        dhcp: DhcpMode::Broadcast,
        reflect: false,
        umcast: false,
        vlan_pkey: false,
        pid: 1,
        version: "0".to_owned(),
    }
}

/// A child of another partition.
pub fn child(name: &str, qpn: u32, parent: &str, pkey: u16) -> InterfaceInfo {
    InterfaceInfo {
        parent: Some(parent.to_owned()),
        pkey: PKey::new(pkey),
        ..interface(name, qpn)
    }
}

/// A port on an underlay, with some counters.
pub fn port(underlay: &str) -> PortInfo {
    PortInfo {
        port: format!("soft/{underlay}"),
        link: LinkInfo {
            state: PortState::Active,
            link_layer: LinkLayer::Ethernet,
            lid: None,
            sm_lid: None,
            sm_sl: None,
            gid: "fe80::2:c903:e7:7e12".parse().unwrap(),
            gid_index: None,
            guid: "0002:c903:00e7:7e12".to_owned(),
            link_mtu: 4096,
            firmware: None,
            netdev: Some(underlay.to_owned()),
        },
        speed: Some(10_000),
        pkeys: vec![PKey::DEFAULT, PKey::new(0)],
        counters: [
            ("rx_packets", 7),
            ("rcvd_pkts", 5),
            ("tx_packets", 9),
            ("tx_bytes", 103),
        ]
        .into_iter()
        .collect(),
    }
}
