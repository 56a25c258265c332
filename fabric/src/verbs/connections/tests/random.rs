//! Any steps in any order, with failing calls.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const EVENTS: [CmEvent; 12] = [
    CmEvent::AddrResolved,
    CmEvent::AddrError,
    CmEvent::RouteResolved,
    CmEvent::RouteError,
    CmEvent::ConnectResponse,
    CmEvent::ConnectError,
    CmEvent::Unreachable,
    CmEvent::Rejected,
    CmEvent::Established,
    CmEvent::Disconnected,
    CmEvent::DeviceRemoval,
    CmEvent::TimewaitExit,
];

#[derive(Clone, Debug)]
enum Step {
    Connect,
    Request(u32),
    Event(usize, usize),
    Accept(usize),
    Establish(usize),
    Reject(usize),
    Close(usize),
    CloseAll,
    Post(usize),
    Sent(u32, bool, bool),
    Received(u32, bool),
    Pass(u64),
    Quiet,
    FailAfter(u32),
    Change(u8),
    Reattach,
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0usize..12;
    prop_oneof![
        4 => Just(Step::Connect),
        4 => prop_oneof![Just(MY_QPN), Just(OTHER_QPN), Just(0)].prop_map(Step::Request),
        // Often the event that continues.
        8 => (which(), prop_oneof![Just(0usize), Just(2), Just(4), Just(8)])
            .prop_map(|(n, e)| Step::Event(n, e)),
        2 => (which(), 0..EVENTS.len()).prop_map(|(n, e)| Step::Event(n, e)),
        3 => which().prop_map(Step::Accept),
        3 => which().prop_map(Step::Establish),
        1 => which().prop_map(Step::Reject),
        2 => which().prop_map(Step::Close),
        1 => Just(Step::CloseAll),
        6 => which().prop_map(Step::Post),
        4 => (0x100u32..0x108, any::<bool>(), prop::bool::weighted(0.9))
            .prop_map(|(q, last, good)| Step::Sent(q, last, good)),
        2 => (0x100u32..0x108, prop::bool::weighted(0.9)).prop_map(|(q, good)| Step::Received(q, good)),
        3 => (0u64..3000).prop_map(Step::Pass),
        2 => Just(Step::Quiet),
        2 => (0u32..6).prop_map(Step::FailAfter),
        1 => (0u8..4).prop_map(Step::Change),
        1 => Just(Step::Reattach),
    ]
}

/// Knowledge of the consumer and the network.
struct Outside {
    w: World,
    /// Connections that the consumer may name, in order.
    known: Vec<ConnectionId>,
    contexts: BTreeMap<usize, u64>,
    over: BTreeSet<ConnectionId>,
    seen: BTreeSet<ConnectionId>,
}

impl Outside {
    fn name(&self, n: usize) -> ConnectionId {
        let n = n % self.known.len().max(1);
        self.known.get(n).copied().unwrap_or(ConnectionId(999))
    }

    fn ended(&mut self, n: usize) {
        let id = self.name(n);
        self.over.insert(id);
    }

    fn note(&mut self, id: ConnectionId) {
        assert!(self.seen.insert(id), "a name is used again");
        self.known.push(id);
        let context = self.w.fake().last_context;
        self.contexts.insert(self.known.len() - 1, context);
    }

