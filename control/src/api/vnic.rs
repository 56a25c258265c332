//! VNICs, and the way to and from their management for an Ethernet Manager.

use std::fmt;

use proto::{ConfigState, Gid, LinkLayer, OpaLid, PKey, PortState, QKey, Qpn};
use serde::{Deserialize, Serialize};

use super::reply::WorkerStats;
use super::scalar::{Counters, Hex, MacAddress};

/// What kind of interface an object is about; those of IPoIB do not say.
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
    /// The port's GID.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
}

/// A VNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicInfo {
    /// Its name now.
    pub name: String,
    /// That it is one.
    pub kind: InterfaceKind,
    /// Its index in its network namespace.
    pub ifindex: u32,
    /// The fabric port, such as `soft/eth0`.
    pub port: String,
    /// The Ethernet interface below the port, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
    /// What carries the port's packets.
    pub link_layer: LinkLayer,
    /// The port's state.
    pub state: PortState,
    /// Why there is no carrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether an administrator has set it up.
    pub up: bool,
    /// Whether the TAP's carrier is on.
    pub carrier: bool,
    /// Whether an Ethernet Manager configures it.
    pub managed: bool,
    /// Who that is, while it is somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<FabricAddress>,
    /// Its number on its fabric port.
    pub index: u8,
    /// The virtual Ethernet switch; 0 while it is on none.
    pub vesw: u16,
    /// The fabric's number, as the manager or the configuration has it.
    pub fabric_id: u16,
    /// Its LID; 0 while it has none.
    pub lid: OpaLid,
    /// What it is to do.
    pub config_state: ConfigState,
    /// What it does.
    pub oper_state: ConfigState,
    /// The partition: the table's entry, or while that lacks the partition what was asked for.
    pub pkey: PKey,
    /// The Q_Key of the switch.
    pub qkey: QKey,
    /// Its queue pair; 0 while it has none.
    pub qpn: Qpn,
    /// The port's GID.
    pub gid: Gid,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// The Ethernet address that the manager, or the configuration, gave it.
    pub base_mac: MacAddress,
    /// The multicast LID of the switch.
    pub multicast_lid: OpaLid,
    /// The group that stands for it on the fabric, while it is attached to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Gid>,
    /// LIDs that frames to unknown global addresses go to.
    pub default_lids: Vec<OpaLid>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The largest MTU in bytes: of the switch, or what the port carries.
    pub mtu_max: u32,
    /// The largest UD payload in bytes.
    pub link_mtu: u32,
    /// Whether addresses are learned from received frames.
    pub learning: bool,
    /// Seconds after which a learned address is forgotten that was not heard of.
    pub ageing: u32,
    /// Addresses that may be learned.
    pub mac_limit: u32,
    /// Entries of the manager's table.
    pub table_entries: u32,
    /// What the manager calls that table; 0: there is none.
    pub table_digest: u32,
    /// LIDs whose places the manager or the configuration has told.
    pub peers: u32,
    /// Whether nobody else is a member.
    pub closed: bool,
    /// The network namespace, where it is not the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// TAP queues.
    pub queues: u32,
    /// Whether it stays when the daemon ends.
    pub persist: bool,
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's version.
    pub version: String,
}

/// A VNIC's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicStats {
    /// The VNIC.
    pub name: String,
    /// As [`VnicInfo::netns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Those of `ethtool -S` on the kernel's opa_vnic, in its order
    /// (drivers/infiniband/ulp/opa_vnic/opa_vnic_ethtool.c).
    pub driver: Counters,
    /// Others of the virtual port.
    pub port: Counters,
    /// The TAP's.
    pub device: Counters,
    /// Those of the port's agent, which the managed VNICs of a port share; none where this one is not
    /// managed.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub management: Counters,
    /// The port's workers, which the interfaces of a port share.
    pub workers: Vec<WorkerStats>,
}

/// How an Ethernet address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacSource {
    /// The Ethernet Manager's table has it.
    Table,
    /// It was the source of a frame from the fabric.
    Learned,
    /// It is the interface's, or of a host behind it.
    Local,
}

impl fmt::Display for MacSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MacSource::Table => "table",
            MacSource::Learned => "learned",
            MacSource::Local => "local",
        })
    }
}

/// An Ethernet address that a VNIC knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicMac {
    /// The address.
    pub mac: MacAddress,
    /// Where frames for it go.
    pub lid: OpaLid,
    /// How it is known.
    pub source: MacSource,
    /// Its place in the manager's table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u16>,
    /// Milliseconds since it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Where that LID is, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
}

/// A member of a VNIC's switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicMember {
    /// Its LID.
    pub lid: OpaLid,
    /// Its port.
    pub gid: Gid,
    /// Its queue pair; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// The manager or the configuration says so; else it was learned from what it sends.
    pub listed: bool,
}

/// Parameters of [`super::Request::Manage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManageRequest {
    /// The fabric port, named as in Show or by its underlay; none where there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// Parameters of [`super::Request::SendManagement`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendManagementRequest {
    /// The fabric port; none where there is one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// To whom: a GID and a queue pair number; neither: to all agents and managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// The management datagram.
    pub mad: Hex,
}

/// One of the replies to [`super::Request::Manage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManageReply {
    /// Where the management of a port is: the first reply, and again when that changes.
    Attached(ManagementPort),
    /// A management datagram came that is no request to the agent.
    Received(ManagementDatagram),
}

/// Where the management of a port is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementPort {
    /// The fabric port.
    pub port: String,
    /// Its GID.
    pub gid: Gid,
    /// The management's queue pair.
    pub qpn: Qpn,
    /// The port GUID: 16 hexadecimal digits in fours.
    pub guid: String,
    /// The partition in which management travels.
    pub pkey: PKey,
    /// The largest UD payload in bytes.
    pub link_mtu: u32,
    /// The port's state.
    pub state: PortState,
}

/// A management datagram that came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagementDatagram {
    /// From which port.
    pub gid: Gid,
    /// From which of its queue pairs.
    pub qpn: Qpn,
    /// It came by the group of all agents and managers.
    pub by_group: bool,
    /// All of it.
    pub mad: Hex,
    /// Datagrams that the client missed before this one, since it did not read in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}
