//! Two engines with our own communication management, over a network of LIDs that loses, doubles and
//! delays datagrams.

mod answers;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use proptest::prelude::*;
use proto::{
    CloseReason, ConnectionEvent, EndpointId, Gid, Guid, IbMtu, Instant, Lid, PKey, Psn, Qpn,
    RejectReason, ServiceId, Services,
};

use super::super::device::{Address, Device, Event, Path as Agreed, Shape, Source};
use super::super::{Bounds, Engine, Member, View};
use super::manager::{Datagram, Line, Manager};
use super::path::Own;
use crate::PKeyTable;
use crate::cm::CmConfig;
use crate::connection::ConnectRequest;
use crate::mad::cm::Message;
use crate::mad::{MAD_LEN, Mad};
use crate::subnet::SubnetPath;
use crate::umad::{AgentId, Grh, Received, To};
use crate::verbs::ibv::RcParameters;

const ME: EndpointId = EndpointId(1);
const MY_QPN: u32 = 0x42;

const BOUNDS: Bounds = Bounds {
    connections: 8,
    message: 65_524,
    messages: 16,
    lists: 8,
    completions: 64,
};

fn gid(lid: Lid) -> Gid {
    format!("fe80::99:ff:fe00:{:x}", lid.0).parse().unwrap()
}

/// Linux's service of an interface.
fn linux(qpn: u32) -> ServiceId {
    ServiceId(0x10 << 56 | u64::from(qpn))
}

/// A queue pair: its number, and what it was moved to.
#[derive(Debug)]
struct Pair(Qpn);

/// A device with a manager and imaginary queue pairs.
struct Port {
    lid: Lid,
    now: Instant,
    manager: Manager,
    pairs: BTreeMap<u32, Option<(RcParameters, bool)>>,
    next: u32,
}

impl Device for Port {
    type Id = Line;
    type Pair = Pair;
    type Slot = ();
    type Memory = ();

    fn listen(&mut self, at: &Address) -> io::Result<Line> {
        Ok(self.manager.listen(at.service))
    }
    fn begin(&mut self, context: u64, from: &Source, to: &Address) -> io::Result<Line> {
        Ok(self.manager.begin(context, from, to))
    }
    fn set_context(&mut self, line: &mut Line, context: u64) {
        self.manager.set_context(line, context);
    }
    fn resolve_route(&mut self, line: &Line) -> io::Result<()> {
        Ok(self.manager.resolve_route(line)?)
    }
    fn path(&mut self, line: &Line, pkeys: &PKeyTable) -> io::Result<Agreed> {
        Ok(self.manager.path(line, pkeys)?)
    }
    fn make(&mut self, _: &Line, _: u16) -> io::Result<Pair> {
        self.next += 1;
        self.pairs.insert(self.next, None);
        Ok(Pair(Qpn::new(self.next)))
    }
    fn qpn(&self, pair: &Pair) -> Qpn {
        pair.0
    }
    fn bring_up(&mut self, line: &Line, pair: &Pair, sends: bool) -> io::Result<Agreed> {
        let (parameters, path) = self.manager.agreed(line)?;
        self.pairs.insert(pair.0.get(), Some((parameters, sends)));
        Ok(path)
    }
    fn ask(&mut self, line: &Line, pair: &Pair, private_data: &[u8]) -> io::Result<()> {
        Ok(self.manager.ask(self.now, line, pair.0, private_data)?)
    }
    fn accept(&mut self, line: &Line, pair: &Pair, private_data: &[u8]) -> io::Result<()> {
        assert!(
            self.pairs[&pair.0.get()].is_some(),
            "receives before the reply"
        );
        self.manager.accept(self.now, line, pair.0, private_data);
        Ok(())
    }
    fn confirm(&mut self, line: &Line) -> io::Result<()> {
        self.manager.confirm(line);
        Ok(())
    }
    fn reject(&mut self, line: &Line, why: RejectReason, data: &[u8]) -> io::Result<()> {
        self.manager.reject(self.now, line, why, data);
        Ok(())
    }
    fn disconnect(&mut self, line: &Line) -> io::Result<()> {
        self.manager.disconnect(self.now, line);
        Ok(())
    }
    fn stop(&mut self, _: &Pair) -> io::Result<()> {
        Ok(())
    }
    fn event(&mut self) -> io::Result<Option<Event<Line>>> {
        Ok(self.manager.poll_event())
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.manager.next_deadline()
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.manager.handle_timeout(now);
    }
    fn post(&mut self, pair: &Pair, _: &mut (), (): (), _: &Shape) -> io::Result<()> {
        let (_, sends) = self.pairs[&pair.0.get()].as_ref().unwrap();
        assert!(sends);
        Ok(())
    }
    fn destroy(&mut self, line: Line, pair: Option<Pair>) {
        if let Some(pair) = pair {
            self.pairs.remove(&pair.0.get());
        }
        self.manager.destroy(self.now, line);
    }
}

