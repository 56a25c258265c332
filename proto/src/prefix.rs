//! Ranges of GIDs.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::Gid;

/// Bits of a GID before the IPv4 address of an IPv4-mapped GID.
const IPV4_BEFORE: u8 = 96;

/// The GIDs that share their first bits. Its text is `fe80::/64`, `192.0.2.0/24`, or an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GidPrefix {
    /// Bits after the prefix are 0.
    bits: u128,
    len: u8,
}

impl GidPrefix {
    /// The first bits, in network order; the others are 0.
    pub fn bits(&self) -> u128 {
        self.bits
    }

    /// Bits that the GIDs share, 0 to 128.
    pub fn length(&self) -> u8 {
        self.len
    }

    /// The mask of a prefix of `len` bits.
    pub fn mask(len: u8) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    }

    /// Whether a GID has the prefix.
    pub fn contains(&self, gid: &Gid) -> bool {
        u128::from_be_bytes(gid.0) & GidPrefix::mask(self.len) == self.bits
    }
}

impl From<Gid> for GidPrefix {
    fn from(gid: Gid) -> GidPrefix {
        GidPrefix {
            bits: u128::from_be_bytes(gid.0),
            len: 128,
        }
    }
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefixError {
    /// Not an address before the slash.
    Address,
    /// Not a number of bits of the address.
    Len,
    /// Bits after the prefix are not 0.
    HostBits,
}

impl FromStr for GidPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<GidPrefix, PrefixError> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address)?;
        let (before, most) = match address {
            IpAddr::V4(_) => (IPV4_BEFORE, 32),
            IpAddr::V6(_) => (0, 128),
        };
        let digits = |len: &str| len.bytes().all(|b| b.is_ascii_digit());
        let len = match len {
            Some(len) if digits(len) => len.parse().map_err(|_| PrefixError::Len)?,
            Some(_) => return Err(PrefixError::Len),
            None => most,
        };
        if len > most {
            return Err(PrefixError::Len);
        }
        let (bits, len) = (u128::from_be_bytes(Gid::from(address).0), before + len);
        if bits & GidPrefix::mask(len) != bits {
            return Err(PrefixError::HostBits);
        }
        Ok(GidPrefix { bits, len })
    }
}

impl fmt::Display for GidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gid = Gid(self.bits.to_be_bytes());
        let address = gid.to_ip();
        address.fmt(f)?;
        match (self.len, address) {
            (128, _) => Ok(()),
            (len @ IPV4_BEFORE.., IpAddr::V4(_)) => write!(f, "/{}", len - IPV4_BEFORE),
            (len, _) => write!(f, "/{len}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> GidPrefix {
        text.parse().unwrap()
    }

    fn has(prefix: GidPrefix, gid: &str) -> bool {
        prefix.contains(&gid.parse().unwrap())
    }

    #[test]
    fn a_prefix_contains_the_gids_with_its_bits() {
        let host = prefix("fe80::2");
        assert!(has(host, "fe80::2") && !has(host, "fe80::3"));
        let link = prefix("fe80::/10");
        assert!(has(link, "fe80::1") && has(link, "febf::1") && !has(link, "fec0::1"));
        let net = prefix("192.0.2.0/24");
        assert!(has(net, "192.0.2.255") && has(net, "::ffff:192.0.2.1"));
        assert!(!has(net, "192.0.3.1") && !has(net, "fe80::1"));
        assert!(has(prefix("::/0"), "fe80::1") && has(prefix("::/0"), "192.0.2.1"));
        assert!(!has(prefix("0.0.0.0/0"), "fe80::1") && has(prefix("0.0.0.0/0"), "192.0.2.1"));
        assert_eq!(GidPrefix::from("fe80::2".parse::<Gid>().unwrap()), host);
    }

    #[test]
    fn text_is_read_and_written() {
        for text in [
            "fe80::2",
            "fe80::/64",
            "::/0",
            "192.0.2.1",
            "192.0.2.0/24",
            "0.0.0.0/0",
        ] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("192.0.2.1/32").to_string(), "192.0.2.1");
    }

    #[test]
    fn errors_are_told_apart() {
        for (text, expected) in [
            ("", PrefixError::Address),
            ("eth0", PrefixError::Address),
            ("fe80::2/", PrefixError::Len),
            ("fe80::2/129", PrefixError::Len),
            ("fe80::2/+8", PrefixError::Len),
            ("fe80::/1000", PrefixError::Len),
            ("192.0.2.0/33", PrefixError::Len),
            ("fe80::2/64", PrefixError::HostBits),
            ("192.0.2.1/24", PrefixError::HostBits),
        ] {
            assert_eq!(text.parse::<GidPrefix>(), Err(expected), "{text:?}");
        }
    }
}
