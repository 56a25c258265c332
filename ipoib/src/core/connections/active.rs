//! Connections that we ask for.

use proto::backoff::doubled;
use proto::{CloseReason, ConnectError, ConnectionId, Mode, RejectReason, Time};

use super::super::{ConnectionAction, Ended, Ipoib, Role};
use crate::connections::{Layout, NO_ENTRY, State};
use crate::event::Event;
use crate::private_data::{CONNECTED_MTU, PrivateData};
use crate::wire::ENCAP_LEN;

/// A request that nobody answered in so long a time, repetitions included, is given up. The kernel
/// goes on for 98 s, which is long for those who wait.
const ATTEMPT_MS: u64 = 20_000;
/// A peer that refuses, or never answers, is not asked again for so long.
const REFUSED_MS: u64 = 60_000;
/// The pause after a second failure in a row; the next is twice as long.
const BACKOFF_MS: u64 = 100;
const BACKOFF_MAX_MS: u64 = 5000;
const FAILURES_MAX: u8 = 8;
/// A connection that lived for so long did not fail at once: the next one may be made at once.
const STABLE_MS: u64 = 10_000;

impl Ipoib {
    /// The connection that a unicast IP packet to a neighbour takes, and the largest packet that it
    /// carries. `None` if there is none now; then one is asked for, if the peer may have one.
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
        // Also while it is being made: who waits for it uses it.
        self.connected.table.touch(at, now);
        let entry = self.connected.table.get(at)?;
        let connection = entry.connection;
        match self.connected.table.active(at)?.state {
            State::Up { mtu, .. } => Some((connection?, mtu)),
            State::Waiting { until } if until <= now => {
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

    /// Whether a neighbour may take connections. One that only sent data has not said so, and is
    /// asked: after a restart of ours it may send for long before it next speaks ARP.
    fn may_take_connections(&self, slot: u32) -> bool {
        let n = self.neighbours.get(slot);
        let ours = self.config.mode == Mode::Connected && self.takes_connections();
        ours && (n.address.takes_connections() || !n.confirmed)
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

    /// The pause is over. It goes on while too many others are being made; without room for one more,
    /// the peer is served by datagrams.
    pub(super) fn try_again(&mut self, now: Time, at: u32) {
        let table = &self.connected.table;
        let link = table.active(at).map(|a| a.link);
        let slot = link.and_then(|link| self.neighbours.follow(link));
        let confirmed = slot.is_some_and(|slot| self.neighbours.get(slot).confirmed);
        if !table.may_begin(confirmed) {
            let until = now.after(BACKOFF_MS);
            self.connected.table.set_state(at, State::Waiting { until });
            return self.drop_surplus();
        }
        if self.make_room(now) {
            let first = self.first_layout(at);
            return self.request(now, at, first, false);
        }
        self.counters.connections_no_room += 1;
        self.drop_entry(at, Ended::Dropped);
    }

    /// What a peer is asked for first.
    fn first_layout(&self, at: u32) -> Layout {
        let active = self.connected.table.active(at);
        let order = Layout::order(self.config.services);
        active.and_then(|a| a.takes).unwrap_or(order[0])
    }

    /// What it is asked for when it does not listen on that; none if it was asked for everything.
    fn next_layout(&self, at: u32, layout: Layout) -> Option<Layout> {
        let order = Layout::order(self.config.services);
        let after = order.iter().skip_while(|l| **l != layout).skip(1);
        let next = *after.chain(order).next()?;
        (next != self.first_layout(at)).then_some(next)
    }

    fn request(&mut self, now: Time, at: u32, layout: Layout, again: bool) {
        let table = &mut self.connected.table;
        let Some(peer) = table.get(at).map(|e| e.peer) else {
            return;
        };
        let until = now.after(ATTEMPT_MS);
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

    /// The fabric could not even ask.
    pub(super) fn not_begun(&mut self, now: Time, at: u32, why: &ConnectError) {
        match why {
            ConnectError::Unreachable(_) => self.refused(now, at, CloseReason::TimedOut),
            // What waits goes on waiting: sent at once, it would ask at once.
            ConnectError::NoSuchEndpoint(_) | ConnectError::Full | ConnectError::Os(_) => {
                self.wait(now, at, false, CloseReason::PortGone);
            }
            ConnectError::NoPKey(_) => self.wait(now, at, false, CloseReason::PKeyChange),
        }
    }

    /// The peer consents. Its own MTU counts (RFC 4755, section 5.1), and ours. A connection that
    /// carries less than a datagram is of no use, one that carries nothing the kernel rejects, too.
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
            self.tell_watcher(|| Event::ConnectionUp { peer, role });
        }
    }

    /// It was there, and is no more. The next packet asks for another at once, unless that has failed
    /// lately.
    pub(super) fn broke(&mut self, now: Time, at: u32, since: Time, reason: CloseReason) {
        let stable = since.after(STABLE_MS) <= now;
        if reason != CloseReason::Disconnected {
            self.counters.connections_failed += 1;
        }
        if let Some(peer) = self.connected.table.get(at).map(|e| e.peer) {
            self.tell_down(peer, Role::Active, Ended::Closed(reason));
        }
        self.wait(now, at, stable, reason);
    }

    /// It did not come about.
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
        // Where there was a connection: a daemon that is restarted listens no more, is not there, then
        // does not listen yet; or the underlay's MTU is changed on one host after the other.
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
            // What the peer had of us before is gone now.
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

    /// Whether there was one, or nearly, that ended by itself.
    fn has_failed(&self, at: u32) -> bool {
        let active = self.connected.table.active(at);
        active.is_some_and(|a| a.failures > 0)
    }

    pub(super) fn took_too_long(&mut self, now: Time, at: u32) {
        let begun = self.connected.table.get(at).and_then(|e| e.connection);
        begun.into_iter().for_each(|id| self.close(id));
        self.refused(now, at, CloseReason::TimedOut);
    }

    /// The peer is served by datagrams for a while; what was too large for that learns so. Not what
    /// waited in vain for an answer: the peer may be down, and hosts remember a smaller MTU for longer
    /// than that lasts. If it is not, more will come.
    fn refused(&mut self, now: Time, at: u32, reason: CloseReason) {
        let until = now.after(REFUSED_MS);
        let table = &mut self.connected.table;
        if reason == CloseReason::TimedOut {
            self.counters.too_big_hold_full += table.discard(at);
        }
        table.set_state(at, State::Refused { until });
        table.release(at);
        self.counters.connections_refused += 1;
        if let Some(peer) = self.connected.table.get(at).map(|e| e.peer) {
            self.tell_watcher(|| Event::ConnectionRefused { peer, reason });
        }
        self.drop_surplus();
    }

    /// Nothing is asked for until the pause is over: none after a first failure. After too many in a
    /// row, the peer may be reached by datagrams, even if it is not by what a connection sends.
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

    /// What waits for the oldest is lost: sent again, it would only make another the oldest.
    fn drop_surplus(&mut self) {
        if let Some(at) = self.connected.table.surplus() {
            self.counters.too_big_hold_full += self.connected.table.discard(at);
            self.drop_entry(at, Ended::Dropped);
        }
    }
}
