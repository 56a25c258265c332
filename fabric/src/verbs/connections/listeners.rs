//! Who listens: one rdma_cm id for each port number, shared by all endpoints that listen on it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use proto::{EndpointId, Gid, Instant, Qpn};

use super::device::{Address, Device};
use super::view::{Member, View};
use crate::mad::cm::RdmaCmData;

/// How soon a listener that could not be made is tried again: whoever has its port number may end, and
/// its address may yet come.
const AGAIN: Duration = Duration::from_secs(5);

/// The listeners.
#[derive(Debug)]
pub struct Listeners<D: Device> {
    ports: BTreeMap<u16, Listener<D>>,
}

#[derive(Debug)]
struct Listener<D: Device> {
    endpoints: Vec<EndpointId>,
    line: Option<D::Id>,
    again: Option<Instant>,
    /// The error that was told last.
    told: Option<io::ErrorKind>,
}

impl<D: Device> Default for Listeners<D> {
    fn default() -> Listeners<D> {
        Listeners {
            ports: BTreeMap::new(),
        }
    }
}

impl<D: Device> Listeners<D> {
    /// An endpoint listens on a port number.
    pub fn add(&mut self, now: Instant, port: u16, endpoint: EndpointId) {
        let listener = self.ports.entry(port).or_insert_with(|| Listener {
            endpoints: Vec::new(),
            line: None,
            again: Some(now),
            told: None,
        });
        if !listener.endpoints.contains(&endpoint) {
            listener.endpoints.push(endpoint);
        }
    }

    /// Keeps the endpoints that `stays` says; a listener without any ends.
    pub fn retain(&mut self, stays: impl Fn(EndpointId) -> bool) {
        self.ports.retain(|_, listener| {
            listener.endpoints.retain(|e| stays(*e));
            !listener.endpoints.is_empty()
        });
    }

    /// Ends the ids: the address is another one, or the device has gone.
    pub fn close(&mut self, now: Instant) {
        for listener in self.ports.values_mut() {
            listener.line = None;
            listener.again = Some(now);
        }
    }

    /// The id of a port number is no longer one.
    pub fn lost(&mut self, now: Instant, port: u16) {
        if let Some(listener) = self.ports.get_mut(&port) {
            listener.line = None;
            listener.again = Some(now.after(AGAIN));
        }
    }

    /// Makes the ids that there are not yet.
    pub fn open(&mut self, now: Instant, device: &mut D, view: &View) {
        if view.gid == Gid::UNSPECIFIED || !view.ethernet {
            return;
        }
        for (port, listener) in &mut self.ports {
            if listener.line.is_some() || listener.again.is_none_or(|at| at > now) {
                continue;
            }
            let at = Address {
                gid: view.gid,
                scope: view.scope,
                port: *port,
            };
            match device.listen(&at) {
                Ok(line) => {
                    listener.line = Some(line);
                    listener.again = None;
                    listener.told = None;
                }
                Err(e) => {
                    listener.again = Some(now.after(AGAIN));
                    if listener.told.replace(e.kind()) != Some(e.kind()) {
                        log::warn!("{}", sentence(&view.name, &at, &e));
                    }
                }
            }
        }
    }

    /// When [`Listeners::open`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.ports.values().filter_map(|l| l.again).min()
    }

    /// The endpoint that a request is for, with its P_Key table entry.
    pub fn find(
        &self,
        port: u16,
        data: &RdmaCmData,
        view: &View,
    ) -> Option<(EndpointId, crate::pkeys::Entry)> {
        let listener = self.ports.get(&port)?;
        let to = data.to();
        let mut those = listener.endpoints.iter().filter_map(|e| {
            let member: &Member = view.members.get(e)?;
            (to == Qpn::new(0) || member.qpn == to).then_some((*e, member.entry))
        });
        let first = those.next()?;
        match those.next() {
            None => first.1.map(|entry| (first.0, entry)),
            Some(_) => None,
        }
    }
}

/// What to say when nobody can be heard.
fn sentence(name: &str, at: &Address, error: &io::Error) -> String {
    let port = at.port;
    let (what, hint) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            "another program listens there",
            "; only one daemon can take connections of a port",
        ),
        _ => ("", ""),
    };
    let why = if what.is_empty() {
        error.to_string()
    } else {
        what.to_owned()
    };
    format!(
        "{name}: peers cannot ask for connections, since rdma_cm cannot listen on {} port {port}: {why}{hint}",
        at.gid.to_ip(),
    )
}
