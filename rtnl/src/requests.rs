//! Requests that read and change interfaces.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::Error;
use crate::address::{self, Address};
use crate::arguments::check_name;
use crate::link::{self, Link};
use crate::transport::{Message, Transport};

const RTM_NEWLINK: u16 = libc::RTM_NEWLINK;
const RTM_NEWADDR: u16 = libc::RTM_NEWADDR;

/// Reads and changes interfaces in the network namespace of the calling thread at [`Requests::new`].
///
/// Each call is one exchange with the kernel and blocks until the answer, at most ten seconds.
#[derive(Debug)]
pub struct Requests {
    pub(crate) transport: Transport,
}

impl Requests {
    /// Opens the socket.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn new() -> Result<Requests, Error> {
        Ok(Requests {
            transport: Transport::open(NETLINK_ROUTE)?,
        })
    }

    /// The interface with this name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for an impossible name; errors of the socket.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, Error> {
        let what = format!("read interface {name}");
        check_name(&what, name)?;
        let mut query = LinkMessage::default();
        query
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link(what, query)
    }

    /// The interface with this index.
    ///
    /// # Errors
    /// [`Error::NotFound`]; errors of the socket.
    pub fn link_by_index(&mut self, ifindex: u32) -> Result<Link, Error> {
        self.link(format!("read interface {ifindex}"), link_message(ifindex))
    }

    fn link(&mut self, what: String, query: LinkMessage) -> Result<Link, Error> {
        let mut found = None;
        self.transport
            .ask(&what, RouteNetlinkMessage::GetLink(query), |message| {
                found = found.take().or_else(|| link_of(message));
            })?;
        found.ok_or_else(|| Error::NotFound {
            what,
            reason: String::new(),
        })
    }

    /// Whether the host forwards IPv6 packets from an interface (`net.ipv6.conf.IF.forwarding`), so that it is a
    /// router there; false without IPv6. The kernel does not announce changes with those of interfaces.
    ///
    /// # Errors
    /// [`Error::NotFound`]; errors of the socket.
    pub fn forwards_ipv6(&mut self, ifindex: u32) -> Result<bool, Error> {
        let what = format!("read the IPv6 settings of interface {ifindex}");
        let query = RouteNetlinkMessage::GetLink(link_message(ifindex));
        let mut forwards = None;
        self.transport.ask(&what, query, |message| {
            if message.kind == RTM_NEWLINK {
                forwards = forwards.or_else(|| link::forwards_ipv6(message.payload));
            }
        })?;
        Ok(forwards.unwrap_or_default())
    }

    /// All interfaces, by index.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut links = self.transport.dump("list interfaces", query, link_of)?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// The IPv4 and IPv6 addresses of an interface, in the kernel's order; empty if the interface does not
    /// exist.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn addresses(&mut self, ifindex: u32) -> Result<Vec<Address>, Error> {
        let mut query = AddressMessage::default();
        query.header.index = ifindex;
        let addresses = self.transport.dump(
            &format!("list addresses of interface {ifindex}"),
            RouteNetlinkMessage::GetAddress(query),
            |message| {
                (message.kind == RTM_NEWADDR)
                    .then(|| address::decode(message.payload))
                    .flatten()
                    // A kernel without strict checking lists all interfaces.
                    .filter(|address| address.ifindex == ifindex)
            },
        );
        match addresses {
            // A kernel with strict checking reports a missing interface.
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Brings an interface up (IFF_UP).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Permission`], [`Error::Refused`]; errors of the socket.
    pub fn set_up(&mut self, ifindex: u32) -> Result<(), Error> {
        let mut change = link_message(ifindex);
        change.header.flags = LinkFlags::Up;
        change.header.change_mask = LinkFlags::Up;
        self.change_link(format!("bring interface {ifindex} up"), change)
    }

    /// Takes an interface down.
    ///
    /// # Errors
    /// As [`Requests::set_up`].
    pub fn set_down(&mut self, ifindex: u32) -> Result<(), Error> {
        let mut change = link_message(ifindex);
        change.header.change_mask = LinkFlags::Up;
        self.change_link(format!("take interface {ifindex} down"), change)
    }

    /// Sets the MTU in bytes. The kernel refuses values outside [`Link::mtu_min`] and [`Link::mtu_max`].
    ///
    /// # Errors
    /// As [`Requests::set_up`].
    pub fn set_mtu(&mut self, ifindex: u32, mtu: u32) -> Result<(), Error> {
        self.set(
            ifindex,
            format!("set the MTU of interface {ifindex} to {mtu}"),
            [LinkAttribute::Mtu(mtu)],
        )
    }

    /// Renames an interface. Kernels before 6.2 refuse this (EBUSY) while the interface is up.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken; [`Error::Invalid`] for an impossible name; else as
    /// [`Requests::set_up`].
    pub fn set_name(&mut self, ifindex: u32, name: &str) -> Result<(), Error> {
        let what = format!("rename interface {ifindex} to {name}");
        check_name(&what, name)?;
        self.set(ifindex, what, [LinkAttribute::IfName(name.to_owned())])
    }

    /// Sets the MAC address.
    ///
    /// # Errors
    /// As [`Requests::set_up`].
    pub fn set_mac(&mut self, ifindex: u32, address: [u8; 6]) -> Result<(), Error> {
        self.set(
            ifindex,
            format!("set the MAC address of interface {ifindex}"),
            [LinkAttribute::Address(address.to_vec())],
        )
    }

    /// Sets the alias, any text of at most 255 bytes (shown by `ip link`); empty removes it.
    ///
    /// # Errors
    /// As [`Requests::set_up`].
    pub fn set_alias(&mut self, ifindex: u32, alias: &str) -> Result<(), Error> {
        self.set(
            ifindex,
            format!("set the alias of interface {ifindex}"),
            [LinkAttribute::IfAlias(alias.to_owned())],
        )
    }

    /// Sets the size of the largest super-frame that the stack sends to the interface, in bytes from the IP
    /// header (IFLA_GSO_MAX_SIZE, since Linux 4.16), for IPv6 and IPv4. Kernels since 6.3 have a separate
    /// limit for IPv4 (IFLA_GSO_IPV4_MAX_SIZE), which is set too.
    ///
    /// # Errors
    /// As [`Requests::set_up`]; the kernel refuses a size above the device's `tso_max_size` (65536 for
    /// most).
    pub fn set_gso_max(&mut self, ifindex: u32, bytes: u32) -> Result<(), Error> {
        let what = format!("set gso_max_size of interface {ifindex} to {bytes}");
        self.set(ifindex, what.clone(), [LinkAttribute::GsoMaxSize(bytes)])?;
        let ipv4 = LinkAttribute::GsoIpv4MaxSize(bytes);
        if let Err(e) = self.set(ifindex, what, [ipv4]) {
            log::debug!("{e}; this kernel has one limit for IPv4 and IPv6");
        }
        Ok(())
    }

    /// Deletes an interface.
    ///
    /// # Errors
    /// As [`Requests::set_up`].
    pub fn delete_link(&mut self, ifindex: u32) -> Result<(), Error> {
        let request = RouteNetlinkMessage::DelLink(link_message(ifindex));
        self.transport
            .change(&format!("delete interface {ifindex}"), request, 0)
    }

    /// Moves an interface into the namespace `ns`, a descriptor. Afterwards the interface is down,
    /// without addresses and routes; it keeps MAC, MTU, alias and alternative names.
    ///
    /// `name` and `index` optionally give it a new name and index there. Kernels before 5.13 ignore `index`
    /// and choose one.
    ///
    /// # Errors
    /// [`Error::Exists`] if its name or an alternative name is taken there, and [`Error::Refused`] (EBUSY)
    /// if the index is taken; the interface has not moved then. Exception: if only `name` is taken, the
    /// result is also [`Error::Exists`], but the interface has moved and kept its old name, because the
    /// kernel renames last. [`Error::Invalid`] for an impossible name; else as [`Requests::set_up`].
    pub fn move_link(
        &mut self,
        ifindex: u32,
        ns: impl AsFd,
        name: Option<&str>,
        index: Option<u32>,
    ) -> Result<(), Error> {
        let what = format!("move interface {ifindex} to another network namespace");
        let mut change = link_message(ifindex);
        let attributes = &mut change.attributes;
        attributes.push(LinkAttribute::NetNsFd(ns.as_fd().as_raw_fd()));
        if let Some(name) = name {
            check_name(&what, name)?;
            attributes.push(LinkAttribute::IfName(name.to_owned()));
        }
        if let Some(index) = index {
            attributes.push(LinkAttribute::NewIfIndex(index.cast_signed()));
        }
        self.change_link(what, change)
    }

    fn set<const N: usize>(
        &mut self,
        ifindex: u32,
        what: String,
        attributes: [LinkAttribute; N],
    ) -> Result<(), Error> {
        let mut change = link_message(ifindex);
        change.attributes = attributes.into();
        self.change_link(what, change)
    }

    fn change_link(&mut self, what: String, change: LinkMessage) -> Result<(), Error> {
        self.transport
            .change(&what, RouteNetlinkMessage::SetLink(change), 0)
    }
}

fn link_of(message: &Message<'_>) -> Option<Link> {
    if message.kind != RTM_NEWLINK {
        return None;
    }
    link::decode(message.payload).map(|decoded| decoded.link)
}

fn link_message(ifindex: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message
}
