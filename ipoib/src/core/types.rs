//! What goes in and comes out.

use std::fmt;
use std::net::IpAddr;

use proto::{
    AddressHandle, CloseReason, ConnectionId, DhcpMode, Gid, Mac, Mode, PKey, Qpn, RejectReason,
    ServiceId, Services, Time,
};

use crate::address::HardwareAddress;
use crate::counters::DropReason;

/// Bounds of all tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Neighbours. Twice as many IP addresses are kept.
    pub neighbours: usize,
    /// Multicast groups, joined and send-only: more than a port attaches to, so that there is always
    /// room for sending.
    pub groups: usize,
    /// Destinations that are being asked for.
    pub unresolved: usize,
    /// Frames that wait for one destination; 4 MiB in all each way.
    pub held_per_neighbour: usize,
    /// IP addresses of guests: hosts behind the interface with Ethernet addresses of their own.
    pub guests: usize,
    /// Connections of this replica, asked for by us or by peers; of more, the one that was not used
    /// for the longest time makes room. 0: none are made and none are taken.
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

/// What an interface is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Our own address on the fabric.
    pub local: HardwareAddress,
    /// The TAP's Ethernet address.
    pub mac: Mac,
    /// The partition.
    pub pkey: PKey,
    /// The scope of the link's multicast GIDs: 2 (link-local) unless configured otherwise.
    pub scope: u8,
    /// The largest IP packet that a datagram carries, in bytes.
    pub link_mtu: usize,
    /// How unicast IP packets travel. The flag of `local` that says so is the caller's to set.
    pub mode: Mode,
    /// Which services requests for connections may name, on our port.
    pub services: Services,
    /// What is done to DHCPv4.
    pub dhcp: DhcpMode,
    /// Bounds of the tables.
    pub limits: Limits,
}

/// Where a payload goes: a slot of the neighbour or the group table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A peer.
    Neighbour(u32),
    /// A multicast group.
    Group(u32),
}

/// What to do with a frame from the TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outgoing<'a> {
    /// Strip 14 bytes of Ethernet, cut the IP packet to the link's size, put `encap` before each
    /// piece. Bytes behind the IP packet's own length are Ethernet padding and must not be sent.
    Forward {
        /// The destination.
        to: Target,
        /// The encapsulation header.
        encap: [u8; 4],
    },
    /// Strip 14 bytes of Ethernet, put `encap` before the IP packet, and post it as one message of a
    /// connection. A large send is cut as the sender asked, each piece a message. A packet over
    /// `mtu` bytes is to be given to [`crate::Ipoib::too_big`]. Never on a connection that was
    /// accepted.
    Message {
        /// The connection.
        connection: ConnectionId,
        /// The destination.
        to: Target,
        /// The encapsulation header.
        encap: [u8; 4],
        /// The largest IP packet that the peer takes on it, in bytes.
        mtu: usize,
    },
    /// For another interface of this program: give it the frame as it is, by
    /// [`crate::Ipoib::from_sibling`]. A packet over `mtu` bytes, or a large send that would be cut
    /// into such, is to be given to [`crate::Ipoib::too_big`].
    Sibling {
        /// The destination.
        to: Target,
        /// Which one: its queue pair.
        qpn: Qpn,
        /// The encapsulation header, should it have to go over the fabric all the same.
        encap: [u8; 4],
        /// The largest IP packet that it takes, in bytes.
        mtu: usize,
    },
    /// Send this instead: a complete IB payload. A target may be a sibling
    /// ([`crate::Ipoib::sibling`]).
    Rewritten {
        /// The destination.
        to: Target,
        /// Encapsulation header and packet.
        packet: &'a [u8],
    },
    /// Kept until the destination is known; see [`crate::Ipoib::pop_released`].
    Held,
    /// It has an 802.1Q tag, which is another link's frame; only where [`crate::Ipoib::set_vlans`]
    /// says so.
    Tagged,
    /// Dropped and counted.
    Dropped(DropReason),
}

