//! Pausing the TAPs while the fabric has too little room.

use std::io;
use std::os::fd::AsFd;

use fabric::Room;
use netdev::tap::TapQueue;

use super::super::lane::Served;
use super::{At, DataThread, lane_interest};

impl DataThread {
    /// Stops and resumes reading TAPs, according to what the fabric has room for. Meanwhile the kernel's ring of
    /// a TAP drops and counts; the thread queues nothing. Idle TAPs are not muted before their next frame.
    pub(in crate::datapath) fn pause(&mut self, room: Room) -> io::Result<()> {
        let before = std::mem::replace(&mut self.pace.room, room);
        if room < before {
            let mut n = 0;
            while let Some(i) = self.ip.lanes.used(n) {
                self.mute(At::Ip(i))?;
                n += 1;
            }
            let mut n = 0;
            while let Some(i) = self.ethernet.lanes.used(n) {
                self.mute(At::Ethernet(i))?;
                n += 1;
            }
        } else if room > before {
            // epoll reports the TAPs in this order, and the first one may use up the room.
            let mut muted = std::mem::take(&mut self.pace.muted);
            let pauses = &mut self.pace.pauses[room as usize];
            *pauses = pauses.wrapping_add(1);
            let first = *pauses % muted.len().max(1);
            muted.rotate_left(first);
            for at in muted {
                if self.needs(at) <= room {
                    self.set_interest(at, true)?;
                } else {
                    self.pace.muted.push(at);
                }
            }
        }
        Ok(())
    }

    /// Stops waiting for a TAP if the fabric has too little room for its frames; true if so.
    pub(super) fn mute(&mut self, at: At) -> io::Result<bool> {
        let needs = self.needs(at);
        if needs <= self.pace.room || needs <= self.io.fabric.room() {
            return Ok(false);
        }
        if !self.pace.muted.contains(&at) {
            self.pace.muted.push(at);
            self.set_interest(at, false)?;
        }
        Ok(true)
    }

    /// The room that the frames of a TAP need.
    fn needs(&self, at: At) -> Room {
        let needs = match at {
            At::Ip(i) => self.ip.lanes.get(i).map(Served::needs),
            At::Ethernet(i) => self.ethernet.lanes.get(i).map(Served::needs),
        };
        needs.unwrap_or(Room::Nothing)
    }

    pub(super) fn set_interest(&self, at: At, on: bool) -> io::Result<()> {
        if let Some((tap, true)) = self.tap(at) {
            self.pace
                .waiter
                .modify(tap.as_fd(), at.token(), lane_interest(!on))?;
        }
        Ok(())
    }

    /// The TAP queue of a lane, and whether this thread reads it. The lane of a VLAN has no queue.
    pub(super) fn tap(&self, at: At) -> Option<(&TapQueue, bool)> {
        let base = match at {
            At::Ip(i) => &self.ip.lanes.get(i).filter(|l| l.vlan.is_none())?.base,
            At::Ethernet(i) => &self.ethernet.lanes.get(i)?.base,
        };
        Some((&base.tap, base.reads))
    }

    /// Handles a TAP in error, even during a pause. A read shows whether the TAP is gone.
    pub(super) fn probe(&mut self, at: At) {
        let mut buffer = std::mem::take(&mut self.scratch.buffer);
        let failed = self
            .tap(at)
            .and_then(|(tap, _)| tap.read(&mut buffer).err());
        self.scratch.buffer = buffer;
        if let Some(e) = failed {
            self.tap_failed(at, &e);
        }
    }
}