fn own(lid: Lid) -> Own {
    Own {
        number: 1,
        gid_index: 0,
        lid: Some(lid),
        lmc: 0,
    }
}

struct Host {
    lid: Lid,
    engine: Engine<Port>,
}

impl Host {
    fn new(lid: u16, seed: u64) -> Host {
        let (lid, now) = (Lid(lid), Instant(1_000_000_000));
        let mut engine = Engine::new(BOUNDS);
        let pkeys = PKeyTable::new(vec![PKey::DEFAULT, PKey::new(0x8001)]);
        let member = Member {
            qpn: Qpn::new(MY_QPN),
            entry: pkeys.find(PKey::DEFAULT),
        };
        let view = View {
            name: "fake/1".to_owned(),
            gid: gid(lid),
            scope: 0,
            services: Services::InfiniBand,
            listens: true,
            path_mtu: Some(IbMtu::B2048),
            pkeys: pkeys.into(),
            members: [(ME, member)].into(),
        };
        engine.follow(now, view);
        let config = CmConfig {
            ca_guid: Guid([0, 0, 0, 0, 0, 0, 0, lid.0 as u8]),
            worker: 0,
            workers: 1,
            seed: [seed, 7],
            half_open_max: 4,
            connections_max: 16,
        };
        let mut manager = Manager::new(config);
        manager.set_own(own(lid));
        let port = Port {
            lid,
            now,
            manager,
            pairs: BTreeMap::new(),
            next: 0x100,
        };
        engine.attach(now, port);
        Host { lid, engine }
    }

    fn port(&mut self) -> &mut Port {
        self.engine.device().unwrap()
    }
}

/// What the network does with the next datagrams.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    Late,
}

/// Two hosts with LIDs 0x10 and 0x12.
struct Net {
    hosts: [Host; 2],
    now: Instant,
    fates: Vec<Fate>,
    late: Vec<(usize, Received)>,
    /// Every datagram that was sent: sender, attribute, transaction id.
    sent: Vec<(usize, u16, u64)>,
    events: Vec<(usize, ConnectionEvent)>,
    /// Ports have no path to any other.
    no_path: bool,
}

fn received(from: Lid, to: &To, mad: &Datagram) -> Received {
    Received {
        agent: AgentId(7),
        status: 0,
        slid: from,
        sqpn: Qpn::GSI,
        sl: to.sl,
        path_bits: 0,
        pkey_index: to.pkey_index,
        grh: None,
        mad: mad.to_vec(),
    }
}

impl Net {
    fn new(fates: Vec<Fate>) -> Net {
        Net {
            hosts: [Host::new(0x10, 1), Host::new(0x12, 2)],
            now: Instant(1_000_000_000),
            fates,
            late: Vec::new(),
            sent: Vec::new(),
            events: Vec::new(),
            no_path: false,
        }
    }

    fn set_lid(&mut self, n: usize, lid: Lid) {
        self.hosts[n].lid = lid;
        let port = self.hosts[n].port();
        port.lid = lid;
        port.manager.set_own(own(lid));
    }

