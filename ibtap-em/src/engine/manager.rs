//! The engine's interface to the program.

use log::Level;
use proto::Time;

use super::Engine;
use super::agent::AgentKey;
use crate::api::{
    CountersInfo, DrainRequest, Drained, ExplainRequest, Explanation, MacInfo, PortInfo,
    PortSelection, VeswInfo, VeswSelection,
};
use crate::config::Config;
use crate::seam::{Endpoint, Inquiry, Manager, Outgoing, Overview};
use crate::state::State;

/// Milliseconds until another attempt to save the state.
const SAVE_AGAIN: u64 = 10_000;

impl Manager for Engine {
    fn attach(&mut self, now: Time, own: Option<Endpoint>) {
        if self.own == own {
            return;
        }
        self.own = own;
        self.restart(now);
    }

    fn set_active(&mut self, now: Time, active: bool) {
        if self.active == active {
            return;
        }
        self.active = active;
        self.settings += 1;
        if !active {
            self.stop_sets();
        }
        let keys: Vec<AgentKey> = self.agents.keys().copied().collect();
        for key in keys {
            // The last changes of the former manager are read first.
            if let Some(agent) = self.agents.get_mut(&key) {
                agent.audit(now);
                for vport in agent.ports.values_mut() {
                    vport.plan = None;
                    vport.again = None;
                    vport.failures = 0;
                }
            }
            self.touch(key);
        }
        for id in self.switches.keys().copied().collect::<Vec<_>>() {
            self.mark_dirty(now, id);
        }
    }

    fn configure(&mut self, now: Time, config: Config) {
        let interval = config.em.poll_interval;
        self.config = config;
        self.settings += 1;
        self.open.set_interval(interval);
        self.logged.clear();
        self.make_switches(now);
        let keys: Vec<AgentKey> = self.agents.keys().copied().collect();
        for key in keys {
            self.match_ports(now, key);
            self.touch(key);
        }
        self.release_strangers(now);
    }

    fn take_unsaved(&mut self, now: Time) -> Option<State> {
        if let Some((_, again)) = &self.save_failed
            && *again > now
        {
            return None;
        }
        if !self.unsaved && self.save_failed.is_none() {
            return None;
        }
        self.unsaved = false;
        self.save_failed = None;
        Some(self.state.clone())
    }

    fn not_saved(&mut self, now: Time, why: &str) {
        self.done.saves_failed += 1;
        self.save_failed = Some((why.into(), now.after(SAVE_AGAIN)));
        self.log(
            Level::Error,
            format!("{why}; continuing with the state in memory, retrying in 10 s"),
        );
    }

    fn save_problem(&self) -> Option<&str> {
        self.save_failed.as_ref().map(|(why, _)| why.as_str())
    }

    fn receive(&mut self, now: Time, from: Endpoint, mad: &[u8]) {
        self.hear(now, from, mad);
    }

    fn advance(&mut self, now: Time) {
        if self.own.is_none() {
            return;
        }
        self.end_quarantine(now);
        self.expire(now);
        self.ask_all_agents(now);
        self.wake(now);
        self.advance_switches(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        self.own?;
        if self.out.is_empty() && !self.waits_for_disk() {
            self.pump(now);
        }
        if self.waits_for_disk() {
            return None;
        }
        self.out.pop_front()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.own?;
        let wake = self.wakes.first().map(|(time, _)| *time);
        let quarantine = self.quarantine.values().copied().min();
        let save = self.save_failed.as_ref().map(|(_, again)| *again);
        let switches = self.switches.values().filter_map(|s| s.deadline());
        [
            wake,
            quarantine,
            save,
            Some(self.ask_all),
            self.open.deadline(),
        ]
        .into_iter()
        .flatten()
        .chain(switches)
        .min()
    }

    fn overview(&self, _now: Time) -> Overview {
        self.show_overview()
    }

    fn vesws(&self, which: &VeswSelection) -> Result<Vec<VeswInfo>, String> {
        self.show_switches(which)
    }

    fn ports(&self, now: Time, which: &VeswSelection) -> Result<Vec<PortInfo>, String> {
        self.show_ports(now, which)
    }

    fn macs(&self, which: &VeswSelection) -> Result<Vec<MacInfo>, String> {
        self.show_macs(which)
    }

    fn ask_counters(&mut self, now: Time, which: &PortSelection) -> Result<Inquiry, String> {
        self.begin_inquiry(now, which)
    }

    fn take_counters(&mut self, inquiry: Inquiry) -> Option<Vec<CountersInfo>> {
        self.end_inquiry(inquiry)
    }

    fn forget_counters(&mut self, inquiry: Inquiry) {
        self.inquiries.forget(inquiry);
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String> {
        self.explain_frame(request)
    }

    fn drain(&mut self, now: Time, request: &DrainRequest) -> Result<Drained, String> {
        self.drain_target(now, request)
    }
}
