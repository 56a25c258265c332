//! The counters of a VNIC.

use std::cell::RefCell;
use std::collections::BTreeMap;

use vnic::counters::Counters;

use super::Ethernet;
use crate::datapath::{EthernetSnapshot, Snapshot, TapStats};
use crate::interface::InterfaceId;

/// Counters of the virtual port and of its TAP.
pub type Counted = (Counters, TapStats);

/// The counters of a VNIC in all data threads and of its former lanes. They never decrease: for a thread
/// that is too busy to answer, its last report counts.
#[derive(Default)]
pub struct RetainedCounters {
    retired: Counted,
    /// The last report of each data thread. A `RefCell`, since a request for counters changes nothing else.
    last: RefCell<BTreeMap<usize, Counted>>,
}

impl RetainedCounters {
    /// A data thread reported the counters of its lane.
    pub fn note(&self, part: &EthernetSnapshot) {
        let counted = (part.counters, part.tap);
        self.last.borrow_mut().insert(part.worker, counted);
    }

    /// The sum.
    pub fn total(&self) -> Counted {
        let mut total = self.retired;
        for (counters, tap) in self.last.borrow().values() {
            total.0.add(counters);
            total.1.add(tap);
        }
        total
    }

    /// The lanes were closed; new lanes count from 0.
    pub fn retire(&mut self) {
        self.retired = self.total();
        self.last.get_mut().clear();
    }
}

impl Ethernet {
    /// The counters of the VNIC with the interface id `id`, updated from these snapshots.
    pub fn count(&self, id: InterfaceId, snapshots: &[Snapshot]) -> Counted {
        parts(snapshots, id).for_each(|part| self.counted.note(part));
        self.counted.total()
    }
}

/// The parts of one VNIC in the snapshots of all data threads.
pub fn parts(snapshots: &[Snapshot], id: InterfaceId) -> impl Iterator<Item = &EthernetSnapshot> {
    let all = snapshots.iter().flat_map(|s| &s.ethernet);
    all.filter(move |part| part.id == id.link())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::LinkId;

    fn part(worker: usize, packets: u64) -> EthernetSnapshot {
        EthernetSnapshot {
            id: LinkId(1),
            worker,
            tap: TapStats {
                tap_reads: packets,
                ..TapStats::default()
            },
            counters: Counters {
                tx_packets: packets,
                ..Counters::default()
            },
            macs: Vec::new(),
            nodes: Vec::new(),
        }
    }

    #[test]
    fn counters_never_decrease() {
        let mut counters = RetainedCounters::default();
        let total = |counters: &RetainedCounters| {
            let (port, tap) = counters.total();
            assert_eq!(port.tx_packets, tap.tap_reads);
            port.tx_packets
        };
        counters.note(&part(0, 10));
        counters.note(&part(1, 5));
        assert_eq!(total(&counters), 15);
        // The second thread does not answer.
        counters.note(&part(0, 11));
        assert_eq!(total(&counters), 16);
        // It does not answer when its lane is closed either.
        counters.note(&part(0, 12));
        counters.retire();
        assert_eq!(total(&counters), 17);
        counters.note(&part(0, 1));
        assert_eq!(total(&counters), 18);
        counters.note(&part(1, 2));
        counters.retire();
        counters.retire();
        assert_eq!(total(&counters), 20);
    }
}
