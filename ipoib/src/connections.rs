//! The connection table of a replica: peers, states, times of use.

use std::collections::hash_map::Entry as Counted;
use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use proto::{ConnectionId, Gid, Qpn, ServiceId, Services, Time};

use crate::address::HardwareAddress;
use proto::lru::{Lru, Place};

use crate::neighbour::Link;
use crate::resolve::HeldFrame;

/// The index that means "no entry".
pub const NO_ENTRY: u32 = u32::MAX;

/// Idle time after which a connection requested by this host ends. The kernel ends such connections with
/// the neighbour entry.
pub const IDLE_ACTIVE_MS: u64 = 60_000;
/// Idle time after which a connection requested by the peer ends (`IPOIB_CM_RX_TIMEOUT`). It is longer,
/// because the peer knows whether it needs the connection and usually ends it first.
pub const IDLE_PASSIVE_MS: u64 = 512_000;
/// Time for which earlier failures of an unused peer are remembered.
const FORGET_MS: u64 = 60_000;
/// Minimum time between updates of the time of use, as for neighbours.
const TOUCH_MS: u64 = 1000;
/// A connection used within this time is not evicted.
const BUSY_MS: u64 = 2000;
/// Connections of a single port used within this time are not evicted for that port. A forger of its name
/// does not use the same connections.
const BUSY_OF_PORT_MS: u64 = 10_000;
/// Idle connections end at multiples of this time.
const REAP_STEP_MS: u64 = 1000;
/// Maximum number of connections during setup.
const CONNECTING_MAX: usize = 128;
/// Above this number, connections are requested only from neighbours that sent ARP or neighbour discovery:
/// sources of data may be forged.
const CONNECTING_UNCONFIRMED_MAX: usize = 32;
/// Minimum number of remembered peers without a connection; otherwise as many as connections. A peer that
/// is forgotten too early gets a request with every packet.
const PAUSED_MIN: usize = 1024;
/// Maximum bytes of all frames that wait for connections.
const HELD_BYTES_MAX: usize = 4 << 20;

/// The rdma_cm port number of all IPoIB interfaces, in both port spaces: the number of the RFC.
pub const RDMA_CM_PORT: u16 = 4755;

/// The layout of a service id (see [`crate::Ipoib::service_ids`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Linux's `IPOIB_CM_IETF_ID` and the queue pair number.
    Linux,
    /// The type of RFC 4755, section 3.5, and the queue pair number.
    Rfc4755,
    /// [`RDMA_CM_PORT`]; the private data has the queue pair number.
    RdmaCm,
    /// [`RDMA_CM_PORT`] in rdma_cm's InfiniBand port space; the private data has the queue pair number.
    RdmaIb,
}

impl Layout {
    /// The layouts whose requests reach the port.
    pub const fn listened(services: Services) -> &'static [Layout] {
        match services {
            Services::RdmaCmInfiniBand => &[Layout::RdmaIb],
            _ => Layout::order(services, true),
        }
    }

    /// The layouts to request, in order. A peer whose kernel owns communication management accepts only
    /// rdma_cm's; it therefore precedes the RFC's, which has no users. On InfiniBand such a peer does not
    /// advertise connections.
    pub const fn order(services: Services, advertised: bool) -> &'static [Layout] {
        match (services, advertised) {
            (Services::Any, _) => &[Layout::Linux, Layout::RdmaCm, Layout::Rfc4755],
            (Services::RdmaCm, _) => &[Layout::RdmaCm],
            (Services::InfiniBand | Services::RdmaCmInfiniBand, true) => {
                &[Layout::Linux, Layout::RdmaIb, Layout::Rfc4755]
            }
            (Services::InfiniBand | Services::RdmaCmInfiniBand, false) => &[Layout::RdmaIb],
        }
    }

    /// Linux swaps the halves of the first byte of RFC 4755, section 3.5; Linux's form is the common one.
    pub fn service_id(self, qpn: Qpn) -> ServiceId {
        let qpn = u64::from(qpn.get());
        match self {
            Layout::Linux => ServiceId(0x10 << 56 | qpn),
            Layout::Rfc4755 => ServiceId(0x01 << 56 | qpn),
            Layout::RdmaCm => ServiceId::rdma_cm(RDMA_CM_PORT),
            Layout::RdmaIb => ServiceId::rdma_ib(RDMA_CM_PORT),
        }
    }
}

