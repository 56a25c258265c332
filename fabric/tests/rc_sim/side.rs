//! One end of a connection: a queue pair and its checks.

use fabric::soft::qp::{Attributes, State};
use fabric::soft::rc::{QpEvent, RcQp, Shared};
use fabric::{IbMtu, Psn, Qpn, WcStatus};

use crate::network::Time;
use crate::packet_checks::PacketChecks;
use crate::packets::gid;
use crate::plain::Plain;
use crate::scenario::Patience;

/// Node, queue pair number and first PSN of an end.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub node: usize,
    pub qpn: Qpn,
    /// The first PSN to send.
    pub psn: Psn,
}

impl Place {
    /// A queue pair that starts at PSN 0.
    pub fn of(node: usize, qpn: u32) -> Place {
        Place {
            node,
            qpn: Qpn::new(qpn),
            psn: Psn::new(0),
        }
    }
}

/// One end.
#[derive(Debug)]
pub struct Side {
    pub qp: RcQp,
    pub connection: usize,
    /// Index of the flow to send, and of the flow to receive.
    pub sends: usize,
    pub receives: usize,
    pub peer: Place,
    pub checks: PacketChecks,
    /// The responder for requests, instead of ours.
    pub plain: Option<Plain>,
    pub mtu: IbMtu,
    /// Complete messages received by this queue pair.
    pub arrived: u64,
    /// When to post again, in the world's time, and the number of requests until the next pause.
    pub post_at: Time,
    pub burst_left: u64,
    /// Whether the consumer drains the queue pair.
    pub draining: bool,
    pub restart_at: Option<Time>,
    pub comm_est: bool,
}

impl Side {
    /// Moves the queue pair through INIT and RTR to RTS.
    #[allow(clippy::too_many_arguments)]
    pub fn connect(
        now: Time,
        shared: &mut Shared,
        connection: usize,
        flows: (usize, usize),
        here: Place,
        peer: Place,
        mtu: IbMtu,
        patience: &Patience,
    ) -> Side {
        let mut qp = RcQp::new(here.qpn);
        let init = Attributes::rc_init(0);
        let Patience {
            timeout,
            retry_cnt,
            rnr_retry,
            min_rnr_timer,
        } = *patience;
        let rtr = Attributes::rc_rtr(gid(peer.node), peer.qpn, mtu, peer.psn, min_rnr_timer);
        let rts = Attributes::rc_rts(here.psn, timeout, retry_cnt, rnr_retry);
        for (state, attributes) in [(State::Init, init), (State::Rtr, rtr), (State::Rts, rts)] {
            qp.modify(shared, state, &attributes)
                .expect("a legal transition");
        }
        Side {
            qp,
            connection,
            sends: flows.0,
            receives: flows.1,
            peer,
            checks: PacketChecks::new(here.psn, now),
            plain: None,
            mtu,
            arrived: 0,
            post_at: now,
            burst_left: 0,
            draining: false,
            restart_at: None,
            comm_est: false,
        }
    }

    /// The status of the queue pair's failure.
    pub fn failure(&self) -> Option<WcStatus> {
        self.qp.failure()
    }

    /// Handles events.
    pub fn note_events(&mut self) {
        while let Some(event) = self.qp.poll_event() {
            match event {
                QpEvent::CommEst => {
                    assert!(!self.comm_est, "established twice");
                    self.comm_est = true;
                }
                QpEvent::SqDrained => {
                    assert!(self.draining, "drained without a request");
                    assert_eq!(self.checks.outstanding(), 0, "in flight after a drain");
                    self.draining = false;
                    self.restart_at = Some(0);
                }
                QpEvent::SrqLimitReached => {}
                QpEvent::QpFatal | QpEvent::QpReqErr | QpEvent::LastWqeReached => {
                    assert_eq!(self.qp.state(), State::Err, "{event:?}");
                }
            }
        }
    }
}
