//! Listeners: an id for each service, shared by all endpoints that listen on it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use proto::{EndpointId, Gid, Instant, Qpn, ServiceId};

use super::device::{Address, Device};
use super::view::{Member, View};
use crate::mad::cm::selected;

/// Waiting time after a failed listen: another program may release the port number, or the address may
/// appear.
const AGAIN: Duration = Duration::from_secs(5);

/// The listeners.
#[derive(Debug)]
pub struct Listeners<D: Device> {
    services: BTreeMap<ServiceId, Listener<D>>,
}

#[derive(Debug)]
struct Listener<D: Device> {
    endpoints: Vec<EndpointId>,
    line: Option<D::Id>,
    again: Option<Instant>,
    /// The error logged last.
    reported: Option<io::ErrorKind>,
}

impl<D: Device> Default for Listeners<D> {
    fn default() -> Listeners<D> {
        Listeners {
            services: BTreeMap::new(),
        }
    }
}

impl<D: Device> Listeners<D> {
    /// Adds an endpoint to the listener of a service.
    pub fn add(&mut self, now: Instant, service: ServiceId, endpoint: EndpointId) {
        let listener = self.services.entry(service).or_insert_with(|| Listener {
            endpoints: Vec::new(),
            line: None,
            again: Some(now),
            reported: None,
        });
        if !listener.endpoints.contains(&endpoint) {
            listener.endpoints.push(endpoint);
        }
    }

    /// Keeps the endpoints for which `stays` is true; a listener without endpoints ends.
    pub fn retain(&mut self, stays: impl Fn(EndpointId) -> bool) {
        self.services.retain(|_, listener| {
            listener.endpoints.retain(|e| stays(*e));
            !listener.endpoints.is_empty()
        });
    }

    /// Ends all ids, after a change of the address or the removal of the device.
    pub fn close(&mut self, now: Instant) {
        for listener in self.services.values_mut() {
            listener.line = None;
            listener.again = Some(now);
        }
    }

    /// Handles an id that no longer listens.
    pub fn lost(&mut self, now: Instant, service: ServiceId) {
        if let Some(listener) = self.services.get_mut(&service) {
            listener.line = None;
            listener.again = Some(now.after(AGAIN));
        }
    }

    /// Creates missing ids.
    pub fn open(&mut self, now: Instant, device: &mut D, view: &View) {
        if view.gid == Gid::UNSPECIFIED {
            return;
        }
        for (service, listener) in &mut self.services {
            if listener.line.is_some() || listener.again.is_none_or(|at| at > now) {
                continue;
            }
            if !view.listens || !view.services.receives(*service) {
                // Another worker listens, or the port had another manager of connections before.
                listener.again = None;
                continue;
            }
            let at = Address {
                gid: view.gid,
                scope: view.scope,
                service: *service,
            };
            match device.listen(&at) {
                Ok(line) => {
                    listener.line = Some(line);
                    listener.again = None;
                    listener.reported = None;
                }
                Err(e) => {
                    listener.again = Some(now.after(AGAIN));
                    if listener.reported.replace(e.kind()) != Some(e.kind()) {
                        log::warn!("{}", sentence(&view.name, &at, &e));
                    }
                }
            }
        }
    }

    /// When to call [`Listeners::open`] next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.services.values().filter_map(|l| l.again).min()
    }

    /// The endpoint that a request is for, with its P_Key table entry.
    pub fn find(
        &self,
        service: ServiceId,
        private_data: &[u8],
        view: &View,
    ) -> Option<(EndpointId, crate::pkeys::Entry)> {
        let listener = self.services.get(&service)?;
        let to = selected(service, private_data).unwrap_or(Qpn::new(0));
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

/// The warning for a listener that cannot be created.
fn sentence(name: &str, at: &Address, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there, and only one process of a device can; peers send \
             datagrams to this one"
                .to_owned()
        }
        _ => error.to_string(),
    };
    format!(
        "{name}: peers cannot connect: cannot listen on {} for service {}: {why}",
        at.gid, at.service,
    )
}
