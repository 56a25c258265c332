//! Communication management: agreement of two sides on a connection, sans-IO (IBA vol. 1, chapter 12;
//! kernel drivers/infiniband/core/cm.c where the standard leaves a choice).
//!
//! [`Cm`] takes received management datagrams, the consumer's decisions and the time. It returns
//! datagrams to send, events and the next deadline. Of queue pairs it knows only the numbers. Each
//! worker has one `Cm`. The low byte of a communication id carries the worker's number (modulo the
//! number of workers), so that the packets of a connection reach their worker.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

mod connections;
mod counts;
mod end;
mod limits;
mod messages;
mod receive;
mod request;
mod sidr;
#[cfg(test)]
pub(crate) mod tests;
mod times;
mod types;

use std::collections::VecDeque;

use crate::mad::cm::Answered;
use crate::random::Random;
use connections::{Connection, State, Table};
pub(crate) use counts::Counts;
use counts::{Drop, Group};
pub(crate) use limits::{HALF_OPEN_MAX, Limits};
use messages::{Datagram, Ids};
use sidr::Sidr;

use proto::{Gid, Guid, IbMtu, Instant, PKey, Qpn, RejectReason};
pub use sidr::{DatagramService, NoService, SidrAsk, SidrEvent, SidrId, SidrRequest};
pub use types::{Ask, CmConfig, CmEvent, CmId, Consent, Full, Outgoing, Remote};

/// Maximum number of datagrams waiting to be sent; more are dropped, like packets lost on the way.
const TRANSMIT_MAX: usize = 1024;

/// The communication manager of one worker.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    table: Table,
    sidr: Sidr,
    random: Random,
    limits: Limits,
    counts: Counts,
    events: VecDeque<CmEvent>,
    transmit: VecDeque<Outgoing>,
    answering: Option<PKey>,
}

impl Cm {
    /// Creates a manager without connections.
    pub fn new(config: CmConfig) -> Cm {
        Cm {
            config,
            table: Table::default(),
            sidr: Sidr::default(),
            random: Random::new(config.seed),
            limits: Limits::default(),
            counts: Counts::default(),
            events: VecDeque::new(),
            transmit: VecDeque::new(),
            answering: None,
        }
    }

    /// The configuration.
    pub const fn config(&self) -> &CmConfig {
        &self.config
    }

    /// Sends a ConnectRequest and repeats it until it is answered or the retries are used up.
    ///
    /// # Errors
    /// [`Full`]
    pub fn connect(&mut self, now: Instant, ask: &Ask<'_>) -> Result<CmId, Full> {
        if self.table.len() >= self.config.connections_max {
            return Err(Full);
        }
        let id = self.new_id();
        let tid = self.random.next();
        let connection = Connection {
            peer: ask.remote_gid,
            state: State::ReqSent,
            tid,
            local_qpn: ask.qpn,
            remote: None,
            pkey: ask.pkey,
            path_mtu: ask.path_mtu,
            sent: None,
            interval: times::request_interval(),
            retries: times::MAX_CM_RETRIES,
            extended: false,
            disowned: false,
        };
        self.table.insert(id, connection);
        let req = messages::req(tid, id, self.config.ca_guid, ask);
        self.send_until_answered(now, id, req);
        Ok(id)
    }

    /// Adds a connection that was agreed on by other means. Nothing is sent for it and no message
    /// refers to it. [`Cm::disconnect`] ends it, with TIMEWAIT as usual.
    ///
    /// # Errors
    /// [`Full`]
    pub fn unmanaged(&mut self, qpn: Qpn, pkey: PKey) -> Result<CmId, Full> {
        if self.table.len() >= self.config.connections_max {
            return Err(Full);
        }
        let id = self.new_id();
        let connection = Connection {
            peer: Gid::UNSPECIFIED,
            state: State::Unmanaged,
            tid: 0,
            local_qpn: qpn,
            remote: None,
            pkey,
            path_mtu: IbMtu::B256,
            sent: None,
            interval: times::request_interval(),
            retries: 0,
            extended: false,
            disowned: false,
        };
        self.table.insert(id, connection);
        Ok(id)
    }

    /// Answers [`CmEvent::Requested`] with a ConnectReply. A connection without an answer ends after
    /// ten seconds.
    pub fn accept(&mut self, now: Instant, id: CmId, consent: &Consent<'_>) {
        let ca_guid = self.config.ca_guid;
        let Some(connection) = self.in_state(id, State::ReqRcvd) else {
            return;
        };
        connection.local_qpn = consent.qpn;
        let rep = messages::rep(connection.tid, connection.ids(id), ca_guid, consent);
        self.table.set_state(id, State::RepSent);
        self.send_until_answered(now, id, rep);
    }

