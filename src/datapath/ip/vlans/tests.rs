//! Tags that select partitions, in a data thread with a TAP and a VLAN on it.

use std::os::fd::OwnedFd;

use crossbeam_channel::unbounded;
use fabric::EndpointId;
use ipoib::Mode;
use netdev::vnet::VNET_HEADER_LEN;
use rustix::event::epoll;

use super::super::super::command::{Command, Tables};
use super::super::super::lane::LaneInit;
use super::super::super::testing::{Call, ENDPOINT, LINK, Rig, address, lane, settings, udp_frame};
use super::super::{IpInit, IpParts, IpSettings};
use super::*;

const VLAN: LinkId = LinkId(9);
const VLAN_ENDPOINT: EndpointId = EndpointId(90);
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

struct Trunk {
    rig: Rig,
    host: OwnedFd,
    events: Vec<epoll::Event>,
}

fn vlan(vid: u16) -> VlanLane {
    let init = IpInit {
        base: LaneInit {
            pkey: fabric::PKey::new(0x8000 | vid),
            id: VLAN,
            endpoint: VLAN_ENDPOINT,
            uso: false,
        },
        scope: 2,
        services: fabric::Services::Any,
        connections: ipoib::Limits::default().connections,
    };
    let settings = IpSettings {
        local: address(0x55),
        mode: Mode::Datagram,
        stacked: true,
        ..settings(0)
    };
    VlanLane {
        trunk: LINK,
        vid,
        parts: IpParts::new(&init, settings),
    }
}

impl Trunk {
    fn new() -> Trunk {
        let rig = Rig::new();
        let (lane, host) = lane(0);
        rig.commands.send(Command::AddLane(Box::new(lane)));
        rig.commands.send(Command::SetVlans(LINK, true));
        let events = Vec::with_capacity(8);
        let mut trunk = Trunk { rig, host, events };
        trunk.round();
        trunk
    }

    fn with(vid: u16) -> Trunk {
        let mut trunk = Trunk::new();
        trunk.command(Command::AddVlan(Box::new(vlan(vid))));
        trunk
    }

    fn round(&mut self) {
        self.rig.thread.round(&mut self.events).unwrap();
    }

    fn command(&mut self, command: Command) {
        self.rig.commands.send(command);
        self.round();
    }

    /// The host sends a frame.
    fn send(&mut self, frame: &[u8]) {
        let raw = [&[0; VNET_HEADER_LEN], frame].concat();
        rustix::io::write(&self.host, &raw).unwrap();
        self.round();
    }

    /// The sent datagrams.
    fn sent(&mut self) -> Vec<(EndpointId, Vec<u8>)> {
        let mut state = self.rig.state.lock().unwrap();
        let froms = std::mem::take(&mut state.from);
        let calls = std::mem::take(&mut state.calls);
        let sends = calls.into_iter().filter_map(|call| match call {
            Call::Send(_, packets) => Some(packets.concat()),
            _ => None,
        });
        froms.into_iter().zip(sends).collect()
    }

    fn read(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 16];
        let len = rustix::io::read(&self.host, &mut frame).ok()?;
        Some(frame[VNET_HEADER_LEN..len].to_vec())
    }

    /// VLAN ids reported since the previous call.
    fn reported(&self) -> Vec<u16> {
        let vid = |report| match report {
            Report::Vlan(LINK, vid) => Some(vid),
            _ => None,
        };
        self.rig.reports.try_iter().filter_map(vid).collect()
    }

    fn stats(&mut self, id: LinkId) -> IpStats {
        let (reply, snapshot) = unbounded();
        self.rig.commands.send(Command::Snapshot {
            tables: Tables::None,
            reply,
        });
        self.round();
        let links = snapshot.try_recv().unwrap().ip;
        links.into_iter().find(|l| l.id == id).unwrap().stats
    }
}

/// A broadcast of the host, with these tags.
fn broadcast(tags: &[u16]) -> Vec<u8> {
    let mut frame = udp_frame(40);
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&OWN_MAC);
    // To 255.255.255.255.
    frame[30..34].fill(0xff);
    for tag in tags.iter().rev() {
        let bytes = [0x81, 0, (tag >> 8) as u8, *tag as u8];
        frame.splice(12..12, bytes);
    }
    frame
}

