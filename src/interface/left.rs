//! Left interfaces: TAPs that a former daemon has left, identified by their aliases.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use fabric::PortAttributes;
use netdev::netns::{self, Namespace, NamespaceId};
use rtnl::{Link, Requests};

use super::{Alias, visit};

/// A TAP that a former daemon on one of our ports served.
#[derive(Debug)]
pub struct LeftBehind {
    /// Its namespace, if it is not the daemon's.
    pub namespace: Option<Namespace>,
    /// The interface as read.
    pub link: Link,
    /// Its alias.
    pub alias: Alias,
}

impl fmt::Display for LeftBehind {
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

impl LeftBehind {
    /// Finds the left interfaces of this port: in this namespace, in the network namespaces that `ip netns`
    /// knows, and in `more`.
    pub fn look_for(
        netlink: &mut Requests,
        home: NamespaceId,
        port: &PortAttributes,
        more: Vec<Namespace>,
    ) -> Vec<LeftBehind> {
        let here = netlink.links().unwrap_or_default();
        let mut all: Vec<LeftBehind> = of_port(here, &port.name)
            .filter(|(_, alias)| alias.gid.is_none_or(|gid| gid == port.gid))
            .map(|(link, alias)| LeftBehind {
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
                all.extend(LeftBehind::look_in(&there, port).unwrap_or_else(|e| {
                    log::debug!("cannot search a network namespace: {e}");
                    Vec::new()
                }));
            }
        }
        all
    }

    /// Finds the left interfaces in another network namespace. It may have an underlay of the same name and
    /// its own daemon: the GID distinguishes them.
    fn look_in(there: &Namespace, port: &PortAttributes) -> io::Result<Vec<LeftBehind>> {
        let links = visit(there, Requests::links)?.map_err(io::Error::other)?;
        of_port(links, &port.name)
            .filter(|(_, alias)| alias.gid == Some(port.gid))
            .map(|(link, alias)| {
                Ok(LeftBehind {
                    namespace: Some(there.try_clone()?),
                    link,
                    alias,
                })
            })
            .collect()
    }
}

fn of_port(links: Vec<Link>, port: &str) -> impl Iterator<Item = (Link, Alias)> {
    links.into_iter().filter_map(move |link| {
        link.tun.filter(|tun| tun.tap)?;
        let alias = Alias::parse(link.alias.as_deref()?)?;
        (alias.port == port).then_some((link, alias))
    })
}
