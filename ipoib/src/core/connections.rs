//! Connected mode: connections to peers, and packets over them (RFC 4755; kernel
//! drivers/infiniband/ulp/ipoib/ipoib_cm.c).
//!
//! Each connection carries packets in one direction, as in the kernel: the sender requests it. Two peers
//! therefore have two connections, and crossing requests do no harm (RFC 4755, section 3.3, would reject
//! one of them; the kernel would then request again and again). Without a connection, packets are sent as
//! datagrams; larger packets wait.
//!
//! The protocol is that of RFC 4755 and the kernel's `ib_ipoib`. Where they differ, the core follows the
//! kernel.
//!
//! * **One direction.** The sender requests a connection at the first unicast packet to a peer whose
//!   address has the RC flag, or from which only data was received (after a restart of this host the peer
//!   may not send ARP for a long time). Nothing is sent on an accepted connection. Requests are accepted in
//!   datagram mode, too.
//! * **Services.** An interface listens on Linux's service of its queue pair, on that of RFC 4755, and on
//!   port 4755 of rdma_cm's TCP port space; there the last four bytes of the request's private data contain
//!   the queue pair number. If the kernel owns communication management, rdma_cm passes only the latter
//!   (`Capabilities::services`). The core requests Linux's, rdma_cm's and the RFC's service in turn until
//!   the peer accepts one. Later requests start with the accepted service.
//! * **Services on InfiniBand.** There the service of rdma_cm is port 4755 of its InfiniBand port space
//!   (0x00000000013f1293), with the queue pair number in the last four of 92 bytes. A peer whose kernel owns
//!   communication management takes only this service, and its address has no RC flag. So the core requests
//!   this service from every peer without the flag, once: a refusal is remembered for 1, 2, 4, and then 8
//!   minutes. Packets are sent as datagrams meanwhile; too large ones wait for 4 s at most and get an error
//!   then. An interface in datagram mode rejects these requests, as it advertises no connections otherwise.
//! * **Datagrams** carry ARP, multicast, neighbour discovery, DHCP, and everything else while there is no
//!   connection. Packets too large for a datagram wait: three for each peer, 4 MiB in total. Packets for a
//!   peer that never answers are dropped: the peer may be down, and hosts remember a smaller MTU for
//!   longer.
//! * **Too large packets** are answered by ICMP 3/4 or ICMPv6 2 from the destination's address, at most 10
//!   in a second for each destination. IPv4 without DF gets the same answer, as from the kernel: the core
//!   does not fragment. The quoted transport checksum stays as the host wrote it.
//! * **Rejected or unanswered requests**: the peer gets datagrams for a minute, or until it announces
//!   itself (gratuitous ARP, unsolicited advertisement) or its ARP advertises connections again. A failed
//!   connection is requested again immediately, then after 100 ms to 5 s; the ninth consecutive failure counts
//!   as a rejection. If there was a connection before, a timeout, an unknown service and another path MTU
//!   count as failures, too: the peer may be restarting or changing its MTU. While the port has no GID, a
//!   request follows every 100 ms, and none counts as a failure.
//! * **An IP address that moves to another GID** ends the connection to its former owner. Perhaps the owner
//!   itself moved and its connections ended: its disconnect requests come from the new GID and do not count.
//! * **An interface that cannot receive requests does not advertise connections.** `ib_ipoib` requests its
//!   own service again and again, and sends nothing else meanwhile. If that service is unreachable and such
//!   peers exist (`kernel_peers`), the address has no RC flag; the interface still requests connections.
//! * **Bounds.** `Limits::connections` for each replica, 64 of them for a remote port. The least recently
//!   used connection is evicted if it was idle for 2 s; otherwise the request is rejected (no QP). Of a
//!   port's connections, those without any message are evicted first, then those idle for 10 s, so that
//!   forged requests end no connection in use. Idle connections end after 60 s (requested by this host) or
//!   512 s (requested by the peer).

mod active;
mod passive;
mod too_big;

use std::collections::VecDeque;

use proto::{CloseReason, ConnectError, ConnectionEvent, ConnectionId, Mode, ServiceId, Time};

use super::{ConnectionAction, ConnectionPeer, Ended, Ipoib, Role};
use crate::address::HardwareAddress;
use crate::connections::{Connections, Layout, NO_ENTRY, Side, State};
use crate::event::Event;
use crate::private_data::{CONNECTED_MTU, PrivateData};
use crate::too_big::Limiter;

/// The state of connected mode.
pub(super) struct ConnectedState {
    pub table: Connections,
    actions: VecDeque<ConnectionAction>,
    limiter: Limiter,
}

impl ConnectedState {
    pub fn new(max: usize) -> ConnectedState {
        ConnectedState {
            table: Connections::new(max),
            actions: VecDeque::new(),
            limiter: Limiter::default(),
        }
    }
}