/// What to do with a packet that is larger than its way takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooBig<'a> {
    /// Kept until the connection that is being made is there; see [`crate::Ipoib::pop_released`].
    Held,
    /// Write this frame to the TAP: "fragmentation needed" or "packet too big".
    Answer(&'a [u8]),
    /// Dropped and counted: it may not be answered, or too many were.
    Dropped,
}

/// What a core wants done about connections; see [`crate::Ipoib::poll_connection`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionAction {
    /// Ask a peer for one, and tell the outcome with [`crate::Ipoib::connecting`].
    Connect {
        /// Names the request.
        request: u32,
        /// The peer's GID.
        peer: Gid,
        /// The peer's queue pair, which is whom the service is asked of.
        to: Qpn,
        /// The service to ask for.
        service: ServiceId,
        /// RFC 4755, section 6.
        private_data: [u8; 8],
    },
    /// Consent to a peer's request.
    Accept {
        /// The connection.
        connection: ConnectionId,
        /// RFC 4755, section 6.
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
        /// Why.
        reason: RejectReason,
        /// RFC 4755, section 6.
        private_data: [u8; 8],
    },
    /// End a connection.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
}

/// Who asked for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// We did, to send.
    Active,
    /// The peer did. Nothing is sent on it.
    Passive,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionPeer {
    /// Its address. Without flags if it asked for the connection: it tells the queue pair, and the
    /// connection the GID.
    pub address: HardwareAddress,
    /// Who asked for it.
    pub role: Role,
    /// The largest IP packet that we may send on it, in bytes; `None` while there is none.
    pub mtu: Option<usize>,
}

/// Why a connection is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The peer ended it, or it failed.
    Closed(CloseReason),
    /// It was not used for a while.
    Idle,
    /// It made room for another.
    Evicted,
    /// It is of no use any more: the mode, our own address or the peer's is another now.
    Dropped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed(CloseReason::Disconnected) => f.write_str("the peer ended it"),
            Ended::Closed(CloseReason::Rejected(why)) => write!(f, "the peer rejected it: {why}"),
            Ended::Closed(CloseReason::TimedOut) => f.write_str("the peer did not answer"),
            Ended::Closed(CloseReason::Failed(status)) => write!(f, "it failed: {status}"),
            Ended::Closed(CloseReason::PortGone) => f.write_str("the port lost its address"),
            Ended::Closed(CloseReason::PathMtu) => {
                f.write_str("the underlay takes smaller packets now")
            }
            Ended::Closed(CloseReason::PKeyChange) => {
                f.write_str("the P_Key's entry in the port's table changed")
            }
            Ended::Idle => f.write_str("nothing used it"),
            Ended::Evicted => f.write_str("it made room for another"),
            Ended::Dropped => f.write_str("it is of no use any more"),
        }
    }
}

/// What the fabric knows about a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The sender's queue pair.
    pub src_qpn: Qpn,
    /// The sender's GID.
    pub src_gid: Gid,
    /// The destination: a multicast GID, or our own. A multicast that came as a unicast copy has
    /// our own GID and `multicast` set.
    pub dst_gid: Gid,
    /// Sent to the multicast queue pair number.
    pub multicast: bool,
}

/// What a datagram from the fabric is for the TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<'a, 'p> {
    /// An IP packet as it came.
    Packet {
        /// The Ethernet header to put before it.
        ethernet: [u8; 14],
        /// The packet, cut to its own length.
        l3: &'p [u8],
    },
    /// A translated Ethernet frame.
    Frame(&'a [u8]),
    /// Kept until the guest that it is for is known; see [`crate::Ipoib::poll_tap`].
    Held,
    /// It was for us: an echo request or an answer to ours.
    Consumed,
    /// Dropped and counted.
    Dropped(DropReason),
}

