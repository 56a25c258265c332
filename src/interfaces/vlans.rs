//! Partitions that 802.1Q tags select: VLAN n on the interface is the partition of P_Key 0x8000 | n. Each
//! has its own queue pair, groups and connections, and shares the interface's TAP.
//!
//! The link of a VLAN is created at the first frame with its tag, or when a VLAN link on the interface
//! appears. It stays until the interface is removed or the P_Key leaves the table. All other settings come
//! from the interface.

use fabric::PKey;
use log::Level;
use netdev::vlan::{TYPE, VID_MAX};

use crate::datapath::{Command, LinkId};
use crate::interface::{InterfaceId, Place};
use crate::interfaces::{Context, Interfaces};
use crate::ip::{Ip, IpLink, Trunk, pkey_of};
use crate::port::{PortId, Ports};

/// Maximum number of partitions selected by the tags on one interface, because any host behind the
/// interface may send any tag.
const PARTITIONS_MAX: usize = 128;

/// Number of waiting VLANs of one interface that are logged as warnings, further ones at level debug: a
/// host behind the interface may send every tag.
const WARNINGS_MAX: usize = 16;

/// Handles a tag whose partition is not served yet, on a frame from an interface's TAP or of a VLAN link.
pub fn wanted(interfaces: &mut Interfaces, cx: &mut Context, link: LinkId, vid: u16) {
    let Some(id) = interfaces.by_link(link) else {
        return;
    };
    let Some((_, ip)) = interfaces.ip_mut(id) else {
        return;
    };
    let is_served = ip.vlans.contains_key(&vid);
    if let Some(trunk) = &mut ip.trunk
        && (1..=VID_MAX).contains(&vid)
        && !is_served
        && trunk.waiting.insert(vid)
        && let Err(why) = serve(interfaces, cx, id, vid)
        && let Some((interface, ip)) = interfaces.ip(id)
    {
        let level = match ip.trunk.as_ref().map_or(0, |trunk| trunk.waiting.len()) {
            0..=WARNINGS_MAX => Level::Warn,
            _ => Level::Debug,
        };
        log::log!(level, "{}: VLAN {vid} is not served: {why}", interface.name);
    }
}

/// Creates the link of a waiting VLAN.
///
/// # Errors
/// Why the VLAN still waits, for users.
fn serve(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    id: InterfaceId,
    vid: u16,
) -> Result<(), String> {
    let Some((interface, ip)) = interfaces.ip_mut(id) else {
        return Ok(());
    };
    let Some(trunk) = &mut ip.trunk else {
        return Ok(());
    };
    let (at, pkey) = (interface.port, pkey_of(vid));
    if ip.spec.pkey.full() == pkey {
        return Err("it selects the interface's own partition, whose frames have no tag".into());
    }
    if ip.vlans.len() >= PARTITIONS_MAX {
        // Any host behind the interface may send more tags.
        if std::mem::replace(&mut trunk.logged_full, true) {
            return Ok(());
        }
        return Err(format!(
            "tags on one interface select at most {PARTITIONS_MAX} partitions; this is logged once"
        ));
    }
    if !has_partition(&cx.ports, at, pkey) {
        ask_for_partition(interfaces, cx, at, pkey)?;
    }
    let link = interfaces.new_link_id();
    let Some((interface, ip)) = interfaces.ip_mut(id) else {
        return Ok(());
    };
    if let Err(e) = ip.add_vlan(interface, link, vid, &mut cx.ports[at]) {
        interfaces.unfollow_pkeys(cx, at);
        return Err(e.to_string());
    }
    if let Some(trunk) = &mut ip.trunk {
        trunk.waiting.remove(&vid);
    }
    interfaces.sync_link_groups(cx, link);
    Ok(())
}

/// Whether a port's P_Key table has an entry for a partition.
fn has_partition(ports: &Ports, at: PortId, pkey: PKey) -> bool {
    let table = ports[at].port.attributes().pkeys;
    table.iter().any(|entry| entry.full() == pkey)
}