impl Ipoib {
    /// Changes the mode of unicast IP packets. Connections requested by this host end; those requested by
    /// peers stay, because a peer may still send on them. Neighbours and groups stay.
    pub fn set_mode(&mut self, mode: Mode) {
        if mode == self.config.mode {
            return;
        }
        self.config.mode = mode;
        if mode == Mode::Datagram {
            let table = &self.connected.table;
            let ours: Vec<u32> = (0..table.slots())
                .filter(|at| table.active(*at).is_some())
                .collect();
            ours.into_iter()
                .for_each(|at| self.drop_entry(at, Ended::Dropped));
        }
    }

    /// The service ids on which the interface must listen: Linux's layout, that of rdma_cm, and that of RFC
    /// 4755, section 3.5, as far as the port supports them.
    pub fn service_ids(&self) -> Vec<ServiceId> {
        let qpn = self.config.local.qpn();
        let layouts = Layout::listened(self.config.services).iter();
        layouts.map(|layout| layout.service_id(qpn)).collect()
    }

    /// The largest IP packet that the interface accepts from its host, in bytes.
    pub(super) fn interface_mtu(&self) -> usize {
        match self.config.mode {
            Mode::Datagram => self.config.link_mtu,
            Mode::Connected => CONNECTED_MTU,
        }
    }

    fn private_data(&self) -> [u8; PrivateData::LEN] {
        PrivateData::new(self.config.local.qpn()).to_bytes()
    }

    /// Returns the next action for connections, in order. Call it after every call that passes packets,
    /// events, updates or time.
    pub fn poll_connection(&mut self) -> Option<ConnectionAction> {
        self.settle_orphans();
        loop {
            let action = self.connected.actions.pop_front()?;
            match action {
                // The request was cancelled.
                ConnectionAction::Connect { request, .. }
                    if !self.connected.table.is_asked(request) => {}
                _ => return Some(action),
            }
        }
    }

    /// Passes the result of a [`ConnectionAction::Connect`].
    pub fn connecting(
        &mut self,
        now: Time,
        request: u32,
        begun: Result<ConnectionId, ConnectError>,
    ) {
        let asker = self.connected.table.answered(request);
        match (asker, begun) {
            (Some(at), Ok(connection)) => self.connected.table.bind(at, connection),
            (None, Ok(connection)) => self.close(connection),
            (Some(at), Err(why)) => self.not_begun(now, at, &why),
            (None, Err(_)) => {}
        }
    }

    /// Passes an event of a connection of this interface.
    pub fn connection_event(&mut self, now: Time, event: &ConnectionEvent) {
        self.settle_orphans();
        match event {
            ConnectionEvent::Requested {
                connection,
                service,
                peer,
                private_data,
                ..
            } => self.requested(now, *connection, *service, *peer, private_data),
            ConnectionEvent::Replied {
                connection,
                private_data,
            } => self.replied(now, *connection, private_data),
            ConnectionEvent::Closed { connection, reason } => {
                self.closed(now, *connection, *reason);
            }
        }
    }

    /// The peer of a connection; `None` if the connection does not belong to this interface.
    pub fn connection_peer(&self, connection: ConnectionId) -> Option<ConnectionPeer> {
        let at = self.connected.table.by_id(connection)?;
        let entry = self.connected.table.get(at)?;
        let (role, mtu) = match &entry.side {
            Side::Passive => (Role::Passive, None),
            Side::Active(active) => match active.state {
                State::Up { mtu, .. } => (Role::Active, Some(mtu)),
                _ => (Role::Active, None),
            },
        };
        Some(ConnectionPeer {
            address: entry.peer,
            role,
            mtu,
        })
    }

