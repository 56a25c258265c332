//! What devices and ports are like: the library's answers, checked.

pub use crate::port::LinkLayer;
use crate::types::{Gid, Guid, IbMtu, Lid};
use crate::verbs::sys::*;

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
