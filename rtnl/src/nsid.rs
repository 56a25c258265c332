//! Ids of network namespaces (RTM_NEWNSID, RTM_GETNSID; kernel net/core/net_namespace.c).
//!
//! Each namespace has its own ids (nsid) for the namespaces that it knows. An id only identifies a
//! namespace: it does not keep it alive, and disappears with it.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::attributes::{attributes, i32_of};
use crate::transport::{Message, Transport};
use crate::{Error, Requests};

const RTM_NEWNSID: u16 = libc::RTM_NEWNSID;

/// Bytes of `struct rtgenmsg`, padded.
const HEADER_LEN: usize = 4;

/// Attribute number of kernel include/uapi/linux/net_namespace.h.
const NETNSA_NSID: u16 = 1;

/// The value for "no id"; in a request: the kernel chooses one.
const NOT_ASSIGNED: i32 = -1;

impl Requests {
    /// Returns the nsid of the namespace `ns`, a descriptor, in the namespace of these requests; `None` if
    /// it has none. A namespace may have an nsid for itself.
    ///
    /// # Errors
    /// [`Error::Refused`] (EINVAL) if the descriptor is not a network namespace; errors of the socket.
    pub fn nsid_of(&mut self, ns: impl AsFd) -> Result<Option<i32>, Error> {
        ask(&mut self.transport, ns)
    }

    /// As [`Requests::nsid_of`], but assigns an nsid of the kernel's choice if there is none.
    /// [`crate::Monitor::across_namespaces`] receives events only of namespaces with an nsid.
    ///
    /// # Errors
    /// As [`Requests::nsid_of`], and [`Error::Permission`].
    pub fn assign_nsid(&mut self, ns: impl AsFd) -> Result<i32, Error> {
        let what = "assign an nsid to a network namespace";
        let request = RouteNetlinkMessage::NewNsId(message(&ns, Some(NOT_ASSIGNED)));
        match self.transport.change(what, request, 0) {
            // An nsid exists, perhaps assigned a moment ago.
            Ok(()) | Err(Error::Exists { .. }) => {}
            Err(e) => return Err(e),
        }
        self.nsid_of(ns)?.ok_or_else(|| Error::NotFound {
            what: what.to_owned(),
            reason: String::new(),
        })
    }
}

fn ask(transport: &mut Transport, ns: impl AsFd) -> Result<Option<i32>, Error> {
    let mut found = None;
    transport.ask(
        "read the nsid of a network namespace",
        RouteNetlinkMessage::GetNsId(message(&ns, None)),
        |answer| found = found.or(number_in(answer)),
    )?;
    Ok(found)
}

fn message(ns: impl AsFd, number: Option<i32>) -> NsidMessage {
    let mut message = NsidMessage::default();
    // The kernel reads an int; a descriptor is never negative.
    let fd = ns.as_fd().as_raw_fd().cast_unsigned();
    message.attributes = vec![NsidAttribute::Fd(fd)];
    message.attributes.extend(number.map(NsidAttribute::Id));
    message
}

fn number_in(message: &Message<'_>) -> Option<i32> {
    if message.kind != RTM_NEWNSID {
        return None;
    }
    decode(message.payload)
}

/// Decodes the payload of RTM_NEWNSID or RTM_DELNSID: the nsid, if assigned.
pub(crate) fn decode(payload: &[u8]) -> Option<i32> {
    attributes(payload.get(HEADER_LEN..)?)
        .find(|&(kind, _)| kind == NETNSA_NSID)
        .and_then(|(_, value)| i32_of(value))
        .filter(|&number| number != NOT_ASSIGNED)
}
