//! What the control socket carries: every request, every reply, every error.
//!
//! The JSON is as `ip -j` prints it: lower-case snake-case keys, numbers as numbers, what does not
//! apply is absent and never null. Keys are only ever added. The same types are written by the
//! daemon and read by `ibtap`, whose `--json` prints the arrays in them. The description in the
//! interface definition language of varlink is `control/org.ibtap.Daemon.varlink`.

mod child;
mod event;
pub mod methods;
mod ping;
mod reply;
mod scalar;
mod vnic;

pub use self::vnic::{
    FabricAddress, InterfaceKind, MacSource, ManageReply, ManageRequest, ManagementDatagram,
    ManagementPort, SendManagementRequest, VnicInfo, VnicMac, VnicMember, VnicStats,
};
pub use child::{
    ChildAddRequest, ChildDelRequest, ChildInfo, Moderation, ModerationRequest, MtuRequest,
    PkeyTable, PkeysRequest, UmcastRequest,
};
pub use event::{Event, Happening};
pub use ping::{
    EchoAnswer, EchoTimeout, PING_INTERVAL_MS, PING_SIZE, PingReply, PingRequest, PingSummary,
};
pub use proto::{ConfigState, DhcpMode, LinkLayer, Mode, PortState};
pub use reply::{
    CompletionQueueInfo, ConnectionInfo, ConnectionRole, GroupInfo, GuestInfo, InterfaceInfo,
    InterfaceStats, LinkInfo, MemberInfo, NeighbourInfo, NeighbourState, PathInfo, QueuePairInfo,
    ResourcesInfo, VersionInfo, WorkerStats,
};
pub use scalar::{Counters, HardwareAddress, Hex, LinkAddress, LogLevel, MacAddress};

use serde::{Deserialize, Serialize};

/// The name of the varlink interface.
pub const INTERFACE: &str = "org.ibtap.Daemon";

/// What a client asks for; a method of [`INTERFACE`], whose name is the variant's, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub enum Request {
    /// Which daemon is this?
    Version,
    /// Interfaces: all, or the one named.
    Show(Selection),
    /// Counters of all interfaces, or of the one named.
    Stats(Selection),
    /// The neighbour table of an interface.
    Neighbours(Interface),
    /// The guests behind an interface.
    Guests(Interface),
    /// The multicast groups of an interface.
    Groups(Interface),
    /// The paths (address handles) of an interface.
    Paths(Interface),
    /// Reliable connections of all interfaces, or of the one named.
    Connections(Selection),
    /// How an interface's packets travel; with a mode, that from now on.
    Mode(ModeRequest),
    /// Make a child interface of another partition beside an interface.
    ChildAdd(ChildAddRequest),
    /// Remove a child interface.
    ChildDel(ChildDelRequest),
    /// The children of all interfaces, or of the one named.
    Children(Selection),
    /// The P_Key tables of ports; with a table, that from now on.
    Pkeys(PkeysRequest),
    /// An interface's IP MTU; with one, that from now on.
    Mtu(MtuRequest),
    /// Whether groups are left to programs of the user's (umcast); with a value, that from now on.
    Umcast(UmcastRequest),
    /// Completion moderation (`ethtool -C`); with values, those from now on.
    Moderation(ModerationRequest),
    /// Queue pairs, completion queues and group attachments of all ports.
    Resources,
    /// Log this from now on.
    LogLevel(Level),
    /// Read the configuration file again and do what has changed.
    Reload,
    /// Tell what happens, to all interfaces or to the one named: a stream of replies.
    Monitor(Selection),
    /// Ask a peer for echoes: a stream of replies.
    Ping(PingRequest),
    /// VNICs: all, or the one named.
    Vnics(Selection),
    /// Counters of all VNICs, or of the one named.
    VnicStats(Selection),
    /// The Ethernet addresses that a VNIC knows.
    VnicMacs(Interface),
    /// The members of a VNIC's switch.
    VnicMembers(Interface),
    /// Receive the VNIC management of a port: a stream of replies.
    Manage(ManageRequest),
    /// Send VNIC management.
    SendManagement(SendManagementRequest),
}

impl Request {
    /// Whether it is answered by a stream of replies.
    pub fn is_stream(&self) -> bool {
        matches!(
            self,
            Request::Monitor(_) | Request::Ping(_) | Request::Manage(_)
        )
    }
}

/// No parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Parameters of [`Request::Show`], [`Request::Stats`], [`Request::Connections`] and
/// [`Request::Monitor`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Only this interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// Parameters of the requests about one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its name.
    pub interface: String,
}

impl Selection {
    /// The interface that is named, or all.
    pub fn of(interface: Option<&str>) -> Selection {
        Selection {
            interface: interface.map(str::to_owned),
        }
    }
}

