//! What all members of a switch are to have in common: MTU, directory, MAC table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use log::Level;
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::directory::NodeAddress;
use vnic::mad::DIRECTORY_MAX;
use vnic::table::MAC_TABLE_ENTRIES;
use vnic::{Lid, Mac, Time};

use super::agent::AgentKey;
use super::claims::{Alarm, Claims};
use super::request::place;
use super::tables::{Content, directory_digest, table_digest};
use super::{DISCOVERY, Engine, HOLD};
use crate::config::{Pattern, PortKey, SwitchConfig, format_mac};
use crate::state::Member;

/// Milliseconds that changes are gathered for before they become messages.
const GATHER: u64 = 50;
/// The smallest payload that an interface can have (kernel include/uapi/linux/if_ether.h, ETH_MIN_MTU).
const MTU_MIN: u16 = 68;

#[derive(Debug, Default)]
pub(super) struct Switch {
    pub(super) members: BTreeSet<PortKey>,
    pub(super) claims: Claims,
    pub(super) target: Target,
    /// All that was known of it was heard of again: from now on things are taken away, too.
    pub(super) settled: bool,
    settle_at: Option<Time>,
    /// When the target is made anew.
    due: Option<Time>,
    /// When a member is gone whose agent does not answer.
    gone_at: Option<Time>,
}

/// What its members are to have.
#[derive(Debug, Default, Clone)]
pub(super) struct Target {
    /// `None` while nobody says what it can carry.
    pub(super) eth_mtu: Option<u16>,
    pub(super) directory: Arc<Vec<(Lid, NodeAddress)>>,
    pub(super) directory_digest: u32,
    pub(super) content: Arc<Content>,
    pub(super) digest: u32,
    pub(super) default_lids: [Lid; 16],
    pub(super) def_port_mask: u16,
    /// Members that cannot be, and why.
    pub(super) refused: BTreeMap<PortKey, String>,
    /// Addresses and whose they are, those included that are in no table.
    pub(super) sources: BTreeMap<Mac, Source>,
    pub(super) problems: Vec<String>,
}

/// How an address came to be known. The first of these that has it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    pub(super) port: PortKey,
    pub(super) lid: Lid,
    pub(super) origin: crate::api::MacOrigin,
}

/// The largest payload of an Ethernet frame with one tag, where a packet of the fabric has up to so many
/// bytes.
pub(super) const fn mtu_limit(payload_max: u16) -> u16 {
    // Of the longest packets 16333 bytes are left.
    vnic::packet::eth_mtu(payload_max as usize) as u16
}

/// The LID that everybody takes an address for that is locally administered (kernel opa_vnic_encap.c,
/// `opa_vnic_get_dlid`).
pub(super) const fn lid_in(mac: Mac) -> Option<Lid> {
    if mac[0] & 3 != 2 {
        return None;
    }
    Some(Lid::new(u32::from_le_bytes([mac[3], mac[4], mac[5], 0])))
}

impl Switch {
    pub(super) fn deadline(&self, _attached: Time) -> Option<Time> {
        [
            self.due,
            self.gone_at,
            self.settle_at,
            self.claims.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// It is to be found out again who is there.
    pub(super) fn unsettle(&mut self, attached: Time) {
        self.settled = false;
        self.settle_at = Some(attached.after(DISCOVERY));
    }
}

impl Engine {
    /// Makes the switches of the configuration, and has those go that are in it no more.
    pub(super) fn make_switches(&mut self, now: Time) {
        let ids: BTreeSet<u16> = self.config.switches.iter().map(|s| s.id).collect();
        self.switches.retain(|id, _| ids.contains(id));
        for id in ids {
            let attached = self.attached;
            let switch = self.switches.entry(id).or_insert_with(|| {
                let mut switch = Switch::default();
                switch.unsettle(attached);
                switch
            });
            let members = self.state.members.iter();
            switch.members = members
                .filter(|(_, member)| member.vesw == id)
                .map(|(key, _)| *key)
                .collect();
            self.mark_dirty(now, id);
        }
    }

    pub(super) fn mark_dirty(&mut self, now: Time, id: u16) {
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.due.get_or_insert(now.after(GATHER));
        }
    }

    /// The switches of an agent's ports.
    pub(super) fn mark_members_dirty(&mut self, now: Time, key: AgentKey) {
        for id in self.switches_of(key) {
            self.mark_dirty(now, id);
        }
    }

    fn switches_of(&self, key: AgentKey) -> BTreeSet<u16> {
        let all = key.vport(0)..=key.vport(u8::MAX);
        let members = self.state.members.range(all);
        members.map(|(_, member)| member.vesw).collect()
    }

    /// A port is on a switch, or what is known of it has changed.
    pub(super) fn join(&mut self, now: Time, key: PortKey, id: u16) {
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.members.insert(key);
        }
        self.report_macs(now, key);
        self.mark_dirty(now, id);
    }

