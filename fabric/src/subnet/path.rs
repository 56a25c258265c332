//! Destinations, and the way of packets to them.

use std::io;

use proto::{Gid, IbMtu, Lid, PKey};

/// A destination in a partition: the key of a path. The subnet administrator may choose another service
/// level for each partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Destination {
    /// The GID of a port or of a group.
    pub gid: Gid,
    /// The partition, with bit 15 set.
    pub pkey: PKey,
}

/// Why the path to a destination is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreachable {
    /// The subnet administrator has no path, or refused the request.
    #[error("{0}")]
    Refused(String),
    /// The subnet administrator did not answer.
    #[error("the subnet administrator does not answer")]
    NoAnswer,
}

impl Unreachable {
    /// The error of an address handle.
    pub const fn kind(&self) -> io::ErrorKind {
        match self {
            Unreachable::Refused(_) => io::ErrorKind::HostUnreachable,
            Unreachable::NoAnswer => io::ErrorKind::TimedOut,
        }
    }
}

/// The fields of a global route header (IBA vol. 1, 8.3) that a sender chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GlobalRoute {
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl GlobalRoute {
    /// The largest hop limit of a path that stays in the subnet (IBA vol. 1, 8.3.6).
    const HOPS_WITHIN_SUBNET: u8 = 1;

    /// The global route, unless packets have no GRH: with the hop limit 0 (kernel
    /// drivers/infiniband/core/sa_query.c, `ib_init_ah_attr_from_path`).
    pub fn if_needed(self) -> Option<GlobalRoute> {
        (self.hop_limit > 0).then_some(self)
    }

    /// Whether packets may leave the subnet. A packet with a GRH may stay in the subnet.
    pub const fn leaves_subnet(&self) -> bool {
        self.hop_limit > Self::HOPS_WITHIN_SUBNET
    }
}

/// How packets reach a destination on an InfiniBand subnet: from a PathRecord (IBA vol. 1, 15.2.5.16), or
/// from the MCMemberRecord of a group (15.2.5.17).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubnetPath {
    /// The LID of the next port on the way, or the group's MLID.
    pub dlid: Lid,
    /// The source LID; 0 if any. Its low LMC bits are the source path bits.
    pub slid: Lid,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// The static rate as a record's code; 0: the rate of the port.
    pub rate: u8,
    /// The largest payload of a packet.
    pub mtu: IbMtu,
    /// The packet lifetime as a record's code: 4.096 µs times 2 to this power.
    pub packet_life: u8,
    /// The global route of packets with a GRH: all packets to groups; other packets, see
    /// [`GlobalRoute::if_needed`].
    pub global: Option<GlobalRoute>,
}
