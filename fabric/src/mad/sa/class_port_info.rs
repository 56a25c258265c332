//! ClassPortInfo (IBA vol. 1, 13.4.8.1; kernel include/rdma/ib_mad.h): abilities of a manager, and where
//! its requests and traps go.

use std::time::Duration;

use proto::{Gid, Lid, PKey, QKey, Qpn};

use super::codes::packet_lifetime;
use super::fields::{Reader, Writer};

/// Bits of [`ClassPortInfo::capability_mask`] and [`ClassPortInfo::capability_mask2`] of the SA.
pub mod capability {
    /// The manager generates traps.
    pub const TRAPS: u16 = 1 << 0;
    /// Optional records are supported (IBA vol. 1, 15.2.5.1).
    pub const OPTIONAL_RECORDS: u16 = 1 << 8;
    /// Multicast is supported.
    pub const UD_MULTICAST: u16 = 1 << 9;
    /// SendOnlyFullMember is supported, in the second mask (kernel include/rdma/ib_sa.h).
    pub const SEND_ONLY_FULL_MEMBER: u32 = 1 << 12;
}

/// Address of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// GID.
    pub gid: Gid,
    /// Traffic class.
    pub tclass: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// LID; 0 if there is no redirection.
    pub lid: Lid,
    /// Partition.
    pub pkey: PKey,
    /// Reserved for requests, hop limit for traps.
    pub hop_limit: u8,
    /// Queue pair.
    pub qpn: Qpn,
    /// Q_Key.
    pub qkey: QKey,
}

impl Redirect {
    /// No redirection: all zero.
    pub const NONE: Redirect = Redirect {
        gid: Gid::UNSPECIFIED,
        tclass: 0,
        sl: 0,
        flow_label: 0,
        lid: Lid(0),
        pkey: PKey::new(0),
        hop_limit: 0,
        qpn: Qpn::new(0),
        qkey: QKey::new(0),
    };

    fn read(r: &mut Reader<'_>) -> Option<Redirect> {
        let (gid, route) = (r.gid()?, r.u32()?);
        let (lid, pkey, queue_pair) = (r.lid()?, PKey::new(r.u16()?), r.u32()?);
        Some(Redirect {
            gid,
            tclass: (route >> 24) as u8,
            sl: (route >> 20 & 0xf) as u8,
            flow_label: route & 0xf_ffff,
            lid,
            pkey,
            hop_limit: (queue_pair >> 24) as u8,
            qpn: Qpn::new(queue_pair),
            qkey: QKey::new(r.u32()?),
        })
    }

    fn write<const N: usize>(&self, w: Writer<N>) -> Writer<N> {
        let route = u32::from(self.tclass) << 24
            | u32::from(self.sl & 0xf) << 20
            | self.flow_label & 0xf_ffff;
        w.gid(self.gid)
            .u32(route)
            .u16(self.lid.0)
            .u16(self.pkey.get())
            .u32(u32::from(self.hop_limit) << 24 | self.qpn.get())
            .u32(self.qkey.get())
    }
}

/// Abilities of a manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassPortInfo {
    /// Base version of the management datagrams.
    pub base_version: u8,
    /// Class version of the management datagrams.
    pub class_version: u8,
    /// See [`capability`].
    pub capability_mask: u16,
    /// 27 bits; see [`capability`].
    pub capability_mask2: u32,
    /// Code of the longest time to an answer, 5 bits; see [`Self::resp_time`].
    pub resp_time_code: u8,
    /// Where requests go.
    pub redirect: Redirect,
    /// Where traps go.
    pub trap: Redirect,
}

impl ClassPortInfo {
    /// Bytes of the attribute.
    pub const LEN: usize = 72;

    /// Whether ports may join as [`SendOnlyFullMember`](super::JoinState::SEND_ONLY_FULL_MEMBER).
    pub const fn send_only_full_member(&self) -> bool {
        self.capability_mask2 & capability::SEND_ONLY_FULL_MEMBER != 0
    }

    /// The longest time to an answer.
    pub const fn resp_time(&self) -> Duration {
        packet_lifetime(self.resp_time_code)
    }

    /// Reads the attribute; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<ClassPortInfo> {
        let mut r = Reader::new(bytes);
        let ([base_version, class_version], capability_mask) = (r.bytes()?, r.u16()?);
        let mask2 = r.u32()?;
        Some(ClassPortInfo {
            base_version,
            class_version,
            capability_mask,
            capability_mask2: mask2 >> 5,
            resp_time_code: (mask2 & 0x1f) as u8,
            redirect: Redirect::read(&mut r)?,
            trap: Redirect::read(&mut r)?,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        let w = Writer::new()
            .bytes([self.base_version, self.class_version])
            .u16(self.capability_mask)
            .u32(self.capability_mask2 << 5 | u32::from(self.resp_time_code & 0x1f));
        self.trap.write(self.redirect.write(w)).done()
    }
}

super::record!(ClassPortInfo, super::CLASS_PORT_INFO);
