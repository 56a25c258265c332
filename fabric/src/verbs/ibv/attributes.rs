//! Attributes of devices and ports: the library's answers, checked.

use crate::verbs::sys::*;
pub use proto::LinkLayer;
use proto::{Gid, Guid, IbMtu, Lid};

/// Attributes of a device (ibv_query_device(3)). An invalid limit is 0.
#[derive(Clone, Debug)]
pub struct DeviceAttributes {
    /// The node GUID.
    pub node_guid: Guid,
    /// Number of ports; they are numbered from 1.
    pub ports: u8,
    /// Maximum number of queue pairs.
    pub max_qp: u32,
    /// Maximum number of outstanding work requests of one queue.
    pub max_qp_wr: u32,
    /// Maximum number of pieces of memory in a work request.
    pub max_sge: u32,
    /// Maximum number of entries of a completion queue.
    pub max_cqe: u32,
    /// Maximum number of multicast groups; 0 without multicast.
    pub max_mcast_grp: u32,
    /// Maximum number of shared receive queues; 0 without them.
    pub max_srq: u32,
    /// Maximum number of work requests in a shared receive queue.
    pub max_srq_wr: u32,
    /// The device computes and verifies checksums of IPv4, TCP and UDP in UD messages
    /// (`IBV_DEVICE_UD_IP_CSUM`).
    pub ud_ip_csum: bool,
    /// Maximum moderation of a completion queue, in completions and microseconds; 0: not supported.
    pub moderation: (u16, u16),
}

impl DeviceAttributes {
    pub(super) fn from_raw(raw: &ibv_device_attr_ex) -> DeviceAttributes {
        let a = &raw.orig_attr;
        let limit = |n: i32| n.max(0).cast_unsigned();
        let has = |flag: ibv_device_cap_flags| a.device_cap_flags & flag != 0;
        DeviceAttributes {
            node_guid: Guid(a.node_guid.to_ne_bytes()),
            ports: a.phys_port_cnt,
            max_qp: limit(a.max_qp),
            max_qp_wr: limit(a.max_qp_wr),
            max_sge: limit(a.max_sge),
            max_cqe: limit(a.max_cqe),
            max_mcast_grp: limit(a.max_mcast_grp),
            max_srq: limit(a.max_srq),
            max_srq_wr: limit(a.max_srq_wr),
            ud_ip_csum: has(IBV_DEVICE_UD_IP_CSUM),
            moderation: (raw.cq_mod_caps.max_cq_count, raw.cq_mod_caps.max_cq_period),
        }
    }
}

impl DeviceAttributes {
    /// Whether `IBV_WC_IP_CSUM_OK` refers to the IP packet in an IPoIB datagram: on InfiniBand, if the
    /// device has the capability. On Ethernet there are two IP headers, and the flag may refer to
    /// RoCE's outer one.
    pub const fn checks_datagrams(&self, ethernet: bool) -> bool {
        self.ud_ip_csum && !ethernet
    }
}

/// Current attributes of a port (ibv_query_port(3)).
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Whether the logical state is `IBV_PORT_ACTIVE`.
    pub active: bool,
    /// The state's name in `rdma link`: `DOWN`, `INIT`, `ARMED`, `ACTIVE`, ….
    pub state: &'static str,
    /// The active MTU.
    pub active_mtu: IbMtu,
    /// Number of entries of the GID table.
    pub gids: u32,
    /// Number of entries of the P_Key table.
    pub pkeys: u16,
    /// The LID; `None` on Ethernet, and until a subnet manager assigns one.
    pub lid: Option<Lid>,
    /// Number of low bits of the LID that select a path (LMC), 0 to 7.
    pub lmc: u8,
    /// The LID of the subnet manager's port; `None` without a subnet manager.
    pub sm_lid: Option<Lid>,
    /// The service level of packets to the subnet manager.
    pub sm_sl: u8,
    /// Link layer.
    pub link_layer: LinkLayer,
}

/// Maximum number of GIDs: `ibv_global_route` has an 8-bit index.
const GIDS_MAX: u32 = 256;

