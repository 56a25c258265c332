//! Objects in replies.

use std::net::IpAddr;

use proto::{DhcpMode, Gid, LinkLayer, Mode, PKey, PortState, QKey, Qpn};
use serde::{Deserialize, Serialize};

use super::scalar::{Counters, HardwareAddress, MacAddress};

/// A running daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// `ibtapd`.
    pub product: String,
    /// Version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Log level.
    pub log_level: super::LogLevel,
}

/// An IPoIB interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceInfo {
    /// Current name.
    pub name: String,
    /// Index in its network namespace.
    pub ifindex: u32,
    /// Fabric port, such as `soft/eth0`.
    pub port: String,
    /// Ethernet interface below the port, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
    /// Link layer of the port.
    #[serde(default)]
    pub link_layer: LinkLayer,
    /// LID of the port, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u16>,
    /// LID of the subnet manager, on an InfiniBand link layer; absent while there is no subnet manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_lid: Option<u16>,
    /// Service level of packets to the subnet manager, with its LID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_sl: Option<u8>,
    /// GID of the subnet administrator's port, on a software fabric that reaches it by QP1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sa_gid: Option<Gid>,
    /// State of the port.
    pub state: PortState,
    /// Reason if the state is not active or the carrier is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether an administrator has set the interface up.
    pub up: bool,
    /// Whether the TAP's carrier is on.
    pub carrier: bool,
    /// Transport mode.
    pub mode: Mode,
    /// Number of reliable connections, in connected mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Maximum number of connections, incoming and outgoing; 0 disables them.
    pub connections_max: u32,
    /// P_Key; bit 15 marks full membership. It is the table's entry, or the configured P_Key while the table
    /// lacks the partition.
    pub pkey: PKey,
    /// Parent of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Network namespace, unless it is the daemon's: a name of `ip netns`, or `netns:N` with the inode number
    /// of a namespace without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Q_Key.
    pub qkey: QKey,
    /// UD queue pair.
    pub qpn: Qpn,
    /// GID of the port.
    pub gid: Gid,
    /// IPoIB address.
    pub address: HardwareAddress,
    /// MAC of the TAP.
    pub mac: MacAddress,
    /// MGID of the broadcast group.
    pub broadcast: Gid,
    /// The subnet administrator's record of the broadcast group, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast_record: Option<GroupRecord>,
    /// IP MTU in bytes.
    pub mtu: u32,
    /// Largest UD payload in bytes. In datagram mode, the IP MTU is at least 4 bytes smaller.
    pub link_mtu: u32,
    /// TAP queues.
    pub queues: u32,
    /// Whether the interface stays when the daemon ends.
    pub persist: bool,
    /// Changes to DHCPv4.
    pub dhcp: DhcpMode,
    /// Whether frames for guests and groups also return to the TAP.
    pub reflect: bool,
    /// A flag of the kernel's IPoIB for programs that join groups themselves; without effect here.
    pub umcast: bool,
    /// Whether 802.1Q tags select partitions.
    pub vlan_pkey: bool,
    /// Process id of the daemon.
    pub pid: u32,
    /// Version of the daemon.
    pub version: String,
}

