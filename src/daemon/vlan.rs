//! Partitions that 802.1Q tags select: VLAN n on the interface is the partition of P_Key 0x8000 | n.
//! Each has a queue pair, groups and connections of its own, and the interface's TAP.
//!
//! One is made when the first frame with its tag is seen, or a VLAN link on the interface, and stays
//! until the interface goes or its P_Key leaves the table. In all else it follows the interface.

mod partition;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control::api::ChildInfo;
use fabric::{FabricError, Gid, PKey};
use ipoib::{Event, Time};
use log::Level;
use netdev::vlan::{TYPE, VID_MAX};

use super::Daemon;
use super::carrier::no_broadcast_group;
use crate::datapath::{Command, DeviceId, now};
use crate::interface::groups::GroupSet;
use crate::interface::{Names, Place};
use crate::port::PortId;

use partition::Partition;

/// Partitions that the tags on one interface may select: as many as children are spoken of, since any
/// host behind the interface may send any tag.
const PARTITIONS_MAX: usize = 128;

/// VLANs of one interface that wait and were warned of. More are told at the level debug: a host behind
/// it may send all tags there are.
const TOLD_MAX: usize = 16;

/// All partitions that tags select.
#[derive(Default)]
pub(crate) struct Vlans {
    trunks: BTreeMap<DeviceId, Trunk>,
    partitions: BTreeMap<DeviceId, Partition>,
}

/// A partition for who lists them.
pub(crate) struct Listed {
    /// As [`Daemon::vlan_name`].
    pub name: String,
    pub id: DeviceId,
    /// Its port.
    pub at: PortId,
    /// The interface.
    pub trunk: DeviceId,
}

/// What is between the name of an interface and the VLAN id in a partition's name.
const VLAN: &str = ":vlan";

/// An interface whose tags select partitions.
#[derive(Default)]
struct Trunk {
    partitions: BTreeMap<u16, DeviceId>,
    /// VLAN ids that were seen and cannot be served now.
    waiting: BTreeSet<u16>,
    /// The port's P_Key table when those were last held against it.
    table: Vec<PKey>,
    /// That there are too many was told.
    told_full: bool,
}

/// The partition of a VLAN.
fn pkey_of(vid: u16) -> PKey {
    PKey::new(0x8000 | vid)
}

impl Vlans {
    /// The P_Keys that they need on a port.
    pub(crate) fn pkeys(&self, at: PortId) -> impl Iterator<Item = PKey> {
        let on_port = self.partitions.values().filter(move |p| p.at == at);
        on_port.map(|p| p.pkey)
    }

    /// All of them.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (DeviceId, &mut Partition)> {
        self.partitions.iter_mut().map(|(id, p)| (*id, p))
    }

    /// Their groups.
    pub(super) fn group_sets(&self) -> impl Iterator<Item = &GroupSet> {
        self.partitions.values().map(|p| &p.groups)
    }

    /// The one with this endpoint.
    pub(crate) fn by_endpoint(
        &self,
        at: PortId,
        endpoint: fabric::EndpointId,
    ) -> Option<(DeviceId, u16)> {
        let mut all = self.partitions.values();
        all.find(|p| p.at == at && p.endpoint.id == endpoint)
            .map(|p| (p.trunk, p.vid))
    }
}

impl Daemon {
    /// A frame from a device's TAP has a tag whose partition is not served yet, or a link says that
    /// there will be some.
    pub(super) fn vlan_wanted(&mut self, id: DeviceId, vid: u16) {
        if let Some(trunk) = self.vlans.trunks.get_mut(&id)
            && (1..=VID_MAX).contains(&vid)
            && !trunk.partitions.contains_key(&vid)
            && trunk.waiting.insert(vid)
            && let Err(why) = self.serve_vlan(id, vid)
            && let (Some(interface), Some(trunk)) =
                (self.interfaces.get(id), self.vlans.trunks.get(&id))
        {
            let level = match trunk.waiting.len() {
                0..=TOLD_MAX => Level::Warn,
                _ => Level::Debug,
            };
            log::log!(level, "{}: VLAN {vid} is not served: {why}", interface.name);
        }
    }

