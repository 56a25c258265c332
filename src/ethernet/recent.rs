//! The recent counters of a port's VNICs. A read takes an answer of each data thread. A manager reads one
//! VNIC after the other, and any node may repeat that endlessly.

use std::collections::BTreeMap;

use vnic::Time;
use vnic::counters::Counters;

use crate::interface::InterfaceId;

/// How long counters are reused, in milliseconds.
const RECENT_MS: u64 = 100;

/// The counters read last.
#[derive(Default)]
pub struct RecentCounters {
    at: Time,
    of: BTreeMap<InterfaceId, Counters>,
}

impl RecentCounters {
    /// The counters of a VNIC; `None` if they must be read.
    pub fn get(&self, now: Time, id: InterfaceId) -> Option<Counters> {
        let recent = now < self.at.after(RECENT_MS);
        self.of.get(&id).filter(|_| recent).copied()
    }

    /// The counters of all VNICs of the port were read.
    pub fn set(&mut self, now: Time, all: BTreeMap<InterfaceId, Counters>) {
        self.at = now;
        self.of = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(n: u64) -> BTreeMap<InterfaceId, Counters> {
        let of = |id| {
            let counters = Counters {
                rx_packets: n + u64::from(id),
                ..Counters::default()
            };
            (InterfaceId::new(id), counters)
        };
        (0..255).map(of).collect()
    }

    /// Returns how often these requests read the threads, and the last answer.
    fn reads(recent: &mut RecentCounters, asked: impl Iterator<Item = (u64, u32)>) -> (u64, u64) {
        let (mut reads, mut last) = (0, 0);
        for (now, id) in asked {
            let found = recent.get(Time(now), InterfaceId::new(id));
            let found = found.or_else(|| {
                reads += 1;
                recent.set(Time(now), counted(now));
                recent.get(Time(now), InterfaceId::new(id))
            });
            last = found.unwrap().rx_packets;
        }
        (reads, last)
    }

    #[test]
    fn requests_for_all_vnics_of_a_port_read_once() {
        let mut recent = RecentCounters::default();
        let both = (0..255).flat_map(|id| [(1000, id), (1000, id)]);
        assert_eq!(reads(&mut recent, both), (1, 1254));
    }

    #[test]
    fn a_storm_reads_ten_times_a_second_and_answers_are_recent() {
        let mut recent = RecentCounters::default();
        let storm = (5000..6000).flat_map(|now| (0..100).map(move |_| (now, 3)));
        let (reads, last) = reads(&mut recent, storm);
        assert_eq!((reads, last), (10, 5903));
    }

    #[test]
    fn one_that_is_new_is_read_at_once() {
        let mut recent = RecentCounters::default();
        recent.set(Time(1000), BTreeMap::new());
        assert_eq!(recent.get(Time(1000), InterfaceId::new(4)), None);
        recent.set(Time(1000), counted(1));
        assert!(recent.get(Time(1099), InterfaceId::new(4)).is_some());
        assert!(recent.get(Time(1100), InterfaceId::new(4)).is_none());
    }
}
