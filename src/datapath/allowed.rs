//! Who may send datagrams to a port and ask for connections.

use std::collections::HashSet;
use std::sync::Arc;

use fabric::Gid;
use proto::GidPrefix;

/// The allowed GIDs of a port, its own among them.
#[derive(Debug)]
pub struct AllowList {
    /// For each length of a prefix: its mask, and the bits of the prefixes.
    by_len: Vec<(u128, HashSet<u128, foldhash::fast::RandomState>)>,
}

impl AllowList {
    /// A list of prefixes.
    pub fn new(prefixes: impl IntoIterator<Item = GidPrefix>) -> AllowList {
        let mut by_len: Vec<(u128, HashSet<u128, _>)> = Vec::new();
        for prefix in prefixes {
            let mask = GidPrefix::mask(prefix.length());
            let at = by_len.iter().position(|(other, _)| *other == mask);
            let at = at.unwrap_or_else(|| {
                by_len.push((mask, HashSet::default()));
                by_len.len() - 1
            });
            by_len[at].1.insert(prefix.bits());
        }
        AllowList { by_len }
    }

    fn has(&self, gid: &Gid) -> bool {
        let bits = u128::from_be_bytes(gid.0);
        self.by_len
            .iter()
            .any(|(mask, all)| all.contains(&(bits & mask)))
    }
}

/// The check of one data thread.
#[derive(Debug, Default)]
pub struct Allowed {
    /// `None`: everyone.
    list: Option<Arc<AllowList>>,
    /// The allowed source found last, usually also the next.
    last: Option<Gid>,
    /// Datagrams and requests refused.
    pub refused: u64,
}

impl Allowed {
    /// Replaces the list; `None`: everyone.
    pub fn set(&mut self, list: Option<Arc<AllowList>>) {
        self.list = list;
        self.last = None;
    }

    /// Whether a port may send datagrams and ask for connections; counts if not. A source without a known GID
    /// is not allowed.
    #[inline]
    pub fn admits(&mut self, source: &Gid) -> bool {
        match &self.list {
            None => true,
            Some(_) if self.last.as_ref() == Some(source) => true,
            Some(list) => {
                let has = *source != Gid::UNSPECIFIED && list.has(source);
                match has {
                    true => self.last = Some(*source),
                    false => self.refused += 1,
                }
                has
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_and_prefixes_are_admitted_and_others_counted() {
        let mut allowed = Allowed::default();
        assert!(allowed.admits(&gid("fe80::9")) && allowed.admits(&Gid::UNSPECIFIED));
        let list = [
            "fe80::1",
            "fe80::2",
            "2001:db8::/32",
            "192.0.2.0/24",
            "::/1",
        ];
        let list = |n: usize| {
            let prefixes = list[..n].iter().map(|text| text.parse().unwrap());
            Some(Arc::new(AllowList::new(prefixes)))
        };
        allowed.set(list(4));
        for good in [
            "fe80::1",
            "fe80::2",
            "2001:db8:5::1",
            "192.0.2.77",
            "fe80::1",
        ] {
            assert!(allowed.admits(&gid(good)), "{good}");
        }
        assert_eq!(allowed.refused, 0);
        for bad in ["fe80::3", "2001:db9::1", "192.0.3.1", "::"] {
            assert!(!allowed.admits(&gid(bad)), "{bad}");
        }
        assert_eq!(allowed.refused, 4);
        allowed.set(list(5));
        assert!(allowed.admits(&gid("192.0.3.1")) && !allowed.admits(&Gid::UNSPECIFIED));
        allowed.set(list(1));
        assert!(allowed.admits(&gid("fe80::1")) && !allowed.admits(&gid("192.0.3.1")));
    }
}
