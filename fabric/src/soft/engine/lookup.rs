//! The connections of one worker, by connection id, communication id and queue pair number.

use std::collections::HashMap;

use proto::{ConnectionId, PKey, Qpn};

use super::connection::Connection;
use crate::cm::CmId;

/// An index of the table. Removed connections free their place.
pub type Place = u32;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The numbers of a removed connection that must not be used again yet (TIMEWAIT).
#[derive(Clone, Copy, Debug)]
pub struct Lingering {
    /// The queue pair number.
    pub qpn: Qpn,
    /// The partition, for management datagrams that may be repeated.
    pub pkey: PKey,
}

/// The table of connections.
#[derive(Debug, Default)]
pub struct Table {
    places: Vec<Option<Box<Connection>>>,
    free: Vec<Place>,
    by_id: Map<ConnectionId, Place>,
    by_cm: Map<CmId, Place>,
    /// None for lingering numbers.
    by_qpn: Map<Qpn, Option<Place>>,
    lingering: Map<CmId, Lingering>,
}

impl Table {
    /// Adds a connection.
    pub fn insert(&mut self, connection: Box<Connection>) -> Place {
        let place = self.free.pop().unwrap_or(self.places.len() as Place);
        self.by_id.insert(connection.id, place);
        self.by_cm.insert(connection.cm, place);
        self.by_qpn.insert(connection.qp.qpn(), Some(place));
        if place as usize == self.places.len() {
            self.places.push(Some(connection));
        } else {
            self.places[place as usize] = Some(connection);
        }
        place
    }

    /// Removes a connection. Its queue pair number stays in use until [`Table::release`].
    pub fn remove(&mut self, place: Place) -> Option<Box<Connection>> {
        let connection = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        self.by_id.remove(&connection.id);
        self.by_cm.remove(&connection.cm);
        let (qpn, pkey) = (connection.qp.qpn(), connection.partition.pkey);
        self.by_qpn.insert(qpn, None);
        self.lingering
            .insert(connection.cm, Lingering { qpn, pkey });
        Some(connection)
    }

    /// Releases the numbers of a removed connection.
    pub fn release(&mut self, cm: CmId) {
        if let Some(l) = self.lingering.remove(&cm) {
            self.by_qpn.remove(&l.qpn);
        }
    }

    /// Whether a queue pair number is in use or in TIMEWAIT.
    pub fn is_taken(&self, qpn: Qpn) -> bool {
        self.by_qpn.contains_key(&qpn)
    }

    /// The partition of a connection or of lingering numbers.
    pub fn pkey(&self, cm: CmId) -> Option<PKey> {
        let here = self.by_cm(cm).and_then(|place| self.get(place));
        here.map(|c| c.partition.pkey)
            .or_else(|| self.lingering.get(&cm).map(|l| l.pkey))
    }

    /// The place of a connection.
    pub fn by_id(&self, id: ConnectionId) -> Option<Place> {
        self.by_id.get(&id).copied()
    }

    /// The place of the connection with this communication id.
    pub fn by_cm(&self, id: CmId) -> Option<Place> {
        self.by_cm.get(&id).copied()
    }

    /// The place of the connection with this queue pair number.
    pub fn by_qpn(&self, qpn: Qpn) -> Option<Place> {
        self.by_qpn.get(&qpn).copied().flatten()
    }

    /// The connection in a place.
    pub fn get(&self, place: Place) -> Option<&Connection> {
        self.places.get(place as usize)?.as_deref()
    }

    /// The connection in a place, mutable.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut Connection> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    /// All connections, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.places.iter_mut().flatten().map(Box::as_mut)
    }

    /// The places of the connections that satisfy `wanted`.
    pub fn places(&self, wanted: impl Fn(&Connection) -> bool) -> Vec<Place> {
        let taken = self.places.iter().enumerate();
        taken
            .filter(|(_, c)| c.as_ref().is_some_and(|c| wanted(c)))
            .map(|(place, _)| place as Place)
            .collect()
    }

    /// Number of lingering entries.
    #[cfg(test)]
    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }
}
