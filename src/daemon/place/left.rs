//! Interfaces that a former daemon has left behind and that were renamed or moved meanwhile: their
//! aliases tell whose they are.

use std::fmt;
use std::io;

use fabric::Gid;
use netdev::netns::{self, Namespace, NamespaceId};
use rtnl::{Link, Requests};

use super::visit;
use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::device::{Alias, DeviceSpec};

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
    /// All those that daemons on this port have left behind, here and in the network namespaces that
    /// `ip netns` knows.
    pub(super) fn look_for(
        netlink: &mut Requests,
        home: NamespaceId,
        port: &str,
        gid: Gid,
    ) -> Vec<Left> {
        let here = netlink.links().unwrap_or_default();
        let mut all: Vec<Left> = of_port(here, port)
            .filter(|(_, alias)| alias.gid.is_none_or(|of| of == gid))
            .map(|(link, alias)| Left {
                namespace: None,
                link,
                alias,
            })
            .collect();
        let named = netns::named_all().unwrap_or_default();
        for (name, _) in named.into_iter().filter(|(_, id)| *id != home) {
            let links = match links_in(&name) {
                Ok(links) => links,
                Err(e) => {
                    log::debug!("the network namespace {name} cannot be searched: {e}");
                    continue;
                }
            };
            // Other namespaces may have an underlay of that name, and a daemon on it.
            let ours = of_port(links, port).filter(|(_, alias)| alias.gid == Some(gid));
            for (link, alias) in ours {
                let Ok(there) = Namespace::named(&name) else {
                    break;
                };
                all.push(Left {
                    namespace: Some(there),
                    link,
                    alias,
                });
            }
        }
        all
    }

    /// Whether it is the interface that is asked for, on a port with this GID, whose parent is called
    /// so now. Of those without a parent there may be several in one partition: they have their MAC
    /// or their name still.
    fn is(&self, spec: &DeviceSpec, parent: Option<&str>, gid: Gid) -> bool {
        let called = self.alias.parent.as_deref();
        if self.alias.pkey.full() != spec.pkey.full()
            || called.is_some() != spec.parent.is_some()
            || called
                .is_some_and(|name| Some(name) != parent && Some(name) != spec.parent.as_deref())
        {
            return false;
        }
        let mac = ipoib::local_mac(gid, spec.pkey, &spec.name);
        spec.parent.is_some() || self.link.address == Some(mac) || self.link.name == spec.name
    }
}

fn links_in(namespace: &str) -> io::Result<Vec<Link>> {
    visit(&Namespace::named(namespace)?, Requests::links)?.map_err(io::Error::other)
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
    pub(in crate::daemon) fn look_for_left(&mut self, at: usize) {
        let port = self.ports[at].port.attributes();
        self.left = Left::look_for(&mut self.netlink, self.home, &port.name, port.gid);
    }

    /// The interface that is asked for, if it was left behind.
    pub(in crate::daemon) fn take_left(
        &mut self,
        at: usize,
        spec: &DeviceSpec,
        parent: Option<DeviceId>,
    ) -> Option<Left> {
        let gid = self.ports[at].port.attributes().gid;
        let parent = parent.and_then(|id| self.devices.get(&id));
        let parent = parent.map(|(_, parent)| parent.name.as_str());
        let is_it = |left: &Left| left.is(spec, parent, gid);
        let found = self.left.iter().position(is_it)?;
        Some(self.left.swap_remove(found))
    }
}
