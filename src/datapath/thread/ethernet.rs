//! VNICs in a data thread: their TAPs, their commands, what their cores want.

use std::os::fd::AsFd;

use crossbeam_channel::Sender;
use ipoib::Time;
use netdev::vnet::VNET_HEADER_LEN;
use vnic::port::{Event, Sizes, Unsent};

use super::super::command::{DeviceId, Report, Tables};
use super::super::ethernet::{
    self, EthernetCommand, EthernetLane, EthernetSnapshot, Fate, Handover,
};
use super::reports::REPORTS_MAX;
use super::{At, BURST, DataThread};

/// Frames that are dropped unread of a queue that begins to be read: more than it has room for unless
/// somebody has made it longer (`txqueuelen`, 1000), and few enough that a host which sends all the time
/// does not hold the thread.
const STALE_MAX: usize = 4096;

impl DataThread {
    /// Reads one TAP until it is empty, the burst is used up, or the fabric has no room.
    pub(super) fn transmit_ethernet(&mut self, i: usize, now: Time) {
        // Where the first frame goes may have been learned by another thread, from what it answers.
        if !self.inbox.receiver.is_empty() {
            self.commands(now);
        }
        for _ in 0..if self.busy { BURST } else { 1 } {
            let Some(lane) = self.ethernet.get_mut(i) else {
                return;
            };
            if !self.fabric.has_room() {
                return;
            }
            match lane.tap.read(&mut self.buffer) {
                Ok(Some(len)) => {
                    let frame = &self.buffer[..len];
                    let (fabric, train) = (&mut *self.fabric, &mut self.train);
                    let fate = ethernet::frame(lane, fabric, train, now, frame);
                    let news = lane.has_news();
                    if let Fate::Sibling(handover) = fate {
                        self.hand_over_ethernet(i, now, &handover, len);
                    }
                    if news {
                        self.service_ethernet(i);
                    }
                }
                Ok(None) => return,
                Err(e) => return self.tap_failed(At::Ethernet(i), &e),
            }
        }
    }

    /// Gives another VNIC of this daemon the frame of `len` bytes in the buffer.
    fn hand_over_ethernet(&mut self, i: usize, now: Time, handover: &Handover, len: usize) {
        let lane = self.ethernet.get(i);
        let device = lane.and_then(|lane| lane.sibling(handover.lid));
        let to = device.and_then(|device| self.ethernet.of_device(device));
        let frame = &self.buffer[..len];
        handover.carry_out(&mut self.ethernet, i, to, now, frame);
        let news = to.and_then(|to| self.ethernet.get(to));
        if let (Some(to), true) = (to, news.is_some_and(EthernetLane::has_news)) {
            self.service_ethernet(to);
        }
    }

    /// Tells what a core has learned, and gives back what it names no more.
    pub(super) fn service_ethernet(&mut self, i: usize) {
        let Some(lane) = self.ethernet.get_mut(i) else {
            return;
        };
        lane.publish(&self.siblings);
        lane.release_ahs(&mut *self.fabric, &mut self.train);
        self.tell_ethernet_events(i);
    }

    fn tell_ethernet_events(&mut self, i: usize) {
        let Some(lane) = self.ethernet.get_mut(i) else {
            return;
        };
        let mut told = false;
        while let Some(event) = lane.core.poll_event() {
            // Forged packets make conflicts as they come, and each is told of for people only. What the
            // control thread acts on comes once a second.
            let may_wait = matches!(event, Event::LocalMacs(_)) || self.reports.len() < REPORTS_MAX;
            if !may_wait {
                self.reports_lost += 1;
                continue;
            }
            let report = Report::Ethernet(lane.id, lane.endpoint, event);
            told |= self.reports.send(report).is_ok();
        }
        if told {
            self.wake_control();
        }
    }

    /// Lets time pass for the cores that wait for it.
    pub(super) fn ethernet_timers(&mut self, now: Time) {
        while let Some(i) = self.ethernet.pop_due(now) {
            if let Some(lane) = self.ethernet.get_mut(i) {
                lane.core.handle_timeout(vnic::Time(now.0));
                self.service_ethernet(i);
            }
        }
        let mut n = 0;
        while let Some(i) = self.ethernet.used(n) {
            // Frames that all find their way call for no service, and yet may have pushed members out of
            // the core's table.
            if let Some(lane) = self.ethernet.get_mut(i) {
                lane.release_ahs(&mut *self.fabric, &mut self.train);
            }
            n += 1;
        }
    }

    pub(super) fn add_ethernet(&mut self, mut lane: EthernetLane) {
        let id = lane.id;
        if lane.reads {
            self.drop_stale(&mut lane);
        }
        let i = self.ethernet.insert(lane);
        if let Err(e) = self.watch_tap(At::Ethernet(i)) {
            self.ethernet.remove(i);
            self.unwatchable(id, &e);
        }
    }

    /// Drops what waits in the queue of a lane that is new: the host sent it to the switch that the VNIC was
    /// on before, or to none, and on this one it would be somebody else's.
    fn drop_stale(&mut self, lane: &mut EthernetLane) {
        for _ in 0..STALE_MAX {
            // An interface that is gone is noticed when the queue is waited for.
            let Ok(Some(len)) = lane.tap.read(&mut self.buffer) else {
                return;
            };
            lane.stats.tap_reads += 1;
            let sizes = Sizes::one(len.saturating_sub(VNET_HEADER_LEN));
            lane.core.count_unsent(Unsent::State, sizes);
        }
    }

    /// Ends a VNIC, of which it tells what was counted to the last, or an endpoint of management.
    pub(super) fn remove_ethernet(
        &mut self,
        id: DeviceId,
        now: Time,
        counted: &Sender<EthernetSnapshot>,
    ) {
        match self.ethernet.of_device(id) {
            Some(i) => {
                if let Some(lane) = self.drop_ethernet(i) {
                    let last = lane.snapshot(self.index, vnic::Time(now.0), false);
                    // Whoever asked may have given up.
                    let _ = counted.send(last);
                }
            }
            None => {
                let (fabric, train) = (&mut *self.fabric, &mut self.train);
                self.management.remove(id, fabric, train);
            }
        }
    }

    /// Serves a VNIC no more; its queue is open as long as the lane is there.
    pub(super) fn drop_ethernet(&mut self, i: usize) -> Option<EthernetLane> {
        self.muted.retain(|muted| *muted != At::Ethernet(i));
        let mut lane = self.ethernet.remove(i)?;
        self.waiter.delete(lane.tap.as_fd());
        lane.priorities.release_all();
        lane.core.release_all();
        lane.release_ahs(&mut *self.fabric, &mut self.train);
        Some(lane)
    }

    pub(super) fn ethernet_command(&mut self, id: DeviceId, command: EthernetCommand, now: Time) {
        let Some(i) = self.ethernet.of_device(id) else {
            return;
        };
        if let Some(lane) = self.ethernet.get_mut(i) {
            lane.command(command, vnic::Time(now.0));
        }
        self.service_ethernet(i);
    }

    pub(super) fn ethernet_snapshots(
        &self,
        now: vnic::Time,
        tables: Tables,
    ) -> Vec<EthernetSnapshot> {
        let lanes = self.ethernet.iter();
        lanes
            .map(|(_, lane)| lane.snapshot(self.index, now, tables.has(lane.id)))
            .collect()
    }
}
