//! Answers to queries.

use std::collections::BTreeSet;

use vnic::attribute::ConfigState;

use control::api::LinkAddress;
use proto::Time;

use super::Engine;
use super::agent::{Agent, AgentKey, Vport};
use super::target::mtu_limit;
use crate::api::{GroupInfo, MacInfo, PortCondition, PortInfo, VeswInfo, VeswSelection};
use crate::config::{GroupLid, Pattern, PortKey, SwitchConfig};
use crate::seam::Overview;

impl Engine {
    pub(super) fn find_switch(&self, named: &str) -> Result<&SwitchConfig, String> {
        let id = named.parse::<u16>().ok();
        let mut switches = self.config.switches.iter();
        switches
            .find(|switch| switch.name == named || Some(switch.id) == id)
            .ok_or_else(|| format!("no switch {named:?}; `ibtap-em vesw` lists the switches"))
    }

    /// The selected switches, ordered by id.
    fn select(&self, which: &VeswSelection) -> Result<Vec<&SwitchConfig>, String> {
        let mut switches: Vec<&SwitchConfig> = match &which.vesw {
            Some(named) => vec![self.find_switch(named)?],
            None => self.config.switches.iter().collect(),
        };
        switches.sort_by_key(|switch| switch.id);
        Ok(switches)
    }

    pub(super) fn vesw_name(&self, key: PortKey) -> Option<String> {
        let member = self.state.members.get(&key)?;
        Some(self.config.switch(member.vesw)?.name.clone())
    }

    fn vport_of(&self, key: PortKey) -> Option<(&Agent, &Vport)> {
        let agent = self.agents.get(&AgentKey::of(key))?;
        Some((agent, agent.ports.get(&key.index)?))
    }

    pub(super) fn show_overview(&self) -> Overview {
        let away = self.agents.values().filter(|agent| agent.is_away()).count();
        let members = self.state.members.iter().filter(|(_, m)| !m.gone);
        let mut problems = Vec::new();
        if let Some((why, _)) = &self.save_failed {
            problems.push(why.clone());
        }
        for config in &self.config.switches {
            let switch = self.switches.get(&config.id);
            let of_switch = switch.into_iter().flat_map(|s| &s.target.problems);
            problems.extend(of_switch.map(|problem| format!("{}: {problem}", config.name)));
        }
        let d = &self.done;
        Overview {
            agents: self.agents.len() - away,
            agents_away: away,
            switches: self.config.switches.len(),
            members: members.clone().count(),
            forwarding: members.filter(|(key, _)| self.forwards(**key)).count(),
            outstanding: self.open.len() + self.ready.len() + self.unsure.len(),
            problems,
            counters: vec![
                ("requests", d.requests),
                ("sets", d.sets),
                ("repeated", d.repeated),
                ("given_up", d.given_up),
                ("refused", d.refused),
                ("malformed", d.malformed),
                ("unexpected", d.unexpected),
                ("traps", d.traps),
                ("announcements", d.announcements),
                ("announcements_early", d.announcements_early),
                ("agents_refused", d.agents_refused),
                ("moves_refused", d.moves_refused),
                ("mac_moves", d.moves),
                ("saves_failed", d.saves_failed),
            ],
        }
    }

    fn forwards(&self, key: PortKey) -> bool {
        self.condition(key) == PortCondition::Forwarding
    }

    fn condition(&self, key: PortKey) -> PortCondition {
        let member = self.state.members.get(&key);
        let Some((agent, vport)) = self.vport_of(key) else {
            return PortCondition::Away;
        };
        if agent.is_away() || member.is_some_and(|member| member.gone) {
            return PortCondition::Away;
        }
        if vport.switch.is_none() {
            return PortCondition::Unassigned;
        }
        if self.problem(key, vport).is_some() {
            return PortCondition::Refused;
        }
        if member.is_some_and(|member| self.state.is_drained(member)) {
            return PortCondition::Drained;
        }
        let on_it = |info: &&vnic::attribute::VeswPortInfo| Some(info.vesw_id) == vport.switch;
        match vport.info.as_ref().filter(on_it) {
            Some(info) if info.oper_state == ConfigState::Forwarding => PortCondition::Forwarding,
            Some(info) if info.config_state == ConfigState::Forwarding => PortCondition::Down,
            _ => PortCondition::Pending,
        }
    }

    fn problem(&self, key: PortKey, vport: &Vport) -> Option<String> {
        let target = vport.switch.and_then(|id| self.switches.get(&id));
        let refused = target.and_then(|switch| switch.target.refused.get(&key));
        refused.or(vport.refused.as_ref()).cloned()
    }

