//! Completion moderation (kernel ipoib_ethtool.c, `ipoib_set_coalesce`; there the card's completion
//! queue counts and waits). Where the fabric's device does so, it is asked to. Else, after an arrival
//! of few packets, the thread leaves the fabric alone for a while, so that more come together then.
//! What it sends, and its timers, do not wait.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use control::api::Moderation;
use ipoib::Time;
use rustix::event::epoll::{EventData, EventFlags};

use super::{At, DEPTH, DataThread, WAKE, lane_interest};

/// Looks at the fabric in one go, before others get their turn.
const LOOKS: usize = 16;

/// How arrivals are gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moderated {
    /// Packets that are worth another look at once.
    frames: usize,
    /// How long to wait otherwise.
    time: Duration,
}

impl DataThread {
    pub(super) fn set_moderation(&mut self, wanted: Moderation) {
        self.pace.moderation = None;
        self.pace.waiter.release();
        // The device's, too, is to end when it ends.
        let of_link = self.io.fabric.moderate(
            u16::try_from(wanted.rx_frames).unwrap_or(u16::MAX),
            u16::try_from(wanted.rx_usecs).unwrap_or(u16::MAX),
        );
        if of_link || wanted.rx_usecs == 0 || wanted.rx_frames == 0 {
            return;
        }
        match self.prepare_holds() {
            Ok(()) => {
                self.pace.moderation = Some(Moderated {
                    frames: wanted.rx_frames as usize,
                    time: Duration::from_micros(wanted.rx_usecs.into()),
                });
            }
            // Without it packets are taken as they come, which is no reason to end.
            Err(e) => {
                self.pace.waiter.forget_rest();
                log::warn!(
                    "data thread {}: completion moderation stays off: {e}",
                    self.control.index
                );
            }
        }
    }

    /// Tells the waiter all that goes on while the fabric is left alone.
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

    /// Takes what is there. If it was little, the next look is later.
    pub(super) fn receive_moderated(&mut self, now: Time) -> io::Result<()> {
        let Some(Moderated { frames, time }) = self.pace.moderation else {
            return Ok(());
        };
        let mut taken = 0;
        for _ in 0..LOOKS {
            match self.receive_batch(now, DEPTH)? {
                // The provider has no more.
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
