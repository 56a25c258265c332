//! Types of the core's interface.

use std::fmt;
use std::net::IpAddr;

use proto::{
    AddressHandle, ClaimCheck, CloseReason, ConnectionId, DhcpMode, Gid, Mac, Mode, PKey, Qpn,
    RejectReason, ServiceId, Services, Time,
};

use crate::address::HardwareAddress;
use crate::counters::DropReason;

/// The bounds of all tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Neighbours. The table of their IP addresses has twice as many entries.
    pub neighbours: usize,
    /// Multicast groups, joined and send-only. More than the groups of a port, so that there is always room
    /// for send-only ones.
    pub groups: usize,
    /// Destinations with a pending query.
    pub unresolved: usize,
    /// Held frames for a destination; 4 MiB in total in each direction.
    pub held_per_neighbour: usize,
    /// IP addresses of guests, which are hosts behind the interface with other MACs.
    pub guests: usize,
    /// Connections of this replica, requested by this host or by peers; the least recently used one is
    /// evicted for another. 0 disables connections.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            neighbours: 16384,
            groups: 12_288,
            unresolved: 256,
            held_per_neighbour: 3,
            guests: 8192,
            connections: 4096,
        }
    }
}

/// The configuration of an interface.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The interface's address on the fabric.
    pub local: HardwareAddress,
    /// The TAP's MAC.
    pub mac: Mac,
    /// The partition.
    pub pkey: PKey,
    /// The scope of the link's multicast GIDs; 2 (link-local) by default.
    pub scope: u8,
    /// The largest IP packet in a datagram, in bytes.
    pub link_mtu: usize,
    /// The mode of unicast IP packets. The caller sets the matching flag in `local`.
    pub mode: Mode,
    /// The services that connection requests may name on the port.
    pub services: Services,
    /// The DHCPv4 mode.
    pub dhcp: DhcpMode,
    /// What a hardware address in ARP and neighbour discovery must have in common with its sender.
    pub claims: ClaimCheck,
    /// Whether to refuse requests for connections in datagram mode.
    pub refuse_requests: bool,
    /// The bounds of the tables.
    pub limits: Limits,
}

/// The destination of a payload: a slot of the neighbour or the group table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A peer.
    Neighbour(u32),
    /// A multicast group.
    Group(u32),
}

/// The action for a frame from the TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outgoing<'a> {
    /// Strip the 14-byte Ethernet header, cut the IP packet to the link's MTU, put `encap` before each
    /// packet. Bytes behind the IP packet's length are Ethernet padding and must not be sent.
    Forward {
        /// The destination.
        to: Target,
        /// The encapsulation header.
        encap: [u8; 4],
    },
    /// Strip the 14-byte Ethernet header, put `encap` before the IP packet, and post it as one message of a
    /// connection. A large send is cut as requested by the sender; each packet is a message. Pass a packet
    /// above `mtu` bytes to [`crate::Ipoib::too_big`]. The connection is never an accepted one.
    Message {
        /// The connection.
        connection: ConnectionId,
        /// The destination.
        to: Target,
        /// The encapsulation header.
        encap: [u8; 4],
        /// The largest IP packet that the peer accepts on the connection, in bytes.
        mtu: usize,
    },
    /// Pass the whole frame to another interface of the daemon, with [`crate::Ipoib::from_sibling`]. Pass a
    /// packet above `mtu` bytes, or a large send with such packets, to [`crate::Ipoib::too_big`].
    Sibling {
        /// The destination.
        to: Target,
        /// The queue pair of the sibling.
        qpn: Qpn,
        /// The encapsulation header, in case the packet must be sent over the fabric.
        encap: [u8; 4],
        /// The largest IP packet that the sibling accepts, in bytes.
        mtu: usize,
    },
    /// Send this complete IB payload instead. The target may be a sibling ([`crate::Ipoib::sibling`]).
    Rewritten {
        /// The destination.
        to: Target,
        /// Encapsulation header and packet.
        packet: &'a [u8],
    },
    /// Kept until the destination is known; see [`crate::Ipoib::pop_released`].
    Held,
    /// A frame with an 802.1Q tag, for another link; only if enabled by [`crate::Ipoib::set_vlans`].
    Tagged,
    /// Dropped and counted.
    Dropped(DropReason),
}

/// The action for a packet above its path's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooBig<'a> {
    /// Kept until the connection in setup is up; see [`crate::Ipoib::pop_released`].
    Held,
    /// Write this frame to the TAP: "fragmentation needed" or "packet too big".
    Answer(&'a [u8]),
    /// Dropped and counted: an answer is not allowed, or the rate limit was reached.
    Dropped,
}