impl InterfaceInfo {
    /// The unambiguous name for requests: `NETNS/NAME` outside the daemon's network namespace.
    pub fn qualified_name(&self) -> String {
        match &self.netns {
            Some(netns) => format!("{netns}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Counters of an interface. The first eight are those of `ethtool -S` on the kernel's IPoIB, in the same order
/// (`drivers/infiniband/ulp/ipoib/ipoib_ethtool.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStats {
    /// The interface.
    pub name: String,
    /// See [`InterfaceInfo::netns`].
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
    /// Datagrams that the host did not receive: refused by the kernel, or dropped by the daemon.
    pub rx_dropped: u64,
    /// Frames from the host that were dropped.
    pub tx_dropped: u64,
    /// Multicast datagrams received.
    pub multicast: u64,
    /// Other counters of the TAP.
    pub device: Counters,
    /// Counters of the protocol, with drops by reason.
    pub protocol: Counters,
    /// Requests of the port to the subnet administrator, shared by the port's interfaces; empty without one.
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub subnet: Counters,
    /// Workers of the port, shared by the port's interfaces.
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

/// Counters of a worker: the part of a port that belongs to one data thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Number of the worker.
    pub worker: u32,
    /// The port.
    pub port: String,
    /// Its counters.
    pub counters: Counters,
}

/// Source of the knowledge about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NeighbourState {
    /// ARP or neighbour discovery.
    Confirmed,
    /// The neighbour sent data.
    Learned,
}

proto::display_as_serialized!(NeighbourState, ConnectionRole);

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourInfo {
    /// MAC on the TAP.
    pub mac: MacAddress,
    /// IPoIB address.
    pub address: HardwareAddress,
    /// GID.
    pub gid: Gid,
    /// UD queue pair.
    pub qpn: Qpn,
    /// Known IP addresses.
    pub ips: Vec<IpAddr>,
    /// Source of the knowledge.
    pub state: NeighbourState,
    /// Milliseconds since the last packet from or to the neighbour.
    pub idle_ms: u64,
    /// Waiting frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queuelen: Option<u32>,
}

/// An IP address of a guest: a host behind the interface with another MAC. While guests are known, the list also
/// has the host's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// IP address.
    pub ip: IpAddr,
    /// MAC of the guest or the host.
    pub mac: MacAddress,
    /// Source of the knowledge.
    pub state: NeighbourState,
    /// Milliseconds since the last packet from the address.
    pub idle_ms: u64,
}

/// A multicast group of an interface; the text form is debugfs' `ipoib/<dev>_mcg`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// The group.
    pub mgid: Gid,
    /// Time of the join or of the first packet sent: ticks of 10 ms (USER_HZ) since boot. (The kernel prints
    /// jiffies.)
    pub created: u64,
    /// Waiting packets.
    pub queuelen: u32,
    /// Whether the group has an address handle.
    pub complete: bool,
    /// Whether the interface only sends to the group.
    pub send_only: bool,
    /// The subnet administrator's record, on an InfiniBand link layer; absent before its first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<GroupRecord>,
}

/// A group and the port's membership, as the subnet administrator recorded them (MCMemberRecord; IBA vol. 1,
/// 15.2.5.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Multicast LID.
    pub mlid: u16,
    /// Membership of the port: bits 1 FullMember, 2 NonMember, 4 SendOnlyNonMember, 8 SendOnlyFullMember.
    pub join_state: u8,
    /// Q_Key.
    pub qkey: QKey,
    /// Largest payload of a packet in bytes; absent for a reserved code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Service level.
    pub sl: u8,
    /// Static rate in Mbit/s; absent for a reserved code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<u32>,
}

/// A path to a GID; the text form is debugfs' `ipoib/<dev>_path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathInfo {
    /// The destination.
    pub gid: Gid,
    /// Whether the destination has an address handle.
    pub complete: bool,
    /// LID of the destination, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dlid: Option<u16>,
    /// Service level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sl: Option<u8>,
    /// Static rate in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<u32>,
    /// Largest payload of a packet in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Hop limit; 0: packets have no GRH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<u8>,
}

/// The side that requested a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionRole {
    /// This side, which sends on the connection.
    Active,
    /// The peer; this side receives on the connection.
    Passive,
}

/// A reliable connection of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// Interface name.
    pub interface: String,
    /// See [`InterfaceInfo::netns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Worker that owns the connection.
    pub worker: u32,
    /// Side that requested the connection.
    pub role: ConnectionRole,
    /// State of the communication manager: `REQ_SENT`, `ESTABLISHED`, `TIMEWAIT`, ….
    pub state: String,
    /// State of the queue pair: `INIT`, `RTR`, `RTS`, `ERR`.
    pub qp_state: String,
    /// RC queue pair of this side.
    pub qpn: Qpn,
    /// GID of this side.
    pub gid: Gid,
    /// RC queue pair of the peer; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_qpn: Option<Qpn>,
    /// GID of the peer.
    pub peer_gid: Gid,
    /// UD queue pair of the peer, if exactly one neighbour has the GID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_ud_qpn: Option<Qpn>,
    /// Known IP addresses of this neighbour.
    pub ips: Vec<IpAddr>,
    /// P_Key.
    pub pkey: PKey,
    /// Payload bytes of a packet.
    pub path_mtu: u32,
    /// Milliseconds since the request.
    pub age_ms: u64,
    /// Milliseconds since the last message.
    pub idle_ms: u64,
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Bytes of messages sent and acknowledged.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Bytes of messages received.
    pub rx_bytes: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Maximum number of packets in flight.
    pub window: u32,
    /// Smoothed round trip in nanoseconds; absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srtt_ns: Option<u64>,
    /// Process id of the daemon.
    pub pid: u32,
}

