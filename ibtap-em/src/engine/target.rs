//! The common state of all members of a switch: MTU, directory, MAC table.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::api::LinkAddress;
use proto::Mac;
use vnic::Lid;
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::directory::NodeAddress;
use vnic::mac_table::MAC_TABLE_ENTRIES;
use vnic::mad::DIRECTORY_MAX;

use super::Engine;
use super::agent::AgentKey;
use super::request::place;
use super::switch::Switch;
use super::tables::{Content, content_sum, directory_digest};
use crate::api::MacOrigin;
use crate::config::{GroupLid, Pattern, PortKey, SwitchConfig};
use crate::state::Member;

/// Smallest MTU of an interface (kernel include/uapi/linux/if_ether.h, ETH_MIN_MTU).
const MTU_MIN: u16 = 68;

/// The wanted state of all members.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// `None` while no member's limit is known.
    pub(super) eth_mtu: Option<u16>,
    pub(super) directory: Arc<Vec<(Lid, NodeAddress)>>,
    pub(super) directory_digest: u32,
    pub(super) content: Arc<Content>,
    pub(super) content_sum: u32,
    pub(super) default_lids: [Lid; 16],
    pub(super) def_port_mask: u16,
    /// Members that cannot be on the switch, with the reason.
    pub(super) refused: BTreeMap<PortKey, String>,
    /// All addresses with their sources, including addresses that are not in the table.
    pub(super) sources: BTreeMap<Mac, Source>,
    pub(super) problems: Vec<String>,
}

/// Source of an address. The first source of an address counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    /// `None` for a group.
    pub(super) port: Option<PortKey>,
    pub(super) lid: Lid,
    pub(super) origin: MacOrigin,
}

/// MTU of Ethernet, with one VLAN tag, for packets with a payload of `payload_max` bytes.
pub(super) const fn mtu_limit(payload_max: u16) -> u16 {
    // At most 16333 bytes.
    vnic::packet::eth_mtu(payload_max as usize) as u16
}

/// The LID in a locally administered address (kernel opa_vnic_encap.c, `opa_vnic_get_dlid`).
pub(super) const fn lid_in(mac: Mac) -> Option<Lid> {
    if mac[0] & 3 != 2 {
        return None;
    }
    Some(Lid::new(u32::from_le_bytes([mac[3], mac[4], mac[5], 0])))
}

impl Engine {
    pub(super) fn make_target(&self, config: &SwitchConfig, switch: &Switch) -> Target {
        let mut target = Target::default();
        let mut members: BTreeMap<PortKey, &Member> = switch
            .members
            .iter()
            .filter_map(|key| Some((*key, self.state.members.get(key)?)))
            .filter(|(_, member)| !member.gone)
            .collect();
        self.aim_mtu(config, &mut members, &mut target);
        members.retain(|key, _| !self.is_missing(*key));
        if members.len() > DIRECTORY_MAX {
            target.problems.push(format!(
                "{} members, more than the maximum of {DIRECTORY_MAX}; the newest are left out",
                members.len()
            ));
            leave_out_newest(&mut members, DIRECTORY_MAX);
        }
        let mut directory: Vec<_> = members
            .values()
            .map(|member| place(member.lid, member.gid, member.qpn))
            .collect();
        directory.sort_by_key(|(lid, _)| *lid);
        target.directory_digest = directory_digest(&directory);
        target.directory = Arc::new(directory);
        aim_default_ports(config, &members, &mut target);
        aim_macs(config, switch, &members, &mut target);
        target
    }

    /// A port that was neither announced nor created by its agent does not exist.
    fn is_missing(&self, key: PortKey) -> bool {
        let agent = self.agents.get(&AgentKey::of(key));
        let vport = agent.and_then(|agent| agent.ports.get(&key.index));
        vport.is_some_and(|v| v.interface.is_none() && v.info.is_some() && !v.exists())
    }

