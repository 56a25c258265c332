//! ClassPortInfo of the VNIC class.

use proto::{Gid, Qpn};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Attribute, BASE_VERSION, CLASS_VERSION, Malformed};

/// ClassPortInfo (0x0001) of Omni-Path, 80 bytes (kernel include/rdma/ib_mad.h, `struct
/// opa_class_port_info`). An agent stores what a manager sets, except the first 8 bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ClassPortInfo {
    /// [`BASE_VERSION`].
    pub base_version: u8,
    /// [`CLASS_VERSION`].
    pub class_version: u8,
    /// Bit 0: sends traps. Bits 15 to 8: maximum number of virtual ports.
    pub cap_mask: U16,
    /// Upper 27 bits: further capabilities, none here. Lower 5 bits: response time, 4.096 us times 2 to
    /// this power.
    pub cap_mask2_resp_time: U32,
    /// GID for redirected requests. Stored, not used.
    pub redirect_gid: [u8; 16],
    /// Traffic class and flow label of the redirection.
    pub redirect_tc_fl: U32,
    /// LID of the redirection.
    pub redirect_lid: U32,
    /// Service level and queue pair of the redirection.
    pub redirect_sl_qp: U32,
    /// Q_Key of the redirection.
    pub redirect_qkey: U32,
    /// GID of the receiver of traps.
    pub trap_gid: [u8; 16],
    /// Traffic class and flow label of traps.
    pub trap_tc_fl: U32,
    /// LID of the receiver of traps; 0: no traps are wanted. A manager on a fabric without LIDs sets 1.
    pub trap_lid: U32,
    /// Hop limit (8 bits) and queue pair (24 bits) of traps.
    pub trap_hl_qp: U32,
    /// Q_Key of traps.
    pub trap_qkey: U32,
    /// P_Key of traps.
    pub trap_pkey: U16,
    /// P_Key of the redirection.
    pub redirect_pkey: U16,
    /// Service level of traps, in the upper 5 bits.
    pub trap_sl_rsvd: u8,
    /// Reserved.
    pub reserved: [u8; 3],
}

const _: () = assert!(size_of::<ClassPortInfo>() == 80);

impl ClassPortInfo {
    /// Sends traps and has up to 255 virtual ports (`vema_get_class_port_info`).
    pub const CAP_MASK: u16 = 0xff01;
    /// Answers within 1.07 s.
    pub const RESPONSE_TIME: u32 = 18;

    /// Returns the attribute with this receiver of traps.
    #[must_use]
    pub fn with_trap(mut self, gid: Gid, qpn: Qpn, lid: u32) -> ClassPortInfo {
        self.trap_gid = gid.0;
        self.trap_hl_qp = U32::new(qpn.get());
        self.trap_lid = U32::new(lid);
        self
    }

    /// GID and queue pair of the receiver of traps; `None` if `trap_lid` is 0.
    #[must_use]
    pub fn trap_to(&self) -> Option<(Gid, Qpn)> {
        let to = (Gid(self.trap_gid), Qpn::new(self.trap_hl_qp.get()));
        (self.trap_lid.get() != 0).then_some(to)
    }

    /// Service level of traps.
    #[must_use]
    pub const fn trap_sl(&self) -> u8 {
        self.trap_sl_rsvd >> 3
    }

    /// Returns the attribute with the agent's own first 8 bytes.
    #[must_use]
    pub const fn of_agent(self) -> ClassPortInfo {
        ClassPortInfo {
            base_version: BASE_VERSION,
            class_version: CLASS_VERSION,
            cap_mask: U16::new(ClassPortInfo::CAP_MASK),
            cap_mask2_resp_time: U32::new(ClassPortInfo::RESPONSE_TIME),
            ..self
        }
    }
}

/// The initial attribute of an agent.
impl Default for ClassPortInfo {
    fn default() -> ClassPortInfo {
        ClassPortInfo::new_zeroed().of_agent()
    }
}

impl Attribute for ClassPortInfo {
    fn decode(data: &[u8]) -> Result<ClassPortInfo, Malformed> {
        let short = Malformed::Short {
            have: data.len(),
            need: size_of::<ClassPortInfo>(),
        };
        let (info, _) = ClassPortInfo::read_from_prefix(data).map_err(|_| short)?;
        Ok(info)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}
