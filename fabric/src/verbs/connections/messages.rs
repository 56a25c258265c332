//! Messages: room, posting, and completions.

use proto::{CloseReason, ConnectionId, EndpointId, Instant, Qpn, WcStatus};

use super::connection::Connection;
use super::device::{Device, Shape};
use super::lookup::Key;
use super::sends::PostList;
use super::state::{Input, State};
use super::{Bounds, Engine, LOOK_AT_FULL, SWEEP, Window};
use crate::connection::Posted;

/// Room of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Path MTU in bytes.
    pub path_mtu: usize,
    /// Number of messages.
    pub messages: usize,
}

/// The connection of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The receiving endpoint.
    pub endpoint: EndpointId,
    /// The connection.
    pub connection: ConnectionId,
}

impl<D: Device> Connection<D> {
    /// Whether the consumer has to stop: half of the maximum is outstanding. The other half is for what
    /// it has already started.
    pub(super) fn is_full(&self, bounds: &Bounds) -> bool {
        self.sends.messages() >= bounds.messages / 2 || self.sends.lists() >= bounds.lists / 2
    }
}

impl<D: Device> Engine<D> {
    /// The room of a connection. `None` if it is not established or may only receive, if its window is all
    /// outstanding, or if its window is stalled, except for a message now and then.
    pub fn room(&self, now: Instant, connection: ConnectionId) -> Option<Room> {
        let c = self.table.get(self.table.by_id(connection)?)?;
        let own = self.bounds.messages.saturating_sub(c.sends.messages());
        let all = self.bounds.completions.saturating_sub(self.outstanding);
        let messages = (own.min(all) as usize).min(c.window.takes(now));
        // A stalled connection holds little more memory than a full one: others need memory, too.
        let lists = match c.window {
            Window::Stalled { .. } => self.bounds.lists / 2 + 2,
            _ => self.bounds.lists,
        };
        let lists = c.sends.lists() < lists;
        (c.state == State::Open && c.sends() && lists && messages > 0).then_some(Room {
            path_mtu: c.path_mtu as usize,
            messages,
        })
    }

    /// Path MTU of a connection in bytes; 0 if the connection is not established.
    pub fn path_mtu(&self, connection: ConnectionId) -> usize {
        let key = self.table.by_id(connection);
        let c = key.and_then(|key| self.table.get(key));
        c.filter(|c| c.state == State::Open)
            .map_or(0, |c| c.path_mtu as usize)
    }

    /// Posts the messages in `slot`. It comes back with a completion or with the end of the queue pair.
    pub fn post(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        memory: &mut D::Memory,
        slot: D::Slot,
        shape: &Shape,
    ) -> Result<Posted, D::Slot> {
        let room = self.room(now, connection);
        let fits = room.is_some_and(|room| (1..=room.messages).contains(&shape.count));
        let key = self.table.by_id(connection);
        let c = key.and_then(|key| Some((key, self.table.get_mut(key)?)));
        let (true, Some((key, c)), Some(device)) = (fits, c, &mut self.device) else {
            return Err(slot);
        };
        let Some(pair) = &c.pair else {
            return Err(slot);
        };
        self.counts.post_lists += 1;
        if let Err(e) = device.post(pair, memory, slot, shape) {
            log::debug!("connection {} to {}: {e}", c.id.0, c.peer);
            self.counts.post_failed += 1;
            let reason = CloseReason::Failed(WcStatus::LocQpOpErr);
            self.drive(now, key, Input::Lost(reason));
            return Ok(Posted::Refused);
        }
        if c.sends.is_empty() {
            c.progress = now;
        }
        c.used = now;
        c.sends.push(PostList {
            messages: shape.count as u32,
            bytes: ((shape.count - 1) * shape.len + shape.last) as u64,
        });
        self.outstanding += shape.count as u32;
        let full = c.is_full(&self.bounds);
        if c.window.posted(now, !full) {
            self.full.push(key);
        }
        self.sweep_within(now, if full { LOOK_AT_FULL } else { SWEEP });
        Ok(if self.has_room() {
            Posted::Done
        } else {
            Posted::Full
        })
    }

    /// Whether all queue pairs in use have room, except those whose peer may be gone.
    pub fn has_room(&self) -> bool {
        self.full.is_empty() && self.outstanding < self.bounds.completions / 2
    }

    /// Handles a send completion of queue pair `qpn`; with `last` it completes a list.
    pub fn sent(&mut self, now: Instant, qpn: Qpn, status: WcStatus, last: bool) {
        let key = self.table.by_qpn(qpn);
        let c = key.and_then(|key| Some((key, self.table.get_mut(key)?)));
        let Some((key, c)) = c else {
            self.counts.stray_completions += 1;
            return;
        };
        c.progress = now;
        if last {
            let Some(list) = c.sends.pop() else {
                self.counts.stray_completions += 1;
                return;
            };
            self.outstanding -= list.messages;
            if status == WcStatus::Success {
                c.tx_messages += u64::from(list.messages);
                c.tx_bytes += list.bytes;
            }
        }
        if status != WcStatus::Success {
            self.failed(now, key, status);
            return;
        }
        c.used = now;
        if c.window != Window::Open && !c.is_full(&self.bounds) {
            c.window = Window::Open;
            self.full.retain(|k| *k != key);
        }
    }

    /// Handles a receive completion of `len` bytes. `None` if it belongs to no connection: its place is
    /// free.
    pub fn received(
        &mut self,
        now: Instant,
        qpn: Qpn,
        status: WcStatus,
        len: usize,
    ) -> Option<Received> {
        let key = self.table.by_qpn(qpn);
        let c = key.and_then(|key| Some((key, self.table.get_mut(key)?)));
        let Some((key, c)) = c else {
            self.counts.stray_messages += 1;
            return None;
        };
        if status != WcStatus::Success {
            self.failed(now, key, status);
            return None;
        }
        if !c.state.receives() {
            return None;
        }
        c.used = now;
        c.rx_messages += 1;
        c.rx_bytes += len as u64;
        Some(Received {
            endpoint: c.endpoint,
            connection: c.id,
        })
    }

    /// Handles a failed queue pair.
    fn failed(&mut self, now: Instant, key: Key, status: WcStatus) {
        let draining = self.table.get(key).is_none_or(|c| !c.state.is_known());
        if !draining {
            match status {
                WcStatus::RetryExcErr => self.counts.retry_exceeded += 1,
                WcStatus::RnrRetryExcErr => self.counts.rnr_exceeded += 1,
                _ => {}
            }
        }
        self.drive(now, key, Input::Lost(CloseReason::Failed(status)));
    }
}
