//! A port with its workers, driven by hand.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::verbs::sys::Library;
use fabric::verbs::{VerbsConfig, VerbsPort};
use fabric::{
    AddressHandle, AhAttributes, EndpointId, Gid, Joined, PKey, Port, QKey, Qpn, Sent,
    UdDestination, UdInit, UdReceived, Worker,
};
use rustix::event::{Timespec, epoll};
use std::os::fd::AsFd;

use crate::device::{self, Device};

pub const QKEY: QKey = QKey::new(0x0b1b);

/// Long, because the device may be emulated in an emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub type Got = (UdReceived, Vec<u8>);

pub struct Node {
    pub port: VerbsPort,
    pub worker: Box<dyn Worker>,
    pub epoll: OwnedFd,
    /// The other workers, in the order of [`Node::next_worker`].
    others: VecDeque<(Box<dyn Worker>, OwnedFd)>,
    got: VecDeque<Got>,
}

impl Node {
    /// Attaches an endpoint to a group.
    pub fn join(&mut self, id: EndpointId, mgid: Gid) {
        let answers = self.port.change_groups(id, &[mgid], &[]).unwrap();
        assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");
    }

    /// The device, for the test alone as long as it keeps it, and two ports of it; or `None` with a message.
    pub fn pair() -> Option<(Device, Node, Node)> {
        let d = device::find()?;
        let open = || Node::open(&d.library, &d.name);
        let (a, b) = (open(), open());
        Some((d, a, b))
    }

    pub fn open(library: &Arc<dyn Library>, device: &str) -> Node {
        Node::open_as(library, VerbsConfig::new(device, 1))
    }

    pub fn open_as(library: &Arc<dyn Library>, config: VerbsConfig) -> Node {
        let mut port = VerbsPort::open_with(Arc::clone(library), config).unwrap();
        let workers = port.take_workers().into_iter().map(|mut worker| {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            worker.register(epoll.as_fd(), 7).unwrap();
            (worker, epoll)
        });
        let mut others: VecDeque<_> = workers.collect();
        let (worker, epoll) = others.pop_front().unwrap();
        assert!(port.take_workers().is_empty());
        Node {
            port,
            worker,
            epoll,
            others,
            got: VecDeque::new(),
        }
    }

    /// Drives the next worker from now on; after the last one, the first one again.
    pub fn next_worker(&mut self) {
        if let Some((worker, epoll)) = self.others.pop_front() {
            let last = std::mem::replace(&mut self.worker, worker);
            self.others
                .push_back((last, std::mem::replace(&mut self.epoll, epoll)));
        }
    }

    pub fn gid(&self) -> Gid {
        self.port.attributes().gid
    }

    pub fn endpoint(&mut self) -> UdEndpoint {
        let init = UdInit {
            pkey: PKey::DEFAULT,
            qkey: QKEY,
            qpn: None,
        };
        self.port.create_ud(init).unwrap()
    }

    pub fn ah(&mut self, to: Gid) -> AddressHandle {
        self.worker
            .create_ah(&AhAttributes::to(to, fabric::PKey::DEFAULT))
            .unwrap()
    }

    /// Sends one train and waits until it has left: its address handle may have to be created first.
    pub fn send(
        &mut self,
        from: &UdEndpoint,
        ah: AddressHandle,
        qpn: Qpn,
        payloads: &[Vec<u8>],
    ) -> Sent {
        let before = self.counter("tx_trains");
        let sent = self.begin_send(from, ah, qpn, payloads);
        let deadline = Instant::now() + PATIENCE;
        while sent == Sent::Done && self.counter("tx_trains") == before {
            assert!(Instant::now() < deadline, "{:?}", self.worker.counters());
            self.round(Duration::from_secs(1));
        }
        sent
    }

    /// Sends one train; its payloads have one size except the last.
    pub fn begin_send(
        &mut self,
        from: &UdEndpoint,
        ah: AddressHandle,
        qpn: Qpn,
        payloads: &[Vec<u8>],
    ) -> Sent {
        let mut train = self.worker.train(payloads[0].len()).unwrap();
        for p in payloads {
            train.next(p.len()).unwrap().copy_from_slice(p);
        }
        let ticket = train.finish();
        let qkey = QKEY;
        self.worker
            .send(from.id, &UdDestination { ah, qpn, qkey }, ticket)
    }

    /// One round of a data thread: arm, wait, poll.
    pub fn round(&mut self, most: Duration) {
        let timeout = match self.worker.arm().unwrap() {
            true => Duration::ZERO,
            false => most,
        };
        let timeout = Timespec::try_from(timeout).unwrap();
        let mut events = Vec::with_capacity(8);
        epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&timeout),
        )
        .unwrap();
        for event in events {
            self.worker.woken(event.data.u64());
        }
        self.poll();
    }

    pub fn poll(&mut self) {
        let batch = self.worker.poll(8).unwrap();
        let got = batch.datagrams().map(|(r, p)| (r.clone(), p.to_vec()));
        self.got.extend(got);
    }

    /// A datagram, if one arrives within `most`.
    pub fn receive_one(&mut self, most: Duration) -> Option<Got> {
        let deadline = Instant::now() + most;
        while self.got.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.round(left.min(Duration::from_secs(1)));
        }
        self.got.pop_front()
    }

    /// `count` datagrams, or fewer when the time is over.
    pub fn receive(&mut self, count: usize) -> Vec<Got> {
        (0..count)
            .map_while(|_| self.receive_one(PATIENCE))
            .collect()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let all = self.worker.counters();
        let found = all.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}
