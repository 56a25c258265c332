use std::cell::Cell;

use control::api::PortState;

use super::*;
use crate::api::DrainRequest;
use crate::config::Config;
use crate::engine::Engine;
use crate::runtime::tests::{Fake, attached, candidate};

/// Records saved states; a full disk accepts none.
#[derive(Debug, Default)]
pub struct FakeDisk {
    pub full: bool,
    pub kept: Cell<usize>,
}

impl Disk for FakeDisk {
    fn keep(&self, _: &State) -> Result<(), StateError> {
        self.kept.set(self.kept.get() + 1);
        match self.full {
            true => Err(StateError("no space left".into())),
            false => Ok(()),
        }
    }
}

/// Records the number of saves before each message.
struct FakeWay<'a> {
    disk: &'a FakeDisk,
    room: usize,
    sent: Vec<usize>,
}

impl Way for FakeWay<'_> {
    fn has_room(&self) -> bool {
        self.sent.len() < self.room
    }
    fn send(&mut self, _: Outgoing) {
        self.sent.push(self.disk.kept.get());
    }
}

fn run(changes: usize, most: usize, room: usize, full: bool) -> (bool, Vec<usize>, usize) {
    let engine = Fake {
        changes,
        ..Fake::default()
    };
    let mut runtime = Runtime::new(engine, candidate(1), vec![], 7);
    let disk = FakeDisk {
        full,
        ..FakeDisk::default()
    };
    let mut way = FakeWay {
        disk: &disk,
        room,
        sent: vec![],
    };
    let more = send(&mut runtime, Time(0), &disk, &mut way, most);
    (more, way.sent, disk.kept.get())
}

#[test]
fn what_waits_for_the_disk_is_kept_and_sent_in_the_same_turn() {
    assert_eq!(run(3, 100, 100, false), (false, vec![1, 2, 3], 3));
    assert_eq!(run(0, 100, 100, false), (false, vec![], 0));
    // A full disk does not stop messages.
    assert_eq!(run(3, 100, 100, true), (false, vec![1, 2, 3], 3));
}

#[test]
fn a_turn_ends_and_reports_that_more_is_due() {
    let (more, sent, _) = run(5, 2, 100, false);
    assert!(more);
    assert_eq!(sent.len(), 2);
    let (more, sent, _) = run(5, 100, 2, false);
    assert!(!more, "nothing is due without room");
    assert_eq!(sent.len(), 2);
}

#[test]
fn without_room_time_goes_on_and_no_deadline_stays_in_the_past() {
    let mut runtime = Runtime::new(Fake::default(), candidate(1), vec![], 7);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    let disk = FakeDisk::default();
    let mut way = FakeWay {
        disk: &disk,
        room: 0,
        sent: vec![],
    };
    let mut now = Time(0);
    let mut turns = 0;
    while now < Time(20_000) {
        runtime.advance(now);
        assert!(!send(&mut runtime, now, &disk, &mut way, 100));
        let next = runtime.next_deadline().expect("it announces itself");
        assert!(next > now, "the manager would spin");
        now = next;
        turns += 1;
    }
    assert!(turns < 100, "{turns} turns in 20 s");
    // The manager ran all the time and becomes active.
    assert_eq!(runtime.role(), crate::api::Role::Active);
}

/// An engine that could not save its state at time 0, and the disk, which has space now.
fn after_a_full_disk() -> (Runtime<Engine>, FakeDisk) {
    let config = Config::parse("[[vesw]]\nname = \"a\"\nid = 1\nmembers = [\"*\"]\n", "t").unwrap();
    let engine = Engine::new(config, State::default(), 7);
    let mut runtime = Runtime::new(engine, candidate(1), vec![], 7);
    let mut disk = FakeDisk {
        full: true,
        ..FakeDisk::default()
    };
    save(&mut runtime, Time(0), &disk);
    assert!(runtime.engine.save_problem().is_some());
    disk.full = false;
    // It is too early to retry.
    assert!(!save(&mut runtime, Time(1000), &disk));
    assert_eq!(disk.kept.get(), 1);
    (runtime, disk)
}

#[test]
fn the_last_attempt_to_save_does_not_wait_for_the_retry_time() {
    let (mut runtime, disk) = after_a_full_disk();
    save_last(&mut runtime, &disk);
    assert_eq!(disk.kept.get(), 2);
    assert_eq!(runtime.engine.save_problem(), None);
    // All is saved.
    save_last(&mut runtime, &disk);
    assert_eq!(disk.kept.get(), 2);
}

#[test]
fn a_drain_is_saved_before_the_retry_time() {
    let (mut runtime, mut disk) = after_a_full_disk();
    let request = DrainRequest {
        target: "a".into(),
        undo: false,
    };
    runtime.engine.drain(Time(1000), &request).unwrap();
    save(&mut runtime, Time(1000), &disk);
    assert_eq!(disk.kept.get(), 2);
    assert_eq!(runtime.engine.save_problem(), None);
    // A drain that is not saved does not end the retries.
    disk.full = true;
    runtime.engine.drain(Time(2000), &request).unwrap();
    save(&mut runtime, Time(2000), &disk);
    assert!(runtime.engine.save_problem().is_some());
    disk.full = false;
    assert!(!save(&mut runtime, Time(11_999), &disk));
    assert!(save(&mut runtime, Time(12_000), &disk));
    assert_eq!(runtime.engine.save_problem(), None);
}
