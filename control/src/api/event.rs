//! Events that clients can watch.

use std::fmt;
use std::net::IpAddr;

use proto::{Gid, Mode, PKey, Qpn};
use serde::{Deserialize, Serialize};

use super::scalar::MacAddress;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time: RFC 3339, UTC, with milliseconds.
    pub time: String,
    /// The interface, for an event of an interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The interface's network namespace, unless it is the daemon's: a name of `ip netns`, or `netns:INODE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The fabric port, for an event of a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Kind and details.
    #[serde(flatten)]
    pub what: Happening,
    /// Number of events that were lost before this one, because the client read too slowly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// The kinds of events; the key `event` names the kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happening {
    /// Events are reported from now on; the first event of every client.
    Watching {
        /// The daemon's version.
        version: String,
        /// The daemon's process.
        pid: u32,
    },
    /// The configuration was read again.
    Reloaded {
        /// A sentence for each applied change.
        applied: Vec<String>,
        /// A sentence for each refused change.
        refused: Vec<String>,
    },
    /// The port came up.
    PortActive,
    /// The port went down.
    PortDown {
        /// The reason.
        reason: String,
    },
    /// The underlay or RDMA device of the port is gone; it may return.
    PortGone {
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The port has another GID.
    GidChanged {
        /// The new GID.
        gid: Gid,
    },
    /// The port has another link MTU.
    LinkMtuChanged {
        /// The largest UD payload in bytes.
        link_mtu: u32,
    },
    /// The port's P_Key table changed.
    PkeysChanged,
    /// The device was reset, and its queue pairs have other numbers.
    QpnsChanged,
    /// A child of the interface was added.
    ChildAdded {
        /// Its name.
        child: String,
        /// Its partition.
        pkey: PKey,
    },
    /// A child of the interface was removed.
    ChildRemoved {
        /// Its name.
        child: String,
        /// Its partition.
        pkey: PKey,
    },
    /// The port's P_Key table lacks the interface's partition; the interface waits for it.
    PkeyMissing {
        /// The partition.
        pkey: PKey,
    },
    /// The interface uses another entry of the port's P_Key table.
    PkeyAssigned {
        /// The entry.
        pkey: PKey,
    },
    /// The interface is in service.
    Created {
        /// Its queue pair.
        qpn: Qpn,
        /// The port's GID.
        gid: Gid,
    },
    /// The interface is out of service.
    Gone,
    /// The interface was set up.
    Up,
    /// The interface was set down.
    Down,
    /// The interface has another name.
    Renamed {
        /// The previous name.
        was: String,
    },
    /// The interface is in another network namespace.
    Moved {
        /// The previous namespace; absent: the daemon's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<String>,
    },
    /// The interface has another MTU.
    MtuChanged {
        /// Bytes of an IP packet.
        mtu: u32,
    },
    /// The interface has another transport mode.
    ModeChanged {
        /// The new mode.
        mode: Mode,
    },
    /// The interface has another MAC.
    MacChanged {
        /// The new MAC.
        mac: MacAddress,
    },
    /// The interface has a carrier.
    CarrierOn,
    /// The interface has no carrier.
    CarrierOff,
    /// A neighbour or one of its IP addresses was learned.
    NeighbourLearned {
        /// The neighbour's MAC on the TAP.
        mac: MacAddress,
        /// Its GID.
        gid: Gid,
        /// Its queue pair.
        qpn: Qpn,
        /// Its IP address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ip: Option<IpAddr>,
    },
    /// A neighbour has another queue pair.
    NeighbourReplaced {
        /// Its GID.
        gid: Gid,
        /// Its queue pair.
        qpn: Qpn,
        /// The previous GID.
        old_gid: Gid,
        /// The previous queue pair.
        old_qpn: Qpn,
    },
    /// A neighbour was removed.
    NeighbourForgotten {
        /// Its GID.
        gid: Gid,
        /// Its queue pair.
        qpn: Qpn,
    },
    /// The IP address of a guest was learned.
    GuestLearned {
        /// The guest's MAC.
        mac: MacAddress,
        /// The IP address.
        ip: IpAddr,
    },
    /// The IP address of a guest was removed.
    GuestForgotten {
        /// The IP address.
        ip: IpAddr,
    },
    /// The interface joined a multicast group.
    GroupJoined {
        /// The group.
        mgid: Gid,
    },
    /// The interface left a multicast group.
    GroupLeft {
        /// The group.
        mgid: Gid,
    },
    /// Two hosts claim the same IP address.
    AddressConflict {
        /// The IP address.
        ip: IpAddr,
        /// The MAC of the first host.
        mac: MacAddress,
        /// The MAC of the second host.
        other_mac: MacAddress,
    },
    /// A neighbour claimed an IP address that it should not have.
    SuspiciousClaim {
        /// The IP address.
        ip: IpAddr,
        /// The neighbour's GID.
        gid: Gid,
        /// The neighbour's queue pair.
        qpn: Qpn,
        /// The address is pinned to another neighbour; otherwise another live host has it.
        pinned: bool,
        /// The claim was dropped.
        dropped: bool,
    },
    /// A guest has the MAC of a peer on the TAP; the peer gets another MAC.
    MacClash {
        /// The guest's MAC.
        mac: MacAddress,
        /// The peer's new MAC.
        peer_mac: MacAddress,
    },
    /// A packet of signed neighbour discovery (SEND, RFC 3971) was passed unchanged.
    SignedNd,
    /// A connection is established.
    ConnectionUp {
        /// The peer's GID.
        gid: Gid,
        /// The peer's UD queue pair.
        qpn: Qpn,
        /// Whether the daemon requested the connection, to send; otherwise the peer did.
        active: bool,
    },
    /// A connection has ended.
    ConnectionDown {
        /// The peer's GID.
        gid: Gid,
        /// The peer's UD queue pair.
        qpn: Qpn,
        /// Whether the daemon requested the connection.
        active: bool,
        /// The reason, in words.
        reason: String,
    },
    /// A peer did not accept a connection; datagrams are used for a while.
    ConnectionRefused {
        /// The peer's GID.
        gid: Gid,
        /// The peer's UD queue pair.
        qpn: Qpn,
        /// The reason, in words.
        reason: String,
    },
}

