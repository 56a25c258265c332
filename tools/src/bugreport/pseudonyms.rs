//! Replaces what is private in a text: keys always, addresses and the host's name unless all is wanted.
//!
//! A pseudonym has the form of the original. Equal originals have equal pseudonyms, different ones different
//! pseudonyms, and addresses of one prefix stay in one prefix, so a reader still sees which lines belong
//! together. What carries meaning stays: the vendor of a MAC, the first and the last byte of an IPv4 address,
//! link-local prefixes, groups, queue pair numbers. The mapping depends on a random number, which nobody keeps.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Digits of a key in hexadecimal: 32 bytes.
const HEX_KEY: usize = 64;
/// Characters of a key in base64 without the padding: 32 bytes, as WireGuard's.
const BASE64_KEY: usize = 43;
/// What is written in place of a key.
pub const REMOVED: &str = "(removed)";

/// The pseudonyms of one report.
pub struct Pseudonyms {
    random: RandomState,
    /// The host's names, longest first; empty if names and addresses stay.
    names: Vec<String>,
    addresses: bool,
}

impl Pseudonyms {
    /// Pseudonyms for addresses and for the host's name, with and without its domain.
    pub fn new(host: &str) -> Pseudonyms {
        let short = host.split('.').next().unwrap_or_default();
        let mut names = vec![host.to_owned(), short.to_owned()];
        names.dedup();
        // Short or common words are in many other places.
        names.retain(|name| name.len() > 2 && name != "localhost");
        Pseudonyms {
            random: RandomState::new(),
            names,
            addresses: true,
        }
    }

    /// Only keys are removed.
    pub fn none() -> Pseudonyms {
        Pseudonyms {
            random: RandomState::new(),
            names: Vec::new(),
            addresses: false,
        }
    }

    /// The text without keys and with pseudonyms.
    pub fn apply(&self, text: &str) -> String {
        let mut new = String::with_capacity(text.len());
        let mut rest = text;
        let mut in_word = false;
        while let Some(first) = rest.chars().next() {
            let found = (!in_word).then(|| self.replacement(rest)).flatten();
            let len = match found {
                Some((len, replacement)) => {
                    new += &replacement;
                    len
                }
                None => {
                    new.push(first);
                    in_word = is_word(first);
                    first.len_utf8()
                }
            };
            rest = &rest[len..];
        }
        new
    }

    /// The length of what begins here and must be replaced, and its replacement.
    fn replacement(&self, text: &str) -> Option<(usize, String)> {
        if let Some(len) = key(text) {
            return Some((len, REMOVED.to_owned()));
        }
        if !self.addresses {
            return None;
        }
        for name in &self.names {
            let behind = text.strip_prefix(name.as_str());
            if behind.is_some_and(|behind| !behind.starts_with(|c| is_word(c) || c == '-')) {
                return Some((name.len(), "host".to_owned()));
            }
        }
        if let Some(digits) = text.strip_prefix("0x") {
            let len = run(digits, |c| c.is_ascii_hexdigit());
            let number = (len == 16 && ends_word(&digits[len..]))
                .then(|| u64::from_str_radix(&digits[..len], 16).ok())??;
            return Some((len + 2, format!("0x{:016x}", self.half(number))));
        }
        let len = run(text, |c| c.is_ascii_hexdigit() || c == ':' || c == '.');
        // The longest address: a colon or a full stop may follow, or a UDP port.
        let mut ends = (1..=len).rev();
        ends.find_map(|end| {
            let separator = text[end..].starts_with([':', '.']);
            let possible = end == len || separator || text[..end].ends_with([':', '.']);
            let whole = possible && ends_word(&text[end..]);
            let new = whole.then(|| self.address(&text[..end])).flatten()?;
            Some((end, new))
        })
    }

    /// The pseudonym of a whole address.
    fn address(&self, text: &str) -> Option<String> {
        if let Some(bytes) = bytes(text) {
            return self.hardware(&bytes);
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            let new = self.v6(address);
            // Files of the kernel have all digits.
            return Some(match text.len() {
                39 => new.segments().map(|part| format!("{part:04x}")).join(":"),
                _ => new.to_string(),
            });
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(self.v4(address).to_string());
        }
        let half = guid(text)?;
        let new = format!("{:016x}", self.half(half));
        Some(format!(
            "{}:{}:{}:{}",
            &new[..4],
            &new[4..8],
            &new[8..12],
            &new[12..]
        ))
    }

