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

// Message types of kernel include/uapi/linux/rtnetlink.h; group messages exist since 2025.
const RTM_NEWMULTICAST: u16 = 56;
const RTM_DELMULTICAST: u16 = 57;
const RTM_DELNETCONF: u16 = 81;
const RTM_DELNSID: u16 = 89;

/// Families of multicast routes (kernel include/uapi/linux/rtnetlink.h, RTNL_FAMILY_IPMR and
/// RTNL_FAMILY_IP6MR).
const FAMILY_IPMR: u8 = 128;
const FAMILY_IP6MR: u8 = 129;

/// A group of notifications (`enum rtnetlink_groups`, kernel include/uapi/linux/rtnetlink.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Interfaces: added, changed, removed.
    Link,
    /// IPv4 addresses.
    Ipv4Address,
    /// IPv6 addresses.
    Ipv6Address,
    /// IPv4 multicast memberships of the host; kernels of 2025 and later.
    Ipv4Multicast,
    /// IPv6 multicast memberships of the host; kernels of 2025 and later.
    Ipv6Multicast,
    /// IPv4 multicast routes; kernels with multicast routing.
    Ipv4MulticastRoute,
    /// IPv6 multicast routes; kernels with multicast routing.
    Ipv6MulticastRoute,
    /// IPv4 settings of interfaces, such as multicast forwarding.
    Ipv4Netconf,
    /// IPv6 settings of interfaces, such as multicast forwarding.
    Ipv6Netconf,
    /// Removal of namespaces with an nsid.
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

/// A change reported by the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An interface was added or changed; its present state.
    LinkChanged(Link),
    /// An interface left this namespace.
    LinkGone {
        /// The index that it had here.
        index: u32,
        /// Its last name.
        name: String,
        /// Whether it moved to another namespace. If false, it was deleted.
        moved: bool,
    },
    /// An address was added or changed.
    AddressAdded(Address),
    /// An address was removed.
    AddressRemoved(Address),
    /// The host joined a group on an interface. The kernel reports the first member only.
    MulticastAdded {
        /// The interface.
        ifindex: u32,
        /// The group.
        group: IpAddr,
    },
    /// The last member of a group on an interface left.
    MulticastRemoved {
        /// The interface.
        ifindex: u32,
        /// The group.
        group: IpAddr,
    },
    /// A multicast route was added or removed, or multicast forwarding of an interface changed.
    MulticastRouting,
    /// A namespace with an nsid was removed. Its interfaces disappear soon after, without notifications.
    NamespaceGone {
        /// Its nsid here. The kernel may soon reuse the number.
        nsid: i32,
    },
    /// Notifications were lost: read everything again.
    Overrun,
}

/// An event and its namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The nsid of the event's namespace in the monitor's namespace; `None` for the monitor's own
    /// namespace, even if it has an nsid for itself. Interface indexes in the event are those of its
    /// namespace. [`Event::Overrun`] concerns all namespaces.
    pub nsid: Option<i32>,
    /// The event.
    pub event: Event,
}

/// Receives notifications of the calling thread's network namespace at [`Monitor::new`], and optionally of
/// the namespaces known to it. The descriptor is readable while events wait.
///
/// Subscribe first, then read the state ([`crate::Requests`]); otherwise changes in between are missed.
#[derive(Debug)]
pub struct Monitor {
    listener: Listener,
    missing: Vec<Group>,
}

impl Monitor {
    /// Opens the socket and subscribes. Groups that the kernel lacks are no error: see [`Monitor::has`].
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn new(groups: &[Group]) -> Result<Monitor, Error> {
        Monitor::open(groups, Reach::Own)
    }

    /// As [`Monitor::new`], and also receives events of all namespaces with an nsid in the calling thread's
    /// namespace ([`crate::Requests::assign_nsid`]; NETLINK_LISTEN_ALL_NSID). It keeps none of them alive.
    /// [`Monitor::notices`] names the namespace of each event. Needs CAP_NET_BROADCAST here and in the user
    /// namespaces that own the others. Without it here, the monitor receives events of its own namespace
    /// only ([`Monitor::hears_all_namespaces`]).
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn across_namespaces(groups: &[Group]) -> Result<Monitor, Error> {
        let monitor = Monitor::open(groups, Reach::All)?;
        if !monitor.hears_all_namespaces() {
            log::info!(
                "changes in other network namespaces are not monitored; this needs CAP_NET_BROADCAST"
            );
        }
        Ok(monitor)
    }

    fn open(groups: &[Group], reach: Reach) -> Result<Monitor, Error> {
        let listener = Listener::open(NETLINK_ROUTE, reach)?;
        let mut missing = Vec::new();
        for &group in groups {
            match listener.subscribe(group.number()) {
                Ok(()) => {}
                Err(e) if group.is_optional() => {
                    log::debug!("this kernel has no notifications for {group:?}: {e}");
                    missing.push(group);
                }
                Err(e) => return Err(Error::socket("subscribe to interface changes", e)),
            }
        }
        Ok(Monitor { listener, missing })
    }

    /// Whether the kernel reports `group`, which must be one of the requested groups.
    pub fn has(&self, group: Group) -> bool {
        !self.missing.contains(&group)
    }

    /// Whether the monitor receives events of other namespaces.
    pub fn hears_all_namespaces(&self) -> bool {
        self.listener.hears_all()
    }

    /// Returns the waiting events with their namespaces, oldest first. Never blocks. Unknown messages are
    /// skipped.
    pub fn notices(&mut self) -> Vec<Notice> {
        let read = self.listener.drain(event, || Event::Overrun);
        read.into_iter()
            .map(|(nsid, event)| Notice { nsid, event })
            .collect()
    }

    /// Returns the waiting events of the monitor's own namespace, as [`Monitor::notices`] does.
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
