//! Notifications.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::net::sockopt;

use crate::Error;
use crate::address::{self, Address};
use crate::link::{self, Link};
use crate::transport::{DATAGRAM_MAX, Message, messages, receive};

// Message types of kernel include/uapi/linux/rtnetlink.h; those for groups are of 2025.
const RTM_NEWMULTICAST: u16 = 56;
const RTM_DELMULTICAST: u16 = 57;
const RTM_DELNETCONF: u16 = 81;

/// Families of multicast routes (kernel include/uapi/linux/rtnetlink.h, RTNL_FAMILY_IPMR and
/// RTNL_FAMILY_IP6MR).
const FAMILY_IPMR: u8 = 128;
const FAMILY_IP6MR: u8 = 129;

/// Room for notifications that wait, in bytes. The kernel's default holds a few hundred, which a
/// script that makes many interfaces overruns.
const RECEIVE_BUFFER: usize = 1 << 20;

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
        }
    }

    fn is_optional(self) -> bool {
        !matches!(self, Group::Link | Group::Ipv4Address | Group::Ipv6Address)
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
    /// Notifications were lost: read everything again.
    Overrun,
}

/// Listens to the network namespace that the calling thread was in at [`Monitor::new`]. Its
/// descriptor is readable while events wait.
///
/// Subscribe first and read the state afterwards ([`crate::Requests`]), else what happens in
/// between is missed.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    missing: Vec<Group>,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Opens the socket and subscribes. That a kernel has no multicast groups is no error:
    /// [`Monitor::has`] tells.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn new(groups: &[Group]) -> Result<Monitor, Error> {
        let failed = |e| Error::socket("listen to interface changes", e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        grow_receive_buffer(&socket);
        let mut missing = Vec::new();
        for &group in groups {
            match socket.add_membership(group.number()) {
                Ok(()) => {}
                Err(e) if group.is_optional() => {
                    log::debug!("no notifications for {group:?} in this kernel: {e}");
                    missing.push(group);
                }
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(Monitor {
            socket,
            missing,
            buffer: Vec::with_capacity(DATAGRAM_MAX),
        })
    }

    /// Whether the kernel tells about `group`, one of those that were asked for.
    pub fn has(&self, group: Group) -> bool {
        !self.missing.contains(&group)
    }

    /// The events that wait, oldest first; never blocks. A message that is not understood is left
    /// out.
    pub fn drain(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(true) => events.extend(messages(&self.buffer).filter_map(|m| event(&m))),
                Ok(false) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return events,
                // The kernel drops what does not fit and says so once; what waits stays readable.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => events.push(Event::Overrun),
                Err(e) => {
                    log::warn!("listening to interface changes failed: {e}");
                    events.push(Event::Overrun);
                    return events;
                }
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn grow_receive_buffer(socket: &Socket) {
    let grown = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER));
    if let Err(e) = grown {
        log::debug!("the netlink receive buffer keeps its size: {e}");
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
        libc::RTM_NEWNETCONF | RTM_DELNETCONF => Some(Event::MulticastRouting),
        _ => None,
    }
}
