//! Counters of the data path. Each counter belongs to one thread and is plain memory; the control thread
//! requests copies.

use ipoib::{ConnectionPeer, GroupInfo, GuestInfo, NeighbourInfo};
use vnic::counters::Counters;
use vnic::port::{MacInfo, NodeInfo};

use super::lane::LinkId;

/// Counters of a lane's TAP queue in one data thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapStats {
    /// Reads that returned a frame.
    pub tap_reads: u64,
    /// Writes.
    pub tap_writes: u64,
    /// Frames that the kernel refused: interface down, or out of memory.
    pub tap_write_errors: u64,
}

impl TapStats {
    /// Adds the counters of another thread.
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

/// Counters of one IP link in one data thread, without those of its TAP queue. The first eight match
/// `ethtool -S` of the kernel's `ib_ipoib`: `tx_bytes` includes the encapsulation header, `rx_bytes` does
/// not.
#[derive(Clone, Copy, Debug, Default)]
pub struct IpStats {
    /// Datagrams and messages received for the host.
    pub rx_packets: u64,
    /// Bytes of the IP (or ARP) packets in them.
    pub rx_bytes: u64,
    /// Datagrams and messages sent.
    pub tx_packets: u64,
    /// Payload bytes sent, with encapsulation.
    pub tx_bytes: u64,
    /// Frames that could not be cut or sent.
    pub tx_errors: u64,
    /// Datagrams and messages that the host did not receive.
    pub rx_dropped: u64,
    /// Frames from the host that were not sent.
    pub tx_dropped: u64,
    /// Multicast datagrams received.
    pub multicast: u64,
    /// Frames from the host with inconsistent offload header or lengths.
    pub tx_bad_frame: u64,
    /// Frames from the host that exceed the MTU and may not be cut.
    pub tx_too_big: u64,
    /// Frames dropped because the fabric or the connection had no room.
    pub tx_no_room: u64,
    /// Frames written to the TAP of a sibling.
    pub tx_to_siblings: u64,
    /// Frames from the host with a VLAN tag that selects no served partition.
    pub tx_vlan_unserved: u64,
}

impl IpStats {
    /// Names and values, with those of the TAP queue: the kernel's counters first, in the kernel's order.
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
    /// Counters of the link.
    pub stats: IpStats,
    /// Counters of the TAP queue.
    pub tap: TapStats,
    /// The protocol core's counters by name.
    pub core: Vec<(&'static str, u64)>,
    /// Neighbours, if requested.
    pub neighbours: Vec<NeighbourInfo>,
    /// Guests, if requested.
    pub guests: Vec<GuestInfo>,
    /// Groups, if requested.
    pub groups: Vec<GroupInfo>,
    /// Number of connections, with those still in setup.
    pub connection_count: usize,
    /// Connections, if requested.
    pub connections: Vec<fabric::ConnectionInfo>,
    /// Peers of the connections, if requested and known to the core.
    pub peers: Vec<(fabric::ConnectionId, ConnectionPeer)>,
}

/// A copy of one VNIC's state in one data thread.
pub struct EthernetSnapshot {
    /// The VNIC.
    pub id: LinkId,
    /// The data thread's number.
    pub worker: usize,
    /// Counters of the TAP queue.
    pub tap: TapStats,
    /// Counters of packets and frames.
    pub counters: Counters,
    /// Learned addresses, if requested.
    pub macs: Vec<MacInfo>,
    /// Members of the switch, if requested.
    pub nodes: Vec<NodeInfo>,
}

/// A copy of one data thread's own counters.
#[derive(Clone, Debug)]
pub struct WorkerSnapshot {
    /// The thread's number.
    pub worker: usize,
    /// Wake-ups of its epoll loop.
    pub wakeups: u64,
    /// Datagrams and messages for an endpoint without a lane: the lane was being added or removed.
    pub unserved: u64,
    /// Datagrams and requests for connections from sources that are not allowed.
    pub not_allowed: u64,
    /// Reports lost because too many waited for the control thread.
    pub reports_lost: u64,
    /// The provider's counters.
    pub fabric: Vec<(&'static str, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::api::InterfaceStats;

    /// The data path and the API each have a list of the names.
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