    fn listening() -> Net {
        let mut net = Net::new(Vec::new());
        net.hosts[1].engine.listen(net.now, ME, linux(MY_QPN));
        net
    }

    fn ask(&mut self, service: ServiceId) -> proto::ConnectionId {
        let request = ConnectRequest {
            service,
            peer: gid(Lid(0x12)),
            to: Qpn::new(MY_QPN),
            private_data: b"hello",
        };
        self.hosts[0]
            .engine
            .connect(self.now, ME, &request)
            .unwrap()
    }

    /// Lets everything happen that happens at once.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let mut quiet = true;
            for n in 0..2 {
                quiet &= !self.step(n);
            }
            if quiet {
                return;
            }
        }
        panic!("the datagrams never end");
    }

    fn step(&mut self, n: usize) -> bool {
        let now = self.now;
        let no_path = self.no_path;
        let peer_lid = self.hosts[1 - n].lid;
        let host = &mut self.hosts[n];
        let Host { engine, lid } = host;
        engine.device().unwrap().now = now;
        let due = engine.next_deadline().is_some_and(|at| at <= now);
        if due {
            engine.handle_timeout(now).unwrap();
        }
        let port = engine.device().unwrap();
        for peer in port.manager.take_wanted() {
            let path = SubnetPath {
                dlid: peer_lid,
                slid: *lid,
                sl: 2,
                rate: 3,
                mtu: IbMtu::B1024,
                packet_life: 18,
                global: None,
            };
            port.manager.path_found(peer, (!no_path).then_some(&path));
        }
        let sent: Vec<_> = std::iter::from_fn(|| port.manager.poll_transmit()).collect();
        let (slid, any) = (port.lid, !sent.is_empty() || due);
        for event in std::iter::from_fn(|| engine.poll_event()) {
            self.events.push((n, event));
        }
        for (to, mad) in sent {
            assert_eq!((to.qpn, to.grh), (Qpn::GSI, None));
            let header = Mad::parse(&mad).unwrap().header;
            let tid = header.transaction_id.get();
            self.sent.push((n, header.attribute_id.get(), tid));
            let to_host = self.hosts.iter().position(|h| h.lid == to.dlid);
            let Some(to_host) = to_host else { continue };
            let datagram = received(slid, &to, &mad);
            match self.fates.pop().unwrap_or(Fate::Arrives) {
                Fate::Arrives => self.deliver(to_host, &datagram),
                Fate::Lost => {}
                Fate::Twice => {
                    self.deliver(to_host, &datagram);
                    self.deliver(to_host, &datagram);
                }
                Fate::Late => self.late.push((to_host, datagram)),
            }
        }
        any
    }

    fn deliver(&mut self, to: usize, datagram: &Received) {
        let now = self.now;
        let engine = &mut self.hosts[to].engine;
        let port = engine.device().unwrap();
        port.now = now;
        port.manager.receive(now, datagram);
        engine.process(now).unwrap();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            self.settle();
            for (to, datagram) in std::mem::take(&mut self.late) {
                self.deliver(to, &datagram);
            }
            self.settle();
            let next = self.hosts.iter().filter_map(|h| h.engine.next_deadline());
            match next.min().filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
        }
        self.now = end;
    }

    /// The consumers accept and confirm; returns what was closed.
    fn consent(&mut self) -> Vec<(usize, CloseReason)> {
        let mut closed = Vec::new();
        for (n, event) in std::mem::take(&mut self.events) {
            let engine = &mut self.hosts[n].engine;
            match event {
                ConnectionEvent::Requested { connection, .. } => {
                    engine.accept(self.now, connection, b"yes");
                }
                ConnectionEvent::Replied { connection, .. } => {
                    engine.establish(self.now, connection);
                }
                ConnectionEvent::Closed { reason, .. } => closed.push((n, reason)),
            }
        }
        closed
    }

    /// Runs until nothing happens any more.
    fn run(&mut self, time: Duration) -> Vec<(usize, CloseReason)> {
        let mut closed = Vec::new();
        let end = self.now.after(time);
        while self.now < end {
            self.pass(Duration::from_millis(20));
            closed.extend(self.consent());
        }
        closed
    }

    fn states(&self) -> Vec<&'static str> {
        let lists = self.hosts.iter().map(|h| h.engine.list());
        lists.flat_map(|l| l.into_iter().map(|c| c.state)).collect()
    }

    /// The only queue pair of a host that was brought up.
    fn pair(&mut self, n: usize) -> (RcParameters, bool) {
        let pairs = &self.hosts[n].port().pairs;
        let up: Vec<_> = pairs.values().flatten().collect();
        assert_eq!(up.len(), 1);
        *up[0]
    }
}

