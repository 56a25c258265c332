//! What devices and ports are like: the library's answers, checked.

use crate::verbs::sys::*;
pub use proto::LinkLayer;
use proto::{Gid, Guid, IbMtu, Lid};

/// What a device can do (ibv_query_device(3)). A limit that makes no sense is 0.
#[derive(Clone, Debug)]
pub struct DeviceAttributes {
    /// The node GUID.
    pub node_guid: Guid,
    /// Ports, counted from 1.
    pub ports: u8,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests outstanding on one queue.
    pub max_qp_wr: u32,
    /// Pieces of memory in a work request.
    pub max_sge: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Bytes of a memory region.
    pub max_mr_size: u64,
    /// Multicast groups; 0 where there is no multicast.
    pub max_mcast_grp: u32,
    /// Queue pairs attached to one group.
    pub max_mcast_qp_attach: u32,
    /// Address handles; 0 where the driver does not say.
    pub max_ah: u32,
    /// Shared receive queues; 0 where there are none.
    pub max_srq: u32,
    /// Work requests in one of them.
    pub max_srq_wr: u32,
    /// The largest number of RDMA reads and atomics outstanding as a target of them.
    pub max_qp_rd_atom: u8,
    /// Checksums of IPv4, TCP and UDP in UD messages are made and checked (`IBV_DEVICE_UD_IP_CSUM`).
    pub ud_ip_csum: bool,
    /// Checksums likewise on RC (`IBV_DEVICE_RC_IP_CSUM`).
    pub rc_ip_csum: bool,
    /// Completions, and microseconds, that a completion queue may gather; 0: it cannot.
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
            max_mr_size: a.max_mr_size,
            max_mcast_grp: limit(a.max_mcast_grp),
            max_mcast_qp_attach: limit(a.max_mcast_qp_attach),
            max_ah: limit(a.max_ah),
            max_srq: limit(a.max_srq),
            max_srq_wr: limit(a.max_srq_wr),
            max_qp_rd_atom: limit(a.max_qp_rd_atom).min(u8::MAX.into()) as u8,
            ud_ip_csum: has(IBV_DEVICE_UD_IP_CSUM),
            rc_ip_csum: has(IBV_DEVICE_RC_IP_CSUM),
            moderation: (raw.cq_mod_caps.max_cq_count, raw.cq_mod_caps.max_cq_period),
        }
    }
}

impl DeviceAttributes {
    /// Whether `IBV_WC_IP_CSUM_OK` means the IP packet in an IPoIB datagram: on InfiniBand, if the device
    /// has the capability. On Ethernet there are two IP headers, and the flag may mean the outer one,
    /// that of RoCE.
    pub const fn checks_datagrams(&self, ethernet: bool) -> bool {
        self.ud_ip_csum && !ethernet
    }
}

/// What a port is like now (ibv_query_port(3)).
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The logical state: `IBV_PORT_ACTIVE` or a lower one.
    pub active: bool,
    /// The state's name, as `rdma link` has it: `DOWN`, `INIT`, `ARMED`, `ACTIVE`, ….
    pub state: &'static str,
    /// The MTU in use.
    pub active_mtu: IbMtu,
    /// Places in the GID table.
    pub gids: u32,
    /// Places in the P_Key table.
    pub pkeys: u16,
    /// The LID; `None` while a subnet manager has given none, and on Ethernet.
    pub lid: Option<Lid>,
    /// The largest message in bytes.
    pub max_message: u32,
    /// What lies under it.
    pub link_layer: LinkLayer,
}

/// A GID table is an array of 8-bit indexes on the wire's side of things (`ibv_global_route`).
const GIDS_MAX: u32 = 256;

impl PortInfo {
    /// `None` where the MTU has a code that does not exist: nothing can be sent over such a port.
    pub(super) fn from_raw(raw: &ibv_port_attr) -> Option<PortInfo> {
        let mtu = |code| IbMtu::ALL.into_iter().find(|m| *m as u32 == code);
        // Drivers from before RoCE leave it unspecified, and mean InfiniBand (ibv_query_port(3)).
        let link_layer = match u32::from(raw.link_layer) {
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::InfiniBand,
        };
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
            lid: (link_layer == LinkLayer::InfiniBand && raw.lid != 0).then_some(Lid(raw.lid)),
            max_message: raw.max_msg_sz,
            link_layer,
        })
    }
}

/// What packets with a GID are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: an Ethernet type of its own.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
}

/// A used place of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// The place.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// What packets with it are like.
    pub kind: GidKind,
    /// The interface that it belongs to; `None` on InfiniBand, or where nobody says.
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
            max_mr_size: 0,
            max_mcast_grp: 0,
            max_mcast_qp_attach: 0,
            max_ah: 0,
            max_srq: 0,
            max_srq_wr: 0,
            max_qp_rd_atom: 0,
            ud_ip_csum,
            rc_ip_csum: false,
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
