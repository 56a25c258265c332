//! Requests, replies and errors of the control socket.
//!
//! The JSON resembles that of `ip -j`: lower-case snake-case keys, numbers as numbers, absent keys instead of
//! null. Later versions only add keys. The daemon and its clients use the same types; `ibtap --json` prints
//! their arrays. `control/org.ibtap.Daemon.varlink` is the description in varlink's interface definition
//! language.

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
    EchoAnswer, EchoTimeout, PING_INTERVAL_MIN_MS, PING_INTERVAL_MS, PING_SIZE,
    PING_TIMEOUT_MAX_MS, PingReply, PingRequest, PingSummary,
};
pub use proto::{ConfigState, DhcpMode, LinkLayer, Mode, PortState};
pub use reply::{
    CmIdInfo, CompletionQueueInfo, ConnectionInfo, ConnectionRole, GroupInfo, GroupRecord,
    GuestInfo, InterfaceInfo, InterfaceStats, LinkInfo, MemberInfo, MemoryRegionInfo,
    NeighbourInfo, NeighbourState, PathInfo, PortInfo, ProtectionDomainInfo, QueuePairInfo,
    ResourcesInfo, SharedReceiveQueueInfo, VersionInfo, WorkerStats,
};
pub use scalar::{Counters, HardwareAddress, Hex, LinkAddress, LogLevel, MacAddress};

use serde::{Deserialize, Serialize};

/// The name of the varlink interface.
pub const INTERFACE: &str = "org.ibtap.Daemon";

/// A method of [`INTERFACE`] with its parameters. The name of the variant is the method's name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub enum Request {
    /// Get the daemon's version.
    Version,
    /// Get all IPoIB interfaces, or one.
    Show(Selection),
    /// Get the counters of all IPoIB interfaces, or of one.
    Stats(Selection),
    /// Get the neighbour table of an interface.
    Neighbours(Interface),
    /// Get the guests behind an interface.
    Guests(Interface),
    /// Get the multicast groups of an interface.
    Groups(Interface),
    /// Get the paths (address handles) of an interface.
    Paths(Interface),
    /// Get the reliable connections of all interfaces, or of one.
    Connections(Selection),
    /// Get or set the transport mode of an interface.
    Mode(ModeRequest),
    /// Add a child interface in another partition.
    ChildAdd(ChildAddRequest),
    /// Remove a child interface.
    ChildDel(ChildDelRequest),
    /// Get the children of all interfaces, or of one.
    Children(Selection),
    /// Get P_Key tables, or set one.
    Pkeys(PkeysRequest),
    /// Get or set the IP MTU of an interface.
    Mtu(MtuRequest),
    /// Get or set the flag `umcast`: user programs join groups.
    Umcast(UmcastRequest),
    /// Get or set completion moderation (`ethtool -C`).
    Moderation(ModerationRequest),
    /// Get queue pairs, completion queues and group attachments of all ports.
    Resources,
    /// Get attributes, P_Key table and counters of all ports.
    Ports,
    /// Get counters and states in the OpenMetrics text format.
    Metrics,
    /// Set the log level.
    LogLevel(Level),
    /// Read the configuration file again and apply the changes.
    Reload,
    /// Report events of all interfaces, or of one: a stream of replies.
    Monitor(Selection),
    /// Send echo requests: a stream of replies.
    Ping(PingRequest),
    /// Get all VNICs, or one.
    Vnics(Selection),
    /// Get the counters of all VNICs, or of one.
    VnicStats(Selection),
    /// Get the Ethernet addresses that a VNIC knows.
    VnicMacs(Interface),
    /// Get the members of a VNIC's switch.
    VnicMembers(Interface),
    /// Receive the management datagrams of a port: a stream of replies.
    Manage(ManageRequest),
    /// Send a management datagram.
    SendManagement(SendManagementRequest),
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reads the state.
    Reads,
    /// Sends datagrams to the fabric.
    Sends,
    /// Changes the daemon or its interfaces.
    Changes,
}

impl Request {
    /// What the request does. A request that gets or sets a value reads if it has no value.
    pub fn effect(&self) -> Effect {
        let changes_if = |changes| match changes {
            true => Effect::Changes,
            false => Effect::Reads,
        };
        match self {
            Request::Version
            | Request::Show(_)
            | Request::Stats(_)
            | Request::Neighbours(_)
            | Request::Guests(_)
            | Request::Groups(_)
            | Request::Paths(_)
            | Request::Connections(_)
            | Request::Children(_)
            | Request::Resources
            | Request::Ports
            | Request::Metrics
            | Request::Monitor(_)
            | Request::Vnics(_)
            | Request::VnicStats(_)
            | Request::VnicMacs(_)
            | Request::VnicMembers(_) => Effect::Reads,
            Request::Ping(_) | Request::SendManagement(_) => Effect::Sends,
            Request::ChildAdd(_)
            | Request::ChildDel(_)
            | Request::LogLevel(_)
            | Request::Reload
            | Request::Manage(_) => Effect::Changes,
            Request::Mode(request) => changes_if(request.mode.is_some()),
            Request::Pkeys(request) => changes_if(request.pkeys.is_some()),
            Request::Mtu(request) => changes_if(request.mtu.is_some()),
            Request::Umcast(request) => changes_if(request.umcast.is_some()),
            Request::Moderation(request) => {
                changes_if(request.rx_usecs.is_some() || request.rx_frames.is_some())
            }
        }
    }

