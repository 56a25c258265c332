//! Addresses and multicast LIDs of a switch.

use std::collections::BTreeMap;

use control::api::LinkAddress;
use toml::Spanned;
use vnic::Lid;

use super::super::values::{group_mac, mac_range, number, text, unicast_mac};
use super::super::{GroupLid, MacSource, PinnedMac, SwitchConfig};
use super::{Fault, Group, MULTICAST_LIDS, PortMac, Vesw, exact, narrow};

pub(super) fn mac_source(raw: &Vesw) -> Result<MacSource, Fault> {
    let list = match &raw.mac {
        None => false,
        Some(written) => match text("mac", written)?.as_str() {
            "generate" => false,
            "list" => true,
            _ => {
                let what = format!(
                    "mac = {} is not \"generate\" or \"list\"",
                    written.get_ref()
                );
                return Err(Fault::at(written, what));
            }
        },
    };
    match (list, raw.macs.first(), &raw.mac) {
        (true, None, Some(written)) if raw.pinned_macs.is_empty() => Err(Fault::at(
            written,
            "mac = \"list\" needs addresses; add macs = [\"02:00:00:00:00:01-02:00:00:00:00:ff\"]",
        )),
        (false, Some(first), _) => Err(Fault::at(
            first,
            "macs needs mac = \"list\"; set that, or remove macs",
        )),
        (false, None, _) => Ok(MacSource::Generate),
        (true, ..) => {
            let ranges = raw.macs.iter().map(|written| mac_range("macs", written));
            Ok(MacSource::List(ranges.collect::<Result<_, _>>()?))
        }
    }
}

/// Fixed addresses of interfaces; each port has one.
pub(super) fn pinned(raw: &[Spanned<PortMac>]) -> Result<Vec<PinnedMac>, Fault> {
    let pinned = port_macs("pinned_macs", raw)?;
    for (at, one) in pinned.iter().enumerate() {
        if let Some(other) = pinned[..at].iter().find(|o| o.port.names(&one.port)) {
            let what = format!(
                "port = \"{}\" already has {} in pinned_macs; an interface has one address",
                one.port,
                LinkAddress(other.mac)
            );
            return Err(Fault::at(&raw[at].get_ref().port, what));
        }
    }
    Ok(pinned)
}

pub(super) fn port_macs(key: &str, raw: &[Spanned<PortMac>]) -> Result<Vec<PinnedMac>, Fault> {
    let mut macs: Vec<PinnedMac> = Vec::new();
    for written in raw {
        let raw = written.get_ref();
        let mac = unicast_mac("mac", &raw.mac)?;
        let port = exact("port", &raw.port)?;
        if macs.iter().any(|other| other.mac == mac) {
            let what = format!("mac = {} appears twice in {key}", raw.mac.get_ref());
            return Err(Fault::at(&raw.mac, what));
        }
        macs.push(PinnedMac { mac, port });
    }
    Ok(macs)
}

/// Groups with a separate multicast LID.
pub(super) fn groups(raw: &[Spanned<Group>]) -> Result<Vec<GroupLid>, Fault> {
    let mut groups: Vec<GroupLid> = Vec::new();
    for written in raw {
        let raw = written.get_ref();
        let mac = group_mac("mac", &raw.mac)?;
        let lid = Lid::new(narrow(number("lid", &raw.lid, MULTICAST_LIDS)?));
        if groups.iter().any(|other| other.mac == mac) {
            let what = format!("mac = {} appears twice in groups", raw.mac.get_ref());
            return Err(Fault::at(&raw.mac, what));
        }
        groups.push(GroupLid { mac, lid });
    }
    Ok(groups)
}

/// Checks that the multicast LIDs of all switches and groups are unique.
pub(super) fn check_lids(
    raw: &Vesw,
    switch: &SwitchConfig,
    others: &[SwitchConfig],
) -> Result<(), Fault> {
    let mut taken: BTreeMap<Lid, String> = others.iter().flat_map(lids).collect();
    let group_places = raw.groups.iter().map(|group| &group.get_ref().lid);
    let own_place = raw.u_mcast_dlid.as_ref().unwrap_or(&raw.id);
    let places = std::iter::once(("u_mcast_dlid", own_place));
    let places = places.chain(group_places.map(|place| ("lid", place)));
    for ((lid, whose), (key, place)) in lids(switch).into_iter().zip(places) {
        if let Some(owner) = taken.insert(lid, whose) {
            let what = format!("{key} = {lid} is already used by {owner}; use another");
            return Err(Fault::at(place, what));
        }
    }
    Ok(())
}

/// The multicast LIDs of a switch with their owners; the switch's own LID is first.
fn lids(switch: &SwitchConfig) -> Vec<(Lid, String)> {
    let name = &switch.name;
    let own = (switch.u_mcast_dlid, format!("the switch {name:?}"));
    let groups = switch.groups.iter().map(|group| {
        let mac = LinkAddress(group.mac);
        (group.lid, format!("the group {mac} of {name:?}"))
    });
    std::iter::once(own).chain(groups).collect()
}
