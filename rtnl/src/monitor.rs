//! Notifications.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::Error;
use crate::address::{self, Address};
use crate::link::{self, Link};
use crate::listener::{Listener, Reach};
use crate::nsid;
use crate::transport::Message;

// Message types of kernel include/uapi/linux/rtnetlink.h; those for groups are of 2025.
const RTM_NEWMULTICAST: u16 = 56;
const RTM_DELMULTICAST: u16 = 57;
const RTM_DELNETCONF: u16 = 81;
const RTM_DELNSID: u16 = 89;

/// Families of multicast routes (kernel include/uapi/linux/rtnetlink.h, RTNL_FAMILY_IPMR and
/// RTNL_FAMILY_IP6MR).
const FAMILY_IPMR: u8 = 128;
const FAMILY_IP6MR: u8 = 129;

/// What to be told about (`enum rtnetlink_groups`, kernel include/uapi/linux/rtnetlink.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Interfaces: made, changed, gone.
    Link,
    /// IPv4 addresses.
    Ipv4Address,
    /// IPv6 addresses.
    Ipv6Address,
    /// IPv4 multicast groups that the host joins and leaves; kernels of 2025 and later.
    Ipv4Multicast,
    /// IPv6 multicast groups that the host joins and leaves; kernels of 2025 and later.
    Ipv6Multicast,
    /// IPv4 multicast routes; kernels with multicast routing.
    Ipv4MulticastRoute,
    /// IPv6 multicast routes; kernels with multicast routing.
    Ipv6MulticastRoute,
    /// IPv4 settings of interfaces, multicast forwarding among them.
    Ipv4Netconf,
    /// IPv6 settings of interfaces, multicast forwarding among them.
    Ipv6Netconf,
    /// Namespaces with a number: gone.
    Namespace,
}

impl Group {
    fn number(self) -> u32 {
        match self {
            Group::Link => libc::RTNLGRP_LINK,
            Group::Ipv4Address => libc::RTNLGRP_IPV4_IFADDR,
            Group::Ipv6Address => libc::RTNLGRP_IPV6_IFADDR,
            Group::Ipv4Multicast => 37,
            Group::Ipv6Multicast => 38,
            Group::Ipv4MulticastRoute => libc::RTNLGRP_IPV4_MROUTE,
            Group::Ipv6MulticastRoute => libc::RTNLGRP_IPV6_MROUTE,
            Group::Ipv4Netconf => libc::RTNLGRP_IPV4_NETCONF,
            Group::Ipv6Netconf => libc::RTNLGRP_IPV6_NETCONF,
            Group::Namespace => libc::RTNLGRP_NSID,
        }
    }

    fn is_optional(self) -> bool {
        !matches!(
            self,
            Group::Link | Group::Ipv4Address | Group::Ipv6Address | Group::Namespace
        )
    }
}

/// What changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An interface was made or changed: this is what it is like now.
    LinkChanged(Link),
    /// An interface left this namespace.
    LinkGone {
        /// Its index here.
        index: u32,
        /// Its name at the end.
        name: String,
        /// It moved to another namespace; else it was deleted.
        moved: bool,
    },
    /// An address was added or changed.
    AddressAdded(Address),
    /// An address was removed.
    AddressRemoved(Address),
    /// The host joined a group on an interface. The kernel reports its first member alone.
    MulticastAdded {
        /// The interface.
        ifindex: u32,
        /// The group.
        group: IpAddr,
    },
    /// The host left a group on an interface: its last member did.
    MulticastRemoved {
        /// The interface.
        ifindex: u32,
        /// The group.
        group: IpAddr,
    },
    /// A multicast route was added or removed, or an interface forwards multicast now or no longer.
    MulticastRouting,
    /// A namespace that this one had a number for is no more. The interfaces in it go in the next
    /// moments, and are not told of any more.
    NamespaceGone {
        /// What it was called here. The number may soon be another one's.
        nsid: i32,
    },
    /// Notifications were lost: read everything again.
    Overrun,
}

/// An event and where it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// What the namespace that the monitor was made in calls the one that the event is about, whose
    /// indexes it has; `None` if that is the same one, even where that has a number for itself.
    /// [`Event::Overrun`] is about all of them.
    pub nsid: Option<i32>,
    /// What happened.
    pub event: Event,
}