    /// Answers [`CmEvent::Replied`] with a ReadyToUse.
    pub fn establish(&mut self, id: CmId) {
        let Some(connection) = self.in_state(id, State::RepRcvd) else {
            return;
        };
        let rtu = messages::rtu(connection.tid, connection.ids(id));
        // Kept: a repeated reply shows that the ReadyToUse was lost.
        connection.sent = Some(Box::new(rtu));
        let peer = connection.peer;
        self.table.set_state(id, State::Established);
        self.table.set_timer(id, None);
        self.send(peer, rtu);
    }

    /// Answers [`CmEvent::Requested`] or [`CmEvent::Replied`] with a ConnectReject.
    pub fn reject(&mut self, now: Instant, id: CmId, reason: RejectReason, private_data: &[u8]) {
        let ca_guid = self.config.ca_guid;
        let Some(connection) = self.table.get_mut(id) else {
            return;
        };
        let rejected = match connection.state {
            State::ReqRcvd => Answered::Req,
            State::RepRcvd => Answered::Rep,
            _ => return,
        };
        let (peer, tid, ids) = (connection.peer, connection.tid, connection.ids(id));
        let rej = messages::rej(tid, ids, rejected, reason, ca_guid, private_data);
        connection.disowned = true;
        self.send(peer, rej);
        if rejected == Answered::Req {
            // Nothing is kept: a repeated request is decided on again.
            self.release(id);
        } else {
            self.enter_timewait(now, id);
            if let Some(connection) = self.table.get_mut(id) {
                connection.sent = Some(Box::new(rej));
            }
        }
    }

    /// Ends a connection in any state. [`CmEvent::Released`] follows, at once or after TIMEWAIT, and no
    /// other event.
    pub fn disconnect(&mut self, now: Instant, id: CmId) {
        let Some(connection) = self.table.get_mut(id) else {
            return;
        };
        connection.disowned = true;
        let state = connection.state;
        self.events.retain(|e| e.id() != id);
        match state {
            State::ReqSent => {
                self.give_up(id, Answered::Req);
                self.enter_timewait(now, id);
            }
            State::ReqRcvd | State::RepRcvd => self.reject(now, id, RejectReason::CONSUMER, &[]),
            // In REP_SENT the peer may already be connected. A rejection, which Linux sends then, could
            // be lost, and the peer would not notice.
            State::RepSent | State::Established => self.send_dreq(now, id),
            State::Unmanaged => self.enter_timewait(now, id),
            State::DreqSent | State::Timewait => {}
        }
    }

    /// A packet arrived over the connection: it is established, even if the ReadyToUse was lost.
    pub fn heard(&mut self, id: CmId) {
        self.confirm(id);
    }

    /// Sets the P_Key of the datagram that the next messages answer; `None`: they answer none.
    pub fn answer_in(&mut self, pkey: Option<PKey>) {
        self.answering = pkey;
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.transmit.pop_front()
    }

