//! Assignments to virtual ports: LID, address, number. All are saved.

use log::Level;
use proto::{Mac, Qpn, Time};
use vnic::{Lid, generated_mac};

use super::agent::AgentKey;
use super::{Engine, QUARANTINE};
use crate::config::{MacSource, PortKey, SwitchConfig};
use crate::state::{MEMBERS_MAX, Member};

/// First assigned LID; 1 is the destination of traps.
const FIRST: u32 = 2;
/// Last assigned LID.
const LAST: u32 = 0xef_ffff;

impl Engine {
    /// Assigns LID, address and number to a port that is on a switch. The port must have been read first: a
    /// port that already forwards keeps its LID.
    pub(super) fn ensure_member(&mut self, now: Time, key: PortKey) {
        let agent = AgentKey::of(key);
        let Some((agent, vport)) = self.agents.get(&agent).and_then(|agent| {
            let vport = agent.ports.get(&key.index)?;
            Some((agent, vport))
        }) else {
            return;
        };
        let (Some(id), Some(info)) = (vport.switch, &vport.info) else {
            return;
        };
        let given = self.state.members.get(&key);
        let same = given.is_some_and(|given| {
            let there = (given.vesw, given.gid, given.payload_max, given.gone);
            there == (id, agent.at.gid, agent.payload_max, false)
                && given.description == agent.description
                && vport.qpn.is_none_or(|qpn| qpn == given.qpn)
        });
        if same && self.active && vport.assigned == self.settings {
            return;
        }
        let Some(config) = self.config.switch(id).cloned() else {
            return;
        };
        let reported = (info.vesw_id == id && info.encap_slid.is_unicast()).then_some(info);
        let reported = reported.map(|info| (info.encap_slid, info.base_mac_addr, info.port_num));
        let member = Member {
            vesw: id,
            lid: Lid::NONE,
            mac: [0; 6],
            port_num: 0,
            description: agent.description.clone(),
            interface: vport.interface.clone().unwrap_or_default(),
            gid: agent.at.gid,
            qpn: vport.qpn.unwrap_or(Qpn::new(0)),
            payload_max: agent.payload_max,
            gone: false,
            drained: false,
        };
        let given = self.state.members.get(&key);
        // A manager that is not active adopts what another manager has assigned.
        let follow = given.is_none_or(|given| given.vesw != id) || !self.active;
        let reported = reported
            .filter(|(lid, ..)| follow && self.lids.get(lid).is_none_or(|owner| *owner == key));
        if given.is_none() && reported.is_none() && !self.active {
            return;
        }
        let mut member = member;
        match (given, reported) {
            (_, Some((lid, mac, port_num))) => {
                member.lid = lid;
                member.mac = mac;
                member.port_num = port_num;
            }
            (Some(given), None) => {
                member.lid = given.lid;
                if given.vesw == id {
                    member.mac = given.mac;
                    member.port_num = given.port_num;
                }
            }
            (None, None) => {}
        }
        member.drained = given.is_some_and(|given| given.drained);
        self.complete(now, key, &config, member);
    }

    /// Completes an assignment and keeps it.
    fn complete(&mut self, now: Time, key: PortKey, config: &SwitchConfig, mut member: Member) {
        if !member.lid.is_unicast() {
            let Some(lid) = self.free_lid(key) else {
                self.refuse(key, "no LID is free".into());
                return;
            };
            member.lid = lid;
        }
        match self.choose_mac(key, config, &member) {
            Some(mac) => member.mac = mac,
            None => {
                let what = format!(
                    "all addresses in macs of the switch {:?} are in use",
                    config.name
                );
                // The port must leave its former switch, which no longer has the port as a member.
                let given = self.state.members.get(&key);
                if given.is_some_and(|given| given.vesw != config.id) {
                    self.release(now, key);
                }
                self.refuse(key, what);
                return;
            }
        }
        let taken = |num: u32| {
            let mut others = self.state.members.iter();
            others.any(|(k, m)| *k != key && m.vesw == config.id && m.port_num == num)
        };
        if member.port_num == 0 || (self.active && taken(member.port_num)) {
            member.port_num = self.free_number(key, config.id);
        }
        let settings = self.settings;
        if let Some(vport) = self.vport(AgentKey::of(key), key.index) {
            vport.assigned = settings;
        }
        let before = self.state.members.get(&key);
        if before == Some(&member) {
            return;
        }
        if before.is_none() && self.state.members.len() >= MEMBERS_MAX && !self.evict(now) {
            self.refuse(key, "the maximum number of virtual ports is reached".into());
            return;
        }
        let before = self.state.members.insert(key, member.clone());
        self.unsaved = true;
        if let Some(before) = before {
            if before.lid != member.lid {
                self.lids.remove(&before.lid);
                self.quarantine_lid(now, before.lid, key);
            }
            if before.vesw != member.vesw {
                self.leave(now, key, before.vesw);
            }
        }
        self.quarantine.remove(&member.lid);
        self.state.quarantined.remove(&member.lid);
        self.lids.insert(member.lid, key);
        self.join(now, key, member.vesw);
    }