#[test]
fn both_queue_pairs_get_the_path_and_each_other_s_numbers() {
    let mut net = Net::listening();
    net.ask(linux(MY_QPN));
    assert_eq!(net.run(Duration::from_secs(1)), []);
    assert_eq!(net.states(), ["ESTABLISHED"; 2]);
    let ((asks, sends), (takes, replies)) = (net.pair(0), net.pair(1));
    // Each receives from the PSN on that it named itself, and sends from the one that the peer named.
    assert_eq!((asks.rq_psn, asks.sq_psn), (takes.sq_psn, takes.rq_psn));
    assert!(asks.rq_psn != Psn::new(0) && asks.rq_psn != asks.sq_psn);
    assert_eq!((asks.path.dlid, takes.path.dlid), (Lid(0x12), Lid(0x10)));
    assert_eq!((asks.path.sl, takes.path.sl), (2, 2));
    assert_eq!((asks.path.dgid, takes.path.dgid), (None, None));
    assert_eq!(
        (asks.path_mtu, takes.path_mtu),
        (IbMtu::B1024, IbMtu::B1024)
    );
    assert_eq!(
        (asks.dest_qpn, takes.dest_qpn),
        (Qpn::new(0x101), Qpn::new(0x101))
    );
    // Linux's service: the side that accepted never sends.
    assert_eq!((sends, replies), (true, false));
    // REQ, REP, RTU with one transaction id.
    let kinds: Vec<u16> = net.sent.iter().map(|(_, kind, _)| *kind).collect();
    assert_eq!(kinds, [0x10, 0x13, 0x14]);
    assert!(net.sent.iter().all(|(.., tid)| *tid == net.sent[0].2));
}

#[test]
fn a_host_that_ends_disconnects_and_leaves_nothing() {
    let mut net = Net::listening();
    net.ask(linux(MY_QPN));
    net.run(Duration::from_secs(1));
    let mut port = net.hosts[0].engine.detach(net.now).unwrap();
    let (to, dreq) = port.manager.poll_transmit().unwrap();
    assert_eq!(Mad::parse(&dreq).unwrap().header.attribute_id.get(), 0x15);
    net.deliver(1, &received(Lid(0x10), &to, &dreq));
    port.manager
        .handle_timeout(net.now.after(Duration::from_secs(60)));
    net.hosts[0].engine.attach(net.now, port);
    let closed = net.run(Duration::from_secs(10));
    assert_eq!(
        closed,
        [(0, CloseReason::PortGone), (1, CloseReason::Disconnected)]
    );
    for host in &mut net.hosts {
        assert_eq!((host.port().manager.len(), host.port().pairs.len()), (0, 0));
        assert!(host.engine.list().is_empty());
    }
}

#[test]
fn a_request_for_no_listener_is_rejected_with_its_reason() {
    let mut net = Net::listening();
    net.ask(linux(0x77));
    let closed = net.run(Duration::from_secs(1));
    let reason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
    assert_eq!(closed, [(0, reason)]);
    assert_eq!(net.hosts[0].port().manager.len(), 0);
}

#[test]
fn a_request_to_the_service_of_the_device_finds_the_interface() {
    let mut net = Net::new(Vec::new());
    let service = ServiceId::rdma_ib(4755);
    net.hosts[1].engine.listen(net.now, ME, service);
    net.ask(service);
    net.run(Duration::from_secs(1));
    assert_eq!(net.states(), ["ESTABLISHED"; 2]);
}

