use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use fabric::EndpointId;
use ipoib::{Event, Limits, Mode, Update};
use netdev::vnet::VnetHeader;
use zerocopy::IntoBytes;

use super::super::command::Command;
use super::super::ethernet::testing::{vnic_endpoint, vnic_lane, vnic_mac};
use super::super::ip::IpSettings;
use super::super::testing::{Call, Rig, address, lane_of, settings, udp_frame};
use super::*;

#[test]
fn the_fabric_s_deadline_is_handled_in_time() {
    let rig = Rig::new();
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(1));
    assert_eq!(rig.run([]), [Call::Timeout, Call::Flush]);
    let rig = Rig::new();
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(u64::MAX));
    assert_eq!(rig.run([]), [Call::Flush]);
}

#[test]
fn the_thread_sleeps_until_the_fabric_s_deadline() {
    let mut rig = Rig::new();
    assert_eq!(rig.thread.timeout(), None);
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(1));
    let past = rig.thread.timeout().unwrap();
    assert_eq!((past.tv_sec, past.tv_nsec), (0, 0));
    let later = nanoseconds() + 5_000_000_000;
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(later));
    let left = rig.thread.timeout().unwrap();
    assert!(left.tv_sec < 5 && (left.tv_sec, left.tv_nsec) > (0, 0));
}

/// The peer with 10.0.0.2 has restarted. Another thread has learned the new queue pair from an ARP request, and the host's
/// answer comes from this thread's TAP.
#[test]
fn an_answer_of_the_host_goes_to_the_peer_that_another_thread_has_just_learned() {
    let mut rig = Rig::new();
    let (lane, host) = lane_of(0, 0);
    let id = lane.base.id;
    let mac = |qpn: u32| [2, 0, 0, 0, 0, qpn as u8];
    let learned = |qpn| {
        let update = Update::Learned {
            address: address(qpn),
            mac: mac(qpn),
            ip: Some(IpAddr::from([10, 0, 0, 2])),
        };
        Command::Update(id, update)
    };
    rig.commands.send(Command::AddLane(Box::new(lane)));
    rig.commands.send(learned(0x98));
    let mut events = Vec::with_capacity(8);
    rig.thread.round(&mut events).unwrap();
    let frame = [&mac(0x99)[..], &settings(0).mac, &udp_frame(10)[12..]].concat();
    let raw = [VnetHeader::default().as_bytes(), &frame].concat();
    // In this order, epoll reports the TAP first.
    rustix::io::write(&host, &raw).unwrap();
    rig.commands.send(learned(0x99));
    rig.thread.round(&mut events).unwrap();
    let calls = std::mem::take(&mut rig.state.lock().unwrap().calls);
    let to = calls.iter().filter_map(|call| match call {
        Call::Send(to, _) => Some(to.qpn.get()),
        _ => None,
    });
    assert_eq!(to.collect::<Vec<_>>(), [0x99]);
}

/// Both TAPs always have frames, and those of one TAP use up the room.
#[test]
fn taps_take_turns_at_the_room() {
    const TURNS: usize = 40;
    let mut rig = Rig::new();
    let hosts = [0, 1].map(|n| {
        let (lane, host) = vnic_lane(n, 1500);
        rig.commands.send(Command::AddEthernet(Box::new(lane)));
        host
    });
    rig.state.lock().unwrap().fills = true;
    let mut events = Vec::with_capacity(8);
    for _ in 0..TURNS {
        for (n, host) in (0..).zip(&hosts) {
            let frame = [&[0xff; 6][..], &vnic_mac(n), &[8, 6], &[0; 46]].concat();
            let raw = [VnetHeader::default().as_bytes(), &frame].concat();
            // The queue may be full.
            while rustix::io::write(host, &raw).is_ok() {}
        }
        rig.state.lock().unwrap().full = false;
        // Without an event the thread would sleep for ever.
        rig.commands.send(Command::Watch(false));
        rig.thread.round(&mut events).unwrap();
    }
    let from = rig.state.lock().unwrap().from.clone();
    for n in [0, 1] {
        let trains = from.iter().filter(|from| **from == vnic_endpoint(n));
        let trains = trains.count();
        assert!(trains >= TURNS / 5, "{trains} trains of VNIC {n}: {from:?}");
    }
}

