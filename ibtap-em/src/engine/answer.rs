//! Processing of answers.

use log::Level;
use proto::Time;
use vnic::attribute::{ConfigState, LidDirectory, NodeInfo, VeswPortInfo};
use vnic::mac_table::MAC_TABLE_ENTRIES;
use vnic::mad::{Attribute, ClassPortInfo, MacEntries, Mad, status};

use super::Engine;
use super::agent::{AgentKey, Vport};
use super::request::{List, Request, page};
use super::tables::Page;
use crate::seam::Endpoint;

/// Maximum milliseconds between two attempts after a refusal.
const BACK_OFF: u64 = 60_000;

/// Reasons to reject an answer.
enum Failure {
    Refused(u16),
    Malformed,
    /// The agent confirmed the request but reports other values.
    NotTaken,
    /// The table changed while it was read.
    Changed,
}

impl Engine {
    pub(super) fn take_answer(
        &mut self,
        now: Time,
        key: AgentKey,
        from: Endpoint,
        request: Request,
        mad: &Mad<'_>,
    ) {
        let failure = match self.try_answer(now, key, from, &request, mad) {
            Ok(()) => return,
            Err(failure) => failure,
        };
        match failure {
            Failure::Refused(_) | Failure::NotTaken => self.done.refused += 1,
            Failure::Malformed => self.done.malformed += 1,
            Failure::Changed => {}
        }
        self.fail(now, key, &request, &failure);
    }

    fn try_answer(
        &mut self,
        now: Time,
        key: AgentKey,
        from: Endpoint,
        request: &Request,
        mad: &Mad<'_>,
    ) -> Result<(), Failure> {
        let code = mad.header.status.get();
        if let Request::GetCounters(index, kind, inquiry) = request {
            self.take_counters_answer(key, *index, *kind, *inquiry, code, mad);
            return Ok(());
        }
        if code != status::OK {
            return Err(Failure::Refused(code));
        }
        match request {
            Request::NodeInfo(_) => {
                let info = read::<NodeInfo>(mad)?;
                if AgentKey::named(&info) != key {
                    self.replace_agent(now, key);
                }
                self.hear_node(now, from, &info);
            }
            Request::GetClassPortInfo | Request::SetTraps(..) => {
                let info = read::<ClassPortInfo>(mad)?;
                if let Some(agent) = self.agents.get_mut(&key) {
                    agent.class_port = Some(info);
                    agent.traps_again = None;
                }
                if let Request::SetTraps(_, to) = request
                    && info.trap_to() != Some((to.gid, to.qpn))
                {
                    return Err(Failure::NotTaken);
                }
            }
            Request::GetInfo(index) | Request::SetInfo(index, _) | Request::Delete(index) => {
                let info = read::<VeswPortInfo>(mad)?;
                let taken = is_taken(request, &info);
                self.take_info(now, key, *index, request, info);
                if !taken {
                    return Err(Failure::NotTaken);
                }
            }
            Request::GetDirectory(index) => {
                let directory = read::<LidDirectory>(mad)?;
                if let Some(vport) = self.vport(key, *index) {
                    vport.directory = Some(directory.digest);
                    vport.directory_due = false;
                }
            }
            Request::SetDirectory(index, sent) => {
                let taken = read::<LidDirectory>(mad)?;
                self.take_directory(now, key, *index, sent, &taken);
            }
            Request::GetTable(index, offset) => {
                let entries = read::<MacEntries>(mad)?;
                if let Some(vport) = self.vport(key, *index) {
                    take_table(vport, *offset, &entries)?;
                }
            }
            Request::SetTable(index, sent, digest) => {
                let entries = read::<MacEntries>(mad)?;
                if let Some(vport) = self.vport(key, *index) {
                    table_set(vport, sent, *digest, &entries)?;
                }
            }
            Request::GetList(index, list, start) => {
                let macs = read::<vnic::mad::MacList>(mad)?;
                self.take_list(now, key, *index, *list, *start, &macs);
            }
            Request::GetCounters(..) => {}
        }
        Ok(())
    }

