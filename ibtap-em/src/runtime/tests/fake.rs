//! An engine for tests.

use super::*;
use crate::seam::{Inquiry, Overview};

/// Records its calls, and sends a query to the group when it becomes active.
#[derive(Debug, Default)]
pub struct Fake {
    pub attached: Option<Endpoint>,
    pub active: bool,
    pub received: Vec<Vec<u8>>,
    pub asked: usize,
    pub forgotten: usize,
    pub answers: Option<Vec<CountersInfo>>,
    pub to_send: Vec<Outgoing>,
    /// Number of states to save, one after the other; each save is reported.
    pub changes: usize,
    pub unsaved: bool,
    pub problem: Option<String>,
}

impl Manager for Fake {
    fn attach(&mut self, _: Time, own: Option<Endpoint>) {
        self.attached = own;
    }
    fn set_active(&mut self, _: Time, active: bool) {
        self.active = active;
    }
    fn configure(&mut self, _: Time, _: Config) {}
    fn take_unsaved(&mut self, _: Time) -> Option<State> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        self.problem = None;
        self.to_send.push(Outgoing {
            to: Destination::Group,
            mad: vec![],
        });
        Some(State::default())
    }
    fn not_saved(&mut self, _: Time, why: &str) {
        self.problem = Some(why.into());
    }
    fn save_problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
    fn receive(&mut self, _: Time, _: Endpoint, mad: &[u8]) {
        self.received.push(mad.to_vec());
    }
    fn advance(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time) -> Option<Outgoing> {
        if self.to_send.is_empty() && self.changes > 0 {
            self.changes -= 1;
            self.unsaved = true;
        }
        self.to_send.pop().filter(|_| !self.unsaved)
    }
    fn next_deadline(&self) -> Option<Time> {
        Some(Time(1_000_000))
    }
    fn overview(&self, _: Time) -> Overview {
        Overview {
            agents: 3,
            problems: vec!["cannot write the state".into()],
            counters: vec![("requests", 7)],
            ..Overview::default()
        }
    }
    fn vesws(&self, which: &VeswSelection) -> Result<Vec<VeswInfo>, String> {
        match which.vesw.as_deref() {
            None | Some("storage") => Ok(vec![vesw()]),
            Some(other) => Err(format!("no switch {other:?}")),
        }
    }
    fn ports(&self, _: Time, _: &VeswSelection) -> Result<Vec<PortInfo>, String> {
        Ok(vec![port()])
    }
    fn macs(&self, _: &VeswSelection) -> Result<Vec<MacInfo>, String> {
        Ok(vec![mac()])
    }
    fn ask_counters(&mut self, _: Time, _: &PortSelection) -> Result<Inquiry, String> {
        self.asked += 1;
        Ok(Inquiry(self.asked as u64))
    }
    fn take_counters(&mut self, _: Inquiry) -> Option<Vec<CountersInfo>> {
        self.answers.clone()
    }
    fn forget_counters(&mut self, _: Inquiry) {
        self.forgotten += 1;
    }
    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String> {
        Ok(Explanation {
            dst: request.dst,
            sc: request.pcp,
            ..explanation()
        })
    }
    fn drain(&mut self, _: Time, request: &DrainRequest) -> Result<Drained, String> {
        self.unsaved = true;
        Ok(Drained {
            targets: vec![request.target.clone()],
            drained: !request.undo,
            in_force: true,
            still_drained: vec![StillDrained {
                port: request.target.clone(),
                by: "storage".into(),
            }],
        })
    }
}