    /// A port is no more.
    pub(super) fn leave(&mut self, now: Time, key: PortKey, id: u16) {
        let Some(switch) = self.switches.get_mut(&id) else {
            return;
        };
        switch.members.remove(&key);
        let none = BTreeSet::new();
        switch.claims.report(now, key, &none, &mut Vec::new());
        self.mark_dirty(now, id);
    }

    /// What a port's interface listens to has changed.
    pub(super) fn report_macs(&mut self, now: Time, key: PortKey) {
        let Some(member) = self.state.members.get(&key) else {
            return;
        };
        let id = member.vesw;
        let vport = self
            .agents
            .get(&AgentKey::of(key))
            .and_then(|agent| agent.ports.get(&key.index));
        // Before it has the address that it is given, the interface has one that nobody needs to know.
        let set_up = |info: &VeswPortInfo| info.vesw_id == id && info.base_mac_addr == member.mac;
        let Some(vport) = vport
            .filter(|vport| vport.is_read())
            .filter(|vport| vport.info.as_ref().is_some_and(set_up))
        else {
            return;
        };
        let macs = Arc::clone(&vport.unicast.macs);
        let Some(switch) = self.switches.get_mut(&id) else {
            return;
        };
        let mut alarms = Vec::new();
        if switch.claims.report(now, key, &macs, &mut alarms) {
            self.mark_dirty(now, id);
        }
        for alarm in alarms {
            self.tell_alarm(id, alarm);
        }
    }

    fn tell_alarm(&mut self, id: u16, alarm: Alarm) {
        let switch = self.config.switch(id).map_or("", |s| &s.name).to_owned();
        let text = match alarm {
            Alarm::Duplicate { mac, from, to } => {
                self.done.moves += 1;
                format!(
                    "{switch}: {} is at {} and at {}; the newest, {2}, has it",
                    format_mac(mac),
                    self.name(from),
                    self.name(to)
                )
            }
            Alarm::Damped { mac, at } => format!(
                "{switch}: {} goes to and fro; for a minute it is not followed, it was at {}",
                format_mac(mac),
                self.name(at)
            ),
        };
        self.tell(Level::Warn, text);
    }

    /// Members of an agent, as it tells of them now.
    pub(super) fn follow_node(&mut self, now: Time, key: AgentKey) {
        let all = key.vport(0)..=key.vport(u8::MAX);
        let mut changed = BTreeSet::new();
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        for (port, member) in self.state.members.range_mut(all) {
            let vport = agent.ports.get(&port.index);
            let gone = !vport.is_some_and(|v| v.interface.is_some() || v.exists());
            let mut now = Member {
                description: agent.description.clone(),
                gid: agent.at.gid,
                payload_max: agent.payload_max,
                gone,
                ..member.clone()
            };
            if let Some(vport) = vport.filter(|_| !gone) {
                now.qpn = vport.qpn.unwrap_or(now.qpn);
                now.interface = vport.interface.clone().unwrap_or_default();
            }
            if *member != now {
                changed.insert(now.vesw);
                *member = now;
            }
        }
        self.unsaved |= !changed.is_empty();
        for id in changed {
            self.mark_dirty(now, id);
        }
    }

    /// An agent answers again.
    pub(super) fn not_gone(&mut self, now: Time, key: AgentKey) {
        self.follow_node(now, key);
        self.mark_members_dirty(now, key);
    }

