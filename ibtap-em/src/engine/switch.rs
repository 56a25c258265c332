//! A switch at run time: its members, absent members, and updates of its target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control::api::LinkAddress;
use log::Level;
use proto::{Mac, Time};
use vnic::attribute::VeswPortInfo;

use super::agent::AgentKey;
use super::claims::{Alarm, Claims};
use super::target::Target;
use super::{DISCOVERY, Engine, HOLD};
use crate::config::PortKey;
use crate::state::{CONTESTED_MAX, Member, State, SwitchMac};

/// Milliseconds for which changes are collected before messages are sent.
const GATHER: u64 = 50;

#[derive(Debug, Default)]
pub(super) struct Switch {
    pub(super) members: BTreeSet<PortKey>,
    pub(super) claims: Claims,
    pub(super) target: Arc<Target>,
    /// All remembered members were found again: from now on the engine also removes things.
    pub(super) settled: bool,
    settle_at: Option<Time>,
    /// Time of the next update of the target.
    due: Option<Time>,
    /// Time when the next member without an answer is gone.
    gone_at: Option<Time>,
}

impl Switch {
    pub(super) fn deadline(&self) -> Option<Time> {
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

    /// Members have to be discovered again.
    pub(super) fn unsettle(&mut self, attached: Time) {
        self.settled = false;
        self.settle_at = Some(attached.after(DISCOVERY));
    }
}

impl Engine {
    /// Creates the switches of the configuration and removes others.
    pub(super) fn make_switches(&mut self, now: Time) {
        let ids: BTreeSet<u16> = self.config.switches.iter().map(|s| s.id).collect();
        self.switches.retain(|id, _| ids.contains(id));
        let contested = self.state.contested.len();
        self.state.contested.retain(|at, _| ids.contains(&at.vesw));
        self.unsaved |= self.state.contested.len() != contested;
        for id in ids {
            let attached = self.attached;
            let state = &self.state;
            let switch = self.switches.entry(id).or_insert_with(|| {
                let mut switch = Switch {
                    claims: Claims::new(contested_on(state, id)),
                    ..Switch::default()
                };
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

    /// Marks the switches of an agent's ports.
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

    /// A port joined a switch, or its information has changed.
    pub(super) fn join(&mut self, now: Time, key: PortKey, id: u16) {
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.members.insert(key);
        }
        self.report_macs(now, key);
        self.mark_dirty(now, id);
    }

    /// A port left a switch.
    pub(super) fn leave(&mut self, now: Time, key: PortKey, id: u16) {
        let Some(switch) = self.switches.get_mut(&id) else {
            return;
        };
        switch.members.remove(&key);
        let none = BTreeSet::new();
        switch.claims.report(now, key, &none, &mut Vec::new());
        self.remember_contested(id);
        self.mark_dirty(now, id);
    }

    /// The list of addresses of a port's interface has changed.
    pub(super) fn report_macs(&mut self, now: Time, key: PortKey) {
        let Some(member) = self.state.members.get(&key) else {
            return;
        };
        let id = member.vesw;
        let vport = self
            .agents
            .get(&AgentKey::of(key))
            .and_then(|agent| agent.ports.get(&key.index));
        // Before its assignment, the interface has an address that no other member needs.
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
        self.remember_contested(id);
        for alarm in alarms {
            self.log_alarm(id, alarm);
        }
    }

    /// Saves the owners of contested addresses for the next run. Before all members were found again, the
    /// owners are unknown.
    fn remember_contested(&mut self, id: u16) {
        let switch = self.switches.get_mut(&id).filter(|s| s.settled);
        let Some(contested) = switch.and_then(|switch| switch.claims.take_contested()) else {
            return;
        };
        if *contested == contested_on(&self.state, id) {
            return;
        }
        self.state.contested.retain(|at, _| at.vesw != id);
        let room = CONTESTED_MAX.saturating_sub(self.state.contested.len());
        let of_switch = contested.iter().take(room);
        let of_switch = of_switch.map(|(mac, port)| {
            (
                SwitchMac {
                    vesw: id,
                    mac: *mac,
                },
                *port,
            )
        });
        self.state.contested.extend(of_switch);
        self.unsaved = true;
    }

    fn log_alarm(&mut self, id: u16, alarm: Alarm) {
        let switch = self.config.switch(id).map_or("", |s| &s.name).to_owned();
        let text = match alarm {
            Alarm::Duplicate { mac, from, to } => {
                self.done.moves += 1;
                format!(
                    "{switch}: {} is reported by {} and by {}; the newest, {2}, gets it",
                    LinkAddress(mac),
                    self.name(from),
                    self.name(to)
                )
            }
            Alarm::Damped { mac, at } => format!(
                "{switch}: {} moves too often; its moves are ignored for a minute; last at {}",
                LinkAddress(mac),
                self.name(at)
            ),
        };
        self.log(Level::Warn, text);
    }

    /// Updates an agent's members from its current information.
    pub(super) fn follow_node(&mut self, now: Time, key: AgentKey) {
        let all = key.vport(0)..=key.vport(u8::MAX);
        let mut changed = BTreeSet::new();
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        for (port, member) in self.state.members.range_mut(all) {
            let vport = agent.ports.get(&port.index);
            let gone = vport.is_none();
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
            self.remember_contested(id);
            let Some(switch) = self.switches.get(&id) else {
                continue;
            };
            let (due, gone, settle) = (switch.due, switch.gone_at, switch.settle_at);
            if reached(due) || reached(gone) {
                self.aim(now, id);
            }
            if reached(settle) {
                self.check_settled(now, id);
            }
        }
    }

    /// Checks whether all remembered members of a switch were found again.
    pub(super) fn check_settled(&mut self, now: Time, id: u16) {
        let (discovered, held) = (self.attached.after(DISCOVERY), self.attached.after(HOLD));
        let Some(switch) = self.switches.get_mut(&id) else {
            return;
        };
        if switch.settled || now < discovered {
            switch.settle_at = (!switch.settled).then_some(discovered);
            return;
        }
        let switch = &*switch;
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
            if settled {
                switch.claims.all_heard();
                // Missing members are known from now on.
                switch.due.get_or_insert(now.after(GATHER));
            }
        }
        self.remember_contested(id);
        touch.into_iter().for_each(|key| self.touch(key));
    }

    /// Finds absent members and updates the target.
    fn aim(&mut self, now: Time, id: u16) {
        self.find_gone(now, id);
        let (Some(config), Some(switch)) = (self.config.switch(id), self.switches.get(&id)) else {
            return;
        };
        let target = Arc::new(self.make_target(config, switch));
        let name = config.name.clone();
        let touch: Vec<AgentKey> = switch.members.iter().map(|k| AgentKey::of(*k)).collect();
        let before = match self.switches.get_mut(&id) {
            Some(switch) => {
                switch.due = None;
                std::mem::replace(&mut switch.target, Arc::clone(&target))
            }
            None => return,
        };
        for problem in target
            .problems
            .iter()
            .filter(|p| !before.problems.contains(p))
        {
            self.log(Level::Warn, format!("{name}: {problem}"));
        }
        if let (Some(old), Some(new)) = (before.eth_mtu, target.eth_mtu)
            && old != new
        {
            let text = format!("{name}: MTU changed from {old} to {new} bytes");
            self.log(Level::Info, text);
        }
        touch.into_iter().for_each(|key| self.touch(key));
    }

    /// A member that has not answered for the grace time is gone until it answers again.
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
            self.log(
                Level::Warn,
                format!("{name} is gone; other members drop its addresses, its LID stays reserved"),
            );
        }
        if let Some(switch) = self.switches.get_mut(&id) {
            switch.gone_at = next;
        }
    }
}

/// Saved owners of a switch's contested addresses.
fn contested_on(state: &State, id: u16) -> BTreeMap<Mac, PortKey> {
    let (first, last) = ([0; 6], [0xff; 6]);
    let all = SwitchMac {
        vesw: id,
        mac: first,
    }..=SwitchMac {
        vesw: id,
        mac: last,
    };
    let contested = state.contested.range(all);
    contested.map(|(at, port)| (at.mac, *port)).collect()
}
