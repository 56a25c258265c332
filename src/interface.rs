//! One interface: its TAP and its state on the host. The payload holds the links and their settings.

mod alias;
mod events;
mod fabric_link;
pub mod groups;
mod left;
mod link;
mod names;
mod namespace;
mod tap;

use control::config::InterfaceConfig;
use fabric::FabricError;
use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, TapError, TapQueue, is_gone};
use proto::Time;
use rtnl::{Link, Requests};

use crate::datapath::{LinkId, now};
use crate::fdstore;
use crate::port::PortId;
pub use alias::Alias;
pub use events::{Events, Pending, Subject};
pub use fabric_link::FabricLink;
pub use left::LeftBehind;
pub use link::Change;
pub use names::Names;
use namespace::described;
pub use namespace::{Found, Place, closed, has_lost_namespace, locate, unreachable, visit};
use tap::Opened;
pub use tap::{Patience, TapSources, UnservedTap};

/// Why an interface could not be created.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// Error of the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Error of the TAP.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// Error of an interface in another network namespace, whose root may have caused it; with the namespace.
    #[error("in {0}: {1}")]
    Elsewhere(String, Box<InterfaceError>),
    /// Error of rtnetlink.
    #[error("{0}: {1}")]
    Netlink(String, rtnl::Error),
    /// The MTU is out of range; the text is a whole sentence.
    #[error("{0}")]
    Mtu(String),
    /// The parent does not exist; with its configured name.
    #[error("its parent {0} is not in service on its port")]
    NoParent(String),
    /// The port's P_Key table cannot hold the partition; the text is a whole sentence.
    #[error("{0}")]
    Pkeys(String),
    /// The TAP to take over is gone or was replaced.
    #[error("the interface {0} is gone")]
    Vanished(String),
    /// The port does not support the mode; the text is a whole sentence.
    #[error("{0}")]
    Mode(String),
    /// The network namespace does not exist or cannot be entered; the text is a whole sentence.
    #[error("{0}")]
    Netns(String),
}

impl InterfaceError {
    /// For an interface in another namespace, which has this name in the configuration.
    pub(crate) fn elsewhere(self, netns: Option<&str>) -> InterfaceError {
        match self {
            e @ (InterfaceError::Netns(_) | InterfaceError::Elsewhere(..)) => e,
            e => InterfaceError::Elsewhere(described(netns), Box::new(e)),
        }
    }

    /// The error without the namespace.
    pub(crate) fn cause(&self) -> &InterfaceError {
        match self {
            InterfaceError::Elsewhere(_, e) => e,
            e => e,
        }
    }
}

/// The largest frame in bytes that the host sends to an interface. With all packet headers it stays below
/// the limit of 64 KiB for one send of a software fabric's underlay (see `docs/performance.md`).
pub const GSO_MAX: u32 = 60_000;

/// The largest frame in bytes that guests may send, and the largest packet of connected mode with its
/// headers: the default of the kernel, veth and virtio-net. As datagrams it leaves in two trains.
pub const GSO_MAX_WHOLE: u32 = 65_536;

/// The kernel's default MTU of a TAP in bytes (drivers/net/tun.c, tun_net_initialize: ETH_DATA_LEN).
pub const TAP_MTU: u32 = 1500;

/// The id of an interface; never reused while the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InterfaceId(u32);

impl InterfaceId {
    /// The id with this number.
    pub fn new(number: u32) -> InterfaceId {
        InterfaceId(number)
    }

    /// The id of the interface's own link. It has the same number.
    pub fn link(self) -> LinkId {
        LinkId(self.0)
    }
}

/// How long an interface keeps the carrier of a former daemon while an answer of its Ethernet Manager or of the fabric is
/// missing, in milliseconds: the lease of a manager that has announced none.
const CARRIER_LEFT_MS: u64 = 15_000;

/// An interface in service.
pub struct Interface {
    /// The id.
    pub id: InterfaceId,
    /// The fabric port.
    pub port: PortId,
    /// Current interface name.
    pub name: String,
    /// Interface index.
    pub ifindex: u32,
    /// The network namespace, as a number in the daemon's.
    pub place: Place,
    /// The network namespace, with an id that is valid while it exists; `None`: the daemon's own.
    pub namespace: Option<NamespaceId>,
    /// The namespace's name for clients; as [`control::api::Event::netns`].
    pub netns: Option<String>,
    /// The TAP.
    pub tap: Tap,
    /// The TAP queues; the data threads have shares of them.
    pub queues: Vec<TapQueue>,
    /// The TAP's MAC.
    pub mac: [u8; 6],
    /// The TAP's current MTU in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// The carrier as set last.
    pub carrier: bool,
    /// Since when the interface has been up with carrier, if it is.
    pub usable_since: Time,
    /// Until when the carrier of a former daemon may stay while an answer is missing that decides it; `None` after the
    /// carrier was set.
    pub carrier_left: Option<Time>,
    /// Receive coalescing as read last (`ethtool -K gro`).
    pub coalesce: bool,
    /// After a move: when the alias is written at the latest.
    pub alias_due: Option<Time>,
}

