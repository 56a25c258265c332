//! The objects in replies.

use std::fmt;
use std::net::IpAddr;

use proto::{DhcpMode, Gid, LinkLayer, Mode, PKey, PortState, QKey, Qpn};
use serde::{Deserialize, Serialize};

use super::scalar::{Counters, HardwareAddress, MacAddress};

/// A running daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// `ibtapd`.
    pub product: String,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The level it logs at.
    pub log_level: super::LogLevel,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceInfo {
    /// Its name now.
    pub name: String,
    /// Its index in its network namespace.
    pub ifindex: u32,
    /// The fabric port, such as `soft/eth0`.
    pub port: String,
    /// The Ethernet interface below the port, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
    /// What carries the port's packets.
    #[serde(default)]
    pub link_layer: LinkLayer,
    /// The port's LID, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u16>,
    /// The port's state.
    pub state: PortState,
    /// Why the state is not active, or the carrier off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether an administrator has set it up.
    pub up: bool,
    /// Whether the TAP's carrier is on.
    pub carrier: bool,
    /// Transport mode.
    pub mode: Mode,
    /// How many reliable connections it has, in connected mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// How many it may have; 0: none are made nor taken.
    pub connections_max: u32,
    /// The P_Key; bit 15 is full membership. The table's entry, or while that lacks the partition
    /// what was asked for.
    pub pkey: PKey,
    /// The interface that it is a child of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The network namespace, where it is not the daemon's: a name of `ip netns`, or `netns:N` with
    /// the inode number of one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The Q_Key.
    pub qkey: QKey,
    /// The UD queue pair.
    pub qpn: Qpn,
    /// The port's GID.
    pub gid: Gid,
    /// Its IPoIB address.
    pub address: HardwareAddress,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// The broadcast group's MGID.
    pub broadcast: Gid,
    /// Its IP MTU in bytes.
    pub mtu: u32,
    /// The largest UD payload in bytes; the IP MTU may be up to 4 less, and in connected mode more.
    pub link_mtu: u32,
    /// TAP queues.
    pub queues: u32,
    /// Whether it stays when the daemon ends.
    pub persist: bool,
    /// What is done to DHCPv4.
    pub dhcp: DhcpMode,
    /// Whether frames for guests and groups go back to the TAP, too.
    pub reflect: bool,
    /// The flag that programs set on the kernel's IPoIB to join groups themselves; without effect
    /// here.
    pub umcast: bool,
    /// Whether 802.1Q tags on its frames select partitions.
    pub vlan_pkey: bool,
    /// The daemon's process.
    pub pid: u32,
    /// The daemon's version.
    pub version: String,
}

impl InterfaceInfo {
    /// What requests about it name it, so that it is this one wherever others are called so:
    /// `NETNS/NAME` in another network namespace than the daemon's.
    pub fn qualified_name(&self) -> String {
        match &self.netns {
            Some(netns) => format!("{netns}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// An interface's counters. The first eight are those of `ethtool -S` on the kernel's IPoIB
/// (`drivers/infiniband/ulp/ipoib/ipoib_ethtool.c`), in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStats {
    /// The interface.
    pub name: String,
    /// As [`InterfaceInfo::netns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Datagrams received.
    pub rx_packets: u64,
    /// Datagrams sent.
    pub tx_packets: u64,
    /// Bytes received, without the encapsulation header.
    pub rx_bytes: u64,
    /// Bytes sent, with the encapsulation header.
    pub tx_bytes: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Datagrams that the host did not take.
    pub rx_dropped: u64,
    /// Frames from the host that were dropped.
    pub tx_dropped: u64,
    /// Multicast datagrams received.
    pub multicast: u64,
    /// The device's other counters.
    pub device: Counters,
    /// What the protocol did and dropped, by reason.
    pub protocol: Counters,
    /// The port's workers, which the interfaces of a port share.
    pub workers: Vec<WorkerStats>,
}

impl InterfaceStats {
    /// The eight counters by their kernel names, in the kernel's order.
    pub fn kernel(&self) -> [(&'static str, u64); 8] {
        [
            ("rx_packets", self.rx_packets),
            ("tx_packets", self.tx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_bytes", self.tx_bytes),
            ("tx_errors", self.tx_errors),
            ("rx_dropped", self.rx_dropped),
            ("tx_dropped", self.tx_dropped),
            ("multicast", self.multicast),
        ]
    }

    /// Adds counters by name: the kernel's eight to their fields, all others to `device`.
    pub fn add<'a>(&mut self, counters: impl IntoIterator<Item = (&'a str, u64)>) {
        for (name, value) in counters {
            match name {
                "rx_packets" => self.rx_packets += value,
                "tx_packets" => self.tx_packets += value,
                "rx_bytes" => self.rx_bytes += value,
                "tx_bytes" => self.tx_bytes += value,
                "tx_errors" => self.tx_errors += value,
                "rx_dropped" => self.rx_dropped += value,
                "tx_dropped" => self.tx_dropped += value,
                "multicast" => self.multicast += value,
                _ => self.device.add([(name, value)]),
            }
        }
    }
}

/// One data thread's part of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number.
    pub worker: u32,
    /// The port.
    pub port: String,
    /// Its counters.
    pub counters: Counters,
}

/// How a neighbour is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeighbourState {
    /// By ARP or neighbour discovery.
    Confirmed,
    /// Only as the source of data.
    Learned,
}

impl fmt::Display for NeighbourState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NeighbourState::Confirmed => "confirmed",
            NeighbourState::Learned => "learned",
        })
    }
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourInfo {
    /// The Ethernet address that stands for it on the interface.
    pub mac: MacAddress,
    /// Its IPoIB address.
    pub address: HardwareAddress,
    /// Its GID.
    pub gid: Gid,
    /// Its UD queue pair.
    pub qpn: Qpn,
    /// IP addresses that it is known to have.
    pub ips: Vec<IpAddr>,
    /// How it is known.
    pub state: NeighbourState,
    /// Milliseconds since it was last heard of or sent to.
    pub idle_ms: u64,
    /// Frames that wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queuelen: Option<u32>,
}