/// The state of a connection requested by this host.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// Requested; fails at `until`. `again`: repeated immediately after a rejection.
    Connecting {
        layout: Layout,
        again: bool,
        until: Time,
    },
    Up {
        since: Time,
        /// The largest IP packet that the peer accepts, in bytes.
        mtu: usize,
    },
    /// Failed; the next request follows at `until` at the earliest. Large packets wait.
    Waiting { until: Time },
    /// Refused or not supported by the peer. Until `until` it is served by datagrams.
    Refused { until: Time },
}

pub struct Active {
    /// The neighbour.
    pub link: Link,
    pub state: State,
    /// Consecutive failures of short-lived connections.
    pub failures: u8,
    /// Consecutive refusals, of a peer that does not advertise connections.
    pub refusals: u8,
    /// The layout that the peer accepted last, for the first request; `None` if it accepted none.
    pub takes: Option<Layout>,
    held: VecDeque<HeldFrame>,
}

impl Active {
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

pub enum Side {
    /// Requested by this host, for sending.
    Active(Active),
    /// Requested by the peer. Never used for sending: the kernel would not accept the messages.
    Passive,
}

pub struct Entry {
    pub peer: HardwareAddress,
    pub side: Side,
    /// The connection's id, from its creation by the fabric to its end.
    pub connection: Option<ConnectionId>,
    pub used: Time,
    /// A message arrived on the connection, so its requester is genuine.
    pub carried: bool,
}

/// Whether a port may get another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Yes.
    Free,
    /// Only in place of this entry.
    InPlaceOf(u32),
    /// No: the port has the maximum number, all in use.
    Used,
}

impl Entry {
    /// Whether the entry counts against the maximum.
    fn is_live(&self) -> bool {
        match &self.side {
            Side::Passive => true,
            Side::Active(a) => matches!(a.state, State::Connecting { .. } | State::Up { .. }),
        }
    }

    fn is_connecting(&self) -> bool {
        matches!(&self.side, Side::Active(a) if matches!(a.state, State::Connecting { .. }))
    }

    /// The time for the next action on the entry, if it is not used before.
    fn due(&self) -> Time {
        let idle = |ms: u64| Time(self.used.after(ms).0.next_multiple_of(REAP_STEP_MS));
        match &self.side {
            Side::Passive => idle(IDLE_PASSIVE_MS),
            Side::Active(a) => match a.state {
                State::Up { .. } => idle(IDLE_ACTIVE_MS),
                // The number of refusals is remembered.
                State::Refused { until } if a.refusals > 0 => until.after(FORGET_MS),
                State::Connecting { until, .. } | State::Refused { until } => until,
                State::Waiting { until } if a.holds() => until,
                State::Waiting { until } => until.after(FORGET_MS),
            },
        }
    }
}

