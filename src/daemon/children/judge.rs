//! Which TAPs become children: what their aliases and names say.

use control::config::IpoibConfig;
use control::config::values::in_childs_name;
use fabric::PKey;
use ipoib::Mode;

use super::super::Daemon;
use super::make::child_spec;
use crate::interface::InterfaceId;
use crate::interface::{Alias, Interface, Place};
use crate::ip::Ip;

/// What is done with an interface that is none of ours.
pub(in crate::daemon) enum Verdict {
    /// It has nothing to do with us.
    Foreign,
    /// It is left alone, although its name looks like a child's, for this reason.
    LeftAlone(String),
    /// It becomes a child.
    Child(InterfaceId, Box<IpoibConfig>),
    /// It would, but somebody holds it.
    Held,
}

impl Daemon {
    /// What is done with an interface that is none of ours.
    pub(super) fn judge(&self, place: Place, link: &rtnl::Link) -> Verdict {
        if self.is_anothers(link) {
            return Verdict::Foreign;
        }
        let Some((id, pkey, mode)) = self.served_before(place, link) else {
            return self.judge_name(place, link);
        };
        self.judge_child(id, pkey, mode, link)
    }

    /// Whether its alias says that it is of a daemon in another network namespace.
    fn is_anothers(&self, link: &rtnl::Link) -> bool {
        let gid = link.alias.as_deref().and_then(Alias::parse);
        let gid = gid.and_then(|alias| alias.gid);
        let mut ports = self.ports.values();
        gid.is_some_and(|gid| ports.all(|port| port.port.attributes().gid != gid))
    }

    /// By its alias, a child that a daemon of ours has served on this port, whatever it is called
    /// now.
    fn served_before(&self, place: Place, link: &rtnl::Link) -> Option<(InterfaceId, PKey, Mode)> {
        let alias = Alias::parse(link.alias.as_deref()?)?;
        let id = self.parent_called(place, alias.parent.as_deref()?)?;
        let port = self.interfaces.get(id)?.port;
        let port = self.ports[port].port.attributes();
        let ours = alias.port == port.name && alias.gid.is_none_or(|gid| gid == port.gid);
        ours.then_some((id, alias.pkey, alias.mode))
    }

    /// By its name, what the user wants to be a child.
    fn judge_name(&self, place: Place, link: &rtnl::Link) -> Verdict {
        let Some((parent, pkey)) = split_name(&link.name) else {
            return Verdict::Foreign;
        };
        let Some(id) = self.parent_called(place, parent) else {
            return Verdict::LeftAlone(format!(
                "its name is like a child's, but no interface {parent} is served here"
            ));
        };
        match self.interfaces.ip(id) {
            Some((_, parent)) => self.judge_child(id, pkey, parent.spec.mode, link),
            None => Verdict::Foreign,
        }
    }

    /// The same for one that is to be a child of this device in this partition.
    pub(in crate::daemon) fn judge_child(
        &self,
        id: InterfaceId,
        pkey: PKey,
        mode: Mode,
        link: &rtnl::Link,
    ) -> Verdict {
        if let Err((_, why)) = self.refuse_child(id, pkey) {
            return Verdict::LeftAlone(why);
        }
        // One that is not persistent exists only while it is held; `ip` makes it persistent last.
        let tun = link.tun.unwrap_or_default();
        if !tun.persist && !self.host.inherited.has(&link.name) {
            return Verdict::Held;
        }
        let Some((interface, parent)) = self.interfaces.ip(id) else {
            return Verdict::Foreign;
        };
        let mut spec = child_spec(parent, &link.name, pkey);
        spec.mode = mode;
        spec.queues = Some(match tun.multi_queue {
            true => self.ports[interface.port].threads(),
            false => 1,
        });
        spec.persist = tun.persist;
        spec.netns = self.netns_of(id);
        Verdict::Child(id, Box::new(spec))
    }

    /// The interface that is called so; else the one that the configuration calls so, or the only
    /// one whose name is so when cut for a child's.
    fn parent_called(&self, place: Place, name: &str) -> Option<InterfaceId> {
        let find = |is_it: &dyn Fn(&Interface, &Ip) -> bool| {
            let here = |i: &Interface, ip: &Ip| i.place == place && is_it(i, ip);
            self.interfaces.ip_ids(here)
        };
        let called = find(&|i, _| i.name == name);
        let configured = find(&|_, ip| ip.parent.is_none() && ip.spec.name == name);
        let cut = find(&|i, ip| ip.parent.is_none() && in_childs_name(&i.name) == name);
        let only = cut.first().filter(|_| cut.len() == 1);
        called.first().or(configured.first()).or(only).copied()
    }
}

/// `PARENT.PKEY`, with four hexadecimal digits.
fn split_name(name: &str) -> Option<(&str, PKey)> {
    let (parent, digits) = name.rsplit_once('.')?;
    let hexadecimal = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if parent.is_empty() || !hexadecimal {
        return None;
    }
    Some((parent, PKey::new(u16::from_str_radix(digits, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_childs_name_is_its_parents_and_four_digits() {
        for (name, split) in [
            ("ib0.8001", Some(("ib0", 0x8001))),
            ("ib0.0001", Some(("ib0", 0x0001))),
            ("ib0.8aBc", Some(("ib0", 0x8abc))),
            ("ib0.8001.8002", Some(("ib0.8001", 0x8002))),
            ("ib0", None),
            ("ib0.", None),
            (".8001", None),
            ("ib0.801", None),
            ("ib0.08001", None),
            ("ib0.+801", None),
            ("ib0.80g1", None),
            ("ib0-8001", None),
        ] {
            let split = split.map(|(parent, pkey)| (parent, PKey::new(pkey)));
            assert_eq!(split_name(name), split, "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_name_that_a_child_gets_is_understood(parent in "[a-z0-9-]{1,15}", key: u16) {
            let name = control::config::values::child_name(&parent, PKey::new(key));
            let cut = &parent[..parent.len().min(10)];
            prop_assert_eq!(split_name(&name), Some((cut, PKey::new(key).full())));
        }

        #[test]
        fn no_name_makes_it_panic(name: String) {
            let _ = split_name(&name);
        }
    }
}
