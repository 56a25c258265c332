//! Follows changes of an interface: name, up and down, MAC, MTU, offload features, namespace.

use std::fmt::Display;
use std::io;
use std::ops::RangeInclusive;

use control::api::{Happening, LinkAddress};
use netdev::ethtool::Features;
use netdev::netns::NamespaceId;
use rtnl::{Link, Requests};

use super::{Events, Interface, Names, Place, unreachable};
use crate::datapath::now;

/// A change of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The name; with the former name.
    Name(String),
    /// Whether it is administratively up.
    Up(bool),
    /// The MTU.
    Mtu(u32),
    /// An MTU that is not allowed. The interface must not keep it.
    WrongMtu(u32),
    /// The MAC.
    Mac([u8; 6]),
    /// Whether received segments are coalesced.
    Coalesce(bool),
}

impl Interface {
    /// Compares the interface with `link` and notes the changes. `allowed` are the allowed MTUs.
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
            self.usable_since = now();
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

    /// Sets the MTU in bytes and adds an event. No change if the MTU is the same.
    ///
    /// # Errors
    /// Errors of rtnetlink; ENODEV if the interface cannot be reached.
    pub fn set_mtu(
        &mut self,
        mtu: u32,
        netlink: &mut Requests,
        events: &mut Events,
    ) -> Result<(), rtnl::Error> {
        if self.mtu == mtu {
            return Ok(());
        }
        let set = self.inside(netlink, |i, netlink| netlink.set_mtu(i.ifindex, mtu));
        set.unwrap_or_else(|| Err(unreachable("set the MTU")))?;
        self.mtu = mtu;
        events.push(self.subject(), Happening::MtuChanged { mtu });
        Ok(())
    }

    /// Replaces an MTU that the administrator has set and that is not allowed, because a TAP accepts any.
    /// `right` is the nearest allowed MTU.
    pub fn correct_mtu(
        &mut self,
        wrong: u32,
        allowed: &RangeInclusive<u32>,
        (fault, right): (&str, u32),
        netlink: &mut Requests,
    ) {
        self.inside(netlink, |interface, netlink| {
            // The administrator may have corrected it.
            let now = netlink.link_by_index(interface.ifindex);
            if !now.is_ok_and(|now| !allowed.contains(&now.mtu)) {
                return;
            }
            let set = netlink.set_mtu(interface.ifindex, right);
            interface.log_corrected_mtu(wrong, (fault, right), set);
        });
    }

    /// Logs that an MTU that is not allowed was to be replaced by `right`.
    pub fn log_corrected_mtu<E: Display>(
        &self,
        wrong: u32,
        (fault, right): (&str, u32),
        set: Result<(), E>,
    ) {
        let fault = format!("{}: the MTU {wrong} is {fault} {right}", self.name);
        match set {
            Ok(()) => log::warn!("{fault}; ibtapd has set {right}"),
            Err(e) => log::warn!("{fault}; cannot set {right}: {e}"),
        }
    }

    /// Sets the MAC address and adds an event; true if it changed.
    pub fn set_mac(&mut self, mac: [u8; 6], netlink: &mut Requests, events: &mut Events) -> bool {
        // Interfaces of the kernel refuse the zero address, which a VNIC without a switch would have.
        if self.mac == mac || mac == [0; 6] {
            return false;
        }
        match self.inside(netlink, |i, netlink| netlink.set_mac(i.ifindex, mac)) {
            Some(Ok(())) => {
                self.mac = mac;
                let mac = LinkAddress(mac);
                events.push(self.subject(), Happening::MacChanged { mac });
                return true;
            }
            Some(Err(e)) => log::warn!("{}: cannot set the MAC address: {e}", self.name),
            None => log::warn!(
                "{}: cannot set the MAC address: cannot enter its network namespace",
                self.name
            ),
        }
        false
    }

    /// Writes the alias again, unless the administrator has set another one.
    pub fn renew_alias(&mut self, alias: &str, netlink: &mut Requests) {
        self.alias_due = None;
        self.inside(netlink, |interface, netlink| {
            let link = netlink.link_by_index(interface.ifindex);
            let set = link.and_then(|link| interface.write_alias(netlink, &link, alias));
            if let Err(e) = set {
                log::warn!("{}: cannot set the alias: {e}", interface.name);
            }
        });
    }

    /// Notes the interface's namespace; true if it changed. A change is logged and reported as an event.
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