    /// The next event, in order of occurrence.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// When to call [`Cm::handle_timeout`] next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.table.next_deadline(), self.sidr.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Handles the timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sidr_timeout(now);
        while let Some(id) = self.table.expired(now) {
            match self.table.get_mut(id) {
                Some(c) if c.state == State::Timewait => self.release(id),
                Some(c) if c.state.waits_for_user() => self.out_of_retries(now, id),
                Some(c) if c.retries > 0 => {
                    c.retries -= 1;
                    let again = now.after(c.interval);
                    let (peer, sent) = (c.peer, c.sent.clone());
                    self.table.set_timer(id, Some(again));
                    if let Some(datagram) = sent {
                        let attribute = messages::attribute(&datagram);
                        self.counts.message(Group::TxRetries, attribute);
                        self.send(peer, *datagram);
                    }
                }
                _ => self.out_of_retries(now, id),
            }
        }
    }

    /// A connection's state: `REQ_SENT`, `REQ_RCVD`, `REP_SENT`, `REP_RCVD`, `ESTABLISHED`,
    /// `DREQ_SENT`, `TIMEWAIT`, `UNMANAGED`.
    pub fn state(&self, id: CmId) -> Option<&'static str> {
        self.table.get(id).map(|c| c.state.name())
    }

    /// The CA GUID in the peer's request or reply.
    pub fn guid_of_peer(&self, id: CmId) -> Option<Guid> {
        let remote = self.table.get(id)?.remote?;
        Some(Guid(remote.ca_guid))
    }

    /// Counters by name: messages sent, retried, received and received twice, with Linux's names, and
    /// drops.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counts.list()
    }

    fn in_state(&mut self, id: CmId, state: State) -> Option<&mut Connection> {
        self.table.get_mut(id).filter(|c| c.state == state)
    }

    /// An unused communication id.
    fn new_id(&mut self) -> CmId {
        loop {
            let CmConfig {
                worker, workers, ..
            } = self.config;
            let id = CmId::of_worker(&mut self.random, worker, workers);
            if self.table.get(id).is_none() {
                return id;
            }
        }
    }

    fn out_of_retries(&mut self, now: Instant, id: CmId) {
        match self.table.get(id).map(|c| c.state) {
            Some(State::ReqSent | State::ReqRcvd) => self.give_up(id, Answered::Req),
            Some(State::RepSent | State::RepRcvd) => self.give_up(id, Answered::Rep),
            // No user waits for the end of this connection.
            _ => return self.enter_timewait(now, id),
        }
        self.notify(CmEvent::TimedOut { id });
        self.enter_timewait(now, id);
    }

    /// Rejects with a timeout, in case the peer is still there.
    fn give_up(&mut self, id: CmId, answered: Answered) {
        if let Some(c) = self.table.get(id) {
            let (peer, tid, ids) = (c.peer, c.tid, c.ids(id));
            self.send_rej(peer, tid, ids, answered, RejectReason::TIMEOUT);
        }
    }

    /// Ends a connection that the peer does not know any more: its queue pair is in another connection.
    fn end_stale(&mut self, now: Instant, id: CmId) {
        let state = self.table.get(id).map(|c| c.state);
        if matches!(
            state,
            Some(State::Established | State::RepSent | State::RepRcvd)
        ) {
            self.notify(CmEvent::Disconnected { id });
            self.send_dreq(now, id);
        }
    }

    fn send_dreq(&mut self, now: Instant, id: CmId) {
        let tid = self.random.next();
        let Some(connection) = self.table.get_mut(id) else {
            return;
        };
        let remote_qpn = connection.remote.map_or(Qpn::new(0), |r| r.qpn);
        let dreq = messages::dreq(tid, connection.ids(id), remote_qpn);
        connection.interval = times::request_interval();
        connection.retries = times::DREQ_RETRIES;
        connection.disowned = true;
        self.table.set_state(id, State::DreqSent);
        self.send_until_answered(now, id, dreq);
    }

    fn send_rej(&mut self, to: Gid, tid: u64, ids: Ids, answered: Answered, reason: RejectReason) {
        let rej = messages::rej(tid, ids, answered, reason, self.config.ca_guid, &[]);
        self.send(to, rej);
    }

    /// Sends a datagram and repeats it until the state changes or the retries are used up.
    fn send_until_answered(&mut self, now: Instant, id: CmId, datagram: Datagram) {
        let Some(connection) = self.table.get_mut(id) else {
            return;
        };
        connection.sent = Some(Box::new(datagram));
        let (peer, again) = (connection.peer, now.after(connection.interval));
        self.table.set_timer(id, Some(again));
        self.send(peer, datagram);
    }

    fn send(&mut self, to: Gid, datagram: Datagram) {
        if self.transmit.len() >= TRANSMIT_MAX {
            return self.counts.dropped(Drop::QueueFull);
        }
        let attribute = messages::attribute(&datagram);
        self.counts.message(Group::TxMsgs, attribute);
        self.transmit.push_back(Outgoing {
            to,
            answers: self.answering,
            datagram,
        });
    }

    /// Queues an event, unless the user has ended the connection. After every event except
    /// [`CmEvent::Established`] and [`CmEvent::Replied`] the connection has ended for the user.
    fn notify(&mut self, event: CmEvent) {
        let Some(connection) = self.table.get_mut(event.id()) else {
            return;
        };
        if !std::mem::replace(&mut connection.disowned, true) {
            self.events.push_back(event);
        }
    }

    fn enter_timewait(&mut self, now: Instant, id: CmId) {
        self.table.set_state(id, State::Timewait);
        if let Some(connection) = self.table.get_mut(id) {
            connection.sent = None;
        }
        let over = now.after(times::timewait());
        self.table.set_timer(id, Some(over));
    }

    fn release(&mut self, id: CmId) {
        self.table.remove(id);
        self.events.push_back(CmEvent::Released { id });
    }
}
