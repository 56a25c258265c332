//! MCMemberRecord (IBA vol. 1, 15.2.5.17; kernel drivers/infiniband/core/sa_query.c,
//! `mcmember_rec_table`): a port's membership in a multicast group, and the group's parameters.

use std::fmt;

use proto::{Gid, Lid, PKey, QKey};

use super::codes::Selected;
use super::fields::{Reader, Writer};

/// MGID.
pub const MGID: u64 = 1 << 0;
/// PortGID.
pub const PORT_GID: u64 = 1 << 1;
/// Q_Key.
pub const QKEY: u64 = 1 << 2;
/// MLID.
pub const MLID: u64 = 1 << 3;
/// MTU and its selector.
pub const MTU: u64 = 3 << 4;
/// TClass.
pub const TCLASS: u64 = 1 << 6;
/// P_Key.
pub const PKEY: u64 = 1 << 7;
/// Rate and its selector.
pub const RATE: u64 = 3 << 8;
/// PacketLifeTime and its selector.
pub const LIFETIME: u64 = 3 << 10;
/// SL.
pub const SL: u64 = 1 << 12;
/// FlowLabel.
pub const FLOW_LABEL: u64 = 1 << 13;
/// HopLimit.
pub const HOP_LIMIT: u64 = 1 << 14;
/// Scope.
pub const SCOPE: u64 = 1 << 15;
/// JoinState.
pub const JOIN_STATE: u64 = 1 << 16;
/// ProxyJoin.
pub const PROXY_JOIN: u64 = 1 << 17;

/// Components of a Delete: 0x10003.
pub const LEAVE: u64 = MGID | PORT_GID | JOIN_STATE;
/// Components with which the kernel joins a broadcast group, which exists: 0x10083.
pub const JOIN: u64 = LEAVE | PKEY;
/// Components with which the kernel joins or creates another group: 0x173f7.
pub const CREATE: u64 = JOIN | QKEY | MTU | TCLASS | RATE | SL | FLOW_LABEL | HOP_LIMIT;

/// Bits of a membership (IBA vol. 1, 15.2.5.17.4; kernel include/rdma/ib_sa.h).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct JoinState(pub u8);

impl JoinState {
    /// No membership.
    pub const NONE: JoinState = JoinState(0);
    /// Sends and receives; the group lives while it has such a member.
    pub const FULL: JoinState = JoinState(1);
    /// Sends and receives.
    pub const NON_MEMBER: JoinState = JoinState(2);
    /// Sends.
    pub const SEND_ONLY_NON_MEMBER: JoinState = JoinState(4);
    /// Sends; the group lives while it has such a member. See
    /// [`ClassPortInfo::send_only_full_member`](super::ClassPortInfo::send_only_full_member).
    pub const SEND_ONLY_FULL_MEMBER: JoinState = JoinState(8);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: JoinState) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that are not in `other`.
    #[must_use]
    pub const fn without(self, other: JoinState) -> JoinState {
        JoinState(self.0 & !other.0)
    }
}

/// Formats like `FullMember` or `NonMember,SendOnlyFullMember`; no bit is `none`.
impl fmt::Display for JoinState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(JoinState, &str); 4] = [
            (JoinState::FULL, "FullMember"),
            (JoinState::NON_MEMBER, "NonMember"),
            (JoinState::SEND_ONLY_NON_MEMBER, "SendOnlyNonMember"),
            (JoinState::SEND_ONLY_FULL_MEMBER, "SendOnlyFullMember"),
        ];
        let mut before = "";
        for (bit, name) in NAMES {
            if self.contains(bit) {
                write!(f, "{before}{name}")?;
                before = ",";
            }
        }
        if before.is_empty() {
            f.write_str("none")?;
        }
        Ok(())
    }
}

/// A membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct McMemberRecord {
    /// The group.
    pub mgid: Gid,
    /// The member's GID.
    pub port_gid: Gid,
    /// The group's Q_Key.
    pub qkey: QKey,
    /// The group's multicast LID, 0xc000 to 0xfffe.
    pub mlid: Lid,
    /// The group's MTU.
    pub mtu: Selected,
    /// The group's traffic class.
    pub tclass: u8,
    /// The group's partition.
    pub pkey: PKey,
    /// The group's rate.
    pub rate: Selected,
    /// The group's packet lifetime.
    pub lifetime: Selected,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Scope, 4 bits.
    pub scope: u8,
    /// In a request the bits to join or leave; in an answer all bits of the port.
    pub join_state: JoinState,
    /// Whether another port than the member joined for it.
    pub proxy_join: bool,
}

impl Default for McMemberRecord {
    /// All zero.
    fn default() -> McMemberRecord {
        McMemberRecord {
            mgid: Gid::UNSPECIFIED,
            port_gid: Gid::UNSPECIFIED,
            qkey: QKey::new(0),
            mlid: Lid(0),
            mtu: Selected::default(),
            tclass: 0,
            pkey: PKey::new(0),
            rate: Selected::default(),
            lifetime: Selected::default(),
            sl: 0,
            flow_label: 0,
            hop_limit: 0,
            scope: 0,
            join_state: JoinState::NONE,
            proxy_join: false,
        }
    }
}

impl McMemberRecord {
    /// Bytes of a record; tables pad to 56.
    pub const LEN: usize = 52;

    /// Reads a record; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<McMemberRecord> {
        let mut r = Reader::new(bytes);
        let (mgid, port_gid) = (r.gid()?, r.gid()?);
        let (qkey, mlid) = (QKey::new(r.u32()?), r.lid()?);
        let (mtu, tclass) = (Selected::from_byte(r.u8()?), r.u8()?);
        let (pkey, rate) = (PKey::new(r.u16()?), Selected::from_byte(r.u8()?));
        let lifetime = Selected::from_byte(r.u8()?);
        let (route, membership, [proxy, _, _]) = (r.u32()?, r.u8()?, r.bytes()?);
        Some(McMemberRecord {
            mgid,
            port_gid,
            qkey,
            mlid,
            mtu,
            tclass,
            pkey,
            rate,
            lifetime,
            sl: (route >> 28) as u8,
            flow_label: route >> 8 & 0xf_ffff,
            hop_limit: (route & 0xff) as u8,
            scope: membership >> 4,
            join_state: JoinState(membership & 0xf),
            proxy_join: proxy & 0x80 != 0,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        let route = u32::from(self.sl & 0xf) << 28
            | (self.flow_label & 0xf_ffff) << 8
            | u32::from(self.hop_limit);
        Writer::new()
            .gid(self.mgid)
            .gid(self.port_gid)
            .u32(self.qkey.get())
            .u16(self.mlid.0)
            .u8(self.mtu.to_byte())
            .u8(self.tclass)
            .u16(self.pkey.get())
            .u8(self.rate.to_byte())
            .u8(self.lifetime.to_byte())
            .u32(route)
            .u8(self.scope << 4 | self.join_state.0 & 0xf)
            .u8(u8::from(self.proxy_join) << 7)
            .done()
    }
}

super::record!(McMemberRecord, super::MC_MEMBER_RECORD);
