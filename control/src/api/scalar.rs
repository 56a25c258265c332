//! Values that the API, the command line and the configuration share.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The log level: the least urgent level that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Faults that keep the daemon from working.
    Error,
    /// Problems that an administrator should check.
    Warn,
    /// Changes of state.
    #[default]
    Info,
    /// Reasons of changes.
    Debug,
    /// Everything.
    Trace,
}

proto::display_as_serialized!(LogLevel);

impl From<LogLevel> for log::LevelFilter {
    fn from(level: LogLevel) -> log::LevelFilter {
        match level {
            LogLevel::Error => log::LevelFilter::Error,
            LogLevel::Warn => log::LevelFilter::Warn,
            LogLevel::Info => log::LevelFilter::Info,
            LogLevel::Debug => log::LevelFilter::Debug,
            LogLevel::Trace => log::LevelFilter::Trace,
        }
    }
}

/// A link-layer address of `N` bytes in network order. Its text has two hexadecimal digits for each byte, and
/// colons, as in `ip link`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkAddress<const N: usize>(pub [u8; N]);

/// A MAC, 6 bytes.
pub type MacAddress = LinkAddress<6>;

/// An IPoIB address, 20 bytes: flags, QPN, GID (RFC 4391, 9.1.1).
pub type HardwareAddress = LinkAddress<20>;

impl<const N: usize> fmt::Display for LinkAddress<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for LinkAddress<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for LinkAddress<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a link-layer address of {N} bytes");
        let mut bytes = [0; N];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            // from_str_radix accepts a sign.
            let is_byte = |p: &&str| p.len() == 2 && !p.starts_with('+');
            let part = parts.next().filter(is_byte).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        match parts.next() {
            None => Ok(LinkAddress(bytes)),
            Some(_) => Err(bad()),
        }
    }
}

impl<const N: usize> Serialize for LinkAddress<N> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for LinkAddress<N> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Bytes of a management datagram; the text has two hexadecimal digits for each byte.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hex {
    type Err = String;

    fn from_str(text: &str) -> Result<Hex, String> {
        let bad = || format!("{text:?} does not consist of pairs of hexadecimal digits");
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(bad);
        let (pairs, []) = text.as_bytes().as_chunks() else {
            return Err(bad());
        };
        let byte = |[high, low]: &[u8; 2]| Ok((digit(*high)? << 4 | digit(*low)?) as u8);
        pairs.iter().map(byte).collect::<Result<_, _>>().map(Hex)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Counters by name, in display order; a JSON object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub Vec<(String, u64)>);

impl Counters {
    /// Adds another set: sums counters of the same name, and appends new names.
    pub fn add<'a>(&mut self, other: impl IntoIterator<Item = (&'a str, u64)>) {
        for (name, value) in other {
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += value,
                None => self.0.push((name.to_owned(), value)),
            }
        }
    }

    /// The counter of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(n, _)| n == name).map(|&(_, v)| v)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a str, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (&'a str, u64)>>(counters: I) -> Counters {
        let mut sum = Counters::default();
        sum.add(counters);
        sum
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Counters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of counters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Counters, A::Error> {
                let mut counters = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    counters.push(entry);
                }
                Ok(Counters(counters))
            }
        }

        d.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_two_digits_for_each_byte() {
        let text = "02:00:5e:FF:00:0a";
        let mac: MacAddress = text.parse().unwrap();
        assert_eq!(mac.0, [2, 0, 0x5e, 0xff, 0, 10]);
        assert_eq!(mac.to_string(), text.to_lowercase());
        for wrong in [
            "",
            "02:00",
            "02:00:5e:ff:00:0a:00",
            "2:0:5e:ff:0:a",
            "+2:00:5e:ff:00:0a",
            "02-00-5e-ff-00-0a",
            "02:00:5e:ff:00:0g",
        ] {
            assert!(wrong.parse::<MacAddress>().is_err(), "{wrong}");
        }
    }
}
