//! Two nodes and a network between them; a closure decides on each datagram.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

/// A user's view of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Asked,
    Accepted,
    Open,
    /// The user ended it.
    Left,
    /// An event ended it.
    Ended(CmEvent),
    Released,
}

pub struct Node {
    pub cm: Cm,
    pub gid: Gid,
    pub seen: BTreeMap<CmId, Seen>,
    next_qpn: u32,
}

impl Node {
    fn new(n: u8) -> Node {
        Node {
            cm: Cm::new(config(n)),
            gid: gid(n),
            seen: BTreeMap::new(),
            next_qpn: 0x100 * u32::from(n),
        }
    }

    fn qpn(&mut self) -> u32 {
        self.next_qpn += 1;
        self.next_qpn
    }

    /// Answers events, and checks that their order is valid.
    fn attend(&mut self, now: Instant) {
        while let Some(event) = self.cm.poll_event() {
            let id = event.id();
            let seen = self.seen.get(&id).cloned();
            let next = match (&event, seen) {
                (CmEvent::Requested { .. }, None) => {
                    let qpn = self.qpn();
                    self.cm.accept(now, id, &consent(qpn));
                    Seen::Accepted
                }
                (CmEvent::Replied { .. }, Some(Seen::Asked)) => {
                    self.cm.establish(id);
                    Seen::Open
                }
                (CmEvent::Established { .. }, Some(Seen::Accepted)) => Seen::Open,
                (CmEvent::Released { .. }, Some(Seen::Left | Seen::Ended(_))) => Seen::Released,
                (
                    CmEvent::Rejected { .. }
                    | CmEvent::TimedOut { .. }
                    | CmEvent::Disconnected { .. },
                    Some(Seen::Asked | Seen::Accepted | Seen::Open),
                ) => Seen::Ended(event.clone()),
                (_, seen) => panic!("{event:?} after {seen:?}"),
            };
            self.seen.insert(id, next);
        }
        self.cm.table.assert_consistent();
    }

    pub fn open(&self) -> Vec<CmId> {
        let open = |id: &&CmId| self.cm.state(**id) == Some("ESTABLISHED");
        self.seen.keys().filter(open).copied().collect()
    }
}

/// Delays of a datagram, one for each copy; empty if it is lost.
pub type Fate<'a> = Box<dyn FnMut(usize, &Datagram) -> Vec<Duration> + 'a>;

pub struct World<'a> {
    pub now: Instant,
    pub nodes: [Node; 2],
    /// By time and order: destination and datagram.
    flight: BTreeMap<(Instant, u64), (usize, Datagram)>,
    sent: u64,
    /// Sender and message of each datagram.
    pub log: Vec<(usize, &'static str)>,
    fate: Fate<'a>,
}

impl<'a> World<'a> {
    pub fn new(fate: impl FnMut(usize, &Datagram) -> Vec<Duration> + 'a) -> World<'a> {
        World {
            now: Instant(5_000_000_000),
            nodes: [Node::new(1), Node::new(2)],
            flight: BTreeMap::new(),
            sent: 0,
            log: Vec::new(),
            fate: Box::new(fate),
        }
    }

    pub fn connect(&mut self, from: usize) -> CmId {
        let to = self.nodes[1 - from].gid;
        let node = &mut self.nodes[from];
        let qpn = node.qpn();
        let id = node.cm.connect(self.now, &ask(node.gid, to, qpn)).unwrap();
        node.seen.insert(id, Seen::Asked);
        id
    }

    pub fn disconnect(&mut self, node: usize, id: CmId) {
        let node = &mut self.nodes[node];
        node.cm.disconnect(self.now, id);
        if matches!(node.seen[&id], Seen::Asked | Seen::Accepted | Seen::Open) {
            node.seen.insert(id, Seen::Left);
        }
    }

    /// Runs for a time, with all events at their times.
    pub fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            self.launch();
            let timers = self.nodes.iter().filter_map(|n| n.cm.next_deadline());
            let arrival = self.flight.keys().next().map(|(at, _)| *at);
            let next = timers.chain(arrival).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            self.deliver();
            for node in &mut self.nodes {
                node.cm.handle_timeout(self.now);
                node.attend(self.now);
            }
        }
        self.now = end;
    }

    fn launch(&mut self) {
        for from in 0..2 {
            self.nodes[from].attend(self.now);
            for (to, mad) in drain(&mut self.nodes[from].cm) {
                assert_eq!(to, self.nodes[1 - from].gid);
                self.log.push((from, name(&mad)));
                for delay in (self.fate)(from, &mad) {
                    self.sent += 1;
                    let key = (self.now.after(delay), self.sent);
                    self.flight.insert(key, (1 - from, mad));
                }
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(first) = self.flight.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (to, mad) = first.remove();
            let from = self.nodes[1 - to].gid;
            self.nodes[to].cm.receive(self.now, from, &mad, listens);
            self.nodes[to].attend(self.now);
        }
    }

    /// Checks that both sides have the same open connections, and that nothing is in flight.
    pub fn assert_settled(&self) {
        let [a, b] = &self.nodes;
        let pairs = |n: &Node, swap: bool| {
            let mut pairs: Vec<_> = n
                .open()
                .into_iter()
                .map(|id| n.cm.table.get(id).unwrap().ids(id))
                .map(|ids| {
                    if swap {
                        (ids.remote, ids.local)
                    } else {
                        (ids.local, ids.remote)
                    }
                })
                .collect();
            pairs.sort_unstable();
            pairs
        };
        assert_eq!(pairs(a, false), pairs(b, true), "{:?}", self.log);
        for node in &self.nodes {
            for (id, seen) in &node.seen {
                let open = node.cm.state(*id) == Some("ESTABLISHED");
                let expected = if open { Seen::Open } else { Seen::Released };
                assert_eq!(*seen, expected, "{:?} {:?}", node.cm.state(*id), self.log);
            }
            assert_eq!(node.cm.table.len(), node.open().len(), "{:?}", self.log);
            assert_eq!(node.cm.next_deadline(), None);
        }
    }
}

/// A network without losses.
pub fn perfect(_: usize, _: &Datagram) -> Vec<Duration> {
    vec![Duration::from_millis(1)]
}
