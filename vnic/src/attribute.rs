//! What the attributes of VNIC management say. Their layouts on the wire are those of
//! kernel drivers/infiniband/ulp/opa_vnic/opa_vnic_encap.h, big-endian.

use std::ops::RangeInclusive;

pub use proto::ConfigState;
use proto::{Gid, Guid, Mac, PKey, Qpn};

use crate::Lid;
use crate::directory::NodeAddress;

/// Service classes by priority, and where there is no tag; each has 5 bits. Virtual lanes are local to a
/// host interface and on no wire.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServiceClasses {
    /// SC of tagged unicast by priority code point.
    pub pcp_unicast: [u8; 8],
    /// VL of the same.
    pub pcp_unicast_vl: [u8; 8],
    /// SC of tagged multicast and broadcast.
    pub pcp_multicast: [u8; 8],
    /// VL of the same.
    pub pcp_multicast_vl: [u8; 8],
    /// SC of untagged unicast.
    pub unicast: u8,
    /// VL of the same.
    pub unicast_vl: u8,
    /// SC of untagged multicast and broadcast.
    pub multicast: u8,
    /// VL of the same.
    pub multicast_vl: u8,
}

/// VeswPortInfo (0x0011): a switch, and one virtual port on it. 280 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VeswPortInfo {
    /// 10 bits.
    pub fabric_id: u16,
    /// 12 bits; 0: none.
    pub vesw_id: u16,
    /// Which of [`VeswPortInfo::u_ucast_dlid`] are default ports, one bit each.
    pub def_port_mask: u16,
    /// The partition.
    pub pkey: PKey,
    /// Where multicast and broadcast go.
    pub u_mcast_dlid: Lid,
    /// Where unicast to unknown globally administered addresses goes.
    pub u_ucast_dlid: [Lid; 16],
    /// Routing control: a nibble for each class of traffic, of which 3 bits count.
    pub rc: u32,
    /// The largest payload of an Ethernet frame, in bytes.
    pub eth_mtu: u16,
    /// The port's number in the switch, as the manager chose it.
    pub port_num: u32,
    /// 0: unknown, 1: up, 2: down. Read-only.
    pub eth_link_status: u8,
    /// The interface's address, as the manager chose it.
    pub base_mac_addr: Mac,
    /// What it is to do.
    pub config_state: ConfigState,
    /// What it does. Read-only.
    pub oper_state: ConfigState,
    /// Places of the MAC table. Read-only.
    pub max_mac_tbl_ent: u16,
    /// Those of source addresses. Read-only.
    pub max_smac_ent: u16,
    /// What the manager called its last table; 0: there is none. Read-only here.
    pub mac_tbl_digest: u32,
    /// The source LID of its packets.
    pub encap_slid: Lid,
    /// Service classes.
    pub classes: ServiceClasses,
    /// Counts changes of the list of unicast addresses. Read-only.
    pub uc_macs_gen_count: u16,
    /// Counts changes of the list of multicast addresses. Read-only.
    pub mc_macs_gen_count: u16,
    /// All reserved bytes in their order, which are kept and given back: 6, 2, 4, 56, 2 of the switch and
    /// 3, 4, 48, 8 of the port.
    pub reserved: Reserved,
}

/// The reserved bytes of a [`VeswPortInfo`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserved(pub [u8; 133]);

impl Default for Reserved {
    fn default() -> Reserved {
        Reserved([0; 133])
    }
}

impl Default for VeswPortInfo {
    /// What is answered for a virtual port that does not exist (kernel opa_vnic_vema.c,
    /// `vema_get_pod_values`).
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
            max_mac_tbl_ent: crate::mac_table::MAC_TABLE_ENTRIES as u16,
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

/// LidDirectory (0x0030, ours): pages of where the members of a virtual port's switch are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LidDirectory {
    /// Where this page begins in the whole list.
    pub start: u16,
    /// Entries of the whole list.
    pub total: u16,
    /// What the manager calls the whole list; a page of another one begins anew.
    pub digest: u32,
    /// The entries of this page.
    pub entries: Vec<(Lid, NodeAddress)>,
}

/// NodeInfo (0x0031, ours): an agent, as it answers Get and announces itself in the management group. It
/// has as many of its virtual ports as fit, in the order of their indexes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// The port's GUID.
    pub guid: Guid,
    /// Drawn when the agent starts: another number means that it has forgotten everything.
    pub incarnation: u64,
    /// The number of its port on the node, from 1.
    pub port: u8,
    /// The largest UD payload in bytes: what a 16B packet may have.
    pub payload_max: u16,
    /// Its name for people, UTF-8, up to 64 bytes on the wire: the host's name.
    pub description: String,
    /// The lowest index that this tells of.
    pub first: u8,
    /// The index of the next virtual port, which this does not tell of; 0: there is none.
    pub next: u8,
    /// The virtual ports that it wants to have, of these indexes.
    pub ports: Vec<WantedPort>,
}

impl NodeInfo {
    /// The indexes that it tells of: a virtual port of one of these that is not among its own is none.
    #[must_use]
    pub const fn told(&self) -> RangeInclusive<u8> {
        // 0 is below no index: without a next one it is up to the last.
        self.first..=self.next.wrapping_sub(1)
    }
}

/// A virtual port that a node's administrator has named, or that a manager has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedPort {
    /// Its index, the lower 8 bits of an attribute modifier.
    pub index: u8,
    /// Its interface's name, up to 15 bytes.
    pub name: String,
    /// Its UD queue pair; 0 while it has none.
    pub qpn: Qpn,
}

/// ManagerInfo (0x0032, ours): a manager, as it announces itself in the management group each third of a
/// lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerInfo {
    /// Drawn once and kept on disk: which manager it is.
    pub id: u64,
    /// 0 to 15; the highest is active, of equals the one with the lowest id.
    pub priority: u8,
    /// It is the one that manages.
    pub active: bool,
    /// How long an agent holds to it after its last word, in milliseconds.
    pub lease_ms: u32,
    /// Where it is.
    pub gid: Gid,
}