    /// All connections, established or not.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, ConnectionPeer)> {
        let table = &self.connected.table;
        let ids = (0..table.slots()).filter_map(|at| table.get(at)?.connection);
        ids.filter_map(|id| Some((id, self.connection_peer(id)?)))
    }

    fn act(&mut self, action: ConnectionAction) {
        self.connected.actions.push_back(action);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.act(ConnectionAction::Close { connection });
    }

    fn closed(&mut self, now: Time, connection: ConnectionId, reason: CloseReason) {
        let Some(at) = self.connected.table.by_id(connection) else {
            return;
        };
        match self.connected.table.active(at).map(|a| a.state) {
            None => {
                self.connected.table.remove(at).into_iter().for_each(|e| {
                    self.report_down(e.peer, Role::Passive, Ended::Closed(reason));
                });
            }
            Some(State::Up { since, .. }) => self.broke(now, at, since, reason),
            Some(State::Connecting { layout, again, .. }) => {
                self.not_made(now, at, layout, again, reason);
            }
            Some(State::Waiting { .. } | State::Refused { .. }) => {}
        }
    }

    /// Ends the connection of an entry and removes the entry.
    fn drop_entry(&mut self, at: u32, why: Ended) {
        let Some(entry) = self.connected.table.remove(at) else {
            return;
        };
        entry.connection.into_iter().for_each(|id| self.close(id));
        match entry.side {
            Side::Passive => self.report_down(entry.peer, Role::Passive, why),
            Side::Active(active) => {
                if let Some(slot) = self.neighbours.follow(active.link) {
                    self.neighbours.get_mut(slot).connection = NO_ENTRY;
                }
                if matches!(active.state, State::Up { .. }) {
                    self.report_down(entry.peer, Role::Active, why);
                }
            }
        }
    }

    /// Ends the connection to a neighbour, if any.
    pub(super) fn drop_connection_of(&mut self, slot: u32) {
        let at = self.neighbours.get(slot).connection;
        if at != NO_ENTRY {
            self.drop_entry(at, Ended::Dropped);
        }
    }

    /// Handles new RC flags of a neighbour. Without the flag, its connection ends, established or not,
    /// unless it is to the service of peers without the flag; with the flag, a pause ends.
    pub(super) fn flags_changed(&mut self, slot: u32) {
        let n = self.neighbours.get(slot);
        let (at, takes) = (n.connection, n.address.takes_connections());
        let layout = match self.connected.table.active(at).map(|a| (a.state, a.takes)) {
            Some((State::Connecting { layout, .. }, _)) => Some(layout),
            Some((State::Up { .. }, layout)) => layout,
            Some((State::Waiting { .. } | State::Refused { .. }, _)) => None,
            None => return,
        };
        let stays = match layout {
            Some(Layout::RdmaIb) => true,
            Some(_) => takes,
            None => false,
        };
        if !stays {
            self.drop_entry(at, Ended::Dropped);
        }
    }

    /// Handles the return of a neighbour: a pause ends, and earlier failures no longer count against a
    /// pending request.
    pub(super) fn ask_again(&mut self, slot: u32) {
        let at = self.neighbours.get(slot).connection;
        match self.connected.table.active(at).map(|a| a.state) {
            Some(State::Waiting { .. } | State::Refused { .. }) => {
                self.drop_entry(at, Ended::Dropped);
            }
            Some(State::Connecting { .. }) => self.connected.table.forgive(at),
            Some(State::Up { .. }) | None => {}
        }
    }

    /// Ends all connections, because the interface's address changed.
    pub(super) fn drop_connections(&mut self) {
        for at in 0..self.connected.table.slots() {
            self.drop_entry(at, Ended::Dropped);
        }
    }

    /// Ends the connections to neighbours that were removed.
    fn settle_orphans(&mut self) {
        while let Some(at) = self.neighbours.orphans.pop() {
            let active = self.connected.table.active(at);
            // Another neighbour may have the slot already.
            if active.is_some_and(|a| self.neighbours.follow(a.link).is_none()) {
                self.drop_entry(at, Ended::Dropped);
            }
        }
    }

    /// Makes room for a connection by evicting the least recently used one; false if all are in use.
    fn make_room(&mut self, now: Time) -> bool {
        let table = &self.connected.table;
        if table.max() == 0 {
            return false;
        }
        if !table.is_full() {
            return true;
        }
        let Some(at) = table.idlest(now) else {
            return false;
        };
        self.counters.connections_evicted += 1;
        self.drop_entry(at, Ended::Evicted);
        true
    }

    /// Ends idle connections, gives up overdue requests, and repeats failed requests with waiting packets.
    pub(super) fn connections_timeout(&mut self, now: Time) {
        self.settle_orphans();
        if self.connected.table.next_due().is_none_or(|due| due > now) {
            return;
        }
        let mut from = 0;
        while let Some(at) = self.connected.table.overdue(now, from) {
            from = at + 1;
            self.overdue(now, at);
        }
        self.connected.table.reckon();
    }

    fn overdue(&mut self, now: Time, at: u32) {
        match self.connected.table.active(at).map(|a| a.state) {
            None | Some(State::Up { .. }) => {
                self.counters.connections_reaped += 1;
                self.drop_entry(at, Ended::Idle);
            }
            Some(State::Connecting { .. }) => self.took_too_long(now, at),
            Some(State::Waiting { .. }) if self.waits(at) => self.try_again(now, at),
            Some(State::Waiting { .. } | State::Refused { .. }) => {
                self.drop_entry(at, Ended::Dropped);
            }
        }
    }

    fn waits(&self, at: u32) -> bool {
        self.connected.table.active(at).is_some_and(|a| a.holds())
    }

    fn report_down(&mut self, peer: HardwareAddress, role: Role, why: Ended) {
        self.report_if_watched(|| Event::ConnectionDown { peer, role, why });
    }
}
