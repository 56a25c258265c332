//! What the manager's control socket carries. The JSON is as `ibtap` has it: lower-case snake-case keys,
//! numbers as numbers, what does not apply is absent. Keys are only ever added.
//!
//! The description in varlink's interface definition language is `org.ibtap.EthernetManager.varlink`.

use control::api::{Counters, MacAddress};
use proto::{Gid, PKey, Qpn};
use serde::{Deserialize, Serialize};
use vnic::Lid;

/// The name of the varlink interface.
pub const INTERFACE: &str = "org.ibtap.EthernetManager";

/// Which part a manager has among those of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It has no fabric port yet: its node's ibtapd is not there, or has no such port.
    #[default]
    Detached,
    /// It listens for others before it does anything.
    Listening,
    /// Another one manages.
    Standby,
    /// It has said that it is going to manage, and waits for whoever objects.
    Claiming,
    /// It manages.
    Active,
}

impl Role {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Detached => "detached",
            Role::Listening => "listening",
            Role::Standby => "standby",
            Role::Claiming => "claiming",
            Role::Active => "active",
        }
    }
}

/// Another manager of the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherManager {
    /// Which one it is.
    pub id: u64,
    /// Where it is.
    pub gid: Gid,
    /// What it says its priority is.
    pub priority: u8,
    /// Whether it says that it manages.
    pub active: bool,
    /// Milliseconds since it was heard.
    pub heard_ms: u64,
}

/// A manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusInfo {
    /// Its process.
    pub pid: u32,
    /// Which one it is, for as long as its state is kept.
    pub id: u64,
    /// Its part.
    pub role: Role,
    /// Its priority now: the elevated one while it manages.
    pub priority: u8,
    /// The lease that it asks agents for, in milliseconds.
    pub lease_ms: u64,
    /// The fabric port, by the name that ibtapd has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Its GID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// The queue pair that management goes through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// ibtapd's control socket.
    pub ibtapd: String,
    /// Why it has no fabric port, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<String>,
    /// The others that were heard of within their lease.
    pub managers: Vec<OtherManager>,
    /// Agents that answer.
    pub agents: usize,
    /// Agents that do not any more, and are remembered.
    pub agents_away: usize,
    /// Switches of the configuration.
    pub switches: usize,
    /// Virtual ports that are members of one.
    pub members: usize,
    /// Those of them that forward.
    pub forwarding: usize,
    /// Requests that wait for an answer, or for their turn.
    pub outstanding: usize,
    /// What goes wrong as a whole, sentences: state that cannot be written, for one.
    pub problems: Vec<String>,
    /// What the manager has done since it started.
    pub counters: Counters,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VeswInfo {
    /// Its name.
    pub name: String,
    /// 1 to 4095.
    pub id: u16,
    /// 10 bits.
    pub fabric_id: u16,
    /// Its partition.
    pub pkey: PKey,
    /// Largest payload of an Ethernet frame; absent while no member has told what it can carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eth_mtu: Option<u16>,
    /// Where multicast and broadcast go.
    pub u_mcast_dlid: Lid,
    /// Groups that go elsewhere.
    pub groups: Vec<GroupInfo>,
    /// Its members.
    pub members: usize,
    /// Those of them that forward.
    pub forwarding: usize,
    /// Entries of the MAC tables that its members have.
    pub mac_entries: usize,
    /// It is drained: its members drop all.
    pub drained: bool,
    /// What goes wrong, sentences.
    pub problems: Vec<String>,
}

/// A group with a multicast LID of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Its address.
    pub mac: MacAddress,
    /// Its LID.
    pub lid: Lid,
    /// Members whose interfaces listen to it, as their agents report; those with others behind them may
    /// have it without that.
    pub listeners: usize,
}

/// How far a virtual port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortCondition {
    /// No switch of the configuration has it as a member.
    Unassigned,
    /// It is being set up.
    Pending,
    /// It is set up, and its interface is down.
    Down,
    /// It forwards.
    Forwarding,
    /// It is drained.
    Drained,
    /// Its agent does not answer any more.
    Away,
    /// It cannot be a member; a problem says why.
    Refused,
}

impl PortCondition {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PortCondition::Unassigned => "unassigned",
            PortCondition::Pending => "pending",
            PortCondition::Down => "down",
            PortCondition::Forwarding => "forwarding",
            PortCondition::Drained => "drained",
            PortCondition::Away => "away",
            PortCondition::Refused => "refused",
        }
    }
}

/// A virtual port that an agent has told of, or that was known before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// `GUID:port:index`, as the configuration may name it.
    pub port: String,
    /// The same by the node's description.
    pub name: String,
    /// Its interface.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// The switch that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vesw: Option<String>,
    /// How far it is.
    pub condition: PortCondition,
    /// Its LID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<Lid>,
    /// The address that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Where its agent is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Gid>,
    /// Its queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<Qpn>,
    /// Largest payload of an Ethernet frame that its fabric port can carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_limit: Option<u16>,
    /// The last message of its MAC table that it said it has taken; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u32>,
    /// Milliseconds since its agent was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// What goes wrong, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where an entry of a MAC table comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacOrigin {
    /// The manager gave the port this address.
    Base,
    /// The port's agent reports it.
    Reported,
    /// The configuration says so.
    Static,
    /// It is a group's, to which the configuration gives a multicast LID of its own.
    Group,
}

impl MacOrigin {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MacOrigin::Base => "base",
            MacOrigin::Reported => "reported",
            MacOrigin::Static => "static",
            MacOrigin::Group => "group",
        }
    }
}

/// An address of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacInfo {
    /// The switch.
    pub vesw: String,
    /// The address.
    pub mac: MacAddress,
    /// The LID of the port that has it, or the group's.
    pub lid: Lid,
    /// That port, `GUID:port:index`; a group's address is no port's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The same by the node's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How the manager knows.
    pub origin: MacOrigin,
    /// It is an entry of the tables; false where every member can tell the LID from the address.
    pub in_table: bool,
}

/// The counters of a virtual port, as its agent tells them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersInfo {
    /// `GUID:port:index`.
    pub port: String,
    /// The same by the node's description.
    pub name: String,
    /// Its switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vesw: Option<String>,
    /// VeswPortSummaryCounters, then those of VeswPortErrorCounters that are not among them.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// Why there are none, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The switch.
    pub vesw: String,
    /// The destination that was asked for.
    pub dst: MacAddress,
    /// The destination LID; 0x000000: it is dropped, or flooded where ports learn.
    pub dlid: Lid,
    /// The port that has that LID, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// It is the LID of one group: members that do not listen to it do not have the frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listeners_only: bool,
    /// Service class.
    pub sc: u8,
    /// Routing control.
    pub rc: u8,
    /// Why, a sentence.
    pub why: String,
}

/// What a drain has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// The switches or ports that it is about.
    pub targets: Vec<String>,
    /// They drop all from now on; false: they forward again.
    pub drained: bool,
    /// The manager that was asked manages; else it is so when it does.
    pub in_force: bool,
}

/// Parameters of `Vesws`, `Ports`, `Macs`: all, or those of one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VeswSelection {
    /// Its name or its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vesw: Option<String>,
}

/// Parameters of `Counters`: of all members, or of those that match.
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
