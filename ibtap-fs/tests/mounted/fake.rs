//! A daemon without a fabric: the real control socket with a list of interfaces that the test changes. It
//! refuses children with the kernel's error numbers.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use control::api::{
    ApiError, ChildAddRequest, ChildDelRequest, GroupInfo, InterfaceInfo, InterfaceStats, PathInfo,
    Reply, Request,
};
use control::{ControlServer, Handler, StreamId, Streamed};
use proto::PKey;
use rustix::event::{PollFd, PollFlags, poll};

use crate::samples::{child, port};

/// Serves until it is dropped.
pub struct Fake {
    asked: Arc<AtomicUsize>,
    interfaces: Arc<Mutex<Vec<InterfaceInfo>>>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub fn start(socket: &Path, interfaces: Vec<InterfaceInfo>) -> Fake {
        let interfaces = Arc::new(Mutex::new(interfaces));
        let (stop, stopped) = UnixStream::pair().unwrap();
        let mut server = ControlServer::bind(socket).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let mut served = Served(interfaces.clone(), asked.clone());
        let thread = thread::spawn(move || {
            loop {
                let mut fds = [
                    PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN),
                    PollFd::new(&stopped, PollFlags::IN),
                ];
                poll(&mut fds, None).unwrap();
                if !fds[1].revents().is_empty() {
                    return;
                }
                server.process(&mut served).unwrap();
            }
        });
        Fake {
            asked,
            interfaces,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Number of requests so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    pub fn interfaces(&self) -> MutexGuard<'_, Vec<InterfaceInfo>> {
        self.interfaces.lock().unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // The other end becomes readable.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Served(Arc<Mutex<Vec<InterfaceInfo>>>, Arc<AtomicUsize>);

fn errno(errno: i32) -> ApiError {
    ApiError::Errno {
        errno,
        message: "No.".into(),
    }
}

impl Handler for Served {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let mut interfaces = self.0.lock().unwrap();
        match request {
            Request::Show(which) => Ok(Reply::Show {
                interfaces: match which.interface {
                    Some(name) => vec![interfaces[named(&interfaces, &name)?].clone()],
                    None => interfaces.clone(),
                },
            }),
            Request::Stats(which) => {
                let of = |interface: &InterfaceInfo| InterfaceStats {
                    name: interface.name.clone(),
                    netns: interface.netns.clone(),
                    rx_packets: 1,
                    tx_packets: u64::MAX,
                    rx_bytes: 3,
                    tx_bytes: 4,
                    tx_errors: 5,
                    rx_dropped: 6,
                    tx_dropped: 7,
                    multicast: 8,
                    ..InterfaceStats::default()
                };
                let stats = match which.interface {
                    Some(name) => vec![of(&interfaces[named(&interfaces, &name)?])],
                    None => interfaces.iter().map(of).collect(),
                };
                Ok(Reply::Stats { stats })
            }
            Request::Groups(which) => {
                let at = named(&interfaces, &which.interface)?;
                let group = GroupInfo {
                    mgid: interfaces[at].broadcast,
                    created: 4_294_892_296,
                    queuelen: 0,
                    complete: true,
                    send_only: false,
                    record: None,
                };
                Ok(Reply::Groups {
                    groups: vec![group; 100],
                })
            }
            Request::Paths(which) => {
                let at = named(&interfaces, &which.interface)?;
                let path = PathInfo {
                    gid: interfaces[at].gid,
                    complete: true,
                    dlid: Some(0x12),
                    sl: Some(0),
                    rate_mbps: Some(10_000),
                    mtu: None,
                    hop_limit: None,
                };
                Ok(Reply::Paths { paths: vec![path] })
            }
            Request::Mode(request) => {
                let at = named(&interfaces, &request.interface)?;
                if interfaces[at].parent.is_none() && request.mode.is_some() {
                    return Err(ApiError::Refused {
                        message: "No connections.".into(),
                    });
                }
                interfaces[at].mode = request.mode.unwrap_or(interfaces[at].mode);
                Ok(Reply::Mode {
                    mode: interfaces[at].mode,
                })
            }
            Request::Mtu(request) => {
                let at = named(&interfaces, &request.interface)?;
                match request.mtu {
                    Some(mtu) if mtu > 2044 => return Err(errno(libc::EINVAL)),
                    Some(mtu) => interfaces[at].mtu = mtu,
                    None => {}
                }
                Ok(Reply::Mtu {
                    mtu: interfaces[at].mtu,
                })
            }
            Request::Umcast(request) => {
                let at = named(&interfaces, &request.interface)?;
                interfaces[at].umcast = request.umcast.unwrap_or(interfaces[at].umcast);
                Ok(Reply::Umcast {
                    umcast: interfaces[at].umcast,
                })
            }
            Request::Ports => Ok(Reply::Ports {
                ports: vec![port("eth0")],
            }),
            Request::ChildAdd(request) => add(&mut interfaces, &request),
            Request::ChildDel(request) => remove(&mut interfaces, &request),
            other => panic!("unexpected method {other:?}"),
        }
    }

    fn open(&mut self, _: StreamId, request: Request) -> Result<(), ApiError> {
        panic!("unexpected request {request:?}")
    }

    fn next(&mut self, _: StreamId) -> Streamed {
        Streamed::Nothing
    }

    fn close(&mut self, _: StreamId) {}
}

/// Matches the name if it is unique, and `NETNS/NAME` always.
fn named(interfaces: &[InterfaceInfo], name: &str) -> Result<usize, ApiError> {
    let is_it = |interface: &InterfaceInfo| match name.split_once('/') {
        Some((netns, name)) => interface.name == name && interface.netns.as_deref() == Some(netns),
        None => interface.name == name,
    };
    let found: Vec<usize> = (0..interfaces.len())
        .filter(|at| is_it(&interfaces[*at]))
        .collect();
    match found[..] {
        [] => Err(ApiError::NoSuchInterface {
            interface: name.to_owned(),
        }),
        [at] => Ok(at),
        _ => Err(ApiError::BadArgument {
            message: "There are several.".into(),
        }),
    }
}

fn add(interfaces: &mut Vec<InterfaceInfo>, request: &ChildAddRequest) -> Result<Reply, ApiError> {
    let at = named(interfaces, &request.parent)?;
    let parent = interfaces[at].name.clone();
    let pkey = match u16::try_from(request.pkey) {
        Ok(0 | 0x8000) | Err(_) => return Err(errno(libc::EINVAL)),
        // Simulates another program that holds the TAP.
        Ok(0x8666) => return Err(errno(libc::EBUSY)),
        Ok(pkey) => PKey::new(pkey).full(),
    };
    let is_taken = |other: &InterfaceInfo| {
        other.pkey == pkey && (other.name == parent || other.parent.as_ref() == Some(&parent))
    };
    if interfaces.iter().any(is_taken) {
        return Err(errno(libc::ENOTUNIQ));
    }
    let name = format!("{parent:.10}.{:04x}", pkey.get());
    let qpn = 0x1000 + u32::from(pkey.get());
    interfaces.push(child(&name, qpn, &parent, pkey.get()));
    Ok(Reply::ChildAdd { interface: name })
}

fn remove(
    interfaces: &mut Vec<InterfaceInfo>,
    request: &ChildDelRequest,
) -> Result<Reply, ApiError> {
    let at = named(interfaces, &request.interface)?;
    let parent = interfaces[at].name.clone();
    let found = interfaces.iter().position(|other| {
        other.parent.as_ref() == Some(&parent)
            && request.pkey.map(|pkey| pkey | 0x8000) == Some(other.pkey.get().into())
    });
    interfaces.remove(found.ok_or(errno(libc::ENODEV))?);
    Ok(Reply::ChildDel {})
}