    pub(super) fn vport(&mut self, key: AgentKey, index: u8) -> Option<&mut Vport> {
        self.agents.get_mut(&key)?.ports.get_mut(&index)
    }

    fn take_info(
        &mut self,
        now: Time,
        key: AgentKey,
        index: u8,
        request: &Request,
        info: VeswPortInfo,
    ) {
        let port = key.vport(index);
        let settings = self.settings;
        let Some(vport) = self.vport(key, index) else {
            return;
        };
        let forwards = |info: &VeswPortInfo| info.config_state == ConfigState::Forwarding;
        let began = !vport.info.as_ref().is_some_and(forwards) && forwards(&info);
        let existed = vport.exists();
        let (vesw, lid, mtu) = (info.vesw_id, info.encap_slid, info.eth_mtu);
        vport.set_info(info);
        if vport.exists() && !existed {
            // Another manager, or the agent itself, has set its directory.
            vport.directory = None;
        }
        let made = vport.exists() != existed;
        let set = matches!(request, Request::SetInfo(..));
        let taken = vport
            .info
            .as_ref()
            .is_some_and(|info| is_taken(request, info));
        if set && taken {
            if vport.assigned == settings {
                vport.refused = None;
            }
            vport.failures = 0;
            vport.again = None;
        }
        if set && began {
            let name = self.name(port);
            self.log(
                Level::Info,
                format!("{name} forwards on the switch {vesw}, LID {lid}, MTU {mtu}"),
            );
        }
        if made {
            self.mark_members_dirty(now, key);
        }
        self.report_macs(now, port);
    }

    fn take_directory(
        &mut self,
        now: Time,
        key: AgentKey,
        index: u8,
        sent: &LidDirectory,
        taken: &LidDirectory,
    ) {
        let Some(vport) = self.vport(key, index) else {
            return;
        };
        if taken.digest == sent.digest && taken.start >= sent.total {
            vport.directory = Some(sent.digest);
            vport.directory_due = false;
            vport.directory_sent = (0, 0);
            vport.failures = 0;
        } else if taken.digest == sent.digest && taken.start > sent.start {
            vport.directory_sent = (sent.digest, taken.start);
        } else {
            // The agent lost what it had of the directory and does not accept this page.
            vport.back_off(now, BACK_OFF);
            self.schedule(now, key);
        }
    }

    fn take_list(
        &mut self,
        now: Time,
        key: AgentKey,
        index: u8,
        list: List,
        start: u16,
        page: &vnic::mad::MacList,
    ) {
        let Some(vport) = self.vport(key, index) else {
            return;
        };
        if !vport.list(list).page(start, page) {
            return;
        }
        if let Some(info) = &mut vport.info {
            match list {
                List::Unicast => info.uc_macs_gen_count = page.gen_count,
                List::Multicast => info.mc_macs_gen_count = page.gen_count,
            }
        }
        self.report_macs(now, key.vport(index));
    }