/// Adds a partition to an automatic P_Key table.
fn ask_for_partition(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    at: PortId,
    pkey: PKey,
) -> Result<(), String> {
    let port = &cx.ports[at];
    if !port.automatic_pkeys {
        return Err(format!(
            "the P_Key {pkey} is not in the P_Key table of {}; the VLAN waits for the P_Key",
            port.port.attributes().name
        ));
    }
    interfaces.follow_pkeys(cx, at, Some(pkey))
}

/// Handles a link of the host that may be a VLAN link on an interface. A VLAN link that only receives sends
/// no frame with the tag.
pub fn link_seen(interfaces: &mut Interfaces, cx: &mut Context, place: Place, link: &rtnl::Link) {
    if let (Some(tag), Some(below)) = (link.vlan, link.link)
        && tag.protocol == TYPE
        && let Some(id) = interfaces.by_index(place, below)
    {
        wanted(interfaces, cx, id.link(), tag.id);
    }
}

/// Starts and ends VLAN service after changes of configuration and P_Key tables. Cheap if nothing has
/// changed.
pub fn sync(interfaces: &mut Interfaces, cx: &mut Context) {
    let unwanted = |ip: &Ip| ip.trunk.is_some() && !ip.spec.vlan_pkey;
    for id in interfaces.ip_ids(|_, ip| unwanted(ip)) {
        end(interfaces, cx, id);
    }
    let missing = |ip: &Ip| ip.trunk.is_none() && ip.spec.vlan_pkey;
    let begun = interfaces.ip_ids(|_, ip| missing(ip));
    for id in &begun {
        begin(interfaces, cx, *id);
    }
    interfaces.look_around(cx, |interface, _| begun.contains(&interface.id));
    let trunks = interfaces.ip_ids(|_, ip| ip.trunk.is_some());
    for id in &trunks {
        serve_waiting(interfaces, cx, *id);
    }
    if !trunks.is_empty() {
        interfaces.sync_siblings(&cx.ports);
    }
}

fn begin(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    let Some((interface, ip)) = interfaces.ip_mut(id) else {
        return;
    };
    cx.ports[interface.port].send(|| Command::SetVlans(id.link(), true));
    ip.trunk = Some(Trunk::default());
}

/// Ends VLAN service of an interface.
pub fn end(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    let Some((interface, ip)) = interfaces.ip_mut(id) else {
        return;
    };
    if ip.trunk.take().is_none() {
        return;
    }
    let (at, port) = (interface.port, &mut cx.ports[interface.port]);
    port.send(|| Command::SetVlans(id.link(), false));
    for link in std::mem::take(&mut ip.vlans).into_values() {
        link.fabric.close(&link.name(interface), port);
    }
    interfaces.unfollow_pkeys(cx, at);
}

/// Creates the links of VLANs whose P_Keys are in the table now, and closes links whose P_Keys are gone.
fn serve_waiting(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    let Some((interface, ip)) = interfaces.ip_mut(id) else {
        return;
    };
    let Some(trunk) = &mut ip.trunk else {
        return;
    };
    let port = &mut cx.ports[interface.port];
    let table = port.port.attributes().pkeys;
    if trunk.table == table {
        return;
    }
    let own = ip.spec.pkey.full();
    let has = |pkey: PKey| table.iter().any(|entry| entry.full() == pkey);
    let new = trunk.waiting.iter().copied();
    let new = new.filter(|vid| pkey_of(*vid) != own && has(pkey_of(*vid)));
    let new: Vec<u16> = new.collect();
    trunk.table = table;
    let has_entry = |link: &IpLink| port.port.endpoint_pkey(link.fabric.endpoint.id).is_some();
    let lost = ip.vlans.iter().filter(|(_, link)| !has_entry(link));
    let lost: Vec<u16> = lost.map(|(vid, _)| *vid).collect();
    for vid in lost {
        let name = &interface.name;
        log::warn!(
            "{name}: VLAN {vid} is no longer served: its P_Key is no longer in the port's table"
        );
        if let Some(link) = ip.vlans.remove(&vid) {
            link.fabric.close(&link.name(interface), port);
        }
        trunk.waiting.insert(vid);
    }
    let name = interface.name.clone();
    for vid in new {
        if let Err(why) = serve(interfaces, cx, id, vid) {
            log::debug!("{name}: VLAN {vid}: {why}");
        }
    }
}
