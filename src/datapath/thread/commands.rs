//! What a data thread does on command, and how it takes devices on and lets them go.

use std::io;
use std::os::fd::AsFd;

use crossbeam_channel::Sender;
use ipoib::{HardwareAddress, Time};
use netdev::tap::is_gone;

use super::super::command::{Command, DeviceId, Report, Snapshot, Tables};
use super::super::ethernet::EthernetSnapshot;
use super::super::lane::Lane;
use super::super::receive;
use super::super::stats::{DeviceSnapshot, WorkerSnapshot};
use super::{At, DataThread, lane_interest, nanoseconds};

impl DataThread {
    pub(super) fn commands(&mut self, now: Time) {
        // What comes meanwhile wakes us again: siblings that learn from a flood must not keep this
        // thread from its own packets.
        for _ in 0..self.inbox.receiver.len() {
            let Ok(command) = self.inbox.receiver.try_recv() else {
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
            Command::AddManagement(name, endpoint, qkey) => {
                self.management.add(name, endpoint, qkey);
            }
            Command::Ethernet(id, command) => self.ethernet_command(id, command, now),
            Command::SendManagement(from, gid, qpn, payload) => {
                let (fabric, train) = (&mut *self.fabric, &mut self.train);
                self.management
                    .send(fabric, train, from, (gid, qpn), &payload);
            }
            Command::Update(id, update) => {
                if let Some((i, lane)) = self.lane(id) {
                    lane.core.apply(now, &update);
                    self.service(i, now);
                }
            }
            Command::SetLocal(id, address) => {
                if let Some((i, _)) = self.lane(id) {
                    self.set_local(i, now, address);
                }
            }
            Command::SetMode(id, mode) => {
                if let Some((i, lane)) = self.lane(id) {
                    lane.core.set_mode(now, mode);
                    self.service(i, now);
                }
            }
            Command::SetMac(id, mac) => {
                if let Some((_, lane)) = self.lane(id) {
                    lane.core.set_mac(mac);
                }
            }
            Command::SetSiblings(id, siblings) => self.on_core(id, |core| {
                core.set_siblings(siblings.iter().map(|s| ipoib::Sibling {
                    qpn: s.qpn,
                    mtu: s.mtu as usize,
                }));
            }),
            Command::Flush(id) => {
                if let Some((i, lane)) = self.lane(id) {
                    lane.core.flush();
                    self.service(i, now);
                }
            }
            Command::SetModeration(wanted) => self.set_moderation(wanted),
            Command::SetVlans(id, on) => self.set_vlans(id, on),
            Command::AddVlan(vlan) => self.add_vlan(*vlan),
            Command::SetPayloadMax(id, bytes) => {
                if let Some((_, lane)) = self.lane(id) {
                    lane.link_mtu = bytes.saturating_sub(4);
                    lane.core.set_link_mtu(lane.link_mtu);
                }
            }
            Command::SetCoalesce(id, on) => {
                if let Some((_, lane)) = self.lane(id) {
                    lane.coalesce = on;
                }
            }
            Command::SetJoined(id, groups) => {
                if let Some((i, lane)) = self.lane(id) {
                    lane.core.set_joined(now, &groups);
                    self.service(i, now);
                }
            }
            Command::Announce(id, ip) => {
                if let Some((i, lane)) = self.lane(id) {
                    lane.core.announce(ip);
                    lane.core.handle_timeout(now);
                    self.service(i, now);
                }
            }
            Command::Withdraw(id, ip) => self.on_core(id, |core| core.withdraw(ip)),
            Command::HostHas(id, ip) => self.on_core(id, |core| core.host_has(now, ip)),
            Command::SetStacked(id, on) => self.on_core(id, |core| core.set_stacked(on)),
            Command::RouteMulticast(id, on) => self.on_core(id, |core| core.route_multicast(on)),
            Command::SetDhcp(id, mode) => self.on_core(id, |core| core.set_dhcp(mode)),
            Command::SetReflect(id, on) => {
                if let Some((_, lane)) = self.lane(id) {
                    lane.reflect = on;
                }
            }
            Command::SetBusyPoll(longest) => self.waiter.set_longest(longest),
            Command::Watch(on) => {
                self.watched = on;
                for i in self.lanes.places() {
                    if let Some(lane) = self.lanes.get_mut(i) {
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
                    self.report(Report::EchoRefused(id, request.id, request.sequence));
                }
            }
            Command::ToTap(id, frame) => {
                if let Some((_, lane)) = self.lane(id) {
                    receive::write_frame(lane, &frame);
                }
            }
            Command::Snapshot { tables, reply } => {
                // The asker may have given up waiting.
                let _ = reply.send(self.snapshot(now, tables));
            }
            Command::Stop => self.stop = true,
        }
    }

    /// The device's own address changed. With another queue pair it is another listener to peers,
    /// whatever the service ids; the core has ended the connections.
    fn set_local(&mut self, i: usize, now: Time, address: HardwareAddress) {
        let Some(lane) = self.lanes.get_mut(i) else {
            return;
        };
        let before = lane.core.local().qpn();
        lane.core.set_local(address);
        if address.qpn() != before {
            self.lanes.readdress(i);
            self.close_all(i);
            self.listen(i);
        }
        self.service(i, now);
    }

    fn on_core(&mut self, id: DeviceId, change: impl FnOnce(&mut ipoib::Ipoib)) {
        if let Some((_, lane)) = self.lane(id) {
            change(&mut lane.core);
        }
    }

    pub(super) fn lane(&mut self, id: DeviceId) -> Option<(usize, &mut Lane)> {
        let i = self.lanes.of_device(id)?;
        Some((i, self.lanes.get_mut(i)?))
    }

    /// Serves a lane from now on: its place.
    pub(super) fn add(&mut self, mut lane: Lane) -> Option<usize> {
        let id = lane.id;
        lane.core.watch(self.watched);
        let i = self.lanes.insert(lane);
        match self.watch_tap(At::Ip(i)) {
            Ok(()) => {
                self.listen(i);
                Some(i)
            }
            Err(e) => {
                self.lanes.remove(i);
                self.unwatchable(id, &e);
                None
            }
        }
    }

    pub(super) fn watch_tap(&mut self, at: At) -> io::Result<()> {
        let Some((tap, reads)) = self.tap(at) else {
            return Ok(());
        };
        let interest = lane_interest(self.paused || !reads);
        self.waiter.add(tap.as_fd(), at.token(), interest)?;
        if self.paused {
            self.muted.push(at);
        }
        Ok(())
    }

    /// A TAP that cannot be waited for is as good as gone.
    pub(super) fn unwatchable(&self, id: DeviceId, error: &io::Error) {
        log::error!(
            "data thread {}: cannot watch a TAP queue: {error}",
            self.index
        );
        self.report(Report::TapGone(id));
    }

    fn remove(&mut self, id: DeviceId, now: Time, counted: &Sender<EthernetSnapshot>) {
        if let Some(i) = self.lanes.of_device(id) {
            self.drop_lane(i);
        } else {
            self.remove_ethernet(id, now, counted);
        }
    }

    fn drop_lane(&mut self, i: usize) {
        self.close_all(i);
        self.forget_vlans(i);
        self.muted.retain(|muted| *muted != At::Ip(i));
        self.owed.retain(|owed| *owed != i);
        if let Some(mut lane) = self.lanes.remove(i) {
            if lane.vlan.is_none() {
                self.waiter.delete(lane.tap.as_fd());
            }
            lane.priorities.release_all();
            lane.core.release_all();
            lane.release_ahs(&mut *self.fabric, &mut self.train);
        }
    }

    pub(super) fn tap_failed(&mut self, at: At, error: &io::Error) {
        if !is_gone(error) {
            log::debug!("data thread {}: TAP read: {error}", self.index);
            return;
        }
        let id = match at {
            At::Ip(i) => self.lanes.get(i).map(|lane| lane.id),
            At::Ethernet(i) => self.ethernet.get(i).map(|lane| lane.id),
        };
        match at {
            At::Ip(i) => self.drop_lane(i),
            At::Ethernet(i) => drop(self.drop_ethernet(i)),
        }
        if let Some(id) = id {
            self.report(Report::TapGone(id));
        }
    }

    fn snapshot(&mut self, now: Time, tables: Tables) -> Snapshot {
        let connections = match self.fabric.connections() {
            Some(connections) if tables != Tables::None => connections.list(),
            _ => Vec::new(),
        };
        let devices = self.lanes.iter().map(|(i, lane)| DeviceSnapshot {
            id: lane.id,
            stats: lane.stats,
            core: lane.core.counters().named(),
            neighbours: if tables.has(lane.id) {
                lane.core.neighbours().collect()
            } else {
                Vec::new()
            },
            guests: if tables.has(lane.id) {
                lane.core.guests().collect()
            } else {
                Vec::new()
            },
            groups: if tables.has(lane.id) {
                lane.core.groups().collect()
            } else {
                Vec::new()
            },
            connection_count: self.connections.values().filter(|of| **of == i).count(),
            connections: connections
                .iter()
                .filter(|c| c.endpoint == lane.endpoint)
                .cloned()
                .collect(),
            peers: if tables.has(lane.id) {
                lane.core.connections().collect()
            } else {
                Vec::new()
            },
        });
        Snapshot {
            worker: WorkerSnapshot {
                worker: self.index,
                wakeups: self.wakeups,
                unserved: self.unserved,
                reports_lost: self.reports_lost + self.management.lost(),
                fabric: self.fabric.counters(),
            },
            devices: devices.collect(),
            ethernet: self.ethernet_snapshots(vnic::Time(now.0), tables),
        }
    }
}