impl fmt::Display for Happening {
    /// The event as text, without time and subject.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Watching { version, pid } => {
                write!(f, "ibtapd {version} (process {pid}) reports events")
            }
            Happening::Reloaded { applied, refused } => {
                let (done, not) = (applied.len(), refused.len());
                write!(f, "configuration reloaded: {done} applied, {not} refused")?;
                let mut all = applied.iter().chain(refused);
                all.try_for_each(|sentence| write!(f, "; {sentence}"))
            }
            Happening::PortActive => f.write_str("port active"),
            Happening::PortDown { reason } => write!(f, "port down: {reason}"),
            Happening::PortGone { reason: Some(why) } => write!(f, "port gone: {why}"),
            Happening::PortGone { reason: None } => f.write_str("port gone"),
            Happening::GidChanged { gid } => write!(f, "port GID {gid}"),
            Happening::LinkMtuChanged { link_mtu } => write!(f, "link MTU {link_mtu}"),
            Happening::PkeysChanged => f.write_str("P_Key table changed"),
            Happening::QpnsChanged => {
                f.write_str("device was reset, queue pairs have other numbers")
            }
            Happening::ChildAdded { child, pkey } => write!(f, "child {child} pkey {pkey} added"),
            Happening::ChildRemoved { child, pkey } => {
                write!(f, "child {child} pkey {pkey} removed")
            }
            Happening::PkeyMissing { pkey } => {
                write!(
                    f,
                    "waits for P_Key {pkey}, which is not in the port's table"
                )
            }
            Happening::PkeyAssigned { pkey } => write!(f, "uses entry {pkey} of the P_Key table"),
            Happening::Created { qpn, gid } => write!(f, "in service, qpn {qpn} gid {gid}"),
            Happening::Gone => f.write_str("out of service"),
            Happening::Up => f.write_str("up"),
            Happening::Down => f.write_str("down"),
            Happening::Renamed { was } => write!(f, "renamed, was {was}"),
            Happening::Moved { was: Some(was) } => {
                write!(f, "moved, was in the network namespace {was}")
            }
            Happening::Moved { was: None } => {
                f.write_str("moved, was in the daemon's network namespace")
            }
            Happening::MtuChanged { mtu } => write!(f, "MTU {mtu}"),
            Happening::ModeChanged { mode } => write!(f, "mode {mode}"),
            Happening::MacChanged { mac } => write!(f, "MAC {mac}"),
            Happening::CarrierOn => f.write_str("carrier on"),
            Happening::CarrierOff => f.write_str("carrier off"),
            Happening::NeighbourLearned { mac, gid, qpn, ip } => {
                write!(f, "neighbour {mac}")?;
                if let Some(ip) = ip {
                    write!(f, " {ip}")?;
                }
                write!(f, " learned, qpn {qpn} gid {gid}")
            }
            Happening::NeighbourReplaced {
                gid,
                qpn,
                old_gid,
                old_qpn,
            } => write!(
                f,
                "neighbour qpn {qpn} gid {gid} replaces qpn {old_qpn} gid {old_gid}"
            ),
            Happening::NeighbourForgotten { gid, qpn } => {
                write!(f, "neighbour qpn {qpn} gid {gid} forgotten")
            }
            Happening::GuestLearned { mac, ip } => write!(f, "guest {mac} {ip} learned"),
            Happening::GuestForgotten { ip } => write!(f, "guest {ip} forgotten"),
            Happening::GroupJoined { mgid } => write!(f, "group {mgid} joined"),
            Happening::GroupLeft { mgid } => write!(f, "group {mgid} left"),
            Happening::AddressConflict { ip, mac, other_mac } => {
                write!(f, "address conflict: {mac} and {other_mac} both claim {ip}")
            }
            Happening::SuspiciousClaim {
                ip,
                gid,
                qpn,
                pinned,
                dropped,
            } => {
                let action = if *dropped { "refused" } else { "followed" };
                let why = match pinned {
                    true => "the key neighbours has another host for it",
                    false => "another live host has it",
                };
                write!(f, "claim of {ip} by qpn {qpn} gid {gid} {action}: {why}")
            }
            Happening::MacClash { mac, peer_mac } => write!(
                f,
                "guest {mac} has the MAC of a peer; the peer's MAC is now {peer_mac}"
            ),
            Happening::SignedNd => {
                f.write_str("signed neighbour discovery (SEND) passes unchanged")
            }
            Happening::ConnectionUp { gid, qpn, active } => {
                write!(f, "connection {} qpn {qpn} gid {gid} up", way(*active))
            }
            Happening::ConnectionDown {
                gid,
                qpn,
                active,
                reason,
            } => write!(
                f,
                "connection {} qpn {qpn} gid {gid} down: {reason}",
                way(*active)
            ),
            Happening::ConnectionRefused { gid, qpn, reason } => write!(
                f,
                "no connection to qpn {qpn} gid {gid}, datagrams for a minute: {reason}"
            ),
        }
    }
}

/// The direction of a connection's messages.
fn way(active: bool) -> &'static str {
    if active { "to" } else { "from" }
}