/// Resources of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcesInfo {
    /// The port.
    pub port: String,
    /// Attributes of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkInfo>,
    /// Queue pairs.
    pub queue_pairs: Vec<QueuePairInfo>,
    /// Completion queues.
    pub completion_queues: Vec<CompletionQueueInfo>,
    /// Attachments to multicast groups.
    pub groups: Vec<MemberInfo>,
    /// Process id of the daemon; 0 from older daemons.
    #[serde(default)]
    pub pid: u32,
    /// Shared receive queues.
    #[serde(default)]
    pub shared_receive_queues: Vec<SharedReceiveQueueInfo>,
    /// Identifiers of communication management: the connections that are not in TIMEWAIT.
    #[serde(default)]
    pub cm_ids: Vec<CmIdInfo>,
    /// Memory regions of an RDMA device.
    #[serde(default)]
    pub memory_regions: Vec<MemoryRegionInfo>,
    /// Protection domains of an RDMA device.
    #[serde(default)]
    pub protection_domains: Vec<ProtectionDomainInfo>,
}

/// Attributes of a port and its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInfo {
    /// State.
    pub state: PortState,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// LID, on an InfiniBand link layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u16>,
    /// LID of the subnet manager: see [`InterfaceInfo::sm_lid`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_lid: Option<u16>,
    /// Service level of packets to the subnet manager, with its LID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_sl: Option<u8>,
    /// GID.
    pub gid: Gid,
    /// Index in the GID table of the device, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid_index: Option<u32>,
    /// Port GUID: 16 hexadecimal digits in groups of four, as in sysfs.
    pub guid: String,
    /// Largest UD payload in bytes.
    pub link_mtu: u32,
    /// Firmware version of the device, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Ethernet interface below the port, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<String>,
}

/// Attributes, P_Key table and counters of a port, as in `/sys/class/infiniband`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// The port.
    pub port: String,
    /// Attributes.
    pub link: LinkInfo,
    /// Speed of the Ethernet interface below the port in Mb/s; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<u32>,
    /// The P_Key table by index; bit 15 marks full membership. Empty places are 0.
    pub pkeys: Vec<PKey>,
    /// Counters of the provider, the sums of all data threads.
    pub counters: Counters,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairInfo {
    /// Number.
    pub qpn: Qpn,
    /// `UD`, `RC` or `GSI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: String,
    /// P_Key.
    pub pkey: PKey,
    /// Q_Key; RC queue pairs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qkey: Option<QKey>,
    /// Connected queue pair of an RC queue pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_qpn: Option<Qpn>,
    /// Lanes; each has a source port.
    pub lanes: u32,
    /// Interface of the queue pair, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// A completion queue, or a receive ring of the software fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionQueueInfo {
    /// Number.
    pub cqn: u32,
    /// Capacity in entries.
    pub cqe: u32,
    /// Worker that polls the queue.
    pub worker: u32,
}

/// A shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedReceiveQueueInfo {
    /// What arrives there: `datagrams`, or `messages` of connections.
    pub contents: String,
    /// Capacity in entries.
    pub srqe: u32,
    /// Worker that fills the queue.
    pub worker: u32,
}

/// An identifier of communication management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CmIdInfo {
    /// RC queue pair of this side.
    pub qpn: Qpn,
    /// RC queue pair of the peer; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_qpn: Option<Qpn>,
    /// State: `REQ_SENT`, `ESTABLISHED`, ….
    pub state: String,
    /// Side that requested the connection.
    pub role: ConnectionRole,
    /// GID of this side.
    pub gid: Gid,
    /// GID of the peer.
    pub peer_gid: Gid,
    /// Interface of the connection, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Worker that owns the connection.
    pub worker: u32,
}

/// A region of registered memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRegionInfo {
    /// Key of local accesses.
    pub lkey: u32,
    /// Length in bytes.
    pub mrlen: u64,
    /// Worker that uses the memory.
    pub worker: u32,
}

/// A protection domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionDomainInfo {
    /// Worker whose objects are in the domain.
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