/// Whom an echo request asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EchoTarget {
    /// Whoever has the IP address, as far as the neighbour table knows.
    Ip(IpAddr),
    /// Whoever has the GID; asked for by multicast where the neighbour table does not know it.
    Gid(Gid),
    /// Everybody, by multicast.
    All,
}

/// A question whether a peer is there, answered by `ibtapd` alone: the kernel's IPoIB ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EchoRequest {
    /// Who is asked.
    pub target: EchoTarget,
    /// Comes back in the answer.
    pub id: u16,
    /// Comes back in the answer.
    pub sequence: u32,
    /// Comes back in the answer: when it was sent, in nanoseconds of the asker's clock.
    pub stamp: u64,
    /// Bytes of IB payload to send, encapsulation header included.
    pub len: usize,
}

/// News for the other replicas of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// A neighbour spoke ARP or neighbour discovery.
    Learned {
        /// Its address.
        address: HardwareAddress,
        /// The Ethernet address that it was given.
        mac: Mac,
        /// An IP address that it said it has.
        ip: Option<IpAddr>,
    },
    /// A peer restarted: frames for `old` go to `new`.
    Superseded {
        /// The queue pair that was.
        old: HardwareAddress,
        /// The queue pair that is.
        new: HardwareAddress,
    },
    /// A neighbour announced itself, as after a start.
    Announced {
        /// Its address.
        address: HardwareAddress,
    },
    /// A neighbour's Ethernet address is now this one, since a guest has the other.
    Remapped {
        /// Its address.
        address: HardwareAddress,
        /// The Ethernet address that stands for it.
        mac: Mac,
    },
    /// A guest has an IP address.
    Guest {
        /// The IP address.
        ip: IpAddr,
        /// The guest.
        mac: Mac,
        /// Known only as the source address of data.
        weak: bool,
    },
    /// An IP address is no longer a guest's.
    GuestForgotten {
        /// The IP address.
        ip: IpAddr,
    },
    /// A guest has this Ethernet address, and no IP address yet.
    GuestMac {
        /// The guest.
        mac: Mac,
    },
    /// Too many hosts in too short a time claimed an IP address: its owner is kept for a while.
    Conflict {
        /// The IP address.
        ip: IpAddr,
    },
    /// Signed neighbour discovery was told of.
    SignedNd,
    /// A guest asks for an IP address without having one (RFC 5227): the answer names no guest.
    Probing {
        /// The IP address that it asks for.
        ip: IpAddr,
        /// The guest.
        mac: Mac,
    },
    /// A DHCP client's transaction: the answer may not name the client.
    Dhcp {
        /// The transaction.
        xid: u32,
        /// The client's hardware address.
        client: Mac,
    },
    /// A neighbour must be forgotten.
    Forgotten {
        /// Its address.
        address: HardwareAddress,
    },
}

/// One neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourInfo {
    /// The Ethernet address that stands for it.
    pub mac: Mac,
    /// Its address.
    pub address: HardwareAddress,
    /// IP addresses that it has, sorted.
    pub ips: Vec<IpAddr>,
    /// Spoke ARP or neighbour discovery, and did not only send data.
    pub confirmed: bool,
    /// Frames for it go to another queue pair of its port.
    pub superseded: bool,
    /// Its address handle.
    pub ah: Option<AddressHandle>,
    /// When it was last heard of or sent to, to about a second.
    pub used: Time,
}

/// One IP address of a guest, or of the host itself while there are guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestInfo {
    /// The IP address.
    pub ip: IpAddr,
    /// Whose it is.
    pub mac: Mac,
    /// Known only as the source address of data.
    pub weak: bool,
    /// When it was last heard of, to about a second.
    pub used: Time,
}

/// One multicast group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// The group.
    pub mgid: Gid,
    /// We only send to it.
    pub send_only: bool,
    /// When it was first joined or sent to.
    pub created: Time,
    /// Its address handle.
    pub ah: Option<AddressHandle>,
}
