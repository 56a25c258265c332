//! Membership of the underlay in multicast groups.
//!
//! Separate sockets that receive nothing hold the memberships: a receiving socket searches its
//! memberships for every multicast packet, and the kernel limits the memberships of a socket
//! (net.core.optmem_max for IPv6, about 2300; net.ipv4.igmp_max_memberships, 20).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use rtnl::Event;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Maximum memberships of one socket. The kernel walks a socket's list to join and to leave.
const PER_SOCKET: usize = 1000;

/// Memberships on one interface.
#[derive(Debug)]
pub struct Memberships {
    ifindex: u32,
    sockets: Vec<Holder>,
    /// For each group, the index in `sockets` of the socket that holds it.
    groups: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Holder {
    fd: OwnedFd,
    ipv6: bool,
    held: usize,
    /// Maximum memberships that the kernel allows for this socket.
    limit: usize,
}

impl Memberships {
    /// No memberships, on the interface with this index.
    pub fn new(ifindex: u32) -> Memberships {
        Memberships {
            ifindex,
            sockets: Vec::new(),
            groups: HashMap::new(),
        }
    }

    /// The interface index, 0 without an interface.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Ends the memberships, and forgets the interface, if this address of the interface was removed.
    ///
    /// An interface whose MTU falls below 1280 loses its IPv6 addresses and groups. With a larger MTU, the kernel
    /// creates the link-local address again, but does not join the groups of sockets again.
    pub fn follow_address(&mut self, address: IpAddr, news: &[Event]) {
        let is_removal = |event: &Event| match event {
            Event::AddressRemoved(a) => (a.ifindex, a.ip) == (self.ifindex, address),
            Event::Overrun => true,
            _ => false,
        };
        if news.iter().any(is_removal) {
            *self = Memberships::new(0);
        }
    }

    /// Joins a group; does nothing if it is joined already.
    ///
    /// # Errors
    /// Errors of the kernel, if not even a new socket can join.
    pub fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let ipv6 = group.is_ipv6();
        for (at, holder) in self.sockets.iter_mut().enumerate() {
            if holder.ipv6 != ipv6 || holder.held >= holder.limit {
                continue;
            }
            match change(&holder.fd, group, self.ifindex, true) {
                Ok(()) => {
                    holder.held += 1;
                    self.groups.insert(group, at);
                    return Ok(());
                }
                Err(Errno::NOBUFS | Errno::NOMEM) => holder.limit = holder.held,
                Err(e) => return Err(e.into()),
            }
        }
        self.join_on_new_socket(group)
    }

    fn join_on_new_socket(&mut self, group: IpAddr) -> io::Result<()> {
        let family = match group {
            IpAddr::V6(_) => AddressFamily::INET6,
            IpAddr::V4(_) => AddressFamily::INET,
        };
        let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        change(&fd, group, self.ifindex, true)?;
        self.groups.insert(group, self.sockets.len());
        self.sockets.push(Holder {
            fd,
            ipv6: group.is_ipv6(),
            held: 1,
            limit: PER_SOCKET,
        });
        Ok(())
    }

    /// Leaves a group; does nothing if it is not joined.
    pub fn leave(&mut self, group: IpAddr) {
        let Some(at) = self.groups.remove(&group) else {
            return;
        };
        let Some(holder) = self.sockets.get_mut(at) else {
            return;
        };
        match change(&holder.fd, group, self.ifindex, false) {
            Ok(()) => holder.held -= 1,
            Err(e) => log::debug!("cannot leave {group}: {e}"),
        }
    }
}

fn change(fd: &OwnedFd, group: IpAddr, ifindex: u32, join: bool) -> Result<(), Errno> {
    let any = Ipv4Addr::UNSPECIFIED;
    match (group, join) {
        (IpAddr::V6(g), true) => sockopt::set_ipv6_add_membership(fd, &g, ifindex),
        (IpAddr::V6(g), false) => sockopt::set_ipv6_drop_membership(fd, &g, ifindex),
        (IpAddr::V4(g), true) => sockopt::set_ip_add_membership_with_ifindex(fd, &g, &any, ifindex),
        (IpAddr::V4(g), false) => {
            sockopt::set_ip_drop_membership_with_ifindex(fd, &g, &any, ifindex)
        }
    }
}
