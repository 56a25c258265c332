//! The fabric ports in service.

mod runtime;

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use control::api::ApiError;
use control::config::PortName;

use crate::datapath::{IpSnapshot, LinkId};
pub use runtime::{PortRuntime, PortSettings};

/// Names a port of this daemon; never reused while the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PortId(pub(crate) u32);

impl PortId {
    /// The port's number for an Ethernet Manager, from 1 on.
    pub fn number(self) -> u8 {
        u8::try_from(self.0 + 1).unwrap_or(u8::MAX)
    }
}

/// All ports. Whoever has the id of a port closes what is on the port before the port goes.
#[derive(Default)]
pub struct Ports {
    all: BTreeMap<PortId, PortRuntime>,
    next: u32,
}

impl Ports {
    /// Adds a port.
    pub fn add(&mut self, port: PortRuntime) -> PortId {
        let id = PortId(self.next);
        self.next += 1;
        self.all.insert(id, port);
        id
    }

    /// Takes a port out of service; its threads run on until [`PortRuntime::stop`].
    pub fn remove(&mut self, id: PortId) -> Option<PortRuntime> {
        self.all.remove(&id)
    }

    /// Stops all ports.
    pub fn stop(&mut self) {
        for port in std::mem::take(&mut self.all).into_values() {
            port.stop();
        }
    }

    /// A port, if it is still open.
    pub fn get(&self, id: PortId) -> Option<&PortRuntime> {
        self.all.get(&id)
    }

    /// What the data threads of a port know of one IP link: counters and tables, by thread.
    ///
    /// # Errors
    /// [`ApiError::Busy`] when none answers in time.
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

    /// The ids of all ports, which may be used while the ports change.
    pub fn ids(&self) -> Vec<PortId> {
        self.all.keys().copied().collect()
    }

    /// The only port, if there is one alone.
    pub fn only(&self) -> Option<PortId> {
        let mut ids = self.all.keys();
        ids.next().filter(|_| ids.next().is_none()).copied()
    }

    /// The port for which this holds.
    pub fn find(&self, is_it: impl Fn(&PortRuntime) -> bool) -> Option<PortId> {
        let mut all = self.iter();
        all.find(|(_, port)| is_it(port)).map(|(id, _)| id)
    }

    /// The port that the configuration calls so.
    pub fn named(&self, name: &PortName) -> Option<PortId> {
        self.find(|port| port.name == *name)
    }
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
