//! The connections, and the ways to find one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proto::{Gid, IbMtu, Instant, PKey, Qpn};

use super::CmId;
use super::messages::{Datagram, Ids};

/// Where a connection is (IBA vol. 1, 12.9). DREQ_RCVD is not among them: a DisconnectRequest is
/// answered at once. LISTEN is not either: services are the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    ReqSent,
    ReqRcvd,
    RepSent,
    RepRcvd,
    Established,
    DreqSent,
    Timewait,
    /// Of a connection that no messages are about: see [`super::Cm::unmanaged`].
    Unmanaged,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            State::ReqSent => "REQ_SENT",
            State::ReqRcvd => "REQ_RCVD",
            State::RepSent => "REP_SENT",
            State::RepRcvd => "REP_RCVD",
            State::Established => "ESTABLISHED",
            State::DreqSent => "DREQ_SENT",
            State::Timewait => "TIMEWAIT",
            State::Unmanaged => "UNMANAGED",
        }
    }

    /// The peer asked and has not confirmed.
    pub const fn is_half_open(self) -> bool {
        matches!(self, State::ReqRcvd | State::RepSent)
    }

    /// Our user is to answer.
    pub const fn waits_for_user(self) -> bool {
        matches!(self, State::ReqRcvd | State::RepRcvd)
    }

    /// The peer's queue pair may be in use. In TIMEWAIT the peer may use it anew
    /// (drivers/infiniband/core/cm.c, `cm_cleanup_timewait`).
    const fn holds_qpn(self) -> bool {
        !matches!(self, State::ReqSent | State::Timewait)
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Whom it is with: only from there are its messages taken.
    pub peer: Gid,
    pub state: State,
    /// The transaction of the request.
    pub tid: u64,
    /// Our queue pair; 0 before we consent.
    pub local_qpn: Qpn,
    /// The peer's side, once it is known.
    pub remote: Option<RemoteEnd>,
    pub pkey: PKey,
    pub path_mtu: IbMtu,
    /// What is repeated when time is over or the peer repeats itself.
    pub sent: Option<Box<Datagram>>,
    /// Between two repetitions.
    pub interval: Duration,
    /// Repetitions that are left.
    pub retries: u8,
    /// An MRA was taken for what is being sent.
    pub extended: bool,
    /// Its user ended it: of its events only the last is told.
    pub disowned: bool,
}

/// The peer's side of a connection: what the peer's messages name it by.
#[derive(Clone, Copy, Debug)]
pub struct RemoteEnd {
    pub ca_guid: [u8; 8],
    /// Never 0.
    pub comm_id: u32,
    pub qpn: Qpn,
}

impl Connection {
    /// The two names, for a message of ours.
    pub fn ids(&self, id: CmId) -> Ids {
        Ids {
            local: id.0,
            remote: self.remote.map_or(0, |r| r.comm_id),
        }
    }
}

/// A peer's communication id or queue pair number, with the GUID that makes it unique. The GID keeps
/// apart nodes that share a GUID, and lets nobody speak of another's connection.
type PeerKey = (Gid, [u8; 8], u32);

/// The connections of a worker.
#[derive(Debug, Default)]
pub struct Table {
    connections: BTreeMap<CmId, Entry>,
    by_comm_id: BTreeMap<PeerKey, CmId>,
    by_qpn: BTreeMap<PeerKey, CmId>,
    half_open: BTreeSet<(u64, CmId)>,
    timers: BTreeSet<(Instant, CmId)>,
    begun: u64,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// How many there were before it.
    order: u64,
    timer: Option<Instant>,
}

impl Table {
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn get(&self, id: CmId) -> Option<&Connection> {
        self.connections.get(&id).map(|e| &e.connection)
    }

    /// For changes of what the table does not find it by: not the state, the peer or its side.
    pub fn get_mut(&mut self, id: CmId) -> Option<&mut Connection> {
        self.connections.get_mut(&id).map(|e| &mut e.connection)
    }

    /// The connection that a peer's communication id is of.
    pub fn by_comm_id(&self, peer: Gid, ca_guid: [u8; 8], comm_id: u32) -> Option<CmId> {
        self.by_comm_id.get(&(peer, ca_guid, comm_id)).copied()
    }

