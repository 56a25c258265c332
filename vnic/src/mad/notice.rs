//! Notice: contents of a trap.

use super::bytes::Reader;
use super::{Attribute, Malformed, OUI};
use crate::Lid;

/// Bytes of the notice.
const LEN: usize = 96;
/// Bytes of a trap after the header: the notice, then zeros.
const TRAP_DATA: usize = 232;
/// Notice type of the kernel's driver: 4 (information), shifted by one.
const GENERIC_TYPE: u8 = 0x08;

/// Subject of a trap (kernel opa_vnic_encap.h, `opa_vnic_ema_trap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapKind {
    /// 1: the unicast address list changed.
    UcastMacs,
    /// 2: the multicast address list changed.
    McastMacs,
    /// 3: the state of the Ethernet link changed.
    LinkStatus,
}

impl TrapKind {
    /// Opcode on the wire.
    #[must_use]
    pub const fn opcode(self) -> u8 {
        match self {
            TrapKind::UcastMacs => 1,
            TrapKind::McastMacs => 2,
            TrapKind::LinkStatus => 3,
        }
    }

    /// Kind of an opcode.
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

/// Notice (0x0002): a change of a virtual port (kernel opa_vnic_encap.h, `struct opa_veswport_trap` in
/// `struct opa_vnic_notice_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Source LID of the port.
    pub issuer_lid: Lid,
    /// Fabric id of the switch.
    pub fabric_id: u16,
    /// Number of the switch; 0: none.
    pub vesw_id: u16,
    /// Number of the port on the switch.
    pub port_num: u32,
    /// Number of the fabric port on its node.
    pub opa_port: u16,
    /// Index of the virtual port.
    pub index: u8,
    /// Subject.
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
            why: "must be 1 to 3",
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
