//! Parameters and answers of multicast joins.
//!
//! The answer to a join can come at once, later, or be taken back. On a fabric with a subnet
//! administrator a join is a request to it (IBA vol. 1, 15.2.5.17, MCMemberRecord); on other fabrics
//! the port answers itself. [`Port::change_groups`](crate::Port::change_groups) and
//! [`PortEvent::Group`](crate::PortEvent::Group) carry the answers.

use proto::{Lid, QKey};

use crate::port::FabricError;

/// Parameters of a joined group: the components of an MCMemberRecord (IBA vol. 1, 15.2.5.17) that a
/// sender needs. Numbers are in host byte order here, in network byte order in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupParameters {
    /// The group's LID (component `MLID`, 16 bits) on InfiniBand; `None` on fabrics that address groups
    /// by GID.
    pub mlid: Option<Lid>,
    /// The Q_Key that packets to the group carry (component `Q_Key`).
    pub qkey: QKey,
    /// The largest payload of a packet to the group in bytes (component `MTU`, 6 bits, a code of 1 to 5 for
    /// 256 to 4096 bytes); `None`: the port's.
    pub mtu: Option<u32>,
    /// The service level (component `SL`, 4 bits).
    pub sl: u8,
    /// The static rate with a record's code (component `Rate`, 6 bits, e.g. 3 for 10 Gbit/s); 0: the
    /// rate of the port, as `IBV_RATE_MAX`.
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
    /// Parameters of a group without a subnet administrator: defaults of the port except for the Q_Key.
    pub const fn unadministered(qkey: QKey) -> GroupParameters {
        GroupParameters {
            mlid: None,
            qkey,
            mtu: None,
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
    /// The endpoint is not attached to the group; the text gives the reason in a sentence.
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
