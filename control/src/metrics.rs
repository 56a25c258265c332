//! Serves metrics over HTTP/1.1 to Prometheus and similar collectors.
//!
//! [`MetricsServer`] has no thread and never blocks: its epoll descriptor is part of the daemon's control loop. It
//! answers GET requests and changes nothing. The number of connections and the size of a request are bounded. All
//! answers of a second share one text, so that requests cost the daemon little.

mod exchange;
mod text;

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::api::ApiError;
use crate::config::MetricsAddress;
use crate::connection::Waits;
use crate::listener::{BindError, Listener, accept, interest, ready, spare, watch};
use exchange::{Exchange, Stream};
pub use text::classic;

/// Maximum number of connections. A further connection replaces the oldest.
pub const CONNECTIONS_MAX: usize = 16;

/// How long one text answers requests.
const FRESH: Duration = Duration::from_secs(1);

/// The key of the configuration, for errors.
const KEY: &str = "the key metrics";

/// The two forms of a text.
struct Texts {
    made: Instant,
    open: Rc<str>,
    classic: Rc<str>,
}

/// The server of metrics, for the daemon's control loop.
pub struct MetricsServer {
    listener: Socket,
    epoll: OwnedFd,
    exchanges: Vec<Option<Exchange>>,
    texts: Option<Texts>,
}

impl MetricsServer {
    /// Listens on the address, which the host may get later.
    ///
    /// # Errors
    /// [`BindError`], a sentence for the user.
    pub fn bind(address: &MetricsAddress) -> Result<MetricsServer, BindError> {
        let os = |source| match *address {
            MetricsAddress::Unix(_) => BindError::Os {
                path: address.to_string(),
                key: KEY,
                source,
            },
            MetricsAddress::Tcp(address) => BindError::Address {
                address,
                key: KEY,
                source,
            },
        };
        let listener = match address {
            MetricsAddress::Unix(path) => Socket::Unix(Listener::bind(path, KEY)?),
            MetricsAddress::Tcp(at) => {
                let socket = listen(at).map_err(os)?;
                socket.set_nonblocking(true).map_err(os)?;
                Socket::Tcp(socket, spare())
            }
        };
        let epoll = watch(&listener).map_err(os)?;
        Ok(MetricsServer {
            listener,
            epoll,
            exchanges: std::iter::repeat_with(|| None)
                .take(CONNECTIONS_MAX)
                .collect(),
            texts: None,
        })
    }

    /// The path of a unix socket, and the outermost directory that was created for it. Both are removed with the
    /// socket.
    pub fn files(&self) -> Option<(&Path, Option<&Path>)> {
        match &self.listener {
            Socket::Unix(listener) => Some((listener.path(), listener.made())),
            Socket::Tcp(..) => None,
        }
    }

    /// Accepts, reads, answers and writes without waiting. `metrics` returns the text in the OpenMetrics format.
    ///
    /// # Errors
    /// Faults of the server; faults of connections are no errors.
    pub fn process(
        &mut self,
        metrics: &mut dyn FnMut() -> Result<String, ApiError>,
    ) -> io::Result<()> {
        let (slots, arrivals) = ready::<{ CONNECTIONS_MAX + 1 }>(&self.epoll)?;
        for slot in slots {
            self.serve(slot, metrics)?;
        }
        if arrivals {
            self.accept(metrics)?;
        }
        Ok(())
    }

    fn accept(&mut self, metrics: &mut dyn FnMut() -> Result<String, ApiError>) -> io::Result<()> {
        for _ in 0..CONNECTIONS_MAX {
            let Some(stream) = self.listener.accept()? else {
                break;
            };
            // An empty slot is older than any connection.
            let age = |slot: &usize| self.exchanges[*slot].as_ref().map(Exchange::since);
            let slot = (0..CONNECTIONS_MAX).min_by_key(age).unwrap_or(0);
            let data = EventData::new_u64(slot as u64);
            // Closing the descriptor of the former connection removes it from the epoll set.
            self.exchanges[slot] = None;
            epoll::add(&self.epoll, stream.as_fd(), data, interest(Waits::ToRead))?;
            self.exchanges[slot] = Some(Exchange::new(stream));
            self.serve(slot, metrics)?;
        }
        Ok(())
    }

    fn serve(
        &mut self,
        slot: usize,
        metrics: &mut dyn FnMut() -> Result<String, ApiError>,
    ) -> io::Result<()> {
        let Some(exchange) = self.exchanges.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(());
        };
        let texts = &mut self.texts;
        let turn = exchange.turn(&mut |open| {
            if texts.as_ref().is_none_or(|t| t.made.elapsed() >= FRESH) {
                let text = metrics()?;
                *texts = Some(Texts {
                    made: Instant::now(),
                    classic: classic(&text).into(),
                    open: text.into(),
                });
            }
            let texts = texts.as_ref().ok_or(ApiError::Busy)?;
            Ok(Rc::clone(if open { &texts.open } else { &texts.classic }))
        });
        match turn {
            Waits::ToRead => {}
            Waits::ToWrite => {
                let data = EventData::new_u64(slot as u64);
                epoll::modify(&self.epoll, exchange.as_fd(), data, interest(turn))?;
            }
            Waits::Over => self.exchanges[slot] = None,
        }
        Ok(())
    }
}

/// Listens on an address that the host may not have yet. The daemon starts before the network managers, because some of
/// them assign addresses to its interfaces.
fn listen(at: &SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(at) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let listener = listen_ahead(at)?;
            let address = at.ip();
            log::info!("metrics wait for {address}: the host does not have this address yet");
            Ok(listener)
        }
        listening => listening,
    }
}

/// Listens as [`TcpListener::bind`] does, without the check that the host has the address.
fn listen_ahead(at: &SocketAddr) -> io::Result<TcpListener> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    match at {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    rustix::net::bind(&socket, at)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket.into())
}

impl AsFd for MetricsServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

enum Socket {
    /// With a spare descriptor, as in [`Listener`].
    Tcp(TcpListener, Option<File>),
    Unix(Listener),
}

impl Socket {
    /// The next connection; `None` if none waits.
    fn accept(&mut self) -> io::Result<Option<Box<dyn Stream>>> {
        match self {
            Socket::Unix(listener) => {
                let stream = listener.accept()?;
                Ok(stream.map(|stream| Box::new(stream) as Box<dyn Stream>))
            }
            Socket::Tcp(listener, reserve) => {
                let Some((stream, _)) = accept(reserve, || listener.accept())? else {
                    return Ok(None);
                };
                stream.set_nonblocking(true)?;
                Ok(Some(Box::new(stream)))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(listener, _) => listener.as_fd(),
            Socket::Unix(listener) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests;
