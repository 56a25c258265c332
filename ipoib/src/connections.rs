//! The connections of a replica: who is at the other end, how far they are, when they were used.

use std::collections::hash_map::Entry as Counted;
use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use proto::{ConnectionId, Gid, Qpn, ServiceId, Services, Time};

use crate::address::HardwareAddress;
use proto::lru::{Lru, Place};

use crate::neighbour::Link;
use crate::resolve::HeldFrame;

/// The answer to "which entry" where there is none.
pub const NO_ENTRY: u32 = u32::MAX;

/// Without traffic, a connection that we asked for is ended after so long: the kernel's goes with its
/// neighbour.
pub const IDLE_ACTIVE_MS: u64 = 60_000;
/// The same for one that a peer asked for (`IPOIB_CM_RX_TIMEOUT`). Longer, so that the peer, who
/// knows whether it needs it, mostly comes first.
pub const IDLE_PASSIVE_MS: u64 = 512_000;
/// How long earlier failures of a peer's connections are remembered when nothing is sent to it.
const FORGET_MS: u64 = 60_000;
/// Use is noted at most this often, as with neighbours.
const TOUCH_MS: u64 = 1000;
/// Who was used in so long a time makes no room for others.
const BUSY_MS: u64 = 2000;
/// The same among connections that one port has asked us for: whoever sends in its name has no part in
/// those that it uses.
const BUSY_OF_PORT_MS: u64 = 10_000;
/// Idle connections are looked for at whole seconds only.
const REAP_STEP_MS: u64 = 1000;
/// Connections that are being made at one time.
const CONNECTING_MAX: usize = 128;
/// The same after which only neighbours are asked that spoke ARP or neighbour discovery: senders of
/// data may be forged.
const CONNECTING_ANYBODY_MAX: usize = 32;
/// Peers without a connection that are remembered for a while: as many as connections, or so many. Who
/// is forgotten too soon is asked again with every packet.
const PAUSED_MIN: usize = 1024;
/// Memory that the frames that wait for connections may take together.
const HELD_BYTES_MAX: usize = 4 << 20;

/// The port number of all our interfaces in rdma_cm's port space: that of the RFC.
pub const RDMA_CM_PORT: u16 = 4755;

/// What a service id is made of (see [`crate::Ipoib::service_ids`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Linux's `IPOIB_CM_IETF_ID` and the queue pair.
    Linux,
    /// The type of RFC 4755, section 3.5 and the queue pair.
    Rfc4755,
    /// [`RDMA_CM_PORT`]; the queue pair is in the private data.
    RdmaCm,
}

impl Layout {
    /// Those that peers are asked for, in order. Where the kernel owns communication management, of the
    /// peer, it lets nothing pass but the last, which is thus tried before the one that nobody uses.
    pub const fn order(services: Services) -> &'static [Layout] {
        match services {
            Services::Any => &[Layout::Linux, Layout::RdmaCm, Layout::Rfc4755],
            Services::RdmaCm => &[Layout::RdmaCm],
        }
    }

    /// Linux has the first byte of RFC 4755, section 3.5 the wrong way round, and that is what is in
    /// use.
    pub fn service_id(self, qpn: Qpn) -> ServiceId {
        let qpn = u64::from(qpn.get());
        match self {
            Layout::Linux => ServiceId(0x10 << 56 | qpn),
            Layout::Rfc4755 => ServiceId(0x01 << 56 | qpn),
            Layout::RdmaCm => ServiceId::rdma_cm(RDMA_CM_PORT),
        }
    }
}

/// How far a connection is that we ask for.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// Asked for; given up at `until`. `again`: it was asked for at once after a rejection.
    Connecting {
        layout: Layout,
        again: bool,
        until: Time,
    },
    Up {
        since: Time,
        /// The largest IP packet that the peer takes, in bytes.
        mtu: usize,
    },
    /// It failed, and is not asked for again before `until`. Large packets wait for it.
    Waiting { until: Time },
    /// The peer does not want it, or cannot: until then it is served by datagrams.
    Refused { until: Time },
}

pub struct Active {
    /// The neighbour.
    pub link: Link,
    pub state: State,
    /// Failures in a row, of connections that did not live long.
    pub failures: u8,
    /// What the peer took last, and is asked for first; none: it has taken none.
    pub takes: Option<Layout>,
    held: VecDeque<HeldFrame>,
}

