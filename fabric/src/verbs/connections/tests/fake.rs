//! A device on which every call can fail, and that detects leaked objects.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use proto::{Gid, IbMtu, Instant, PKey, Qpn, RejectReason, ServiceId, Services};

use super::super::device::{Address, Device, Event, Path, Shape, Source};
use super::super::{Member, View};
use super::{ME, MY_QPN, OTHER, OTHER_QPN};
use crate::PKeyTable;
use crate::connection::ConnectRequest;

pub fn peer() -> Gid {
    "fe80::2".parse().unwrap()
}

/// A connection request.
pub fn asks(service: ServiceId) -> ConnectRequest<'static> {
    ConnectRequest {
        service,
        peer: peer(),
        to: Qpn::new(0x77),
        private_data: b"data",
    }
}

/// A port with two endpoints in the default partition.
pub fn view() -> View {
    let pkeys = PKeyTable::new(vec![PKey::DEFAULT, PKey::new(0x8001)]);
    let entry = pkeys.find(PKey::DEFAULT);
    let member = |qpn| Member {
        qpn: Qpn::new(qpn),
        entry,
    };
    View {
        name: "fake/1".to_owned(),
        gid: "fe80::1".parse().unwrap(),
        scope: 3,
        services: Services::RdmaCm,
        listens: true,
        path_mtu: Some(IbMtu::B2048),
        pkeys: pkeys.into(),
        members: [(ME, member(MY_QPN)), (OTHER, member(OTHER_QPN))].into(),
    }
}

/// An id; counts the live ones.
#[derive(Debug)]
pub struct FakeId(Rc<Cell<usize>>);

impl Drop for FakeId {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct FakePair(Qpn);

#[derive(Debug)]
pub struct Fake {
    pub calls: Vec<&'static str>,
    /// The failing call.
    pub failing: Option<&'static str>,
    /// Number of successful calls before one fails.
    pub fails_after: Option<u32>,
    pub events: VecDeque<Event<FakeId>>,
    pub last_context: u64,
    pub path: Path,
    /// The private data sent last.
    pub sent: Vec<u8>,
    /// The service of the last request.
    pub asked: Option<ServiceId>,
    /// The reason of the last rejection.
    pub rejected: Option<RejectReason>,
    ids: Rc<Cell<usize>>,
    pairs: Vec<Qpn>,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            calls: Vec::new(),
            failing: None,
            fails_after: None,
            events: VecDeque::new(),
            last_context: 0,
            path: Path {
                peer: peer(),
                pkey_index: 0,
                path_mtu: 1024,
                remote_qpn: Qpn::new(0x99),
            },
            sent: Vec::new(),
            asked: None,
            rejected: None,
            ids: Rc::default(),
            pairs: Vec::new(),
        }
    }
}

impl Fake {
    fn call(&mut self, name: &'static str) -> io::Result<()> {
        self.calls.push(name);
        let over = self.fails_after == Some(0);
        self.fails_after = self.fails_after.and_then(|n| n.checked_sub(1));
        if over || self.failing == Some(name) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }

    pub fn new_id(&mut self, context: u64) -> FakeId {
        self.ids.set(self.ids.get() + 1);
        self.last_context = context;
        FakeId(self.ids.clone())
    }

    /// Checks the number of live ids, including the listener's, and queue pairs.
    pub fn assert_alive(&self, ids: usize, pairs: usize) {
        assert_eq!((self.ids.get(), self.pairs.len()), (ids, pairs));
    }

    pub fn assert_empty(&self) {
        self.assert_alive(0, 0);
    }

    pub fn pairs(&self) -> &[Qpn] {
        &self.pairs
    }
}

impl Device for Fake {
    type Id = FakeId;
    type Pair = FakePair;
    type Slot = u32;
    type Memory = Vec<u32>;

    fn listen(&mut self, at: &Address) -> io::Result<FakeId> {
        assert_eq!(at.gid, view().gid);
        self.call("listen")?;
        Ok(self.new_id(2 << 32))
    }

    fn begin(&mut self, context: u64, from: &Source, to: &Address) -> io::Result<FakeId> {
        assert_eq!((from.gid, to.scope), (view().gid, 3));
        self.asked = Some(to.service);
        self.call("begin")?;
        Ok(self.new_id(context))
    }

    fn set_context(&mut self, _: &mut FakeId, context: u64) {
        self.last_context = context;
    }

    fn resolve_route(&mut self, _: &FakeId) -> io::Result<()> {
        self.call("resolve_route")
    }

    fn path(&mut self, _: &FakeId, _: &PKeyTable) -> io::Result<Path> {
        self.call("path")?;
        Ok(self.path)
    }

    fn make(&mut self, _: &FakeId, _: u16) -> io::Result<FakePair> {
        self.call("make")?;
        // Numbers are reused at once, as by adapters.
        let free = |n: &u32| !self.pairs.contains(&Qpn::new(*n));
        let qpn = Qpn::new((0x100..).find(free).unwrap());
        self.pairs.push(qpn);
        Ok(FakePair(qpn))
    }

    fn qpn(&self, pair: &FakePair) -> Qpn {
        pair.0
    }

    fn bring_up(&mut self, _: &FakeId, _: &FakePair, sends: bool) -> io::Result<Path> {
        self.call(if sends {
            "bring_up"
        } else {
            "bring_up to receive"
        })?;
        Ok(self.path)
    }

    fn ask(&mut self, _: &FakeId, _: &FakePair, private_data: &[u8]) -> io::Result<()> {
        self.sent = private_data.to_vec();
        self.call("ask")
    }

    fn accept(&mut self, _: &FakeId, _: &FakePair, private_data: &[u8]) -> io::Result<()> {
        self.sent = private_data.to_vec();
        self.call("accept")
    }

    fn confirm(&mut self, _: &FakeId) -> io::Result<()> {
        self.call("confirm")
    }

    fn reject(&mut self, _: &FakeId, why: RejectReason, private_data: &[u8]) -> io::Result<()> {
        self.sent = private_data.to_vec();
        self.rejected = Some(why);
        self.call("reject")
    }

    fn disconnect(&mut self, _: &FakeId) -> io::Result<()> {
        self.call("disconnect")
    }

    fn stop(&mut self, _: &FakePair) -> io::Result<()> {
        self.call("stop")
    }

    fn event(&mut self) -> io::Result<Option<Event<FakeId>>> {
        Ok(self.events.pop_front())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn post(
        &mut self,
        _: &FakePair,
        memory: &mut Vec<u32>,
        slot: u32,
        _: &Shape,
    ) -> io::Result<()> {
        self.call("post")?;
        memory.push(slot);
        Ok(())
    }

    fn destroy(&mut self, id: FakeId, pair: Option<FakePair>) {
        self.calls.push("destroy");
        drop(id);
        if let Some(pair) = pair {
            let before = self.pairs.len();
            self.pairs.retain(|qpn| *qpn != pair.0);
            assert_eq!(self.pairs.len() + 1, before, "destroyed twice");
        }
    }
}
