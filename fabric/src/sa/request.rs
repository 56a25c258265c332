//! Requests to the SA.

use proto::{Gid, IbMtu, Lid, PKey, QKey};
use zerocopy::big_endian::{U16, U32, U64};

use crate::mad::sa::{
    self, DATA_LEN, InformInfo, JoinState, McMemberRecord, PathRecord, Rate, Record, Selected,
    mc_member, node, path, port_info,
};
use crate::mad::{BASE_VERSION, Header, MAD_LEN, SaHeader, class, method};
use crate::rmpp::datagram;

/// A request: one datagram, except for the transaction id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// See [`method`].
    pub method: u8,
    /// See [`sa`].
    pub attribute: u16,
    /// Attribute modifier, 0 in most requests.
    pub modifier: u32,
    /// Component mask: which fields of the record are valid.
    pub mask: u64,
    /// The record, zeros behind it.
    pub record: [u8; DATA_LEN],
}

/// Parameters for joining a group, or for creating it if it does not exist. All members of a group have
/// the same, which an IPoIB interface takes from its broadcast group (RFC 4391, 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupJoin {
    /// The group.
    pub mgid: Gid,
    /// The port's GID.
    pub port_gid: Gid,
    /// The partition, with full membership.
    pub pkey: PKey,
    /// The membership.
    pub join_state: JoinState,
    /// Q_Key.
    pub qkey: QKey,
    /// MTU.
    pub mtu: IbMtu,
    /// Rate.
    pub rate: Rate,
    /// Traffic class.
    pub tclass: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Request {
    /// A request with the fields of `record` that `mask` names.
    pub fn new<R: Record>(method: u8, mask: u64, record: &R) -> Request {
        let mut bytes = Vec::with_capacity(R::LEN);
        record.append(&mut bytes);
        Request {
            record: padded(&bytes),
            ..Request::bare(method, R::ATTRIBUTE, mask)
        }
    }

    const fn bare(method: u8, attribute: u16, mask: u64) -> Request {
        Request {
            method,
            attribute,
            modifier: 0,
            mask,
            record: [0; DATA_LEN],
        }
    }

    /// A GetTable of all records of an attribute.
    pub const fn table(attribute: u16) -> Request {
        Request::bare(method::GET_TABLE, attribute, 0)
    }

    /// A GetTable of the records that have the fields of `record` that `mask` names.
    pub fn table_like<R: Record>(mask: u64, record: &R) -> Request {
        Request::new(method::GET_TABLE, mask, record)
    }

    /// Get ClassPortInfo: the abilities of the SA.
    pub const fn class_port_info() -> Request {
        Request::bare(method::GET, sa::CLASS_PORT_INFO, 0)
    }

    /// A join of a group that exists, with component mask 0x10083: so the kernel joins a broadcast group
    /// (kernel drivers/infiniband/ulp/ipoib/ipoib_multicast.c).
    pub fn join(mgid: Gid, port_gid: Gid, pkey: PKey, join_state: JoinState) -> Request {
        let record = McMemberRecord {
            mgid,
            port_gid,
            pkey,
            join_state,
            ..McMemberRecord::default()
        };
        Request::new(method::SET, mc_member::JOIN, &record)
    }

    /// A join of a group that is created if it does not exist, with component mask 0x173f7. The SA
    /// creates groups for [`JoinState::FULL`] and [`JoinState::SEND_ONLY_FULL_MEMBER`] only.
    pub fn join_or_create(join: &GroupJoin) -> Request {
        let record = McMemberRecord {
            mgid: join.mgid,
            port_gid: join.port_gid,
            qkey: join.qkey,
            mtu: Selected::exactly(join.mtu as u8),
            tclass: join.tclass,
            pkey: join.pkey,
            rate: Selected::exactly(join.rate.0),
            sl: join.sl,
            flow_label: join.flow_label,
            hop_limit: join.hop_limit,
            join_state: join.join_state,
            ..McMemberRecord::default()
        };
        Request::new(method::SET, mc_member::CREATE, &record)
    }

    /// The end of a membership, with component mask 0x10003. The SA takes the bits of `join_state` from
    /// the whole port: another user of the port, such as the kernel's `ib_ipoib`, loses them, too.
    pub fn leave(mgid: Gid, port_gid: Gid, join_state: JoinState) -> Request {
        let record = McMemberRecord {
            mgid,
            port_gid,
            join_state,
            ..McMemberRecord::default()
        };
        Request::new(method::DELETE, mc_member::LEAVE, &record)
    }

    /// GetTable MCMemberRecord of one group: an ordinary requester sees its own membership and the
    /// group's parameters.
    pub fn group(mgid: Gid) -> Request {
        let record = McMemberRecord {
            mgid,
            ..McMemberRecord::default()
        };
        Request::table_like(mc_member::MGID, &record)
    }

    /// GetTable MCMemberRecord of the groups that a port is a member of.
    pub fn memberships(port_gid: Gid) -> Request {
        let record = McMemberRecord {
            port_gid,
            ..McMemberRecord::default()
        };
        Request::table_like(mc_member::PORT_GID, &record)
    }

    /// Get of one path, with component mask 0x340c: so the kernel's IPoIB asks. `pkey` has full
    /// membership; `tclass` is the broadcast group's.
    pub fn path(sgid: Gid, dgid: Gid, pkey: PKey, tclass: u8) -> Request {
        let record = PathRecord {
            dgid,
            sgid,
            tclass,
            numb_path: 1,
            pkey,
            ..PathRecord::default()
        };
        Request::new(method::GET, path::IPOIB, &record)
    }

    /// GetTable of the nodes with a LID.
    pub fn node(lid: Lid) -> Request {
        let mut request = Request::bare(method::GET_TABLE, sa::NODE_RECORD, node::LID);
        request.record = padded(&lid.0.to_be_bytes());
        request
    }

    /// GetTable of PortInfo of the ports with a LID.
    pub fn port_info(lid: Lid) -> Request {
        let mut request = Request::bare(method::GET_TABLE, sa::PORT_INFO_RECORD, port_info::LID);
        request.record = padded(&lid.0.to_be_bytes());
        request
    }

    /// A subscription to Reports of a trap of all ports; see [`sa::trap`].
    pub fn subscribe(trap: u16) -> Request {
        let info = InformInfo::of_trap(trap, true);
        Request::new(method::SET, sa::inform_info::SUBSCRIPTION, &info)
    }

    /// The end of a subscription.
    pub fn unsubscribe(trap: u16) -> Request {
        let info = InformInfo::of_trap(trap, false);
        Request::new(method::SET, sa::inform_info::SUBSCRIPTION, &info)
    }

    /// The method of an answer.
    pub(super) const fn answer_method(&self) -> u8 {
        match self.method {
            method::SET => method::GET_RESP,
            other => other | method::RESPONSE,
        }
    }

    /// The datagram. Like the kernel's, it has an RMPP header of zeros.
    pub fn datagram(&self, transaction_id: u64) -> [u8; MAD_LEN] {
        let head = SaHeader {
            rmpp_version: 0,
            rmpp_type: 0,
            rmpp_flags: 0,
            rmpp_status: 0,
            data1: U32::ZERO,
            data2: U32::ZERO,
            sm_key: U64::ZERO,
            attribute_offset: U16::ZERO,
            reserved: U16::ZERO,
            component_mask: U64::new(self.mask),
        };
        datagram(
            &header(self.method, transaction_id, self.attribute, self.modifier),
            &head,
            &self.record,
        )
    }
}

/// The common header of a datagram of subnet administration.
pub(super) const fn header(method: u8, tid: u64, attribute: u16, modifier: u32) -> Header {
    Header {
        base_version: BASE_VERSION,
        mgmt_class: class::SUBN_ADM,
        class_version: sa::CLASS_VERSION,
        method,
        status: U16::ZERO,
        class_specific: U16::ZERO,
        transaction_id: U64::new(tid),
        attribute_id: U16::new(attribute),
        reserved: U16::ZERO,
        attribute_modifier: U32::new(modifier),
    }
}

fn padded(record: &[u8]) -> [u8; DATA_LEN] {
    let mut bytes = [0; DATA_LEN];
    for (to, from) in bytes.iter_mut().zip(record) {
        *to = *from;
    }
    bytes
}
