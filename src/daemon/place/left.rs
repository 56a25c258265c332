//! Interfaces that a former daemon has left behind and that were renamed or moved meanwhile: their
//! aliases tell whose they are.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use control::config::IpoibConfig;
use fabric::{Gid, PortAttributes};
use netdev::netns::{self, Namespace, NamespaceId};
use rtnl::{Link, Requests};

use super::visit;
use crate::daemon::Daemon;
use crate::daemon::children::Verdict;
use crate::datapath::DeviceId;
use crate::device::{Alias, Device, Stray};
use crate::port::PortId;

/// What a left interface has in common with one that is asked for, the surest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    Name,
    NameInPlace,
    Mac,
}

/// A TAP that a daemon on one of our ports served before.
#[derive(Debug)]
pub(crate) struct Left {
    /// Where it is, if not in the daemon's own network namespace.
    pub namespace: Option<Namespace>,
    /// What it is like.
    pub link: Link,
    /// What its alias says.
    pub alias: Alias,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.link.name)?;
        match &self.namespace {
            Some(there) => match netns::name_of(there) {
                Some(name) => write!(f, " in the network namespace {name}"),
                None => f.write_str(" in another network namespace"),
            },
            None => Ok(()),
        }
    }
}

impl Left {
    /// All those that daemons on this port have left behind: here, in the network namespaces that
    /// `ip netns` knows, and in `more`.
    fn look_for(
        netlink: &mut Requests,
        home: NamespaceId,
        port: &PortAttributes,
        more: Vec<Namespace>,
    ) -> Vec<Left> {
        let here = netlink.links().unwrap_or_default();
        let mut all: Vec<Left> = of_port(here, &port.name)
            .filter(|(_, alias)| alias.gid.is_none_or(|gid| gid == port.gid))
            .map(|(link, alias)| Left {
                namespace: None,
                link,
                alias,
            })
            .collect();
        let named = netns::named_all().unwrap_or_default().into_iter();
        let named = named.filter_map(|(name, _)| Namespace::named(&name).ok());
        let mut searched = BTreeSet::from([home]);
        for there in named.chain(more) {
            if there.id().is_ok_and(|id| searched.insert(id)) {
                all.extend(Left::look_in(&there, port).unwrap_or_else(|e| {
                    log::debug!("a network namespace cannot be searched: {e}");
                    Vec::new()
                }));
            }
        }
        all
    }

    /// Those in another network namespace. It may have an underlay of that name, too, and a daemon on
    /// that: the GID tells.
    fn look_in(there: &Namespace, port: &PortAttributes) -> io::Result<Vec<Left>> {
        let links = visit(there, Requests::links)?.map_err(io::Error::other)?;
        of_port(links, &port.name)
            .filter(|(_, alias)| alias.gid == Some(port.gid))
            .map(|(link, alias)| {
                Ok(Left {
                    namespace: Some(there.try_clone()?),
                    link,
                    alias,
                })
            })
            .collect()
    }

    /// How surely it is the interface that is asked for, on a port with this GID, whose parent is
    /// called so now; `None` if it is another one. Of those without a parent there may be several in
    /// one partition, also of one name: the MAC tells more than the name, and the name more in the
    /// namespace `wanted` (`None`: the daemon's), where it is to be.
    fn likeness(
        &self,
        spec: &IpoibConfig,
        parent: Option<&str>,
        wanted: Option<NamespaceId>,
        gid: Gid,
    ) -> Option<Likeness> {
        let called = self.alias.parent.as_deref();
        if self.alias.pkey.full() != spec.pkey.full()
            || called.is_some() != spec.parent.is_some()
            || called
                .is_some_and(|name| Some(name) != parent && Some(name) != spec.parent.as_deref())
        {
            return None;
        }
        let mac = ipoib::local_mac(gid, spec.pkey, &spec.identity());
        if spec.parent.is_some() || self.link.address == Some(mac) {
            return Some(Likeness::Mac);
        }
        if self.link.name != spec.name {
            return None;
        }
        let there = self.namespace.as_ref().and_then(|there| there.id().ok());
        Some(match there == wanted {
            true => Likeness::NameInPlace,
            false => Likeness::Name,
        })
    }
}

fn of_port(links: Vec<Link>, port: &str) -> impl Iterator<Item = (Link, Alias)> {
    links.into_iter().filter_map(move |link| {
        link.tun.filter(|tun| tun.tap)?;
        let alias = Alias::parse(link.alias.as_deref()?)?;
        (alias.port == port).then_some((link, alias))
    })
}

impl Daemon {
    /// Looks for what former daemons on this port have left behind. Only at the start: later an
    /// interface of ours that is renamed or moved is followed.
    pub(in crate::daemon) fn look_for_left(&mut self, at: PortId) {
        let port = self.ports[at].port.attributes();
        let more = self.inherited.namespaces();
        self.left = Left::look_for(&mut self.netlink, self.home, &port, more);
    }

    /// The interface that is asked for, if it was left behind.
    pub(in crate::daemon) fn take_left(
        &mut self,
        at: PortId,
        spec: &IpoibConfig,
        parent: Option<DeviceId>,
        wanted: Option<&Namespace>,
    ) -> Option<Left> {
        let gid = self.ports[at].port.attributes().gid;
        let parent = parent.and_then(|id| self.devices.get(&id));
        let parent = parent.map(|(_, parent)| parent.name.as_str());
        let wanted = wanted.and_then(|there| there.id().ok());
        let like = |left: &Left| left.likeness(spec, parent, wanted, gid);
        let all = self.left.iter().enumerate();
        let alike = all.filter_map(|(at, left)| Some((like(left)?, at)));
        let (_, found) = alike.max()?;
        Some(self.left.swap_remove(found))
    }

    /// A child that somebody made and that a former daemon of ours served in another namespace than
    /// its parent's is taken over there.
    pub(in crate::daemon) fn adopt_left(&mut self, at: PortId, left: Left) {
        let (described, alias, link) = (left.to_string(), left.alias, left.link);
        let Some(parent) = self.parent_of_left(at, alias.parent.as_deref(), &left.namespace) else {
            return;
        };
        let verdict = self.judge_child(parent, alias.pkey, alias.mode.into(), &link);
        let Verdict::Child(_, mut spec) = verdict else {
            return;
        };
        spec.netns = left.namespace.as_ref().and_then(netns::name_of);
        let stray = Stray {
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
    ) -> Option<DeviceId> {
        let there = namespace.as_ref().and_then(|there| there.id().ok());
        let is_it = |device: &Device| {
            let names = [device.name.as_str(), device.spec.name.as_str()];
            device.parent.is_none() && name.is_some_and(|name| names.contains(&name))
        };
        let mut on_port = self.devices.iter().filter(|(_, (port, _))| *port == at);
        on_port
            .find(|(_, (_, device))| is_it(device) && device.namespace != there)
            .map(|(id, _)| *id)
    }
}
