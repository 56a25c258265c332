//! Commands of a data thread; adding and removing lanes.

use std::io;
use std::os::fd::AsFd;

use crossbeam_channel::Sender;
use ipoib::Time;
use netdev::tap::is_gone;

use super::super::command::{Command, Report, Snapshot, Tables};
use super::super::ip::{IpLane, IpSettings, receive};
use super::super::lane::{LinkId, Served};
use super::super::stats::{EthernetSnapshot, IpSnapshot, ThreadStats, WorkerSnapshot};
use super::{At, DataThread, Io, lane_interest, nanoseconds};

impl DataThread {
    pub(in crate::datapath) fn commands(&mut self, now: Time) {
        // Later commands wake the thread again: a flood of updates from other threads must not keep this
        // thread from its own packets.
        for _ in 0..self.control.inbox.len() {
            let Some(command) = self.control.inbox.next() else {
                return;
            };
            self.command(command, now);
        }
    }

    fn command(&mut self, command: Command, now: Time) {
        match command {
            Command::AddLane(lane) => drop(self.add(*lane)),
            Command::RemoveLane(id, counted) => self.remove(id, now, &counted),
            Command::AddEthernet(lane) => self.add_ethernet(*lane),
            Command::AddManagement(name, endpoint, pkey) => {
                self.ethernet.management.add(name, endpoint, pkey);
            }
            Command::Ip(id, settings) => self.set_ip(id, now, settings),
            Command::Ethernet(id, settings) => {
                self.on_ethernet(id, |lane| lane.apply(now, *settings));
            }
            Command::EthernetUpdate(id, update) => {
                self.on_ethernet(id, |lane| lane.core.apply(now, &update));
            }
            Command::SetTable(id, table) => self.on_ethernet(id, |lane| lane.core.set_table(table)),
            Command::SetDirectory(id, directory) => {
                self.on_ethernet(id, |lane| lane.core.set_directory(&directory));
            }
            Command::SetEthernetSiblings(id, siblings) => {
                self.on_ethernet(id, |lane| lane.set_siblings(siblings));
            }
            Command::SendManagement(from, gid, qpn, payload) => {
                let Io { fabric, train, .. } = &mut self.io;
                let management = &mut self.ethernet.management;
                management.send(&mut **fabric, train, from, (gid, qpn), &payload);
            }
            Command::Update(id, update) => {
                self.on_ip(id, now, |lane| lane.core.apply(now, &update));
            }
            Command::SetSiblings(id, siblings) => self.on_core(id, |core| {
                core.set_siblings(siblings.iter().map(|s| ipoib::Sibling {
                    qpn: s.qpn,
                    mtu: s.mtu as usize,
                }));
            }),
            Command::Flush(id) => self.on_ip(id, now, |lane| lane.core.flush()),
            Command::SetModeration(wanted) => self.set_moderation(wanted),
            Command::SetVlans(id, on) => self.set_vlans(id, on),
            Command::AddVlan(vlan) => self.add_vlan(*vlan),
            Command::SetJoined(id, groups) => {
                self.on_ip(id, now, |lane| lane.core.set_joined(now, &groups));
            }
            Command::Announce(id, ip, router) => self.on_ip(id, now, |lane| {
                lane.core.announce(ip, router);
                lane.core.handle_timeout(now);
            }),
            Command::AnnounceGuests(id, since) => self.on_ip(id, now, |lane| {
                lane.core.announce_guests(now, since);
                lane.core.handle_timeout(now);
            }),
            Command::PostponeAnnouncements(id) => {
                self.on_ip(id, now, |lane| lane.core.postpone_announcements());
            }
            Command::Withdraw(id, ip) => self.on_ip(id, now, |lane| lane.core.withdraw(ip)),
            Command::HostHas(id, ip) => self.on_ip(id, now, |lane| lane.core.host_has(now, ip)),
            Command::SetAllowed(list) => {
                self.io.allowed.set(list);
                for i in self.ip.lanes.places() {
                    if let Some(lane) = self.ip.lanes.get_mut(i) {
                        lane.core.flush();
                    }
                    self.service(i, now);
                }
            }
            Command::SetBusyPoll(longest) => self.pace.waiter.set_longest(longest),
            Command::Watch(on) => {
                self.control.watched = on;
                for i in self.ip.lanes.places() {
                    if let Some(lane) = self.ip.lanes.get_mut(i) {
                        lane.core.watch(on);
                    }
                }
            }
            Command::Echo(id, mut request) => {
                request.stamp = nanoseconds();
                if let Some((i, lane)) = self.lane(id)
                    && lane.core.echo(&request)
                {
                    self.service(i, now);
                } else {
                    self.control
                        .report(Report::EchoRefused(id, request.id, request.sequence));
                }
            }
            Command::ToTap(id, frame) => {
                if let Some((_, lane)) = self.lane(id) {
                    receive::write_frame(lane, &frame);
                }
            }
            Command::Snapshot { tables, reply } => {
                // The control thread may have stopped waiting.
                let _ = reply.send(self.snapshot(now, tables));
            }
            Command::Stop => self.control.stop = true,
        }
    }

