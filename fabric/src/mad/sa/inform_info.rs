//! InformInfo (IBA vol. 1, 13.4.8.3), a subscription to Reports, and InformInfoRecord (15.2.5.12).

use proto::{Gid, Lid, Qpn};

use super::fields::{Reader, Writer};

/// GID.
pub const GID: u64 = 1 << 0;
/// LIDRangeBegin.
pub const LID_RANGE_BEGIN: u64 = 1 << 1;
/// LIDRangeEnd.
pub const LID_RANGE_END: u64 = 1 << 2;
/// IsGeneric.
pub const IS_GENERIC: u64 = 1 << 4;
/// Subscribe.
pub const SUBSCRIBE: u64 = 1 << 5;
/// Type.
pub const TYPE: u64 = 1 << 6;
/// TrapNumber or DeviceID.
pub const TRAP: u64 = 1 << 7;
/// QPN.
pub const QPN: u64 = 1 << 8;
/// RespTimeValue.
pub const RESP_TIME: u64 = 1 << 10;
/// ProducerType or VendorID.
pub const PRODUCER: u64 = 1 << 12;

/// Components of a subscription: 0x11f2.
pub const SUBSCRIPTION: u64 =
    LID_RANGE_BEGIN | IS_GENERIC | SUBSCRIBE | TYPE | TRAP | QPN | PRODUCER;

/// A subscription, or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InformInfo {
    /// The port whose traps are reported; unspecified for the LID range.
    pub gid: Gid,
    /// First LID of the range; 0xffff for all ports.
    pub lid_begin: Lid,
    /// Last LID of the range; 0 for one LID.
    pub lid_end: Lid,
    /// True for traps of the IBA, false for a vendor's.
    pub is_generic: bool,
    /// True to subscribe, false to end the subscription.
    pub subscribe: bool,
    /// Type of the notices; 0xffff for all.
    pub kind: u16,
    /// Trap number (generic), or device id; 0xffff for all.
    pub trap: u16,
    /// The subscriber's queue pair; read only when a subscription ends.
    pub qpn: Qpn,
    /// Code of the subscriber's longest time to an answer, 5 bits.
    pub resp_time_code: u8,
    /// Type of the producer, or the vendor, 24 bits; 0xffffff for all.
    pub producer: u32,
}

impl InformInfo {
    /// Bytes of the attribute.
    pub const LEN: usize = 36;

    /// A subscription of QP1 to one trap of all ports, or the end of this subscription.
    pub const fn of_trap(trap: u16, subscribe: bool) -> InformInfo {
        InformInfo {
            gid: Gid::UNSPECIFIED,
            lid_begin: Lid(0xffff),
            lid_end: Lid(0),
            is_generic: true,
            subscribe,
            kind: 0xffff,
            trap,
            qpn: Qpn::GSI,
            // 2.1 s, the value of libibumad's users.
            resp_time_code: 19,
            producer: 0xff_ffff,
        }
    }

    /// Reads the attribute; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<InformInfo> {
        let mut r = Reader::new(bytes);
        let (gid, lid_begin, lid_end, _reserved) = (r.gid()?, r.lid()?, r.lid()?, r.u16()?);
        let [is_generic, subscribe] = r.bytes()?;
        let (kind, trap, queue_pair, producer) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?);
        Some(InformInfo {
            gid,
            lid_begin,
            lid_end,
            is_generic: is_generic != 0,
            subscribe: subscribe != 0,
            kind,
            trap,
            qpn: Qpn::new(queue_pair >> 8),
            resp_time_code: (queue_pair & 0x1f) as u8,
            producer: producer & 0xff_ffff,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        Writer::new()
            .gid(self.gid)
            .u16(self.lid_begin.0)
            .u16(self.lid_end.0)
            .u16(0)
            .bytes([u8::from(self.is_generic), u8::from(self.subscribe)])
            .u16(self.kind)
            .u16(self.trap)
            .u32(self.qpn.get() << 8 | u32::from(self.resp_time_code & 0x1f))
            .u32(self.producer & 0xff_ffff)
            .done()
    }
}

super::record!(InformInfo, super::INFORM_INFO);

/// A subscription that the SA holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InformInfoRecord {
    /// The subscriber.
    pub subscriber: Gid,
    /// Number of the subscription.
    pub number: u16,
    /// The subscription.
    pub info: InformInfo,
}

impl InformInfoRecord {
    /// Bytes of a record; tables pad to 64.
    pub const LEN: usize = 24 + InformInfo::LEN;

    /// Reads a record; `None` if there are fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<InformInfoRecord> {
        let mut r = Reader::new(bytes);
        let (subscriber, number, _reserved) = (r.gid()?, r.u16()?, r.bytes::<6>()?);
        let info = InformInfo::parse(&r.bytes::<{ InformInfo::LEN }>()?)?;
        Some(InformInfoRecord {
            subscriber,
            number,
            info,
        })
    }

    /// The bytes of the wire.
    pub fn write(&self) -> [u8; Self::LEN] {
        Writer::new()
            .gid(self.subscriber)
            .u16(self.number)
            .bytes([0; 6])
            .bytes(self.info.write())
            .done()
    }
}

super::record!(InformInfoRecord, super::INFORM_INFO_RECORD);
