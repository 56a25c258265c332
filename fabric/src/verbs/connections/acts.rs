//! Carries out the acts that [`State::on`] returns.

use std::io;

use proto::{CloseReason, ConnectionEvent, Instant, WcStatus};

use super::connection::Connection;
use super::device::{Device, Path};
use super::lookup::Key;
use super::state::{Act, Input, State};
use super::{DRAIN_MIN, Engine};

impl<D: Device> Engine<D> {
    /// Handles an input of a connection.
    pub(super) fn drive(&mut self, now: Instant, key: Key, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let Some(c) = self.table.get_mut(key) else {
                return;
            };
            let step = c.state.on(input);
            if step.next != c.state {
                c.state = step.next;
                c.since = now;
            }
            if !step.next.is_known() {
                self.table.unname(key);
            }
            for act in step.acts() {
                if let Err(reason) = self.act(now, key, act) {
                    next = Some(Input::Lost(reason));
                    break;
                }
            }
        }
    }

    fn act(&mut self, now: Instant, key: Key, act: Act) -> Result<(), CloseReason> {
        let Some(c) = self.table.get_mut(key) else {
            return Ok(());
        };
        let device = self.device.as_mut().ok_or(CloseReason::PortGone);
        let done = match act {
            Act::NotifyReplied => {
                self.events.push_back(ConnectionEvent::Replied {
                    connection: c.id,
                    private_data: std::mem::take(&mut c.private_data),
                });
                Ok(())
            }
            Act::NotifyClosed(reason) => {
                let connection = c.id;
                self.events
                    .push_back(ConnectionEvent::Closed { connection, reason });
                Ok(())
            }
            Act::Destroy => {
                self.destroy(key);
                return Ok(());
            }
            Act::ResolveRoute => device?.resolve_route(&c.line),
            Act::Make => {
                c.make(device?)?;
                let qpn = c.qpn;
                self.table.number(key, qpn);
                return Ok(());
            }
            Act::BringUp => return c.bring_up(now, device?),
            Act::Ask => {
                let device = device?;
                c.with_pair(|c, pair| device.ask(&c.line, pair, &c.private_data))
            }
            Act::Accept => {
                let device = device?;
                c.with_pair(|c, pair| device.accept(&c.line, pair, &c.private_data))
            }
            Act::Confirm => device?.confirm(&c.line),
            // The next act ends the connection in any case; a peer that was not notified finds out by
            // itself.
            Act::Reject => ignore(device?.reject(&c.line, c.reason, &c.private_data)),
            Act::Disconnect => ignore(device?.disconnect(&c.line)),
            Act::Stop => {
                device?;
                self.stop(now, key);
                return Ok(());
            }
        };
        done.map_err(|e| {
            log::debug!("connection {} to {}: {act:?}: {e}", c.id.0, c.peer);
            CloseReason::Failed(WcStatus::LocQpOpErr)
        })
    }

    /// Changes the queue pair to ERR; it is destroyed when the posted work has come back.
    fn stop(&mut self, now: Instant, key: Key) {
        self.full.retain(|k| *k != key);
        let (Some(c), Some(device)) = (self.table.get_mut(key), &mut self.device) else {
            return;
        };
        if let Some(Err(e)) = c.pair.as_ref().map(|pair| device.stop(pair)) {
            log::debug!("cannot stop queue pair {}: {e}", c.qpn);
        }
        c.quiet = false;
        self.draining.push(key);
        self.sweep_within(now, DRAIN_MIN);
    }

    /// Destroys a connection. After its queue pair is destroyed, the device does not use its memory.
    fn destroy(&mut self, key: Key) {
        self.draining.retain(|k| *k != key);
        let Some(c) = self.table.remove(key) else {
            return;
        };
        self.outstanding -= c.sends.messages();
        if let Some(device) = &mut self.device {
            device.destroy(c.line, c.pair);
        }
    }
}

impl<D: Device> Connection<D> {
    fn make(&mut self, device: &mut D) -> Result<(), CloseReason> {
        let made = device.make(&self.line, self.entry.index);
        let pair = made.map_err(|e| {
            // Not specific to the peer: the device has no more queue pairs, or no memory.
            log::warn!(
                "cannot create a queue pair for a connection to {}: {e}",
                self.peer
            );
            CloseReason::Failed(WcStatus::LocQpOpErr)
        })?;
        self.qpn = device.qpn(&pair);
        self.pair = Some(pair);
        Ok(())
    }

    fn bring_up(&mut self, now: Instant, device: &mut D) -> Result<(), CloseReason> {
        let path = self.with_pair(|c, pair| device.bring_up(&c.line, pair, c.sends()));
        let Path {
            path_mtu,
            remote_qpn,
            ..
        } = path.map_err(|e| {
            log::debug!(
                "cannot connect queue pair {} to {}: {e}",
                self.qpn,
                self.peer
            );
            CloseReason::Failed(WcStatus::LocQpOpErr)
        })?;
        self.path_mtu = path_mtu;
        self.remote_qpn = remote_qpn;
        self.progress = now;
        Ok(())
    }

    fn with_pair<T>(&self, what: impl FnOnce(&Self, &D::Pair) -> io::Result<T>) -> io::Result<T> {
        match &self.pair {
            Some(pair) => what(self, pair),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Whether the connection has to be checked by time.
    pub(super) fn waits(&self) -> bool {
        match self.state {
            State::Resolving | State::Routing | State::Asking | State::Draining => true,
            State::Accepted | State::Open => !self.sends.is_empty(),
            State::Replied | State::Asked | State::Gone => false,
        }
    }
}

fn ignore(done: io::Result<()>) -> io::Result<()> {
    if let Err(e) = done {
        log::debug!("rdma_cm: {e}");
    }
    Ok(())
}
