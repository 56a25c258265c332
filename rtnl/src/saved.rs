//! State that an interface loses when it moves to another namespace, for restoring it.
//!
//! The kernel's own messages are kept and sent back, as `ip address save` and `ip route save` do.
//! Attributes unknown to this crate are therefore not lost.

use libc::{RTM_GETADDR, RTM_GETNEIGH, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWROUTE};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use crate::attributes::{attributes, u8_of, u32_of};
use crate::transport::Raw;
use crate::{Error, Requests};

const INET: u8 = libc::AF_INET as u8;
const INET6: u8 = libc::AF_INET6 as u8;

/// Bytes of `struct ifaddrmsg`, `struct rtmsg` and `struct ndmsg`.
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
pub(crate) const NEIGHBOUR_HEADER: usize = 12;

/// Bytes of an attribute's header.
const ATTRIBUTE_HEADER: usize = 4;

/// Offset of the interface index in the headers of addresses and neighbours.
pub(crate) const INDEX_AT: usize = 4;

// Kernel include/uapi/linux/if_addr.h.
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
const IFA_F_NODAD: u32 = 0x02;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;
const IFAPROT_KERNEL_RA: u8 = 2;
const IFAPROT_KERNEL_LL: u8 = 3;

// Kernel include/uapi/linux/rtnetlink.h: `struct rtmsg`.
const ROUTE_PROTOCOL_AT: usize = 5;
const ROUTE_FLAGS_AT: usize = 8;
const RTA_OIF: u16 = 4;
const RTPROT_REDIRECT: u8 = 1;
const RTPROT_KERNEL: u8 = 2;
const RTPROT_RA: u8 = 9;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_ONLINK: u32 = 4;

// Kernel include/uapi/linux/neighbour.h: `struct ndmsg`.
pub(crate) const NEIGHBOUR_STATE_AT: usize = 8;
const NUD_PERMANENT: u8 = 0x80;
const NDA_IFINDEX: u16 = 8;

/// Addresses, routes and permanent neighbours of an interface that were configured. Not included: those
/// that the kernel makes itself, and makes again (connected routes, IPv6 link-local addresses, results of
/// router advertisements).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Saved {
    addresses: Vec<Raw>,
    routes: Vec<Raw>,
    neighbours: Vec<Raw>,
}

impl Saved {
    /// Whether nothing needs to be restored.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty() && self.neighbours.is_empty()
    }
}

impl Requests {
    /// Reads the state for [`Requests::restore_addresses`] and [`Requests::restore_routes`].
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn save(&mut self, ifindex: u32) -> Result<Saved, Error> {
        let mut saved = Saved::default();
        for family in [INET, INET6] {
            saved.addresses.extend(self.addresses_of(ifindex, family)?);
            saved.routes.extend(self.routes_of(ifindex, family)?);
            saved
                .neighbours
                .extend(self.neighbours_of(ifindex, family)?);
        }
        Ok(saved)
    }

    /// Restores the addresses of an interface, with flags, labels and remaining lifetimes. Addresses that
    /// it has already are unchanged.
    ///
    /// # Errors
    /// The first permanent refusal, after all addresses were tried.
    pub fn restore_addresses(&mut self, ifindex: u32, saved: &Saved) -> Result<(), Error> {
        let what = "restore an address";
        // A tentative address cannot be the source of a route. The flag against that does not stay.
        let tested: Vec<Raw> = saved.addresses.iter().filter_map(without_dad).collect();
        let first = self.restore(what, ifindex, &tested);
        first.and(self.restore(what, ifindex, &saved.addresses))
    }

    /// Restores routes and permanent neighbours of an interface. The interface must be up.
    ///
    /// # Errors
    /// As [`Requests::restore_addresses`].
    pub fn restore_routes(&mut self, ifindex: u32, saved: &Saved) -> Result<(), Error> {
        let routes = self.restore("restore a route", ifindex, &saved.routes);
        let neighbours = self.restore("restore a neighbour", ifindex, &saved.neighbours);
        routes.and(neighbours)
    }

    /// Sends the messages. A route may need another one that comes later in the list, so refused messages
    /// are sent again as long as others succeed.
    fn restore(&mut self, what: &str, ifindex: u32, messages: &[Raw]) -> Result<(), Error> {
        let what = format!("{what} on interface {ifindex}");
        let mut waiting: Vec<&Raw> = messages.iter().collect();
        loop {
            let (mut refused, mut first) = (Vec::new(), None);
            for &message in &waiting {
                let request = with_index(message.clone(), ifindex);
                let flags = NLM_F_CREATE | NLM_F_REPLACE;
                if let Err(e) = self.transport.change(&what, request, flags) {
                    refused.push(message);
                    first.get_or_insert(e);
                }
            }
            match first {
                None => return Ok(()),
                Some(e) if refused.len() == waiting.len() => return Err(e),
                Some(_) => waiting = refused,
            }
        }
    }

    fn addresses_of(&mut self, ifindex: u32, family: u8) -> Result<Vec<Raw>, Error> {
        let mut query = vec![0; ADDRESS_HEADER];
        query[INDEX_AT..].copy_from_slice(&ifindex.to_ne_bytes());
        self.list(RTM_GETADDR, query, family, ifindex)
    }

    fn routes_of(&mut self, ifindex: u32, family: u8) -> Result<Vec<Raw>, Error> {
        let mut query = vec![0; ROUTE_HEADER];
        query.extend(u32_attribute(RTA_OIF, ifindex));
        self.list(RTM_GETROUTE, query, family, ifindex)
    }

