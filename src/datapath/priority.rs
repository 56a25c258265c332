//! Priorities of frames (IEEE 802.1Q-2018, 6.9.4) as the fabric's traffic class.
//!
//! A priority maps to the service level of the same number. A port over Ethernet has no service levels;
//! RoCEv2 uses the traffic class (IBA vol. 1, annex A17): the DSCP class selector of the same number
//! (RFC 2474, section 4.2.2).

use std::collections::HashMap;

use fabric::{AddressHandle, AhAttributes, Gid, PKey, Worker};

/// Maximum number of address handles with a priority. At the maximum all are released and created anew.
const HANDLES_MAX: usize = 4096;

/// The address handles of one lane for frames with a priority other than 0, and the current priority.
#[derive(Debug, Default)]
pub struct Priorities {
    now: u8,
    handles: HashMap<(u8, Gid, PKey), AddressHandle>,
    released: Vec<AddressHandle>,
}

impl Priorities {
    /// Sets the priority of the next packets, 0 to 7; higher bits are ignored.
    pub fn set(&mut self, priority: u8) {
        self.now = priority & 7;
    }

    /// Whether the current priority is not 0.
    pub fn is_raised(&self) -> bool {
        self.now != 0
    }

    /// The address handle to a GID in a partition, in the current priority; `None` if the fabric cannot
    /// create it.
    #[cold]
    pub fn handle(
        &mut self,
        fabric: &mut dyn Worker,
        (dgid, pkey): (Gid, PKey),
    ) -> Option<AddressHandle> {
        let key = (self.now, dgid, pkey);
        if let Some(ah) = self.handles.get(&key) {
            return Some(*ah);
        }
        if self.handles.len() >= HANDLES_MAX {
            self.release_all();
        }
        let ah = fabric
            .create_ah(&AhAttributes {
                traffic_class: self.now << 5,
                ..AhAttributes::to(dgid, pkey)
            })
            .ok()?;
        self.handles.insert(key, ah);
        Some(ah)
    }

    /// Releases all handles.
    pub fn release_all(&mut self) {
        self.released.extend(self.handles.drain().map(|(_, ah)| ah));
    }

    /// Drains the released handles. The caller destroys them after the last send that uses them.
    pub fn released(&mut self) -> impl Iterator<Item = AddressHandle> {
        self.released.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::FakeFabric;
    use super::*;

    fn gid(n: u16) -> Gid {
        let mut gid = [0xfe; 16];
        gid[14..].copy_from_slice(&n.to_be_bytes());
        Gid(gid)
    }

    #[test]
    fn a_priority_is_the_class_selector_of_its_number_and_has_one_handle() {
        let mut fabric = FakeFabric::new(4);
        let mut priorities = Priorities::default();
        assert!(!priorities.is_raised());
        for priority in [5, 7, 5] {
            priorities.set(priority);
            assert!(priorities.is_raised());
            priorities
                .handle(&mut fabric, (gid(1), PKey::DEFAULT))
                .unwrap();
        }
        let classes: Vec<u8> = fabric
            .state()
            .handles
            .iter()
            .map(|a| a.traffic_class)
            .collect();
        assert_eq!(classes, [5 << 5, 7 << 5]);
        priorities.set(8);
        assert!(!priorities.is_raised());
    }

    #[test]
    fn handles_are_released_at_the_maximum_and_at_the_end() {
        let mut fabric = FakeFabric::new(4);
        let mut priorities = Priorities::default();
        priorities.set(1);
        for n in 0..=HANDLES_MAX as u16 {
            priorities
                .handle(&mut fabric, (gid(n), PKey::DEFAULT))
                .unwrap();
        }
        assert_eq!(priorities.released().count(), HANDLES_MAX);
        priorities.release_all();
        assert_eq!(priorities.released().count(), 1);
        assert_eq!(priorities.released().count(), 0);
    }
}