    /// An agent refused a request or sent a malformed answer: it is tried again later.
    fn fail(&mut self, now: Time, key: AgentKey, request: &Request, failure: &Failure) {
        let why = match failure {
            Failure::Refused(status) => {
                let name = vnic::mad::status_name(*status).unwrap_or("unknown");
                format!("its agent refused with status {status:#06x}, {name}")
            }
            Failure::Malformed => "its agent sent a malformed answer".into(),
            Failure::Changed => "another manager changed its table meanwhile".into(),
            Failure::NotTaken => "its agent confirmed the values but reports others".into(),
        };
        let what = vnic::mad::attribute_name(request.attribute()).unwrap_or_default();
        match request {
            Request::NodeInfo(_) => {
                if let Some(agent) = self.agents.get_mut(&key) {
                    agent.poll_due = false;
                    agent.page = 0;
                }
            }
            Request::GetClassPortInfo => {
                // Without traps, polls find all changes.
                if let Some(agent) = self.agents.get_mut(&key) {
                    agent.class_port = Some(ClassPortInfo::default());
                    agent.traps_again = Some(now.after(BACK_OFF));
                }
            }
            Request::SetTraps(..) => {
                if let Some(agent) = self.agents.get_mut(&key) {
                    agent.traps_again = Some(now.after(BACK_OFF / 6));
                }
                self.log_once(
                    Level::Warn,
                    format!(
                        "{key} does not send its traps to this manager: {why}; perhaps another manager is active"
                    ),
                );
            }
            _ => {}
        }
        let Some(index) = request.index() else {
            self.schedule(now, key);
            return;
        };
        let port = key.vport(index);
        let Some(vport) = self.vport(key, index) else {
            return;
        };
        vport.layout = None;
        vport.back_off(now, BACK_OFF);
        match request {
            // The agent has no directory, or does not know the attribute.
            Request::GetDirectory(_) => {
                vport.directory = Some(0);
                vport.directory_due = false;
            }
            Request::GetList(_, list, _) => {
                let empty = vnic::mad::MacList {
                    gen_count: match list {
                        List::Unicast => vport.info.as_ref().map_or(0, |i| i.uc_macs_gen_count),
                        List::Multicast => vport.info.as_ref().map_or(0, |i| i.mc_macs_gen_count),
                    },
                    ..vnic::mad::MacList::default()
                };
                let _ = vport.list(*list).page(0, &empty);
            }
            _ => {}
        }
        if request.is_set() || matches!(request, Request::GetInfo(_)) {
            self.refuse(port, format!("{why} ({what})"));
        }
        self.schedule(now, key);
    }
}

/// Whether the agent has the values of a Set; true for a Get.
fn is_taken(request: &Request, now: &VeswPortInfo) -> bool {
    match request {
        Request::SetInfo(_, sent) => {
            *now == VeswPortInfo {
                eth_link_status: now.eth_link_status,
                oper_state: now.oper_state,
                max_mac_tbl_ent: now.max_mac_tbl_ent,
                max_smac_ent: now.max_smac_ent,
                mac_tbl_digest: now.mac_tbl_digest,
                uc_macs_gen_count: now.uc_macs_gen_count,
                mc_macs_gen_count: now.mc_macs_gen_count,
                reserved: now.reserved.clone(),
                ..(**sent).clone()
            }
        }
        Request::Delete(_) => now.vesw_id == 0 || now.eth_link_status == 0,
        _ => true,
    }
}

fn read<A: Attribute>(mad: &Mad<'_>) -> Result<A, Failure> {
    mad.attribute().map_err(|_| Failure::Malformed)
}

/// Processes a page of a table that is being read.
fn take_table(vport: &mut Vport, asked: u16, entries: &MacEntries) -> Result<(), Failure> {
    let Some((digest, mut layout, place)) = vport.reading.take() else {
        return Ok(());
    };
    if place != asked || entries.offset != asked || entries.entries.is_empty() {
        return Err(Failure::Malformed);
    }
    if entries.digest != digest {
        return Err(Failure::Changed);
    }
    let read = page(entries);
    layout.apply(&read);
    let next = usize::from(place) + read.entries.len();
    if next >= MAC_TABLE_ENTRIES {
        vport.layout = Some(layout);
    } else {
        vport.reading = Some((digest, layout, u16::try_from(next).unwrap_or(u16::MAX)));
    }
    Ok(())
}

/// Processes the confirmation of a page.
fn table_set(
    vport: &mut Vport,
    sent: &Page,
    digest: u32,
    entries: &MacEntries,
) -> Result<(), Failure> {
    if entries.digest != digest {
        return Err(Failure::Malformed);
    }
    if let Some(layout) = &mut vport.layout {
        layout.apply(sent);
    }
    if let Some((_, pages)) = &mut vport.plan
        && pages.front() == Some(sent)
    {
        pages.pop_front();
    }
    if let Some(info) = &mut vport.info {
        info.mac_tbl_digest = digest;
    }
    vport.failures = 0;
    Ok(())
}
