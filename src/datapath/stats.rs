//! Counters of the data path. Each counter belongs to one thread and is plain memory; the control thread
//! requests copies.

use ipoib::{ConnectionPeer, GroupInfo, GuestInfo, NeighbourInfo};
use vnic::counters::Counters;
use vnic::port::{MacInfo, NodeInfo};

use super::lane::LinkId;

proto::counters! {
    /// Counters of a lane's TAP queue in one data thread.
    pub struct TapStats {
        /// Frames read from the TAP.
        tap_reads,
        /// Frames written to the TAP.
        tap_writes,
        /// Frames for the TAP that the kernel refused: interface down, or out of memory.
        tap_write_errors,
    }
}

proto::counters! {
    /// Counters of one IP link in one data thread, without those of its TAP queue. The first eight match
    /// `ethtool -S` of the kernel's `ib_ipoib`, in its order: `tx_bytes` includes the encapsulation header,
    /// `rx_bytes` does not.
    pub struct IpStats {
        /// Datagrams and messages received for the host.
        rx_packets,
        /// Datagrams and messages sent.
        tx_packets,
        /// Bytes of the IP and ARP packets received for the host.
        rx_bytes,
        /// Payload bytes sent, with encapsulation.
        tx_bytes,
        /// Frames that could not be cut or sent.
        tx_errors,
        /// Datagrams and messages that the host did not receive.
        rx_dropped,
        /// Frames from the host that were not sent.
        tx_dropped,
        /// Multicast datagrams received.
        multicast,
        /// Frames from the host with inconsistent offload header or lengths.
        tx_bad_frame,
        /// Frames from the host that exceed the MTU and may not be cut.
        tx_too_big,
        /// Frames dropped because the fabric or the connection had no room.
        tx_no_room,
        /// Frames written to the TAP of a sibling.
        tx_to_siblings,
        /// Frames from the host with a VLAN tag that selects no served partition.
        tx_vlan_unserved,
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

proto::counters! {
    /// A data thread's own counters.
    pub struct ThreadStats {
        /// Wake-ups of the thread's epoll loop.
        wakeups,
        /// Datagrams and messages for an endpoint without a lane: the lane was being added or removed.
        unserved => "rx_unserved",
        /// Datagrams and requests for connections from sources that are not allowed.
        not_allowed => "rx_not_allowed",
        /// Reports lost because too many waited for the control thread.
        reports_lost,
    }
}

/// A copy of one data thread's counters.
#[derive(Clone, Debug)]
pub struct WorkerSnapshot {
    /// The thread's number.
    pub worker: usize,
    /// The thread's own counters.
    pub thread: ThreadStats,
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
        let named = counted.named();
        shown.add(named.iter().copied());
        assert_eq!(shown.kernel(), named[..8]);
        assert_eq!(shown.device.0.len(), named.len() - 8);
    }
}
