//! The next request to an agent: the first difference between known and wanted state.

use std::collections::VecDeque;

use proto::Time;
use vnic::attribute::{ConfigState, LidDirectory, VeswPortInfo};
use vnic::mad::LID_DIRECTORY_PAGE;

use super::Engine;
use super::agent::{AgentKey, Vport};
use super::request::Request;
use super::tables::{Layout, Names, Page};
use super::target::Target;

impl Engine {
    pub(super) fn next_request(&mut self, now: Time, key: AgentKey) -> Option<Request> {
        let agent = self.agents.get_mut(&key)?;
        if agent.busy.is_some() || agent.silent {
            return None;
        }
        if let Some((index, kind, inquiry)) = agent.asks.pop_front() {
            return Some(Request::GetCounters(index, kind, inquiry));
        }
        if agent.poll_due {
            return Some(Request::NodeInfo(agent.page));
        }
        let Some(class_port) = agent.class_port else {
            return Some(Request::GetClassPortInfo);
        };
        let later = agent.traps_again.is_some_and(|again| again > now);
        if let Some(own) = self.own.filter(|_| self.active && !later)
            && class_port.trap_to() != Some((own.gid, own.qpn))
        {
            return Some(Request::SetTraps(class_port, own));
        }
        let indexes: Vec<u8> = agent.ports.keys().copied().collect();
        // All ports are read before the first Set, so that targets are complete.
        let read = indexes
            .iter()
            .find_map(|index| self.next_read(now, key, *index));
        read.or_else(|| {
            // Assignments of all its ports are saved at once.
            for index in &indexes {
                self.ensure_member(now, key.vport(*index));
            }
            // Each port that comes to a switch changes the directory and the table of the ports that are there already.
            let (there, missing): (Vec<u8>, Vec<u8>) = indexes
                .into_iter()
                .partition(|index| self.is_on_its_switch(key, *index));
            let mut indexes = missing.into_iter().chain(there);
            indexes.find_map(|index| self.next_set(now, key, index))
        })
    }

    fn is_on_its_switch(&self, key: AgentKey, index: u8) -> bool {
        let vport = self.agents.get(&key).and_then(|a| a.ports.get(&index));
        let Some((vport, info)) = vport.and_then(|v| Some((v, v.info.as_ref()?))) else {
            return false;
        };
        vport.exists() && vport.switch == Some(info.vesw_id)
    }

    fn next_read(&mut self, now: Time, key: AgentKey, index: u8) -> Option<Request> {
        let vport = self.agents.get(&key)?.ports.get(&index)?;
        if vport.again.is_some_and(|again| again > now) {
            return None;
        }
        if vport.info_due || vport.info.is_none() {
            return Some(Request::GetInfo(index));
        }
        // A port without switch needs no more information.
        if !vport.exists() || vport.switch.is_none() {
            return None;
        }
        if vport.directory.is_none() || vport.directory_due {
            return Some(Request::GetDirectory(index));
        }
        let (list, start) = vport.list_to_read()?;
        Some(Request::GetList(index, list, start))
    }

    fn next_set(&mut self, now: Time, key: AgentKey, index: u8) -> Option<Request> {
        let vport = self.agents.get(&key)?.ports.get(&index)?;
        if vport.again.is_some_and(|again| again > now) {
            return None;
        }
        let Some(id) = vport.switch else {
            let configured = vport.info.as_ref().is_some_and(|info| info.vesw_id != 0);
            let delete = self.active && configured && vport.exists();
            return delete.then_some(Request::Delete(index));
        };
        if !self.active {
            return None;
        }
        if self.switches.get(&id).is_some_and(|switch| !switch.settled) {
            self.check_settled(now, id);
        }
        let Some(member) = self.state.members.get(&key.vport(index)) else {
            // The port was refused. It must not stay on its former switch.
            let vport = self.agents.get(&key)?.ports.get(&index)?;
            let elsewhere = |info: &VeswPortInfo| info.vesw_id != 0 && info.vesw_id != id;
            let delete = vport.exists() && vport.info.as_ref().is_some_and(elsewhere);
            return delete.then_some(Request::Delete(index));
        };
        if member.gone || member.vesw != id {
            return None;
        }
        let info = self.agents.get(&key)?.ports.get(&index)?.info.clone()?;
        let wanted = self.wanted(key.vport(index), &info)?;
        let switch = self.switches.get(&id)?;
        // The port works, set up by the former manager. Before the switch is settled, this manager's
        // information may be incomplete.
        if !switch.settled && info.config_state == ConfigState::Forwarding {
            return None;
        }
        // The target is outdated while the port itself is missing from it.
        let target = std::sync::Arc::clone(&switch.target);
        let refused = target.refused.contains_key(&key.vport(index));
        let in_it = target
            .directory
            .binary_search_by_key(&member.lid, |(lid, _)| *lid);
        let vport = self.agents.get_mut(&key)?.ports.get_mut(&index)?;
        if in_it.is_err() && !refused && vport.exists() {
            return None;
        }
        // A refused port is stopped if it is on a switch; otherwise it has nothing to stop.
        if refused && (!vport.exists() || info.vesw_id == 0) {
            return None;
        }
        let request = bring(index, vport, &info, wanted, &target, &mut self.names);
        if matches!(request, Some(Request::SetTable(..))) {
            vport.written = Some(now);
        }
        if request.is_none() {
            // The port is as wanted, whichever manager set it. An assignment by older settings may still be
            // wrong.
            if vport.assigned == self.settings {
                vport.refused = None;
            }
            vport.failures = 0;
        }
        request
    }
}