    /// Makes a partition for a VLAN that waits.
    ///
    /// # Errors
    /// Why it waits on, in words.
    fn serve_vlan(&mut self, id: DeviceId, vid: u16) -> Result<(), String> {
        let (Some((interface, ip)), Some(trunk)) =
            (self.interfaces.ip(id), self.vlans.trunks.get_mut(&id))
        else {
            return Ok(());
        };
        let (at, pkey) = (interface.port, pkey_of(vid));
        if ip.spec.pkey.full() == pkey {
            return Err("it is the interface's own partition, whose frames have no tag".into());
        }
        if trunk.partitions.len() >= PARTITIONS_MAX {
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
        if let Err(e) = self.make_partition(id, vid) {
            self.unfollow_pkeys(at);
            return Err(e.to_string());
        }
        if let Some(trunk) = self.vlans.trunks.get_mut(&id) {
            trunk.waiting.remove(&vid);
        }
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

    fn make_partition(&mut self, trunk: DeviceId, vid: u16) -> Result<(), FabricError> {
        let id = self.interfaces.new_id();
        let Some((interface, ip)) = self.interfaces.ip(trunk) else {
            return Ok(());
        };
        let port = &mut self.ports[interface.port];
        let threads = port.mailboxes();
        let made = Partition::make(id, (interface, ip), vid, &mut *port.port, &threads)?;
        log::info!(
            "{}: VLAN {vid} is served, qpn={} pkey={}",
            interface.name,
            made.endpoint.qpn,
            made.pkey
        );
        self.vlans.partitions.insert(id, made);
        if let Some(trunk) = self.vlans.trunks.get_mut(&trunk) {
            trunk.partitions.insert(vid, id);
        }
        self.sync_vlan_groups(id);
        Ok(())
    }

    /// A link was seen. A VLAN on one of ours that listens only would never be served by its frames.
    pub(super) fn vlan_link_seen(&mut self, place: Place, link: &rtnl::Link) {
        if let (Some(tag), Some(below)) = (link.vlan, link.link)
            && tag.protocol == TYPE
            && let Some(id) = self.interfaces.by_index(place, below)
        {
            self.vlan_wanted(id, tag.id);
        }
    }

    /// Puts right what is to be otherwise after what has happened: cheap where nothing is.
    pub(crate) fn tend_vlans(&mut self) {
        let wanted = self.interfaces.ip_ids(|_, ip| ip.spec.vlan_pkey);
        let wanted: BTreeSet<DeviceId> = wanted.into_iter().collect();
        let served: BTreeSet<DeviceId> = self.vlans.trunks.keys().copied().collect();
        for id in served.difference(&wanted) {
            self.end_vlans(*id);
        }
        for id in wanted.difference(&served) {
            self.begin_vlans(*id);
        }
        for id in self.vlans.trunks.keys().copied().collect::<Vec<_>>() {
            self.serve_waiting(id);
            self.vlans_follow(id);
        }
        if !(served.is_empty() && wanted.is_empty()) {
            self.sync_siblings();
        }
    }

    fn begin_vlans(&mut self, id: DeviceId) {
        let Some(interface) = self.interfaces.get(id) else {
            return;
        };
        self.ports[interface.port].tell(|| Command::SetVlans(id, true));
        let place = interface.place;
        self.vlans.trunks.insert(id, Trunk::default());
        let links = self.inside(id, |_, netlink| netlink.links());
        for link in links.and_then(Result::ok).unwrap_or_default() {
            self.vlan_link_seen(place, &link);
        }
    }

    /// The tags of an interface select nothing any more, or it goes.
    pub(super) fn end_vlans(&mut self, id: DeviceId) {
        let Some(trunk) = self.vlans.trunks.remove(&id) else {
            return;
        };
        if let Some(interface) = self.interfaces.get(id) {
            self.ports[interface.port].tell(|| Command::SetVlans(id, false));
        }
        for partition in trunk.partitions.into_values() {
            self.close_partition(partition);
        }
        if let Some(interface) = self.interfaces.get(id) {
            self.unfollow_pkeys(interface.port);
        }
    }

    fn close_partition(&mut self, id: DeviceId) {
        let Some(partition) = self.vlans.partitions.remove(&id) else {
            return;
        };
        let port = &mut self.ports[partition.at];
        port.remove_lanes(id);
        if let Err(e) = port.port.destroy_ud(partition.endpoint.id) {
            let name = self.vlan_name(partition.trunk, partition.vid);
            log::warn!("{name}: cannot close its endpoint: {e}");
        }
    }

    /// Makes what waited for its P_Key, and closes what has lost it.
    fn serve_waiting(&mut self, id: DeviceId) {
        let (Some((interface, ip)), Some(trunk)) =
            (self.interfaces.ip(id), self.vlans.trunks.get_mut(&id))
        else {
            return;
        };
        let at = interface.port;
        let table = self.ports[at].port.attributes().pkeys;
        if trunk.table == table {
            return;
        }
        let lost = trunk.partitions.iter().filter(|(_, id)| {
            let partition = self.vlans.partitions.get(id);
            partition.is_none_or(|p| self.ports[at].port.endpoint_pkey(p.endpoint.id).is_none())
        });
        let lost: Vec<(u16, DeviceId)> = lost.map(|(vid, id)| (*vid, *id)).collect();
        let own = ip.spec.pkey.full();
        let come = trunk.waiting.iter().copied();
        let has = |pkey: PKey| table.iter().any(|entry| entry.full() == pkey);
        let come = come.filter(|vid| pkey_of(*vid) != own && has(pkey_of(*vid)));
        let come: Vec<u16> = come.collect();
        trunk.table = table;
        for (vid, partition) in lost {
            log::warn!(
                "{}: VLAN {vid} is no longer served: its P_Key left the port's table",
                device_name(self, id)
            );
            self.close_partition(partition);
            if let Some(trunk) = self.vlans.trunks.get_mut(&id) {
                trunk.partitions.remove(&vid);
                trunk.waiting.insert(vid);
            }
        }
        for vid in come {
            if let Err(why) = self.serve_vlan(id, vid) {
                log::debug!("{}: VLAN {vid}: {why}", device_name(self, id));
            }
        }
    }

    /// Has an interface's partitions be as it is.
    pub(super) fn vlans_follow(&mut self, id: DeviceId) {
        let (Some((interface, ip)), Some(trunk)) =
            (self.interfaces.ip(id), self.vlans.trunks.get(&id))
        else {
            return;
        };
        let port = &self.ports[interface.port];
        let gid = port.port.attributes().gid;
        let mut regroup = Vec::new();
        for id in trunk.partitions.values() {
            if let Some(partition) = self.vlans.partitions.get_mut(id) {
                let id_there = partition.endpoint.id;
                let endpoint = (
                    port.port.endpoint_pkey(id_there),
                    port.port.endpoint_qpn(id_there),
                );
                let changed = partition.follow((interface, ip), gid, endpoint, |c| port.tell(c));
                if changed.groups {
                    regroup.push(*id);
                }
                if changed.address {
                    for ip in &partition.addresses {
                        port.tell_first(Command::Announce(*id, *ip));
                    }
                }
            }
        }
        regroup.into_iter().for_each(|id| self.sync_vlan_groups(id));
    }

    /// A partition's core has news. True if it is one.
    pub(super) fn vlan_event(&mut self, id: DeviceId, event: &Event) -> bool {
        let Some(partition) = self.vlans.partitions.get_mut(&id) else {
            return false;
        };
        if partition.event(event) {
            self.sync_vlan_groups(id);
        }
        true
    }

    /// How long until [`Daemon::tick_vlans`] has something to do.
    pub(super) fn next_vlan_tick(&self) -> Option<Duration> {
        let now = now();
        let partitions = self.vlans.partitions.values();
        partitions.filter_map(|p| p.guests.wait(now)).min()
    }

    /// Lets time pass for what is behind the interfaces.
    pub(super) fn tick_vlans(&mut self) {
        let now = now();
        let mut regroup = Vec::new();
        for (id, partition) in &mut self.vlans.partitions {
            let port = &self.ports[partition.at];
            let write = |frame: &[u8]| port.tell_first(Command::ToTap(*id, frame.into()));
            if partition.guests.tick(now, write) {
                regroup.push(*id);
            }
        }
        regroup.into_iter().for_each(|id| self.sync_vlan_groups(id));
    }

    /// Attaches and detaches a partition so that its groups are those that it wants.
    pub(super) fn sync_vlan_groups(&mut self, id: DeviceId) {
        let partition = self.vlans.partitions.get(&id);
        let name = partition.map(|p| self.vlan_name(p.trunk, p.vid));
        if let (Some(name), Some(partition)) = (name, self.vlans.partitions.get_mut(&id)) {
            let port = &mut self.ports[partition.at];
            if partition.sync_groups(&mut *port.port, &name) {
                let groups: Vec<_> = partition.groups.attached().collect();
                port.tell(|| Command::SetJoined(id, groups.clone()));
            }
        }
    }

    /// What a VLAN's partition is called: no interface can have such a name.
    pub(crate) fn vlan_name(&self, trunk: DeviceId, vid: u16) -> String {
        format!("{}{VLAN}{vid}", device_name(self, trunk))
    }

    /// The partition that is called so, and its port. Its interface's name may say the namespace.
    pub(crate) fn vlan_named(&self, name: &str) -> Option<(DeviceId, PortId)> {
        let (trunk, vid) = name.rsplit_once(VLAN)?;
        let trunk = self.named_ip(trunk).ok()?.0.id;
        let vid = vid.parse().ok()?;
        let id = self.vlans.trunks.get(&trunk)?.partitions.get(&vid)?;
        Some((*id, self.vlans.partitions.get(id)?.at))
    }

    /// Of the partition that is called so: its broadcast group, when it was made, its groups.
    pub(crate) fn vlan_broadcast(&self, name: &str) -> Option<(Gid, Time, &GroupSet)> {
        let (id, _) = self.vlan_named(name)?;
        let partition = self.vlans.partitions.get(&id)?;
        Some((partition.broadcast(), partition.created, &partition.groups))
    }

    /// The partitions that tags select.
    pub(crate) fn vlans(&self) -> Vec<Listed> {
        let all = self.vlans.partitions.iter();
        all.map(|(id, p)| Listed {
            name: self.vlan_name(p.trunk, p.vid),
            id: *id,
            at: p.at,
            trunk: p.trunk,
        })
        .collect()
    }

    /// Those on one interface, or on any, as they are listed beside children.
    pub(super) fn vlan_children(&self, trunk: Option<DeviceId>, names: &Names) -> Vec<ChildInfo> {
        let all = self.vlans.partitions.values();
        all.filter(|p| trunk.is_none_or(|trunk| trunk == p.trunk))
            .filter_map(|p| {
                let (interface, parent) = self.interfaces.ip(p.trunk)?;
                Some(ChildInfo {
                    name: self.vlan_name(p.trunk, p.vid),
                    parent: interface.name.clone(),
                    pkey: p.pkey,
                    entry: p.endpoint.pkey,
                    mode: parent.mode,
                    mtu: interface.mtu,
                    netns: interface.namespace.as_ref().map(|there| names.of(there)),
                    carrier: interface.carrier && p.groups.misses().is_none(),
                    reason: self
                        .ip_misses(interface, parent)
                        .or_else(|| p.groups.misses().map(no_broadcast_group)),
                })
            })
            .collect()
    }
}

fn device_name(daemon: &Daemon, id: DeviceId) -> &str {
    daemon.interfaces.get(id).map_or("", |i| &i.name)
}