    /// A member whose limit is below the configured MTU is refused. Without a configured MTU, the smallest
    /// limit counts, including those of members that are away and may return.
    fn aim_mtu(
        &self,
        config: &SwitchConfig,
        members: &mut BTreeMap<PortKey, &Member>,
        target: &mut Target,
    ) {
        let least = config.eth_mtu.unwrap_or(MTU_MIN);
        members.retain(|key, member| {
            let limit = mtu_limit(member.payload_max);
            if limit >= least {
                return true;
            }
            let what = format!(
                "eth_mtu = {least} exceeds the {limit} bytes that {} can carry",
                self.name(*key)
            );
            target
                .problems
                .push(format!("{what}; this port is left out"));
            target.refused.insert(*key, what);
            false
        });
        let limits = members.values().map(|m| mtu_limit(m.payload_max));
        target.eth_mtu = config.eth_mtu.or_else(|| limits.min());
    }

    /// The wanted VeswPortInfo of a member; `None` while it is unknown.
    pub(super) fn wanted(&self, key: PortKey, now_is: &VeswPortInfo) -> Option<VeswPortInfo> {
        let member = self.state.members.get(&key)?;
        let config = self.config.switch(member.vesw)?;
        let target = &self.switches.get(&member.vesw)?.target;
        let refused = target.refused.contains_key(&key);
        let held = self.state.is_drained(member) || refused;
        let eth_mtu = target.eth_mtu?;
        Some(VeswPortInfo {
            fabric_id: config.fabric_id,
            vesw_id: config.id,
            def_port_mask: target.def_port_mask,
            pkey: config.pkey,
            u_mcast_dlid: config.u_mcast_dlid,
            u_ucast_dlid: target.default_lids,
            rc: config.rc,
            // The agent takes no MTU over the limit of its port, not even to stop the port.
            eth_mtu: match refused {
                true => eth_mtu.min(mtu_limit(member.payload_max)),
                false => eth_mtu,
            },
            port_num: member.port_num,
            base_mac_addr: member.mac,
            config_state: match held {
                true => ConfigState::DropAll,
                false => ConfigState::Forwarding,
            },
            encap_slid: member.lid,
            classes: config.classes.clone(),
            // Read-only and reserved fields keep their values.
            ..now_is.clone()
        })
    }
}

/// Keeps `most` members. Numbers are assigned from 1, so the newest members have the highest.
fn leave_out_newest(members: &mut BTreeMap<PortKey, &Member>, most: usize) {
    let numbered = members.iter().map(|(key, member)| (member.port_num, *key));
    let mut numbered: Vec<(u32, PortKey)> = numbered.collect();
    numbered.sort_unstable();
    for (_, key) in numbered.iter().skip(most) {
        members.remove(key);
    }
}

/// Default ports for unknown addresses.
fn aim_default_ports(
    config: &SwitchConfig,
    members: &BTreeMap<PortKey, &Member>,
    target: &mut Target,
) {
    for (slot, port) in &config.default_ports {
        match find(port, members, &mut target.problems) {
            Some((_, member)) => {
                target.default_lids[usize::from(*slot) % 16] = member.lid;
                target.def_port_mask |= 1 << (slot % 16);
            }
            None => target
                .problems
                .push(format!("the default port {port} is absent or not a member")),
        }
    }
}

