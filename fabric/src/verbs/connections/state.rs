//! States of a connection, and the acts that follow each input: a table without input or output. The
//! rest of this module carries out the acts.
//!
//! The kernel's communication manager implements the protocol (IBA vol. 1, 12.9). This table has the
//! order of rdma_cm(7) calls for queue pairs that rdma_cm does not own.

use proto::{CloseReason, RejectReason};

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Active side: resolving the peer's link-layer address.
    Resolving,
    /// Active side: resolving the route.
    Routing,
    /// The request was sent; the peer has not answered.
    Asking,
    /// The peer accepted; the consumer has not confirmed.
    Replied,
    /// A request was received; the consumer has not answered.
    Asked,
    /// The consumer accepted. Messages may arrive before the ReadyToUse.
    Accepted,
    /// Established.
    Open,
    /// Closed for the consumer; the queue pair is in ERR and returns posted work.
    Draining,
    /// Ended.
    Gone,
}

/// Inputs of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// RDMA_CM_EVENT_ADDR_RESOLVED.
    AddressResolved,
    /// RDMA_CM_EVENT_ROUTE_RESOLVED.
    RouteResolved,
    /// RDMA_CM_EVENT_CONNECT_RESPONSE: the peer's REP.
    Response,
    /// RDMA_CM_EVENT_ESTABLISHED: the peer's RTU.
    Established,
    /// The peer, the network, the device or a failed call ended the connection.
    Lost(CloseReason),
    /// The consumer accepts a request.
    Accept,
    /// The consumer confirms a reply.
    Establish,
    /// The consumer rejects a request or a reply.
    Reject,
    /// The consumer closes the connection.
    Close,
    /// All posted work has come back.
    Drained,
}

/// Acts, in order of execution. A failed act causes [`Input::Lost`] and skips the acts after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// rdma_resolve_route.
    ResolveRoute,
    /// Create a queue pair in INIT.
    Make,
    /// rdma_connect.
    Ask,
    /// Report the peer's reply to the consumer.
    NotifyReplied,
    /// Change the queue pair to RTR and RTS.
    BringUp,
    /// rdma_accept.
    Accept,
    /// rdma_establish.
    Confirm,
    /// rdma_reject.
    Reject,
    /// rdma_disconnect.
    Disconnect,
    /// Change the queue pair to ERR.
    Stop,
    /// Report the end and its reason to the consumer.
    NotifyClosed(CloseReason),
    /// Destroy the queue pair and the id.
    Destroy,
}

/// Maximum number of acts after one input.
const ACTS_MAX: usize = 3;

/// Result of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The new state.
    pub next: State,
    acts: [Option<Act>; ACTS_MAX],
}

impl Step {
    fn new(next: State, acts: &[Act]) -> Step {
        let mut all = [None; ACTS_MAX];
        for (place, act) in all.iter_mut().zip(acts) {
            *place = Some(*act);
        }
        Step { next, acts: all }
    }

    /// The acts, in order.
    pub fn acts(self) -> impl Iterator<Item = Act> {
        self.acts.into_iter().flatten()
    }
}

impl State {
    /// The result of an input in this state. Inputs without a meaning here change nothing: events may
    /// be repeated, and consumers may name ended connections.
    pub fn on(self, input: Input) -> Step {
        use State::{Accepted, Asked, Asking, Draining, Gone, Open, Replied, Resolving, Routing};
        match (self, input) {
            (Resolving, Input::AddressResolved) => Step::new(Routing, &[Act::ResolveRoute]),
            (Routing, Input::RouteResolved) => Step::new(Asking, &[Act::Make, Act::Ask]),
            (Asking, Input::Response) => Step::new(Replied, &[Act::NotifyReplied]),
            (Replied, Input::Establish) => Step::new(Open, &[Act::BringUp, Act::Confirm]),
            (Asked, Input::Accept) => Step::new(Accepted, &[Act::Make, Act::BringUp, Act::Accept]),
            (Accepted, Input::Established) => Step::new(Open, &[]),
            (Asked | Replied, Input::Reject) => Step::new(Gone, &[Act::Reject, Act::Destroy]),
            // Nothing was posted yet. The end of the id notifies the peer with a REJ (kernel
            // drivers/infiniband/core/cm.c, `cm_destroy_id`).
            (Resolving | Routing | Asking | Replied | Asked, Input::Lost(reason)) => {
                Step::new(Gone, &[Act::NotifyClosed(reason), Act::Destroy])
            }
            (Resolving | Routing | Asking | Replied | Asked, Input::Close) => {
                Step::new(Gone, &[Act::Destroy])
            }
            (Accepted | Open, Input::Lost(reason)) => Step::new(
                Draining,
                &[Act::NotifyClosed(reason), Act::Disconnect, Act::Stop],
            ),
            (Accepted | Open, Input::Close) => Step::new(Draining, &[Act::Disconnect, Act::Stop]),
            (Draining, Input::Drained) => Step::new(Gone, &[Act::Destroy]),
            (state, _) => Step::new(state, &[]),
        }
    }

