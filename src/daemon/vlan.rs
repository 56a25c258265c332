//! Partitions that 802.1Q tags select: VLAN n on the interface is the partition of P_Key 0x8000 | n.
//! Each has a queue pair, groups and connections of its own, and the interface's TAP.
//!
//! One is made when the first frame with its tag is seen, or a VLAN link on the interface, and stays
//! until the interface goes or its P_Key leaves the table. In all else it follows the interface.

use control::api::ChildInfo;
use fabric::PKey;
use log::Level;
use netdev::vlan::{TYPE, VID_MAX};

use super::Daemon;
use super::carrier::no_broadcast_group;
use crate::datapath::{Command, LinkId};
use crate::interface::InterfaceId;
use crate::interface::{Interface, Names, Place};
use crate::ip::{Ip, IpLink, Trunk, pkey_of};
use crate::port::PortId;

/// Partitions that the tags on one interface may select: as many as children are spoken of, since any
/// host behind the interface may send any tag.
const PARTITIONS_MAX: usize = 128;

/// VLANs of one interface that wait and were warned of. More are told at the level debug: a host behind
/// it may send all tags there are.
const TOLD_MAX: usize = 16;

impl Daemon {
    /// A frame from an interface's TAP has a tag whose partition is not served yet, or a link says that
    /// there will be some.
    pub(super) fn vlan_wanted(&mut self, link: LinkId, vid: u16) {
        let Some(id) = self.interfaces.by_link(link) else {
            return;
        };
        let Some((_, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        let is_served = ip.vlans.contains_key(&vid);
        if let Some(trunk) = &mut ip.trunk
            && (1..=VID_MAX).contains(&vid)
            && !is_served
            && trunk.waiting.insert(vid)
            && let Err(why) = self.serve_vlan(id, vid)
            && let Some((interface, ip)) = self.interfaces.ip(id)
        {
            let level = match ip.trunk.as_ref().map_or(0, |trunk| trunk.waiting.len()) {
                0..=TOLD_MAX => Level::Warn,
                _ => Level::Debug,
            };
            log::log!(level, "{}: VLAN {vid} is not served: {why}", interface.name);
        }
    }

    /// Makes the link of a VLAN that waits.
    ///
    /// # Errors
    /// Why it waits on, in words.
    fn serve_vlan(&mut self, id: InterfaceId, vid: u16) -> Result<(), String> {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return Ok(());
        };
        let Some(trunk) = &mut ip.trunk else {
            return Ok(());
        };
        let (at, pkey) = (interface.port, pkey_of(vid));
        if ip.spec.pkey.full() == pkey {
            return Err("it is the interface's own partition, whose frames have no tag".into());
        }
        if ip.vlans.len() >= PARTITIONS_MAX {
            // Any host behind the interface may go on for ever.
            trunk.waiting.remove(&vid);
            if std::mem::replace(&mut trunk.told_full, true) {
                return Ok(());
            }
            return Err(format!(
                "tags on one interface select {PARTITIONS_MAX} partitions at most; this is told once"
            ));
        }
        if !self.has_partition(at, pkey) {
            self.ask_for_partition(at, pkey)?;
        }
        let link = self.interfaces.new_link_id();
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return Ok(());
        };
        if let Err(e) = ip.add_vlan(interface, link, vid, &mut self.ports[at]) {
            self.unfollow_pkeys(at);
            return Err(e.to_string());
        }
        if let Some(trunk) = &mut ip.trunk {
            trunk.waiting.remove(&vid);
        }
        self.sync_link_groups(link);
        Ok(())
    }

    /// Whether a port's P_Key table has an entry of a partition.
    fn has_partition(&self, at: PortId, pkey: PKey) -> bool {
        let table = self.ports[at].port.attributes().pkeys;
        table.iter().any(|entry| entry.full() == pkey)
    }

    /// Has an automatic P_Key table hold one more.
    fn ask_for_partition(&mut self, at: PortId, pkey: PKey) -> Result<(), String> {
        let port = &self.ports[at];
        if !port.automatic_pkeys {
            return Err(format!(
                "the P_Key {pkey} is not in the P_Key table of {}; it waits for that",
                port.port.attributes().name
            ));
        }
        self.follow_pkeys(at, Some(pkey))
    }

    /// A link was seen. A VLAN on one of ours that listens only would never be served by its frames.
    pub(super) fn vlan_link_seen(&mut self, place: Place, link: &rtnl::Link) {
        if let (Some(tag), Some(below)) = (link.vlan, link.link)
            && tag.protocol == TYPE
            && let Some(id) = self.interfaces.by_index(place, below)
        {
            self.vlan_wanted(id.link(), tag.id);
        }
    }

