//! A switch while it lives: who is on it, who is gone, when what they are to have is made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use log::Level;
use proto::{Mac, Time};
use vnic::attribute::VeswPortInfo;

use super::agent::AgentKey;
use super::claims::{Alarm, Claims};
use super::target::Target;
use super::{DISCOVERY, Engine, HOLD};
use crate::config::{PortKey, format_mac};
use crate::state::{CONTESTED_MAX, Member, State, SwitchMac};

/// Milliseconds that changes are gathered for before they become messages.
const GATHER: u64 = 50;

#[derive(Debug, Default)]
pub(super) struct Switch {
    pub(super) members: BTreeSet<PortKey>,
    pub(super) claims: Claims,
    pub(super) target: Arc<Target>,
    /// All that was known of it was heard of again: from now on things are taken away, too.
    pub(super) settled: bool,
    settle_at: Option<Time>,
    /// When the target is made anew.
    due: Option<Time>,
    /// When a member is gone whose agent does not answer.
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
        self.remember_contested(id);
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
        self.remember_contested(id);
        for alarm in alarms {
            self.tell_alarm(id, alarm);
        }
    }

    /// Who has an address that several claim has it after a restart, too. While not all were heard of
    /// again that is not known.
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

    /// Whether all that is known of a switch was heard of again.
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
                // What is missing can be told from now on.
                switch.due.get_or_insert(now.after(GATHER));
            }
        }
        self.remember_contested(id);
        touch.into_iter().for_each(|key| self.touch(key));
    }

    /// Finds out who is gone, and makes the target anew.
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
            self.tell(Level::Warn, format!("{name}: {problem}"));
        }
        if let (Some(old), Some(new)) = (before.eth_mtu, target.eth_mtu)
            && old != new
        {
            let text = format!("{name}: the MTU is {new} bytes now, it was {old}");
            self.tell(Level::Info, text);
        }
        touch.into_iter().for_each(|key| self.touch(key));
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
}

/// Addresses of a switch that several ports claim, as state has them.
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
