//! More active addresses behind an interface than the port keeps.

use proto::{Mac, Time};

use crate::Lid;
use crate::port::testing::*;
use crate::port::{Event, Place, Settings, VeswPort};

/// Maximum number of kept addresses.
const KEPT: usize = 256;

fn guest(n: usize) -> Mac {
    let [a, b] = (n as u16).to_be_bytes();
    [0x52, 0x54, 0, 0, a, b]
}

fn hear_far(port: &mut VeswPort, now: u64, source: Mac) {
    let packet = packet(&header(7, ALL), &frame(BROADCAST, source));
    let got = port.from_fabric(Time(now), &from(7, true), &packet);
    assert!(got.is_ok(), "{got:?}");
}

/// Two replicas; each guest uses one of them.
struct Pair {
    ports: [VeswPort; 2],
    events: Vec<Event>,
}

impl Pair {
    fn new() -> Pair {
        let replica = |reports| {
            let settings = Settings {
                reports,
                ..settings(5)
            };
            port_with(settings, &info(5))
        };
        Pair {
            ports: [true, false].map(replica),
            events: Vec::new(),
        }
    }

    fn speaks(&mut self, now: u64, n: usize) {
        let sent = send_at(&mut self.ports[n % 2], now, &frame(BROADCAST, guest(n)));
        assert!(sent.by_group(), "every guest's frames leave");
        self.share(now);
    }

    fn share(&mut self, now: u64) {
        for from in [0, 1] {
            let updates: Vec<_> = self.ports[from].drain_updates().collect();
            for update in updates {
                self.ports[1 - from].apply(Time(now), &update);
            }
        }
    }

    fn time(&mut self, now: u64) {
        for port in &mut self.ports {
            port.handle_timeout(Time(now));
            let events = std::iter::from_fn(|| port.poll_event());
            self.events.extend(events);
        }
    }

    fn refused(&self) -> u64 {
        let [one, two] = &self.ports;
        one.counters().mac_refused + two.counters().mac_refused
    }
}

#[test]
fn active_addresses_are_not_evicted_and_one_event_is_reported() {
    let mut pair = Pair::new();
    let first: Vec<Mac> = (0..KEPT).map(guest).collect();
    let rounds = (0..1_000_000).step_by(10_000);
    for now in rounds.clone() {
        for n in 0..KEPT + 44 {
            pair.speaks(now, n);
        }
        pair.time(now + 1000);
        for port in &pair.ports {
            assert_eq!(port.local_macs(), first, "after {now} ms");
        }
    }
    let expected = [Event::Crowded(KEPT), Event::LocalMacs(first)];
    assert!(expected.iter().all(|event| pair.events.contains(event)));
    assert_eq!(pair.events.len(), 2, "{:?}", pair.events);
    assert_eq!(pair.refused(), 44 * rounds.count() as u64);
}

#[test]
fn a_silent_address_makes_room() {
    let mut pair = Pair::new();
    for now in (0..170_000).step_by(10_000) {
        for n in 0..KEPT + 1 {
            // The third guest becomes silent.
            if n != 2 || now == 0 {
                pair.speaks(now, n);
            }
        }
        pair.time(now + 1000);
        let kept = pair.ports[0].local_macs();
        assert_eq!(kept.contains(&guest(2)), now <= 150_000, "{now}");
        assert_eq!(kept.contains(&guest(KEPT)), now > 150_000, "{now}");
    }
}

/// A guest that moves here and is not kept has no location: frames for it go to all members.
#[test]
fn a_refused_address_has_no_location() {
    let mut pair = Pair::new();
    for n in 0..KEPT {
        pair.speaks(0, n);
    }
    let moved = guest(KEPT);
    hear_far(&mut pair.ports[1], 1, moved);
    pair.share(1);
    pair.speaks(2, KEPT);
    for port in &mut pair.ports {
        let to_it = send_at(port, 3, &frame(moved, mac(5)));
        assert!(to_it.by_group(), "{to_it:?}");
        let known = port.learned(Time(3)).find(|info| info.mac == moved);
        assert_eq!(known, None);
    }
    // A packet from a member sets its location again.
    hear_far(&mut pair.ports[0], 4, moved);
    let mut learned = pair.ports[0].learned(Time(4));
    let at = learned
        .find(|info| info.mac == moved)
        .map(|info| info.place);
    assert_eq!(at, Some(Place::At(Lid::new(7))));
}
