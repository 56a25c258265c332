//! What a connection is in, and what each thing that happens to it means: a table without input or
//! output, which the rest of this module carries out.
//!
//! The kernel's communication manager keeps the protocol (IBA vol. 1, 12.9); what is left is the order
//! of calls of rdma_cm(7) for queue pairs that are not rdma_cm's own.

use proto::{CloseReason, RejectReason};

/// What a connection is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// We want one: the peer's link-layer address is looked for.
    Resolving,
    /// And the way to it.
    Routing,
    /// We asked; the peer has not answered.
    Asking,
    /// The peer consented; the consumer has not confirmed.
    Replied,
    /// The peer asked; the consumer has not answered.
    Asked,
    /// The consumer consented. The peer's messages may come before its ReadyToUse.
    Accepted,
    /// Messages go.
    Open,
    /// The consumer knows of it no more; its queue pair is in ERR and gives back what was posted.
    Draining,
    /// Nothing is left of it.
    Gone,
}

/// What happens to a connection.
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
    /// The peer, the network, the device or a call ended it.
    Lost(CloseReason),
    /// The consumer consents to a request.
    Accept,
    /// The consumer confirms a reply.
    Establish,
    /// The consumer rejects a request or a reply.
    Reject,
    /// The consumer wants no more of it.
    Close,
    /// All that was posted has come back.
    Drained,
}

/// What is to be done, in this order. A step that fails is [`Input::Lost`], and what was to follow it is
/// left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// rdma_resolve_route.
    ResolveRoute,
    /// Make a queue pair in INIT.
    Make,
    /// rdma_connect.
    Ask,
    /// Give the consumer the peer's reply.
    TellReplied,
    /// Take the queue pair to RTR and RTS.
    BringUp,
    /// rdma_accept.
    Accept,
    /// rdma_establish.
    Confirm,
    /// rdma_reject.
    Reject,
    /// rdma_disconnect.
    Disconnect,
    /// Take the queue pair to ERR.
    Stop,
    /// Tell the consumer that it is over, and why.
    TellClosed(CloseReason),
    /// Destroy the queue pair and the id.
    Destroy,
}

/// The most steps that follow one input.
const ACTS_MAX: usize = 3;

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The state from now on.
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

    /// What is to be done, in order.
    pub fn acts(self) -> impl Iterator<Item = Act> {
        self.acts.into_iter().flatten()
    }
}

impl State {
    /// What an input means here. What means nothing changes nothing: events are told twice, and
    /// consumers name what has ended.
    pub fn on(self, input: Input) -> Step {
        use State::{Accepted, Asked, Asking, Draining, Gone, Open, Replied, Resolving, Routing};
        match (self, input) {
            (Resolving, Input::AddressResolved) => Step::new(Routing, &[Act::ResolveRoute]),
            (Routing, Input::RouteResolved) => Step::new(Asking, &[Act::Make, Act::Ask]),
            (Asking, Input::Response) => Step::new(Replied, &[Act::TellReplied]),
            (Replied, Input::Establish) => Step::new(Open, &[Act::BringUp, Act::Confirm]),
            (Asked, Input::Accept) => Step::new(Accepted, &[Act::Make, Act::BringUp, Act::Accept]),
            (Accepted, Input::Established) => Step::new(Open, &[]),
            (Asked | Replied, Input::Reject) => Step::new(Gone, &[Act::Reject, Act::Destroy]),
            // Nothing was posted on it yet: the peer learns from the end of the id (kernel
            // drivers/infiniband/core/cm.c, `cm_destroy_id`: a REJ).
            (Resolving | Routing | Asking | Replied | Asked, Input::Lost(reason)) => {
                Step::new(Gone, &[Act::TellClosed(reason), Act::Destroy])
            }
            (Resolving | Routing | Asking | Replied | Asked, Input::Close) => {
                Step::new(Gone, &[Act::Destroy])
            }
            (Accepted | Open, Input::Lost(reason)) => Step::new(
                Draining,
                &[Act::TellClosed(reason), Act::Disconnect, Act::Stop],
            ),
            (Accepted | Open, Input::Close) => Step::new(Draining, &[Act::Disconnect, Act::Stop]),
            (Draining, Input::Drained) => Step::new(Gone, &[Act::Destroy]),
            (state, _) => Step::new(state, &[]),
        }
    }

    /// As the communication manager names it (kernel include/rdma/ib_cm.h, `enum ib_cm_state`), and
    /// as rdma_cm does before that comes in (drivers/infiniband/core/cma_priv.h, `enum
    /// rdma_cm_state`).
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

    /// Whether the consumer may still name it.
    pub const fn is_known(self) -> bool {
        !matches!(self, State::Draining | State::Gone)
    }

    /// Whether the peer's messages may come.
    pub const fn receives(self) -> bool {
        matches!(self, State::Accepted | State::Open)
    }
}

/// An event of rdma_cm, as far as it matters to a connection (rdma_get_cm_event(3)).
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

/// What an event means; `status` is the event's: a negative errno, or the reason of a REJ. `None` for
/// one that means nothing.
pub fn meaning(event: CmEvent, status: i32) -> Option<Input> {
    Some(match event {
        CmEvent::AddrResolved => Input::AddressResolved,
        CmEvent::RouteResolved => Input::RouteResolved,
        CmEvent::ConnectResponse => Input::Response,
        CmEvent::Established => Input::Established,
        CmEvent::AddrError | CmEvent::RouteError | CmEvent::Unreachable => {
            Input::Lost(CloseReason::TimedOut)
        }
        // The kernel could not go on with a REP: it has rejected it.
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
            Act::TellReplied,
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
            Act::TellClosed(reason),
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
        /// Whatever happens in whatever order: the consumer hears of an end once, and not of one that
        /// it wanted; a queue pair is made, brought up and destroyed once, in this order; and nothing
        /// follows the end.
        #[test]
        fn any_order_of_events_keeps_the_rules(
            active: bool,
            choices in proptest::collection::vec(0..INPUTS.len(), 0..40),
        ) {
            let mut state = if active { State::Resolving } else { State::Asked };
            let (mut made, mut up, mut ended, mut told) = (0, 0, 0, 0);
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
                        Act::TellClosed(_) => {
                            prop_assert!(was.is_known() && INPUTS[n] == LOST);
                            told += 1;
                        }
                        Act::Destroy => ended += 1,
                        Act::ResolveRoute | Act::Ask | Act::TellReplied | Act::Confirm => {
                            prop_assert!(active);
                        }
                        Act::Accept => prop_assert!(!active),
                        Act::Reject => {}
                    }
                    prop_assert!(ended == 0 || act == Act::Destroy);
                }
                state = step.next;
            }
            prop_assert!(made <= 1 && up <= 1 && told <= 1);
            prop_assert_eq!(ended == 1, state == State::Gone);
        }
    }
}
