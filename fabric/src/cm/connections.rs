//! The connections of a worker, and their indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proto::{Gid, IbMtu, Instant, PKey, Qpn};

use super::CmId;
use super::messages::{Datagram, Ids};

/// State of a connection (IBA vol. 1, 12.9). DREQ_RCVD is missing because a DisconnectRequest is
/// answered at once, LISTEN because the caller keeps the services.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    ReqSent,
    ReqRcvd,
    RepSent,
    RepRcvd,
    Established,
    DreqSent,
    Timewait,
    /// A connection without communication management: see [`super::Cm::unmanaged`].
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

    /// The peer sent a request and has not confirmed the reply.
    pub const fn is_half_open(self) -> bool {
        matches!(self, State::ReqRcvd | State::RepSent)
    }

    /// The local user has to answer.
    pub const fn waits_for_user(self) -> bool {
        matches!(self, State::ReqRcvd | State::RepRcvd)
    }

    /// The peer's queue pair may be in use. In TIMEWAIT the peer may reuse it
    /// (drivers/infiniband/core/cm.c, `cm_cleanup_timewait`).
    const fn holds_qpn(self) -> bool {
        !matches!(self, State::ReqSent | State::Timewait)
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The peer's GID; messages from other GIDs are ignored.
    pub peer: Gid,
    pub state: State,
    /// Transaction id of the request.
    pub tid: u64,
    /// Local queue pair; 0 before the request is accepted.
    pub local_qpn: Qpn,
    /// The peer's side; `None` while unknown.
    pub remote: Option<RemoteEnd>,
    pub pkey: PKey,
    pub path_mtu: IbMtu,
    /// The message to repeat after a timeout, or when the peer repeats its message.
    pub sent: Option<Box<Datagram>>,
    /// Time between two repetitions.
    pub interval: Duration,
    /// Repetitions left.
    pub retries: u8,
    /// An MRA has already extended the time for the current message.
    pub extended: bool,
    /// The user ended the connection; only its last event is reported.
    pub disowned: bool,
}

/// The identifiers of the peer's side in its messages.
#[derive(Clone, Copy, Debug)]
pub struct RemoteEnd {
    pub ca_guid: [u8; 8],
    /// Never 0.
    pub comm_id: u32,
    pub qpn: Qpn,
}

impl Connection {
    /// Both communication ids, for a message to the peer.
    pub fn ids(&self, id: CmId) -> Ids {
        Ids {
            local: id.0,
            remote: self.remote.map_or(0, |r| r.comm_id),
        }
    }
}

/// A peer's communication id or queue pair number, with the GUID that makes it unique. The GID
/// separates nodes with the same GUID, and prevents messages about other nodes' connections.
type PeerKey = (Gid, [u8; 8], u32);

/// The connections of a worker.
#[derive(Debug, Default)]
pub struct Table {
    connections: BTreeMap<CmId, Entry>,
    by_comm_id: BTreeMap<PeerKey, CmId>,
    by_qpn: BTreeMap<PeerKey, CmId>,
    half_open: BTreeSet<(u64, CmId)>,
    /// The same by peer: the search for each request of a flood must stay short.
    half_open_by_peer: BTreeSet<(Gid, u64, CmId)>,
    timers: BTreeSet<(Instant, CmId)>,
    begun: u64,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// Order of creation: the number of connections created before.
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

    /// For changes of fields that are not keys of the table: not `state`, `peer` and `remote`.
    pub fn get_mut(&mut self, id: CmId) -> Option<&mut Connection> {
        self.connections.get_mut(&id).map(|e| &mut e.connection)
    }

    /// Finds a connection by the peer's communication id.
    pub fn by_comm_id(&self, peer: Gid, ca_guid: [u8; 8], comm_id: u32) -> Option<CmId> {
        self.by_comm_id.get(&(peer, ca_guid, comm_id)).copied()
    }

    /// Finds a connection by the peer's queue pair.
    pub fn by_qpn(&self, peer: Gid, ca_guid: [u8; 8], qpn: Qpn) -> Option<CmId> {
        self.by_qpn.get(&(peer, ca_guid, qpn.get())).copied()
    }

    /// Half-open connections, oldest first.
    pub fn half_open(&self) -> impl ExactSizeIterator<Item = CmId> {
        self.half_open.iter().map(|(_, id)| *id)
    }

    /// Half-open connections of a peer, oldest first.
    pub fn half_open_of(&self, peer: Gid) -> impl Iterator<Item = CmId> {
        let first = (peer, 0, CmId(0));
        let last = (peer, u64::MAX, CmId(u32::MAX));
        let all = self.half_open_by_peer.range(first..=last);
        all.map(|(_, _, id)| *id)
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

    /// Changes fields that are keys of the table.
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
            self.half_open_by_peer.insert((c.peer, *order, id));
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
        self.half_open_by_peer.remove(&(c.peer, *order, id));
        let Some(r) = &c.remote else { return };
        // Another connection may have the number now.
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

    /// Sets the time at which [`Table::expired`] returns a connection; `None`: never.
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

    /// A connection whose timer has expired; clears the timer.
    pub fn expired(&mut self, now: Instant) -> Option<CmId> {
        let (at, id) = *self.timers.first()?;
        if at > now {
            return None;
        }
        self.set_timer(id, None);
        Some(id)
    }

    /// Checks that all indexes agree.
    #[cfg(test)]
    pub fn assert_consistent(&self) {
        for (id, e) in &self.connections {
            let c = &e.connection;
            assert_eq!(
                self.half_open.contains(&(e.order, *id)),
                c.state.is_half_open()
            );
            assert_eq!(
                self.half_open_by_peer.contains(&(c.peer, e.order, *id)),
                c.state.is_half_open()
            );
            if let Some(at) = e.timer {
                assert!(self.timers.contains(&(at, *id)));
            }
        }
        let timers = self.connections.values().filter(|e| e.timer.is_some());
        assert_eq!(timers.count(), self.timers.len());
        assert!(self.half_open.iter().all(|(_, id)| self.get(*id).is_some()));
        assert_eq!(self.half_open.len(), self.half_open_by_peer.len());
        for ids in [&self.by_comm_id, &self.by_qpn] {
            assert!(ids.values().all(|id| self.get(*id).is_some()));
        }
    }
}