#[test]
fn a_peer_without_a_path_is_not_asked() {
    let mut net = Net::listening();
    net.no_path = true;
    net.ask(linux(MY_QPN));
    let closed = net.run(Duration::from_secs(1));
    assert_eq!(closed, [(0, CloseReason::TimedOut)]);
    assert!(net.sent.is_empty());
    assert_eq!(net.hosts[0].port().manager.len(), 0);
}

/// The request that the first host sends.
fn req(net: &mut Net) -> (To, Datagram) {
    net.ask(linux(MY_QPN));
    let Host { engine, .. } = &mut net.hosts[0];
    for _ in 0..4 {
        engine.handle_timeout(net.now).unwrap();
        let port = engine.device().unwrap();
        for peer in port.manager.take_wanted() {
            let path = SubnetPath {
                dlid: Lid(0x12),
                slid: Lid(0x10),
                sl: 0,
                rate: 0,
                mtu: IbMtu::B1024,
                packet_life: 18,
                global: None,
            };
            port.manager.path_found(peer, Some(&path));
        }
    }
    let port = engine.device().unwrap();
    port.manager.poll_transmit().unwrap()
}

#[test]
fn a_request_from_another_lid_than_it_names_is_rejected() {
    let mut net = Net::listening();
    let (to, mad) = req(&mut net);
    net.deliver(1, &received(Lid(0x99), &to, &mad));
    let manager = &mut net.hosts[1].port().manager;
    let (back, rej) = manager.poll_transmit().unwrap();
    assert_eq!(back.dlid, Lid(0x99));
    let Some(Message::Rej(rej)) = Mad::parse(&rej).unwrap().communication_management() else {
        panic!("no rejection");
    };
    assert_eq!(rej.reason.get(), RejectReason::INVALID_GID.0);
    assert_eq!(manager.len(), 0);
    assert!(net.hosts[1].engine.poll_event().is_none());
}

#[test]
fn a_datagram_with_a_grh_is_from_its_gid() {
    let mut net = Net::listening();
    let (to, mad) = req(&mut net);
    let grh = Grh {
        gid: gid(Lid(0x10)),
        gid_index: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 1,
    };
    let with_grh = Received {
        grh: Some(grh),
        ..received(Lid(0x99), &to, &mad)
    };
    net.deliver(1, &with_grh);
    let event = net.hosts[1].engine.poll_event();
    assert!(matches!(event, Some(ConnectionEvent::Requested { peer, .. }) if peer == grh.gid));
}

/// Another LID of either end is noticed when the paths are asked for again.
#[test]
fn a_connection_ends_at_once_when_a_lid_has_changed_and_can_be_made_again() {
    for (changed, asks) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let mut net = Net::listening();
        net.ask(linux(MY_QPN));
        net.run(Duration::from_secs(1));
        for n in 0..2 {
            net.hosts[n].port().manager.ask_again();
        }
        assert_eq!(net.run(Duration::from_millis(200)), [], "the same LIDs");
        assert_eq!(net.states(), ["ESTABLISHED"; 2]);
        net.set_lid(changed, Lid(0x30));
        net.hosts[asks].port().manager.ask_again();
        let closed = net.run(Duration::from_millis(200));
        assert!(
            closed.contains(&(asks, CloseReason::Disconnected)),
            "{changed} {asks}: {closed:?}"
        );
        net.ask(linux(MY_QPN));
        net.run(Duration::from_secs(1));
        let open = net.states().iter().filter(|s| **s == "ESTABLISHED").count();
        assert!(open >= 2, "{:?}", net.states());
    }
}

/// A path that is gone is asked for once more, not for ever.
#[test]
fn without_a_path_a_connection_stays_and_the_path_is_asked_for_once() {
    let mut net = Net::listening();
    net.ask(linux(MY_QPN));
    net.run(Duration::from_secs(1));
    let manager = &mut net.hosts[0].port().manager;
    manager.ask_again();
    let destination = manager.take_wanted()[0];
    manager.path_found(destination, None);
    assert!(manager.take_wanted().is_empty());
    // Found, and lost later.
    manager.ask_again();
    net.settle();
    let manager = &mut net.hosts[0].port().manager;
    manager.path_found(destination, None);
    assert_eq!(manager.take_wanted(), [destination]);
    assert_eq!(net.states(), ["ESTABLISHED"; 2]);
}

