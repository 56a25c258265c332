//! Priorities of frames (IEEE 802.1Q-2018, 6.9.4) as the fabric's traffic class.
//!
//! A priority is the service level of the same number. A port over Ethernet has none, and RoCEv2
//! says it by the traffic class (IBA vol. 1, annex A17): that of the DSCP class selector of the same
//! number (RFC 2474, section 4.2.2).

use std::collections::HashMap;

use fabric::{AddressHandle, AhAttributes, Gid, Worker};

/// Address handles kept for frames with a priority. When there are more, all are made anew.
const HANDLES_MAX: usize = 4096;

/// The address handles of one lane for frames with a priority other than 0, and the priority of the
/// frame that is being sent.
#[derive(Debug, Default)]
pub struct Priorities {
    now: u8,
    handles: HashMap<(u8, Gid), AddressHandle>,
    released: Vec<AddressHandle>,
}

impl Priorities {
    /// The priority of what is sent from now on, 0 to 7.
    pub fn set(&mut self, priority: u8) {
        self.now = priority & 7;
    }

    /// Whether it is another one than 0.
    pub fn is_raised(&self) -> bool {
        self.now != 0
    }

    /// The handle to a GID in the priority of the moment; `None` if there can be none.
    #[cold]
    pub fn handle(&mut self, fabric: &mut dyn Worker, dgid: Gid) -> Option<AddressHandle> {
        let key = (self.now, dgid);
        if let Some(ah) = self.handles.get(&key) {
            return Some(*ah);
        }
        if self.handles.len() >= HANDLES_MAX {
            self.release_all();
        }
        let ah = fabric
            .create_ah(&AhAttributes {
                traffic_class: self.now << 5,
                ..AhAttributes::to(dgid)
            })
            .ok()?;
        self.handles.insert(key, ah);
        Some(ah)
    }

    /// Gives up all handles.
    pub fn release_all(&mut self) {
        self.released.extend(self.handles.drain().map(|(_, ah)| ah));
    }

    /// The handles that are to be ended, after the last send that names them.
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
    fn a_priority_is_the_class_selector_of_its_number_and_made_once() {
        let mut fabric = FakeFabric::new(4);
        let mut priorities = Priorities::default();
        assert!(!priorities.is_raised());
        for priority in [5, 7, 5] {
            priorities.set(priority);
            assert!(priorities.is_raised());
            priorities.handle(&mut fabric, gid(1)).unwrap();
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
    fn handles_are_given_back_when_there_are_too_many_and_at_the_end() {
        let mut fabric = FakeFabric::new(4);
        let mut priorities = Priorities::default();
        priorities.set(1);
        for n in 0..=HANDLES_MAX as u16 {
            priorities.handle(&mut fabric, gid(n)).unwrap();
        }
        assert_eq!(priorities.released().count(), HANDLES_MAX);
        priorities.release_all();
        assert_eq!(priorities.released().count(), 1);
        assert_eq!(priorities.released().count(), 0);
    }
}