impl Interface {
    /// The interface of this name.
    pub fn of(name: &str) -> Interface {
        Interface {
            interface: name.to_owned(),
        }
    }
}

/// What [`Request::Monitor`] is answered by, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Monitored {
    /// What happened.
    pub event: Event,
}

/// Parameters of [`Request::Mode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    /// The interface.
    pub interface: String,
    /// The mode that it is to have; absent: the one that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// Parameters of [`Request::LogLevel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The level.
    pub level: LogLevel,
}

/// The daemon's answer; each serialises to the parameters of a varlink reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// To [`Request::Version`].
    Version(VersionInfo),
    /// To [`Request::Show`], in the order of the interfaces' creation.
    Show {
        /// The interfaces.
        interfaces: Vec<InterfaceInfo>,
    },
    /// To [`Request::Stats`].
    Stats {
        /// One for each interface.
        stats: Vec<InterfaceStats>,
    },
    /// To [`Request::Neighbours`].
    Neighbours {
        /// The table.
        neighbours: Vec<NeighbourInfo>,
    },
    /// To [`Request::Guests`].
    Guests {
        /// Their IP addresses.
        guests: Vec<GuestInfo>,
    },
    /// To [`Request::Groups`].
    Groups {
        /// The groups, the broadcast group first.
        groups: Vec<GroupInfo>,
    },
    /// To [`Request::Paths`].
    Paths {
        /// The paths.
        paths: Vec<PathInfo>,
    },
    /// To [`Request::Connections`].
    Connections {
        /// The connections.
        connections: Vec<ConnectionInfo>,
    },
    /// To [`Request::Mode`].
    Mode {
        /// The interface's mode now.
        mode: Mode,
    },
    /// To [`Request::ChildAdd`].
    ChildAdd {
        /// The child's name.
        interface: String,
    },
    /// To [`Request::ChildDel`].
    ChildDel {},
    /// To [`Request::Children`].
    Children {
        /// In the order of their creation.
        children: Vec<ChildInfo>,
    },
    /// To [`Request::Pkeys`].
    Pkeys {
        /// One for each port.
        tables: Vec<PkeyTable>,
    },
    /// To [`Request::Mtu`].
    Mtu {
        /// The IP MTU in bytes.
        mtu: u32,
    },
    /// To [`Request::Umcast`].
    Umcast {
        /// Whether it is on.
        umcast: bool,
    },
    /// To [`Request::Moderation`].
    Moderation(Moderation),
    /// To [`Request::Resources`].
    Resources {
        /// One for each port.
        resources: Vec<ResourcesInfo>,
    },
    /// To [`Request::LogLevel`].
    LogLevel {},
    /// To [`Request::Reload`].
    Reload(Reloaded),
    /// To [`Request::Monitor`], again and again.
    Monitor {
        /// What happened.
        event: Event,
    },
    /// To [`Request::Ping`], again and again.
    Ping(PingReply),
    /// To [`Request::Vnics`], in the order of their creation.
    Vnics {
        /// The VNICs.
        vnics: Vec<VnicInfo>,
    },
    /// To [`Request::VnicStats`].
    VnicStats {
        /// One for each VNIC.
        stats: Vec<VnicStats>,
    },
    /// To [`Request::VnicMacs`].
    VnicMacs {
        /// The addresses, in their order.
        macs: Vec<VnicMac>,
    },
    /// To [`Request::VnicMembers`].
    VnicMembers {
        /// The members, by LID.
        members: Vec<VnicMember>,
    },
    /// To [`Request::Manage`], again and again.
    Manage(ManageReply),
    /// To [`Request::SendManagement`].
    SendManagement {},
}

/// What came of reading the configuration again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// What was changed, in sentences.
    pub applied: Vec<String>,
    /// What was not, in sentences that say what to do.
    pub refused: Vec<String>,
}

/// Why the daemon does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// It serves no interface of this name.
    #[error("ibtapd serves no interface named {interface:?}")]
    NoSuchInterface {
        /// The name.
        interface: String,
    },
    /// What was asked for makes no sense; the text is a whole sentence.
    #[error("{message}")]
    BadArgument {
        /// Why.
        message: String,
    },
    /// It cannot do that; the text is a whole sentence.
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
    },
    /// The kernel's IPoIB refuses the same with this error number; the text is a whole sentence.
    #[error("{message}")]
    Errno {
        /// Such as EINVAL, ENOTUNIQ, ENODEV, EPERM, EBUSY, EEXIST (errno(3)).
        errno: i32,
        /// Why.
        message: String,
    },
    /// Its data threads did not answer in time, or too much output waits for slow clients.
    #[error("ibtapd is busy; try again")]
    Busy,
}