/// An action for connections; see [`crate::Ipoib::poll_connection`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionAction {
    /// Request a connection from a peer, and pass the result to [`crate::Ipoib::connecting`].
    Connect {
        /// The number of the request.
        request: u32,
        /// The peer's GID.
        peer: Gid,
        /// The peer's queue pair; the service belongs to it.
        to: Qpn,
        /// The service to request.
        service: ServiceId,
        /// The private data (RFC 4755, section 6).
        private_data: [u8; 8],
    },
    /// Accept a peer's request.
    Accept {
        /// The connection.
        connection: ConnectionId,
        /// The private data (RFC 4755, section 6).
        private_data: [u8; 8],
    },
    /// Confirm a peer's reply.
    Establish {
        /// The connection.
        connection: ConnectionId,
    },
    /// Reject a peer's request or reply.
    Reject {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        reason: RejectReason,
        /// The private data (RFC 4755, section 6).
        private_data: [u8; 8],
    },
    /// End a connection.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
}

/// The requester of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// This host, for sending.
    Active,
    /// The peer. Nothing is sent on the connection.
    Passive,
}

/// The peer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionPeer {
    /// The peer's address. Without flags if the peer requested the connection: the queue pair is from the
    /// private data, the GID from the connection.
    pub address: HardwareAddress,
    /// The requester of the connection.
    pub role: Role,
    /// The largest IP packet that can be sent on it, in bytes; `None` before it is established.
    pub mtu: Option<usize>,
}

/// The reason for the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Closed by the peer, or failed.
    Closed(CloseReason),
    /// Not used for a while.
    Idle,
    /// Evicted for another connection.
    Evicted,
    /// No longer useful: the mode or an address changed, or the neighbour was removed.
    Dropped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed(CloseReason::Disconnected) => {
                f.write_str("the peer closed the connection")
            }
            Ended::Closed(CloseReason::Rejected(why)) => {
                write!(f, "the peer rejected the connection: {why}")
            }
            Ended::Closed(CloseReason::TimedOut) => f.write_str("the peer did not answer"),
            Ended::Closed(CloseReason::Failed(status)) => {
                write!(f, "the queue pair failed: {status}")
            }
            Ended::Closed(CloseReason::PortGone) => f.write_str("the port lost its address"),
            Ended::Closed(CloseReason::PathMtu) => f.write_str("the port's MTU changed"),
            Ended::Closed(CloseReason::PKeyChange) => {
                f.write_str("the P_Key's entry in the P_Key table changed")
            }
            Ended::Idle => f.write_str("idle"),
            Ended::Evicted => f.write_str("evicted for another connection"),
            Ended::Dropped => f.write_str("no longer useful"),
        }
    }
}

/// The fabric's information about a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The sender's queue pair.
    pub src_qpn: Qpn,
    /// The sender's GID.
    pub src_gid: Gid,
    /// The packet itself has the sender's GID. False for InfiniBand unicast without a GRH: `src_gid` may then
    /// be unspecified, or that of another port.
    pub has_src_gid: bool,
    /// The destination: a multicast GID, or the port's. A unicast copy of a multicast has the port's GID
    /// and `multicast` set.
    pub dst_gid: Gid,
    /// The datagram was sent to the multicast queue pair number.
    pub multicast: bool,
}

/// The result of a datagram from the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<'a, 'p> {
    /// An IP packet, unchanged.
    Packet {
        /// The Ethernet header to put before it.
        ethernet: [u8; 14],
        /// The packet, without bytes behind its length.
        l3: &'p [u8],
    },
    /// A translated Ethernet frame.
    Frame(&'a [u8]),
    /// Kept until its guest is known; see [`crate::Ipoib::poll_tap`].
    Held,
    /// Handled by the core: an echo request or reply.
    Consumed,
    /// Dropped and counted.
    Dropped(DropReason),
}

/// The destination of an echo request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EchoTarget {
    /// The peer with the IP address in the neighbour table.
    Ip(IpAddr),
    /// The peer with the GID; queried by multicast if it is not in the neighbour table.
    Gid(Gid),
    /// All peers, by multicast.
    All,
}

/// An echo request to the queue pairs of peers. Only `ibtapd` answers it; the kernel's IPoIB ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EchoRequest {
    /// The destination.
    pub target: EchoTarget,
    /// Identifier, copied to the answer.
    pub id: u16,
    /// Sequence number, copied to the answer.
    pub sequence: u32,
    /// Time of sending, in nanoseconds of the requester's clock, copied to the answer.
    pub stamp: u64,
    /// Bytes of IB payload to send, encapsulation header included.
    pub len: usize,
}

