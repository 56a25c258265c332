//! Get and Set requests of managers.

use std::sync::Arc;
use std::time::Duration;

use proto::{Time, TokenRate};

use super::owner::{Sender, Verdict};
use super::vport::Vport;
use super::{Agent, Event, Host, Invalid, validate};
use crate::attribute::{LidDirectory, VeswPortInfo};
use crate::carriage::Address;
use crate::mac_table::{BeyondTable, MAC_TABLE_ENTRIES};
use crate::mad::{
    self, Attribute, ClassPortInfo, ErrorCounters, Header, LidDirectoryQuery, MacEntries,
    MacEntriesQuery, MacListQuery, Mad, Malformed, NODE_PORTS_MAX, SummaryCounters, attribute,
    method, status,
};

/// Limit of the Sets of all managers. A manager sends one after the other; a directory of 8192 members and a
/// full table are 116 Sets.
const SETS: TokenRate = TokenRate {
    interval: Duration::from_millis(2),
    burst: 512,
};
/// Limit of changes of a virtual port's settings. Each change may create a queue pair; a manager makes two
/// when it moves a port.
const CHANGES: TokenRate = TokenRate {
    interval: Duration::from_secs(1),
    burst: 16,
};

/// Reason to refuse a request.
enum Refusal {
    /// Unsupported method or attribute.
    Unsupported,
    /// The virtual port does not exist. Not logged: managers may ask for any index.
    NoPort,
    /// Invalid value.
    Invalid(Invalid),
    /// The virtual port cannot be created.
    NotCreated(String),
    /// The host cannot apply the settings now.
    Failed(String),
    /// There are too many Sets. Without an answer, a manager repeats its request.
    TooMany,
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Refusal {
        Refusal::Invalid(invalid)
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Refusal {
        let invalid = match malformed {
            Malformed::Field { field, value, why } => {
                Invalid::new(field, format_args!("{value:#x}"), why)
            }
            Malformed::Short { have, need } => {
                let why = format!("must be at least {need} bytes");
                Invalid::new("attribute length", have, why)
            }
            other => Invalid::new("attribute", "malformed", other.to_string()),
        };
        Refusal::Invalid(invalid)
    }
}

type Answer = Result<Vec<u8>, Refusal>;

/// A request in progress.
struct Request<'a> {
    now: Time,
    header: &'a Header,
    mad: &'a Mad<'a>,
    index: u8,
}

impl Request<'_> {
    fn read<A: Attribute>(&self) -> Result<A, Refusal> {
        Ok(self.mad.attribute()?)
    }

    fn answer(&self, attribute: &impl Attribute) -> Vec<u8> {
        mad::write(&self.header.response(status::OK), attribute)
    }
}

impl Agent {
    /// Answers a request that was sent to this agent alone. There is no answer if there are too many Sets.
    pub(super) fn answer(
        &mut self,
        now: Time,
        from: Address,
        mad: &Mad<'_>,
        host: &mut dyn Host,
    ) -> Option<Vec<u8>> {
        let header = &mad.header;
        if !self.is_manager(from) {
            return Some(mad::write_empty(&header.response(status::INVALID)));
        }
        let request = Request {
            now,
            header,
            mad,
            index: header.vport(),
        };
        let answer = if header.method == method::SET {
            self.set_by(from, &request, host)
        } else {
            self.ownership.heard(now, Sender::of(from, header));
            Some(self.get(&request, host))
        };
        let code = match answer {
            Some(Ok(bytes)) => return Some(bytes),
            Some(Err(refusal)) => self.refused(&request, from, refusal)?,
            None => status::INVALID,
        };
        Some(mad::write_empty(&header.response(code)))
    }

    /// Counts and reports a refusal. Returns the status of the answer, if there is an answer.
    fn refused(&mut self, request: &Request<'_>, from: Address, refusal: Refusal) -> Option<u16> {
        let (gid, index) = (from.gid, request.index);
        let (reason, event) = match refusal {
            Refusal::TooMany => {
                self.counts.sets_limited += 1;
                if self.sets_limited.take(request.now).is_some() {
                    self.report(Event::SetsLimited { gid });
                }
                return None;
            }
            Refusal::Unsupported => {
                self.counts.unsupported += 1;
                return Some(status::UNSUPPORTED);
            }
            Refusal::NoPort => {
                self.counts.invalid += 1;
                return Some(status::INVALID);
            }
            Refusal::Invalid(what) => (what.field, Event::Invalid { gid, index, what }),
            Refusal::NotCreated(why) => ("create", Event::NotCreated { gid, index, why }),
            Refusal::Failed(why) => ("configure", Event::Failed { gid, index, why }),
        };
        self.counts.invalid += 1;
        if self.refusals.should_report(index, gid, reason) {
            self.report(event);
        }
        Some(status::INVALID)
    }

