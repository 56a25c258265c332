//! Serving IP links: frames of their TAPs, packets and events of their cores.

use ipoib::{Event, HeldFrame, Time};

use super::super::command::Report;
use super::super::lane::Served;
use super::super::thread::{At, BURST, DataThread, Io, nanoseconds};
use super::receive;
use super::sibling::{Crossing, Handover};
use super::transmit::{self, Fate};

/// The source of a frame for a sibling.
pub(super) enum Frame<'f> {
    /// The first bytes of the thread's buffer.
    Read(usize),
    /// A frame that the core held.
    Held(&'f HeldFrame),
    /// A frame whose tag was removed.
    Untagged(&'f [u8]),
}

impl DataThread {
    /// Reads one TAP until it is empty, the burst is used up, or the fabric has too little room.
    pub(in crate::datapath) fn transmit(&mut self, i: usize, now: Time) {
        for _ in 0..if self.pace.busy { BURST } else { 1 } {
            let Some(lane) = self.ip.lanes.get_mut(i) else {
                return;
            };
            if self.io.fabric.room() < lane.needs() {
                return;
            }
            match lane.base.tap.read(&mut self.scratch.buffer) {
                Ok(Some(len)) => {
                    // The frame may be the host's answer to a packet of another thread: the news of that thread's core
                    // are in the inbox.
                    self.ip.apply_updates(&mut self.control.inbox, now);
                    self.serve_owed(now);
                    let Some(lane) = self.ip.lanes.get_mut(i) else {
                        return;
                    };
                    let Io { fabric, train, .. } = &mut self.io;
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

    /// Hands a frame, or the payload that the core wrote, over to a sibling.
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

    /// Handles a frame that was not sent: another thread may know the destination and its news may be in the
    /// inbox, or the core has to query the destination.
    pub(in crate::datapath) fn after_unsent(&mut self, i: usize, now: Time) {
        self.commands(now);
        self.service(i, now);
    }

    /// Sends the core's own packets.
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

    /// Sends frames that the core has released.
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

    /// Serves the lanes with news from siblings. Serving them during the handover would be recursive for two
    /// lanes that wait for each other.
    pub(in crate::datapath) fn serve_owed(&mut self, now: Time) {
        while let Some(i) = self.ip.owed.pop() {
            self.service(i, now);
        }
    }

    /// Sends the packets, released frames, updates and events of a core.
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
            // Establish a connection before sending the packets that waited for it.
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

/// Whether an event is reported even if too many reports wait. Guest events are: a frame causes at most two,
/// and a lost one would keep a guest counted for ever. All other events are repeated or only informative.
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
    fn a_flood_of_memberships_is_bounded_and_loses_no_guest() {
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
