//! State that survives a restart: LID, address and number of each virtual port, and its last location.
//!
//! The first line of the file has the version, the length and a CRC-32 of the rest, which is JSON. A new file
//! is written beside the old one, synced, and renamed: at any time one file is complete.

mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use control::api::LinkAddress;
use proto::{Gid, Mac, Qpn};
use serde::{Deserialize, Serialize};
use vnic::Lid;

use crate::config::{PortKey, parse_mac};
pub use disk::{Opened, Store};

/// Maximum number of remembered virtual ports. A new port replaces a port that is gone.
pub const MEMBERS_MAX: usize = 16_384;

/// Maximum number of remembered contested addresses. For others, the newest claim after a restart wins.
pub const CONTESTED_MAX: usize = 4096;

const VERSION: &str = "1";

/// State that survives a restart.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Id of this manager, drawn once.
    pub manager: u64,
    /// Assignments of virtual ports.
    #[serde(with = "by_text")]
    pub members: BTreeMap<PortKey, Member>,
    /// LIDs released recently, with their former ports: other ports may not use them yet.
    #[serde(with = "by_text")]
    pub quarantined: BTreeMap<Lid, PortKey>,
    /// Ids of switches that are drained.
    pub drained: BTreeSet<u16>,
    /// Owners of addresses that several ports of a switch claim.
    #[serde(default, with = "by_text")]
    pub contested: BTreeMap<SwitchMac, PortKey>,
}

/// An address on a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SwitchMac {
    /// The switch's id.
    pub vesw: u16,
    /// The address.
    pub mac: Mac,
}

/// The assignment of a virtual port, and its last location.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Id of its switch.
    pub vesw: u16,
    /// Its LID.
    pub lid: Lid,
    /// Address of its interface.
    #[serde(with = "mac_text")]
    pub mac: Mac,
    /// Number on the switch, from 1.
    pub port_num: u32,
    /// Description of its node.
    pub description: String,
    /// Name of its interface.
    pub interface: String,
    /// GID of its fabric port.
    pub gid: Gid,
    /// Queue pair number; 0: none yet.
    #[serde(with = "qpn_number")]
    pub qpn: Qpn,
    /// Maximum UD payload of its fabric port, in bytes.
    pub payload_max: u16,
    /// Absent for longer than the grace time, and not in the tables of other members.
    pub gone: bool,
    /// The port itself is drained.
    pub drained: bool,
}

/// An error of reading or writing state, one sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StateError(pub String);

impl State {
    /// Whether a port is drained: it or its switch.
    pub fn is_drained(&self, member: &Member) -> bool {
        member.drained || self.drained.contains(&member.vesw)
    }

    /// Encodes the file.
    ///
    /// # Errors
    /// Only if serialization fails, which its type allows.
    pub fn encode(&self) -> Result<Vec<u8>, StateError> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| StateError(format!("cannot encode the state as JSON: {error}")))?;
        json.push(b'\n');
        let mut file = format!(
            "ibtap-em state {VERSION} {} {:08x}\n",
            json.len(),
            crc32fast::hash(&json)
        )
        .into_bytes();
        file.append(&mut json);
        Ok(file)
    }

    /// Decodes the file.
    ///
    /// # Errors
    /// The fault, as part of a sentence.
    pub fn decode(file: &[u8]) -> Result<State, StateError> {
        let wrong = |what: &str| StateError(what.into());
        let end = file
            .iter()
            .take(80)
            .position(|byte| *byte == b'\n')
            .ok_or_else(|| wrong("it has no header of a state file"))?;
        let (head, json) = (&file[..end], &file[end + 1..]);
        let head = std::str::from_utf8(head).unwrap_or_default();
        let mut words = head
            .strip_prefix("ibtap-em state ")
            .ok_or_else(|| wrong("it has no header of a state file"))?
            .split(' ');
        match words.next() {
            Some(VERSION) => {}
            other => {
                return Err(StateError(format!(
                    "it has version {}, this program reads {VERSION}",
                    other.unwrap_or_default()
                )));
            }
        }
        let length = words.next().and_then(|word| word.parse::<usize>().ok());
        if length != Some(json.len()) {
            return Err(wrong("its length is wrong"));
        }
        let sum = words
            .next()
            .and_then(|word| u32::from_str_radix(word, 16).ok());
        if sum != Some(crc32fast::hash(json)) || words.next().is_some() {
            return Err(wrong("its checksum is wrong"));
        }
        let state: State = serde_json::from_slice(json)
            .map_err(|error| StateError(format!("its content is invalid: {error}")))?;
        state.check()?;
        Ok(state)
    }

    /// A manual change may break rules that the checksum does not cover.
    fn check(&self) -> Result<(), StateError> {
        let mut lids = BTreeSet::new();
        for (key, member) in &self.members {
            if !member.lid.is_unicast() || !lids.insert(member.lid) {
                return Err(StateError(format!(
                    "the LID {} of {key} is not unicast, or used twice",
                    member.lid
                )));
            }
        }
        Ok(())
    }
}

/// Maps with keys as text, which JSON requires.
mod by_text {
    use super::{BTreeMap, Text};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, K: Text, V: Serialize>(
        map: &BTreeMap<K, V>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_map(map.iter().map(|(key, value)| (key.to_text(), value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, K: Text, V: Deserialize<'de>>(
        d: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        let map = BTreeMap::<String, V>::deserialize(d)?;
        map.into_iter()
            .map(|(text, value)| {
                let key = K::from_text(&text)
                    .ok_or_else(|| D::Error::custom(format!("{text:?} is not a key")))?;
                Ok((key, value))
            })
            .collect()
    }
}

trait Text: Ord + Sized {
    fn to_text(&self) -> String;
    fn from_text(text: &str) -> Option<Self>;
}

impl Text for PortKey {
    fn to_text(&self) -> String {
        self.to_string()
    }
    fn from_text(text: &str) -> Option<PortKey> {
        text.parse().ok()
    }
}

impl Text for Lid {
    fn to_text(&self) -> String {
        self.to_string()
    }
    fn from_text(text: &str) -> Option<Lid> {
        let number = u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
        Some(Lid::new(number)).filter(|lid| lid.get() == number)
    }
}

impl Text for SwitchMac {
    fn to_text(&self) -> String {
        format!("{}/{}", self.vesw, LinkAddress(self.mac))
    }
    fn from_text(text: &str) -> Option<SwitchMac> {
        let (vesw, mac) = text.split_once('/')?;
        Some(SwitchMac {
            vesw: vesw.parse().ok()?,
            mac: parse_mac(mac)?,
        })
    }
}

impl Serialize for PortKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<PortKey, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

mod mac_text {
    use crate::config::parse_mac;
    use control::api::LinkAddress;
    use proto::Mac;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mac: &Mac, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&LinkAddress(*mac))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Mac, D::Error> {
        let text = String::deserialize(d)?;
        parse_mac(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not an address")))
    }
}

mod qpn_number {
    use proto::Qpn;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(qpn: &Qpn, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u32(qpn.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Qpn, D::Error> {
        u32::deserialize(d).map(Qpn::new)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} virtual ports", self.members.len())
    }
}

#[cfg(test)]
pub(crate) mod tests;
