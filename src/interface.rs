//! One interface: a TAP, and what the host sees of it. What it carries, and over which link of the fabric, is
//! its payload's.

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
use rtnl::{Link, Requests};

use crate::datapath::LinkId;
use crate::port::PortId;
pub use alias::Alias;
pub use events::{Events, Subject};
pub use fabric_link::FabricLink;
pub use left::LeftBehind;
pub use link::Change;
pub use names::Names;
pub use namespace::{Found, Place, closed, locate, unreachable, visit};
use tap::Opened;
pub use tap::{TapSources, UnservedTap};

/// Why an interface could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The TAP could not be made.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// rtnetlink refused.
    #[error("{0}: {1}")]
    Netlink(String, rtnl::Error),
    /// The MTU does not fit; the text is a whole sentence.
    #[error("{0}")]
    Mtu(String),
    /// It is to be a child of a device that is not there; with the configured name of that.
    #[error("there is no interface {0} on its port to be a child of")]
    NoParent(String),
    /// The port's P_Key table could not take its partition in; the text is a whole sentence.
    #[error("{0}")]
    Pkeys(String),
    /// The interface that was to be taken over is gone, or another one now.
    #[error("the interface {0} is gone")]
    Vanished(String),
    /// The port does not serve the mode; the text is a whole sentence.
    #[error("{0}")]
    Mode(String),
    /// The network namespace is not there or cannot be entered; the text is a whole sentence.
    #[error("{0}")]
    Netns(String),
}

/// The largest frame that the host gives to an interface at once: with all packet headers it stays under the
/// limit of 64 KiB for one send of a software fabric's underlay (see `docs/performance.md`).
pub const GSO_MAX: u32 = 60_000;

/// The largest frame that guests may send, and the largest packet of IPoIB's connected mode with its headers:
/// the default of the kernel, of veth and of virtio-net. As datagrams it leaves in two trains.
pub const GSO_MAX_WHOLE: u32 = 65_536;

/// The MTU in bytes of a TAP that nobody has set one for (kernel drivers/net/tun.c,
/// tun_net_initialize: ETH_DATA_LEN).
pub const TAP_MTU: u32 = 1500;

/// Names an interface of this daemon; never reused while the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InterfaceId(u32);

impl InterfaceId {
    /// The interface with this number.
    pub fn new(number: u32) -> InterfaceId {
        InterfaceId(number)
    }

    /// The id of the interface's own link in the data threads: it has the same number.
    pub fn link(self) -> LinkId {
        LinkId(self.0)
    }
}

/// An interface in service.
pub struct Interface {
    /// Its id in this daemon.
    pub id: InterfaceId,
    /// Its fabric port.
    pub port: PortId,
    /// Interface name now.
    pub name: String,
    /// Interface index.
    pub ifindex: u32,
    /// Where the interface is.
    pub place: Place,
    /// The same for as long as that namespace lives; `None`: the daemon's own.
    pub namespace: Option<NamespaceId>,
    /// What that is called, for those who watch; as [`control::api::Event::netns`].
    pub netns: Option<String>,
    /// The TAP.
    pub tap: Tap,
    /// TAP queues, of which the data threads have shares.
    pub queues: Vec<TapQueue>,
    /// The TAP's MAC.
    pub mac: [u8; 6],
    /// The TAP's MTU now.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// Carrier as last set.
    pub carrier: bool,
    /// Receive coalescing as last seen (`ethtool -K gro`).
    pub coalesce: bool,
}

/// How an interface is set up that comes into service.
pub struct Setup<'a> {
    /// MAC of a new interface; `None`: the kernel's choice. An interface that was there keeps its own.
    pub mac: Option<[u8; 6]>,
    /// MTU.
    pub mtu: u32,
    /// Whether the MTU of an interface that was there stays instead.
    pub keeps_mtu: &'a dyn Fn(&Link) -> bool,
    /// The largest send that the host gives to the interface at once.
    pub gso_max: u32,
    /// Alias.
    pub alias: String,
    /// Bring the interface up.
    pub up: bool,
}