/// A forger that knows the communication ids, but sends from another LID, ends nothing.
#[test]
fn messages_from_another_lid_change_nothing() {
    let mut net = Net::listening();
    let id = net.ask(linux(MY_QPN));
    net.run(Duration::from_secs(1));
    net.hosts[0].engine.close(net.now, id);
    let (to, dreq) = net.hosts[0].port().manager.poll_transmit().unwrap();
    net.deliver(1, &received(Lid(0x99), &to, &dreq));
    assert_eq!(net.states(), ["DREQ_SENT", "ESTABLISHED"]);
    net.deliver(1, &received(Lid(0x10), &to, &dreq));
    assert_eq!(net.states(), ["DREQ_SENT", "DREQ_SENT"]);
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Arrives),
        2 => Just(Fate::Lost),
        1 => Just(Fate::Twice),
        1 => Just(Fate::Late),
    ]
}

/// At most four losses. A fifth can be that of the rejection after four replies whose confirmations are lost;
/// one side is then open until it sends.
fn fates() -> impl Strategy<Value = Vec<Fate>> {
    prop::collection::vec(fate(), 0..24).prop_map(|mut fates| {
        let lost = fates.iter_mut().filter(|f| matches!(f, Fate::Lost));
        lost.skip(4).for_each(|fate| *fate = Fate::Arrives);
        fates
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Over a bad network for a while: in the end both sides agree, and nothing stays behind.
    #[test]
    fn over_a_bad_network_both_sides_agree(
        fates in fates(), closes in any::<bool>(),
    ) {
        let mut net = Net::listening();
        net.fates = fates;
        let id = net.ask(linux(MY_QPN));
        let closed = net.run(Duration::from_secs(40));
        let open = net.states().len();
        prop_assert!(open == 2 || (open == 0 && !closed.is_empty()), "{:?}", net.states());
        if open == 2 {
            prop_assert_eq!(net.states(), ["ESTABLISHED"; 2]);
            let (a, b) = (net.pair(0).0, net.pair(1).0);
            prop_assert_eq!((a.rq_psn, a.sq_psn), (b.sq_psn, b.rq_psn));
        }
        if closes {
            net.hosts[0].engine.close(net.now, id);
        } else {
            net.hosts[1].engine.close_all(net.now, ME);
        }
        net.run(Duration::from_secs(40));
        for host in &mut net.hosts {
            let port = host.port();
            prop_assert_eq!((port.manager.len(), port.pairs.len()), (0, 0));
        }
    }

    /// Any bytes of class 7, from any LID, cause no panic and leave nothing for long.
    #[test]
    fn any_datagrams_are_survived(
        datagrams in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..300), 0x10u16..0x1b, any::<u16>()), 1..40),
    ) {
        let mut net = Net::listening();
        let (to, template) = req(&mut net);
        for (bytes, attribute, lid) in datagrams {
            let mut mad = template;
            let len = bytes.len().min(MAD_LEN - 24);
            mad[24..24 + len].copy_from_slice(&bytes[..len]);
            mad[16..18].copy_from_slice(&attribute.to_be_bytes());
            let slid = if lid % 2 == 0 { Lid(0x10) } else { Lid(lid) };
            let mut datagram = received(slid, &to, &mad);
            if bytes.len() % 7 == 0 {
                datagram.mad.truncate(bytes.len());
            }
            net.deliver(1, &datagram);
            net.deliver(0, &datagram);
        }
        net.run(Duration::from_secs(30));
        prop_assert!(net.hosts[1].engine.list().len() <= BOUNDS.connections);
        for host in &mut net.hosts {
            prop_assert!(host.port().manager.len() <= 16);
        }
    }
}
