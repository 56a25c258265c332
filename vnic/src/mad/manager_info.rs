//! ManagerInfo (0x0032, defined by ibtap): announcement of a manager.
//!
//! ```text
//!  0  id         u64
//!  8  priority   u8   0 to 15
//!  9  flags      u8   1: active, not standby
//! 10  reserved   u16
//! 12  lease      u32  milliseconds
//! 16  GID        16
//! ```

use super::bytes::Reader;
use super::{Attribute, Malformed};
use crate::attribute::ManagerInfo;

/// Bytes of the attribute.
const LEN: usize = 32;
const ACTIVE: u8 = 1;
/// The highest priority.
const PRIORITY_MAX: u8 = 15;

impl Attribute for ManagerInfo {
    fn decode(data: &[u8]) -> Result<ManagerInfo, Malformed> {
        let mut r = Reader::new(data, LEN)?;
        let id = r.u64()?;
        let priority = r.u8()?;
        if priority > PRIORITY_MAX {
            return Err(Malformed::Field {
                field: "priority",
                value: priority.into(),
                why: "must be at most 15",
            });
        }
        let active = r.u8()? & ACTIVE != 0;
        r.skip::<2>()?;
        let lease_ms = r.u32()?;
        let gid = r.gid()?;
        Ok(ManagerInfo {
            id,
            priority,
            active,
            lease_ms,
            gid,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_be_bytes());
        out.push(self.priority.min(PRIORITY_MAX));
        out.push(if self.active { ACTIVE } else { 0 });
        out.extend([0; 2]);
        out.extend(self.lease_ms.to_be_bytes());
        out.extend(self.gid.0);
    }
}
