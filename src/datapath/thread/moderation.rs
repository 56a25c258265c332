//! Completion moderation (kernel ipoib_ethtool.c, `ipoib_set_coalesce`; there the card's completion queue
//! counts and waits). An RDMA device that supports moderation does it. Otherwise, after the arrival of few
//! packets, the thread ignores the fabric for a short time, so that more packets arrive together. Sending
//! and timers are not delayed.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use control::api::Moderation;
use ipoib::Time;
use rustix::event::epoll::{EventData, EventFlags};

use super::{At, DEPTH, DataThread, WAKE, lane_interest};

/// Maximum number of polls of the fabric in a round.
const LOOKS: usize = 16;

/// Moderation by this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moderated {
    /// A round with fewer packets starts a hold.
    frames: usize,
    /// Duration of the hold.
    time: Duration,
}

impl DataThread {
    pub(super) fn set_moderation(&mut self, wanted: Moderation) {
        self.pace.moderation = None;
        self.pace.waiter.release();
        // The device's moderation must also end with moderation 0.
        let by_device = self.io.fabric.moderate(
            u16::try_from(wanted.rx_frames).unwrap_or(u16::MAX),
            u16::try_from(wanted.rx_usecs).unwrap_or(u16::MAX),
        );
        if by_device || wanted.rx_usecs == 0 || wanted.rx_frames == 0 {
            return;
        }
        match self.prepare_holds() {
            Ok(()) => {
                self.pace.moderation = Some(Moderated {
                    frames: wanted.rx_frames as usize,
                    time: Duration::from_micros(wanted.rx_usecs.into()),
                });
            }
            // The thread can run without moderation.
            Err(e) => {
                self.pace.waiter.forget_rest();
                log::warn!(
                    "data thread {}: cannot enable completion moderation: {e}",
                    self.control.index
                );
            }
        }
    }

    /// Enables holds, with all descriptors except the fabric's.
    fn prepare_holds(&mut self) -> io::Result<()> {
        if !self.pace.waiter.prepare_holds()? {
            return Ok(());
        }
        self.pace.waiter.add_rest(
            &*self.control.inbox.wake,
            EventData::new_u64(WAKE),
            EventFlags::IN,
        )?;
        let ip = self.ip.lanes.iter().map(|(i, _)| At::Ip(i));
        for at in ip.chain(self.ethernet.lanes.iter().map(|(i, _)| At::Ethernet(i))) {
            if let Some((tap, reads)) = self.tap(at) {
                let interest = lane_interest(self.pace.muted.contains(&at) || !reads);
                self.pace
                    .waiter
                    .add_rest(tap.as_fd(), at.token(), interest)?;
            }
        }
        Ok(())
    }

    /// Receives all pending packets. After few packets, starts a hold.
    pub(super) fn receive_moderated(&mut self, now: Time) -> io::Result<()> {
        let Some(Moderated { frames, time }) = self.pace.moderation else {
            return Ok(());
        };
        let mut taken = 0;
        for _ in 0..LOOKS {
            match self.receive_batch(now, DEPTH)? {
                // Nothing is pending.
                0 => {
                    if taken < frames {
                        self.pace.waiter.hold(time);
                    }
                    return Ok(());
                }
                some => taken += some,
            }
        }
        Ok(())
    }
}
