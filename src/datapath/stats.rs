//! Counters of the data path. Each belongs to one thread and is plain memory; the control thread
//! asks for copies.

use ipoib::{ConnectionPeer, GroupInfo, GuestInfo, NeighbourInfo};
use vnic::counters::Counters;
use vnic::port::{MacInfo, NodeInfo};

use super::lane::LinkId;

/// What one data thread did with a lane's TAP queue.
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

/// One IP link's counters in one data thread but those of its TAP queue. The first eight are those of the
/// kernel's `ethtool -S` for `ib_ipoib`, and count as it does: `tx_bytes` with the encapsulation header,
/// `rx_bytes` without.
#[derive(Clone, Copy, Debug, Default)]
pub struct IpStats {
    /// Datagrams and messages received for the host.
    pub rx_packets: u64,
    /// Bytes of their IP (or ARP) packets.
    pub rx_bytes: u64,
    /// Datagrams and messages sent.
    pub tx_packets: u64,
    /// Their payload bytes, encapsulation included.
    pub tx_bytes: u64,
    /// Frames that could not be cut or sent.
    pub tx_errors: u64,
    /// Datagrams and messages that the host did not take.
    pub rx_dropped: u64,
    /// Frames from the host that were not sent.
    pub tx_dropped: u64,
    /// Multicast datagrams received.
    pub multicast: u64,
    /// Frames from the host whose offload header or lengths do not add up.
    pub tx_bad_frame: u64,
    /// Frames from the host that are larger than their way takes and may not be cut.
    pub tx_too_big: u64,
    /// Frames dropped because the fabric, or the connection that they go over, had no room.
    pub tx_no_room: u64,
    /// Frames given to another link of this daemon without the fabric.
    pub tx_to_siblings: u64,
    /// Frames from the host with a VLAN tag whose partition is not served.
    pub tx_vlan_unserved: u64,
}

impl IpStats {
    /// Names and values with those of the TAP queue, the kernel's names first and in its order.
    pub fn named(&self, tap: &TapStats) -> [(&'static str, u64); 16] {
        [
            ("rx_packets", self.rx_packets),
            ("tx_packets", self.tx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_bytes", self.tx_bytes),
            ("tx_errors", self.tx_errors),
            ("rx_dropped", self.rx_dropped),
            ("tx_dropped", self.tx_dropped),
            ("multicast", self.multicast),
            ("tap_reads", tap.tap_reads),
            ("tap_writes", tap.tap_writes),
            ("tap_write_errors", tap.tap_write_errors),
            ("tx_bad_frame", self.tx_bad_frame),
            ("tx_too_big", self.tx_too_big),
            ("tx_no_room", self.tx_no_room),
            ("tx_to_siblings", self.tx_to_siblings),
            ("tx_vlan_unserved", self.tx_vlan_unserved),
        ]
    }
}

/// A copy of one IP link's state in one data thread.
#[derive(Default)]
pub struct IpSnapshot {
    /// The link.
    pub id: LinkId,
    /// Its counters.
    pub stats: IpStats,
    /// Those of its TAP queue.
    pub tap: TapStats,
    /// The protocol core's counters by name.
    pub core: Vec<(&'static str, u64)>,
    /// Neighbours, where asked for.
    pub neighbours: Vec<NeighbourInfo>,
    /// Guests, where asked for.
    pub guests: Vec<GuestInfo>,
    /// Groups, where asked for.
    pub groups: Vec<GroupInfo>,
    /// How many connections it has, those that are being made included.
    pub connection_count: usize,
    /// Connections, where asked for.
    pub connections: Vec<fabric::ConnectionInfo>,
    /// Who is at the other end of them, where asked for and as far as the core knows.
    pub peers: Vec<(fabric::ConnectionId, ConnectionPeer)>,
}

/// A copy of one VNIC's state in one data thread.
pub struct EthernetSnapshot {
    /// The VNIC.
    pub id: LinkId,
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

/// A copy of one data thread's own counters.
#[derive(Clone, Debug)]
pub struct WorkerSnapshot {
    /// The thread's number.
    pub worker: usize,
    /// Wake-ups of its epoll loop.
    pub wakeups: u64,
    /// Datagrams and messages for an endpoint that was being made or ended.
    pub unserved: u64,
    /// Events that the control thread was not told of, since too many waited.
    pub reports_lost: u64,
    /// The provider's counters.
    pub fabric: Vec<(&'static str, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::api::InterfaceStats;

    /// The names stand in two places, since one is the data path's and the other the API's.
    #[test]
    fn the_first_counters_are_the_kernels_in_its_order_and_reach_the_api() {
        let mut shown = InterfaceStats::default();
        let counted = IpStats {
            rx_packets: 1,
            tx_packets: 2,
            rx_bytes: 3,
            tx_bytes: 4,
            tx_errors: 5,
            rx_dropped: 6,
            tx_dropped: 7,
            multicast: 8,
            ..IpStats::default()
        };
        let named = counted.named(&TapStats::default());
        shown.add(named);
        assert_eq!(shown.kernel(), named[..8]);
        assert_eq!(shown.device.0.len(), named.len() - 8);
    }
}
