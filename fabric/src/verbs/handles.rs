//! The address handles of a worker: made elsewhere, shared by all who ask for the same, kept for a
//! while when nobody needs them.
//!
//! Making one may take seconds on RoCE, where it resolves a MAC. So a handle has a number at once, and
//! an object `H` of the device's later; what is sent to it meanwhile waits.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use proto::backoff::Backoff;
use proto::{AddressHandle, Instant};

use crate::worker::AhAttributes;

/// Handles at most.
const CAPACITY: usize = 1 << 16;

/// Handles that nobody uses, kept in case somebody will.
const IDLE_MAX: usize = 1024;

/// Waits after a handle could not be made.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A handle that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its number.
    pub handle: AddressHandle,
    /// The device and GID that it is for: an answer for others is thrown away.
    pub epoch: u64,
    /// What from.
    pub attributes: AhAttributes,
}

/// What a send finds.
#[derive(Debug)]
pub enum Found<H> {
    /// The device's object.
    Ready(Arc<H>),
    /// It is being made.
    Making,
    /// There is no such handle, or it cannot be made now.
    Failed,
}

#[derive(Debug)]
enum State<H> {
    Making,
    Ready(Arc<H>),
    Failed,
}

#[derive(Debug)]
struct Entry<H> {
    attributes: AhAttributes,
    users: u32,
    state: State<H>,
    backoff: Backoff,
}

/// The table.
#[derive(Debug)]
pub struct AddressHandles<H> {
    places: Vec<Option<Entry<H>>>,
    free: Vec<u32>,
    by_attributes: HashMap<AhAttributes, u32, foldhash::fast::RandomState>,
    /// Those without users, the longest idle first; some may have users again.
    idle: VecDeque<u32>,
    idle_count: usize,
    epoch: u64,
    wanted: Vec<Wanted>,
    /// Objects that have left the table; a posted send may still name them.
    ended: Vec<Arc<H>>,
}

