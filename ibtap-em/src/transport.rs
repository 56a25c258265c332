//! The way to the fabric: the management of a port of this node's `ibtapd`, over its control socket.
//!
//! What comes is a stream of replies; what goes out are calls that nobody answers, on a connection of their
//! own. Where either breaks, both are made anew.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use control::api::{
    Hex, ManageReply, ManageRequest, ManagementPort, SendManagementRequest, methods,
};
use control::{ClientError, ControlClient, Next, Posts, Replies};
use proto::Time;

use crate::seam::{Destination, Endpoint, Outgoing};

/// How long ibtapd may take to take a call; it answers from its control loop.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Between two attempts to reach ibtapd, in milliseconds: doubled from the first to the second.
const RETRY_MS: (u64, u64) = (250, 5_000);

/// Bytes of calls that may wait for ibtapd: some 60 full messages. More is not made meanwhile.
const PENDING_MAX: usize = 256 * 1024;

/// Messages taken in one turn, so that timers and the control socket have theirs.
const TURN: usize = 256;

/// What has happened on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The port is there, or has another address.
    Attached(ManagementPort),
    /// It is not there; why, a sentence.
    Detached(String),
    /// A message has come.
    Received {
        /// Whose it is.
        from: Endpoint,
        /// A whole MAD.
        mad: Vec<u8>,
    },
    /// So many messages were lost, since they were not taken in time.
    Lost(u64),
}

#[derive(Debug)]
struct Connected {
    replies: Replies<ManageReply>,
    posts: Posts,
}

/// The way to one port.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    port: Option<String>,
    connected: Option<Connected>,
    /// When to try next, and how long to wait after that.
    again: Time,
    pause: u64,
    /// It was said already why there is no port.
    told: Option<String>,
}

impl Link {
    /// To a port of the `ibtapd` that has this control socket; without a name, to its only one.
    #[must_use]
    pub fn new(socket: PathBuf, port: Option<String>) -> Link {
        Link {
            socket,
            port,
            connected: None,
            again: Time::default(),
            pause: RETRY_MS.0,
            told: None,
        }
    }

    /// ibtapd's control socket.
    #[must_use]
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Whether it already leads there.
    #[must_use]
    pub fn leads_to(&self, socket: &std::path::Path, port: Option<&str>) -> bool {
        self.socket == socket && self.port.as_deref() == port
    }

    /// What has come, and what has become of the way. Connects where it is time to.
    pub fn receive(&mut self, now: Time) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        if self.connected.is_none() && now >= self.again {
            match self.connect() {
                Ok(connected) => self.connected = Some(connected),
                Err(error) => self.fail(now, &error, &mut arrivals),
            }
        }
        for _ in 0..TURN {
            let Some(connected) = &mut self.connected else {
                break;
            };
            match connected.replies.try_next() {
                Ok(None | Some(Next::Interrupted)) => break,
                Ok(Some(Next::Reply(reply) | Next::Last(reply))) => self.take(reply, &mut arrivals),
                Err(error) => self.fail(now, &error, &mut arrivals),
            }
        }
        arrivals
    }

    /// Whether there is somebody to send to, and room for it.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let pending = self.connected.as_ref().map(|c| c.posts.pending());
        pending.is_some_and(|pending| pending < PENDING_MAX)
    }

    /// Sends a message; without a way it is lost, as any may be.
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
            log::warn!("a message to the fabric is lost: {error}");
        }
    }

    /// Writes what ibtapd takes now. What goes wrong shows in [`Link::receive`], or by another attempt.
    pub fn flush(&mut self) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        if connected.posts.flush().is_ok() {
            return;
        }
        // A connection without a stream may have made way for another client's.
        match self.post() {
            Ok(posts) => {
                if let Some(connected) = &mut self.connected {
                    connected.posts = posts;
                }
            }
            Err(error) => log::debug!("{error}"),
        }
    }

    /// When to call [`Link::receive`], should nothing be readable before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.connected.is_none().then_some(self.again)
    }

    /// To be waited for until readable.
    #[must_use]
    pub fn incoming(&self) -> Option<BorrowedFd<'_>> {
        self.connected.as_ref().map(|c| c.replies.as_fd())
    }

    /// To be waited for until writable.
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
                self.told = None;
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

    /// Gives the way up for a while.
    fn fail(&mut self, now: Time, error: &ClientError, arrivals: &mut Vec<Arrival>) {
        self.connected = None;
        self.again = now.after(self.pause);
        self.pause = (2 * self.pause).min(RETRY_MS.1);
        let why = error.to_string();
        if self.told.as_ref() != Some(&why) {
            self.told = Some(why.clone());
            arrivals.push(Arrival::Detached(why));
        }
    }
}

#[cfg(test)]
mod tests;