    /// A MAC, a GUID, a GID, or the address of an IPoIB interface, as bytes.
    fn hardware(&self, bytes: &[u8]) -> Option<String> {
        let mut new = bytes.to_vec();
        match bytes.len() {
            6 => new.copy_from_slice(&self.mac(bytes.try_into().ok()?)),
            8 => {
                let half = u64::from_be_bytes(bytes.try_into().ok()?);
                new.copy_from_slice(&self.half(half).to_be_bytes());
            }
            16 | 20 => {
                // Flags and queue pair number stay.
                let gid = bytes.len() - 16;
                let address = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[gid..]).ok()?);
                new[gid..].copy_from_slice(&self.v6(address).octets());
            }
            _ => return None,
        }
        let digits: Vec<_> = new.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(digits.join(":"))
    }

    fn v4(&self, address: Ipv4Addr) -> Ipv4Addr {
        // Bits that stay: those of a special prefix, or the first byte; and always the last byte.
        let kept = match address.octets() {
            [0 | 127 | 224..=255, ..] => return address,
            [192, 168, ..] | [169, 254, ..] => 16,
            [172, 16..=31, ..] => 12,
            [100, 64..=127, ..] => 10,
            _ => 8,
        };
        let bits = u32::from(address);
        let new = self.scramble('4', u64::from(bits >> 8), 24, kept) << 8;
        let new = new | u64::from(bits & 0xff);
        u32::try_from(new).map_or(address, Ipv4Addr::from)
    }

    fn v6(&self, address: Ipv6Addr) -> Ipv6Addr {
        if let Some(v4) = address.to_ipv4_mapped() {
            return self.v4(v4).to_ipv6_mapped();
        }
        let bits = u128::from(address);
        let (prefix, half) = ((bits >> 64) as u64, bits as u64);
        let (prefix, half) = match prefix >> 56 {
            // A group. Only groups of neighbour discovery have a part of an address.
            0xff if (half >> 24) & 0xffff == 0x01ff => (prefix, self.with_new_tail(half)),
            0xff => return address,
            // Unspecified and loopback addresses.
            0 if bits >> 8 == 0 => return address,
            0xfe if prefix << 10 == 0 => (prefix, self.half(half)),
            0xfc | 0xfd => (self.scramble('6', prefix, 64, 8), self.half(half)),
            _ => (self.scramble('6', prefix, 64, 3), self.half(half)),
        };
        Ipv6Addr::from((u128::from(prefix) << 64) | u128::from(half))
    }

    /// The lower half of an IPv6 address or a GID, which is also a GUID.
    fn half(&self, half: u64) -> u64 {
        let few = half <= 0xff;
        // The prefix fe80::/64, which stands alone in some texts.
        if few || half == 0xfe80 << 48 {
            return half;
        }
        // The vendor's part of a MAC stays.
        if (half >> 24) & 0xffff == 0xfffe {
            return self.with_new_tail(half);
        }
        self.with_new_tail((self.scramble('h', half >> 24, 40, 0) << 24) | (half & 0xff_ffff))
    }

    fn mac(&self, mac: [u8; 6]) -> [u8; 6] {
        let solicited = mac.starts_with(&[0x33, 0x33, 0xff]);
        if mac[0] & 1 != 0 && !solicited {
            return mac;
        }
        let number = mac.iter().fold(0, |n, byte| (n << 8) | u64::from(*byte));
        let [_, _, new @ ..] = self.with_new_tail(number).to_be_bytes();
        new
    }

    /// Replaces the lowest 24 bits, independently of the others: a MAC, the address derived from the MAC and the
    /// group of neighbour discovery have these bits in common.
    fn with_new_tail(&self, number: u64) -> u64 {
        const TAIL: u64 = 0xff_ffff;
        let is_small = |tail: u64| tail <= 0xff;
        let mut tail = number & TAIL;
        // Small numbers, which administrators choose, stay.
        if is_small(tail) {
            return number;
        }
        // No other number becomes a small one. This ends: a permutation leads back to the start.
        loop {
            tail = self.scramble('t', tail, 24, 0);
            if !is_small(tail) {
                return (number & !TAIL) | tail;
            }
        }
    }

    /// A permutation of the numbers with `width` bits. The first `kept` bits stay; numbers with N equal first bits
    /// get N equal first bits.
    fn scramble(&self, domain: char, number: u64, width: u32, kept: u32) -> u64 {
        let bits = (kept..width).map(|bit| {
            let place = width - 1 - bit;
            let before = number >> place >> 1;
            (self.random.hash_one((domain, bit, before)) & 1) << place
        });
        bits.fold(number, |new, flip| new ^ flip)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_word(behind: &str) -> bool {
    !behind.starts_with(is_word)
}

/// The length of the longest beginning with only such ASCII characters.
fn run(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}

/// The length of a key that begins here.
fn key(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let hex = run(digits, |c| c.is_ascii_hexdigit());
    if hex >= HEX_KEY && ends_word(&digits[hex..]) {
        return Some(text.len() - digits.len() + hex);
    }
    let base64 = run(text, |c| c.is_ascii_alphanumeric() || c == '+' || c == '/');
    let padding = run(&text[base64..], |c| c == '=');
    let end = base64 + padding;
    (base64 >= BASE64_KEY && padding > 0 && ends_word(&text[end..])).then_some(end)
}

/// The bytes of `02:00:00:00:00:01`.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let byte = |part: &str| {
        (part.len() == 2)
            .then(|| u8::from_str_radix(part, 16).ok())
            .flatten()
    };
    text.split(':').map(byte).collect()
}

/// The number of `0002:c903:00fe:a1b2`.
fn guid(text: &str) -> Option<u64> {
    let parts: Vec<_> = text.split(':').collect();
    let right = parts.len() == 4 && parts.iter().all(|part| part.len() == 4);
    right
        .then(|| u64::from_str_radix(&parts.concat(), 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests;
