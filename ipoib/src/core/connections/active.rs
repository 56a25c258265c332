//! Connections requested by this host.

use proto::backoff::doubled;
use proto::{CloseReason, ConnectError, ConnectionId, Mode, RejectReason, Time};

use super::super::{ConnectionAction, Ended, Ipoib, Role};
use crate::connections::{Layout, NO_ENTRY, State};
use crate::event::Event;
use crate::private_data::{CONNECTED_MTU, PrivateData};
use crate::wire::ENCAP_LEN;

/// Time limit of a request, repetitions included. The kernel's limit is 98 s, which is long for waiting
/// packets.
const ATTEMPT_MS: u64 = 20_000;
/// The same for a peer that does not advertise connections: it usually has none.
const SILENT_ATTEMPT_MS: u64 = 4000;
/// Time without requests to a peer that refused or did not answer.
const REFUSED_MS: u64 = 60_000;
/// Maximum of the time for a peer that does not advertise connections; it doubles.
const SILENT_REFUSED_MAX_MS: u64 = 8 * 60_000;
/// The pause after the second consecutive failure; later pauses double.
const BACKOFF_MS: u64 = 100;
const BACKOFF_MAX_MS: u64 = 5000;
const FAILURES_MAX: u8 = 8;
/// After this lifetime, the failure of a connection does not count as a consecutive one.
const STABLE_MS: u64 = 10_000;

impl Ipoib {
    /// The connection for a unicast IP packet to a neighbour, and the largest packet that it carries.
    /// `None` if there is none; a connection is then requested if the neighbour may have one.
    #[inline]
    pub(in crate::core) fn connection_to(
        &mut self,
        now: Time,
        slot: u32,
    ) -> Option<(ConnectionId, usize)> {
        let at = self.neighbours.get(slot).connection;
        if at == NO_ENTRY {
            self.begin(now, slot);
            return None;
        }
        // Also during setup: waiting packets are use.
        self.connected.table.touch(at, now);
        let entry = self.connected.table.get(at)?;
        let connection = entry.connection;
        match self.connected.table.active(at)?.state {
            State::Up { mtu, .. } => Some((connection?, mtu)),
            State::Waiting { until } if until <= now => {
                self.try_again(now, at);
                None
            }
            State::Refused { until } if until <= now && self.is_silent(at) => {
                self.try_again(now, at);
                None
            }
            State::Refused { until } if until <= now => {
                self.drop_entry(at, Ended::Dropped);
                self.begin(now, slot);
                None
            }
            _ => None,
        }
    }

    /// Whether a neighbour may accept connections: if it advertises some, or on InfiniBand.
    fn may_take_connections(&self, slot: u32) -> bool {
        let ours = self.config.mode == Mode::Connected && self.takes_connections();
        ours && (self.advertises(slot) || self.config.services.is_infiniband())
    }

    /// Whether a neighbour advertises connections. A neighbour known only from data may: after a restart of
    /// this host it may send data for long before its next ARP.
    fn advertises(&self, slot: u32) -> bool {
        let n = self.neighbours.get(slot);
        n.address.takes_connections() || !n.confirmed
    }

    /// Whether the neighbour of an entry does not advertise connections.
    fn is_silent(&self, at: u32) -> bool {
        let active = self.connected.table.active(at);
        let slot = active.and_then(|a| self.neighbours.follow(a.link));
        slot.is_some_and(|slot| !self.advertises(slot))
    }

