//! VNICs for tests.

use std::os::fd::OwnedFd;

use fabric::{EndpointId, Gid, PKey, Qpn};
use netdev::tap::TapQueue;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use vnic::Lid;
use vnic::attribute::{ConfigState, ServiceClasses, VeswPortInfo};
use vnic::directory::{Directory, NodeAddress};
use vnic::port::Settings;

use super::super::lane::{LaneInit, LinkId};
use super::{EthernetInit, EthernetLane, EthernetSettings};

/// The switch of all test VNICs.
pub const VESW: u16 = 2;
/// The LID of the switch's groups.
pub const MULTICAST: Lid = Lid::new(0xf0_0000);
/// The peer's LID.
pub const PEER: Lid = Lid::new(0x01_2345);
/// The MAC of the peer's VNIC, as a manager generates it: it contains the LID.
pub const PEER_MAC: [u8; 6] = [6, 0x2c, 0, 0x45, 0x23, 0x01];
/// The largest UD payload, in bytes.
pub const PAYLOAD_MAX: usize = 4096;

/// The address of the peer.
pub fn peer() -> NodeAddress {
    place(0x99)
}

fn place(n: u8) -> NodeAddress {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[15] = n;
    NodeAddress {
        gid: Gid(gid),
        qpn: Qpn::new(0x100 + u32::from(n)),
    }
}

/// The link of the `n`th VNIC.
pub fn vnic_id(n: u8) -> LinkId {
    LinkId(300 + u32::from(n))
}

/// The endpoint of the `n`th VNIC.
pub fn vnic_endpoint(n: u8) -> EndpointId {
    EndpointId(400 + u32::from(n))
}

/// The LID of the `n`th VNIC.
pub fn vnic_lid(n: u8) -> Lid {
    Lid::new(5 + u32::from(n))
}

/// The MAC of the `n`th VNIC, as a manager generates it.
pub fn vnic_mac(n: u8) -> [u8; 6] {
    [6, 0x2c, 0, 5 + n, 0, 0]
}

/// The attributes of the `n`th VNIC. A frame's priority selects the service class of the same number.
pub fn vnic_info(n: u8, eth_mtu: u16) -> VeswPortInfo {
    VeswPortInfo {
        vesw_id: VESW,
        pkey: PKey::new(0x8001),
        u_mcast_dlid: MULTICAST,
        eth_mtu,
        base_mac_addr: vnic_mac(n),
        config_state: ConfigState::Forwarding,
        encap_slid: vnic_lid(n),
        classes: ServiceClasses {
            pcp_unicast: [0, 1, 2, 3, 4, 5, 6, 7],
            ..ServiceClasses::default()
        },
        ..VeswPortInfo::default()
    }
}

/// A forwarding VNIC with the peer in its directory, and the host's end of its TAP.
pub fn vnic_lane(n: u8, eth_mtu: u16) -> (EthernetLane, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (tap, host) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let init = EthernetInit {
        base: LaneInit {
            pkey: fabric::PKey::DEFAULT,
            id: vnic_id(n),
            endpoint: vnic_endpoint(n),
            uso: true,
        },
        mac_limit: Settings::MAC_LIMIT,
        hash_key: Settings::default().hash_key,
        reports: Settings::default().reports,
    };
    let settings = vnic_settings(n, eth_mtu);
    let mut lane = EthernetLane::new(&init, settings, TapQueue::over(tap), true);
    lane.core.set_directory(&Directory {
        nodes: [(PEER, peer())].into(),
        closed: false,
    });
    (lane, host)
}

/// The settings of [`vnic_lane`].
pub fn vnic_settings(n: u8, eth_mtu: u16) -> EthernetSettings {
    EthernetSettings {
        local: place(n),
        info: vnic_info(n, eth_mtu),
        mac: vnic_mac(n),
        mtu: u16::MAX,
        up: true,
        payload_max: PAYLOAD_MAX,
        coalesce: true,
        learning: Settings::default().learning,
        ageing_ms: Settings::default().ageing_ms,
    }
}
