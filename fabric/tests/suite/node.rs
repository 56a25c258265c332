//! A port with its workers, driven by hand.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::soft::{SoftConfig, SoftPort};
use fabric::{
    AddressHandle, AhAttributes, EndpointId, FabricError, Gid, Joined, PKey, Port, PortEvent,
    ProviderConfig, QKey, Qpn, Room, Sent, UdDestination, UdInit, UdReceived, Worker,
};

use crate::net::Namespace;

pub const QKEY: QKey = QKey::new(0x0b1b);

/// Long enough for any event, even on an emulated machine.
pub const SOON: Duration = Duration::from_secs(30);

pub struct Node<'n> {
    ns: Option<&'n Namespace>,
    pub port: Box<dyn Port>,
    pub workers: Vec<Box<dyn Worker>>,
    /// Datagrams received while the test waited for the other side.
    kept: Vec<Got>,
    /// Silence after which no more datagrams are expected.
    quiet: Duration,
}

/// A datagram and the worker that received it.
pub type Got = (usize, UdReceived, Vec<u8>);

/// Opens a soft port in a namespace. A child process that another test starts holds the descriptors of a closed
/// port, and its lock, until it executes its program.
pub fn open(ns: &Namespace, config: &SoftConfig) -> Result<SoftPort, FabricError> {
    let deadline = Instant::now() + SOON;
    loop {
        match ns.run(|| SoftPort::open(config.clone())) {
            Err(e) if e.to_string().contains("another ibtapd") && Instant::now() < deadline => {
                sleep(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
}

impl<'n> Node<'n> {
    /// A soft port in a namespace.
    pub fn open(ns: &'n Namespace, config: SoftConfig) -> Node<'n> {
        let port = Box::new(open(ns, &config).unwrap());
        let quiet = Duration::from_millis(100);
        Node::of(Some(ns), port, quiet)
    }

    /// A port in the test's namespace.
    pub fn open_here(config: ProviderConfig) -> Node<'static> {
        let port = fabric::open(config).unwrap();
        Node::of(None, port, Duration::from_millis(500))
    }

    fn of(ns: Option<&'n Namespace>, mut port: Box<dyn Port>, quiet: Duration) -> Node<'n> {
        let workers = port.take_workers();
        Node {
            ns,
            port,
            workers,
            kept: Vec::new(),
            quiet,
        }
    }

    /// Runs `f` with the port in the port's namespace, as a daemon does.
    pub fn at_home<T: Send>(&mut self, f: impl FnOnce(&mut dyn Port) -> T + Send) -> T {
        let port = self.port.as_mut();
        match self.ns {
            Some(ns) => ns.run(|| f(port)),
            None => f(port),
        }
    }

    /// Bytes of the largest payload.
    pub fn payload_max(&self) -> usize {
        self.port.attributes().ud_payload_max as usize
    }

    pub fn gid(&self) -> Gid {
        self.port.attributes().gid
    }

    pub fn endpoint(&mut self) -> UdEndpoint {
        self.endpoint_wishing(None)
    }

    /// An endpoint with a requested queue pair number.
    pub fn endpoint_wishing(&mut self, qpn: Option<Qpn>) -> UdEndpoint {
        self.endpoint_of(PKey::DEFAULT, qpn)
    }

    /// An endpoint in a partition.
    pub fn endpoint_in(&mut self, pkey: u16) -> UdEndpoint {
        self.endpoint_of(PKey::new(pkey), None)
    }

    /// An endpoint, if the port can create one now.
    pub fn endpoint_if_any(&mut self) -> Option<UdEndpoint> {
        let (pkey, qkey) = (PKey::DEFAULT, QKEY);
        let init = UdInit {
            pkey,
            qkey,
            qpn: None,
        };
        self.port.create_ud(init).ok()
    }

    fn endpoint_of(&mut self, pkey: PKey, qpn: Option<Qpn>) -> UdEndpoint {
        let qkey = QKEY;
        self.port.create_ud(UdInit { pkey, qkey, qpn }).unwrap()
    }

    /// Replaces the P_Key table; returns the endpoints whose entry changed.
    pub fn set_pkeys(&mut self, table: &[u16]) -> Vec<EndpointId> {
        let table = table.iter().copied().map(PKey::new).collect();
        self.port.set_pkeys(table).unwrap()
    }

    /// State and P_Key of an endpoint's queue pair.
    pub fn queue_pair(&self, of: &UdEndpoint) -> (&'static str, u16) {
        let all = self.port.resources().queue_pairs;
        let found = all.iter().find(|q| q.qpn == of.qpn).unwrap();
        assert_eq!(found.endpoint, of.id);
        (found.state, found.pkey.get())
    }

    /// Joins and leaves groups; returns the answers to the joins.
    pub fn change_groups(&mut self, of: &UdEndpoint, joins: &[Gid], leaves: &[Gid]) -> Vec<Joined> {
        self.at_home(|port| port.change_groups(of.id, joins, leaves))
            .unwrap()
    }

    /// Attaches an endpoint to a group.
    pub fn attach(&mut self, to: &UdEndpoint, mgid: Gid) {
        let answers = self.change_groups(to, &[mgid], &[]);
        assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");
    }

    /// Processes pending port events.
    pub fn process(&mut self) -> Vec<PortEvent> {
        self.at_home(|port| port.process())
    }

    /// Sends `payloads` in one train from worker 0.
    pub fn send(
        &mut self,
        from: &UdEndpoint,
        dgid: Gid,
        qpn: Qpn,
        qkey: QKey,
        payloads: &[Vec<u8>],
    ) -> Sent {
        self.send_as(
            from,
            &AhAttributes::to(dgid, fabric::PKey::DEFAULT),
            qpn,
            qkey,
            payloads,
        )
    }

    /// As `send`, with all attributes of an address handle.
    pub fn send_as(
        &mut self,
        from: &UdEndpoint,
        to: &AhAttributes,
        qpn: Qpn,
        qkey: QKey,
        payloads: &[Vec<u8>],
    ) -> Sent {
        let ah = self.workers[0].create_ah(to).unwrap();
        let sent = self.send_by(from, ah, qpn, qkey, payloads);
        self.workers[0].destroy_ah(ah);
        sent
    }

    /// As `send`, with an address handle of worker 0.
    pub fn send_by(
        &mut self,
        from: &UdEndpoint,
        ah: AddressHandle,
        qpn: Qpn,
        qkey: QKey,
        payloads: &[Vec<u8>],
    ) -> Sent {
        self.await_room();
        let w = &mut self.workers[0];
        let mut train = w.train(payloads[0].len()).unwrap();
        for p in payloads {
            train.next(p.len()).unwrap().copy_from_slice(p);
        }
        let ticket = train.finish();
        w.send(from.id, &UdDestination { ah, qpn, qkey }, ticket)
    }

    /// Waits until earlier sends complete, if memory is short; keeps datagrams that arrive meanwhile.
    fn await_room(&mut self) {
        let end = Instant::now() + SOON;
        while self.workers[0].room() == Room::Nothing {
            assert!(Instant::now() < end, "{:?}", self.workers[0].counters());
            let mut kept = std::mem::take(&mut self.kept);
            self.poll_into(&mut kept);
            self.kept = kept;
        }
    }

    /// Receives at all workers until `count` datagrams have arrived.
    pub fn receive(&mut self, count: usize) -> Vec<Got> {
        let deadline = Instant::now() + SOON;
        self.gather(None, |all| all.len() >= count || Instant::now() > deadline)
    }

    /// As `receive`, while another node continues sending.
    pub fn receive_from(&mut self, other: &mut Node<'_>, count: usize) -> Vec<Got> {
        let deadline = Instant::now() + SOON;
        let enough = |all: &[Got]| all.len() >= count || Instant::now() > deadline;
        self.gather(Some(other), enough)
    }

    /// Receives for a tenth of a second, or as long as this provider needs.
    pub fn receive_for_a_while(&mut self) -> Vec<Got> {
        let end = Instant::now() + self.quiet;
        self.gather(None, |_| Instant::now() > end)
    }

    /// As `receive_for_a_while`, while another node continues sending.
    pub fn receive_for_a_while_from(&mut self, other: &mut Node<'_>) -> Vec<Got> {
        let end = Instant::now() + self.quiet;
        self.gather(Some(other), |_| Instant::now() > end)
    }

    /// Receives what is pending.
    pub fn receive_for_no_time(&mut self) -> Vec<Got> {
        self.gather(None, |_| true)
    }

    fn gather(
        &mut self,
        mut other: Option<&mut Node<'_>>,
        is_enough: impl Fn(&[Got]) -> bool,
    ) -> Vec<Got> {
        let mut all = std::mem::take(&mut self.kept);
        loop {
            self.poll_into(&mut all);
            if is_enough(&all) {
                return all;
            }
            if let Some(other) = &mut other {
                let mut kept = std::mem::take(&mut other.kept);
                other.poll_into(&mut kept);
                other.kept = kept;
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn poll_into(&mut self, all: &mut Vec<Got>) {
        for (i, w) in self.workers.iter_mut().enumerate() {
            let batch = w.poll(8).unwrap();
            all.extend(batch.datagrams().map(|(r, p)| (i, r.clone(), p.to_vec())));
        }
    }

    /// A counter, summed over the workers.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.workers.iter().flat_map(|w| w.counters());
        let values: Vec<u64> = counters.filter(|c| c.0 == name).map(|c| c.1).collect();
        assert_eq!(
            values.len(),
            self.workers.len(),
            "every worker counts {name}"
        );
        values.iter().sum()
    }
}

/// `count` payloads of `len` bytes and a last one of `last`, all different.
pub fn payloads(count: usize, len: usize, last: usize) -> Vec<Vec<u8>> {
    (0..=count)
        .map(|k| {
            let n = if k < count { len } else { last };
            (0..n).map(|i| (k * 31 + i * 7 + i / 256) as u8).collect()
        })
        .collect()
}
