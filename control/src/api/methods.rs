//! The methods of the interface, with types of parameters and results, for clients.

use std::marker::PhantomData;

use super::*;

/// A method with parameters `P` and one reply.
#[derive(Debug)]
pub struct Method<P, R> {
    /// Its name, without the interface's name.
    pub name: &'static str,
    /// The key of the result `R` in the reply's parameters; `None`: the parameters are the `R`.
    pub member: Option<&'static str>,
    types: PhantomData<fn(P) -> R>,
}

/// A method with parameters `P` and a stream of replies `R`.
#[derive(Debug)]
pub struct StreamMethod<P, R> {
    /// Its name, without the interface's name.
    pub name: &'static str,
    types: PhantomData<fn(P) -> R>,
}

/// A method whose reply's parameters are an `R`.
pub(crate) const fn whole<P, R>(name: &'static str) -> Method<P, R> {
    Method {
        name,
        member: None,
        types: PhantomData,
    }
}

/// A method whose reply's parameters have only an `R` with this key.
const fn member<P, R>(name: &'static str, member: &'static str) -> Method<P, R> {
    Method {
        name,
        member: Some(member),
        types: PhantomData,
    }
}

const fn stream<P, R>(name: &'static str) -> StreamMethod<P, R> {
    StreamMethod {
        name,
        types: PhantomData,
    }
}

/// See [`Request::Version`].
pub const VERSION: Method<Nothing, VersionInfo> = whole("Version");
/// See [`Request::Show`].
pub const SHOW: Method<Selection, Vec<InterfaceInfo>> = member("Show", "interfaces");
/// See [`Request::Stats`].
pub const STATS: Method<Selection, Vec<InterfaceStats>> = member("Stats", "stats");
/// See [`Request::Neighbours`].
pub const NEIGHBOURS: Method<Interface, Vec<NeighbourInfo>> = member("Neighbours", "neighbours");
/// See [`Request::Guests`].
pub const GUESTS: Method<Interface, Vec<GuestInfo>> = member("Guests", "guests");
/// See [`Request::Groups`].
pub const GROUPS: Method<Interface, Vec<GroupInfo>> = member("Groups", "groups");
/// See [`Request::Paths`].
pub const PATHS: Method<Interface, Vec<PathInfo>> = member("Paths", "paths");
/// See [`Request::Connections`].
pub const CONNECTIONS: Method<Selection, Vec<ConnectionInfo>> =
    member("Connections", "connections");
/// See [`Request::Mode`].
pub const MODE: Method<ModeRequest, Mode> = member("Mode", "mode");
/// See [`Request::ChildAdd`]; returns the child's name.
pub const CHILD_ADD: Method<ChildAddRequest, String> = member("ChildAdd", "interface");
/// See [`Request::ChildDel`].
pub const CHILD_DEL: Method<ChildDelRequest, Nothing> = whole("ChildDel");
/// See [`Request::Children`].
pub const CHILDREN: Method<Selection, Vec<ChildInfo>> = member("Children", "children");
/// See [`Request::Pkeys`].
pub const PKEYS: Method<PkeysRequest, Vec<PkeyTable>> = member("Pkeys", "tables");
/// See [`Request::Mtu`].
pub const MTU: Method<MtuRequest, u32> = member("Mtu", "mtu");
/// See [`Request::Umcast`].
pub const UMCAST: Method<UmcastRequest, bool> = member("Umcast", "umcast");
/// See [`Request::Moderation`].
pub const MODERATION: Method<ModerationRequest, Moderation> = whole("Moderation");
/// See [`Request::Resources`].
pub const RESOURCES: Method<Nothing, Vec<ResourcesInfo>> = member("Resources", "resources");
/// See [`Request::Ports`].
pub const PORTS: Method<Nothing, Vec<PortInfo>> = member("Ports", "ports");
/// See [`Request::Metrics`].
pub const METRICS: Method<Nothing, String> = member("Metrics", "text");
/// See [`Request::LogLevel`].
pub const LOG_LEVEL: Method<Level, Nothing> = whole("LogLevel");
/// See [`Request::Reload`]. The reply may wait until a new underlay has an address.
pub const RELOAD: Method<Nothing, Reloaded> = whole("Reload");
/// See [`Request::Monitor`].
pub const MONITOR: StreamMethod<Selection, Monitored> = stream("Monitor");
/// See [`Request::Ping`].
pub const PING: StreamMethod<PingRequest, PingReply> = stream("Ping");
/// See [`Request::Vnics`].
pub const VNICS: Method<Selection, Vec<VnicInfo>> = member("Vnics", "vnics");
/// See [`Request::VnicStats`].
pub const VNIC_STATS: Method<Selection, Vec<super::VnicStats>> = member("VnicStats", "stats");
/// See [`Request::VnicMacs`].
pub const VNIC_MACS: Method<Interface, Vec<VnicMac>> = member("VnicMacs", "macs");
/// See [`Request::VnicMembers`].
pub const VNIC_MEMBERS: Method<Interface, Vec<VnicMember>> = member("VnicMembers", "members");
/// See [`Request::Manage`].
pub const MANAGE: StreamMethod<ManageRequest, ManageReply> = stream("Manage");
/// See [`Request::SendManagement`].
pub const SEND_MANAGEMENT: Method<SendManagementRequest, Nothing> = whole("SendManagement");
