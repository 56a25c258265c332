//! The open fabric ports.

#[cfg(test)]
pub mod fake;
mod runtime;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use control::api::ApiError;
use control::config::PortName;
use fabric::{PortAttributes, PortState};

use crate::datapath::{IpSnapshot, LinkId, Snapshot};
pub use runtime::{PortRuntime, PortSettings};
pub use spec::PortSpec;

/// Identifies a port. Never reused while the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PortId(pub(crate) u32);

/// All ports. Holders of a [`PortId`] close everything on the port before the port is removed.
#[derive(Default)]
pub struct Ports {
    all: BTreeMap<PortId, PortRuntime>,
    next: u32,
}

impl Ports {
    /// Adds a port. It gets the lowest free number: a port that a reload removed and another one adds again has its
    /// former number, by which Ethernet Managers know its VNICs.
    pub fn add(&mut self, mut port: PortRuntime) -> PortId {
        let id = PortId(self.next);
        self.next += 1;
        let is_free = |number: &u8| self.values().all(|other| other.number != *number);
        port.number = (1..u8::MAX).find(is_free).unwrap_or(u8::MAX);
        self.all.insert(id, port);
        id
    }

    /// Removes a port. Its threads run until [`PortRuntime::stop`].
    pub fn remove(&mut self, id: PortId) -> Option<PortRuntime> {
        self.all.remove(&id)
    }

    /// See [`fabric::Port::set_receiving`]. The data threads have all interfaces before they receive.
    pub fn set_receiving(&mut self, on: bool) {
        for port in self.all.values_mut() {
            if on {
                port.sync();
            }
            port.port.set_receiving(on);
        }
    }

    /// Stops all ports.
    pub fn stop(&mut self) {
        for port in std::mem::take(&mut self.all).into_values() {
            port.stop();
        }
    }

    /// A port, if open.
    pub fn get(&self, id: PortId) -> Option<&PortRuntime> {
        self.all.get(&id)
    }

    /// Counters and tables of one IP link, by data thread.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if no data thread answers in time.
    pub fn tables_of(&self, port: PortId, id: LinkId) -> Result<Vec<IpSnapshot>, ApiError> {
        let snapshots = self[port].snapshots_of(id).into_iter();
        let tables = snapshots.flat_map(|s| s.ip).filter(|table| table.id == id);
        let tables: Vec<IpSnapshot> = tables.collect();
        match tables.is_empty() {
            true => Err(ApiError::Busy),
            false => Ok(tables),
        }
    }

    /// All ports, by id.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &PortRuntime)> {
        self.all.iter().map(|(id, port)| (*id, port))
    }

    /// All ports.
    pub fn values(&self) -> impl Iterator<Item = &PortRuntime> {
        self.all.values()
    }

    /// Snapshots of all data threads of these ports, with or without all tables.
    ///
    /// # Errors
    /// As [`PortRuntime::all_snapshots`].
    pub fn snapshots(
        &self,
        ports: BTreeSet<PortId>,
        tables: bool,
    ) -> Result<BTreeMap<PortId, Vec<Snapshot>>, ApiError> {
        let all = ports.into_iter();
        all.map(|at| Ok((at, self[at].all_snapshots(tables)?)))
            .collect()
    }

    /// The port with a name, of the configuration or of the provider.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`] if no port has the name.
    pub fn called(&self, name: &str) -> Result<PortId, ApiError> {
        let is_it = |port: &PortRuntime| {
            port.name.to_string() == name || port.port.attributes().name == name
        };
        self.find(is_it).ok_or_else(|| ApiError::BadArgument {
            message: format!("ibtapd has no port {name:?}"),
        })
    }

    /// The ids of all ports, as a copy that remains valid while ports change.
    pub fn ids(&self) -> Vec<PortId> {
        self.all.keys().copied().collect()
    }

    /// The port, if there is exactly one.
    pub fn only(&self) -> Option<PortId> {
        let mut ids = self.all.keys();
        ids.next().filter(|_| ids.next().is_none()).copied()
    }

    /// The first port that matches.
    pub fn find(&self, is_it: impl Fn(&PortRuntime) -> bool) -> Option<PortId> {
        let mut all = self.iter();
        all.find(|(_, port)| is_it(port)).map(|(id, _)| id)
    }

    /// The port with a name of the configuration.
    pub fn named(&self, name: &PortName) -> Option<PortId> {
        self.find(|port| port.name == *name)
    }
}

/// The reason why interfaces on a port have no carrier, as text; `None` if the port is active.
pub fn inactive(port: &PortAttributes) -> Option<String> {
    let why = || port.state_reason.clone();
    let is_down = port.state != PortState::Active;
    is_down.then(|| why().unwrap_or_else(|| "its port is down".into()))
}

impl Index<PortId> for Ports {
    type Output = PortRuntime;

    fn index(&self, id: PortId) -> &PortRuntime {
        &self.all[&id]
    }
}

impl IndexMut<PortId> for Ports {
    fn index_mut(&mut self, id: PortId) -> &mut PortRuntime {
        match self.all.get_mut(&id) {
            Some(port) => port,
            None => panic!("{id:?} is closed"),
        }
    }
}