#[test]
fn a_tag_selects_the_lane_and_is_removed() {
    let mut trunk = Trunk::with(5);
    trunk.send(&broadcast(&[]));
    trunk.send(&broadcast(&[5]));
    trunk.send(&broadcast(&[0x6000 | 5]));
    trunk.send(&broadcast(&[0xe000]));
    let sent = trunk.sent();
    let from: Vec<EndpointId> = sent.iter().map(|(from, _)| *from).collect();
    assert_eq!(from, [ENDPOINT, VLAN_ENDPOINT, VLAN_ENDPOINT, ENDPOINT]);
    let packet = broadcast(&[])[14..].to_vec();
    assert!(
        sent.iter()
            .all(|(_, p)| p[..4] == [8, 0, 0, 0] && p[4..] == packet)
    );
    let state = trunk.rig.state.lock().unwrap();
    let classes: Vec<u8> = state.handles.iter().map(|a| a.traffic_class).collect();
    assert_eq!(classes, [0, 0, 3 << 5, 7 << 5]);
}

#[test]
fn packets_for_a_vlan_are_written_with_its_tag() {
    let mut trunk = Trunk::with(5);
    trunk.command(Command::ToTap(VLAN, broadcast(&[]).into()));
    assert_eq!(trunk.read().unwrap(), broadcast(&[5]));
    trunk.command(Command::ToTap(LINK, broadcast(&[]).into()));
    assert_eq!(trunk.read().unwrap(), broadcast(&[]));
}

#[test]
fn a_vlan_that_is_not_served_is_counted_and_reported_once() {
    let mut trunk = Trunk::with(5);
    for _ in 0..3 {
        trunk.send(&broadcast(&[6]));
    }
    trunk.send(&broadcast(&[0x2000 | 7]));
    // Reserved (IEEE 802.1Q-2018, table 9-2).
    trunk.send(&broadcast(&[0xfff]));
    assert_eq!(trunk.reported(), [6, 7]);
    trunk.command(Command::SetVlans(LINK, true));
    trunk.send(&broadcast(&[6]));
    trunk.send(&broadcast(&[5]));
    assert_eq!(trunk.reported(), [6]);
    assert_eq!(trunk.sent().len(), 1, "VLAN 5 is still served");
    let stats = trunk.stats(LINK);
    assert_eq!((stats.tx_vlan_unserved, stats.tx_dropped), (6, 6));
}

#[test]
fn double_and_truncated_tags_are_dropped() {
    let mut trunk = Trunk::with(5);
    let mut hostile = vec![broadcast(&[5, 6]), broadcast(&[0, 5])];
    hostile.extend((0..18).map(|len| broadcast(&[5])[..len].to_vec()));
    let count = hostile.len() as u64;
    for frame in hostile {
        trunk.send(&frame);
    }
    assert!(trunk.sent().is_empty() && trunk.read().is_none());
    let dropped = trunk.stats(LINK).tx_dropped + trunk.stats(VLAN).tx_dropped;
    assert_eq!(dropped, count);
}

#[test]
fn removing_a_vlan_leaves_its_tap_in_service() {
    let mut trunk = Trunk::with(5);
    let (done, _) = unbounded();
    trunk.command(Command::RemoveLane(VLAN, done));
    trunk.send(&broadcast(&[5]));
    trunk.send(&broadcast(&[]));
    assert_eq!(trunk.reported(), [5]);
    let sent = trunk.sent();
    assert_eq!((sent.len(), sent[0].0), (1, ENDPOINT));
    // Tags no longer select partitions.
    trunk.command(Command::SetVlans(LINK, false));
    trunk.send(&broadcast(&[5]));
    assert!(trunk.reported().is_empty());
    assert_eq!(trunk.stats(LINK).tx_vlan_unserved, 1);
}

#[test]
fn a_vlan_without_its_interface_is_not_served() {
    let mut trunk = Trunk::new();
    let (done, _) = unbounded();
    trunk.command(Command::RemoveLane(LINK, done));
    trunk.command(Command::AddVlan(Box::new(vlan(5))));
    assert!(trunk.rig.thread.ip.lanes.places().is_empty());
}