    pub(super) fn show_switches(&self, which: &VeswSelection) -> Result<Vec<VeswInfo>, String> {
        let show = |config: &SwitchConfig| {
            let switch = self.switches.get(&config.id);
            let members = switch.into_iter().flat_map(|switch| &switch.members);
            let target = switch.map(|switch| &switch.target);
            VeswInfo {
                name: config.name.clone(),
                id: config.id,
                fabric_id: config.fabric_id,
                pkey: config.pkey,
                eth_mtu: target.and_then(|target| target.eth_mtu),
                u_mcast_dlid: config.u_mcast_dlid,
                groups: config
                    .groups
                    .iter()
                    .map(|group| self.show_group(group, members.clone()))
                    .collect(),
                members: members.clone().count(),
                forwarding: members.filter(|key| self.forwards(**key)).count(),
                mac_entries: target.map_or(0, |target| target.content.len()),
                drained: self.state.drained.contains(&config.id),
                problems: target.map(|t| t.problems.clone()).unwrap_or_default(),
            }
        };
        Ok(self.select(which)?.into_iter().map(show).collect())
    }

    fn show_group<'a>(
        &self,
        group: &GroupLid,
        members: impl Iterator<Item = &'a PortKey>,
    ) -> GroupInfo {
        let listens = |key: &&PortKey| {
            let vport = self.vport_of(**key);
            vport.is_some_and(|(_, vport)| vport.multicast.macs.contains(&group.mac))
        };
        GroupInfo {
            mac: LinkAddress(group.mac),
            lid: group.lid,
            listeners: members.filter(listens).count(),
        }
    }

    pub(super) fn show_ports(
        &self,
        now: Time,
        which: &VeswSelection,
    ) -> Result<Vec<PortInfo>, String> {
        let ids: BTreeSet<u16> = self.select(which)?.iter().map(|s| s.id).collect();
        let known = self.agents.iter().flat_map(|(agent, known)| {
            let indexes = known.ports.keys();
            indexes.map(|index| agent.vport(*index))
        });
        let keys: BTreeSet<PortKey> = known.chain(self.state.members.keys().copied()).collect();
        let selected = keys.into_iter().filter(|key| {
            let vport = self.vport_of(*key).and_then(|(_, vport)| vport.switch);
            let member = self.state.members.get(key).map(|member| member.vesw);
            let on = vport.or(member);
            which.vesw.is_none() || on.is_some_and(|id| ids.contains(&id))
        });
        Ok(selected.map(|key| self.show_port(now, key)).collect())
    }

    fn show_port(&self, now: Time, key: PortKey) -> PortInfo {
        let member = self.state.members.get(&key);
        let agent = self.agents.get(&AgentKey::of(key));
        let vport = agent.and_then(|agent| agent.ports.get(&key.index));
        let named = vport.and_then(|vport| vport.interface.clone());
        let remembered = || member.map(|member| member.interface.clone());
        let payload = agent
            .map(|a| a.payload_max)
            .or(member.map(|m| m.payload_max));
        let qpn = vport.and_then(|v| v.qpn).or(member.map(|m| m.qpn));
        PortInfo {
            port: key.to_string(),
            name: self.name(key),
            interface: named.or_else(remembered).unwrap_or_default(),
            vesw: self.vesw_name(key),
            condition: self.condition(key),
            lid: member.map(|member| member.lid),
            mac: member.map(|member| LinkAddress(member.mac)),
            gid: agent.map(|a| a.at.gid).or(member.map(|m| m.gid)),
            qpn: qpn.filter(|qpn| qpn.get() != 0),
            mtu_limit: payload.map(mtu_limit),
            digest: vport.and_then(|v| Some(v.info.as_ref()?.mac_tbl_digest)),
            heard_ms: agent.map(|agent| now.since(agent.heard)),
            problem: vport.and_then(|vport| self.problem(key, vport)),
        }
    }

    pub(super) fn show_macs(&self, which: &VeswSelection) -> Result<Vec<MacInfo>, String> {
        let mut macs = Vec::new();
        for config in self.select(which)? {
            let Some(switch) = self.switches.get(&config.id) else {
                continue;
            };
            let target = &switch.target;
            macs.extend(target.sources.iter().map(|(mac, source)| MacInfo {
                vesw: config.name.clone(),
                mac: LinkAddress(*mac),
                lid: source.lid,
                port: source.port.map(|port| port.to_string()),
                name: source.port.map(|port| self.name(port)),
                origin: source.origin,
                in_table: target.content.contains_key(mac),
            }));
        }
        Ok(macs)
    }
}

/// Error text for a pattern without matching members.
pub(super) fn no_member(pattern: &Pattern) -> String {
    format!("no member of a switch matches {pattern}; `ibtap-em port` lists the ports")
}