/// The next step of a virtual port towards the wanted state.
fn bring(
    index: u8,
    vport: &mut Vport,
    info: &VeswPortInfo,
    wanted: VeswPortInfo,
    target: &Target,
    names: &mut Names,
) -> Option<Request> {
    let set = |state: ConfigState| {
        let info = VeswPortInfo {
            config_state: state,
            ..wanted.clone()
        };
        Some(Request::SetInfo(index, Box::new(info)))
    };
    let forwards = info.config_state == ConfigState::Forwarding;
    let hold = wanted.config_state != ConfigState::Forwarding;
    if forwards && hold {
        return set(ConfigState::DropAll);
    }
    if !same_place(info, &wanted) || !vport.exists() {
        // Its former state is invalid at the new place.
        return set(ConfigState::DropAll);
    }
    if !same_settings(info, &wanted) {
        return set(match forwards {
            true => ConfigState::Forwarding,
            false => ConfigState::DropAll,
        });
    }
    if let Some(request) = bring_directory(index, vport, target) {
        return Some(request);
    }
    if let Some(request) = bring_table(index, vport, info, target, names) {
        return Some(request);
    }
    let differs = info.config_state != wanted.config_state;
    differs.then(|| set(wanted.config_state)).flatten()
}

/// Whether packets find the port, and packets of other switches are dropped.
fn same_place(info: &VeswPortInfo, wanted: &VeswPortInfo) -> bool {
    (
        info.vesw_id,
        info.fabric_id,
        info.pkey,
        info.encap_slid,
        info.u_mcast_dlid,
    ) == (
        wanted.vesw_id,
        wanted.fabric_id,
        wanted.pkey,
        wanted.encap_slid,
        wanted.u_mcast_dlid,
    )
}

/// Whether all other values are as wanted, except for the forwarding state.
fn same_settings(info: &VeswPortInfo, wanted: &VeswPortInfo) -> bool {
    // Read-only values of `wanted` are those of the port.
    *info
        == VeswPortInfo {
            config_state: info.config_state,
            ..wanted.clone()
        }
}

fn bring_directory(index: u8, vport: &mut Vport, target: &Target) -> Option<Request> {
    if vport.directory == Some(target.directory_digest) {
        return None;
    }
    let all = &target.directory;
    let start = match vport.directory_sent {
        (digest, sent) if digest == target.directory_digest => usize::from(sent),
        _ => 0,
    };
    let start = if start < all.len() { start } else { 0 };
    let end = all.len().min(start + LID_DIRECTORY_PAGE);
    vport.directory_sent = (target.directory_digest, start as u16);
    // The directory of a switch has up to 8192 members.
    Some(Request::SetDirectory(
        index,
        LidDirectory {
            start: start as u16,
            total: all.len() as u16,
            digest: target.directory_digest,
            entries: all[start..end].to_vec(),
        },
    ))
}

fn bring_table(
    index: u8,
    vport: &mut Vport,
    info: &VeswPortInfo,
    target: &Target,
    names: &mut Names,
) -> Option<Request> {
    let nameless = info.mac_tbl_digest == 0;
    let layout = match &vport.layout {
        Some(layout) => layout,
        // No manager has set a table.
        None if nameless => vport.layout.insert(Layout::default()),
        None => {
            let place = match &vport.reading {
                Some((digest, _, place)) if *digest == info.mac_tbl_digest => *place,
                _ => 0,
            };
            if place == 0 {
                vport.reading = Some((info.mac_tbl_digest, Layout::default(), 0));
            }
            return Some(Request::GetTable(index, place));
        }
    };
    let plan = match &mut vport.plan {
        Some((sum, pages)) if *sum == target.content_sum => pages,
        _ => {
            let pages: VecDeque<Page> = layout.plan(&target.content).into();
            &mut vport.plan.insert((target.content_sum, pages)).1
        }
    };
    let page = plan.front().cloned();
    // Sets a digest alone if no entry changes.
    let page = page.or_else(|| {
        nameless.then_some(Page {
            offset: 0,
            entries: Vec::new(),
        })
    })?;
    Some(Request::SetTable(index, page, names.give()))
}