    /// Applies new settings of an IP link. A new queue pair needs new listeners, even with unchanged service
    /// ids; the core has closed the connections.
    fn set_ip(&mut self, id: LinkId, now: Time, settings: IpSettings) {
        let Some((i, lane)) = self.lane(id) else {
            return;
        };
        if lane.apply(now, settings) {
            self.ip.lanes.readdress(i);
            self.close_all(i);
            self.listen(i);
        }
        self.service(i, now);
    }

    /// Changes a lane, then serves it.
    fn on_ip(&mut self, id: LinkId, now: Time, change: impl FnOnce(&mut IpLane)) {
        if let Some((i, lane)) = self.lane(id) {
            change(lane);
            self.service(i, now);
        }
    }

    fn on_core(&mut self, id: LinkId, change: impl FnOnce(&mut ipoib::Ipoib)) {
        if let Some((_, lane)) = self.lane(id) {
            change(&mut lane.core);
        }
    }

    pub(in crate::datapath) fn lane(&mut self, id: LinkId) -> Option<(usize, &mut IpLane)> {
        let i = self.ip.lanes.of_link(id)?;
        Some((i, self.ip.lanes.get_mut(i)?))
    }

    /// Adds a lane and returns its place; `None` if the TAP cannot be watched.
    pub(in crate::datapath) fn add(&mut self, mut lane: IpLane) -> Option<usize> {
        let id = lane.base.id;
        lane.core.watch(self.control.watched);
        let i = self.ip.lanes.insert(lane);
        match self.watch_tap(At::Ip(i)) {
            Ok(()) => {
                self.listen(i);
                Some(i)
            }
            Err(e) => {
                self.ip.lanes.remove(i);
                self.unwatchable(id, &e);
                None
            }
        }
    }

    pub(in crate::datapath) fn watch_tap(&mut self, at: At) -> io::Result<()> {
        let Some((tap, reads)) = self.tap(at) else {
            return Ok(());
        };
        let interest = lane_interest(!reads);
        self.pace.waiter.add(tap.as_fd(), at.token(), interest)?;
        Ok(())
    }

    /// Reports a TAP queue that cannot be watched as gone.
    pub(in crate::datapath) fn unwatchable(&self, id: LinkId, error: &io::Error) {
        log::error!(
            "data thread {}: cannot watch TAP queue: {error}",
            self.control.index
        );
        self.control.report(Report::TapGone(id));
    }

    fn remove(&mut self, id: LinkId, now: Time, counted: &Sender<EthernetSnapshot>) {
        if let Some(i) = self.ip.lanes.of_link(id) {
            self.drop_lane(i);
        } else {
            self.remove_ethernet(id, now, counted);
        }
    }

    fn drop_lane(&mut self, i: usize) {
        self.close_all(i);
        self.forget_vlans(i);
        self.pace.muted.retain(|muted| *muted != At::Ip(i));
        self.ip.owed.retain(|owed| *owed != i);
        if let Some(mut lane) = self.ip.lanes.remove(i) {
            if lane.vlan.is_none() {
                self.pace.waiter.delete(lane.base.tap.as_fd());
            }
            lane.release_all(&mut *self.io.fabric, &mut self.io.train);
        }
    }

    pub(in crate::datapath) fn tap_failed(&mut self, at: At, error: &io::Error) {
        if !is_gone(error) {
            log::debug!(
                "data thread {}: cannot read TAP queue: {error}",
                self.control.index
            );
            return;
        }
        let id = match at {
            At::Ip(i) => self.ip.lanes.get(i).map(|lane| lane.base.id),
            At::Ethernet(i) => self.ethernet.lanes.get(i).map(|lane| lane.base.id),
        };
        match at {
            At::Ip(i) => self.drop_lane(i),
            At::Ethernet(i) => drop(self.drop_ethernet(i)),
        }
        if let Some(id) = id {
            self.control.report(Report::TapGone(id));
        }
    }

    fn snapshot(&mut self, now: Time, tables: Tables) -> Snapshot {
        let connections = match self.io.fabric.connections() {
            Some(connections) if tables != Tables::None => connections.list(),
            _ => Vec::new(),
        };
        let ip = self.ip.lanes.iter().map(|(i, lane)| {
            let of = self.ip.connections.values();
            let mut snapshot = IpSnapshot {
                id: lane.base.id,
                stats: lane.stats,
                tap: lane.base.stats,
                core: lane.core.counters().named(),
                connection_count: of.filter(|of| **of == i).count(),
                ..IpSnapshot::default()
            };
            if tables.has(lane.base.id) {
                let of = connections.iter();
                let of = of.filter(|c| c.endpoint == lane.base.endpoint);
                snapshot.neighbours = lane.core.neighbours().collect();
                snapshot.guests = lane.core.guests().collect();
                snapshot.groups = lane.core.groups().collect();
                snapshot.connections = of.cloned().collect();
                snapshot.peers = lane.core.connections().collect();
            }
            snapshot
        });
        Snapshot {
            worker: WorkerSnapshot {
                worker: self.control.index,
                thread: ThreadStats {
                    wakeups: self.pace.wakeups,
                    unserved: self.io.unserved,
                    not_allowed: self.io.allowed.refused,
                    reports_lost: self.control.reports_lost + self.ethernet.management.lost(),
                },
                fabric: self.io.fabric.counters(),
            },
            ip: ip.collect(),
            ethernet: self.ethernet_snapshots(now, tables),
        }
    }
}