fn aim_macs(
    config: &SwitchConfig,
    switch: &Switch,
    members: &BTreeMap<PortKey, &Member>,
    target: &mut Target,
) {
    // Configured addresses first: they must have room in the table.
    let groups = config.groups.iter();
    let mut found: Vec<(Mac, Source)> = groups.map(|group| (group.mac, of_group(group))).collect();
    for fixed in &config.static_macs {
        match find(&fixed.port, members, &mut target.problems) {
            Some((key, m)) => found.push((fixed.mac, of_port(key, m, MacOrigin::Static))),
            None => target.problems.push(format!(
                "static_macs: {} is at {}, which is absent or not a member",
                LinkAddress(fixed.mac),
                fixed.port
            )),
        }
    }
    let bases = members.iter();
    found.extend(bases.map(|(key, m)| (m.mac, of_port(*key, m, MacOrigin::Base))));
    let is_member = |key: &PortKey| members.contains_key(key);
    found.extend(switch.claims.places(is_member).filter_map(|(mac, key)| {
        let member = members.get(&key)?;
        Some((mac, of_port(key, member, MacOrigin::Reported)))
    }));
    let mut content = Content::new();
    let mut left_out = 0;
    for (mac, source) in found {
        if target.sources.contains_key(&mac) {
            continue;
        }
        let lid = source.lid;
        target.sources.insert(mac, source);
        // All members derive this LID from the address.
        if lid_in(mac) == Some(lid) {
            continue;
        }
        if content.len() < MAC_TABLE_ENTRIES {
            content.insert(mac, lid.get() << 8);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        target.problems.push(format!(
            "the MAC table is full with {MAC_TABLE_ENTRIES} entries; {left_out} addresses are left out: \
             only ports with learning find them"
        ));
    }
    if switch.settled {
        check_pinned(config, members, &mut target.problems);
    }
    target.content_sum = content_sum(&content);
    target.content = Arc::new(content);
}

/// Ports of `pinned_macs` that match no member or two. The check needs a settled switch.
fn check_pinned(
    config: &SwitchConfig,
    members: &BTreeMap<PortKey, &Member>,
    problems: &mut Vec<String>,
) {
    for pinned in &config.pinned_macs {
        if find(&pinned.port, members, problems).is_none() {
            problems.push(format!(
                "pinned_macs: {} is for {}, which is absent or not a member",
                LinkAddress(pinned.mac),
                pinned.port
            ));
        }
    }
}

const fn of_group(group: &GroupLid) -> Source {
    Source {
        port: None,
        lid: group.lid,
        origin: MacOrigin::Group,
    }
}

const fn of_port(port: PortKey, member: &Member, origin: MacOrigin) -> Source {
    Source {
        port: Some(port),
        lid: member.lid,
        origin,
    }
}

/// The member that a pattern without wildcards matches. Nodes choose their descriptions, so two may have the
/// same.
fn find<'a>(
    pattern: &Pattern,
    members: &BTreeMap<PortKey, &'a Member>,
    problems: &mut Vec<String>,
) -> Option<(PortKey, &'a Member)> {
    let all = members.iter().map(|(key, member)| (*key, *member));
    let mut found = all.filter(|(key, member)| pattern.matches(&member.description, *key));
    let first = found.next()?;
    if let Some((second, _)) = found.next() {
        let problem = format!(
            "{pattern} matches two ports, {} and {second}; the first is used; name the port by its GUID",
            first.0
        );
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_what_a_payload_has_room_for_with_one_tag() {
        for (payload, mtu) in [
            (256, 213),
            (512, 469),
            (1024, 981),
            (1472, 1429),
            (2048, 2005),
            (4096, 4053),
            (8972, 8925),
            (10240, 10_197),
            (16_376, 16_333),
            (u16::MAX, 16_333),
            (40, 0),
            (0, 0),
        ] {
            assert_eq!(mtu_limit(payload), mtu, "{payload}");
        }
    }

    #[test]
    fn only_addresses_of_one_local_interface_have_a_lid() {
        assert_eq!(lid_in([0x06, 0x2c, 0, 5, 0, 0]), Some(Lid::new(5)));
        assert_eq!(
            lid_in([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
            Some(Lid::new(0x56_3412))
        );
        assert_eq!(lid_in([0x00, 0x02, 0xc9, 5, 0, 0]), None);
        assert_eq!(lid_in([0x33, 0x33, 0, 5, 0, 0]), None);
    }

    #[test]
    fn of_too_many_members_the_newest_are_left_out() {
        let key = |guid| PortKey {
            guid,
            port: 1,
            index: 0,
        };
        let member = |port_num| Member {
            vesw: 2,
            lid: Lid::NONE,
            mac: [0; 6],
            port_num,
            description: String::new(),
            interface: String::new(),
            gid: proto::Gid::UNSPECIFIED,
            qpn: proto::Qpn::new(0),
            payload_max: 4096,
            gone: false,
            drained: false,
        };
        let all = [3, 1, 2].map(member);
        let mut members: BTreeMap<_, _> = (0..).map(key).zip(&all).collect();
        leave_out_newest(&mut members, 2);
        assert_eq!(members.into_keys().collect::<Vec<_>>(), [key(1), key(2)]);
    }
}
