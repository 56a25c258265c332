//! Datagrams of subnet management (IBA vol. 1, 14.2): questions, and SMInfo.

use proto::Guid;

use super::{BASE_VERSION, MAD_LEN, method};

/// PortInfo.
pub const PORT_INFO: u16 = 0x15;
/// P_KeyTable.
pub const PKEY_TABLE: u16 = 0x16;
/// SMInfo.
pub const SM_INFO: u16 = 0x20;

/// Place of the attribute's data.
pub const DATA: usize = 64;

/// A Get of an attribute, LID routed or along a directed route as `class` says.
pub fn get(class: u8, id: u32, attribute: u16, modifier: u32) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[BASE_VERSION, class, 1, method::GET]);
    mad[12..16].copy_from_slice(&id.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    mad
}

/// Whether `mad` has the transaction id of the question `id`.
pub fn answers(mad: &[u8], id: u32) -> bool {
    mad.get(12..16) == Some(&id.to_be_bytes())
}

/// SMInfo: a subnet manager (IBA vol. 1, 14.2.5.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmInfo {
    /// The port GUID of the manager.
    pub guid: Guid,
    /// Number of datagrams that the manager has sent (ActCount).
    pub activity_count: u32,
    /// Priority, 4 bits.
    pub priority: u8,
    /// State, 4 bits; see [`SmInfo::MASTER`].
    pub state: u8,
}

impl SmInfo {
    /// Bytes of the attribute.
    pub const LEN: usize = 21;
    /// The state of the subnet's manager.
    pub const MASTER: u8 = 3;

    /// Reads an answer; `None` if the datagram is shorter, is no answer, has another attribute or a status.
    pub fn parse(mad: &[u8]) -> Option<SmInfo> {
        let (status, attribute) = (mad.get(4..6)?, mad.get(16..18)?);
        let is_answer = mad.get(3) == Some(&method::GET_RESP) && status == [0, 0];
        if !is_answer || attribute != SM_INFO.to_be_bytes() {
            return None;
        }
        let data = mad.get(DATA..)?.first_chunk::<{ SmInfo::LEN }>()?;
        Some(SmInfo {
            guid: Guid(*data.first_chunk()?),
            activity_count: u32::from_be_bytes([data[16], data[17], data[18], data[19]]),
            priority: data[20] >> 4,
            state: data[20] & 0xf,
        })
    }

    /// The state's name.
    pub const fn state_name(self) -> &'static str {
        match self.state {
            0 => "SMINFO_NOTACT",
            1 => "SMINFO_DISCOVER",
            2 => "SMINFO_STANDBY",
            SmInfo::MASTER => "SMINFO_MASTER",
            _ => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::class::SUBN_LID_ROUTED;

    #[test]
    fn answers_of_the_manager() {
        let mut mad = get(SUBN_LID_ROUTED, 7, SM_INFO, 0);
        assert_eq!(SmInfo::parse(&mad), None, "a question is no answer");
        mad[3] = method::GET_RESP;
        mad[64..72].copy_from_slice(&[0, 0, 0, 0, 0, 0x10, 0, 1]);
        mad[83] = 108;
        mad[84] = 0x53;
        let info = SmInfo::parse(&mad).unwrap();
        assert_eq!(info.guid, Guid([0, 0, 0, 0, 0, 0x10, 0, 1]));
        assert_eq!((info.activity_count, info.priority), (108, 5));
        assert_eq!(info.state_name(), "SMINFO_MASTER");
        assert_eq!(SmInfo::parse(&mad[..84]), None);
        mad[5] = 0x0c;
        assert_eq!(SmInfo::parse(&mad), None, "a refusal");
    }
}
