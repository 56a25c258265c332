//! Attributes of VNIC management. Their layouts on the wire are those of kernel
//! drivers/infiniband/ulp/opa_vnic/opa_vnic_encap.h, big-endian.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::ops::RangeInclusive;

pub use proto::ConfigState;
use proto::{Gid, Guid, Mac, PKey, Qpn};

use crate::Lid;
use crate::directory::NodeAddress;

/// Service classes (SC, 5 bits) by priority and for untagged frames. Virtual lanes (VL) are local to a host
/// interface and not on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServiceClasses {
    /// SC of tagged unicast by priority code point.
    pub pcp_unicast: [u8; 8],
    /// Virtual lane of this class.
    pub pcp_unicast_vl: [u8; 8],
    /// SC of tagged multicast and broadcast.
    pub pcp_multicast: [u8; 8],
    /// Virtual lane of this class.
    pub pcp_multicast_vl: [u8; 8],
    /// SC of untagged unicast.
    pub unicast: u8,
    /// Virtual lane of this class.
    pub unicast_vl: u8,
    /// SC of untagged multicast and broadcast.
    pub multicast: u8,
    /// Virtual lane of this class.
    pub multicast_vl: u8,
}

/// VeswPortInfo (0x0011): a switch and one virtual port on it. 280 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VeswPortInfo {
    /// Fabric id, 10 bits.
    pub fabric_id: u16,
    /// Number of the switch, 12 bits; 0: none.
    pub vesw_id: u16,
    /// Bit mask of the [`VeswPortInfo::u_ucast_dlid`] that are default ports.
    pub def_port_mask: u16,
    /// P_Key of the switch.
    pub pkey: PKey,
    /// Destination of multicast and broadcast.
    pub u_mcast_dlid: Lid,
    /// Destinations of unicast to unknown globally administered addresses.
    pub u_ucast_dlid: [Lid; 16],
    /// Routing control: 4 bits for each class of traffic, of which the lower 3 are used.
    pub rc: u32,
    /// MTU: largest payload of an Ethernet frame, in bytes.
    pub eth_mtu: u16,
    /// Number of the port on the switch, assigned by the manager.
    pub port_num: u32,
    /// 0: unknown, 1: up, 2: down. Read-only.
    pub eth_link_status: u8,
    /// Interface address, assigned by the manager.
    pub base_mac_addr: Mac,
    /// Requested state.
    pub config_state: ConfigState,
    /// Actual state. Read-only.
    pub oper_state: ConfigState,
    /// Capacity of the MAC table. Read-only.
    pub max_mac_tbl_ent: u16,
    /// Capacity for source addresses. Read-only.
    pub max_smac_ent: u16,
    /// Digest of the MAC table, set with the last page; 0: no table. Read-only here.
    pub mac_tbl_digest: u32,
    /// Source LID of the port's packets.
    pub encap_slid: Lid,
    /// Service classes.
    pub classes: ServiceClasses,
    /// Number of changes of the unicast address list. Read-only.
    pub uc_macs_gen_count: u16,
    /// Number of changes of the multicast address list. Read-only.
    pub mc_macs_gen_count: u16,
    /// All reserved bytes in order, stored and returned unchanged: 6, 2, 4, 56, 2 of the switch and 3, 4,
    /// 48, 8 of the port.
    pub reserved: Reserved,
}

/// Reserved bytes of a [`VeswPortInfo`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserved(pub [u8; 133]);

impl Default for Reserved {
    fn default() -> Reserved {
        Reserved([0; 133])
    }
}

impl Default for VeswPortInfo {
    /// The answer for a virtual port that does not exist (kernel opa_vnic_vema.c, `vema_get_pod_values`).
    fn default() -> VeswPortInfo {
        VeswPortInfo {
            fabric_id: 0,
            vesw_id: 0,
            def_port_mask: 0,
            pkey: PKey::new(0),
            u_mcast_dlid: Lid::NONE,
            u_ucast_dlid: [Lid::NONE; 16],
            rc: 0,
            eth_mtu: 1500,
            port_num: 0,
            eth_link_status: 0,
            base_mac_addr: [0; 6],
            config_state: ConfigState::DropAll,
            oper_state: ConfigState::DropAll,
            max_mac_tbl_ent: u16::try_from(crate::mac_table::MAC_TABLE_ENTRIES).unwrap_or(u16::MAX),
            max_smac_ent: 256,
            mac_tbl_digest: 0,
            encap_slid: Lid::NONE,
            classes: ServiceClasses::default(),
            uc_macs_gen_count: 0,
            mc_macs_gen_count: 0,
            reserved: Reserved::default(),
        }
    }
}

/// LidDirectory (0x0030, defined by ibtap): a page of the members of a switch with their addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LidDirectory {
    /// Index of this page's first entry in the list.
    pub start: u16,
    /// Number of entries in the list.
    pub total: u16,
    /// Digest of the list, chosen by the manager; a page with another digest starts a new list.
    pub digest: u32,
    /// Entries of this page.
    pub entries: Vec<(Lid, NodeAddress)>,
}

/// NodeInfo (0x0031, defined by ibtap): description of an agent, in answers to Get and announcements to the
/// group. Contains as many virtual ports as fit, ordered by index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// GUID of the fabric port.
    pub guid: Guid,
    /// Random number, drawn at each start; a new number means that the agent lost all settings.
    pub incarnation: u64,
    /// Number of the fabric port on its node, from 1.
    pub port: u8,
    /// Largest UD payload, in bytes: the largest 16B packet.
    pub payload_max: u16,
    /// Description for display, the host name: UTF-8, up to 64 bytes on the wire.
    pub description: String,
    /// Lowest index that this page covers.
    pub first: u8,
    /// Index of the next virtual port after this page; 0: none.
    pub next: u8,
    /// Virtual ports of this page.
    pub ports: Vec<WantedPort>,
}

impl NodeInfo {
    /// The indexes that this page covers. A virtual port in this range that is not listed does not exist.
    #[must_use]
    pub const fn range(&self) -> RangeInclusive<u8> {
        // With `next` 0, the range ends at 255.
        self.first..=self.next.wrapping_sub(1)
    }
}

/// A virtual port that the node configures or a manager created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedPort {
    /// Index: the lower 8 bits of the attribute modifier.
    pub index: u8,
    /// Interface name, up to 15 bytes.
    pub name: String,
    /// UD queue pair number; 0: none.
    pub qpn: Qpn,
}

/// ManagerInfo (0x0032, defined by ibtap): description of a manager. A manager announces it to the group
/// three times in each lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerInfo {
    /// Identity of the manager: drawn once and kept on disk.
    pub id: u64,
    /// Priority, 0 to 15. The manager with the highest priority is active; of equals, the one with the
    /// lowest `id`.
    pub priority: u8,
    /// The manager is active, not standby.
    pub active: bool,
    /// Lease in milliseconds: how long the manager owns an agent after its last message.
    pub lease_ms: u32,
    /// GID of the manager.
    pub gid: Gid,
}