    /// Whether the answer is a stream of replies.
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
    /// Only this interface; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// Parameters of requests about one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Interface name.
    pub interface: String,
}

impl Selection {
    /// Selects the named interface, or all.
    pub fn of(interface: Option<&str>) -> Selection {
        Selection {
            interface: interface.map(str::to_owned),
        }
    }
}

impl Interface {
    /// Selects the interface of this name.
    pub fn of(name: &str) -> Interface {
        Interface {
            interface: name.to_owned(),
        }
    }
}

/// A reply to [`Request::Monitor`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Monitored {
    /// The event.
    pub event: Event,
}

/// Parameters of [`Request::Mode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    /// The interface.
    pub interface: String,
    /// The new mode; absent: no change.
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

/// A reply; it serialises to the parameters of a varlink reply.
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
        /// The counters of each interface.
        stats: Vec<InterfaceStats>,
    },
    /// To [`Request::Neighbours`].
    Neighbours {
        /// The table.
        neighbours: Vec<NeighbourInfo>,
    },
    /// To [`Request::Guests`].
    Guests {
        /// The IP addresses of the guests.
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
        /// The current mode.
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
        /// The children, in the order of their creation.
        children: Vec<ChildInfo>,
    },
    /// To [`Request::Pkeys`].
    Pkeys {
        /// The table of each port.
        tables: Vec<PkeyTable>,
    },
    /// To [`Request::Mtu`].
    Mtu {
        /// The IP MTU in bytes.
        mtu: u32,
    },
    /// To [`Request::Umcast`].
    Umcast {
        /// The flag.
        umcast: bool,
    },
    /// To [`Request::Moderation`].
    Moderation(Moderation),
    /// To [`Request::Resources`].
    Resources {
        /// The resources of each port.
        resources: Vec<ResourcesInfo>,
    },
    /// To [`Request::Ports`].
    Ports {
        /// The ports.
        ports: Vec<PortInfo>,
    },
    /// To [`Request::Metrics`].
    Metrics {
        /// Text in the OpenMetrics format.
        text: String,
    },
    /// To [`Request::LogLevel`].
    LogLevel {},
    /// To [`Request::Reload`].
    Reload(Reloaded),
    /// To [`Request::Monitor`], one of a stream.
    Monitor {
        /// The event.
        event: Event,
    },
    /// To [`Request::Ping`], one of a stream.
    Ping(PingReply),
    /// To [`Request::Vnics`], in the order of their creation.
    Vnics {
        /// The VNICs.
        vnics: Vec<VnicInfo>,
    },
    /// To [`Request::VnicStats`].
    VnicStats {
        /// The counters of each VNIC.
        stats: Vec<VnicStats>,
    },
    /// To [`Request::VnicMacs`].
    VnicMacs {
        /// The addresses, sorted.
        macs: Vec<VnicMac>,
    },
    /// To [`Request::VnicMembers`].
    VnicMembers {
        /// The members, by LID.
        members: Vec<VnicMember>,
    },
    /// To [`Request::Manage`], one of a stream.
    Manage(ManageReply),
    /// To [`Request::SendManagement`].
    SendManagement {},
}

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// A sentence for each applied change.
    pub applied: Vec<String>,
    /// A sentence with advice for each refused change.
    pub refused: Vec<String>,
}

/// Errors of requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The daemon serves no interface of this name.
    #[error("ibtapd serves no interface named {interface:?}")]
    NoSuchInterface {
        /// The name.
        interface: String,
    },
    /// A parameter has an unusable value.
    #[error("{message}")]
    BadArgument {
        /// The reason, a whole sentence.
        message: String,
    },
    /// The daemon cannot do this.
    #[error("{message}")]
    Refused {
        /// The reason, a whole sentence.
        message: String,
    },
    /// A refusal with the error number of the kernel's IPoIB.
    #[error("{message}")]
    Errno {
        /// EINVAL, ENOTUNIQ, ENODEV, EPERM, EBUSY, EEXIST, … (errno(3)).
        errno: i32,
        /// The reason, a whole sentence.
        message: String,
    },
    /// The data threads did not answer in time, or too much output waits for slow clients.
    #[error("ibtapd is busy; try again")]
    Busy,
}
