//! What the alias of an interface says, for people who look at `ip -d link show`, and for the next
//! daemon, which knows by it the interfaces that this one leaves behind.
//!
//! ```text
//! ibtap: soft/eth0 pkey 0xffff datagram
//! ibtap: soft/eth0 child of ib0 pkey 0x8001 connected
//! ibtap: soft/eth0 at fe80::1 child of ib0 pkey 0x8001 connected
//! ```
//!
//! Where the interface is in another network namespace than its daemon, the port's GID says which
//! `eth0` is meant: each namespace may have one.

use std::fmt;

use fabric::{Gid, PKey};

use crate::api::Mode;

/// How an alias begins that a daemon wrote: another one is the administrator's, and stays.
const OURS: &str = "ibtap:";

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The fabric port.
    pub port: String,
    /// The port's GID, where the interface is in another network namespace.
    pub gid: Option<Gid>,
    /// The configured name of the interface that it is a child of.
    pub parent: Option<String>,
    /// Its partition.
    pub pkey: PKey,
    /// How its unicast IP packets travel.
    pub mode: Mode,
}

/// Whether a daemon may write the alias: it is empty, or was written by one.
pub fn is_ours(alias: Option<&str>) -> bool {
    alias.is_none_or(|alias| alias.is_empty() || alias.starts_with(OURS))
}

impl Alias {
    /// What an alias says, if a daemon wrote it.
    pub fn parse(alias: &str) -> Option<Alias> {
        let mut words = alias.strip_prefix(OURS)?.split(' ').skip(1);
        let port = words.next()?.to_owned();
        let mut word = words.next()?;
        let mut gid = None;
        if word == "at" {
            gid = Some(words.next()?.parse().ok()?);
            word = words.next()?;
        }
        let mut parent = None;
        if word == "child" {
            words.next().filter(|word| *word == "of")?;
            parent = Some(words.next()?.to_owned());
            word = words.next()?;
        }
        let pkey = (word == "pkey").then(|| words.next().and_then(pkey_of))??;
        let mode = mode_of(words.next()?)?;
        words.next().is_none().then_some(Alias {
            port,
            gid,
            parent,
            pkey,
            mode,
        })
    }
}

fn pkey_of(text: &str) -> Option<PKey> {
    let digits = text.strip_prefix("0x")?;
    u16::from_str_radix(digits, 16).ok().map(PKey::new)
}

fn mode_of(text: &str) -> Option<Mode> {
    [Mode::Datagram, Mode::Connected]
        .into_iter()
        .find(|mode| mode.to_string() == text)
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OURS} {}", self.port)?;
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

    fn alias() -> impl Strategy<Value = Alias> {
        let mode = prop_oneof![Just(Mode::Datagram), Just(Mode::Connected)];
        let gid = proptest::option::of(any::<[u8; 16]>().prop_map(Gid));
        let name = "[a-z0-9._-]{1,15}";
        (name, gid, proptest::option::of(name), any::<u16>(), mode).prop_map(
            |(underlay, gid, parent, pkey, mode)| Alias {
                port: format!("soft/{underlay}"),
                gid,
                parent,
                pkey: PKey::new(pkey),
                mode,
            },
        )
    }

    #[test]
    fn aliases_say_port_parent_partition_and_mode() {
        let mut alias = Alias {
            port: "soft/eth0".into(),
            gid: None,
            parent: None,
            pkey: PKey::new(0xffff),
            mode: Mode::Datagram,
        };
        assert_eq!(alias.to_string(), "ibtap: soft/eth0 pkey 0xffff datagram");
        alias.parent = Some("ib0".into());
        alias.pkey = PKey::new(0x8001);
        alias.mode = Mode::Connected;
        assert_eq!(
            alias.to_string(),
            "ibtap: soft/eth0 child of ib0 pkey 0x8001 connected"
        );
        alias.gid = "fe80::1".parse().ok();
        assert_eq!(
            alias.to_string(),
            "ibtap: soft/eth0 at fe80::1 child of ib0 pkey 0x8001 connected"
        );
    }

    #[test]
    fn an_administrators_alias_is_left_alone() {
        assert!(!is_ours(Some("the storage network")));
        assert_eq!(Alias::parse("the storage network"), None);
        assert!(is_ours(None) && is_ours(Some("")) && is_ours(Some("ibtap: x")));
        assert_eq!(Alias::parse("ibtap: x"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(alias in alias()) {
            prop_assert_eq!(Alias::parse(&alias.to_string()), Some(alias));
        }

        #[test]
        fn any_alias_is_survived(text in "(ibtap:)?( (at|child|of|pkey|0x[0-9a-f]{1,5}|[a-zé:]{0,6}))*") {
            if let Some(alias) = Alias::parse(&text) {
                prop_assert_eq!(Alias::parse(&alias.to_string()), Some(alias));
            }
        }
    }
}