/// An update for the other replicas of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// A neighbour sent ARP or neighbour discovery.
    Learned {
        /// Its address.
        address: HardwareAddress,
        /// Its MAC on the TAP.
        mac: Mac,
        /// The IP address that it claimed.
        ip: Option<IpAddr>,
    },
    /// A replica queries an IP address. A replica that knows the owner answers with [`Update::Known`]: the
    /// peer's reply tells that replica nothing new, so it would publish nothing.
    Wanted {
        /// The IP address.
        ip: IpAddr,
    },
    /// The owner of an IP address, for the replicas that query the address.
    Known {
        /// The owner's address.
        address: HardwareAddress,
        /// Its MAC on the TAP.
        mac: Mac,
        /// The IP address.
        ip: IpAddr,
        /// When the replica that answers last received a packet from the owner.
        heard: Time,
    },
    /// A peer restarted: frames for `old` go to `new`.
    Superseded {
        /// The former queue pair.
        old: HardwareAddress,
        /// The present queue pair.
        new: HardwareAddress,
    },
    /// A neighbour announced itself, as after a start.
    Announced {
        /// Its address.
        address: HardwareAddress,
    },
    /// A neighbour got another MAC, because a guest or another neighbour has the former one.
    Remapped {
        /// Its address.
        address: HardwareAddress,
        /// Its new MAC on the TAP.
        mac: Mac,
    },
    /// A guest has an IP address.
    Guest {
        /// The IP address.
        ip: IpAddr,
        /// The guest.
        mac: Mac,
        /// Known only from the source address of data.
        weak: bool,
        /// Its last advertisement was that of an IPv6 router; `None`: it sent none yet.
        router: Option<bool>,
        /// The replica that hears the guest announces it.
        unannounced: bool,
    },
    /// A guest no longer has an IP address.
    GuestForgotten {
        /// The IP address.
        ip: IpAddr,
    },
    /// A guest with this MAC exists, without a known IP address.
    GuestMac {
        /// The guest.
        mac: Mac,
    },
    /// An IP address changed its owner too often: the present owner is kept for a while.
    Conflict {
        /// The IP address.
        ip: IpAddr,
    },
    /// Signed neighbour discovery was reported.
    SignedNd,
    /// The host itself has an IP address, or no longer has it.
    HostAddress {
        /// The IP address.
        ip: IpAddr,
        /// Whether the host has it.
        present: bool,
    },
    /// A guest without an IP address queries one (RFC 5227); the answer will not name the guest.
    Probing {
        /// The queried IP address.
        ip: IpAddr,
        /// The guest.
        mac: Mac,
    },
    /// The transaction of a DHCP client; the answer may not name the client.
    Dhcp {
        /// The transaction id.
        xid: u32,
        /// The client's hardware address.
        client: Mac,
    },
    /// A neighbour sent a packet. Only with inspection of claims.
    Heard {
        /// Its address.
        address: HardwareAddress,
    },
}

impl Update {
    /// Whether the update is about the fabric side: neighbours and queries for them.
    pub(super) fn is_about_neighbours(&self) -> bool {
        match self {
            Update::Learned { .. }
            | Update::Wanted { .. }
            | Update::Known { .. }
            | Update::Superseded { .. }
            | Update::Announced { .. }
            | Update::Remapped { .. }
            | Update::Heard { .. } => true,
            Update::Guest { .. }
            | Update::GuestForgotten { .. }
            | Update::GuestMac { .. }
            | Update::Conflict { .. }
            | Update::SignedNd
            | Update::HostAddress { .. }
            | Update::Probing { .. }
            | Update::Dhcp { .. } => false,
        }
    }
}

/// A neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourInfo {
    /// Its MAC on the TAP.
    pub mac: Mac,
    /// Its address.
    pub address: HardwareAddress,
    /// Its IP addresses, sorted.
    pub ips: Vec<IpAddr>,
    /// It sent ARP or neighbour discovery, not only data.
    pub confirmed: bool,
    /// Its address handle.
    pub ah: Option<AddressHandle>,
    /// Time of the last packet from or to it, to about a second.
    pub used: Time,
}

/// An IP address of a guest, or of the host itself while there are guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestInfo {
    /// The IP address.
    pub ip: IpAddr,
    /// The owner's MAC.
    pub mac: Mac,
    /// Known only from the source address of data.
    pub weak: bool,
    /// Time of the last packet from it, to about a second.
    pub used: Time,
}

/// A multicast group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// The group.
    pub mgid: Gid,
    /// The interface only sends to the group.
    pub send_only: bool,
    /// Time of the first join or packet.
    pub created: Time,
    /// Its address handle.
    pub ah: Option<AddressHandle>,
}