/// Settings of an interface that comes into service.
pub struct Setup<'a> {
    /// MAC of a new TAP; `None`: the kernel's choice. An existing TAP keeps its MAC.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether an existing TAP keeps its MTU instead.
    pub keeps_mtu: &'a dyn Fn(&Link) -> bool,
    /// The largest frame in bytes that the host sends to the interface.
    pub gso_max: u32,
    /// Alias.
    pub alias: String,
    /// Whether to set the interface up.
    pub up: bool,
}

impl Interface {
    /// Creates the TAP or takes it over. The carrier is off, except if the TAP's queues were never closed:
    /// a carrier loss would flush what bridges have learned and, with some network managers, the addresses.
    ///
    /// # Errors
    /// [`InterfaceError`]. Nothing stays behind.
    pub fn open(
        id: InterfaceId,
        port: PortId,
        spec: &InterfaceConfig,
        queues: usize,
        site: &mut TapSources<'_>,
    ) -> Result<(Interface, Origin), InterfaceError> {
        let opened = Opened::find(spec, queues, site)?;
        let there = opened.namespace.as_ref();
        let interface = Interface {
            id,
            port,
            name: opened.name,
            ifindex: opened.tap.ifindex(),
            place: Place::HOME,
            namespace: there.and_then(|there| there.id().ok()),
            netns: None,
            tap: opened.tap,
            queues: opened.queues,
            mac: [0; 6],
            mtu: 0,
            up: false,
            carrier: false,
            usable_since: now(),
            carrier_left: opened.inherited.then(|| now().after(CARRIER_LEFT_MS)),
            coalesce: true,
            alias_due: None,
        };
        let origin = Origin {
            inherited: opened.inherited,
            namespace: opened.namespace,
        };
        Ok((interface, origin))
    }

    /// Sets the properties that `ip link` shows. True if the interface is up or will be.
    ///
    /// # Errors
    /// [`InterfaceError`]. The caller then calls [`Interface::abandon`].
    pub fn prepare(
        &mut self,
        origin: &Origin,
        netns: Option<&str>,
        netlink: &mut Requests,
        setup: &Setup<'_>,
    ) -> Result<bool, InterfaceError> {
        match &origin.namespace {
            None => self.prepare_here(netlink, setup),
            Some(there) => visit(there, |netlink| self.prepare_here(netlink, setup))
                .unwrap_or_else(|e| Err(closed(netns, &e)))
                .map_err(|e| e.elsewhere(netns)),
        }
    }

    fn prepare_here(
        &mut self,
        netlink: &mut Requests,
        setup: &Setup<'_>,
    ) -> Result<bool, InterfaceError> {
        let name = self.name.clone();
        let step = |what: &str, done: Result<(), rtnl::Error>| {
            done.map_err(|e| InterfaceError::Netlink(format!("cannot set the {what} of {name}"), e))
        };
        // The index may have changed with the move.
        let link = match self.namespace {
            None => netlink.link_by_index(self.ifindex),
            Some(_) => netlink.link_by_name(&name),
        };
        let link =
            link.map_err(|e| InterfaceError::Netlink(format!("cannot read the link {name}"), e))?;
        self.ifindex = link.index;
        self.mac = match setup.mac {
            Some(mac) if link.address != Some(mac) && !self.tap.existed() => {
                step("MAC address", netlink.set_mac(self.ifindex, mac))?;
                mac
            }
            mac => link.address.or(mac).unwrap_or_default(),
        };
        if self.tap.existed() && (setup.keeps_mtu)(&link) {
            self.mtu = link.mtu;
        } else {
            step("MTU", netlink.set_mtu(self.ifindex, setup.mtu))?;
            self.mtu = setup.mtu;
        }
        self.set_gso_max(netlink, setup.gso_max);
        step("alias", self.write_alias(netlink, &link, &setup.alias))?;
        // A TAP with an alias was in use, so the administrator has set it down.
        let has_alias = link.alias.is_some_and(|alias| !alias.is_empty());
        let left_down = self.tap.existed() && has_alias;
        let comes_up = setup.up && !link.up && !left_down;
        if comes_up {
            step("state", netlink.set_up(self.ifindex))?;
        } else if setup.up && !link.up {
            log::info!(
                "{name}: the interface was down before the start and stays down; set it up with ip link"
            );
        }
        self.up = link.up;
        Ok(link.up || comes_up)
    }

