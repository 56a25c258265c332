//! The alias (`ip -d link show`). It describes the interface to users, and after a restart the next daemon
//! identifies the interface by it.
//!
//! ```text
//! ibtap: soft/eth0 pkey 0xffff datagram
//! ibtap: soft/eth0 child of ib0 pkey 0x8001 connected
//! ibtap: soft/eth0 at fe80::1 child of ib0 pkey 0x8001 connected
//! ```
//!
//! If the interface is in another network namespace than its daemon, the alias has the port's GID, because
//! each namespace may have an `eth0`.

use std::fmt;

use fabric::{Gid, PKey};

use control::api::Mode;

/// The prefix of the daemon's aliases. An alias without it belongs to the administrator and stays.
const PREFIX: &str = "ibtap: ";

/// The contents of an alias.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    /// The fabric port, such as `soft/eth0`.
    pub port: String,
    /// The port's GID, if the interface is in another network namespace than the port.
    pub gid: Option<Gid>,
    /// The name of the parent.
    pub parent: Option<String>,
    /// The partition.
    pub pkey: PKey,
    /// The mode; the last word.
    pub mode: Mode,
}

impl Alias {
    /// Whether a daemon may replace an alias: empty, or written by a daemon.
    pub fn is_free(text: Option<&str>) -> bool {
        text.is_none_or(|text| text.is_empty() || text.starts_with(PREFIX.trim_end()))
    }

    /// Parses the text of an [`Alias`]; `None` for other texts.
    pub fn parse(text: &str) -> Option<Alias> {
        let mut words = text.strip_prefix(PREFIX)?.split(' ');
        let port = words.next().filter(|port| !port.is_empty())?.to_owned();
        let (gid, word) = match words.next()? {
            "at" => (Some(words.next()?.parse().ok()?), words.next()?),
            word => (None, word),
        };
        let (parent, word) = match word {
            "child" if words.next()? == "of" => (Some(words.next()?.to_owned()), words.next()?),
            word => (None, word),
        };
        if word != "pkey" {
            return None;
        }
        let digits = words.next()?.strip_prefix("0x")?;
        let pkey = PKey::new(u16::from_str_radix(digits, 16).ok()?);
        let mode = match (words.next()?, words.next()) {
            ("datagram", None) => Mode::Datagram,
            ("connected", None) => Mode::Connected,
            _ => return None,
        };
        Some(Alias {
            port,
            gid,
            parent,
            pkey,
            mode,
        })
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.port)?;
        if let Some(gid) = self.gid {
            write!(f, " at {gid}")?;
        }
        if let Some(parent) = &self.parent {
            write!(f, " child of {parent}")?;
        }
        write!(f, " pkey {} {}", self.pkey, self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_reads_as_documented() {
        let parent = "ibtap: soft/eth0 pkey 0xffff datagram";
        let child = "ibtap: soft/eth0 child of ib0 pkey 0x8001 connected";
        let elsewhere = "ibtap: soft/eth0 at fe80::1 child of ib0 pkey 0x8001 connected";
        for text in [parent, child, elsewhere] {
            assert_eq!(Alias::parse(text).unwrap().to_string(), text);
        }
        let read = Alias::parse(child).unwrap();
        assert_eq!(read.parent.as_deref(), Some("ib0"));
        assert_eq!((read.pkey, read.mode), (PKey::new(0x8001), Mode::Connected));
    }

    #[test]
    fn anothers_alias_is_left_alone() {
        assert!(Alias::is_free(None) && Alias::is_free(Some("")));
        assert!(Alias::is_free(Some("ibtap: as an older one wrote it")));
        assert!(!Alias::is_free(Some("the storage network")));
        for text in [
            "",
            "ibtap:",
            "ibtap: soft/eth0",
            "ibtap: soft/eth0 pkey 0x8001",
            "ibtap: soft/eth0 pkey 0x18001 datagram",
            "ibtap: soft/eth0 at eth1 pkey 0x8001 datagram",
            "ibtap: soft/eth0 child of pkey 0x8001 datagram",
            "ibtap: soft/eth0 pkey 0x8001 datagram more",
            "the storage network",
        ] {
            assert_eq!(Alias::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            port in "[a-z]{1,8}/[a-zA-Z0-9._-]{1,15}",
            gid in proptest::option::of(any::<[u8; 16]>().prop_map(Gid)),
            parent in proptest::option::of("[a-zA-Z0-9._-]{1,15}"),
            key: u16,
            connected: bool,
        ) {
            let mode = if connected { Mode::Connected } else { Mode::Datagram };
            let alias = Alias { port, gid, parent, pkey: PKey::new(key), mode };
            prop_assert_eq!(Alias::parse(&alias.to_string()), Some(alias));
        }

        #[test]
        fn nothing_makes_it_panic(text in "(ibtap: )?[ -~]{0,60}") {
            let _ = Alias::parse(&text);
        }
    }
}
