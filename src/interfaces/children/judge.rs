//! Decides by aliases and names which TAPs become children.

use control::config::IpoibConfig;
use control::config::values::in_childs_name;
use fabric::PKey;
use ipoib::Mode;

use super::make::{child_spec, netns_beside};
use crate::interface::{Alias, Interface, InterfaceId, Place};
use crate::interfaces::children::make::refuse_child;
use crate::interfaces::{Context, Interfaces};
use crate::ip::Ip;
use crate::port::Ports;

/// The decision about an interface that the daemon does not serve.
pub enum Verdict {
    /// Not a child of ours.
    Foreign,
    /// Left alone for this reason, although its name is like a child's.
    LeftAlone(String),
    /// A child of this interface with this configuration.
    Child(InterfaceId, Box<IpoibConfig>),
    /// A child, but another program holds it.
    Held,
}

/// The decision about an interface that the daemon does not serve.
pub fn judge(interfaces: &Interfaces, cx: &Context, place: Place, link: &rtnl::Link) -> Verdict {
    if is_anothers(&cx.ports, link) {
        return Verdict::Foreign;
    }
    let Some((id, pkey, mode)) = served_before(interfaces, &cx.ports, place, link) else {
        return judge_name(interfaces, cx, place, link);
    };
    judge_child(interfaces, cx, id, pkey, mode, link)
}

/// Whether the alias belongs to a daemon in another network namespace.
fn is_anothers(ports: &Ports, link: &rtnl::Link) -> bool {
    let gid = link.alias.as_deref().and_then(Alias::parse);
    let gid = gid.and_then(|alias| alias.gid);
    let mut ports = ports.values();
    gid.is_some_and(|gid| ports.all(|port| port.port.attributes().gid != gid))
}

/// The child that a former daemon served on this port, identified by its alias, whatever its current name.
fn served_before(
    interfaces: &Interfaces,
    ports: &Ports,
    place: Place,
    link: &rtnl::Link,
) -> Option<(InterfaceId, PKey, Mode)> {
    let alias = Alias::parse(link.alias.as_deref()?)?;
    let id = parent_called(interfaces, place, alias.parent.as_deref()?)?;
    let port = interfaces.get(id)?.port;
    let port = ports[port].port.attributes();
    let ours = alias.port == port.name && alias.gid.is_none_or(|gid| gid == port.gid);
    ours.then_some((id, alias.pkey, alias.mode))
}

/// Decides by the name.
fn judge_name(interfaces: &Interfaces, cx: &Context, place: Place, link: &rtnl::Link) -> Verdict {
    let Some((parent, pkey)) = split_name(&link.name) else {
        return Verdict::Foreign;
    };
    let Some(id) = parent_called(interfaces, place, parent) else {
        return Verdict::LeftAlone(format!(
            "its name is like a child's, but ibtapd serves no interface {parent} in its network namespace"
        ));
    };
    match interfaces.ip(id) {
        Some((_, parent)) => judge_child(interfaces, cx, id, pkey, parent.spec.mode, link),
        None => Verdict::Foreign,
    }
}

/// Decides about a child of this interface in this partition.
pub fn judge_child(
    interfaces: &Interfaces,
    cx: &Context,
    id: InterfaceId,
    pkey: PKey,
    mode: Mode,
    link: &rtnl::Link,
) -> Verdict {
    if let Err((_, why)) = refuse_child(interfaces, id, pkey) {
        return Verdict::LeftAlone(why);
    }
    // A TAP that is not persistent exists only while it is held; `ip` makes it persistent last.
    let tun = link.tun.unwrap_or_default();
    if !tun.persist && !cx.host.inherited.has(&link.name) {
        return Verdict::Held;
    }
    let Some((interface, parent)) = interfaces.ip(id) else {
        return Verdict::Foreign;
    };
    let mut spec = child_spec(parent, &link.name, pkey);
    spec.mode = mode;
    spec.queues = Some(match tun.multi_queue {
        true => cx.ports[interface.port].threads(),
        false => 1,
    });
    spec.persist = tun.persist;
    spec.netns = netns_beside(interfaces, id, parent);
    Verdict::Child(id, Box::new(spec))
}

/// The interface of this name; else the one of this configured name, or the only one whose shortened name
/// (as in a child's name) is this.
fn parent_called(interfaces: &Interfaces, place: Place, name: &str) -> Option<InterfaceId> {
    let find = |is_it: &dyn Fn(&Interface, &Ip) -> bool| {
        let here = |i: &Interface, ip: &Ip| i.place == place && is_it(i, ip);
        interfaces.ip_ids(here)
    };
    let called = find(&|i, _| i.name == name);
    let configured = find(&|_, ip| ip.parent.is_none() && ip.spec.name == name);
    let cut = find(&|i, ip| ip.parent.is_none() && in_childs_name(&i.name) == name);
    let only = cut.first().filter(|_| cut.len() == 1);
    called.first().or(configured.first()).or(only).copied()
}

/// Splits `PARENT.PKEY`, with four hexadecimal digits.
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
