//! What goes out of a data thread: frames of its TAPs, and packets of its cores' making.

use ipoib::{HeldFrame, Time};

use super::super::receive;
use super::super::sibling::{Crossing, Handover};
use super::super::transmit::{self, Fate};
use super::{At, BURST, DataThread};

/// Where a frame is that a sibling gets.
pub(super) enum Frame<'f> {
    /// In the thread's buffer, of so many bytes.
    Read(usize),
    /// The core held it.
    Held(&'f HeldFrame),
    /// Its tag was taken out.
    Untagged(&'f [u8]),
}

impl DataThread {
    /// Reads one TAP until it is empty, the burst is used up, or the fabric has no room.
    pub(super) fn transmit(&mut self, i: usize, now: Time) {
        for _ in 0..if self.busy { BURST } else { 1 } {
            let Some(lane) = self.lanes.get_mut(i) else {
                return;
            };
            if !self.fabric.has_room() {
                return;
            }
            match lane.tap.read(&mut self.buffer) {
                Ok(Some(len)) => {
                    let fate = transmit::frame(
                        lane,
                        &mut *self.fabric,
                        &mut self.train,
                        now,
                        &self.buffer[..len],
                        &mut self.translated,
                    );
                    if fate == Fate::Tagged {
                        self.tagged(i, now, len);
                        continue;
                    }
                    receive::reflect(lane, &self.buffer[..len]);
                    let news = lane.core.has_updates() || lane.core.has_events();
                    let fate = match fate {
                        Fate::Sibling(handover) => {
                            self.hand_over(i, now, &handover, Frame::Read(len))
                        }
                        fate => fate,
                    };
                    if fate != Fate::Sent {
                        self.after_unsent(i, now);
                    } else if news {
                        self.service(i, now);
                    }
                }
                Ok(None) => return,
                Err(e) => return self.tap_failed(At::Ip(i), &e),
            }
        }
    }

    /// Gives a sibling a frame, or what the core made of it.
    pub(super) fn hand_over(
        &mut self,
        i: usize,
        now: Time,
        handover: &Handover,
        frame: Frame<'_>,
    ) -> Fate {
        let mut crossing = Crossing {
            lanes: &mut self.lanes,
            fabric: &mut *self.fabric,
            train: &mut self.train,
            translated: &mut self.translated,
            linear: &mut self.linear,
            mailboxes: &self.siblings,
            owed: &mut self.owed,
            now,
        };
        if handover.rewritten {
            return crossing.rewritten(i, handover);
        }
        match frame {
            Frame::Held(held) => crossing.frame(i, handover, &held.prefix, &held.frame),
            Frame::Read(len) => crossing.read(i, handover, &self.buffer[..len]),
            Frame::Untagged(frame) => crossing.read(i, handover, frame),
        }
    }

    /// A TAP is in error, which does not wait for room: it is gone if a read says so.
    pub(super) fn probe(&mut self, at: At) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let failed = self
            .tap(at)
            .and_then(|(tap, _)| tap.read(&mut buffer).err());
        self.buffer = buffer;
        if let Some(e) = failed {
            self.tap_failed(at, &e);
        }
    }

    /// A frame was not sent: its destination may be known to a sibling whose news wait in the
    /// inbox, or the core wants to ask for it.
    pub(super) fn after_unsent(&mut self, i: usize, now: Time) {
        self.commands(now);
        self.service(i, now);
    }

    /// Sends what a core has of its own.
    pub(super) fn send_own(&mut self, i: usize, now: Time) {
        while let Some(lane) = self.lanes.get_mut(i)
            && let Some((to, packet)) = lane.core.poll_transmit(now)
        {
            self.translated.clear();
            self.translated.extend_from_slice(packet);
            let fate = transmit::rewritten(
                lane,
                &mut *self.fabric,
                &mut self.train,
                to,
                &self.translated,
            );
            if let Fate::Sibling(handover) = fate {
                self.hand_over(i, now, &handover, Frame::Read(0));
            }
        }
    }

    /// Sends what a core no longer holds.
    pub(super) fn send_released(&mut self, i: usize, now: Time) {
        while let Some(lane) = self.lanes.get_mut(i)
            && let Some(held) = lane.core.pop_released()
        {
            let fate = transmit::released(
                lane,
                &mut *self.fabric,
                &mut self.train,
                now,
                &held,
                &mut self.translated,
            );
            if let Fate::Sibling(handover) = fate {
                self.hand_over(i, now, &handover, Frame::Held(&held));
            }
        }
    }
}