    /// The connection that a peer's queue pair is used by.
    pub fn by_qpn(&self, peer: Gid, ca_guid: [u8; 8], qpn: Qpn) -> Option<CmId> {
        self.by_qpn.get(&(peer, ca_guid, qpn.get())).copied()
    }

    /// Half-open connections, oldest first.
    pub fn half_open(&self) -> impl ExactSizeIterator<Item = CmId> {
        self.half_open.iter().map(|(_, id)| *id)
    }

    pub fn insert(&mut self, id: CmId, connection: Connection) {
        let order = self.begun;
        self.begun += 1;
        let entry = Entry {
            connection,
            order,
            timer: None,
        };
        self.connections.insert(id, entry);
        self.index(id);
    }

    pub fn remove(&mut self, id: CmId) {
        self.set_timer(id, None);
        self.unindex(id);
        self.connections.remove(&id);
    }

    pub fn set_state(&mut self, id: CmId, state: State) {
        self.change(id, |c| c.state = state);
    }

    pub fn set_remote(&mut self, id: CmId, remote: RemoteEnd) {
        self.change(id, |c| c.remote = Some(remote));
    }

    /// Changes what the table finds a connection by.
    fn change(&mut self, id: CmId, change: impl FnOnce(&mut Connection)) {
        self.unindex(id);
        if let Some(connection) = self.get_mut(id) {
            change(connection);
        }
        self.index(id);
    }

    fn index(&mut self, id: CmId) {
        let Some(Entry {
            connection: c,
            order,
            ..
        }) = self.connections.get(&id)
        else {
            return;
        };
        if c.state.is_half_open() {
            self.half_open.insert((*order, id));
        }
        if let Some(r) = &c.remote {
            self.by_comm_id.insert((c.peer, r.ca_guid, r.comm_id), id);
            if c.state.holds_qpn() {
                self.by_qpn.insert((c.peer, r.ca_guid, r.qpn.get()), id);
            }
        }
    }

    fn unindex(&mut self, id: CmId) {
        let Some(Entry {
            connection: c,
            order,
            ..
        }) = self.connections.get(&id)
        else {
            return;
        };
        self.half_open.remove(&(*order, id));
        let Some(r) = &c.remote else { return };
        // Another connection may have the number by now.
        let (comm_id, qpn) = (
            (c.peer, r.ca_guid, r.comm_id),
            (c.peer, r.ca_guid, r.qpn.get()),
        );
        if self.by_comm_id.get(&comm_id) == Some(&id) {
            self.by_comm_id.remove(&comm_id);
        }
        if self.by_qpn.get(&qpn) == Some(&id) {
            self.by_qpn.remove(&qpn);
        }
    }

    /// Sets the time at which a connection comes out of [`Table::expired`]; none, never.
    pub fn set_timer(&mut self, id: CmId, at: Option<Instant>) {
        let Some(entry) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.timer, at) {
            self.timers.remove(&(old, id));
        }
        if let Some(at) = at {
            self.timers.insert((at, id));
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A connection whose time has come; its timer is off.
    pub fn expired(&mut self, now: Instant) -> Option<CmId> {
        let (at, id) = *self.timers.first()?;
        if at > now {
            return None;
        }
        self.set_timer(id, None);
        Some(id)
    }

    /// Everything that is found in one way is found in the others.
    #[cfg(test)]
    pub fn assert_consistent(&self) {
        for (id, e) in &self.connections {
            let c = &e.connection;
            assert_eq!(
                self.half_open.contains(&(e.order, *id)),
                c.state.is_half_open()
            );
            if let Some(at) = e.timer {
                assert!(self.timers.contains(&(at, *id)));
            }
        }
        let timers = self.connections.values().filter(|e| e.timer.is_some());
        assert_eq!(timers.count(), self.timers.len());
        assert!(self.half_open.iter().all(|(_, id)| self.get(*id).is_some()));
        for ids in [&self.by_comm_id, &self.by_qpn] {
            assert!(ids.values().all(|id| self.get(*id).is_some()));
        }
    }
}
