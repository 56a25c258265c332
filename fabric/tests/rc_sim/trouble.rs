//! Trouble of a world other than its network's: outages, silence, pauses, drains, forgeries.

use fabric::PKey;
use fabric::soft::wire::{Aeth, Extended, ImmDt, Repr, opcode};

use crate::network::{MILLISECOND, SECOND, Time};
use crate::node::is_traced;
use crate::packets::forge;
use crate::scenario::Trouble;
use crate::world::World;

impl World {
    pub fn plan_trouble(&mut self) {
        let pause = self.random.between(MILLISECOND / 10, 100 * MILLISECOND);
        self.trouble_at = Some(self.now + pause);
    }

    pub fn make_trouble(&mut self) {
        if self.is_unrepaired() {
            self.trouble_at = Some(self.now + MILLISECOND);
            return;
        }
        let (a, b) = self.two_nodes();
        let until = self.now + self.random.below(500 * MILLISECOND);
        match self.s.trouble {
            Trouble::None => {}
            Trouble::Outages => {
                let both = self.random.percent(50);
                if is_traced() {
                    let now = self.now;
                    eprintln!(
                        "{now} ns outage from {a} to {b} until {until} ns, both ways: {both}"
                    );
                }
                self.network.cut(a, b, until);
                if both {
                    self.network.cut(b, a, until);
                }
            }
            Trouble::Vanish => {
                self.vanished = Some(a);
                for other in 0..self.nodes.len() {
                    self.network.cut(a, other, Time::MAX);
                    self.network.cut(other, a, Time::MAX);
                }
                self.trouble_at = None;
                return;
            }
            Trouble::Pauses if self.random.percent(50) => {
                self.nodes[a].stopped_until = until;
                self.nodes[a].wake_at = Some(until);
            }
            Trouble::Pauses => {
                let step = self.random.below(10 * SECOND);
                self.nodes[a].clock_ahead += step;
                self.nodes[a].wake_at = Some(self.now);
            }
            Trouble::Forgeries => {
                for _ in 0..self.random.between(1, 20) {
                    self.forge(a);
                }
            }
            Trouble::Drains => {
                let sides = &self.nodes[a].sides;
                let nth = self.random.below(sides.len() as u64) as usize;
                if let Some(&qpn) = sides.keys().nth(nth) {
                    self.nodes[a].drain_or_restart(qpn);
                    self.nodes[a].wake_at = Some(self.now);
                }
            }
        }
        self.plan_trouble();
        if matches!(self.s.trouble, Trouble::Outages | Trouble::Pauses) {
            // The next trouble starts when this one is over and its effects are repaired.
            self.trouble_over = until;
            self.trouble_at = Some(until + self.random.between(1, 1000) * MILLISECOND);
        }
    }

    /// Whether a queue pair has waited for an acknowledgement since before the end of the last trouble. For a
    /// requester, two troubles without progress between them are one trouble, which may last longer than
    /// its retries.
    fn is_unrepaired(&self) -> bool {
        let since = self.now - self.trouble_over;
        let mut sides = self.nodes.iter().flat_map(|node| node.sides.values());
        sides.any(|side| side.checks.waited(self.now) > since)
    }

    /// Sends a forged packet to a queue pair of a node, in the name of its peer, with a PSN far from
    /// those in use.
    fn forge(&mut self, to: usize) {
        let sides = &self.nodes[to].sides;
        let nth = self.random.below(sides.len() as u64) as usize;
        let side = sides.values().nth(nth).expect("a connected queue pair");
        let peers = &self.nodes[side.peer.node].sides;
        let its_peer = peers.get(&side.peer.qpn.get()).expect("both ends exist");
        // Half the PSN space, less what can be in flight.
        let far = self.random.between(1 << 16, (1 << 24) - (1 << 16)) as u32;
        let is_request = self.random.percent(50);
        let (opcode, psn) = if is_request {
            (self.random.below(6) as u8, its_peer.checks.next())
        } else {
            (opcode::RC_ACKNOWLEDGE, side.checks.next())
        };
        let aeth = Aeth {
            syndrome: self
                .random
                .one_of(&[0x00, 0x1f, 0x2c, 0x45, 0x60, 0x61, 0x63, 0x7f]),
            msn: [0, 0, self.random.word() as u8],
        };
        let immediate = matches!(opcode, opcode::RC_SEND_LAST_IMM | opcode::RC_SEND_ONLY_IMM);
        let repr = Repr {
            opcode,
            solicited: false,
            mig_req: false,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: side.qp.qpn(),
            ack_req: self.random.percent(50),
            psn: psn.advance(far),
            extended: Extended {
                aeth: (!is_request).then_some(aeth),
                imm_dt: immediate.then_some(ImmDt([6; 4])),
                ..Extended::default()
            },
            payload: if is_request { &[6; 256] } else { &[] },
        };
        let from = side.peer.node;
        self.network
            .inject(self.now, from, to, &forge(from, to, &repr));
    }

    fn two_nodes(&mut self) -> (usize, usize) {
        let n = self.nodes.len() as u64;
        let a = self.random.below(n);
        let b = (a + 1 + self.random.below(n - 1)) % n;
        (a as usize, b as usize)
    }
}