impl Active {
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

pub enum Side {
    /// We asked for it, to send.
    Active(Active),
    /// The peer did. Nothing is ever sent on it: the kernel's would not take it.
    Passive,
}

pub struct Entry {
    pub peer: HardwareAddress,
    pub side: Side,
    /// Its name, from when the fabric has given one until it is over.
    pub connection: Option<ConnectionId>,
    pub used: Time,
    /// A message came over it, so that whoever asked for it is there.
    pub carried: bool,
}

/// Whether one more connection may be taken from a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// It may.
    Free,
    /// In place of this one.
    InPlaceOf(u32),
    /// It has all that one port may have, and they are in use.
    Used,
}

impl Entry {
    /// Takes one of the places that are limited.
    fn is_live(&self) -> bool {
        match &self.side {
            Side::Passive => true,
            Side::Active(a) => matches!(a.state, State::Connecting { .. } | State::Up { .. }),
        }
    }

    fn is_connecting(&self) -> bool {
        matches!(&self.side, Side::Active(a) if matches!(a.state, State::Connecting { .. }))
    }

    /// When something must be done about it, if it is not used until then.
    fn due(&self) -> Time {
        let idle = |ms: u64| Time(self.used.after(ms).0.next_multiple_of(REAP_STEP_MS));
        match &self.side {
            Side::Passive => idle(IDLE_PASSIVE_MS),
            Side::Active(a) => match a.state {
                State::Up { .. } => idle(IDLE_ACTIVE_MS),
                State::Connecting { until, .. } | State::Refused { until } => until,
                State::Waiting { until } if a.holds() => until,
                State::Waiting { until } => until.after(FORGET_MS),
            },
        }
    }
}

/// At most `max` connections, and a bounded number of peers without one.
pub struct Connections {
    entries: Vec<Option<Entry>>,
    places: Vec<Place>,
    free: Vec<u32>,
    live: Lru,
    live_len: usize,
    paused: Lru,
    paused_len: usize,
    connecting: usize,
    by_id: HashMap<ConnectionId, u32, RandomState>,
    /// How many each port has asked us for.
    by_port: HashMap<Gid, u32, RandomState>,
    /// Requests whose outcome the fabric has not told, with their entries.
    asked: Vec<(u32, u32)>,
    last_request: u32,
    /// No entry is due before that.
    next_due: Option<Time>,
    released: VecDeque<HeldFrame>,
    held_bytes: usize,
    max: usize,
}

impl Connections {
    pub fn new(max: usize) -> Connections {
        Connections {
            entries: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            live: Lru::new(),
            live_len: 0,
            paused: Lru::new(),
            paused_len: 0,
            connecting: 0,
            by_id: HashMap::default(),
            by_port: HashMap::default(),
            asked: Vec::new(),
            last_request: 0,
            next_due: None,
            released: VecDeque::new(),
            held_bytes: 0,
            max,
        }
    }

    pub fn max(&self) -> usize {
        self.max
    }

