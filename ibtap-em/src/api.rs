//! Messages of the manager's control socket. The JSON follows `ibtap`: lower-case snake-case keys,
//! numbers as numbers, and no key for a value that does not apply. Keys are added, never removed.
//!
//! The description in varlink's interface definition language is `org.ibtap.EthernetManager.varlink`.

use control::api::{Counters, MacAddress};
use proto::{Gid, PKey, Qpn};
use serde::{Deserialize, Serialize};
use vnic::Lid;

/// The name of the varlink interface.
pub const INTERFACE: &str = "org.ibtap.EthernetManager";

/// The role of a manager among the managers of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// No fabric port yet: ibtapd of the node does not run, or has no such port.
    #[default]
    Detached,
    /// Listens for other managers first.
    Listening,
    /// Another manager is active.
    Standby,
    /// Has announced that it becomes active, and waits for objections.
    Claiming,
    /// Manages the fabric.
    Active,
}

proto::display_as_serialized!(Role, PortCondition, MacOrigin);

/// Another manager of the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherManager {
    /// Id of the manager.
    pub id: u64,
    /// GID of its port.
    pub gid: Gid,
    /// Priority that it announces.
    pub priority: u8,
    /// Whether it announces that it is active.
    pub active: bool,
    /// Milliseconds since its last message.
    pub heard_ms: u64,
}

/// A manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusInfo {
    /// Process id.
    pub pid: u32,
    /// Id of the manager; the same as long as its state is kept.
    pub id: u64,
    /// Role.
    pub role: Role,
    /// Current priority: the elevated one while the manager is active.
    pub priority: u8,
    /// Requested lease of agents in milliseconds.
    pub lease_ms: u64,
    /// Name of the fabric port in ibtapd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// GID of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Queue pair of management.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// Control socket of ibtapd.
    pub ibtapd: String,
    /// Why the manager has no fabric port: a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<String>,
    /// Other managers whose lease has not expired.
    pub managers: Vec<OtherManager>,
    /// Agents that answer.
    pub agents: usize,
    /// Known agents that no longer answer.
    pub agents_away: usize,
    /// Switches of the configuration.
    pub switches: usize,
    /// Virtual ports that are members of a switch.
    pub members: usize,
    /// Members that forward.
    pub forwarding: usize,
    /// Requests that wait for an answer or in the queue.
    pub outstanding: usize,
    /// Problems of the manager, as sentences: for example, state that cannot be written.
    pub problems: Vec<String>,
    /// Counters since the start.
    pub counters: Counters,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VeswInfo {
    /// Name.
    pub name: String,
    /// Switch id, 1 to 4095.
    pub id: u16,
    /// Fabric id, 10 bits.
    pub fabric_id: u16,
    /// Partition.
    pub pkey: PKey,
    /// Largest payload of an Ethernet frame in bytes; absent while no member has reported its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eth_mtu: Option<u16>,
    /// Destination LID of multicast and broadcast.
    pub u_mcast_dlid: Lid,
    /// Groups with other destination LIDs.
    pub groups: Vec<GroupInfo>,
    /// Number of members.
    pub members: usize,
    /// Members that forward.
    pub forwarding: usize,
    /// Entries in the MAC tables of its members.
    pub mac_entries: usize,
    /// The switch is drained: its members drop all frames.
    pub drained: bool,
    /// Problems, as sentences.
    pub problems: Vec<String>,
}

/// A group with a separate multicast LID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// MAC address of the group.
    pub mac: MacAddress,
    /// Its LID.
    pub lid: Lid,
    /// Members whose interfaces listen to the group, as their agents report. Members with hosts behind them may
    /// receive the group without listening.
    pub listeners: usize,
}

/// The condition of a virtual port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortCondition {
    /// Member of no switch in the configuration.
    Unassigned,
    /// Configuration in progress.
    Pending,
    /// Configured; its interface is down.
    Down,
    /// Forwards.
    Forwarding,
    /// Drained.
    Drained,
    /// Its agent no longer answers.
    Away,
    /// Cannot be a member; the problem gives the reason.
    Refused,
}

/// A virtual port that an agent has reported, now or before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// `GUID:port:index`, a name of the port in the configuration.
    pub port: String,
    /// The port's name with the node's description.
    pub name: String,
    /// Interface name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// Its switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vesw: Option<String>,
    /// Condition.
    pub condition: PortCondition,
    /// Its LID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<Lid>,
    /// Assigned MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Where its agent is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// Largest payload of an Ethernet frame on its fabric port, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_limit: Option<u16>,
    /// Digest of the MAC table that the port has confirmed; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u32>,
    /// Milliseconds since its agent's last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// Problem: a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The origin of an entry in a MAC table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacOrigin {
    /// Assigned by the manager.
    Base,
    /// Reported by the port's agent.
    Reported,
    /// From the configuration.
    Static,
    /// Group with a separate multicast LID in the configuration.
    Group,
}

/// An address of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacInfo {
    /// The switch.
    pub vesw: String,
    /// The address.
    pub mac: MacAddress,
    /// LID of the address's port, or of the group.
    pub lid: Lid,
    /// The port, `GUID:port:index`; absent for a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The port's name with the node's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Origin.
    pub origin: MacOrigin,
    /// Whether the tables have an entry; false if every member can derive the LID from the address.
    pub in_table: bool,
}

/// The counters of a virtual port, as its agent reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersInfo {
    /// `GUID:port:index`.
    pub port: String,
    /// The port's name with the node's description.
    pub name: String,
    /// Its switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vesw: Option<String>,
    /// VeswPortSummaryCounters, then those of VeswPortErrorCounters that are not among them.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// Why there are no counters: a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The path of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The switch.
    pub vesw: String,
    /// Requested destination address.
    pub dst: MacAddress,
    /// Destination LID; 0x000000: the frame is dropped, or flooded if ports learn.
    pub dlid: Lid,
    /// The port with that LID, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The LID is that of one group: members that do not listen to the group do not receive the frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listeners_only: bool,
    /// Service class.
    pub sc: u8,
    /// Routing control.
    pub rc: u8,
    /// Explanation: a sentence.
    pub why: String,
}

/// The result of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Switches or ports.
    pub targets: Vec<String>,
    /// They drop all frames from now on; false: they forward again, except those in `still_drained`.
    pub drained: bool,
    /// Whether the manager is active; otherwise the drain takes effect when it becomes active.
    pub in_force: bool,
    /// Ports of the targets that another drain holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still_drained: Vec<StillDrained>,
}

/// A port that another drain holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StillDrained {
    /// Its name.
    pub port: String,
    /// What was drained: its switch, or the port itself.
    pub by: String,
}

/// Parameters of `Vesws`, `Ports`, `Macs`: everything, or one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VeswSelection {
    /// Name or number of the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vesw: Option<String>,
}

/// Parameters of `Counters`: all members, or those that match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSelection {
    /// A pattern as in a switch's `members`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// Parameters of `Explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The switch's name or number.
    pub vesw: String,
    /// Destination address.
    pub dst: MacAddress,
    /// VLAN; absent: untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vid: Option<u16>,
    /// Priority of the tag, 0 to 7.
    #[serde(default)]
    pub pcp: u8,
}

/// Parameters of `Drain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// A switch's name or number, or a pattern of ports as in `members`.
    pub target: String,
    /// Let them forward again.
    #[serde(default)]
    pub undo: bool,
}
