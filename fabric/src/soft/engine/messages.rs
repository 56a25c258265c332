//! Outgoing messages: lends memory and posts.

use proto::{ConnectionId, Instant};

use super::super::rc::{Layout, SendBuffer, SendRequest};
use super::super::train::PACKETS_MAX;
use super::connection::Stage;
use super::{Engine, LOOK_AT_FULL};
use crate::connection::Posted;
use crate::worker::{Train, TrainTicket};

/// Maximum number of outstanding requests of a queue pair. The window is in packets and much smaller;
/// this limit applies if a consumer ignores [`Posted::Full`].
const POSTED_MAX: usize = 4096;

/// The buffer lent last.
#[derive(Debug)]
pub(super) struct Lent {
    connection: ConnectionId,
    buffer: SendBuffer,
}

impl Engine {
    /// See [`crate::Connections::message`].
    pub fn message(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        len: usize,
    ) -> Option<Train<'_>> {
        if len > self.config.message_max {
            return None;
        }
        let (path_mtu, _) = self.takes_messages(now, connection)?;
        let payload = path_mtu.min(len);
        let count = len.div_ceil(path_mtu).max(1);
        self.lend(connection, Layout::Message, payload, count)
    }

    /// See [`crate::Connections::messages`].
    pub fn messages(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        len: usize,
        count: usize,
    ) -> Option<Train<'_>> {
        let (path_mtu, most) = self.takes_messages(now, connection)?;
        if len > path_mtu {
            return None;
        }
        let fit = self.port.send_max / SendBuffer::packet_len(len);
        let count = count.min(fit).clamp(1, most.min(PACKETS_MAX));
        self.lend(connection, Layout::Messages, len, count)
    }

    /// The path MTU in bytes and the maximum number of messages, if the connection takes messages now. The passive
    /// side waits for ReadyToUse or for a packet: until then the peer's queue pair drops packets.
    fn takes_messages(&self, now: Instant, connection: ConnectionId) -> Option<(usize, usize)> {
        let c = self.table.get(self.table.by_id(connection)?)?;
        let most = c.window.takes(now);
        let takes = c.stage == Stage::Open && !c.awaits_rtu && c.posted < POSTED_MAX && most > 0;
        takes.then_some((c.path_mtu.bytes() as usize, most))
    }

    fn lend(
        &mut self,
        connection: ConnectionId,
        layout: Layout,
        payload: usize,
        count: usize,
    ) -> Option<Train<'_>> {
        self.take_back();
        let memory = self.pool.take(SendBuffer::memory_len(payload, count));
        let buffer = SendBuffer::new(memory, layout, payload, count);
        let lent = self.lent.insert(Lent { connection, buffer });
        Some(lent.buffer.places())
    }

    /// Returns a lent buffer that was not posted to the pool.
    fn take_back(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.pool.give(lent.buffer.memory);
        }
    }

    /// See [`crate::Connections::resume`]. Returns no places if no buffer is lent or the ticket belongs
    /// to another one.
    pub fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        match &mut self.lent {
            Some(lent) if lent.buffer.ticket.payload == ticket.payload => {
                lent.buffer.ticket = ticket;
                lent.buffer.places()
            }
            _ => Train::new(&mut [], 0, 1, 0, TrainTicket::default()),
        }
    }

    /// See [`crate::Connections::post`].
    pub fn post(&mut self, now: Instant, connection: ConnectionId, ticket: TrainTicket) -> Posted {
        let Some(mut lent) = self.lent.take() else {
            return Posted::Refused;
        };
        if ticket.count == 0 {
            self.pool.give(lent.buffer.memory);
            return Posted::Done;
        }
        let place = self.table.by_id(connection);
        let place = place.filter(|_| {
            lent.connection == connection && lent.holds(&ticket, self.config.message_max)
        });
        let Some((place, c)) = place.and_then(|p| Some((p, self.table.get_mut(p)?))) else {
            self.pool.give(lent.buffer.memory);
            return Posted::Refused;
        };
        lent.buffer.ticket = ticket;
        let request = SendRequest {
            id: 0,
            buffer: lent.buffer,
            immediate: None,
            solicited: false,
        };
        if let Err(refused) = c.qp.post_send(now, request) {
            self.pool.give(refused.buffer.memory);
            return Posted::Refused;
        }
        c.posted += 1;
        c.used = now;
        let has_room = c.qp.has_room();
        if c.window.posted(now, has_room) {
            self.full.push(place);
            self.look_at_full
                .get_or_insert_with(|| now.after(LOOK_AT_FULL));
        }
        self.make_ready(place);
        if has_room { Posted::Done } else { Posted::Full }
    }

    /// See [`crate::Connections::path_mtu`].
    pub fn path_mtu(&self, connection: ConnectionId) -> usize {
        let place = self.table.by_id(connection);
        let c = place.and_then(|p| self.table.get(p));
        c.filter(|c| c.stage == Stage::Open)
            .map_or(0, |c| c.path_mtu.bytes() as usize)
    }
}

impl Lent {
    /// Whether a ticket fits the buffer and its message is not too long.
    fn holds(&self, ticket: &TrainTicket, message_max: usize) -> bool {
        let b = &self.buffer;
        let len = match b.layout {
            Layout::Message => (ticket.count - 1)
                .saturating_mul(ticket.payload)
                .saturating_add(ticket.last),
            Layout::Messages => ticket.payload,
        };
        let full = (ticket.count - 1).checked_mul(b.stride());
        let total = full.and_then(|n| n.checked_add(SendBuffer::packet_len(ticket.last)));
        len <= message_max
            && ticket.payload == b.ticket.payload
            && ticket.last <= ticket.payload
            && total.is_some_and(|total| total <= b.memory.len())
    }
}
