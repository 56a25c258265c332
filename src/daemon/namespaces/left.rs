//! Interfaces that a former daemon has left behind and that were renamed or moved meanwhile: their
//! aliases tell whose they are.

use control::config::IpoibConfig;

use crate::daemon::Daemon;
use crate::daemon::children::Verdict;
use crate::interface::InterfaceId;
use crate::interface::{Interface, LeftBehind, UnservedTap};
use crate::ip::Ip;
use crate::port::PortId;
use fabric::Gid;
use netdev::netns::{self, Namespace, NamespaceId};

/// What a left interface has in common with one that is asked for, the surest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    Name,
    NameInPlace,
    Mac,
}

/// How surely it is the interface that is asked for, on a port with this GID, whose parent is
/// called so now; `None` if it is another one. Of those without a parent there may be several in
/// one partition, also of one name: the MAC tells more than the name, and the name more in the
/// namespace `wanted` (`None`: the daemon's), where it is to be.
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

impl Daemon {
    /// Looks for what former daemons on this port have left behind. Only at the start: later an
    /// interface of ours that is renamed or moved is followed.
    pub(in crate::daemon) fn look_for_left(&mut self, at: PortId) {
        let port = self.ports[at].port.attributes();
        let more = self.host.inherited.namespaces();
        self.adoption.left =
            LeftBehind::look_for(&mut self.host.netlink, self.host.home, &port, more);
    }

    /// The interface that is asked for, if it was left behind.
    pub(in crate::daemon) fn take_left(
        &mut self,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
        wanted: Option<&Namespace>,
    ) -> Option<LeftBehind> {
        let gid = self.ports[at].port.attributes().gid;
        let parent = parent.and_then(|id| self.interfaces.get(id));
        let parent = parent.map(|parent| parent.name.as_str());
        let wanted = wanted.and_then(|there| there.id().ok());
        let like = |left: &LeftBehind| likeness(left, spec, parent, wanted, gid);
        let all = self.adoption.left.iter().enumerate();
        let alike = all.filter_map(|(at, left)| Some((like(left)?, at)));
        let (_, found) = alike.max()?;
        Some(self.adoption.left.swap_remove(found))
    }

    /// A child that somebody made and that a former daemon of ours served in another namespace than
    /// its parent's is taken over there.
    pub(in crate::daemon) fn adopt_left(&mut self, at: PortId, left: LeftBehind) {
        let (described, alias, link) = (left.to_string(), left.alias, left.link);
        let Some(parent) = self.parent_of_left(at, alias.parent.as_deref(), &left.namespace) else {
            return;
        };
        let verdict = self.judge_child(parent, alias.pkey, alias.mode, &link);
        let Verdict::Child(_, mut spec) = verdict else {
            return;
        };
        spec.netns = left.namespace.as_ref().and_then(netns::name_of);
        let stray = UnservedTap {
            link: &link,
            namespace: left.namespace,
        };
        if let Err(e) = self.bring_in(at, &spec, Some(parent), Some(stray)) {
            log::info!("{described}: left alone: {e}");
        }
    }

    /// The parent on a port that is called so, unless it is in that same namespace: then the child is
    /// found beside it.
    fn parent_of_left(
        &self,
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
        let parents = self
            .interfaces
            .ip_ids(|i, ip| is_it(i, ip) && is_elsewhere(i));
        parents.first().copied()
    }
}
