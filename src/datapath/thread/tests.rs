use netdev::vnet::VnetHeader;
use zerocopy::IntoBytes;

use super::super::command::Command;
use super::super::ethernet::testing::{vnic_endpoint, vnic_lane, vnic_mac};
use super::super::testing::{Call, Rig};
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
