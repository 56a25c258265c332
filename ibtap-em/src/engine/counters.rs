//! Requests for counters.

use std::collections::BTreeMap;

use vnic::mad::{ErrorCounters, Mad, SummaryCounters, status};

use super::Engine;
use super::agent::AgentKey;
use super::hear::NO_ANSWER;
use super::request::CounterKind;
use super::view::no_member;
use crate::api::{CountersInfo, PortSelection};
use crate::config::{Pattern, PortKey};
use crate::seam::Inquiry;
use control::api::Counters;
use proto::Time;

/// Maximum number of open requests.
const INQUIRIES_MAX: usize = 64;
/// Counters of VeswPortSummaryCounters; the driver has others that the attribute lacks.
const SUMMARY: [&str; 28] = [
    "tx_errors",
    "rx_errors",
    "tx_packets",
    "rx_packets",
    "tx_bytes",
    "rx_bytes",
    "tx_unicast",
    "tx_mcastbcast",
    "tx_untagged",
    "tx_vlan",
    "tx_64_size",
    "tx_65_127",
    "tx_128_255",
    "tx_256_511",
    "tx_512_1023",
    "tx_1024_1518",
    "tx_1519_max",
    "rx_unicast",
    "rx_mcastbcast",
    "rx_untagged",
    "rx_vlan",
    "rx_64_size",
    "rx_65_127",
    "rx_128_255",
    "rx_256_511",
    "rx_512_1023",
    "rx_1024_1518",
    "rx_1519_max",
];

#[derive(Debug, Default)]
pub(super) struct Inquiries {
    last: u64,
    open: BTreeMap<Inquiry, BTreeMap<PortKey, Asked>>,
}

#[derive(Debug, Default)]
struct Asked {
    summary: Option<Box<SummaryCounters>>,
    errors: Option<Box<ErrorCounters>>,
    problem: Option<String>,
}

impl Asked {
    fn is_done(&self) -> bool {
        self.problem.is_some() || (self.summary.is_some() && self.errors.is_some())
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        if let Some(summary) = &self.summary {
            let named = summary.counters.named();
            counters.add(SUMMARY.iter().filter_map(|name| {
                let value = named.iter().find(|(known, _)| known == name)?.1;
                Some((*name, value))
            }));
        }
        if let Some(e) = &self.errors {
            counters.add([
                ("tx_smac_filt", e.tx_smac_filt),
                ("tx_dlid_zero", e.tx_dlid_zero),
                ("tx_logic", e.tx_logic),
                ("tx_drop_state", e.tx_drop_state),
                ("rx_bad_veswid", e.rx_bad_veswid),
                ("rx_runt", e.rx_runt),
                ("rx_oversize", e.rx_oversize),
                ("rx_eth_down", e.rx_eth_down),
                ("rx_drop_state", e.rx_drop_state),
                ("rx_logic", e.rx_logic),
            ]);
        }
        counters
    }
}

impl Inquiries {
    pub(super) fn forget(&mut self, inquiry: Inquiry) {
        self.open.remove(&inquiry);
    }

    fn entry(&mut self, inquiry: Inquiry, port: PortKey) -> Option<&mut Asked> {
        self.open.get_mut(&inquiry)?.get_mut(&port)
    }
}

impl Engine {
    pub(super) fn begin_inquiry(
        &mut self,
        _now: Time,
        which: &PortSelection,
    ) -> Result<Inquiry, String> {
        if self.inquiries.open.len() >= INQUIRIES_MAX {
            return Err("too many requests for counters; try again".into());
        }
        let pattern: Option<Pattern> = match &which.port {
            Some(text) => Some(text.parse()?),
            None => None,
        };
        let mut asked = BTreeMap::new();
        for (key, member) in &self.state.members {
            let fits = pattern
                .as_ref()
                .is_none_or(|pattern| pattern.matches(&member.description, *key));
            if fits {
                asked.insert(*key, Asked::default());
            }
        }
        if let Some(pattern) = pattern.filter(|_| asked.is_empty()) {
            return Err(no_member(&pattern));
        }
        self.inquiries.last += 1;
        let inquiry = Inquiry(self.inquiries.last);
        for (key, asked) in &mut asked {
            let agent = AgentKey::of(*key);
            match self.agents.get_mut(&agent) {
                Some(known) if !known.silent && self.own.is_some() => {
                    for kind in [CounterKind::Summary, CounterKind::Errors] {
                        known.asks.push_back((key.index, kind, inquiry));
                    }
                    self.touch(agent);
                }
                _ => asked.problem = Some(NO_ANSWER.into()),
            }
        }
        self.inquiries.open.insert(inquiry, asked);
        Ok(inquiry)
    }

    pub(super) fn end_inquiry(&mut self, inquiry: Inquiry) -> Option<Vec<CountersInfo>> {
        let asked = self.inquiries.open.get(&inquiry)?;
        if !asked.values().all(Asked::is_done) {
            return None;
        }
        let asked = self.inquiries.open.remove(&inquiry)?;
        let all = asked.into_iter().map(|(key, asked)| CountersInfo {
            port: key.to_string(),
            name: self.name(key),
            vesw: self.vesw_name(key),
            counters: asked.counters(),
            problem: asked.problem,
        });
        Some(all.collect())
    }

    pub(super) fn take_counters_answer(
        &mut self,
        key: AgentKey,
        index: u8,
        kind: CounterKind,
        inquiry: Inquiry,
        code: u16,
        mad: &Mad<'_>,
    ) {
        let problem = match code {
            status::OK => "its agent sent a malformed answer",
            status::INVALID => "its agent no longer has this port",
            _ => "its agent refused",
        };
        let Some(asked) = self.inquiries.entry(inquiry, key.vport(index)) else {
            return;
        };
        let read = match (code, kind) {
            (status::OK, CounterKind::Summary) => {
                asked.summary = mad.attribute().ok().map(Box::new);
                asked.summary.is_some()
            }
            (status::OK, CounterKind::Errors) => {
                asked.errors = mad.attribute().ok().map(Box::new);
                asked.errors.is_some()
            }
            _ => false,
        };
        if !read {
            asked.problem = Some(problem.into());
        }
    }

    /// Fails the waiting requests for counters of an agent.
    pub(super) fn fail_asks(&mut self, key: AgentKey, why: &str) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        for (index, _, inquiry) in std::mem::take(&mut agent.asks) {
            self.no_counters(key, index, inquiry, why);
        }
    }

    pub(super) fn no_counters(&mut self, key: AgentKey, index: u8, inquiry: Inquiry, why: &str) {
        if let Some(asked) = self.inquiries.entry(inquiry, key.vport(index)) {
            asked.problem.get_or_insert_with(|| why.into());
        }
    }
}