    /// Every smaller number may be an entry.
    pub fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    #[inline]
    pub fn get(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    #[inline]
    pub fn active(&self, at: u32) -> Option<&Active> {
        match &self.get(at)?.side {
            Side::Active(active) => Some(active),
            Side::Passive => None,
        }
    }

    #[inline]
    pub fn by_id(&self, connection: ConnectionId) -> Option<u32> {
        self.by_id.get(&connection).copied()
    }

    fn enlist(&mut self, at: u32) {
        let Some(entry) = self.get(at) else { return };
        let (live, connecting, due) = (entry.is_live(), entry.is_connecting(), entry.due());
        if live {
            self.live.push(&mut self.places, at);
            self.live_len += 1;
        } else {
            self.paused.push(&mut self.places, at);
            self.paused_len += 1;
        }
        self.connecting += usize::from(connecting);
        self.wake_at(due);
    }

    fn delist(&mut self, at: u32) {
        let Some(entry) = self.get(at) else { return };
        let (live, connecting) = (entry.is_live(), entry.is_connecting());
        if live {
            self.live.remove(&mut self.places, at);
            self.live_len -= 1;
        } else {
            self.paused.remove(&mut self.places, at);
            self.paused_len -= 1;
        }
        self.connecting -= usize::from(connecting);
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.entries.push(None);
                self.places.push(Place::default());
                self.slots() - 1
            }
        };
        self.entries[at as usize] = Some(entry);
        self.enlist(at);
        at
    }

    /// A connection that we are going to ask for.
    pub fn insert_active(&mut self, now: Time, peer: HardwareAddress, link: Link) -> u32 {
        self.insert(Entry {
            peer,
            side: Side::Active(Active {
                link,
                state: State::Waiting { until: now },
                failures: 0,
                takes: None,
                held: VecDeque::new(),
            }),
            connection: None,
            used: now,
            carried: false,
        })
    }

    /// A connection that a peer asked for.
    pub fn insert_passive(&mut self, now: Time, peer: HardwareAddress, connection: ConnectionId) {
        let at = self.insert(Entry {
            peer,
            side: Side::Passive,
            connection: Some(connection),
            used: now,
            carried: false,
        });
        self.by_id.insert(connection, at);
        *self.by_port.entry(peer.gid()).or_default() += 1;
    }

    /// Takes an entry out; frames that wait for it are released.
    pub fn remove(&mut self, at: u32) -> Option<Entry> {
        self.release(at);
        self.delist(at);
        let entry = self.entries.get_mut(at as usize)?.take()?;
        self.unbind(entry.connection);
        self.asked.retain(|(_, asked)| *asked != at);
        if matches!(entry.side, Side::Passive) {
            self.discount(entry.peer.gid());
        }
        self.free.push(at);
        Some(entry)
    }

    fn discount(&mut self, port: Gid) {
        if let Counted::Occupied(mut count) = self.by_port.entry(port) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn unbind(&mut self, connection: Option<ConnectionId>) {
        if let Some(connection) = connection {
            self.by_id.remove(&connection);
        }
    }

    /// Changes how far an entry is. One that is no longer live has no name any more.
    pub fn set_state(&mut self, at: u32, state: State) {
        self.delist(at);
        if let Some(entry) = self.get_mut(at)
            && let Side::Active(active) = &mut entry.side
        {
            active.state = state;
            let over = match state {
                State::Up { .. } => None,
                _ => entry.connection.take(),
            };
            self.unbind(over);
            self.asked.retain(|(_, asked)| *asked != at);
        }
        self.enlist(at);
    }

    /// Remembers what the peer took.
    pub fn remember(&mut self, at: u32, layout: Layout) {
        if let Some(Side::Active(a)) = self.get_mut(at).map(|e| &mut e.side) {
            a.takes = Some(layout);
        }
    }

    /// Counts a failure, or forgets them; gives how many there are in a row.
    pub fn count_failure(&mut self, at: u32, forget: bool) -> u8 {
        match self.get_mut(at).map(|e| &mut e.side) {
            Some(Side::Active(a)) => {
                let before = if forget { 0 } else { a.failures };
                a.failures = before.saturating_add(1);
                a.failures
            }
            _ => 0,
        }
    }

    /// Counts failures in a row as one: there was a connection, and more is not known.
    pub fn forgive(&mut self, at: u32) {
        if let Some(Side::Active(a)) = self.get_mut(at).map(|e| &mut e.side) {
            a.failures = a.failures.min(1);
        }
    }

    /// A new request on behalf of an entry.
    pub fn ask(&mut self, at: u32) -> u32 {
        self.last_request = self.last_request.wrapping_add(1);
        self.asked.push((self.last_request, at));
        self.last_request
    }

    /// Whether the request's outcome is still awaited.
    pub fn is_asked(&self, request: u32) -> bool {
        self.asked.iter().any(|(r, _)| *r == request)
    }

    /// The outcome of a request is there: whose it was, if anybody still wants it.
    pub fn answered(&mut self, request: u32) -> Option<u32> {
        let found = self.asked.iter().position(|(r, _)| *r == request)?;
        Some(self.asked.swap_remove(found).1)
    }

    /// The fabric gave a name to what was asked for.
    pub fn bind(&mut self, at: u32, connection: ConnectionId) {
        if let Some(entry) = self.get_mut(at) {
            entry.connection = Some(connection);
            self.by_id.insert(connection, at);
        }
    }

    /// Notes that a connection is in use.
    #[inline]
    pub fn touch(&mut self, at: u32, now: Time) {
        let Some(entry) = self.get_mut(at) else {
            return;
        };
        if now.0.saturating_sub(entry.used.0) < TOUCH_MS {
            return;
        }
        entry.used = now;
        let list = if entry.is_live() {
            &mut self.live
        } else {
            &mut self.paused
        };
        list.touch(&mut self.places, at);
    }

    /// Notes that a message came over a connection.
    #[inline]
    pub fn note_carried(&mut self, at: u32, now: Time) {
        if let Some(entry) = self.get_mut(at) {
            entry.carried = true;
        }
        self.touch(at, now);
    }

    /// Whether one more may be begun, now that others are; `confirmed`: with a neighbour that spoke.
    pub fn may_begin(&self, confirmed: bool) -> bool {
        let most = if confirmed {
            CONNECTING_MAX
        } else {
            CONNECTING_ANYBODY_MAX
        };
        self.connecting < most
    }

    pub fn is_full(&self) -> bool {
        self.live_len >= self.max
    }

    /// The one that was not used for the longest time, if that is some time.
    pub fn idlest(&self, now: Time) -> Option<u32> {
        let at = self.live.oldest()?;
        let idle = now.0.saturating_sub(self.get(at)?.used.0) >= BUSY_MS;
        idle.then_some(at)
    }

    /// The oldest of the peers without a connection, if there are too many.
    pub fn surplus(&self) -> Option<u32> {
        let most = self.max.max(PAUSED_MIN);
        (self.paused_len > most).then(|| self.paused.oldest())?
    }

    /// Whether a port may have one more connection than those that it has asked us for, of which it may
    /// have `most`. Those that carried nothing make room first, the oldest of them before the others:
    /// forged requests look like that.
    pub fn share_of(&self, now: Time, port: Gid, most: u32) -> Share {
        if self.by_port.get(&port).is_none_or(|count| *count < most) {
            return Share::Free;
        }
        let theirs = self.entries.iter().zip(0..).filter_map(|(entry, at)| {
            let e = entry.as_ref()?;
            let is = matches!(e.side, Side::Passive) && e.peer.gid() == port;
            let idle = !e.carried || e.used.after(BUSY_OF_PORT_MS) <= now;
            (is && idle).then_some((e.carried, e.used, at))
        });
        theirs
            .min()
            .map_or(Share::Used, |(_, _, at)| Share::InPlaceOf(at))
    }

    /// Keeps a frame until the connection is there; false if enough wait.
    pub fn hold(&mut self, at: u32, most: usize, prefix: &[u8; 12], frame: &[u8]) -> bool {
        let bytes = self.held_bytes + frame.len();
        let Some(Side::Active(active)) = self.get_mut(at).map(|e| &mut e.side) else {
            return false;
        };
        if active.held.len() >= most || bytes > HELD_BYTES_MAX {
            return false;
        }
        active.held.push_back(HeldFrame {
            prefix: *prefix,
            frame: frame.into(),
        });
        self.held_bytes = bytes;
        let due = self.get(at).map(Entry::due);
        due.into_iter().for_each(|due| self.wake_at(due));
        true
    }

    /// Lets the frames that wait for a connection go.
    pub fn release(&mut self, at: u32) {
        if let Some(Side::Active(active)) = self.get_mut(at).map(|e| &mut e.side) {
            let held = std::mem::take(&mut active.held);
            self.released.extend(held);
        }
    }

    /// Drops the frames that wait for a connection; gives how many.
    pub fn discard(&mut self, at: u32) -> u64 {
        let Some(Side::Active(active)) = self.get_mut(at).map(|e| &mut e.side) else {
            return 0;
        };
        let held = std::mem::take(&mut active.held);
        self.held_bytes -= held.iter().map(|h| h.frame.len()).sum::<usize>();
        held.len() as u64
    }

    pub fn pop_released(&mut self) -> Option<HeldFrame> {
        let held = self.released.pop_front()?;
        self.held_bytes -= held.frame.len();
        Some(held)
    }

    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    fn wake_at(&mut self, due: Time) {
        self.next_due = Some(self.next_due.map_or(due, |before| before.min(due)));
    }

    pub fn next_due(&self) -> Option<Time> {
        self.next_due
    }

    /// The first entry from `at` on that is due. [`Connections::reckon`] follows the last.
    pub fn overdue(&self, now: Time, at: u32) -> Option<u32> {
        let mut rest = at..self.slots();
        rest.find(|at| self.get(*at).is_some_and(|e| e.due() <= now))
    }

    /// Finds out when the next entry is due.
    pub fn reckon(&mut self) {
        self.next_due = self.entries.iter().flatten().map(Entry::due).min();
    }
}