    /// Puts right what is to be otherwise after what has happened: cheap where nothing is.
    pub(crate) fn tend_vlans(&mut self) {
        let unwanted = |ip: &Ip| ip.trunk.is_some() && !ip.spec.vlan_pkey;
        for id in self.interfaces.ip_ids(|_, ip| unwanted(ip)) {
            self.end_vlans(id);
        }
        let missing = |ip: &Ip| ip.trunk.is_none() && ip.spec.vlan_pkey;
        for id in self.interfaces.ip_ids(|_, ip| missing(ip)) {
            self.begin_vlans(id);
        }
        let trunks = self.interfaces.ip_ids(|_, ip| ip.trunk.is_some());
        for id in &trunks {
            self.serve_waiting(*id);
        }
        if !trunks.is_empty() {
            self.sync_siblings();
        }
    }

    fn begin_vlans(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        self.ports[interface.port].tell(|| Command::SetVlans(id.link(), true));
        let place = interface.place;
        ip.trunk = Some(Trunk::default());
        let links = self.inside(id, |_, netlink| netlink.links());
        for link in links.and_then(Result::ok).unwrap_or_default() {
            self.vlan_link_seen(place, &link);
        }
    }

    /// The tags of an interface select nothing any more, or it goes.
    pub(super) fn end_vlans(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        if ip.trunk.take().is_none() {
            return;
        }
        let (at, port) = (interface.port, &mut self.ports[interface.port]);
        port.tell(|| Command::SetVlans(id.link(), false));
        for link in std::mem::take(&mut ip.vlans).into_values() {
            link.fabric.close(&link.name(interface), port);
        }
        self.unfollow_pkeys(at);
    }

    /// Makes what waited for its P_Key, and closes what has lost it.
    fn serve_waiting(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        let Some(trunk) = &mut ip.trunk else {
            return;
        };
        let port = &mut self.ports[interface.port];
        let table = port.port.attributes().pkeys;
        if trunk.table == table {
            return;
        }
        let own = ip.spec.pkey.full();
        let has = |pkey: PKey| table.iter().any(|entry| entry.full() == pkey);
        let come = trunk.waiting.iter().copied();
        let come = come.filter(|vid| pkey_of(*vid) != own && has(pkey_of(*vid)));
        let come: Vec<u16> = come.collect();
        trunk.table = table;
        let has_entry = |link: &IpLink| port.port.endpoint_pkey(link.fabric.endpoint.id).is_some();
        let lost = ip.vlans.iter().filter(|(_, link)| !has_entry(link));
        let lost: Vec<u16> = lost.map(|(vid, _)| *vid).collect();
        for vid in lost {
            let name = &interface.name;
            log::warn!("{name}: VLAN {vid} is no longer served: its P_Key left the port's table");
            if let Some(link) = ip.vlans.remove(&vid) {
                link.fabric.close(&link.name(interface), port);
            }
            trunk.waiting.insert(vid);
        }
        let name = interface.name.clone();
        for vid in come {
            if let Err(why) = self.serve_vlan(id, vid) {
                log::debug!("{name}: VLAN {vid}: {why}");
            }
        }
    }

    /// The links that tags select, as they are listed beside the children `of` an interface, or of any.
    pub(super) fn vlan_children(&self, of: Option<InterfaceId>, names: &Names) -> Vec<ChildInfo> {
        let all = self.interfaces.ips();
        let all = all.filter(|(interface, _)| of.is_none_or(|of| of == interface.id));
        all.flat_map(|(interface, ip)| {
            let vlans = ip.vlans.values();
            vlans.map(move |link| self.vlan_child(interface, ip, link, names))
        })
        .collect()
    }

    fn vlan_child(
        &self,
        interface: &Interface,
        ip: &Ip,
        link: &IpLink,
        names: &Names,
    ) -> ChildInfo {
        let missed = link.fabric.groups.misses();
        ChildInfo {
            name: link.name(interface),
            parent: interface.name.clone(),
            pkey: link.fabric.pkey,
            entry: link.fabric.endpoint.pkey,
            mode: ip.mode,
            mtu: interface.mtu,
            netns: interface.namespace.as_ref().map(|there| names.of(there)),
            carrier: interface.carrier && missed.is_none(),
            reason: self
                .ip_misses(interface, ip)
                .or_else(|| missed.map(no_broadcast_group)),
        }
    }
}