    /// Writes the interface's alias, unless the administrator has set another one. `link` is the interface
    /// as read now.
    ///
    /// # Errors
    /// Errors of rtnetlink.
    pub fn write_alias(
        &self,
        netlink: &mut Requests,
        link: &Link,
        alias: &str,
    ) -> Result<(), rtnl::Error> {
        if !Alias::is_free(link.alias.as_deref()) || link.alias.as_deref() == Some(alias) {
            return Ok(());
        }
        netlink.set_alias(self.ifindex, alias)
    }

    /// The subject of events about the interface.
    pub fn subject(&self) -> Subject {
        Subject::Interface(self.name.clone(), self.netns.clone())
    }

    /// Sets the largest frame that the host sends to the interface. Frames of guests were cut for the
    /// guests' own interfaces already: with a smaller limit than theirs, the kernel would cut them into
    /// single packets.
    pub fn set_gso_max(&self, netlink: &mut Requests, most: u32) {
        // Older kernels refuse; frames are then up to 64 KiB and leave in two trains.
        if let Err(e) = netlink.set_gso_max(self.ifindex, most) {
            log::debug!("{}: cannot set gso_max_size: {e}", self.name);
        }
    }

    /// Undoes a failed [`Interface::prepare`].
    pub fn abandon(&self, spec: &InterfaceConfig, origin: &Origin) {
        // The daemon may go on without the interface, and its next attempt needs a TAP that nobody holds.
        if origin.is_kept_elsewhere() {
            fdstore::remove(&fdstore::label(spec));
        }
        self.undo(spec.persist);
    }

    /// Undoes a failed start: removes a new TAP that was made persistent.
    pub fn undo(&self, persist: bool) {
        if persist
            && !self.tap.existed()
            && let Err(e) = self.tap.set_persist(false)
        {
            log::warn!("{}: cannot remove the interface: {e}", self.name);
        }
    }

    /// Whether the carrier of a former daemon may stay, so that a restart does not interrupt traffic.
    pub fn has_left_carrier(&self) -> bool {
        self.carrier_left.is_some_and(|until| now() < until)
    }

    /// Sets the carrier; true if that succeeded. `ip link` shows NO-CARRIER if it is off.
    pub fn set_carrier(&mut self, on: bool) -> bool {
        self.carrier_left = None;
        let set = self.tap.set_carrier(on);
        match &set {
            Ok(()) => (self.carrier, self.usable_since) = (on, now()),
            // Deleted; a notification will follow.
            Err(e) if is_gone(e) => log::debug!("{}: cannot set the carrier: {e}", self.name),
            Err(e) => log::warn!("{}: cannot set the carrier: {e}", self.name),
        }
        set.is_ok()
    }

    /// Sends requests to the kernel in the interface's namespace; `home` is for the daemon's own. All
    /// requests over rtnetlink, ethtool and `/proc` about an interface use this function. `None` if the
    /// interface cannot be reached: deleted, moved (the kernel will announce both), or in a namespace that
    /// the daemon cannot enter.
    pub fn inside<T>(
        &mut self,
        home: &mut Requests,
        ask: impl FnOnce(&mut Interface, &mut Requests) -> T,
    ) -> Option<T> {
        if self.place == Place::HOME {
            return Some(ask(self, home));
        }
        let there = self.tap.namespace().ok()?;
        if there.id().ok() != self.namespace {
            return None;
        }
        let answer = visit(&there, |netlink| ask(self, netlink));
        answer
            .inspect_err(|e| log::debug!("{}: cannot enter its network namespace: {e}", self.name))
            .ok()
    }

    /// The namespace of the interface, if it is not the daemon's. The caller must not keep it.
    pub fn elsewhere(&self) -> Option<Namespace> {
        let there = self.tap.namespace().ok()?;
        (self.place != Place::HOME && there.id().ok() == self.namespace).then_some(there)
    }
}

/// The origin of an interface's TAP.
pub struct Origin {
    /// Its queues were never closed.
    pub inherited: bool,
    /// Its namespace, if it is not the daemon's.
    pub namespace: Option<Namespace>,
}

impl Origin {
    /// Whether the service manager keeps the queues of an interface in another namespace. A TAP that was adopted there
    /// may have the label of another interface.
    fn is_kept_elsewhere(&self) -> bool {
        self.inherited && self.namespace.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_has_no_queues_of_a_tap_that_was_adopted_elsewhere() {
        let is_kept = |inherited, is_elsewhere: bool| {
            let namespace = is_elsewhere.then(|| Namespace::current().unwrap());
            let origin = Origin {
                inherited,
                namespace,
            };
            origin.is_kept_elsewhere()
        };
        assert!(is_kept(true, true));
        assert!(!is_kept(false, true) && !is_kept(true, false));
    }
}
