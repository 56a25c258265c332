//! What a monitor is told.

use std::fmt;
use std::net::IpAddr;

use proto::{Gid, Mode, PKey, Qpn};
use serde::{Deserialize, Serialize};

use super::scalar::MacAddress;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When: RFC 3339, UTC, with milliseconds.
    pub time: String,
    /// The interface that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The network namespace where that is, if it is another one than the daemon's; `netns:INODE`
    /// where `ip netns` has no name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The fabric port that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
    /// Events that were not told before this one, since the client did not read them in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// The kinds of events; the key `event` names the kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Happening {
    /// The daemon tells events from here on; the first event of every monitor.
    Watching {
        /// The daemon's version.
        version: String,
        /// The daemon's process.
        pid: u32,
    },
    /// The configuration was read again.
    Reloaded {
        /// What was changed, in sentences.
        applied: Vec<String>,
        /// What was not, in sentences.
        refused: Vec<String>,
    },
    /// The port came up.
    PortActive,
    /// The port went down.
    PortDown {
        /// Why.
        reason: String,
    },
    /// What the port runs on is gone; it may come back.
    PortGone {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The port has another GID.
    GidChanged {
        /// This one.
        gid: Gid,
    },
    /// The port carries UD payloads of another size.
    LinkMtuChanged {
        /// Bytes.
        link_mtu: u32,
    },
    /// The port's P_Key table changed.
    PkeysChanged,
    /// The device was reset, and its queue pairs have other numbers.
    QpnsChanged,
    /// The interface has another child.
    ChildAdded {
        /// Its name.
        child: String,
        /// Its partition.
        pkey: PKey,
    },
    /// A child of the interface is gone.
    ChildRemoved {
        /// Its name.
        child: String,
        /// Its partition.
        pkey: PKey,
    },
    /// The port's P_Key table lacks the interface's partition: it waits for it.
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
    /// The interface got the name it has now.
    Renamed {
        /// The name it had.
        was: String,
    },
    /// The interface is in the network namespace that it is in now.
    Moved {
        /// The one where it was; none for the daemon's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<String>,
    },
    /// The interface has another MTU.
    MtuChanged {
        /// Bytes of an IP packet.
        mtu: u32,
    },
    /// The interface's packets travel in another mode.
    ModeChanged {
        /// This one.
        mode: Mode,
    },
    /// The interface has another Ethernet address.
    MacChanged {
        /// This one.
        mac: MacAddress,
    },
    /// The interface has a carrier.
    CarrierOn,
    /// The interface has no carrier.
    CarrierOff,
    /// A neighbour spoke for the first time, or with a new IP address.
    NeighbourLearned {
        /// The Ethernet address that stands for it.
        mac: MacAddress,
        /// Its GID.
        gid: Gid,
        /// Its queue pair.
        qpn: Qpn,
        /// The IP address that it said it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ip: Option<IpAddr>,
    },
    /// A neighbour came back with another queue pair.
    NeighbourReplaced {
        /// Its GID.
        gid: Gid,
        /// Its queue pair.
        qpn: Qpn,
        /// The GID it had.
        old_gid: Gid,
        /// The queue pair it had.
        old_qpn: Qpn,
    },
    /// A neighbour was forgotten.
    NeighbourForgotten {
        /// Its GID.
        gid: Gid,
        /// Its queue pair.
        qpn: Qpn,
    },
    /// A guest behind the interface has an IP address.
    GuestLearned {
        /// The guest's Ethernet address.
        mac: MacAddress,
        /// The IP address.
        ip: IpAddr,
    },
    /// An IP address is no longer a guest's.
    GuestForgotten {
        /// The IP address.
        ip: IpAddr,
    },
    /// The interface receives a multicast group.
    GroupJoined {
        /// The group.
        mgid: Gid,
    },
    /// The interface receives a multicast group no longer.
    GroupLeft {
        /// The group.
        mgid: Gid,
    },
    /// Two hosts claim one IP address.
    AddressConflict {
        /// The IP address.
        ip: IpAddr,
        /// The Ethernet address of the one.
        mac: MacAddress,
        /// That of the other.
        other_mac: MacAddress,
    },
    /// A guest has the Ethernet address that stood for a peer.
    MacClash {
        /// The guest's.
        mac: MacAddress,
        /// The one that stands for the peer from now on.
        peer_mac: MacAddress,
    },
    /// Signed neighbour discovery (SEND, RFC 3971) was passed untouched.
    SignedNd,
    /// A connection is there.
    ConnectionUp {
        /// The peer's GID.
        gid: Gid,
        /// The peer's UD queue pair.
        qpn: Qpn,
        /// We asked for it, to send; the peer did otherwise.
        active: bool,
    },
    /// A connection is over.
    ConnectionDown {
        /// The peer's GID.
        gid: Gid,
        /// The peer's UD queue pair.
        qpn: Qpn,
        /// We asked for it.
        active: bool,
        /// Why, in words.
        reason: String,
    },
    /// A peer did not take a connection: it is served by datagrams for a while.
    ConnectionRefused {
        /// The peer's GID.
        gid: Gid,
        /// The peer's UD queue pair.
        qpn: Qpn,
        /// Why, in words.
        reason: String,
    },
}

impl fmt::Display for Happening {
    /// For people: what happened, without when and where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Watching { version, pid } => {
                write!(f, "ibtapd {version} (process {pid}) tells events")
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
                f.write_str("the device was reset, queue pairs have other numbers")
            }
            Happening::ChildAdded { child, pkey } => write!(f, "child {child} pkey {pkey} added"),
            Happening::ChildRemoved { child, pkey } => {
                write!(f, "child {child} pkey {pkey} removed")
            }
            Happening::PkeyMissing { pkey } => {
                write!(
                    f,
                    "waits for the P_Key {pkey}, which is not in the port's table"
                )
            }
            Happening::PkeyAssigned { pkey } => write!(f, "uses the P_Key table's entry {pkey}"),
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
            Happening::MacClash { mac, peer_mac } => write!(
                f,
                "guest {mac} has the MAC that stood for a peer, which is now {peer_mac}"
            ),
            Happening::SignedNd => {
                f.write_str("signed neighbour discovery (SEND) passes untouched")
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

/// A connection's direction: messages go one way.
fn way(active: bool) -> &'static str {
    if active { "to" } else { "from" }
}