impl Interface {
    /// Makes the TAP, or takes it over; without carrier, unless its queues were open all the time. The
    /// queues of one that was never without a queue keep the carrier: to lose it would flush what bridges
    /// have learned and, with some network managers, the addresses.
    ///
    /// # Errors
    /// [`InterfaceError`]; nothing is left behind.
    pub fn open(
        id: InterfaceId,
        port: PortId,
        spec: &InterfaceConfig,
        queues: usize,
        site: &mut TapSources<'_>,
    ) -> Result<(Interface, Origin), InterfaceError> {
        let opened = Opened::find(spec, queues, site)?;
        let there = opened.namespace.as_ref();
        let mut interface = Interface {
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
            coalesce: true,
        };
        if !opened.inherited {
            interface.set_carrier(false);
        }
        let origin = Origin {
            inherited: opened.inherited,
            namespace: opened.namespace,
        };
        Ok((interface, origin))
    }

    /// Sets what `ip link` shows. True if the interface is up, or is going to be.
    ///
    /// # Errors
    /// [`InterfaceError`]; the caller undoes the interface then.
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
                .unwrap_or_else(|e| Err(closed(netns, &e))),
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
        // Its index may be another one where it was moved to.
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
        // One that has an alias was in use, and somebody has set it down.
        let has_alias = link.alias.is_some_and(|alias| !alias.is_empty());
        let left_down = self.tap.existed() && has_alias;
        let comes_up = setup.up && !link.up && !left_down;
        if comes_up {
            step("state", netlink.set_up(self.ifindex))?;
        } else if setup.up && !link.up {
            log::info!("{name}: it was set down, and is left so");
        }
        self.up = link.up;
        Ok(link.up || comes_up)
    }

    /// Writes the alias of `link`, the interface's, unless the administrator has written something else
    /// there.
    ///
    /// # Errors
    /// What rtnetlink says.
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

    /// What events about it are about.
    pub fn subject(&self) -> Subject {
        Subject::Interface(self.name.clone(), self.netns.clone())
    }

    /// Sets the largest send that the host gives to the interface at once. What guests send was cut for their
    /// own interfaces already: with less than they may send, the kernel would cut it into single packets.
    pub fn set_gso_max(&self, netlink: &mut Requests, most: u32) {
        // Older kernels refuse; sends are then up to 64 KiB and leave in two trains.
        if let Err(e) = netlink.set_gso_max(self.ifindex, most) {
            log::debug!("{}: gso_max_size stays as it is: {e}", self.name);
        }
    }

    /// Removes what would outlive a start that fails: an interface that was not there before, and that is to
    /// persist.
    pub fn undo(&self, persist: bool) {
        if persist
            && !self.tap.existed()
            && let Err(e) = self.tap.set_persist(false)
        {
            log::warn!("{}: cannot be removed: {e}", self.name);
        }
    }

    /// Sets the carrier, which `ip link` shows as NO-CARRIER when off.
    pub fn set_carrier(&mut self, on: bool) {
        match self.tap.set_carrier(on) {
            Ok(()) => self.carrier = on,
            // It was deleted, which will be told.
            Err(e) if is_gone(&e) => log::debug!("{}: cannot set the carrier: {e}", self.name),
            Err(e) => log::warn!("{}: cannot set the carrier: {e}", self.name),
        }
    }

    /// Asks the kernel in the namespace where the interface is, over `home` in the daemon's own; everything
    /// about an interface that goes through rtnetlink, ethtool or `/proc` goes through here. `None` if the
    /// interface cannot be reached: it is gone or has moved on, which the kernel will announce, or the daemon
    /// may not go there.
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
            .inspect_err(|e| log::debug!("{}: its network namespace: {e}", self.name))
            .ok()
    }

    /// The namespace of the interface, if it is another one than the daemon's. It must not be kept.
    pub fn elsewhere(&self) -> Option<Namespace> {
        let there = self.tap.namespace().ok()?;
        (self.place != Place::HOME && there.id().ok() == self.namespace).then_some(there)
    }
}

/// Where an interface's TAP came from.
pub struct Origin {
    /// Its queues were open all the time.
    pub inherited: bool,
    /// Where it is, if not in the daemon's own network namespace.
    pub namespace: Option<Namespace>,
}