/// Listens to the network namespace that the calling thread was in at [`Monitor::new`], or to those
/// that it knows, too. Its descriptor is readable while events wait.
///
/// Subscribe first and read the state afterwards ([`crate::Requests`]), else what happens in
/// between is missed.
#[derive(Debug)]
pub struct Monitor {
    listener: Listener,
    missing: Vec<Group>,
}

impl Monitor {
    /// Opens the socket and subscribes. That a kernel has no multicast groups is no error:
    /// [`Monitor::has`] tells.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn new(groups: &[Group]) -> Result<Monitor, Error> {
        Monitor::open(groups, Reach::Own)
    }

    /// As [`Monitor::new`], and also hears of the namespaces that the calling thread's one has a
    /// number for at that moment ([`crate::Requests::assign_nsid`]), without keeping any of them
    /// alive (NETLINK_LISTEN_ALL_NSID). [`Monitor::notices`] tells them apart. Needs
    /// CAP_NET_BROADCAST here and in the user namespaces that own the others; without it here, it
    /// hears of its own namespace alone ([`Monitor::hears_all_namespaces`]).
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn across_namespaces(groups: &[Group]) -> Result<Monitor, Error> {
        Monitor::open(groups, Reach::All)
    }

    fn open(groups: &[Group], reach: Reach) -> Result<Monitor, Error> {
        let listener = Listener::open(NETLINK_ROUTE, reach)?;
        let mut missing = Vec::new();
        for &group in groups {
            match listener.subscribe(group.number()) {
                Ok(()) => {}
                Err(e) if group.is_optional() => {
                    log::debug!("no notifications for {group:?} in this kernel: {e}");
                    missing.push(group);
                }
                Err(e) => return Err(Error::socket("listen to interface changes", e)),
            }
        }
        Ok(Monitor { listener, missing })
    }

    /// Whether the kernel tells about `group`, one of those that were asked for.
    pub fn has(&self, group: Group) -> bool {
        !self.missing.contains(&group)
    }

    /// Whether it hears of other namespaces.
    pub fn hears_all_namespaces(&self) -> bool {
        self.listener.hears_all()
    }

    /// The events that wait, oldest first, each with its namespace; never blocks. A message that is
    /// not understood is left out.
    pub fn notices(&mut self) -> Vec<Notice> {
        let read = self.listener.drain(event, || Event::Overrun);
        read.into_iter()
            .map(|(nsid, event)| Notice { nsid, event })
            .collect()
    }

    /// As [`Monitor::notices`]: the events of the monitor's own namespace alone.
    pub fn drain(&mut self) -> Vec<Event> {
        let notices = self.notices().into_iter();
        notices
            .filter(|notice| notice.nsid.is_none())
            .map(|notice| notice.event)
            .collect()
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn event(message: &Message<'_>) -> Option<Event> {
    let payload = message.payload;
    match message.kind {
        libc::RTM_NEWLINK => link::decode(payload).map(|m| Event::LinkChanged(m.link)),
        libc::RTM_DELLINK => link::decode(payload).map(|m| Event::LinkGone {
            index: m.link.index,
            name: m.link.name,
            moved: m.moved,
        }),
        libc::RTM_NEWADDR => address::decode(payload).map(Event::AddressAdded),
        libc::RTM_DELADDR => address::decode(payload).map(Event::AddressRemoved),
        RTM_NEWMULTICAST => address::decode_multicast(payload)
            .map(|(ifindex, group)| Event::MulticastAdded { ifindex, group }),
        RTM_DELMULTICAST => address::decode_multicast(payload)
            .map(|(ifindex, group)| Event::MulticastRemoved { ifindex, group }),
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => payload
            .first()
            .filter(|family| matches!(**family, FAMILY_IPMR | FAMILY_IP6MR))
            .map(|_| Event::MulticastRouting),
        RTM_DELNSID => nsid::decode(payload).map(|nsid| Event::NamespaceGone { nsid }),
        libc::RTM_NEWNETCONF | RTM_DELNETCONF => Some(Event::MulticastRouting),
        _ => None,
    }
}