/// An IP address of a guest: a host behind the interface with an Ethernet address of its own. While
/// there are guests, the host's own addresses are listed, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// The IP address.
    pub ip: IpAddr,
    /// Whose it is.
    pub mac: MacAddress,
    /// How that is known.
    pub state: NeighbourState,
    /// Milliseconds since it was last heard of.
    pub idle_ms: u64,
}

/// A multicast group of an interface; the text form is debugfs' `ipoib/<dev>_mcg`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// The group.
    pub mgid: Gid,
    /// When it was joined or first sent to: ticks of 10 ms (USER_HZ) since boot, where the kernel
    /// prints jiffies.
    pub created: u64,
    /// Packets that wait for the group.
    pub queuelen: u32,
    /// Whether there is an address handle for it.
    pub complete: bool,
    /// Whether it is only sent to.
    pub send_only: bool,
}

/// A path to a GID; the text form is debugfs' `ipoib/<dev>_path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathInfo {
    /// The destination.
    pub gid: Gid,
    /// Whether there is an address handle for it.
    pub complete: bool,
    /// The destination's LID, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dlid: Option<u16>,
    /// Service level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sl: Option<u8>,
    /// Static rate in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<u32>,
}

/// Who asked for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionRole {
    /// This side: it sends on it.
    Active,
    /// The peer: this side receives on it.
    Passive,
}

impl fmt::Display for ConnectionRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionRole::Active => "active",
            ConnectionRole::Passive => "passive",
        })
    }
}

/// A reliable connection of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// The interface.
    pub interface: String,
    /// As [`InterfaceInfo::netns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The worker that has it.
    pub worker: u32,
    /// Who asked for it.
    pub role: ConnectionRole,
    /// As the communication manager names it: `REQ_SENT`, `ESTABLISHED`, `TIMEWAIT`, ….
    pub state: String,
    /// The queue pair's state: `INIT`, `RTR`, `RTS`, `ERR`.
    pub qp_state: String,
    /// Our RC queue pair.
    pub qpn: Qpn,
    /// Our GID.
    pub gid: Gid,
    /// The peer's RC queue pair; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_qpn: Option<Qpn>,
    /// The peer's GID.
    pub peer_gid: Gid,
    /// The peer's UD queue pair, where one neighbour has that GID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_ud_qpn: Option<Qpn>,
    /// IP addresses that this neighbour is known to have.
    pub ips: Vec<IpAddr>,
    /// The P_Key.
    pub pkey: PKey,
    /// Payload bytes of one packet.
    pub path_mtu: u32,
    /// Milliseconds since it was begun.
    pub age_ms: u64,
    /// Milliseconds since a message last came or went.
    pub idle_ms: u64,
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Bytes of them.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Bytes of them.
    pub rx_bytes: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Packets that may be in flight.
    pub window: u32,
    /// The smoothed round trip in nanoseconds; absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srtt_ns: Option<u64>,
    /// The daemon's process.
    pub pid: u32,
}

/// What a port has in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcesInfo {
    /// The port.
    pub port: String,
    /// What the port is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkInfo>,
    /// Queue pairs.
    pub queue_pairs: Vec<QueuePairInfo>,
    /// Completion queues.
    pub completion_queues: Vec<CompletionQueueInfo>,
    /// Attachments to multicast groups.
    pub groups: Vec<MemberInfo>,
}

/// What a port is like, and what it runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// Its state.
    pub state: PortState,
    /// What carries its packets.
    pub link_layer: LinkLayer,
    /// Its LID, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u16>,
    /// Its GID.
    pub gid: Gid,
    /// Where that is in the device's GID table, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid_index: Option<u32>,
    /// The port GUID: 16 hexadecimal digits in fours, as `ibstat` and sysfs have it.
    pub guid: String,
    /// The largest UD payload in bytes.
    pub link_mtu: u32,
    /// The device's firmware, where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// The Ethernet interface below, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<String>,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairInfo {
    /// Its number.
    pub qpn: Qpn,
    /// `UD`, `RC` or `GSI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: String,
    /// Its P_Key.
    pub pkey: PKey,
    /// Its Q_Key; an RC queue pair has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qkey: Option<QKey>,
    /// The queue pair that an RC one is connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_qpn: Option<Qpn>,
    /// Lanes, each with a source port of its own.
    pub lanes: u32,
    /// The interface it belongs to, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// A completion queue, or the receive ring that stands for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionQueueInfo {
    /// Its number.
    pub cqn: u32,
    /// Capacity in entries.
    pub cqe: u32,
    /// The worker that polls it.
    pub worker: u32,
}

/// An attachment of a queue pair to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// The group.
    pub mgid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
}