    pub(super) fn advance_switches(&mut self, now: Time) {
        for id in self.switches.keys().copied().collect::<Vec<_>>() {
            let reached = |at: Option<Time>| at.is_some_and(|at| at <= now);
            let Some(switch) = self.switches.get_mut(&id) else {
                continue;
            };
            if reached(switch.claims.deadline()) && switch.claims.advance(now) {
                switch.due = Some(now);
            }
            let (due, gone, settle) = (switch.due, switch.gone_at, switch.settle_at);
            if reached(due) || reached(gone) {
                self.aim(now, id);
            }
            if reached(settle) {
                self.check_settled(now, id);
            }
        }
    }

    /// Whether all that is known of a switch was heard of again.
    pub(super) fn check_settled(&mut self, now: Time, id: u16) {
        let Some(switch) = self.switches.get(&id) else {
            return;
        };
        let (discovered, held) = (self.attached.after(DISCOVERY), self.attached.after(HOLD));
        if switch.settled || now < discovered {
            return;
        }
        let known = |key: &PortKey| {
            let agent = self.agents.get(&AgentKey::of(*key));
            let vport = agent.and_then(|agent| agent.ports.get(&key.index));
            let gone = self.state.members.get(key).is_none_or(|m| m.gone);
            gone || vport.is_some_and(|vport| vport.is_read())
        };
        let settled = now >= held || switch.members.iter().all(known);
        let touch: Vec<AgentKey> = match settled {
            true => switch.members.iter().map(|k| AgentKey::of(*k)).collect(),
            false => Vec::new(),
        };
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.settled = settled;
            switch.settle_at = (!settled).then_some(held);
        }
        self.ready.extend(touch);
    }

    /// Finds out who is gone, and makes the target anew.
    fn aim(&mut self, now: Time, id: u16) {
        self.find_gone(now, id);
        let (Some(config), Some(switch)) = (self.config.switch(id), self.switches.get(&id)) else {
            return;
        };
        let target = self.make_target(config, switch);
        let name = config.name.clone();
        let touch: Vec<AgentKey> = switch.members.iter().map(|k| AgentKey::of(*k)).collect();
        let before = match self.switches.get_mut(&id) {
            Some(switch) => {
                switch.due = None;
                std::mem::replace(&mut switch.target, target.clone())
            }
            None => return,
        };
        for problem in target
            .problems
            .iter()
            .filter(|p| !before.problems.contains(p))
        {
            self.tell(Level::Warn, format!("{name}: {problem}"));
        }
        if let (Some(old), Some(new)) = (before.eth_mtu, target.eth_mtu)
            && old != new
        {
            let text = format!("{name}: the MTU is {new} bytes now, it was {old}");
            self.tell(Level::Info, text);
        }
        self.ready.extend(touch);
    }

    /// Who has not answered for the grace time is gone, until it answers again.
    fn find_gone(&mut self, now: Time, id: u16) {
        let grace = self.config.em.grace;
        let mut next: Option<Time> = None;
        let mut gone = Vec::new();
        let Some(switch) = self.switches.get(&id) else {
            return;
        };
        for key in &switch.members {
            let Some(member) = self.state.members.get(key).filter(|m| !m.gone) else {
                continue;
            };
            let until = match self.agents.get(&AgentKey::of(*key)) {
                Some(agent) if agent.is_away() => agent.heard.after(grace),
                Some(_) => continue,
                None => self.attached.after(grace),
            };
            if until <= now {
                gone.push((*key, member.description.clone()));
            } else {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        }
        for (key, _) in gone {
            if let Some(member) = self.state.members.get_mut(&key) {
                member.gone = true;
                self.unsaved = true;
            }
            let name = self.name(key);
            self.tell(
                Level::Warn,
                format!("{name} is gone; the others forget its addresses, its LID stays its own"),
            );
        }
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.gone_at = next;
        }
    }

    fn make_target(&self, config: &SwitchConfig, switch: &Switch) -> Target {
        let mut target = Target::default();
        let mut members: BTreeMap<PortKey, &Member> = switch
            .members
            .iter()
            .filter_map(|key| Some((*key, self.state.members.get(key)?)))
            .filter(|(_, member)| !member.gone)
            .collect();
        self.aim_mtu(config, &mut members, &mut target);
        if members.len() > DIRECTORY_MAX {
            target.problems.push(format!(
                "it has {} members, and {DIRECTORY_MAX} are possible; the last are left out",
                members.len()
            ));
            while members.len() > DIRECTORY_MAX {
                members.pop_last();
            }
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

    /// A member that carries less than the configured MTU cannot be one; without one all have what the
    /// smallest carries, those included that are away and may come back.
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
                "eth_mtu = {least} is more than the {limit} bytes that {} can carry",
                self.name(*key)
            );
            target.problems.push(format!("{what}; it is left out"));
            target.refused.insert(*key, what);
            false
        });
        let limits = members.values().map(|m| mtu_limit(m.payload_max));
        target.eth_mtu = config.eth_mtu.or_else(|| limits.min());
    }

    /// What a member is to be set to; `None` while that is not known.
    pub(super) fn wanted(&self, key: PortKey, now_is: &VeswPortInfo) -> Option<VeswPortInfo> {
        let member = self.state.members.get(&key)?;
        let config = self.config.switch(member.vesw)?;
        let target = &self.switches.get(&member.vesw)?.target;
        let drained = member.drained || self.state.drained.contains(&member.vesw);
        let held = drained || target.refused.contains_key(&key);
        Some(VeswPortInfo {
            fabric_id: config.fabric_id,
            vesw_id: config.id,
            def_port_mask: target.def_port_mask,
            pkey: config.pkey,
            u_mcast_dlid: config.u_mcast_dlid,
            u_ucast_dlid: target.default_lids,
            rc: config.rc,
            eth_mtu: target.eth_mtu?,
            port_num: member.port_num,
            base_mac_addr: member.mac,
            config_state: match held {
                true => ConfigState::DropAll,
                false => ConfigState::Forwarding,
            },
            encap_slid: member.lid,
            classes: config.classes.clone(),
            // What is read-only, or nobody's, stays what it is.
            ..now_is.clone()
        })
    }
}

