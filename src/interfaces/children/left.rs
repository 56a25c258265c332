//! Left interfaces that were renamed or moved meanwhile. Their aliases identify them.

use control::config::IpoibConfig;

use crate::interface::{Interface, InterfaceId, LeftBehind, UnservedTap};
use crate::interfaces::children::Verdict;
use crate::interfaces::children::judge::judge_child;
use crate::interfaces::{Context, Interfaces};
use crate::ip::Ip;
use crate::port::PortId;
use fabric::Gid;
use netdev::netns::{self, Namespace, NamespaceId};

/// How a left interface matches a configured one, the best match last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    Name,
    NameInPlace,
    Mac,
}

/// How well a left interface matches a configured one on a port with this GID, with its parent's current
/// name; `None` if it does not. Several interfaces without a parent may be in one partition, even with one
/// name. The MAC is a better match than the name, and the name is a better match in the namespace `wanted`
/// (`None`: the daemon's).
fn likeness(
    left: &LeftBehind,
    spec: &IpoibConfig,
    parent: Option<&str>,
    wanted: Option<NamespaceId>,
    gid: Gid,
) -> Option<Likeness> {
    let called = left.alias.parent.as_deref();
    if left.alias.pkey.full() != spec.pkey.full()
        || called.is_some() != spec.parent.is_some()
        || called.is_some_and(|name| Some(name) != parent && Some(name) != spec.parent.as_deref())
    {
        return None;
    }
    let mac = ipoib::local_mac(gid, spec.pkey, &spec.identity());
    if spec.parent.is_some() || left.link.address == Some(mac) {
        return Some(Likeness::Mac);
    }
    if left.link.name != spec.name {
        return None;
    }
    let there = left.namespace.as_ref().and_then(|there| there.id().ok());
    Some(match there == wanted {
        true => Likeness::NameInPlace,
        false => Likeness::Name,
    })
}

/// Looks for left interfaces of this port. Only at the start: later, the daemon follows renames and moves.
pub fn look_for_left(cx: &mut Context, at: PortId) {
    let port = cx.ports[at].port.attributes();
    let more = cx.host.inherited.namespaces();
    cx.adoption.left = LeftBehind::look_for(&mut cx.host.netlink, cx.host.home, &port, more);
}

/// Takes the left interface that matches a configured one best.
pub fn take_left(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    at: PortId,
    spec: &IpoibConfig,
    parent: Option<InterfaceId>,
    wanted: Option<&Namespace>,
) -> Option<LeftBehind> {
    let gid = cx.ports[at].port.attributes().gid;
    let parent = parent.and_then(|id| interfaces.get(id));
    let parent = parent.map(|parent| parent.name.as_str());
    let wanted = wanted.and_then(|there| there.id().ok());
    let like = |left: &LeftBehind| likeness(left, spec, parent, wanted, gid);
    let all = cx.adoption.left.iter().enumerate();
    let alike = all.filter_map(|(at, left)| Some((like(left)?, at)));
    let (_, found) = alike.max()?;
    Some(cx.adoption.left.swap_remove(found))
}

/// Takes over a child that the user created and a former daemon served in another namespace than its
/// parent's.
pub fn adopt_left(interfaces: &mut Interfaces, cx: &mut Context, at: PortId, left: LeftBehind) {
    let (described, alias, link) = (left.to_string(), left.alias, left.link);
    let Some(parent) = parent_of_left(interfaces, at, alias.parent.as_deref(), &left.namespace)
    else {
        return;
    };
    let verdict = judge_child(interfaces, cx, parent, alias.pkey, alias.mode, &link);
    let Verdict::Child(_, mut spec) = verdict else {
        return;
    };
    spec.netns = left.namespace.as_ref().and_then(netns::name_of);
    let stray = UnservedTap {
        link: &link,
        namespace: left.namespace,
    };
    if let Err(e) = interfaces.serve_ipoib(cx, at, &spec, Some(parent), Some(stray)) {
        log::info!("{described}: not used as a child: {e}");
    }
}

/// The parent of this name on a port, unless it is in the same namespace: [`Interfaces::look_around`] finds children
/// there.
fn parent_of_left(
    interfaces: &Interfaces,
    at: PortId,
    name: Option<&str>,
    namespace: &Option<Namespace>,
) -> Option<InterfaceId> {
    let there = namespace.as_ref().and_then(|there| there.id().ok());
    let is_it = |interface: &Interface, ip: &Ip| {
        let names = [interface.name.as_str(), ip.spec.name.as_str()];
        ip.parent.is_none() && name.is_some_and(|name| names.contains(&name))
    };
    let is_elsewhere = |i: &Interface| i.port == at && i.namespace != there;
    let parents = interfaces.ip_ids(|i, ip| is_it(i, ip) && is_elsewhere(i));
    parents.first().copied()
}