    /// A free LID, derived from the port alone if possible: a manager that lost its state chooses the same.
    fn free_lid(&self, key: PortKey) -> Option<Lid> {
        let mut seed = key.guid.to_be_bytes().to_vec();
        seed.extend([key.port, key.index]);
        let many = LAST - FIRST + 1;
        let first = crc32fast::hash(&seed) % many;
        // Far fewer LIDs are in use.
        (0..=2 * MEMBERS_MAX as u32)
            .map(|step| Lid::new(FIRST + (first + step) % many))
            .find(|lid| {
                let quarantined = self.state.quarantined.get(lid);
                !self.lids.contains_key(lid) && quarantined.is_none_or(|owner| *owner == key)
            })
    }

    fn free_number(&self, key: PortKey, vesw: u16) -> u32 {
        let members = self.state.members.iter();
        let taken: std::collections::BTreeSet<u32> = members
            .filter(|(k, member)| **k != key && member.vesw == vesw)
            .map(|(_, member)| member.port_num)
            .collect();
        (1..)
            .find(|number| !taken.contains(number))
            .unwrap_or(u32::MAX)
    }

    /// Address of a port's interface: from `pinned_macs`, otherwise from the switch's source.
    fn choose_mac(&self, key: PortKey, config: &SwitchConfig, member: &Member) -> Option<Mac> {
        let pinned = config
            .pinned_macs
            .iter()
            .find(|pinned| pinned.port.matches(&member.description, key));
        if let Some(pinned) = pinned {
            return Some(pinned.mac);
        }
        let ranges = match &config.macs {
            MacSource::Generate => {
                let (fabric, id) = (config.fabric_id, config.id);
                return Some(generated_mac(fabric, id, member.lid, false));
            }
            MacSource::List(ranges) => ranges,
        };
        let others: std::collections::BTreeSet<Mac> = self
            .state
            .members
            .iter()
            .filter(|(other, m)| **other != key && m.vesw == config.id)
            .map(|(_, m)| m.mac)
            .chain(config.pinned_macs.iter().map(|pinned| pinned.mac))
            .collect();
        let within = |mac: &Mac| ranges.iter().any(|(low, high)| low <= mac && mac <= high);
        if within(&member.mac) && !others.contains(&member.mac) {
            return Some(member.mac);
        }
        ranges
            .iter()
            .flat_map(|(low, high)| number(*low)..=number(*high))
            .take(2 * MEMBERS_MAX)
            .map(address)
            .find(|mac| !others.contains(mac))
    }

    /// Removes a port that is gone, to make room.
    fn evict(&mut self, now: Time) -> bool {
        let gone = self.state.members.iter().find(|(_, member)| member.gone);
        let gone = gone.map(|(key, _)| *key);
        if let Some(key) = gone {
            self.release(now, key);
        }
        gone.is_some()
    }

    /// A port left its switch: its assignment is free, its LID after the quarantine.
    pub(super) fn release(&mut self, now: Time, key: PortKey) {
        let Some(member) = self.state.members.remove(&key) else {
            return;
        };
        self.unsaved = true;
        self.lids.remove(&member.lid);
        self.quarantine_lid(now, member.lid, key);
        self.leave(now, key, member.vesw);
        let name = self.name(key);
        self.log(
            Level::Info,
            format!(
                "{name} left the switch {}; released LID {}",
                member.vesw, member.lid
            ),
        );
    }

    /// Releases absent ports that are no longer members of a switch in the configuration.
    pub(super) fn release_strangers(&mut self, now: Time) {
        let strangers: Vec<PortKey> = self
            .state
            .members
            .iter()
            .filter(|(key, member)| {
                // A node that is here may have deleted the port.
                let agent = self.agents.get(&AgentKey::of(**key));
                let here = agent.is_some_and(|agent| agent.ports.contains_key(&key.index));
                let switch = self.config.switch(member.vesw);
                let on_it = |switch: &SwitchConfig| {
                    let mut members = switch.members.iter();
                    members.any(|pattern| pattern.matches(&member.description, **key))
                };
                !here && !switch.is_some_and(on_it)
            })
            .map(|(key, _)| *key)
            .collect();
        for key in strangers {
            self.release(now, key);
        }
    }

    /// Puts a LID into quarantine. If there are too many, the oldest become free earlier.
    fn quarantine_lid(&mut self, now: Time, lid: Lid, key: PortKey) {
        while self.quarantine.len() >= MEMBERS_MAX {
            let oldest = self.quarantine.iter().min_by_key(|(_, until)| **until);
            let Some(lid) = oldest.map(|(lid, _)| *lid) else {
                break;
            };
            self.quarantine.remove(&lid);
            self.state.quarantined.remove(&lid);
        }
        self.state.quarantined.insert(lid, key);
        self.quarantine.insert(lid, now.after(QUARANTINE));
    }

    /// Reports why a port cannot be on its switch, once for each reason.
    pub(super) fn refuse(&mut self, key: PortKey, why: String) {
        let name = self.name(key);
        let Some(vport) = self
            .agents
            .get_mut(&AgentKey::of(key))
            .and_then(|agent| agent.ports.get_mut(&key.index))
        else {
            return;
        };
        if vport.refused.as_ref() != Some(&why) {
            vport.refused = Some(why.clone());
            self.log(Level::Warn, format!("{name} is not set up: {why}"));
        }
    }
}

fn number(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn address(number: u64) -> Mac {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    [a, b, c, d, e, f]
}
