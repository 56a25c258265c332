//! What the kernel (FUSE) knows by number.

use std::collections::HashMap;
use std::hash::Hash;

/// Values with inodes in the kernel, each with its key and the number of lookups that the kernel has not forgotten.
#[derive(Debug)]
pub struct Remembered<K, V> {
    known: HashMap<u64, (K, V, u64)>,
    numbers: HashMap<K, u64>,
    last: u64,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Remembered<K, V> {
        Remembered {
            known: HashMap::new(),
            numbers: HashMap::new(),
            last: 0,
        }
    }
}

impl<K: Clone + Eq + Hash, V> Remembered<K, V> {
    /// Counts a lookup by the kernel, and replaces the value. Returns the number of the key, which is not 0.
    pub fn looked_up(&mut self, key: K, value: V) -> u64 {
        let number = *self.numbers.entry(key.clone()).or_insert_with(|| {
            // Numbers are not reused, so that the kernel cannot confuse keys.
            self.last += 1;
            self.last
        });
        let lookups = self
            .known
            .get(&number)
            .map_or(0, |(_, _, lookups)| *lookups);
        self.known.insert(number, (key, value, lookups + 1));
        number
    }

    /// Counts another lookup of a number that the kernel knows.
    pub fn looked_up_within(&mut self, number: u64) {
        if let Some((_, _, lookups)) = self.known.get_mut(&number) {
            *lookups += 1;
        }
    }

    /// The kernel forgets this number of lookups.
    pub fn forgotten(&mut self, number: u64, lookups: u64) {
        let Some((key, _, left)) = self.known.get_mut(&number) else {
            return;
        };
        *left = left.saturating_sub(lookups);
        if *left == 0 {
            self.numbers.remove(key);
            self.known.remove(&number);
        }
    }

    /// The key and the value with this number.
    pub fn get(&self, number: u64) -> Option<(&K, &V)> {
        self.known.get(&number).map(|(key, value, _)| (key, value))
    }

    /// The value with this number, to be changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        self.known.get_mut(&number).map(|(_, value, _)| value)
    }
}