/// At most `max` connections, and a bounded number of peers without connection.
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
    /// Number of connections requested by each port.
    by_port: HashMap<Gid, u32, RandomState>,
    /// Requests without a result from the fabric, with their entries.
    asked: Vec<(u32, u32)>,
    last_request: u32,
    /// No entry is due before this time.
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

    /// Upper bound of the entry indexes.
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

    /// Adds a connection that this host will request.
    pub fn insert_active(&mut self, now: Time, peer: HardwareAddress, link: Link) -> u32 {
        self.insert(Entry {
            peer,
            side: Side::Active(Active {
                link,
                state: State::Waiting { until: now },
                failures: 0,
                refusals: 0,
                takes: None,
                held: VecDeque::new(),
            }),
            connection: None,
            used: now,
            carried: false,
        })
    }

    /// Adds a connection that a peer requested.
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

    /// Removes an entry; its waiting frames are released.
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

    /// Changes the state of an entry. An entry that is no longer live loses its connection id.
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

    /// Remembers the layout that the peer accepted.
    pub fn remember(&mut self, at: u32, layout: Layout) {
        if let Some(Side::Active(a)) = self.get_mut(at).map(|e| &mut e.side) {
            a.refusals = 0;
            a.takes = Some(layout);
        }
    }

    /// Counts a failure, or resets the count first; returns the number of consecutive failures.
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

    /// Counts a refusal by a peer that does not advertise connections; returns the number before.
    pub fn count_refusal(&mut self, at: u32) -> u8 {
        match self.get_mut(at).map(|e| &mut e.side) {
            Some(Side::Active(a)) => {
                let before = a.refusals;
                a.refusals = before.saturating_add(1);
                before
            }
            _ => 0,
        }
    }

    /// Reduces consecutive failures to one: there was a connection, and more is unknown.
    pub fn forgive(&mut self, at: u32) {
        if let Some(Side::Active(a)) = self.get_mut(at).map(|e| &mut e.side) {
            a.failures = a.failures.min(1);
        }
    }

    /// Makes a new request number for an entry.
    pub fn ask(&mut self, at: u32) -> u32 {
        self.last_request = self.last_request.wrapping_add(1);
        self.asked.push((self.last_request, at));
        self.last_request
    }

    /// Whether the result of the request is pending.
    pub fn is_asked(&self, request: u32) -> bool {
        self.asked.iter().any(|(r, _)| *r == request)
    }

    /// Ends a request; returns its entry if the entry still waits for it.
    pub fn answered(&mut self, request: u32) -> Option<u32> {
        let found = self.asked.iter().position(|(r, _)| *r == request)?;
        Some(self.asked.swap_remove(found).1)
    }

    /// Sets the connection id from the fabric.
    pub fn bind(&mut self, at: u32, connection: ConnectionId) {
        if let Some(entry) = self.get_mut(at) {
            entry.connection = Some(connection);
            self.by_id.insert(connection, at);
        }
    }

    /// Notes the use of a connection.
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

    /// Notes a received message.
    #[inline]
    pub fn note_carried(&mut self, at: u32, now: Time) {
        if let Some(entry) = self.get_mut(at) {
            entry.carried = true;
        }
        self.touch(at, now);
    }

    /// Whether another connection may be started while others are. `confirmed`: for a confirmed neighbour.
    pub fn may_begin(&self, confirmed: bool) -> bool {
        let most = if confirmed {
            CONNECTING_MAX
        } else {
            CONNECTING_UNCONFIRMED_MAX
        };
        self.connecting < most
    }

    pub fn is_full(&self) -> bool {
        self.live_len >= self.max
    }

    /// The least recently used connection, if it is idle.
    pub fn idlest(&self, now: Time) -> Option<u32> {
        let at = self.live.oldest()?;
        let idle = now.0.saturating_sub(self.get(at)?.used.0) >= BUSY_MS;
        idle.then_some(at)
    }

    /// The oldest peer without connection, if there are too many.
    pub fn surplus(&self) -> Option<u32> {
        let most = self.max.max(PAUSED_MIN);
        (self.paused_len > most).then(|| self.paused.oldest())?
    }

    /// Whether a port may get another connection if `most` of those it requested are allowed. Connections
    /// without any message are replaced first, the oldest of them before the others: forged requests look
    /// like that.
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

    /// Keeps a frame until the connection is up; false if too many wait.
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

    /// Releases the frames that wait for a connection.
    pub fn release(&mut self, at: u32) {
        if let Some(Side::Active(active)) = self.get_mut(at).map(|e| &mut e.side) {
            let held = std::mem::take(&mut active.held);
            self.released.extend(held);
        }
    }

    /// Drops the frames that wait for a connection; returns their number.
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

    /// The first due entry at or after `at`. Call [`Connections::reckon`] after the last one.
    pub fn overdue(&self, now: Time, at: u32) -> Option<u32> {
        let mut rest = at..self.slots();
        rest.find(|at| self.get(*at).is_some_and(|e| e.due() <= now))
    }

    /// Computes the time of the next due entry.
    pub fn reckon(&mut self) {
        self.next_due = self.entries.iter().flatten().map(Entry::due).min();
    }
}
