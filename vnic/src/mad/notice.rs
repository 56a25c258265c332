//! What a trap carries.

use super::bytes::Reader;
use super::{Attribute, Malformed, OUI};
use crate::Lid;

/// Bytes of the notice.
const LEN: usize = 96;
/// Bytes of a trap behind the header: the notice, and zeros.
const TRAP_DATA: usize = 232;
/// The notice's type as the kernel's driver has it: 4, information, shifted by one.
const GENERIC_TYPE: u8 = 0x08;

/// What a trap tells (kernel opa_vnic_encap.h, `opa_vnic_ema_trap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapKind {
    /// 1: the list of unicast addresses changed.
    UcastMacs,
    /// 2: that of multicast addresses.
    McastMacs,
    /// 3: the state of the Ethernet link.
    LinkStatus,
}

impl TrapKind {
    /// Its number.
    #[must_use]
    pub const fn opcode(self) -> u8 {
        match self {
            TrapKind::UcastMacs => 1,
            TrapKind::McastMacs => 2,
            TrapKind::LinkStatus => 3,
        }
    }

    /// That of a number.
    #[must_use]
    pub const fn from_opcode(opcode: u8) -> Option<TrapKind> {
        Some(match opcode {
            1 => TrapKind::UcastMacs,
            2 => TrapKind::McastMacs,
            3 => TrapKind::LinkStatus,
            _ => return None,
        })
    }
}

/// Notice (0x0002): what a virtual port tells its manager (kernel opa_vnic_encap.h, `struct
/// opa_veswport_trap` in `struct opa_vnic_notice_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Whose notice it is: the port's source LID.
    pub issuer_lid: Lid,
    /// The switch's fabric.
    pub fabric_id: u16,
    /// The switch; 0: none yet.
    pub vesw_id: u16,
    /// The port's number in the switch.
    pub port_num: u32,
    /// The number of the fabric port on its node.
    pub opa_port: u16,
    /// The virtual port's index.
    pub index: u8,
    /// What happened.
    pub kind: TrapKind,
}

impl Attribute for Notice {
    fn decode(data: &[u8]) -> Result<Notice, Malformed> {
        let mut r = Reader::new(data, LEN)?;
        // Type, vendor, trap number, toggle.
        r.skip::<8>()?;
        let issuer_lid = r.lid("issuer LID")?;
        // Reserved, the issuer's GID.
        r.skip::<20>()?;
        let fabric_id = r.u16()?;
        let vesw_id = r.u16()?;
        let port_num = r.u32()?;
        let opa_port = r.u16()?;
        let index = r.u8()?;
        let opcode = r.u8()?;
        let unknown = Malformed::Field {
            field: "opcode",
            value: opcode.into(),
            why: "none of 1 to 3",
        };
        Ok(Notice {
            issuer_lid,
            fabric_id,
            vesw_id,
            port_num,
            opa_port,
            index,
            kind: TrapKind::from_opcode(opcode).ok_or(unknown)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + TRAP_DATA;
        out.push(GENERIC_TYPE);
        out.extend(OUI);
        out.extend([0; 4]);
        out.extend(self.issuer_lid.get().to_be_bytes());
        out.extend([0; 20]);
        out.extend(self.fabric_id.to_be_bytes());
        out.extend(self.vesw_id.to_be_bytes());
        out.extend(self.port_num.to_be_bytes());
        out.extend(self.opa_port.to_be_bytes());
        out.push(self.index);
        out.push(self.kind.opcode());
        out.resize(end, 0);
    }
}
