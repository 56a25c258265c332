//! Counters of a VNIC's TAP; those of its packets and frames are the core's.

use vnic::counters::Counters;
use vnic::port::{MacInfo, NodeInfo};

use super::super::command::DeviceId;

/// What one data thread did with a VNIC's TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapStats {
    /// Reads that gave a frame.
    pub tap_reads: u64,
    /// Writes.
    pub tap_writes: u64,
    /// Frames refused: interface down, or out of memory.
    pub tap_write_errors: u64,
}

impl TapStats {
    /// Adds another thread's.
    pub fn add(&mut self, other: &TapStats) {
        self.tap_reads += other.tap_reads;
        self.tap_writes += other.tap_writes;
        self.tap_write_errors += other.tap_write_errors;
    }

    /// Names and values.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("tap_reads", self.tap_reads),
            ("tap_writes", self.tap_writes),
            ("tap_write_errors", self.tap_write_errors),
        ]
    }
}

/// A copy of one VNIC's state in one data thread.
pub struct EthernetSnapshot {
    /// The VNIC.
    pub id: DeviceId,
    /// The data thread's number.
    pub worker: usize,
    /// Counters of its TAP.
    pub tap: TapStats,
    /// Those of its packets and frames.
    pub counters: Counters,
    /// Addresses learned, where asked for.
    pub macs: Vec<MacInfo>,
    /// Members of the switch, where asked for.
    pub nodes: Vec<NodeInfo>,
}
