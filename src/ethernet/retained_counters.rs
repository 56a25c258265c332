//! What has been counted of a VNIC.

use std::cell::RefCell;
use std::collections::BTreeMap;

use vnic::counters::Counters;

use crate::datapath::{EthernetSnapshot, TapStats};

/// Counters of the virtual port, and of its TAP.
pub type Counted = (Counters, TapStats);

/// The counters of a VNIC in all data threads, and of the lanes that it had before. They never go back: of a
/// thread that is too busy to answer those count that it told last.
#[derive(Default)]
pub struct RetainedCounters {
    retired: Counted,
    /// By data thread. People who ask for the counters change nothing else.
    told: RefCell<BTreeMap<usize, Counted>>,
}

impl RetainedCounters {
    /// A data thread has told what its lane has counted.
    pub fn note(&self, part: &EthernetSnapshot) {
        let counted = (part.counters, part.tap);
        self.told.borrow_mut().insert(part.worker, counted);
    }

    /// All together.
    pub fn total(&self) -> Counted {
        let mut total = self.retired;
        for (counters, tap) in self.told.borrow().values() {
            total.0.add(counters);
            total.1.add(tap);
        }
        total
    }

    /// The lanes are gone; the next ones begin at 0.
    pub fn retire(&mut self) {
        self.retired = self.total();
        self.told.get_mut().clear();
    }
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
    fn counters_never_go_back_whoever_is_silent_and_however_often_lanes_change() {
        let mut counters = RetainedCounters::default();
        let total = |counters: &RetainedCounters| {
            let (port, tap) = counters.total();
            assert_eq!(port.tx_packets, tap.tap_reads);
            port.tx_packets
        };
        counters.note(&part(0, 10));
        counters.note(&part(1, 5));
        assert_eq!(total(&counters), 15);
        // The second is silent.
        counters.note(&part(0, 11));
        assert_eq!(total(&counters), 16);
        // And still is when its lane goes.
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