    /// Handles a Set if its sender owns the agent or the agent has no owner. `None` if another manager owns
    /// it.
    fn set_by(
        &mut self,
        from: Address,
        request: &Request<'_>,
        host: &mut dyn Host,
    ) -> Option<Answer> {
        if !is_settable(request.header.attribute_id.get()) {
            return Some(Err(Refusal::Unsupported));
        }
        let sender = Sender::of(from, request.header);
        let verdict = self.ownership.may_set(request.now, sender);
        if let Verdict::Refused(owner) = verdict {
            self.counts.not_owner += 1;
            if self.ownership.is_new(from) {
                let owner = owner.gid;
                self.report(Event::NotOwner {
                    gid: from.gid,
                    owner,
                });
            }
            return None;
        }
        if !self.sets.take(request.now.into(), SETS) {
            return Some(Err(Refusal::TooMany));
        }
        let answer = self.set(request, host);
        if answer.is_ok() || verdict == Verdict::Owner {
            self.ownership.take(request.now, sender);
        }
        if answer.is_ok() && verdict == Verdict::Vacant {
            self.report_handover(request.now, Event::Owned { gid: from.gid });
        }
        Some(answer)
    }

    fn get(&mut self, request: &Request<'_>, host: &mut dyn Host) -> Answer {
        let index = request.index;
        match request.header.attribute_id.get() {
            attribute::CLASS_PORT_INFO => Ok(request.answer(&self.class.of_agent())),
            attribute::VESW_PORT_INFO => Ok(self.get_vesw_port_info(request)),
            attribute::VESW_MAC_ENTRIES => {
                let vport = self.vport(index)?;
                let query: MacEntriesQuery = request.read()?;
                Ok(request.answer(&entries(vport, query)?))
            }
            attribute::IFACE_UCAST_MACS => {
                let vport = self.vport(index)?;
                let query: MacListQuery = request.read()?;
                Ok(request.answer(&vport.unicast.page(query)))
            }
            attribute::IFACE_MCAST_MACS => {
                let vport = self.vport(index)?;
                let query: MacListQuery = request.read()?;
                Ok(request.answer(&vport.multicast.page(query)))
            }
            attribute::SUMMARY_COUNTERS => {
                let info = &self.vport(index)?.info;
                Ok(request.answer(&SummaryCounters {
                    index: index.into(),
                    vesw_id: info.vesw_id,
                    port_num: info.port_num,
                    counters: host.counters(index),
                }))
            }
            attribute::ERROR_COUNTERS => {
                let info = &self.vport(index)?.info;
                let counters = host.counters(index);
                let (vesw_id, port_num) = (info.vesw_id, info.port_num);
                let all = ErrorCounters::of(index.into(), vesw_id, port_num, &counters);
                Ok(request.answer(&all))
            }
            attribute::LID_DIRECTORY => {
                let vport = self.vport(index)?;
                let query: LidDirectoryQuery = request.read()?;
                Ok(request.answer(&vport.directory.page(query)))
            }
            attribute::NODE_INFO => Ok(request.answer(&self.node_info(index))),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn set(&mut self, request: &Request<'_>, host: &mut dyn Host) -> Answer {
        match request.header.attribute_id.get() {
            attribute::CLASS_PORT_INFO => {
                self.class = request.read::<ClassPortInfo>()?.of_agent();
                Ok(request.answer(&self.class))
            }
            attribute::VESW_PORT_INFO => self.set_vesw_port_info(request, host),
            attribute::VESW_MAC_ENTRIES => self.set_entries(request, host),
            attribute::LID_DIRECTORY => self.set_directory(request, host),
            attribute::DELETE_VESW => self.delete(request, host),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn vport(&mut self, index: u8) -> Result<&mut Vport, Refusal> {
        self.vports.get_mut(&index).ok_or(Refusal::NoPort)
    }

    fn get_vesw_port_info(&self, request: &Request<'_>) -> Vec<u8> {
        match self.vports.get(&request.index) {
            Some(vport) => request.answer(&vport.info),
            None => request.answer(&VeswPortInfo::default()),
        }
    }

    fn set_vesw_port_info(&mut self, request: &Request<'_>, host: &mut dyn Host) -> Answer {
        let index = request.index;
        let wanted: VeswPortInfo = request.read()?;
        validate::check(&wanted, self.config.payload_max)?;
        self.check_lid(index, &wanted)?;
        if let Some(why) = host.refuse(index, &wanted) {
            return Err(Invalid::new("VeswPortInfo", "not possible on this node", why).into());
        }
        if !self.vports.contains_key(&index) {
            self.create(request.now, index, host)?;
        }
        let vport = self.vport(index)?;
        let info = vport.written(wanted);
        if info != vport.info {
            vport.change(request.now)?;
            let mac = info.base_mac_addr;
            let new_mac = mac != vport.info.base_mac_addr;
            vport.info = info;
            if new_mac && mac != [0; 6] {
                vport.mac = mac;
                host.set_mac(index, mac);
            }
            // No trap: the manager made this change.
            vport.list_unicast();
            let configured = host.configure(index, &vport.info);
            if configured.is_err() {
                // Otherwise the manager would read back its settings and not set them again.
                vport.reset();
            }
            self.update_link(request.now, index, false);
            configured.map_err(Refusal::Failed)?;
            self.refusals.changed(index);
        }
        Ok(self.get_vesw_port_info(request))
    }

    /// Virtual ports of one node may be on one switch, but need different LIDs: with equal LIDs, each would
    /// accept the other's packets. (On Omni-Path, a fabric port has one LID.)
    fn check_lid(&self, index: u8, info: &VeswPortInfo) -> Result<(), Invalid> {
        if info.vesw_id == 0 || info.encap_slid == crate::Lid::NONE {
            return Ok(());
        }
        let place = |i: &VeswPortInfo| (i.fabric_id, i.vesw_id, i.encap_slid);
        let mut others = self.vports.iter().filter(|(other, _)| **other != index);
        match others.find(|(_, vport)| place(&vport.info) == place(info)) {
            Some((other, _)) => {
                let why = format!("already used by virtual port {other} on the same switch");
                Err(Invalid::new("encap_slid", info.encap_slid, why))
            }
            None => Ok(()),
        }
    }

    fn create(&mut self, now: Time, index: u8, host: &mut dyn Host) -> Result<(), Refusal> {
        if !self.config.may_create {
            let why = "vnic_create is false for this port".to_owned();
            return Err(Refusal::NotCreated(why));
        }
        if self.vports.len() >= NODE_PORTS_MAX {
            let why = format!("this port already has the maximum of {NODE_PORTS_MAX}");
            return Err(Refusal::NotCreated(why));
        }
        let port = host.create(index).map_err(Refusal::NotCreated)?;
        self.vports.insert(index, Vport::new(port));
        self.announcements.changed(now, &mut self.random);
        Ok(())
    }

    fn set_entries(&mut self, request: &Request<'_>, host: &mut dyn Host) -> Answer {
        let vport = self.vport(request.index)?;
        let wanted: MacEntries = request.read()?;
        let updated = vport
            .table
            .update(wanted.offset.into(), &wanted.entries, wanted.digest)
            .map_err(|beyond| Invalid::new("offset", wanted.offset, beyond.to_string()))?;
        // A manager repeats a page if the answer is lost.
        if updated != *vport.table {
            vport.table = Arc::new(updated);
            vport.info.mac_tbl_digest = wanted.digest;
            host.set_table(request.index, Arc::clone(&vport.table));
        }
        let query = MacEntriesQuery {
            offset: wanted.offset,
            count: wanted.entries.len() as u16,
        };
        Ok(request.answer(&entries(vport, query)?))
    }

    fn set_directory(&mut self, request: &Request<'_>, host: &mut dyn Host) -> Answer {
        let vport = self.vport(request.index)?;
        let page: LidDirectory = request.read()?;
        if let Some(directory) = vport.directory.take(&page)? {
            host.set_directory(request.index, directory);
        }
        Ok(request.answer(&vport.directory.progress(&page)))
    }

    fn delete(&mut self, request: &Request<'_>, host: &mut dyn Host) -> Answer {
        let vport = self.vport(request.index)?;
        if vport.is_unset() {
            return Ok(self.get_vesw_port_info(request));
        }
        vport.change(request.now)?;
        vport.reset();
        host.delete(request.index);
        self.refusals.changed(request.index);
        self.update_link(request.now, request.index, false);
        Ok(self.get_vesw_port_info(request))
    }
}

impl Vport {
    /// Counts a change of settings; an error if there are too many.
    fn change(&mut self, now: Time) -> Result<(), Refusal> {
        let may = self.changes.take(now.into(), CHANGES);
        may.then_some(()).ok_or(Refusal::TooMany)
    }
}

const fn is_settable(id: u16) -> bool {
    matches!(
        id,
        attribute::CLASS_PORT_INFO
            | attribute::VESW_PORT_INFO
            | attribute::VESW_MAC_ENTRIES
            | attribute::LID_DIRECTORY
            | attribute::DELETE_VESW
    )
}

/// A page of the table, with zeros for empty entries (kernel opa_vnic_encap.c, `opa_vnic_query_mac_tbl`).
fn entries(vport: &Vport, query: MacEntriesQuery) -> Result<MacEntries, Invalid> {
    let (offset, count) = (usize::from(query.offset), usize::from(query.count));
    if offset + count > MAC_TABLE_ENTRIES {
        let beyond = BeyondTable { offset, count };
        return Err(Invalid::new("offset", offset, beyond.to_string()));
    }
    let entry = |at| vport.table.entry(at).copied().unwrap_or_default();
    Ok(MacEntries {
        offset: query.offset,
        digest: vport.table.digest(),
        entries: (offset..offset + count).map(entry).collect(),
    })
}
