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

/// How long the kernel may take for one answer. It answers from the system call itself, so that
/// only a contended RTNL lock makes it slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Room for the largest datagram of a dump (kernel net/netlink/af_netlink.c, netlink_dump: 32 KiB)
/// and of a notification.
pub(crate) const DATAGRAM_MAX: usize = 64 * 1024;

/// A dump that something changed under is asked for again, this many times in all; then the last is
/// taken as it is, and the notifications of what keeps changing will set it right.
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

/// The messages of one datagram, up to the first that does not fit.
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

/// Reads one datagram into `buffer`. False: it came from another process, or was cut short, and
/// must not be believed.
pub(crate) fn receive(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    buffer.reserve(DATAGRAM_MAX);
    let (length, from) = socket.recv_from(buffer, libc::MSG_TRUNC)?;
    Ok(from.port_number() == 0 && length == buffer.len())
}

/// A request that is put together here, or taken from an answer.
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

/// A socket that asks one thing at a time.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// What came of one round of an exchange.
enum Round {
    Done,
    /// Something changed while the kernel was listing.
    Interrupted,
}

impl Transport {
    /// `protocol` is a netlink family, such as NETLINK_ROUTE.
    pub(crate) fn open(protocol: isize) -> Result<Transport, Error> {
        let what = "open a netlink socket";
        let open = || {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            // Both since Linux 4.12; without them answers are longer and say less.
            for optional in [socket.set_cap_ack(true), socket.set_ext_ack(true)] {
                if let Err(e) = optional {
                    log::debug!("netlink: no extended acknowledgements: {e}");
                }
            }
            // Since Linux 4.20; without it a dump lists more than was asked for.
            if let Err(e) = socket.set_netlink_get_strict_chk(true) {
                log::debug!("netlink: no strict checking: {e}");
            }
            Ok(socket)
        };
        Ok(Transport {
            socket: open().map_err(|e| Error::socket(what, e))?,
            sequence: 0,
            buffer: Vec::with_capacity(DATAGRAM_MAX),
        })
    }

    /// Changes something; returns when the kernel has done it.
    pub(crate) fn change(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable,
        flags: u16,
    ) -> Result<(), Error> {
        self.exchange(what, request, NLM_F_ACK | flags, &mut |_| {})
            .map(|_| ())
    }

    /// Asks for one thing; `each` sees the answer.
    pub(crate) fn ask(
        &mut self,
        what: &str,
        request: impl NetlinkSerializable,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<(), Error> {
        self.exchange(what, request, NLM_F_ACK, &mut each)
            .map(|_| ())
    }

    /// Lists what `item` finds in the answers.
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
                // The rest of an answer that an earlier call gave up waiting for.
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

/// What NLMSG_ERROR or NLMSG_DONE says: the negated error number, 0 for success.
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

/// The kernel's own words, after the error number and the header (or, uncapped, the whole) of the
/// request.
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