/// The ports that unknown addresses go to.
fn aim_default_ports(
    config: &SwitchConfig,
    members: &BTreeMap<PortKey, &Member>,
    target: &mut Target,
) {
    for (slot, port) in &config.default_ports {
        match find(port, members) {
            Some((_, member)) => {
                target.default_lids[usize::from(*slot) % 16] = member.lid;
                target.def_port_mask |= 1 << (slot % 16);
            }
            None => target.problems.push(format!(
                "the default port {port} is not there, or no member"
            )),
        }
    }
}

fn aim_macs(
    config: &SwitchConfig,
    switch: &Switch,
    members: &BTreeMap<PortKey, &Member>,
    target: &mut Target,
) {
    use crate::api::MacOrigin;
    let mut found: Vec<(Mac, PortKey, MacOrigin)> = Vec::new();
    for fixed in &config.static_macs {
        match find(&fixed.port, members) {
            Some((key, _)) => found.push((fixed.mac, key, MacOrigin::Static)),
            None => target.problems.push(format!(
                "{} of static_macs is at {}, which is not there, or no member",
                format_mac(fixed.mac),
                fixed.port
            )),
        }
    }
    found.extend(
        members
            .iter()
            .map(|(key, m)| (m.mac, *key, MacOrigin::Base)),
    );
    let reported = switch.claims.owners();
    found.extend(reported.map(|(mac, key)| (mac, key, MacOrigin::Reported)));
    let mut content = Content::new();
    let mut left_out = 0;
    for (mac, port, origin) in found {
        let Some(member) = members.get(&port) else {
            continue;
        };
        if target.sources.contains_key(&mac) {
            continue;
        }
        let lid = member.lid;
        let source = Source { port, lid, origin };
        target.sources.insert(mac, source);
        // Everybody knows those from the address itself.
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
            "{left_out} addresses are in no table, which has {MAC_TABLE_ENTRIES} entries; ports that learn \
             find them, others do not"
        ));
    }
    target.digest = table_digest(&content);
    target.content = Arc::new(content);
}

/// The member that a pattern without wildcards names.
fn find<'a>(
    pattern: &Pattern,
    members: &BTreeMap<PortKey, &'a Member>,
) -> Option<(PortKey, &'a Member)> {
    members
        .iter()
        .find(|(key, member)| pattern.matches(&member.description, **key))
        .map(|(key, member)| (*key, *member))
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
}
