//! Notices that the subnet manager has started again.
//!
//! A real port learns of it by an event (IBA vol. 1, 14.2.5.6, PortInfo:ClientReregister); a port of ibsim has
//! no events. The number of datagrams that a manager has sent, in its SMInfo (IBA vol. 1, 14.2.5.13, ActCount),
//! begins at zero again.

use crate::Lid;
use crate::mad::smp::{self, SmInfo};
use crate::mad::{MAD_LEN, class};
use crate::umad::AgentId;

/// A manager that answers after this number of unanswered questions may have restarted.
const UNANSWERED: u32 = 2;

/// The signs of life of the subnet manager.
#[derive(Debug)]
pub(super) struct Life {
    /// The agent that asks.
    pub agent: AgentId,
    asked: Option<Lid>,
    id: u32,
    /// Questions since the last answer.
    unanswered: u32,
    /// SMInfo:ActCount of the last answer.
    count: Option<u32>,
    restarted: bool,
}

impl Life {
    pub const fn new(agent: AgentId) -> Life {
        Life {
            agent,
            asked: None,
            id: 0,
            unanswered: 0,
            count: None,
            restarted: false,
        }
    }

    /// The next question to the manager.
    pub fn ask(&mut self, manager: Lid) -> [u8; MAD_LEN] {
        if self.asked.replace(manager) != Some(manager) {
            self.count = None;
            self.unanswered = 0;
        }
        self.id = self.id.wrapping_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        smp::get(class::SUBN_LID_ROUTED, self.id, smp::SM_INFO, 0)
    }

    /// Takes an answer.
    pub fn receive(&mut self, mad: &[u8]) {
        let info = SmInfo::parse(mad).filter(|info| info.state == SmInfo::MASTER);
        let Some(info) = info.filter(|_| smp::answers(mad, self.id)) else {
            return;
        };
        let count = info.activity_count;
        let before = self.count.replace(count);
        let was_away = self.unanswered > UNANSWERED;
        self.restarted |= was_away || before.is_some_and(|before| count < before);
        self.unanswered = 0;
    }

    /// Whether the manager has started again since the last call.
    pub fn take_restart(&mut self) -> bool {
        std::mem::take(&mut self.restarted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::method;
    use crate::mad::smp::DATA;

    const MASTER: u8 = SmInfo::MASTER;

    fn answer(question: &[u8; MAD_LEN], count: u32, state: u8) -> [u8; MAD_LEN] {
        let mut mad = *question;
        mad[3] = method::GET_RESP;
        mad[DATA + 16..DATA + 20].copy_from_slice(&count.to_be_bytes());
        mad[DATA + 20] = 9 << 4 | state;
        mad
    }

    fn life() -> Life {
        Life::new(AgentId::for_tests(7))
    }

    #[test]
    fn a_manager_that_counts_from_zero_has_restarted() {
        let mut life = life();
        let manager = Lid(1);
        for (count, restarted) in [(50, false), (51, false), (20, true), (21, false)] {
            let question = life.ask(manager);
            life.receive(&answer(&question, count, MASTER));
            assert_eq!(life.take_restart(), restarted, "{count}");
        }
        // Another manager has another count; the port's SM LID tells of it.
        let question = life.ask(Lid(3));
        life.receive(&answer(&question, 5, MASTER));
        assert!(!life.take_restart());
    }

    #[test]
    fn a_manager_that_was_away_may_have_restarted() {
        let mut life = life();
        let question = life.ask(Lid(1));
        life.receive(&answer(&question, 50, MASTER));
        life.ask(Lid(1));
        let question = life.ask(Lid(1));
        life.receive(&answer(&question, 90, MASTER));
        assert!(!life.take_restart(), "a lost datagram");
        life.ask(Lid(1));
        life.ask(Lid(1));
        let question = life.ask(Lid(1));
        // Before it is the master, and late answers.
        life.receive(&answer(&question, 95, 1));
        life.receive(&answer(&[0; MAD_LEN], 95, MASTER));
        assert!(!life.take_restart());
        life.receive(&answer(&question, 95, MASTER));
        assert!(life.take_restart() && !life.take_restart());
        // Also if it went away before its first answer.
        for _ in 0..3 {
            life.ask(Lid(3));
        }
        let question = life.ask(Lid(3));
        life.receive(&answer(&question, 7, MASTER));
        assert!(life.take_restart());
        // No answer at all.
        for length in 0..DATA + 21 {
            life.receive(&answer(&question, 1, MASTER)[..length]);
        }
        assert!(!life.take_restart());
    }
}