    /// The layouts for a peer, in order.
    fn layouts(&self, at: u32) -> &'static [Layout] {
        Layout::order(self.config.services, !self.is_silent(at))
    }

    fn begin(&mut self, now: Time, slot: u32) {
        if !self.may_take_connections(slot) {
            return;
        }
        if !self.make_room(now) {
            self.counters.connections_no_room += 1;
            return;
        }
        let peer = self.neighbours.get(slot).address;
        let link = self.neighbours.link(slot);
        let at = self.connected.table.insert_active(now, peer, link);
        self.neighbours.get_mut(slot).connection = at;
        self.try_again(now, at);
    }

    /// Handles the end of a pause. The pause continues while too many other connections are in setup.
    /// Without room for a connection, the peer is served by datagrams.
    pub(super) fn try_again(&mut self, now: Time, at: u32) {
        let table = &self.connected.table;
        let link = table.active(at).map(|a| a.link);
        let slot = link.and_then(|link| self.neighbours.follow(link));
        let confirmed = slot.is_some_and(|slot| self.neighbours.get(slot).confirmed);
        if !table.may_begin(confirmed) {
            return self.pause(now, at);
        }
        if self.make_room(now) {
            let first = self.first_layout(at);
            return self.request(now, at, first, false);
        }
        self.counters.connections_no_room += 1;
        self.drop_entry(at, Ended::Dropped);
    }

    /// The layout of the first request to a peer.
    fn first_layout(&self, at: u32) -> Layout {
        let active = self.connected.table.active(at);
        let order = self.layouts(at);
        let accepted = active.and_then(|a| a.takes).filter(|l| order.contains(l));
        accepted.unwrap_or(order[0])
    }

    /// The next layout after `layout` was unknown to the peer; `None` after all were tried.
    fn next_layout(&self, at: u32, layout: Layout) -> Option<Layout> {
        let order = self.layouts(at);
        let after = order.iter().skip_while(|l| **l != layout).skip(1);
        let next = *after.chain(order).next()?;
        (next != self.first_layout(at)).then_some(next)
    }

    fn request(&mut self, now: Time, at: u32, layout: Layout, again: bool) {
        let limit = match self.is_silent(at) {
            true => SILENT_ATTEMPT_MS,
            false => ATTEMPT_MS,
        };
        let table = &mut self.connected.table;
        let Some(peer) = table.get(at).map(|e| e.peer) else {
            return;
        };
        let until = now.after(limit);
        table.set_state(
            at,
            State::Connecting {
                layout,
                again,
                until,
            },
        );
        let request = table.ask(at);
        let private_data = self.private_data();
        self.act(ConnectionAction::Connect {
            request,
            peer: peer.gid(),
            to: peer.qpn(),
            service: layout.service_id(peer.qpn()),
            private_data,
        });
    }

    /// Handles a request that the fabric could not start.
    pub(super) fn not_begun(&mut self, now: Time, at: u32, why: &ConnectError) {
        match why {
            ConnectError::Unreachable(_) => self.refused(now, at, CloseReason::TimedOut),
            // Says nothing about the peer, however long it lasts.
            ConnectError::NoGid => self.pause(now, at),
            // Waiting packets stay: released, they would cause a request immediately.
            ConnectError::NoSuchEndpoint(_) | ConnectError::Full | ConnectError::Os(_) => {
                self.wait(now, at, false, CloseReason::PortGone);
            }
            ConnectError::NoPKey(_) => self.wait(now, at, false, CloseReason::PKeyChange),
        }
    }

    /// Handles a peer's reply. Both MTUs limit the connection (RFC 4755, section 5.1). A connection that
    /// carries less than a datagram is useless. The kernel also rejects one that carries nothing.
    pub(super) fn replied(&mut self, now: Time, connection: ConnectionId, private_data: &[u8]) {
        let table = &self.connected.table;
        let known = table.by_id(connection);
        let asker = known.filter(|at| {
            let active = table.active(*at);
            active.is_some_and(|a| matches!(a.state, State::Connecting { .. }))
        });
        let Some(at) = asker else {
            return self.close(connection);
        };
        let data = PrivateData::parse(private_data);
        let takes = data.map_or(0, |d| d.receive_mtu as usize);
        let mtu = takes.saturating_sub(ENCAP_LEN).min(CONNECTED_MTU);
        if mtu == 0 || mtu < self.config.link_mtu {
            let private_data = self.private_data();
            self.act(ConnectionAction::Reject {
                connection,
                reason: RejectReason::CONSUMER,
                private_data,
            });
            let reason = CloseReason::Rejected(RejectReason::CONSUMER);
            return self.refused(now, at, reason);
        }
        self.act(ConnectionAction::Establish { connection });
        self.established(now, at, mtu);
    }

    fn established(&mut self, now: Time, at: u32, mtu: usize) {
        let table = &mut self.connected.table;
        if let Some(State::Connecting { layout, .. }) = table.active(at).map(|a| a.state) {
            table.remember(at, layout);
        }
        table.set_state(at, State::Up { since: now, mtu });
        table.touch(at, now);
        table.release(at);
        self.counters.connections_made += 1;
        if let Some(peer) = self.connected.table.get(at).map(|e| e.peer) {
            let role = Role::Active;
            self.report_if_watched(|| Event::ConnectionUp { peer, role });
        }
    }

    /// Handles the end of an established connection. The next packet requests another immediately, unless
    /// the last one failed recently.
    pub(super) fn broke(&mut self, now: Time, at: u32, since: Time, reason: CloseReason) {
        let stable = since.after(STABLE_MS) <= now;
        if reason != CloseReason::Disconnected {
            self.counters.connections_failed += 1;
        }
        if let Some(peer) = self.connected.table.get(at).map(|e| e.peer) {
            self.report_down(peer, Role::Active, Ended::Closed(reason));
        }
        self.wait(now, at, stable, reason);
    }

    /// Handles the failure of a request.
    pub(super) fn not_made(
        &mut self,
        now: Time,
        at: u32,
        layout: Layout,
        again: bool,
        reason: CloseReason,
    ) {
        const NOT_THERE: CloseReason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
        const AT_ONCE: [RejectReason; 2] = [RejectReason::STALE_CONNECTION, RejectReason::CONSUMER];
        // Temporary failures if there was a connection before: a restarting daemon stops listening, is
        // absent, then does not listen yet; or the underlay's MTU changes on one host after the other.
        const PASSING: [CloseReason; 3] = [
            CloseReason::TimedOut,
            NOT_THERE,
            CloseReason::Rejected(RejectReason::INVALID_MTU),
        ];
        if reason == NOT_THERE
            && let Some(next) = self.next_layout(at, layout)
        {
            return self.request(now, at, next, again);
        }
        match reason {
            // The peer has now removed its old connection.
            CloseReason::Rejected(why) if AT_ONCE.contains(&why) && !again => {
                self.request(now, at, layout, true);
            }
            passing if PASSING.contains(&passing) && self.has_failed(at) => {
                self.wait(now, at, false, reason);
            }
            CloseReason::Rejected(_) | CloseReason::TimedOut => self.refused(now, at, reason),
            CloseReason::Disconnected
            | CloseReason::Failed(_)
            | CloseReason::PortGone
            | CloseReason::PathMtu
            | CloseReason::PKeyChange => self.wait(now, at, false, reason),
        }
    }

    /// Whether an established or almost established connection failed before.
    fn has_failed(&self, at: u32) -> bool {
        let active = self.connected.table.active(at);
        active.is_some_and(|a| a.failures > 0)
    }

    pub(super) fn took_too_long(&mut self, now: Time, at: u32) {
        let begun = self.connected.table.get(at).and_then(|e| e.connection);
        begun.into_iter().for_each(|id| self.close(id));
        self.refused(now, at, CloseReason::TimedOut);
    }

    /// Serves the peer by datagrams for a while. Waiting large packets are released, to be answered with an
    /// error. After a timeout they are dropped instead: the peer may be down, and hosts remember a smaller
    /// MTU for longer than that. If the peer is up, more packets follow. But the usual peer that advertises
    /// no connections has none.
    fn refused(&mut self, now: Time, at: u32, reason: CloseReason) {
        let silent = self.is_silent(at);
        let table = &mut self.connected.table;
        let pause = match silent {
            true => {
                let before = table.count_refusal(at);
                doubled(REFUSED_MS, before.into(), SILENT_REFUSED_MAX_MS)
            }
            false => REFUSED_MS,
        };
        let until = now.after(pause);
        if reason == CloseReason::TimedOut && !silent {
            self.counters.too_big_hold_full += table.discard(at);
        }
        table.set_state(at, State::Refused { until });
        table.release(at);
        self.counters.connections_refused += 1;
        if let Some(peer) = self.connected.table.get(at).map(|e| e.peer) {
            self.report_if_watched(|| Event::ConnectionRefused { peer, reason });
        }
        self.drop_surplus();
    }

    /// Pauses requests, without counting a failure.
    fn pause(&mut self, now: Time, at: u32) {
        let until = now.after(BACKOFF_MS);
        self.connected.table.set_state(at, State::Waiting { until });
        self.drop_surplus();
    }

    /// Pauses requests; the first failure causes no pause. After too many consecutive failures the peer
    /// counts as refusing: datagrams may reach it when connections do not.
    fn wait(&mut self, now: Time, at: u32, forget: bool, reason: CloseReason) {
        let failures = self.connected.table.count_failure(at, forget);
        if failures > FAILURES_MAX {
            return self.refused(now, at, reason);
        }
        let pause = match failures {
            0 | 1 => 0,
            n => doubled(BACKOFF_MS, u32::from(n - 2), BACKOFF_MAX_MS),
        };
        let until = now.after(pause);
        self.connected.table.set_state(at, State::Waiting { until });
        self.drop_surplus();
    }

    /// Drops the packets that wait for the oldest peer without connection. Released, they would request a
    /// connection again.
    fn drop_surplus(&mut self) {
        if let Some(at) = self.connected.table.surplus() {
            self.counters.too_big_hold_full += self.connected.table.discard(at);
            self.drop_entry(at, Ended::Dropped);
        }
    }
}
