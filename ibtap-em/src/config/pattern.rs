//! Names of virtual ports: `GUID:port:index` or `description:port:index`, with `*` and `?`.

use std::fmt;
use std::str::FromStr;

use proto::Guid;

/// Identifies a virtual port: the node's fabric port and the index on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortKey {
    /// GUID of the fabric port as a number, most significant byte first.
    pub guid: u64,
    /// Number of the fabric port on its node.
    pub port: u8,
    /// Index of the virtual port on the fabric port.
    pub index: u8,
}

impl PortKey {
    /// The virtual port `index` of a fabric port.
    #[must_use]
    pub fn new(guid: Guid, port: u8, index: u8) -> PortKey {
        PortKey {
            guid: u64::from_be_bytes(guid.0),
            port,
            index,
        }
    }
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}:{}:{}", self.guid, self.port, self.index)
    }
}

impl FromStr for PortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<PortKey, String> {
        let wrong = || format!("{text:?} is not a virtual port such as 0x00117501016fbe21:1:0");
        let mut parts = text.split(':');
        let key = (|| {
            let guid = parts.next()?.strip_prefix("0x")?;
            Some(PortKey {
                guid: u64::from_str_radix(guid, 16).ok()?,
                port: parts.next()?.parse().ok()?,
                index: parts.next()?.parse().ok()?,
            })
        })();
        match (key, parts.next()) {
            (Some(key), None) => Ok(key),
            _ => Err(wrong()),
        }
    }
}

/// Matches one virtual port, or several by wildcards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    text: String,
    node: Node,
    port: String,
    index: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    /// Hexadecimal digits of a GUID without `0x`, possibly with wildcards.
    Guid(String),
    /// The node's description.
    Description(String),
}

impl Pattern {
    /// Whether the pattern matches a virtual port. Descriptions are compared without case, like host names.
    #[must_use]
    pub fn matches(&self, description: &str, key: PortKey) -> bool {
        self.matches_node(description, key.guid, key.port)
            && glob(&self.index, &key.index.to_string())
    }

    /// Whether the pattern may match virtual ports of this fabric port.
    #[must_use]
    pub fn matches_node(&self, description: &str, guid: u64, port: u8) -> bool {
        let node = match &self.node {
            Node::Guid(digits) => glob(digits, &format!("{guid:016x}")),
            Node::Description(pattern) => glob(pattern, &description.to_lowercase()),
        };
        node && glob(&self.port, &port.to_string())
    }

    /// The index, if it has no wildcards. Such a virtual port can be created although no node announced it.
    #[must_use]
    pub fn exact_index(&self) -> Option<u8> {
        self.index.parse().ok()
    }

    /// Whether both patterns have the same meaning.
    #[must_use]
    pub fn names(&self, other: &Pattern) -> bool {
        (&self.node, &self.port, &self.index) == (&other.node, &other.port, &other.index)
    }

    /// Whether the pattern has no wildcards.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.text.contains(['*', '?'])
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        if text == "*" {
            return "*:*:*".parse();
        }
        let wrong = || {
            format!(
                "{text:?} does not name virtual ports; write \"GUID:port:index\" or \
                 \"description:port:index\", such as \"node*:1:0\", or \"*\" for all"
            )
        };
        let mut parts = text.rsplitn(3, ':');
        let (Some(index), Some(port), Some(node)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        if node.is_empty() || !is_number_pattern(port) || !is_number_pattern(index) {
            return Err(wrong());
        }
        let node = match node.to_lowercase().strip_prefix("0x") {
            Some(digits) => Node::Guid(guid_pattern(digits).ok_or_else(|| {
                format!(
                    "{node:?} is not a GUID; write up to 16 hexadecimal digits after 0x, or * and ? in \
                     their place"
                )
            })?),
            None if node.chars().count() > 64 => {
                return Err(format!(
                    "the description {node:?} is longer than 64 characters"
                ));
            }
            None => Node::Description(node.to_lowercase()),
        };
        Ok(Pattern {
            text: text.into(),
            node,
            port: port.into(),
            index: index.into(),
        })
    }
}

/// Whether `text` is 0 to 255, or has wildcards instead of digits.
fn is_number_pattern(text: &str) -> bool {
    let digits = text.len() <= 3 && text.chars().all(|c| c.is_ascii_digit() || "*?".contains(c));
    digits && !text.is_empty() && (text.contains(['*', '?']) || text.parse::<u8>().is_ok())
}

/// The digits of a GUID pattern; padded to 16 if it has no wildcards.
fn guid_pattern(digits: &str) -> Option<String> {
    let right = !digits.is_empty()
        && digits.len() <= 16
        && digits
            .chars()
            .all(|c| c.is_ascii_hexdigit() || "*?".contains(c));
    right.then(|| {
        if digits.contains(['*', '?']) {
            digits.into()
        } else {
            format!("{digits:0>16}")
        }
    })
}

/// Whether `text` matches `pattern`: `*` is any number of characters, `?` is one. The time is at most
/// proportional to the product of the lengths.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Position of the last * and the number of characters that it has matched.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PortKey = PortKey {
        guid: 0x0011_7501_016f_be21,
        port: 1,
        index: 12,
    };

    fn matches(pattern: &str, description: &str) -> bool {
        pattern
            .parse::<Pattern>()
            .unwrap()
            .matches(description, KEY)
    }

    #[test]
    fn ports_are_named_by_guid_and_by_description() {
        for pattern in [
            "*",
            "*:*:*",
            "0x00117501016fbe21:1:12",
            "0x117501016FBE21:1:12",
            "0x0011*:1:1?",
            "node7:1:12",
            "NODE?:?:*",
            "n*e7:*:*2",
        ] {
            assert!(matches(pattern, "Node7"), "{pattern}");
        }
        for pattern in [
            "0x00117501016fbe22:1:12",
            "0x0012*:1:*",
            "node:1:12",
            "node7:2:12",
            "node7:1:1",
            "node7:1:?",
        ] {
            assert!(!matches(pattern, "Node7"), "{pattern}");
        }
    }

    #[test]
    fn a_description_may_have_colons() {
        assert!(matches("rack 3: node 7:1:12", "rack 3: node 7"));
    }

    #[test]
    fn what_names_no_port_is_refused() {
        for text in [
            "",
            ":",
            "::",
            "node",
            "node:1",
            "node:1:256",
            "node:x:1",
            "0xzz:1:1",
            "0x00117501016fbe2100:1:1",
            "node:1:",
            ":1:1",
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
        assert!(
            format!("{}:1:1", "n".repeat(65))
                .parse::<Pattern>()
                .is_err()
        );
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!glob(&"*a".repeat(30), &"a".repeat(29)));
        assert!(glob(&"*a".repeat(30), &"a".repeat(3000)));
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        assert_eq!(KEY.to_string(), "0x00117501016fbe21:1:12");
        assert_eq!(KEY.to_string().parse(), Ok(KEY));
        for text in ["", "0x1:1", "0x1:1:1:1", "1:1:1", "0x1:256:1", "0x1:1:-1"] {
            assert!(text.parse::<PortKey>().is_err(), "{text:?}");
        }
    }
}
