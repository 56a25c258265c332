//! VNICs, and the methods of an Ethernet Manager.

use proto::{ConfigState, Gid, LinkLayer, OpaLid, PKey, PortState, QKey, Qpn};
use serde::{Deserialize, Serialize};

use super::reply::WorkerStats;
use super::scalar::{Counters, Hex, MacAddress};

/// The kind of interface of an object; objects of IPoIB interfaces have no kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceKind {
    /// A virtual port of a virtual Ethernet switch.
    #[default]
    Vnic,
}

/// A queue pair on the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricAddress {
    /// GID of the port.
    pub gid: Gid,
    /// Queue pair number.
    pub qpn: Qpn,
}

/// A VNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicInfo {
    /// Current name.
    pub name: String,
    /// Kind of the interface.
    pub kind: InterfaceKind,
    /// Index in its network namespace.
    pub ifindex: u32,
    /// Fabric port, such as `soft/eth0`.
    pub port: String,
    /// Ethernet interface below the port, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
    /// Link layer of the port.
    pub link_layer: LinkLayer,
    /// State of the port.
    pub state: PortState,
    /// Reason if the carrier is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether an administrator has set the interface up.
    pub up: bool,
    /// Whether the TAP's carrier is on.
    pub carrier: bool,
    /// Whether an Ethernet Manager configures the VNIC.
    pub managed: bool,
    /// The current manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<FabricAddress>,
    /// Number on its fabric port.
    pub index: u8,
    /// Virtual Ethernet switch; 0: not assigned yet.
    pub vesw: u16,
    /// Number of the fabric.
    pub fabric_id: u16,
    /// LID; 0: not assigned yet.
    pub lid: OpaLid,
    /// Configured state.
    pub config_state: ConfigState,
    /// Current state.
    pub oper_state: ConfigState,
    /// P_Key: the table's entry, or the configured P_Key while the table lacks the partition.
    pub pkey: PKey,
    /// Q_Key of the switch.
    pub qkey: QKey,
    /// Queue pair; 0: none yet.
    pub qpn: Qpn,
    /// GID of the port.
    pub gid: Gid,
    /// MAC of the TAP.
    pub mac: MacAddress,
    /// MAC that the manager or the configuration assigned.
    pub base_mac: MacAddress,
    /// Multicast LID of the switch.
    pub multicast_lid: OpaLid,
    /// Group for the multicast LID, while the VNIC is attached to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Gid>,
    /// Destinations of frames to unknown global addresses.
    pub default_lids: Vec<OpaLid>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Largest MTU in bytes, of the switch or of the port.
    pub mtu_max: u32,
    /// Largest UD payload in bytes.
    pub link_mtu: u32,
    /// Whether addresses are learned from received frames.
    pub learning: bool,
    /// Seconds until an unused learned address expires.
    pub ageing: u32,
    /// Maximum number of learned addresses.
    pub mac_limit: u32,
    /// Entries of the manager's table.
    pub table_entries: u32,
    /// Digest of the manager's table; 0: no table.
    pub table_digest: u32,
    /// Number of members that the manager or the configuration lists.
    pub peers: u32,
    /// Whether the list is complete: other hosts are excluded.
    pub closed: bool,
    /// Network namespace, unless it is the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// TAP queues.
    pub queues: u32,
    /// Whether the interface stays when the daemon ends.
    pub persist: bool,
    /// Process id of the daemon.
    pub pid: u32,
    /// Version of the daemon.
    pub version: String,
}

/// Counters of a VNIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicStats {
    /// Interface name.
    pub name: String,
    /// See [`VnicInfo::netns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Counters of `ethtool -S` on the kernel's opa_vnic, in the same order
    /// (drivers/infiniband/ulp/opa_vnic/opa_vnic_ethtool.c).
    pub driver: Counters,
    /// Other counters of the virtual port.
    pub port: Counters,
    /// Counters of the TAP.
    pub device: Counters,
    /// Counters of the port's agent, shared by the managed VNICs of the port; empty for other VNICs.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub management: Counters,
    /// Workers of the port, shared by the port's interfaces.
    pub workers: Vec<WorkerStats>,
}

/// Source of an Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacSource {
    /// The Ethernet Manager's table.
    Table,
    /// A frame from the fabric.
    Learned,
    /// The interface, or a host behind it.
    Local,
}

proto::display_as_serialized!(MacSource);

/// An Ethernet address that a VNIC knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicMac {
    /// The address.
    pub mac: MacAddress,
    /// Destination LID of frames to the address.
    pub lid: OpaLid,
    /// Source of the address.
    pub source: MacSource,
    /// Index in the manager's table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u16>,
    /// Milliseconds since the last frame from the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// GID of the LID, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Queue pair of the LID, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
}

/// A member of a VNIC's switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicMember {
    /// LID.
    pub lid: OpaLid,
    /// GID of the port.
    pub gid: Gid,
    /// Queue pair; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// Whether the manager or the configuration lists the member; otherwise it was learned from its packets.
    pub listed: bool,
}

/// Parameters of [`super::Request::Manage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManageRequest {
    /// The fabric port, named as in Show or by its underlay; default: the only port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// Parameters of [`super::Request::SendManagement`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendManagementRequest {
    /// The fabric port; default: the only port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// GID of the destination; without `gid` and `qpn`: all agents and managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Queue pair of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// The management datagram.
    pub mad: Hex,
}

/// A reply to [`super::Request::Manage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManageReply {
    /// The management of the port: the first reply, and a reply after each change.
    Attached(ManagementPort),
    /// A received management datagram that is no request to the agent.
    Received(ManagementDatagram),
}

/// The management of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementPort {
    /// The fabric port.
    pub port: String,
    /// GID of the port.
    pub gid: Gid,
    /// Queue pair of the management.
    pub qpn: Qpn,
    /// Port GUID: 16 hexadecimal digits in groups of four.
    pub guid: String,
    /// P_Key of the management's partition.
    pub pkey: PKey,
    /// Largest UD payload in bytes.
    pub link_mtu: u32,
    /// State of the port.
    pub state: PortState,
}

/// A received management datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementDatagram {
    /// GID of the sender.
    pub gid: Gid,
    /// Queue pair of the sender.
    pub qpn: Qpn,
    /// Whether it was sent to the group of all agents and managers.
    pub by_group: bool,
    /// The datagram.
    pub mad: Hex,
    /// Number of datagrams that were lost before this one, because the client read too slowly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}