    /// The name in the kernel's communication manager (include/rdma/ib_cm.h, `enum ib_cm_state`), or
    /// before it is involved, in rdma_cm (drivers/infiniband/core/cma_priv.h, `enum rdma_cm_state`).
    pub const fn name(self) -> &'static str {
        match self {
            State::Resolving => "ADDR_QUERY",
            State::Routing => "ROUTE_QUERY",
            State::Asking => "REQ_SENT",
            State::Replied => "REP_RCVD",
            State::Asked => "REQ_RCVD",
            State::Accepted => "REP_SENT",
            State::Open => "ESTABLISHED",
            State::Draining => "DREQ_SENT",
            State::Gone => "IDLE",
        }
    }

    /// Whether the consumer may still name the connection.
    pub const fn is_known(self) -> bool {
        !matches!(self, State::Draining | State::Gone)
    }

    /// Whether messages of the peer may arrive.
    pub const fn receives(self) -> bool {
        matches!(self, State::Accepted | State::Open)
    }
}

/// An event of rdma_cm that matters to a connection (rdma_get_cm_event(3)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the field's")]
pub enum CmEvent {
    AddrResolved,
    AddrError,
    RouteResolved,
    RouteError,
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    AddrChange,
    TimewaitExit,
}

/// The input for an event; `None` if it has no meaning. `status` is a negative errno, or the reason of
/// a REJ.
pub fn meaning(event: CmEvent, status: i32) -> Option<Input> {
    Some(match event {
        CmEvent::AddrResolved => Input::AddressResolved,
        CmEvent::RouteResolved => Input::RouteResolved,
        CmEvent::ConnectResponse => Input::Response,
        CmEvent::Established => Input::Established,
        CmEvent::AddrError | CmEvent::RouteError | CmEvent::Unreachable => {
            Input::Lost(CloseReason::TimedOut)
        }
        // The kernel could not process a REP, and rejected it.
        CmEvent::ConnectError => Input::Lost(CloseReason::Rejected(RejectReason::CONSUMER)),
        CmEvent::Rejected => {
            let reason = u16::try_from(status).map_or(RejectReason::CONSUMER, RejectReason);
            Input::Lost(CloseReason::Rejected(reason))
        }
        CmEvent::Disconnected => Input::Lost(CloseReason::Disconnected),
        CmEvent::DeviceRemoval | CmEvent::AddrChange => Input::Lost(CloseReason::PortGone),
        CmEvent::TimewaitExit => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATES: [State; 9] = [
        State::Resolving,
        State::Routing,
        State::Asking,
        State::Replied,
        State::Asked,
        State::Accepted,
        State::Open,
        State::Draining,
        State::Gone,
    ];

    const LOST: Input = Input::Lost(CloseReason::TimedOut);

    const INPUTS: [Input; 10] = [
        Input::AddressResolved,
        Input::RouteResolved,
        Input::Response,
        Input::Established,
        LOST,
        Input::Accept,
        Input::Establish,
        Input::Reject,
        Input::Close,
        Input::Drained,
    ];

    fn walk(start: State, inputs: &[Input]) -> (State, Vec<Act>) {
        let mut acts = Vec::new();
        let mut state = start;
        for input in inputs {
            let step = state.on(*input);
            acts.extend(step.acts());
            state = step.next;
        }
        (state, acts)
    }

    #[test]
    fn who_asks_goes_this_way() {
        let inputs = [
            Input::AddressResolved,
            Input::RouteResolved,
            Input::Response,
            Input::Establish,
            Input::Close,
            Input::Drained,
        ];
        let (state, acts) = walk(State::Resolving, &inputs);
        assert_eq!(state, State::Gone);
        let expected = [
            Act::ResolveRoute,
            Act::Make,
            Act::Ask,
            Act::NotifyReplied,
            Act::BringUp,
            Act::Confirm,
            Act::Disconnect,
            Act::Stop,
            Act::Destroy,
        ];
        assert_eq!(acts, expected);
    }

    #[test]
    fn who_is_asked_goes_this_way() {
        let reason = CloseReason::Disconnected;
        let inputs = [
            Input::Accept,
            Input::Established,
            Input::Lost(reason),
            Input::Lost(CloseReason::TimedOut),
            Input::Drained,
        ];
        let (state, acts) = walk(State::Asked, &inputs);
        assert_eq!(state, State::Gone);
        let expected = [
            Act::Make,
            Act::BringUp,
            Act::Accept,
            Act::NotifyClosed(reason),
            Act::Disconnect,
            Act::Stop,
            Act::Destroy,
        ];
        assert_eq!(acts, expected);
    }

    #[test]
    fn a_request_or_a_reply_can_be_rejected_and_nothing_else() {
        for state in STATES {
            let step = state.on(Input::Reject);
            if matches!(state, State::Asked | State::Replied) {
                assert!(step.acts().eq([Act::Reject, Act::Destroy]));
            } else {
                assert_eq!(step, Step::new(state, &[]), "{state:?}");
            }
        }
    }

    #[test]
    fn every_connection_can_be_closed_and_lost() {
        for state in STATES {
            for input in [Input::Close, LOST] {
                let next = state.on(input).next;
                assert!(!next.is_known(), "{state:?}");
            }
        }
    }

    #[test]
    fn what_ended_stays_so() {
        for input in INPUTS {
            assert_eq!(State::Gone.on(input), Step::new(State::Gone, &[]));
            let drained = input == Input::Drained;
            let draining = State::Draining.on(input);
            assert_eq!(draining.next == State::Gone, drained);
            assert_eq!(draining.acts().count(), usize::from(drained));
        }
    }

    #[test]
    fn events_end_a_connection_with_their_reason() {
        let rejected = |n| Some(Input::Lost(CloseReason::Rejected(RejectReason(n))));
        assert_eq!(meaning(CmEvent::Rejected, 8), rejected(8));
        assert_eq!(meaning(CmEvent::Rejected, -104), rejected(28));
        assert_eq!(meaning(CmEvent::Unreachable, -110), Some(LOST));
        assert_eq!(meaning(CmEvent::AddrError, -110), Some(LOST));
        let gone = Some(Input::Lost(CloseReason::PortGone));
        assert_eq!(meaning(CmEvent::DeviceRemoval, 0), gone);
        assert_eq!(meaning(CmEvent::TimewaitExit, 0), None);
    }

    proptest! {
        /// For any inputs in any order: the end is reported to the consumer once, unless the consumer
        /// requested it; a queue pair is created, connected and destroyed once, in this order; nothing
        /// follows the end.
        #[test]
        fn any_order_of_events_keeps_the_rules(
            active: bool,
            choices in proptest::collection::vec(0..INPUTS.len(), 0..40),
        ) {
            let mut state = if active { State::Resolving } else { State::Asked };
            let (mut made, mut up, mut ended, mut reported) = (0, 0, 0, 0);
            for n in choices {
                let was = state;
                let step = state.on(INPUTS[n]);
                for act in step.acts() {
                    match act {
                        Act::Make => made += 1,
                        Act::BringUp => {
                            prop_assert_eq!(made, 1);
                            up += 1;
                        }
                        Act::Stop | Act::Disconnect => prop_assert_eq!(up, 1),
                        Act::NotifyClosed(_) => {
                            prop_assert!(was.is_known() && INPUTS[n] == LOST);
                            reported += 1;
                        }
                        Act::Destroy => ended += 1,
                        Act::ResolveRoute | Act::Ask | Act::NotifyReplied | Act::Confirm => {
                            prop_assert!(active);
                        }
                        Act::Accept => prop_assert!(!active),
                        Act::Reject => {}
                    }
                    prop_assert!(ended == 0 || act == Act::Destroy);
                }
                state = step.next;
            }
            prop_assert!(made <= 1 && up <= 1 && reported <= 1);
            prop_assert_eq!(ended == 1, state == State::Gone);
        }
    }
}