    fn neighbours_of(&mut self, ifindex: u32, family: u8) -> Result<Vec<Raw>, Error> {
        let mut query = vec![0; NEIGHBOUR_HEADER];
        query.extend(u32_attribute(NDA_IFINDEX, ifindex));
        self.list(RTM_GETNEIGH, query, family, ifindex)
    }

    fn list(
        &mut self,
        kind: u16,
        mut query: Vec<u8>,
        family: u8,
        ifindex: u32,
    ) -> Result<Vec<Raw>, Error> {
        query[0] = family;
        let what = format!("list addresses, routes and neighbours of interface {ifindex}");
        let found = self.transport.dump(&what, raw(kind, query), |message| {
            // Without IPv6 or strict checking, the kernel lists more than requested.
            restorable(message.kind, message.payload, ifindex)
                .filter(|found| found.payload[0] == family)
        });
        match found {
            // A kernel with strict checking reports a missing interface.
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}

/// The message, if it is about a configured address, route or neighbour of the interface.
pub(crate) fn restorable(kind: u16, payload: &[u8], ifindex: u32) -> Option<Raw> {
    let given = match kind {
        RTM_NEWADDR => is_given_address(payload, ifindex),
        RTM_NEWROUTE => is_given_route(payload, ifindex),
        RTM_NEWNEIGH => is_permanent_neighbour(payload, ifindex),
        _ => false,
    };
    given.then(|| raw(kind, payload.to_vec()))
}

fn raw(kind: u16, payload: Vec<u8>) -> Raw {
    Raw { kind, payload }
}

fn u32_attribute(kind: u16, value: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&8u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// Whether an address of the interface was configured, not made by the kernel. Kernels before 5.18 do not
/// report this; restoring an address of the kernel's own does no harm.
fn is_given_address(payload: &[u8], ifindex: u32) -> bool {
    let Some(rest) = payload.get(ADDRESS_HEADER..) else {
        return false;
    };
    let by_kernel = attributes(rest).any(|(kind, value)| {
        kind == IFA_PROTO && matches!(u8_of(value), Some(IFAPROT_KERNEL_RA | IFAPROT_KERNEL_LL))
    });
    !by_kernel && u32_of(&payload[INDEX_AT..]) == Some(ifindex)
}

/// The message for an IPv6 address that has passed duplicate address detection, so that the kernel does not
/// repeat the detection.
fn without_dad(address: &Raw) -> Option<Raw> {
    let flags = u32_value(&address.payload[ADDRESS_HEADER..], IFA_FLAGS)?;
    let is_tested = flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) == 0;
    (address.payload[0] == INET6 && is_tested).then(|| {
        let mut message = address.clone();
        put_u32(
            &mut message.payload[ADDRESS_HEADER..],
            IFA_FLAGS,
            flags | IFA_F_NODAD,
        );
        message
    })
}

/// Whether a route out of the interface was configured, not made by the kernel for addresses or router
/// advertisements.
fn is_given_route(payload: &[u8], ifindex: u32) -> bool {
    let Some(rest) = payload.get(ROUTE_HEADER..) else {
        return false;
    };
    let by_kernel = matches!(
        payload[ROUTE_PROTOCOL_AT],
        RTPROT_REDIRECT | RTPROT_KERNEL | RTPROT_RA
    );
    let cloned = u32_of(&payload[ROUTE_FLAGS_AT..]).is_some_and(|f| f & RTM_F_CLONED != 0);
    !by_kernel
        && !cloned
        && attributes(rest).any(|(kind, value)| kind == RTA_OIF && u32_of(value) == Some(ifindex))
}

fn is_permanent_neighbour(payload: &[u8], ifindex: u32) -> bool {
    payload.len() >= NEIGHBOUR_HEADER
        && u32_of(&payload[INDEX_AT..]) == Some(ifindex)
        && payload[NEIGHBOUR_STATE_AT] & NUD_PERMANENT != 0
}

/// The message for another interface index, without values that the kernel reports but does not accept.
pub(crate) fn with_index(mut message: Raw, ifindex: u32) -> Raw {
    let payload = &mut message.payload;
    if message.kind != RTM_NEWROUTE {
        payload[INDEX_AT..INDEX_AT + 4].copy_from_slice(&ifindex.to_ne_bytes());
        return message;
    }
    // RTNH_F_ONLINK was configured; other flags are the route's state, such as RTNH_F_LINKDOWN.
    let flags = u32_of(&payload[ROUTE_FLAGS_AT..]).unwrap_or_default();
    let asked = flags & RTNH_F_ONLINK;
    payload[ROUTE_FLAGS_AT..ROUTE_HEADER].copy_from_slice(&asked.to_ne_bytes());
    put_u32(&mut payload[ROUTE_HEADER..], RTA_OIF, ifindex);
    message
}

/// The value of a u32 attribute.
fn u32_value(bytes: &[u8], wanted: u16) -> Option<u32> {
    let (_, value) = attributes(bytes).find(|(kind, _)| *kind == wanted)?;
    u32_of(value)
}

/// Replaces the value of a u32 attribute.
fn put_u32(bytes: &mut [u8], wanted: u16, value: u32) {
    let mut at = 0;
    let mut found = Vec::new();
    for (kind, old) in attributes(bytes) {
        let start = at + ATTRIBUTE_HEADER;
        if kind == wanted && old.len() == size_of::<u32>() {
            found.push(start);
        }
        at = (start + old.len()).next_multiple_of(4);
    }
    for start in found {
        bytes[start..start + size_of::<u32>()].copy_from_slice(&value.to_ne_bytes());
    }
}
