//! VNICs for tests.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use fabric::{EndpointId, Gid, PKey, Qpn};
use netdev::tap::TapQueue;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use vnic::Lid;
use vnic::attribute::{ConfigState, ServiceClasses, VeswPortInfo};
use vnic::carriage::data_qkey;
use vnic::directory::{Directory, NodeAddress};
use vnic::port::{Settings, VeswPort};

use super::super::lane::{LaneBase, LaneInit, LinkId};
use super::EthernetLane;

/// The switch of all VNICs here.
pub const VESW: u16 = 2;
/// Where the switch's groups go.
pub const MULTICAST: Lid = Lid::new(0xf0_0000);
/// The peer's LID.
pub const PEER: Lid = Lid::new(0x01_2345);
/// The largest UD payload, in bytes.
pub const PAYLOAD_MAX: usize = 4096;

/// Where the peer is.
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

/// The name of the `n`th VNIC.
pub fn vnic_id(n: u8) -> LinkId {
    LinkId(300 + u32::from(n))
}

/// Its endpoint.
pub fn vnic_endpoint(n: u8) -> EndpointId {
    EndpointId(400 + u32::from(n))
}

/// Its LID.
pub fn vnic_lid(n: u8) -> Lid {
    Lid::new(5 + u32::from(n))
}

/// Its address, as a manager generates it.
pub fn vnic_mac(n: u8) -> [u8; 6] {
    [6, 0x2c, 0, 5 + n, 0, 0]
}

/// What is configured of it: frames of a priority have the service class of the same number.
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

/// A VNIC that forwards, with the peer in its directory, and the host's end of its TAP.
pub fn vnic_lane(n: u8, eth_mtu: u16) -> (EthernetLane, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (tap, host) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let mut core = VeswPort::new(Settings {
        mac: vnic_mac(n),
        local: place(n),
        ..Settings::default()
    });
    core.configure(&vnic_info(n, eth_mtu));
    core.set_directory(&Directory {
        nodes: [(PEER, peer())].into(),
        closed: false,
    });
    core.set_up(true);
    let init = LaneInit {
        id: vnic_id(n),
        endpoint: vnic_endpoint(n),
        qkey: data_qkey(VESW),
        uso: true,
    };
    let mut base = LaneBase::new(&init, TapQueue::over(tap), true);
    base.set_coalesce(true);
    let lane = EthernetLane {
        base,
        core,
        payload_max: PAYLOAD_MAX,
        siblings: Arc::new([]),
    };
    (lane, host)
}