impl PortInfo {
    /// `None` for an invalid MTU code: nothing can be sent over such a port.
    pub(super) fn from_raw(raw: &ibv_port_attr) -> Option<PortInfo> {
        let mtu = |code| IbMtu::ALL.into_iter().find(|m| *m as u32 == code);
        // Old drivers leave it unspecified, which means InfiniBand (ibv_query_port(3)).
        let link_layer = match u32::from(raw.link_layer) {
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::InfiniBand,
        };
        let lid = |lid| (link_layer == LinkLayer::InfiniBand && lid != 0).then_some(Lid(lid));
        Some(PortInfo {
            active: raw.state == IBV_PORT_ACTIVE,
            state: match raw.state {
                IBV_PORT_NOP => "NOP",
                IBV_PORT_DOWN => "DOWN",
                IBV_PORT_INIT => "INIT",
                IBV_PORT_ARMED => "ARMED",
                IBV_PORT_ACTIVE => "ACTIVE",
                IBV_PORT_ACTIVE_DEFER => "ACTIVE_DEFER",
                _ => "unknown",
            },
            active_mtu: mtu(raw.active_mtu)?,
            gids: raw.gid_tbl_len.max(0).cast_unsigned().min(GIDS_MAX),
            pkeys: raw.pkey_tbl_len,
            lid: lid(raw.lid),
            lmc: raw.lmc & 7,
            sm_lid: lid(raw.sm_lid),
            sm_sl: raw.sm_sl & 15,
            link_layer,
        })
    }
}

/// The packet format that a GID selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: its own Ethernet type.
    RoceV1,
    /// RoCE v2: over UDP.
    RoceV2,
}

/// A used entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Index in the table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// Packet format.
    pub kind: GidKind,
    /// Index of the network interface; `None` on InfiniBand or if unknown.
    pub netdev: Option<u32>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PORT: ibv_port_attr = ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_1024,
        gid_tbl_len: 1024,
        port_cap_flags: 0,
        max_msg_sz: 1 << 30,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 64,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: 1,
        active_speed: 1,
        phys_state: 5,
        link_layer: IBV_LINK_LAYER_ETHERNET as u8,
        flags: 0,
        port_cap_flags2: 0,
    };

    #[test]
    fn checksums_count_where_the_device_looks_at_those_of_the_packet() {
        let with = |ud_ip_csum| DeviceAttributes {
            node_guid: Guid([0; 8]),
            ports: 1,
            max_qp: 0,
            max_qp_wr: 0,
            max_sge: 0,
            max_cqe: 0,
            max_mcast_grp: 0,
            max_srq: 0,
            max_srq_wr: 0,
            ud_ip_csum,
            moderation: (0, 0),
        };
        assert!(with(true).checks_datagrams(false));
        assert!(!with(true).checks_datagrams(true));
        assert!(!with(false).checks_datagrams(false));
    }

    #[test]
    fn a_port_of_rxe_is_on_ethernet_and_has_as_many_gids_as_can_be_named() {
        let port = PortInfo::from_raw(&PORT).unwrap();
        assert!(port.active && port.state == "ACTIVE");
        assert_eq!(port.link_layer, LinkLayer::Ethernet);
        assert_eq!((port.active_mtu, port.gids), (IbMtu::B1024, 256));
        assert_eq!(port.lid, None);
    }

    #[test]
    fn a_port_that_does_not_say_is_on_infiniband() {
        let raw = ibv_port_attr {
            link_layer: 0,
            lid: 7,
            ..PORT
        };
        let port = PortInfo::from_raw(&raw).unwrap();
        assert_eq!(port.link_layer, LinkLayer::InfiniBand);
        assert_eq!(port.lid, Some(Lid(7)));
    }

    proptest! {
        #[test]
        fn a_port_has_an_mtu_or_is_none(
            active_mtu: u32, state: u32, gid_tbl_len: i32, link_layer: u8,
        ) {
            let raw = ibv_port_attr { active_mtu, state, gid_tbl_len, link_layer, ..PORT };
            let port = PortInfo::from_raw(&raw);
            prop_assert_eq!(port.is_some(), (1..=5).contains(&active_mtu));
            if let Some(port) = port {
                prop_assert_eq!(port.active_mtu.bytes(), 128 << active_mtu);
                prop_assert!(port.gids <= 256);
                prop_assert_eq!(port.active, state == IBV_PORT_ACTIVE);
            }
        }
    }
}
