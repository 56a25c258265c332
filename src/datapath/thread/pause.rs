//! Reading no more than the fabric has room for.

use std::io;
use std::os::fd::AsFd;

use netdev::tap::TapQueue;

use super::{At, DataThread, lane_interest};

impl DataThread {
    /// Stops or resumes reading the TAPs. While the fabric has no room the kernel's ring
    /// drops and counts; nothing is queued here. Idle TAPs are not touched: one that gets something
    /// meanwhile is muted then.
    pub(super) fn pause(&mut self, pause: bool) -> io::Result<()> {
        if pause == self.paused {
            return Ok(());
        }
        self.paused = pause;
        if pause {
            let mut n = 0;
            while let Some(i) = self.lanes.used(n) {
                self.mute(At::Ip(i))?;
                n += 1;
            }
            let mut n = 0;
            while let Some(i) = self.ethernet.used(n) {
                self.mute(At::Ethernet(i))?;
                n += 1;
            }
        } else {
            for at in std::mem::take(&mut self.muted) {
                self.set_interest(at, true)?;
            }
        }
        Ok(())
    }

    /// Waits for nothing from a TAP until the pause is over.
    pub(super) fn mute(&mut self, at: At) -> io::Result<()> {
        if !self.muted.contains(&at) {
            self.muted.push(at);
            self.set_interest(at, false)?;
        }
        Ok(())
    }

    pub(super) fn set_interest(&self, at: At, on: bool) -> io::Result<()> {
        if let Some((tap, true)) = self.tap(at) {
            self.waiter
                .modify(tap.as_fd(), at.token(), lane_interest(!on))?;
        }
        Ok(())
    }

    /// The TAP queue of a lane, and whether this thread reads it. A VLAN's is another lane's.
    pub(super) fn tap(&self, at: At) -> Option<(&TapQueue, bool)> {
        match at {
            At::Ip(i) => {
                let lane = self.lanes.get(i).filter(|lane| lane.vlan.is_none())?;
                Some((&lane.tap, lane.reads))
            }
            At::Ethernet(i) => {
                let lane = self.ethernet.get(i)?;
                Some((&lane.tap, lane.reads))
            }
        }
    }
}
