//! Serving VNICs: frames of their TAPs, commands, updates and events of their cores.

use std::os::fd::AsFd;

use crossbeam_channel::Sender;
use ipoib::Time;
use netdev::vnet::VNET_HEADER_LEN;
use vnic::port::{Event, Sizes, Unsent};

use super::super::command::{Report, Tables};
use super::super::lane::{LinkId, Served};
use super::super::stats::EthernetSnapshot;
use super::super::thread::{At, BURST, DataThread, Io};
use super::handover::Handover;
use super::lane::EthernetLane;
use super::transmit::{self, Fate};

/// Maximum number of frames dropped from the queue of a new lane: more than the default length of the queue
/// (`txqueuelen`, 1000), and few enough that a sending host does not block the thread.
const STALE_MAX: usize = 4096;

impl DataThread {
    /// Reads one TAP until it is empty, the burst is used up, or the fabric has no room.
    pub(in crate::datapath) fn transmit_ethernet(&mut self, i: usize, now: Time) {
        // Another thread may have learned the destination of the first frame, from the packet that it
        // answers.
        if self.control.inbox.len() > 0 {
            self.commands(now);
        }
        for _ in 0..if self.pace.busy { BURST } else { 1 } {
            let Some(lane) = self.ethernet.lanes.get_mut(i) else {
                return;
            };
            let Io { fabric, train, .. } = &mut self.io;
            if fabric.room() < lane.needs() {
                return;
            }
            match lane.base.tap.read(&mut self.scratch.buffer) {
                Ok(Some(len)) => {
                    let frame = &self.scratch.buffer[..len];
                    let fate = transmit::frame(lane, &mut **fabric, train, now, frame);
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

    /// Hands the frame of `len` bytes in the buffer over to a sibling.
    fn hand_over_ethernet(&mut self, i: usize, now: Time, handover: &Handover, len: usize) {
        let lanes = &mut self.ethernet.lanes;
        let link = lanes.get(i).and_then(|lane| lane.sibling(handover.lid));
        let to = link.and_then(|link| lanes.of_link(link));
        handover.carry_out(lanes, i, to, now, &self.scratch.buffer[..len]);
        let news = to.and_then(|to| lanes.get(to));
        if let (Some(to), true) = (to, news.is_some_and(EthernetLane::has_news)) {
            self.service_ethernet(to);
        }
    }

    /// Sends the updates of a core to the other threads, reports its events, and destroys its released
    /// address handles.
    pub(in crate::datapath) fn service_ethernet(&mut self, i: usize) {
        let Some(lane) = self.ethernet.lanes.get_mut(i) else {
            return;
        };
        lane.publish(&self.control.replicas);
        lane.release_ahs(&mut *self.io.fabric, &mut self.io.train);
        let (id, endpoint) = (lane.base.id, lane.base.endpoint);
        let events = std::iter::from_fn(|| lane.core.poll_event());
        self.control.report_events(events.map(|event| {
            // The control thread acts on local MACs, reported at most once a second. Forged packets cause
            // any number of conflicts, which are only informative.
            let is_needed = matches!(event, Event::LocalMacs(_));
            (is_needed, Report::Ethernet(id, endpoint, event))
        }));
    }

    /// Handles the timers of the cores.
    pub(in crate::datapath) fn ethernet_timers(&mut self, now: Time) {
        while let Some(i) = self.ethernet.lanes.pop_due(now) {
            if let Some(lane) = self.ethernet.lanes.get_mut(i) {
                lane.core.handle_timeout(now);
                self.service_ethernet(i);
            }
        }
    }

    pub(in crate::datapath) fn add_ethernet(&mut self, mut lane: EthernetLane) {
        let id = lane.base.id;
        if lane.base.reads {
            self.drop_stale(&mut lane);
        }
        let i = self.ethernet.lanes.insert(lane);
        if let Err(e) = self.watch_tap(At::Ethernet(i)) {
            self.ethernet.lanes.remove(i);
            self.unwatchable(id, &e);
        }
    }

    /// Drops the frames in the queue of a new lane. The host sent them before the VNIC was on this switch.
    fn drop_stale(&mut self, lane: &mut EthernetLane) {
        for _ in 0..STALE_MAX {
            // If the interface is gone, watching its queue fails later.
            let Ok(Some(len)) = lane.base.tap.read(&mut self.scratch.buffer) else {
                return;
            };
            lane.base.stats.tap_reads += 1;
            let sizes = Sizes::one(len.saturating_sub(VNET_HEADER_LEN));
            lane.core.count_unsent(Unsent::State, sizes);
        }
    }

    /// Removes a VNIC and sends its last counters to `counted`, or removes a management endpoint.
    pub(in crate::datapath) fn remove_ethernet(
        &mut self,
        id: LinkId,
        now: Time,
        counted: &Sender<EthernetSnapshot>,
    ) {
        match self.ethernet.lanes.of_link(id) {
            Some(i) => {
                if let Some(lane) = self.drop_ethernet(i) {
                    let last = lane.snapshot(self.control.index, now, false);
                    // The control thread may have stopped waiting.
                    let _ = counted.send(last);
                }
            }
            None => {
                let Io { fabric, train, .. } = &mut self.io;
                self.ethernet.management.remove(id, &mut **fabric, train);
            }
        }
    }

    /// Removes a VNIC. Its queue stays open until the lane is dropped.
    pub(in crate::datapath) fn drop_ethernet(&mut self, i: usize) -> Option<EthernetLane> {
        self.pace.muted.retain(|muted| *muted != At::Ethernet(i));
        let mut lane = self.ethernet.lanes.remove(i)?;
        self.pace.waiter.delete(lane.base.tap.as_fd());
        lane.release_all(&mut *self.io.fabric, &mut self.io.train);
        Some(lane)
    }

    /// Changes a lane, then serves it.
    pub(in crate::datapath) fn on_ethernet(
        &mut self,
        id: LinkId,
        change: impl FnOnce(&mut EthernetLane),
    ) {
        if let Some(i) = self.ethernet.lanes.of_link(id)
            && let Some(lane) = self.ethernet.lanes.get_mut(i)
        {
            change(lane);
            self.service_ethernet(i);
        }
    }

    pub(in crate::datapath) fn ethernet_snapshots(
        &self,
        now: Time,
        tables: Tables,
    ) -> Vec<EthernetSnapshot> {
        let lanes = self.ethernet.lanes.iter();
        lanes
            .map(|(_, lane)| lane.snapshot(self.control.index, now, tables.has(lane.base.id)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
