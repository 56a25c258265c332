//! What is done with an interface: it is renamed, set up and down, gets another MAC, another MTU, other
//! offload features, and moves. The daemon follows.

use std::io;
use std::ops::RangeInclusive;

use control::api::Happening;
use netdev::ethtool::Features;
use netdev::netns::NamespaceId;
use rtnl::Link;

use super::{Events, Interface, Names, Place};

/// What became another of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The name; with the former one.
    Name(String),
    /// Whether it is administratively up.
    Up(bool),
    /// The MTU.
    Mtu(u32),
    /// The MTU that somebody has set is none that the interface may have. It is not taken over.
    WrongMtu(u32),
    /// The MAC.
    Mac([u8; 6]),
    /// Whether received segments are coalesced.
    Coalesce(bool),
}

impl Interface {
    /// Notes what the interface is like now: `allowed` are the MTUs that it may have.
    pub fn link_seen(
        &mut self,
        link: &Link,
        allowed: &RangeInclusive<u32>,
        features: io::Result<Features>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.name != link.name {
            let was = std::mem::replace(&mut self.name, link.name.clone());
            changes.push(Change::Name(was));
        }
        if std::mem::replace(&mut self.up, link.up) != link.up {
            changes.push(Change::Up(link.up));
        }
        if !allowed.contains(&link.mtu) {
            changes.push(Change::WrongMtu(link.mtu));
        } else if std::mem::replace(&mut self.mtu, link.mtu) != link.mtu {
            changes.push(Change::Mtu(link.mtu));
        }
        if let Some(mac) = link.address
            && std::mem::replace(&mut self.mac, mac) != mac
        {
            changes.push(Change::Mac(mac));
        }
        let name = &self.name;
        match features {
            Ok(features) if features.gro != self.coalesce => {
                let word = if features.gro { "on" } else { "off" };
                log::debug!("{name}: coalescing {word}");
                self.coalesce = features.gro;
                changes.push(Change::Coalesce(features.gro));
            }
            Ok(_) => {}
            Err(e) => log::debug!("{name}: cannot read the offload features: {e}"),
        }
        changes
    }

    /// Notes where the interface is; true if that is news, which is logged and becomes an event.
    pub fn settle(
        &mut self,
        place: Place,
        there: NamespaceId,
        link: Option<&Link>,
        events: &mut Events,
    ) -> bool {
        if let Some(link) = link {
            self.ifindex = link.index;
        }
        let namespace = (place != Place::HOME).then_some(there);
        self.place = place;
        if std::mem::replace(&mut self.namespace, namespace) == namespace {
            return false;
        }
        let called = namespace.map(|there| Names::read().of(&there));
        let was = std::mem::replace(&mut self.netns, called);
        events.push(self.subject(), Happening::Moved { was });
        let name = &self.name;
        let now = self.tap.name().unwrap_or_else(|_| name.clone());
        let called = if now == *name {
            String::new()
        } else {
            format!(" as {now}")
        };
        match &self.netns {
            None => log::info!("{name}: moved back to the daemon's network namespace{called}"),
            Some(there) => log::info!("{name}: moved to the network namespace {there}{called}"),
        }
        true
    }
}
