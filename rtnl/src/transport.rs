//! Netlink messages on a socket (RFC 3549, 2.3; kernel Documentation/userspace-api/netlink).

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{self, Timeout};

use crate::Error;
use crate::attributes::{attributes, text_of};

/// Time limit for an answer. The kernel answers within the system call; only a contended RTNL lock makes it
/// slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Room for the largest datagram of a dump (kernel net/netlink/af_netlink.c, netlink_dump: 32 KiB)
/// and of a notification.
pub(crate) const DATAGRAM_MAX: usize = 64 * 1024;

/// Attempts of a dump that changed while the kernel listed it. After the last attempt the result is used as
/// it is; the notifications of further changes correct it.
const DUMP_ATTEMPTS: usize = 8;

/// Length of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;

/// NLMSGERR_ATTR_MSG (kernel include/uapi/linux/netlink.h).
const ERROR_TEXT: u16 = 1;

/// One message: its type, its flags, its sequence number and what follows the header.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// The messages of a datagram, up to the first that does not fit.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(datagram).ok()?;
        let length = usize::try_from(header.length()).ok()?;
        let message = Message {
            kind: header.message_type(),
            flags: header.flags(),
            sequence: header.sequence_number(),
            payload: datagram.get(HEADER_LEN..length)?,
        };
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(message)
    })
}

/// Reads one datagram into `buffer`. False if another process sent it or if it was truncated: it must be
/// ignored.
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    buffer.reserve(DATAGRAM_MAX);
    let (length, from) = socket.recv_from(buffer, libc::MSG_TRUNC)?;
    Ok(from.port_number() == 0 && length == buffer.len())
}

/// A request, made here or taken from an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Raw {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

impl NetlinkSerializable for Raw {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.payload.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.payload);
    }
}

/// A socket for one request at a time.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The result of one round of an exchange.
enum Round {
    Done,
    /// The data changed while the kernel listed it.
    Interrupted,
}

impl Transport {
    /// Opens a socket of the netlink family `protocol`, such as NETLINK_ROUTE.
    pub(crate) fn open(protocol: isize) -> Result<Transport, Error> {
        let what = "open a netlink socket";
        let open = || {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            // Since Linux 4.12. Without them answers are longer and less precise.
            for optional in [socket.set_cap_ack(true), socket.set_ext_ack(true)] {
                if let Err(e) = optional {
                    log::debug!("netlink: cannot enable extended acknowledgements: {e}");
                }
            }
            // Since Linux 4.20. Without it a dump lists more than requested.
            if let Err(e) = socket.set_netlink_get_strict_chk(true) {
                log::debug!("netlink: cannot enable strict checking: {e}");
            }
            Ok(socket)
        };
        Ok(Transport {
            socket: open().map_err(|e| Error::socket(what, e))?,
            sequence: 0,
            buffer: Vec::with_capacity(DATAGRAM_MAX),
        })
    }

    /// Sends a change; returns when the kernel has made it.
    pub(crate) fn change(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable,
        flags: u16,
    ) -> Result<(), Error> {
        self.exchange(what, request, NLM_F_ACK | flags, &mut |_| {})
            .map(|_| ())
    }

    /// Sends a request; `each` gets the answer.
    pub(crate) fn ask(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<(), Error> {
        self.exchange(what, request, NLM_F_ACK, &mut each)
            .map(|_| ())
    }

    /// Requests a list; `item` decodes its messages.
    pub(crate) fn dump<T>(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable + Clone,
        item: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for _ in 0..DUMP_ATTEMPTS {
            found.clear();
            let round = self.exchange(what, request.clone(), NLM_F_DUMP, &mut |message| {
                found.extend(item(message));
            })?;
            if matches!(round, Round::Done) {
                break;
            }
        }
        Ok(found)
    }

    fn exchange(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable,
        flags: u16,
        each: &mut dyn FnMut(&Message<'_>),
    ) -> Result<Round, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        self.send(what, request, flags)?;
        let mut interrupted = false;
        loop {
            if !self.receive(what)? {
                continue;
            }
            for message in messages(&self.buffer) {
                // The rest of an answer to an earlier call that timed out.
                if message.sequence != self.sequence {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        outcome(what, &message)?;
                        return Ok(if interrupted {
                            Round::Interrupted
                        } else {
                            Round::Done
                        });
                    }
                    NLMSG_NOOP => {}
                    _ => each(&message),
                }
            }
        }
    }

    fn send(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable,
        flags: u16,
    ) -> Result<(), Error> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket
            .send_to(&bytes, &SocketAddr::new(0, 0), 0)
            .map_err(|e| Error::socket(what, e))?;
        Ok(())
    }

    fn receive(&mut self, what: &str) -> Result<bool, Error> {
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(good) => return Ok(good),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::Timeout {
                        what: what.to_owned(),
                        seconds: ANSWER_TIMEOUT.as_secs(),
                    });
                }
                Err(e) => return Err(Error::socket(what, e)),
            }
        }
    }
}

/// The result in NLMSG_ERROR or NLMSG_DONE: a negated error number, 0 for success.
fn outcome(what: &str, message: &Message<'_>) -> Result<(), Error> {
    let code = message
        .payload
        .first_chunk()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code >= 0 {
        return Ok(());
    }
    Err(Error::from_kernel(what, code, error_text(message)))
}

/// The kernel's message, behind the error number and the request's header (or the whole request, if not
/// capped).
fn error_text(message: &Message<'_>) -> Option<String> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let mut rest = message.payload.get(4..)?;
    if message.kind == NLMSG_ERROR {
        let request = NetlinkBuffer::new(rest.get(..HEADER_LEN)?).length();
        let quoted = if message.flags & NLM_F_CAPPED != 0 {
            HEADER_LEN
        } else {
            usize::try_from(request).ok()?.next_multiple_of(4)
        };
        rest = rest.get(quoted..)?;
    }
    attributes(rest)
        .find(|&(kind, _)| kind == ERROR_TEXT)
        .map(|(_, value)| text_of(value))
}
