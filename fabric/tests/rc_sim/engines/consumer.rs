//! The consumer of an engine: connects, accepts, posts, closes.

use fabric::cm::NoService;
use fabric::{
    CloseReason, ConnectError, ConnectRequest, ConnectionEvent, ConnectionId, Instant, PKey,
    Posted, RejectReason, WcStatus,
};

use super::node::{Incoming, Outgoing, message, partition};
use super::{AGAIN_AFTER, DATAGRAMS, ENDPOINT, RDMA_CM, SECOND_ENDPOINT, SERVICE, World};
use crate::packets::gid;

impl World {
    pub(super) fn events(&mut self, index: usize) {
        self.answers(index);
        let now = Instant(self.now);
        while let Some(event) = self.nodes[index].engine.poll_event() {
            let node = &mut self.nodes[index];
            match event {
                ConnectionEvent::Requested {
                    connection,
                    private_data,
                    service,
                    endpoint,
                    ..
                } => {
                    let expected = match self.weather.rdma_cm {
                        true => (RDMA_CM, 56),
                        false => (SERVICE, 92),
                    };
                    assert_eq!((service, private_data.len()), expected);
                    assert_eq!(endpoint.0, u32::from(private_data[0]), "the endpoint");
                    if self.weather.closes && node.random.percent(5) {
                        let reason = RejectReason::CONSUMER;
                        node.engine.reject(now, connection, reason, &[]);
                    } else {
                        node.engine.accept(now, connection, &[7; 8]);
                        node.incoming.insert(connection, Incoming::default());
                    }
                }
                ConnectionEvent::Replied {
                    connection,
                    private_data,
                } => {
                    assert_eq!(private_data[..8], [7; 8]);
                    node.engine.establish(now, connection);
                    for out in node.wishes.iter_mut().filter_map(|w| w.connection.as_mut()) {
                        out.open |= out.id == connection;
                    }
                }
                ConnectionEvent::Closed { connection, reason } => {
                    self.note_closed(index, connection, reason);
                }
            }
        }
    }

    /// Checks the answers to requests for datagram services.
    fn answers(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        while let Some(answer) = node.engine.poll_answer() {
            let peer = node.asked.remove(&answer.id).expect("one answer each");
            match answer.service {
                Ok(found) => {
                    assert_eq!(found.qpn, partition(peer, SECOND_ENDPOINT).qpn);
                    self.totals.found += 1;
                }
                Err(why) => {
                    let w = &self.weather;
                    let right = why == NoService::TimedOut && (w.restarts || w.may_fail);
                    // Nobody listens at the end.
                    let over = why == NoService::Unsupported && !self.posting;
                    assert!(right || over, "node {index} asked node {peer}: {why}");
                }
            }
        }
    }

    fn note_closed(&mut self, index: usize, connection: ConnectionId, reason: CloseReason) {
        let w = &self.weather;
        let right = match reason {
            CloseReason::Disconnected => w.closes || w.restarts || w.may_fail,
            CloseReason::Rejected(RejectReason::CONSUMER) => w.closes,
            CloseReason::Rejected(_) => w.restarts || w.closes || w.may_fail,
            // A late duplicate of a rejected request may be accepted; its requester does not wait for a
            // reply any more.
            CloseReason::TimedOut => w.restarts || w.may_fail || w.closes,
            CloseReason::Failed(WcStatus::RetryExcErr) => w.restarts || w.may_fail || w.closes,
            CloseReason::Failed(_)
            | CloseReason::PortGone
            | CloseReason::PathMtu
            | CloseReason::PKeyChange => false,
        };
        assert!(right, "a connection of node {index} ended: {reason:?}");
        match reason {
            CloseReason::Failed(_) => self.totals.failed += 1,
            CloseReason::TimedOut => self.totals.timed_out += 1,
            CloseReason::Rejected(_) => self.totals.rejected += 1,
            _ => self.totals.disconnected += 1,
        }
        let node = &mut self.nodes[index];
        node.incoming.remove(&connection);
        for wish in &mut node.wishes {
            if wish.connection.as_ref().is_some_and(|o| o.id == connection) {
                wish.connection = None;
                wish.next_at = self.now + AGAIN_AFTER;
            }
        }
    }

    /// Connects to peers without a connection, and posts over open connections.
    pub(super) fn pursue(&mut self, index: usize) {
        let weather = self.weather;
        for peer in (0..self.nodes.len()).filter(|&p| weather.talk(index, p)) {
            if self.nodes[index].wishes[peer].next_at > self.now {
                continue;
            }
            match &self.nodes[index].wishes[peer].connection {
                None => self.connect(index, peer),
                Some(out) if out.open => self.post(index, peer),
                Some(_) => {}
            }
        }
    }

    fn connect(&mut self, index: usize, peer: usize) {
        let now = Instant(self.now);
        let node = &mut self.nodes[index];
        let (mut service, mut to) = (SERVICE, ENDPOINT);
        if self.weather.rdma_cm {
            service = RDMA_CM;
            to = node.random.one_of(&[ENDPOINT, SECOND_ENDPOINT]);
            let asked =
                node.engine
                    .ask_for_datagrams(now, PKey::DEFAULT, gid(peer), DATAGRAMS, &[]);
            node.asked.extend(asked.ok().map(|id| (id, peer)));
        }
        let request = ConnectRequest {
            service,
            peer: gid(peer),
            to: partition(peer, to).qpn,
            private_data: &[to.0 as u8; 8],
        };
        match node.engine.connect(now, ENDPOINT, PKey::DEFAULT, &request) {
            Ok(id) => {
                self.serial += 1;
                self.totals.connections += 1;
                node.wishes[peer].connection = Some(Outgoing {
                    id,
                    open: false,
                    serial: self.serial,
                    next: 0,
                });
            }
            Err(ConnectError::Full) => node.wishes[peer].next_at = self.now + AGAIN_AFTER,
            Err(e) => panic!("{e}"),
        }
    }

    fn post(&mut self, index: usize, peer: usize) {
        let now = Instant(self.now);
        let node = &mut self.nodes[index];
        let wish = &mut node.wishes[peer];
        let out = wish.connection.as_mut().expect("an open one");
        for _ in 0..node.random.between(1, self.weather.burst) {
            let bytes = message(index, out.serial, out.next);
            let path_mtu = node.engine.path_mtu(out.id);
            let Some(mut places) = node.engine.message(now, out.id, bytes.len()) else {
                break;
            };
            for piece in bytes.chunks(path_mtu) {
                let place = places.next(piece.len()).expect("as many as pieces");
                place.copy_from_slice(piece);
            }
            let ticket = places.finish();
            match node.engine.post(now, out.id, ticket) {
                Posted::Done => out.next += 1,
                Posted::Full => {
                    out.next += 1;
                    break;
                }
                Posted::Refused => break,
            }
        }
        wish.next_at = self.now + 1 + node.random.below(self.weather.gap);
    }

    /// Closes a random connection of a node, active or passive.
    pub(super) fn close_one(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let all = node.engine.list();
        let nth = node.random.below(all.len() as u64) as usize;
        let Some(info) = all.get(nth) else { return };
        node.engine.close(Instant(self.now), info.connection);
        node.incoming.remove(&info.connection);
        for wish in &mut node.wishes {
            let is_it = |o: &Outgoing| o.id == info.connection;
            if wish.connection.as_ref().is_some_and(is_it) {
                wish.connection = None;
                wish.next_at = self.now + AGAIN_AFTER;
            }
        }
        node.wake_at = Some(self.now);
    }
}
