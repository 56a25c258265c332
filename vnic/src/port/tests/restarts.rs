//! A host ends without a word and starts again with another queue pair, after a flood of forged frames in its name.

use proto::{Qpn, Time};

use super::floods::{GUEST, HOME, SOON, forge};
use super::replicas::{cross, pair};
use super::world::Random;
use crate::directory::NodeAddress;
use crate::port::testing::*;
use crate::port::{Settings, VeswPort};

/// LID of the host's peer, which gets the flood.
const PEER: u32 = 5;
/// Milliseconds between two frames of each replica.
const EVERY: u64 = 20;
/// Milliseconds from the host's end to its start.
const DOWN: u64 = 200;
/// Milliseconds after the end of the host until the longest pause must be over.
const LATEST: u64 = 5000;

fn host(local: NodeAddress) -> [VeswPort; 2] {
    [true, false].map(|reports| {
        let settings = Settings {
            reports,
            local,
            ..settings(HOME)
        };
        port_with(settings, &info(HOME))
    })
}

/// Frames in one direction: when the last frame of each replica arrived, and the longest pause, in milliseconds.
#[derive(Default)]
struct Direction {
    arrived: [u64; 2],
    longest: u64,
}

impl Direction {
    /// Sends a frame, which a replica of the other side receives if the side runs.
    fn send(
        &mut self,
        now: u64,
        (sender, number, local): (&mut VeswPort, usize, NodeAddress),
        frame: &[u8],
        receiver: Option<(&mut VeswPort, NodeAddress)>,
    ) {
        let Sent::Packet(_, (gid, qpn), bytes) = send_at(sender, now, frame) else {
            panic!("each frame is sent");
        };
        let by_group = qpn == Qpn::MULTICAST;
        let meta = from_address(local, by_group);
        let is_received = receiver.is_some_and(|(port, address)| {
            (by_group || address == NodeAddress { gid, qpn })
                && port.from_fabric(Time(now), &meta, &bytes).is_ok()
        });
        if is_received {
            self.pause_until(now, number);
            self.arrived[number] = now;
        }
    }

    fn pause_until(&mut self, now: u64, number: usize) {
        self.longest = self.longest.max(now - self.arrived[number]);
    }
}

/// Each replica of the host and of its peer sends a frame every 20 ms. The host ends `after` milliseconds after the start
/// of the flood. Returns the longest pauses from the host, and to it.
fn longest_pauses(seed: u64, after: u64) -> [u64; 2] {
    let mut random = Random::new(seed);
    let (mut peer, mut local) = (pair(), address(HOME));
    let mut running = Some(host(local));
    let (flood, ends) = (SOON..SOON + 500, SOON + after);
    // The replica that receives what a replica sends.
    let mut receivers = || [0, 1].map(|_| random.below(2));
    let routes = [receivers(), receivers()];
    let crossing = 5 + random.below(95);
    let mut ways = [Direction::default(), Direction::default()];
    for now in 1..ends + LATEST {
        if now == ends {
            running = None;
        }
        if now == ends + DOWN {
            local.qpn = Qpn::new(0xabc);
            running = Some(host(local));
        }
        for _ in 0..if flood.contains(&now) { 20 } else { 0 } {
            let at = random.below(2);
            forge(&mut random, &mut peer[at], now);
        }
        for at in if now.is_multiple_of(EVERY) {
            0..2
        } else {
            0..0
        } {
            if let Some(host) = &mut running {
                let sender = (&mut host[at], at, local);
                let receiver = Some((&mut peer[routes[0][at]], address(PEER)));
                ways[0].send(now, sender, &frame(mac(PEER), GUEST), receiver);
            }
            let sender = (&mut peer[at], at, address(PEER));
            let host = running.as_mut().map(|host| &mut host[routes[1][at]]);
            let receiver = host.map(|host| (host, local));
            ways[1].send(now, sender, &frame(GUEST, mac(PEER)), receiver);
        }
        if random.percent(crossing) {
            cross(now, &mut peer);
            running.iter_mut().for_each(|host| cross(now, host));
        }
    }
    ways.map(|mut way| {
        (0..2).for_each(|number| way.pause_until(ends + LATEST, number));
        way.longest
    })
}

/// Frames of the host arrive as soon as the host sends, and frames to the host go to all members after 1.2 s, although
/// the peer keeps the former queue pair of the host.
#[test]
fn a_host_that_restarts_after_a_flood_gets_frames_within_its_time_of_silence() {
    for seed in 1..=40 {
        let after = 600 + 240 * seed;
        let [from, to] = longest_pauses(seed, after);
        let case = format!("seed {seed}, {after} ms after the flood");
        assert!(from <= DOWN + EVERY, "{case}: {from} ms from the host");
        assert!(to <= 1200 + 2 * EVERY, "{case}: {to} ms to the host");
    }
}
