//! Multicast groups as a subnet hands them out.
//!
//! Who joins a group asks for it, and the answer may come at once, or late, or be taken back: on a
//! fabric with a subnet administrator a join is a request of its own (IBA vol. 1, 15.2.5.17,
//! MCMemberRecord), on one without it the port answers itself.
//! [`Port::change_groups`](crate::Port::change_groups) and [`PortEvent::Group`](crate::PortEvent::Group)
//! carry the answers.

use proto::{Lid, QKey};

use crate::port::FabricError;

/// What the fabric says of a group that was joined: the components of an MCMemberRecord (IBA vol. 1,
/// 15.2.5.17) that a sender needs. All numbers are in the byte order of the host; in a record they are in
/// that of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupParameters {
    /// The group's LID (component `MLID`, 16 bits), on InfiniBand. A fabric that finds groups by their GID
    /// has none.
    pub mlid: Option<Lid>,
    /// The Q_Key that packets to the group carry (component `Q_Key`).
    pub qkey: QKey,
    /// The largest payload of a packet to the group in bytes. In a record it is a code (component `MTU`,
    /// 6 bits, 1 to 5 for 256 to 4096 bytes); a software fabric has any number.
    pub mtu: u32,
    /// The service level (component `SL`, 4 bits).
    pub sl: u8,
    /// The static rate as a record has it (component `Rate`, 6 bits, e.g. 3 for 10 Gbit/s); 0: that of the
    /// port, as `IBV_RATE_MAX`.
    pub rate: u8,
    /// The traffic class of the GRH (component `TClass`).
    pub traffic_class: u8,
    /// The flow label of the GRH (component `FlowLabel`, 20 bits).
    pub flow_label: u32,
    /// The hop limit of the GRH (component `HopLimit`); 0: the port chooses, as in
    /// [`AhAttributes`](crate::AhAttributes).
    pub hop_limit: u8,
}

impl GroupParameters {
    /// Those of a group that nobody administers: packets are as large as the port's, and all else is as
    /// the port has it.
    pub const fn unadministered(qkey: QKey, mtu: u32) -> GroupParameters {
        GroupParameters {
            mlid: None,
            qkey,
            mtu,
            sl: 0,
            rate: 0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
        }
    }
}

/// The answer to a join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Joined {
    /// The endpoint is attached to the group.
    Now(GroupParameters),
    /// The answer comes later, as a [`PortEvent::Group`](crate::PortEvent::Group).
    Pending,
    /// The endpoint is not attached to the group; the text, a whole sentence, says why.
    Refused(String),
}

impl From<Result<GroupParameters, FabricError>> for Joined {
    fn from(joined: Result<GroupParameters, FabricError>) -> Joined {
        match joined {
            Ok(parameters) => Joined::Now(parameters),
            Err(e) => Joined::Refused(e.to_string()),
        }
    }
}