impl<H> Default for AddressHandles<H> {
    fn default() -> AddressHandles<H> {
        AddressHandles {
            places: Vec::new(),
            free: Vec::new(),
            by_attributes: HashMap::default(),
            idle: VecDeque::new(),
            idle_count: 0,
            epoch: 0,
            wanted: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl<H> AddressHandles<H> {
    /// A handle with these attributes: the one that there is, or a new one.
    ///
    /// # Errors
    /// ENOSPC if there are too many.
    pub fn create(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle> {
        if let Some(&at) = self.by_attributes.get(attributes) {
            self.hold(AddressHandle(at));
            return Ok(AddressHandle(at));
        }
        let at = self.free_place()?;
        self.places[at as usize] = Some(Entry {
            attributes: *attributes,
            users: 1,
            state: State::Making,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
        });
        self.by_attributes.insert(*attributes, at);
        self.want(at, *attributes);
        Ok(AddressHandle(at))
    }

    fn free_place(&mut self) -> io::Result<u32> {
        if let Some(at) = self.free.pop() {
            return Ok(at);
        }
        if self.places.len() == CAPACITY {
            self.evict();
            return self
                .free
                .pop()
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.places.push(None);
        Ok(self.places.len() as u32 - 1)
    }

    fn want(&mut self, at: u32, attributes: AhAttributes) {
        self.wanted.push(Wanted {
            handle: AddressHandle(at),
            epoch: self.epoch,
            attributes,
        });
    }

    fn entry(&mut self, handle: AddressHandle) -> Option<&mut Entry<H>> {
        self.places.get_mut(handle.0 as usize)?.as_mut()
    }

    /// One more uses a handle.
    pub fn hold(&mut self, handle: AddressHandle) {
        if let Some(entry) = self.entry(handle) {
            entry.users += 1;
            let was_idle = entry.users == 1;
            self.idle_count -= usize::from(was_idle);
        }
    }

    /// One fewer uses a handle; one without users is left alone.
    pub fn release(&mut self, handle: AddressHandle) {
        let Some(entry) = self.entry(handle).filter(|e| e.users > 0) else {
            return;
        };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        self.idle_count += 1;
        self.idle.push_back(handle.0);
        if self.idle_count > IDLE_MAX {
            self.evict();
        }
        // What came back from idleness is in the queue more than once.
        if self.idle.len() > 2 * IDLE_MAX + 16 {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        let mut seen = std::collections::HashSet::new();
        let places = &self.places;
        let idle = |at: &u32| {
            let entry = places.get(*at as usize).and_then(Option::as_ref);
            entry.is_some_and(|e| e.users == 0) && seen.insert(*at)
        };
        // The latest of several counts.
        let mut kept: Vec<u32> = self.idle.iter().rev().copied().filter(idle).collect();
        kept.reverse();
        self.idle = kept.into();
    }

    /// Ends the handle that has been idle longest.
    fn evict(&mut self) {
        while let Some(at) = self.idle.pop_front() {
            let entry = self.places.get(at as usize).and_then(Option::as_ref);
            if entry.is_some_and(|e| e.users == 0) {
                self.remove(at);
                return;
            }
        }
    }

    fn remove(&mut self, at: u32) {
        let Some(entry) = self.places.get_mut(at as usize).and_then(Option::take) else {
            return;
        };
        self.by_attributes.remove(&entry.attributes);
        self.idle_count -= usize::from(entry.users == 0);
        self.free.push(at);
        if let State::Ready(object) = entry.state {
            self.ended.push(object);
        }
    }

    /// What a send to a handle finds. One that failed is asked for again when its wait is over.
    pub fn find(&mut self, handle: AddressHandle, now: Instant) -> Found<H> {
        let Some(entry) = self.entry(handle) else {
            return Found::Failed;
        };
        match &entry.state {
            State::Ready(object) => Found::Ready(Arc::clone(object)),
            State::Making => Found::Making,
            State::Failed if entry.backoff.may_try(now) => {
                entry.state = State::Making;
                let attributes = entry.attributes;
                self.want(handle.0, attributes);
                Found::Making
            }
            State::Failed => Found::Failed,
        }
    }

    /// An answer has come.
    pub fn made(&mut self, wanted: &Wanted, object: io::Result<H>, now: Instant) {
        let current = wanted.epoch == self.epoch;
        let entry = self.entry(wanted.handle).filter(|e| {
            current && e.attributes == wanted.attributes && matches!(e.state, State::Making)
        });
        match (entry, object) {
            (Some(entry), Ok(object)) => {
                entry.state = State::Ready(Arc::new(object));
                entry.backoff.succeeded();
            }
            (Some(entry), Err(_)) => {
                entry.state = State::Failed;
                entry.backoff.failed(now);
            }
            (None, Ok(object)) => self.ended.push(Arc::new(object)),
            (None, Err(_)) => {}
        }
    }

    /// The device or the port's GID is another one: all handles are made anew.
    pub fn renew(&mut self) {
        self.epoch += 1;
        self.wanted.clear();
        for at in 0..self.places.len() as u32 {
            let Some(entry) = self.places[at as usize].as_mut() else {
                continue;
            };
            if entry.users == 0 {
                self.remove(at);
                continue;
            }
            entry.backoff.succeeded();
            let attributes = entry.attributes;
            if let State::Ready(object) = std::mem::replace(&mut entry.state, State::Making) {
                self.ended.push(object);
            }
            self.want(at, attributes);
        }
        self.idle.clear();
    }

    /// The handles that are to be made.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// Objects that nobody names any more, to be given up where that may take its time.
    pub fn take_ended(&mut self) -> Vec<Arc<H>> {
        if self.ended.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.ended);
        let (over, named) = all.into_iter().partition(|o| Arc::strong_count(o) == 1);
        self.ended = named;
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(n: u32) -> AhAttributes {
        let mut gid = [0xfe; 16];
        gid[12..].copy_from_slice(&n.to_be_bytes());
        AhAttributes::to(proto::Gid(gid))
    }

    fn make_all(t: &mut AddressHandles<u32>) {
        for wanted in t.take_wanted() {
            t.made(&wanted, Ok(wanted.handle.0), Instant(0));
        }
    }

    #[test]
    fn equal_attributes_share_a_handle_and_it_is_made_once() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        assert!(matches!(t.find(a, Instant(0)), Found::Making));
        assert_eq!(t.create(&to(1)).unwrap(), a);
        assert_ne!(t.create(&to(2)).unwrap(), a);
        assert_eq!(t.wanted.len(), 2);
        make_all(&mut t);
        assert!(matches!(t.find(a, Instant(0)), Found::Ready(o) if *o == a.0));
    }

    #[test]
    fn one_that_failed_is_tried_again_after_a_while() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        let wanted = t.take_wanted()[0];
        t.made(
            &wanted,
            Err(io::ErrorKind::HostUnreachable.into()),
            Instant(0),
        );
        assert!(matches!(t.find(a, Instant(1)), Found::Failed));
        assert!(t.take_wanted().is_empty());
        let later = Instant(0).after(FIRST_WAIT);
        assert!(matches!(t.find(a, later), Found::Making));
        assert_eq!(t.take_wanted().len(), 1);
    }

    #[test]
    fn an_object_ends_after_the_last_send_that_names_it() {
        let mut t = AddressHandles::<u32>::default();
        let first = t.create(&to(0)).unwrap();
        make_all(&mut t);
        let Found::Ready(named) = t.find(first, Instant(0)) else {
            panic!("it was made");
        };
        t.release(first);
        for n in 1..=IDLE_MAX as u32 {
            let h = t.create(&to(n)).unwrap();
            t.release(h);
        }
        assert!(matches!(t.find(first, Instant(0)), Found::Failed));
        assert!(t.take_ended().is_empty(), "a send names it");
        drop(named);
        assert_eq!(t.take_ended().len(), 1);
        assert!(t.places.len() <= IDLE_MAX + 2, "{}", t.places.len());
    }

    #[test]
    fn an_idle_one_is_found_again_and_the_queue_of_idle_ones_is_bounded() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        make_all(&mut t);
        for _ in 0..100_000 {
            t.release(a);
            assert_eq!(t.create(&to(1)).unwrap(), a);
        }
        assert!(t.idle.len() <= 2 * IDLE_MAX + 16);
        assert!(t.take_wanted().is_empty());
    }

    #[test]
    fn an_answer_for_what_was_before_is_thrown_away() {
        let mut t = AddressHandles::<u32>::default();
        let (a, idle) = (t.create(&to(1)).unwrap(), t.create(&to(2)).unwrap());
        t.release(idle);
        let old = t.take_wanted();
        t.renew();
        for wanted in &old {
            t.made(wanted, Ok(7), Instant(0));
        }
        assert!(matches!(t.find(a, Instant(0)), Found::Making));
        assert_eq!(t.take_ended().len(), 2);
        let wanted = t.take_wanted();
        assert_eq!(wanted.len(), 1, "nobody uses the other");
        t.made(&wanted[0], Ok(8), Instant(0));
        assert!(matches!(t.find(a, Instant(0)), Found::Ready(o) if *o == 8));
    }

    #[test]
    fn a_full_table_makes_room_by_what_is_idle() {
        let mut t = AddressHandles::<u32>::default();
        let all: Vec<_> = (0..CAPACITY as u32)
            .map(|n| t.create(&to(n)).unwrap())
            .collect();
        let full = t.create(&to(u32::MAX)).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        t.release(all[5]);
        assert_eq!(t.create(&to(u32::MAX)).unwrap(), all[5]);
    }
}
