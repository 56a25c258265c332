//! Serving IP links: frames of their TAPs, and packets of their cores' making.

use ipoib::{Event, HeldFrame, Time};

use super::super::command::Report;
use super::super::lane::Served;
use super::super::thread::{At, BURST, DataThread, Io, nanoseconds};
use super::receive;
use super::sibling::{Crossing, Handover};
use super::transmit::{self, Fate};

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
    pub(in crate::datapath) fn transmit(&mut self, i: usize, now: Time) {
        for _ in 0..if self.pace.busy { BURST } else { 1 } {
            let Some(lane) = self.ip.lanes.get_mut(i) else {
                return;
            };
            let Io { fabric, train, .. } = &mut self.io;
            if !fabric.has_room() {
                return;
            }
            match lane.base.tap.read(&mut self.scratch.buffer) {
                Ok(Some(len)) => {
                    let frame = &self.scratch.buffer[..len];
                    let translated = &mut self.scratch.translated;
                    let fate = transmit::frame(lane, &mut **fabric, train, now, frame, translated);
                    if fate == Fate::Tagged {
                        self.tagged(i, now, len);
                        continue;
                    }
                    receive::reflect(lane, frame);
                    let news = lane.has_news();
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
            ip: &mut self.ip,
            io: &mut self.io,
            translated: &mut self.scratch.translated,
            linear: &mut self.scratch.linear,
            replicas: &self.control.replicas,
            now,
        };
        if handover.rewritten {
            return crossing.rewritten(i, handover);
        }
        match frame {
            Frame::Held(held) => crossing.frame(i, handover, &held.prefix, &held.frame),
            Frame::Read(len) => crossing.read(i, handover, &self.scratch.buffer[..len]),
            Frame::Untagged(frame) => crossing.read(i, handover, frame),
        }
    }

    /// A frame was not sent: its destination may be known to another thread, whose news wait in the
    /// inbox, or the core wants to ask for it.
    pub(in crate::datapath) fn after_unsent(&mut self, i: usize, now: Time) {
        self.commands(now);
        self.service(i, now);
    }

    /// Sends what a core has of its own.
    fn send_own(&mut self, i: usize, now: Time) {
        while let Some(lane) = self.ip.lanes.get_mut(i)
            && let Some((to, packet)) = lane.core.poll_transmit(now)
        {
            let Io { fabric, train, .. } = &mut self.io;
            let translated = &mut self.scratch.translated;
            translated.clear();
            translated.extend_from_slice(packet);
            let fate = transmit::rewritten(lane, &mut **fabric, train, to, translated);
            if let Fate::Sibling(handover) = fate {
                self.hand_over(i, now, &handover, Frame::Read(0));
            }
        }
    }

    /// Sends what a core no longer holds.
    fn send_released(&mut self, i: usize, now: Time) {
        while let Some(lane) = self.ip.lanes.get_mut(i)
            && let Some(held) = lane.core.pop_released()
        {
            let Io { fabric, train, .. } = &mut self.io;
            let translated = &mut self.scratch.translated;
            let fate = transmit::released(lane, &mut **fabric, train, now, &held, translated);
            if let Fate::Sibling(handover) = fate {
                self.hand_over(i, now, &handover, Frame::Held(&held));
            }
        }
    }

    /// Serves the lanes that heard of their siblings. Not at once: two that wait for each other would
    /// be served within each other.
    pub(in crate::datapath) fn serve_owed(&mut self, now: Time) {
        while let Some(i) = self.ip.owed.pop() {
            self.service(i, now);
        }
    }

    /// Sends what a core wants sent, and frames that it no longer holds.
    pub(in crate::datapath) fn service(&mut self, i: usize, now: Time) {
        let Some(lane) = self.ip.lanes.get_mut(i) else {
            return;
        };
        lane.publish(&self.control.replicas);
        self.send_own(i, now);
        let Some(lane) = self.ip.lanes.get_mut(i) else {
            return;
        };
        let translated = &mut self.scratch.translated;
        while let Some(frame) = lane.core.poll_tap(now) {
            translated.clear();
            translated.extend_from_slice(frame);
            receive::write_frame(lane, translated);
        }
        loop {
            // A connection is established before what waited for it goes over it.
            let acted = self.io.has_connections && self.act(i, now);
            self.send_released(i, now);
            if !acted {
                break;
            }
        }
        if let Some(lane) = self.ip.lanes.get_mut(i) {
            lane.release_ahs(&mut *self.io.fabric, &mut self.io.train);
            let id = lane.base.id;
            let events = std::iter::from_fn(|| lane.core.pop_event());
            self.control.report_events(events.map(|event| {
                let is_needed = is_needed(&event);
                let round_trip = match event {
                    Event::Echo { stamp, .. } => nanoseconds().saturating_sub(stamp),
                    _ => 0,
                };
                (is_needed, Report::Event(id, event, round_trip))
            }));
        }
    }
}

/// Whether an event is reported however many reports wait. Those of guests are: each frame makes two
/// events of them at most, and what was learned and not forgotten would count for ever. All else is
/// said again, or is for people.
fn is_needed(event: &Event) -> bool {
    matches!(
        event,
        Event::GuestLearned { .. } | Event::GuestForgotten { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::thread::{REPORTS_MAX, may_wait};
    use super::*;

    #[test]
    fn a_flood_of_memberships_does_not_pile_up_and_hides_no_guest() {
        let may_wait = |event: &Event, waiting| may_wait(is_needed(event), waiting);
        let (mac, ip) = ([2; 6], std::net::IpAddr::from([239, 1, 2, 3]));
        let joined = Event::GroupJoined { mac, group: ip };
        assert!(may_wait(&joined, 0) && may_wait(&joined, REPORTS_MAX - 1));
        assert!(!may_wait(&joined, REPORTS_MAX));
        assert!(may_wait(
            &Event::GuestLearned {
                ip,
                mac,
                weak: false
            },
            REPORTS_MAX
        ));
        assert!(may_wait(&Event::GuestForgotten { ip }, REPORTS_MAX));
    }
}
