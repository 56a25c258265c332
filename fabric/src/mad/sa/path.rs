//! PathRecord (IBA vol. 1, 15.2.5.16; kernel drivers/infiniband/core/sa_query.c, `path_rec_table`): how
//! packets of a partition get from one port to another.

use proto::{Gid, Lid, PKey, ServiceId};

use super::codes::Selected;
use super::fields::{Reader, Writer};

/// ServiceID: two bits.
pub const SERVICE_ID: u64 = 3;
/// DGID.
pub const DGID: u64 = 1 << 2;
/// SGID.
pub const SGID: u64 = 1 << 3;
/// DLID.
pub const DLID: u64 = 1 << 4;
/// SLID.
pub const SLID: u64 = 1 << 5;
/// RawTraffic.
pub const RAW_TRAFFIC: u64 = 1 << 6;
/// FlowLabel.
pub const FLOW_LABEL: u64 = 1 << 8;
/// HopLimit.
pub const HOP_LIMIT: u64 = 1 << 9;
/// TClass.
pub const TCLASS: u64 = 1 << 10;
/// Reversible.
pub const REVERSIBLE: u64 = 1 << 11;
/// NumbPath.
pub const NUMB_PATH: u64 = 1 << 12;
/// P_Key.
pub const PKEY: u64 = 1 << 13;
/// QoSClass.
pub const QOS_CLASS: u64 = 1 << 14;
/// SL.
pub const SL: u64 = 1 << 15;
/// MTU and its selector.
pub const MTU: u64 = 3 << 16;
/// Rate and its selector.
pub const RATE: u64 = 3 << 18;
/// PacketLifeTime and its selector.
pub const LIFETIME: u64 = 3 << 20;
/// Preference.
pub const PREFERENCE: u64 = 1 << 22;

/// Components of the kernel's IPoIB queries: 0x340c.
pub const IPOIB: u64 = DGID | SGID | TCLASS | NUMB_PATH | PKEY;

/// A path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathRecord {
    /// The service, 0 for any.
    pub service_id: ServiceId,
    /// The destination's GID.
    pub dgid: Gid,
    /// The source's GID.
    pub sgid: Gid,
    /// The destination's LID, or that of the router to it.
    pub dlid: Lid,
    /// The source's LID.
    pub slid: Lid,
    /// Whether raw packets may use the path.
    pub raw_traffic: bool,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit; above 1 the path may leave the subnet and packets need a GRH.
    pub hop_limit: u8,
    /// Traffic class.
    pub tclass: u8,
    /// Whether the way back has the same parameters.
    pub reversible: bool,
    /// In a request: the largest number of paths to answer, 7 bits.
    pub numb_path: u8,
    /// The partition.
    pub pkey: PKey,
    /// Class of the quality of service, 12 bits.
    pub qos_class: u16,
    /// Service level, 4 bits.
    pub sl: u8,
    /// MTU of the path.
    pub mtu: Selected,
    /// Rate of the path.
    pub rate: Selected,
    /// Packet lifetime of the path.
    pub lifetime: Selected,
    /// 0 is the best of several paths.
    pub preference: u8,
}

impl Default for PathRecord {
    /// All zero.
    fn default() -> PathRecord {
        PathRecord {
            service_id: ServiceId(0),
            dgid: Gid::UNSPECIFIED,
            sgid: Gid::UNSPECIFIED,
            dlid: Lid(0),
            slid: Lid(0),
            raw_traffic: false,
            flow_label: 0,
            hop_limit: 0,
            tclass: 0,
            reversible: false,
            numb_path: 0,
            pkey: PKey::new(0),
            qos_class: 0,
            sl: 0,
            mtu: Selected::default(),
            rate: Selected::default(),
            lifetime: Selected::default(),
            preference: 0,
        }
    }
}

impl PathRecord {
    /// Bytes of a record.
    pub const LEN: usize = 64;

    /// Reads a record; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<PathRecord> {
        let mut r = Reader::new(bytes);
        let (service_id, dgid, sgid) = (ServiceId(r.u64()?), r.gid()?, r.gid()?);
        let (dlid, slid, route) = (r.lid()?, r.lid()?, r.u32()?);
        let (tclass, number, pkey, service) = (r.u8()?, r.u8()?, PKey::new(r.u16()?), r.u16()?);
        let mtu = Selected::from_byte(r.u8()?);
        let rate = Selected::from_byte(r.u8()?);
        let lifetime = Selected::from_byte(r.u8()?);
        let (preference, _reserved) = (r.u8()?, r.bytes::<6>()?);
        Some(PathRecord {
            service_id,
            dgid,
            sgid,
            dlid,
            slid,
            raw_traffic: route >> 31 != 0,
            flow_label: route >> 8 & 0xf_ffff,
            hop_limit: (route & 0xff) as u8,
            tclass,
            reversible: number & 0x80 != 0,
            numb_path: number & 0x7f,
            pkey,
            qos_class: service >> 4,
            sl: (service & 0xf) as u8,
            mtu,
            rate,
            lifetime,
            preference,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        let route = u32::from(self.raw_traffic) << 31
            | (self.flow_label & 0xf_ffff) << 8
            | u32::from(self.hop_limit);
        Writer::new()
            .u64(self.service_id.0)
            .gid(self.dgid)
            .gid(self.sgid)
            .u16(self.dlid.0)
            .u16(self.slid.0)
            .u32(route)
            .u8(self.tclass)
            .u8(u8::from(self.reversible) << 7 | self.numb_path & 0x7f)
            .u16(self.pkey.get())
            .u16(self.qos_class << 4 | u16::from(self.sl & 0xf))
            .u8(self.mtu.to_byte())
            .u8(self.rate.to_byte())
            .u8(self.lifetime.to_byte())
            .u8(self.preference)
            .done()
    }
}

super::record!(PathRecord, super::PATH_RECORD);
