//! Reading no more than the fabric has room for.

use std::io;
use std::os::fd::AsFd;

use super::{DataThread, lane_interest, lane_token};

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
                self.mute(i)?;
                n += 1;
            }
        } else {
            for i in std::mem::take(&mut self.muted) {
                self.set_interest(i, true)?;
            }
        }
        Ok(())
    }

    /// Waits for nothing from a TAP until the pause is over.
    pub(super) fn mute(&mut self, i: usize) -> io::Result<()> {
        if !self.muted.contains(&i) {
            self.muted.push(i);
            self.set_interest(i, false)?;
        }
        Ok(())
    }

    pub(super) fn set_interest(&self, i: usize, on: bool) -> io::Result<()> {
        if let Some(lane) = self.lanes.get(i).filter(|lane| lane.reads) {
            self.waiter
                .modify(lane.tap.as_fd(), lane_token(i), lane_interest(!on))?;
        }
        Ok(())
    }
}