/// The control side counts the guests, so a missing report keeps a guest counted.
#[test]
fn a_guest_that_an_address_of_the_host_replaces_is_reported_at_once() {
    let mut rig = Rig::new();
    let (lane, _host) = lane_of(0, 16);
    let id = lane.base.id;
    rig.commands.send(Command::AddLane(Box::new(lane)));
    let guest = |n: usize| IpAddr::from(Ipv4Addr::from(0x0a01_0000 + n as u32));
    for n in 0..Limits::default().guests {
        let update = Update::Guest {
            ip: guest(n),
            mac: [0x52, 0x54, 0, 0, 0, 1],
            weak: false,
            router: None,
            unannounced: false,
        };
        rig.commands.send(Command::Update(id, update));
    }
    let own = Ipv4Addr::new(10, 0, 0, 1);
    rig.commands.send(Command::HostHas(id, own.into()));
    rig.thread.commands(Time(0));
    let forgotten = rig.reports.try_iter().map(|report| match report {
        Report::Event(of, Event::GuestForgotten { ip }, _) if of == id => ip,
        other => panic!("{other:?}"),
    });
    assert_eq!(forgotten.collect::<Vec<_>>(), [guest(0)]);
}

/// An interface in connected mode, one in datagram mode, and a VNIC.
#[test]
fn a_full_connection_stops_only_interfaces_in_connected_mode() {
    let mut rig = Rig::new();
    let (connected, in_connected_mode) = lane_of(0, 16);
    let (mut datagrams, in_datagram_mode) = lane_of(1, 16);
    let mode = Mode::Datagram;
    let in_mode = IpSettings {
        mode,
        ..settings(1)
    };
    datagrams.apply(Time(0), in_mode);
    let (ethernet, of_vnic) = vnic_lane(0, 1500);
    for lane in [connected, datagrams] {
        rig.commands.send(Command::AddLane(Box::new(lane)));
    }
    rig.commands.send(Command::AddEthernet(Box::new(ethernet)));
    let mut events = Vec::with_capacity(8);
    rig.thread.round(&mut events).unwrap();
    let mut sent = Vec::new();
    // Each host sends a frame. Returns the senders and the muted TAPs.
    let mut frames_while = |full, full_connection| {
        for (host, mac) in [
            (&in_connected_mode, settings(0).mac),
            (&in_datagram_mode, settings(1).mac),
            (&of_vnic, vnic_mac(0)),
        ] {
            let frame = [&[0xff; 6][..], &mac, &udp_frame(10)[12..]].concat();
            let raw = [VnetHeader::default().as_bytes(), &frame].concat();
            rustix::io::write(host, &raw).unwrap();
        }
        let mut state = rig.state.lock().unwrap();
        (state.full, state.full_connection) = (full, full_connection);
        drop(state);
        for _ in 0..3 {
            // Without an event the thread would sleep for ever.
            rig.commands.send(Command::Watch(false));
            rig.thread.round(&mut events).unwrap();
        }
        let mut state = rig.state.lock().unwrap();
        sent.append(&mut state.calls);
        let from = BTreeSet::from_iter(std::mem::take(&mut state.from));
        (from, rig.thread.pace.muted.len())
    };
    let all = BTreeSet::from([EndpointId(200), EndpointId(201), vnic_endpoint(0)]);
    let others = BTreeSet::from([EndpointId(201), vnic_endpoint(0)]);
    assert_eq!(frames_while(false, false), (all.clone(), 0));
    assert_eq!(frames_while(false, true), (others.clone(), 1));
    assert_eq!(frames_while(true, true), (BTreeSet::new(), 3));
    assert_eq!(frames_while(false, true), (others, 1));
    assert_eq!(frames_while(false, false), (all, 0));
    let packets = |call: &Call| match call {
        Call::Send(_, packets) => packets.len(),
        _ => 0,
    };
    let sent: usize = sent.iter().map(packets).sum();
    assert_eq!(sent, 5 * 3, "the frames waited in the TAPs");
}