    fn take(&mut self, step: &Step) {
        let now = self.w.now;
        match *step {
            Step::Connect => {
                if let Ok(id) = self.w.engine.connect(now, ME, &asks(SERVICE)) {
                    self.note(id);
                }
            }
            Step::Request(to) => {
                self.w.request(to);
                // The last context belongs to this request, which is handled before the next step.
            }
            Step::Event(n, e) => {
                let context = self.contexts.get(&n).copied().unwrap_or(n as u64);
                self.w.of(context, EVENTS[e], 8);
            }
            Step::Accept(n) => self.w.engine.accept(now, self.name(n), b"yes"),
            Step::Establish(n) => self.w.engine.establish(now, self.name(n)),
            Step::Reject(n) => {
                // Ends a connection that can be rejected, and nothing else.
                let id = self.name(n);
                let reason = RejectReason::CONSUMER;
                self.w.engine.reject(now, id, reason, &[]);
                if self.w.engine.table.by_id(id).is_none() {
                    self.over.insert(id);
                }
            }
            Step::Close(n) => {
                self.w.engine.close(now, self.name(n));
                self.ended(n);
            }
            Step::CloseAll => {
                let of_me: Vec<ConnectionId> = self
                    .w
                    .engine
                    .list()
                    .iter()
                    .filter(|c| c.endpoint == ME)
                    .map(|c| c.connection)
                    .collect();
                self.w.engine.close_all(now, ME);
                self.over.extend(of_me);
                self.w.engine.listen(now, ME, SERVICE);
            }
            Step::Post(n) => {
                let id = self.name(n);
                let had_room = self.w.engine.room(now, id).is_some_and(|r| r.messages >= 2);
                let posted = self.w.post(id);
                assert_eq!(had_room, posted.is_ok());
            }
            Step::Sent(q, last, good) => {
                let status = if good {
                    WcStatus::Success
                } else {
                    WcStatus::RetryExcErr
                };
                self.w.engine.sent(now, Qpn::new(q), status, last);
            }
            Step::Received(q, good) => {
                let status = if good {
                    WcStatus::Success
                } else {
                    WcStatus::LocLenErr
                };
                let got = self.w.engine.received(now, Qpn::new(q), status, 10);
                if let Some(got) = got {
                    assert!(self.w.engine.table.by_id(got.connection).is_some());
                }
            }
            Step::Pass(ms) => self.w.pass(Duration::from_millis(ms)),
            Step::Quiet => self.w.engine.receive_queue_empty(),
            Step::FailAfter(n) => self.w.fake().fails_after = Some(n),
            Step::Change(n) => {
                let mut other = view();
                match n {
                    0 => other.path_mtu = None,
                    1 => {
                        if let Some(member) = other.members.get_mut(&ME) {
                            member.entry = None;
                        }
                    }
                    _ => {}
                }
                self.w.engine.follow(now, other);
            }
            Step::Reattach => {
                let mut device = self.w.engine.detach(now).unwrap();
                device.assert_empty();
                device.fails_after = None;
                self.w.engine.attach(now, device);
            }
        }
    }

    /// Checks the events of the consumer: each end is reported once, unless the consumer requested it.
    fn check_events(&mut self) {
        while let Some(event) = self.w.engine.poll_event() {
            match event {
                ConnectionEvent::Requested { connection, .. } => self.note(connection),
                ConnectionEvent::Replied { connection, .. } => {
                    assert!(self.seen.contains(&connection));
                }
                ConnectionEvent::Closed { connection, .. } => {
                    assert!(self.over.insert(connection), "it was over already");
                }
            }
        }
    }

    fn check(&self) {
        let engine = &self.w.engine;
        let outstanding: u32 = engine.table.iter().map(|(_, c)| c.sends.messages()).sum();
        assert_eq!(engine.outstanding, outstanding);
        assert!(engine.table.len() <= BOUNDS.connections);
        assert!(outstanding <= BOUNDS.completions);
        for (_, c) in engine.table.iter() {
            assert!(c.sends.messages() <= BOUNDS.messages && c.sends.lists() <= BOUNDS.lists);
            let waits = c.waits();
            assert!(
                !waits || engine.sweep.is_some(),
                "{:?} is forgotten",
                c.state
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn nothing_is_lost_and_nothing_is_left(steps in prop::collection::vec(step(), 1..120)) {
        let mut outside = Outside {
            w: World::listening(),
            known: Vec::new(),
            contexts: BTreeMap::new(),
            over: BTreeSet::new(),
            seen: BTreeSet::new(),
        };
        for step in &steps {
            outside.take(step);
            outside.check_events();
            outside.check();
        }
        outside.w.fake().fails_after = None;
        for endpoint in [ME, OTHER] {
            outside.w.engine.close_all(outside.w.now, endpoint);
        }
        outside.w.pass(Duration::from_secs(60));
        outside.check_events();
        outside.w.fake().assert_empty();
        prop_assert!(outside.w.fake().pairs().is_empty());
        prop_assert_eq!(outside.w.engine.next_deadline(), None);
        prop_assert!(outside.w.engine.has_room());
    }
}
