//! Connection to the fabric: management of a port of this node's `ibtapd`, over its control socket.
//!
//! Received messages are a stream of replies. Sent messages are calls without replies, on a second
//! connection. If either connection breaks, both are opened again.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use control::api::{
    Hex, ManageReply, ManageRequest, ManagementPort, SendManagementRequest, methods,
};
use control::{ClientError, ControlClient, Next, Posts, Replies};
use proto::Time;

use crate::seam::{Destination, Endpoint, Outgoing};

/// Maximum time for ibtapd to accept a call; it answers from its control loop.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between attempts to reach ibtapd, in milliseconds: first and last; each pause is twice the previous.
const RETRY_MS: (u64, u64) = (250, 5_000);

/// Maximum bytes of calls that wait for ibtapd: some 60 full messages. No messages are made while they wait.
const PENDING_MAX: usize = 256 * 1024;

/// Messages received in one turn, so that timers and the control socket are served in between.
const TURN: usize = 256;

/// An event of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The port is attached, or has another address.
    Attached(ManagementPort),
    /// The port is detached, with the reason, one sentence.
    Detached(String),
    /// A message arrived.
    Received {
        /// Sender.
        from: Endpoint,
        /// A whole MAD.
        mad: Vec<u8>,
    },
    /// This number of messages was lost because they were not read in time.
    Lost(u64),
}

#[derive(Debug)]
struct Connected {
    replies: Replies<ManageReply>,
    posts: Posts,
}

/// Connection to one port.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    port: Option<String>,
    connected: Option<Connected>,
    /// More messages may have been read from the socket than one turn takes. The descriptor does not report these.
    behind: bool,
    /// Time of the next attempt, and the pause after it.
    again: Time,
    pause: u64,
    /// Last reported reason for the missing port.
    reported: Option<String>,
}

impl Link {
    /// Creates a connection to a port of the `ibtapd` with this control socket; without a name, to its only
    /// port.
    #[must_use]
    pub fn new(socket: PathBuf, port: Option<String>) -> Link {
        Link {
            socket,
            port,
            connected: None,
            behind: false,
            again: Time::default(),
            pause: RETRY_MS.0,
            reported: None,
        }
    }

    /// Control socket of ibtapd.
    #[must_use]
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Whether the connection has this socket and port.
    #[must_use]
    pub fn leads_to(&self, socket: &std::path::Path, port: Option<&str>) -> bool {
        self.socket == socket && self.port.as_deref() == port
    }

    /// Returns the events since the last call. Connects when an attempt is due.
    pub fn receive(&mut self, now: Time) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        if self.connected.is_none() && now >= self.again {
            match self.connect() {
                Ok(connected) => self.connected = Some(connected),
                Err(error) => self.fail(now, &error, &mut arrivals),
            }
        }
        self.behind = true;
        for _ in 0..TURN {
            let next = self.connected.as_mut().map(|c| c.replies.try_next());
            match next.unwrap_or(Ok(None)) {
                Ok(None | Some(Next::Interrupted)) => {
                    self.behind = false;
                    break;
                }
                Ok(Some(Next::Reply(reply) | Next::Last(reply))) => self.take(reply, &mut arrivals),
                Err(error) => self.fail(now, &error, &mut arrivals),
            }
        }
        arrivals
    }

    /// Whether the connection is open and has room for a message.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let pending = self.connected.as_ref().map(|c| c.posts.pending());
        pending.is_some_and(|pending| pending < PENDING_MAX)
    }

    /// Sends a message. Without a connection the message is lost.
    pub fn send(&mut self, message: Outgoing) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        let (gid, qpn) = match message.to {
            Destination::Agent(Endpoint { gid, qpn }) => (Some(gid), Some(qpn)),
            Destination::Group => (None, None),
        };
        let request = SendManagementRequest {
            port: self.port.clone(),
            gid,
            qpn,
            mad: Hex(message.mad),
        };
        if let Err(error) = connected.posts.push(methods::SEND_MANAGEMENT, &request) {
            log::warn!("a message to ibtapd is lost: {error}");
        }
    }

    /// Writes as much as ibtapd accepts. If ibtapd has closed the connection and cannot be reached, calls that wait are
    /// lost, and [`Link::receive`] reports the reason.
    pub fn flush(&mut self) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        if connected.posts.flush().is_ok() {
            return;
        }
        // ibtapd may have closed this connection, which has no stream, for another client.
        match self.post() {
            Ok(posts) => {
                if let Some(connected) = &mut self.connected {
                    connected.posts = posts;
                }
            }
            // The next `receive` connects again, or reports the reason.
            Err(_) => self.connected = None,
        }
    }

    /// Time of the next [`Link::receive`] if no descriptor becomes readable before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        match self.connected {
            Some(_) => self.behind.then_some(Time::default()),
            None => Some(self.again),
        }
    }

    /// Descriptor to poll for reading.
    #[must_use]
    pub fn incoming(&self) -> Option<BorrowedFd<'_>> {
        self.connected.as_ref().map(|c| c.replies.as_fd())
    }

    /// Descriptor to poll for writing.
    #[must_use]
    pub fn outgoing(&self) -> Option<BorrowedFd<'_>> {
        let connected = self.connected.as_ref()?;
        (connected.posts.pending() > 0).then(|| connected.posts.as_fd())
    }

    fn connect(&self) -> Result<Connected, ClientError> {
        let request = ManageRequest {
            port: self.port.clone(),
        };
        let replies =
            ControlClient::connect(&self.socket, TIMEOUT)?.stream(methods::MANAGE, &request)?;
        let posts = self.post()?;
        Ok(Connected { replies, posts })
    }

    fn post(&self) -> Result<Posts, ClientError> {
        Ok(ControlClient::connect(&self.socket, TIMEOUT)?.posts())
    }

    fn take(&mut self, reply: ManageReply, arrivals: &mut Vec<Arrival>) {
        match reply {
            ManageReply::Attached(port) => {
                self.pause = RETRY_MS.0;
                self.reported = None;
                arrivals.push(Arrival::Attached(port));
            }
            ManageReply::Received(datagram) => {
                arrivals.extend(datagram.lost.map(Arrival::Lost));
                arrivals.push(Arrival::Received {
                    from: Endpoint {
                        gid: datagram.gid,
                        qpn: datagram.qpn,
                    },
                    mad: datagram.mad.0,
                });
            }
        }
    }

    /// Closes the connection until the next attempt.
    fn fail(&mut self, now: Time, error: &ClientError, arrivals: &mut Vec<Arrival>) {
        self.connected = None;
        self.again = now.after(self.pause);
        self.pause = (2 * self.pause).min(RETRY_MS.1);
        let why = error.to_string();
        if self.reported.as_ref() != Some(&why) {
            self.reported = Some(why.clone());
            arrivals.push(Arrival::Detached(why));
        }
    }
}

#[cfg(test)]
mod tests;
