//! The connections of a worker, and their indexes.
//!
//! Queue pair numbers and contexts of rdma_cm ids come from the device and its libraries, possibly late
//! or wrong. A generation in the context detects an earlier connection in the same place; the number of
//! a destroyed queue pair finds nothing.

use std::collections::{HashMap, VecDeque};

use proto::{ConnectionId, Qpn};

/// Identifies a connection by its place and the generation of the place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Index of the place.
    pub place: u16,
    /// Generation of the place.
    pub generation: u16,
}

impl Key {
    /// The context of the rdma_cm id; never 0.
    pub const fn context(self) -> u64 {
        1 << 32 | (self.generation as u64) << 16 | self.place as u64
    }

    /// From the context of an rdma_cm id; `None` if it is not a connection's.
    pub const fn of_context(context: u64) -> Option<Key> {
        if context >> 32 != 1 {
            return None;
        }
        Some(Key {
            place: context as u16,
            generation: (context >> 16) as u16,
        })
    }
}

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

#[derive(Debug)]
struct Place<C> {
    generation: u16,
    entry: Option<Box<C>>,
    id: Option<ConnectionId>,
    qpn: Option<Qpn>,
}

/// The table of connections.
#[derive(Debug)]
pub struct Table<C> {
    max: usize,
    places: Vec<Place<C>>,
    /// Free places, longest free first, so that generations last.
    free: VecDeque<u16>,
    by_id: Map<ConnectionId, Key>,
    by_qpn: Map<Qpn, Key>,
}

impl<C> Table<C> {
    /// For at most `max` connections, limited by the number of places.
    pub fn new(max: usize) -> Table<C> {
        Table {
            max: max.min(usize::from(u16::MAX)),
            places: Vec::new(),
            free: VecDeque::new(),
            by_id: Map::default(),
            by_qpn: Map::default(),
        }
    }

    /// Changes the maximum number of connections.
    pub const fn bound(&mut self, max: usize) {
        self.max = if max < u16::MAX as usize {
            max
        } else {
            u16::MAX as usize
        };
    }

    /// Whether the table is full.
    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Inserts a connection, created from its key. `None` if the table is full or `make` returns
    /// `None`.
    pub fn insert(&mut self, make: impl FnOnce(Key) -> Option<C>) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        if self.free.is_empty() {
            self.free.push_back(self.places.len() as u16);
            self.places.push(Place {
                generation: 0,
                entry: None,
                id: None,
                qpn: None,
            });
        }
        let place = *self.free.front()?;
        let at = self.places.get_mut(usize::from(place))?;
        let key = Key {
            place,
            generation: at.generation,
        };
        at.entry = Some(Box::new(make(key)?));
        self.free.pop_front();
        Some(key)
    }

    /// Sets the consumer's identifier of a connection.
    pub fn name(&mut self, key: Key, id: ConnectionId) {
        if let Some(at) = self.place_mut(key) {
            at.id = Some(id);
            self.by_id.insert(id, key);
        }
    }

    /// Removes the consumer's identifier of a connection.
    pub fn unname(&mut self, key: Key) {
        let id = self.place_mut(key).and_then(|at| at.id.take());
        if let Some(id) = id {
            self.by_id.remove(&id);
        }
    }

    /// Sets the queue pair number of a connection.
    pub fn number(&mut self, key: Key, qpn: Qpn) {
        if let Some(at) = self.place_mut(key) {
            at.qpn = Some(qpn);
            self.by_qpn.insert(qpn, key);
        }
    }

    /// Removes a connection. Its queue pair must be destroyed, or complete nothing more.
    pub fn remove(&mut self, key: Key) -> Option<Box<C>> {
        let at = self.place_mut(key)?;
        let entry = at.entry.take()?;
        at.generation = at.generation.wrapping_add(1);
        let (id, qpn) = (at.id.take(), at.qpn.take());
        self.free.push_back(key.place);
        if let Some(id) = id {
            self.by_id.remove(&id);
        }
        // The device may have reused the number.
        if let Some(qpn) = qpn.filter(|qpn| self.by_qpn.get(qpn) == Some(&key)) {
            self.by_qpn.remove(&qpn);
        }
        Some(entry)
    }

    fn place_mut(&mut self, key: Key) -> Option<&mut Place<C>> {
        let at = self.places.get_mut(usize::from(key.place))?;
        (at.generation == key.generation).then_some(at)
    }

    /// The connection with this key.
    pub fn get(&self, key: Key) -> Option<&C> {
        let at = self.places.get(usize::from(key.place))?;
        let entry = at.entry.as_deref()?;
        (at.generation == key.generation).then_some(entry)
    }

    /// The connection with this key, mutable.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut C> {
        self.place_mut(key)?.entry.as_deref_mut()
    }

    /// The key of the connection with the consumer's identifier.
    pub fn by_id(&self, id: ConnectionId) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    /// The key of the connection with this queue pair number.
    pub fn by_qpn(&self, qpn: Qpn) -> Option<Key> {
        self.by_qpn.get(&qpn).copied()
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &C)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(n, at)| {
            let key = Key {
                place: n as u16,
                generation: at.generation,
            };
            Some((key, at.entry.as_deref()?))
        })
    }

    /// The keys of the connections for which `wanted` is true.
    pub fn keys(&self, wanted: impl Fn(&C) -> bool) -> Vec<Key> {
        let all = self.iter().filter(|(_, c)| wanted(c));
        all.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_key_of_a_removed_connection_finds_nothing() {
        let mut table = Table::new(1);
        let old = table.insert(|_| Some("old")).unwrap();
        table.name(old, ConnectionId(1));
        table.number(old, Qpn::new(17));
        assert!(table.is_full() && table.insert(|_| Some("too many")).is_none());
        assert_eq!(table.remove(old).as_deref(), Some(&"old"));
        let new = table.insert(|_| Some("new")).unwrap();
        assert_eq!(new.place, old.place);
        assert_eq!((table.get(old), table.get(new)), (None, Some(&"new")));
        assert_eq!(table.by_qpn(Qpn::new(17)), None);
        assert_eq!(table.by_id(ConnectionId(1)), None);
        assert!(table.remove(old).is_none());
    }

    #[test]
    fn a_number_used_again_is_the_new_one_s() {
        let mut table = Table::new(8);
        let qpn = Qpn::new(17);
        let old = table.insert(|_| Some(1)).unwrap();
        table.number(old, qpn);
        let new = table.insert(|_| Some(2)).unwrap();
        table.number(new, qpn);
        table.remove(old);
        assert_eq!(table.by_qpn(qpn), Some(new));
    }

    proptest! {
        #[test]
        fn keys_are_contexts_and_back(place: u16, generation: u16, any: u64) {
            let key = Key { place, generation };
            prop_assert_eq!(Key::of_context(key.context()), Some(key));
            if let Some(key) = Key::of_context(any) {
                prop_assert_eq!(key.context(), any);
            }
            prop_assert_eq!(Key::of_context(u64::from(place)), None);
        }
    }
}
