//! The address handles of a worker: created by other threads, shared by users of the same attributes,
//! and kept for a while without users.
//!
//! Creating a handle may take seconds on RoCE, where it resolves a MAC. A handle has a number at once
//! and gets the device's object `H` later; packets for it wait meanwhile.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use proto::backoff::Backoff;
use proto::{AddressHandle, Instant};

use crate::subnet::{Destination, PathAnswer, Unreachable};
use crate::worker::AhAttributes;

/// Maximum number of handles.
const CAPACITY: usize = 1 << 16;

/// Maximum number of kept handles without users.
const IDLE_MAX: usize = 1024;

/// Maximum number of trains that wait for address handles, in total and for each handle: a peer that
/// does not answer must not take the places of the others.
const WAITING_MAX: usize = 32;
const WAITING_FOR_ONE: usize = 4;

/// Time after which a handle is made again: the path of the subnet, or the MAC of a router or peer, may be another.
const AGE: Duration = Duration::from_secs(300);

/// Waiting time after a failed creation.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A handle to be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Number of the handle.
    pub handle: AddressHandle,
    /// The device and GID it is for; answers for another epoch are ignored.
    pub epoch: u64,
    /// Attributes of the handle.
    pub attributes: AhAttributes,
    /// The handle has an object, which is in use until the answer.
    pub again: bool,
}

/// Result of a lookup.
#[derive(Debug)]
pub enum Found<H> {
    /// The device's object.
    Ready(Arc<H>),
    /// The handle is being created.
    Making,
    /// Unknown handle, or it cannot be created now.
    Failed,
}

#[derive(Debug)]
enum State<H> {
    Making,
    /// Valid until a time; then the handle is requested again, and used until the answer.
    Ready(Arc<H>, Option<Instant>),
    Failed,
}

#[derive(Debug)]
struct Entry<H> {
    attributes: AhAttributes,
    users: u32,
    state: State<H>,
    /// The answer to the open request may be an old path: then the handle is requested again when it is used next.
    stale: bool,
    backoff: Backoff,
}

/// The table.
#[derive(Debug)]
pub struct AddressHandles<H> {
    places: Vec<Option<Entry<H>>>,
    free: Vec<u32>,
    by_attributes: HashMap<AhAttributes, u32, foldhash::fast::RandomState>,
    /// Handles without users, longest idle first; some may have users again.
    idle: VecDeque<u32>,
    idle_count: usize,
    epoch: u64,
    wanted: Vec<Wanted>,
    /// On a subnet: the handles that wait for the path to their destination.
    resolving: HashMap<Destination, Vec<Wanted>, foldhash::fast::RandomState>,
    /// Objects removed from the table; posted sends may still use them.
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
            resolving: HashMap::default(),
            ended: Vec::new(),
        }
    }
}

impl<H> AddressHandles<H> {
    /// A handle with these attributes, existing or new. An existing one is made again when it is used: its peer may have
    /// come back with another MAC or path, before the former user has released the handle.
    ///
    /// # Errors
    /// ENOSPC if the table is full.
    pub fn create(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle> {
        if let Some(&at) = self.by_attributes.get(attributes) {
            let handle = AddressHandle(at);
            if let Some(entry) = self.entry(handle)
                && let State::Ready(_, Some(until)) = &mut entry.state
            {
                *until = Instant(0);
            }
            self.hold(handle);
            return Ok(handle);
        }
        let at = self.free_place()?;
        self.places[at as usize] = Some(Entry {
            attributes: *attributes,
            users: 1,
            state: State::Making,
            stale: false,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
        });
        self.by_attributes.insert(*attributes, at);
        self.want(at, *attributes, false);
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

    fn want(&mut self, at: u32, attributes: AhAttributes, again: bool) {
        self.wanted.push(Wanted {
            handle: AddressHandle(at),
            epoch: self.epoch,
            attributes,
            again,
        });
    }

    fn entry(&mut self, handle: AddressHandle) -> Option<&mut Entry<H>> {
        self.places.get_mut(handle.0 as usize)?.as_mut()
    }

    /// Adds a user to a handle.
    pub fn hold(&mut self, handle: AddressHandle) {
        if let Some(entry) = self.entry(handle) {
            entry.users += 1;
            let was_idle = entry.users == 1;
            self.idle_count -= usize::from(was_idle);
        }
    }

    /// Removes a user from a handle; does nothing without users.
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
        // A handle that was used again is in the queue more than once.
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
        // Keep the latest of several positions.
        let mut kept: Vec<u32> = self.idle.iter().rev().copied().filter(idle).collect();
        kept.reverse();
        self.idle = kept.into();
    }

    /// Removes the handle that has been idle longest.
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
        if let State::Ready(object, _) = entry.state {
            self.ended.push(object);
        }
    }

    /// Looks up the object of a handle. Requests a failed handle again after its waiting time. `now` is called
    /// only if the time matters.
    pub fn find(&mut self, handle: AddressHandle, now: impl FnOnce() -> Instant) -> Found<H> {
        let Some(entry) = self.entry(handle) else {
            return Found::Failed;
        };
        match &mut entry.state {
            State::Ready(object, until) => {
                let object = Arc::clone(object);
                if until.is_some_and(|until| until <= now()) {
                    *until = None;
                    let attributes = entry.attributes;
                    self.want(handle.0, attributes, true);
                }
                Found::Ready(object)
            }
            State::Making => Found::Making,
            State::Failed if entry.backoff.may_try(now()) => {
                entry.state = State::Making;
                let attributes = entry.attributes;
                self.want(handle.0, attributes, false);
                Found::Making
            }
            State::Failed => Found::Failed,
        }
    }

    /// Handles the answer to a request. If a path or a MAC was `resolved` for the object, the handle is requested again
    /// after [`AGE`]. Without an answer an existing object stays in use, and the handle is requested again after the
    /// waiting time of a failure.
    pub fn made(&mut self, wanted: &Wanted, object: io::Result<H>, now: Instant, resolved: bool) {
        let current = wanted.epoch == self.epoch;
        let entry = self
            .entry(wanted.handle)
            .filter(|e| current && e.attributes == wanted.attributes);
        let Some(entry) = entry else {
            self.ended.extend(object.ok().map(Arc::new));
            return;
        };
        let until = if std::mem::take(&mut entry.stale) {
            Some(Instant(0))
        } else {
            resolved.then(|| now.after(AGE))
        };
        if object.is_err() {
            entry.backoff.failed(now);
        }
        match (&mut entry.state, object) {
            (State::Failed, Ok(object)) => self.ended.push(Arc::new(object)),
            (State::Ready(_, again), Err(e)) if e.kind() == io::ErrorKind::TimedOut => {
                *again = Some(entry.backoff.due());
            }
            (state, Err(_)) => {
                if let State::Ready(old, _) = std::mem::replace(state, State::Failed) {
                    self.ended.push(old);
                }
            }
            (state, Ok(object)) => {
                entry.backoff.succeeded();
                let made = State::Ready(Arc::new(object), until);
                if let State::Ready(old, _) = std::mem::replace(state, made) {
                    self.ended.push(old);
                }
            }
        }
    }

    /// Requests each handle again when it is used next: paths of the subnet may have changed.
    pub fn age_all(&mut self) {
        for entry in self.places.iter_mut().flatten() {
            match &mut entry.state {
                State::Ready(_, until) => {
                    entry.stale |= until.is_none();
                    *until = Some(Instant(0));
                }
                State::Failed => entry.backoff.succeeded(),
                State::Making => entry.stale = true,
            }
        }
    }

    /// Notes that a handle waits for the path to its destination, which the port has to resolve.
    pub fn resolve(&mut self, wanted: Wanted) -> Destination {
        let destination = destination(&wanted.attributes);
        self.resolving.entry(destination).or_default().push(wanted);
        destination
    }

    /// Takes the handles that have waited for an answer of the port; none if the answer is for others.
    ///
    /// After a refusal, all objects for the destination end. Their handles are requested again when they are
    /// used next, and packets wait for the answer. Without an answer of the subnet administrator, the objects stay.
    pub fn answered(&mut self, (destination, path): &PathAnswer) -> Vec<Wanted> {
        if let Err(Unreachable::Refused(_)) = path {
            self.forget(*destination);
        }
        self.resolving.remove(destination).unwrap_or_default()
    }

    fn forget(&mut self, to: Destination) {
        let entries = self.places.iter_mut().flatten();
        for entry in entries.filter(|e| destination(&e.attributes) == to) {
            match &entry.state {
                State::Ready(object, _) => {
                    self.ended.push(Arc::clone(object));
                    entry.state = State::Failed;
                    entry.backoff.succeeded();
                }
                State::Making => entry.stale = true,
                State::Failed => {}
            }
        }
    }

    /// Ends all objects, for another device or another GID of the port. Handles that were ready are requested again when
    /// they are used: requests for peers that are gone would delay the others. Packets may wait for the other handles,
    /// which are requested again at once.
    pub fn renew(&mut self) {
        self.epoch += 1;
        self.wanted.clear();
        self.resolving.clear();
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
            if let State::Making = entry.state {
                self.want(at, attributes, false);
            } else if let State::Ready(object, _) =
                std::mem::replace(&mut entry.state, State::Failed)
            {
                self.ended.push(object);
            }
        }
        self.idle.clear();
    }

    /// Takes the handles to be created.
    pub fn take_wanted(&mut self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted)
    }

    /// Takes the unused objects, to be destroyed where waiting is allowed.
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

/// Whether another train may wait for a handle. `waiting` has the handles of the trains that wait.
pub fn may_wait(waiting: impl Iterator<Item = AddressHandle>, handle: AddressHandle) -> bool {
    let (mut all, mut of_it) = (0, 0);
    for other in waiting {
        all += 1;
        of_it += usize::from(other == handle);
    }
    all < WAITING_MAX && of_it < WAITING_FOR_ONE
}

/// The path that a handle needs on a subnet.
fn destination(attributes: &AhAttributes) -> Destination {
    Destination {
        gid: attributes.dgid,
        pkey: attributes.pkey.full(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(n: u32) -> AhAttributes {
        let mut gid = [0xfe; 16];
        gid[12..].copy_from_slice(&n.to_be_bytes());
        AhAttributes::to(proto::Gid(gid), proto::PKey::DEFAULT)
    }

    fn make_all(t: &mut AddressHandles<u32>) {
        for wanted in t.take_wanted() {
            t.made(&wanted, Ok(wanted.handle.0), Instant(0), true);
        }
    }

    #[test]
    fn equal_attributes_share_a_handle_and_it_is_made_once() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        assert!(matches!(t.find(a, || Instant(0)), Found::Making));
        assert_eq!(t.create(&to(1)).unwrap(), a);
        assert_ne!(t.create(&to(2)).unwrap(), a);
        assert_eq!(t.wanted.len(), 2);
        make_all(&mut t);
        assert!(matches!(t.find(a, || Instant(0)), Found::Ready(o) if *o == a.0));
    }

    #[test]
    fn an_object_with_an_old_path_is_made_again_when_it_is_used() {
        let destination = destination(&to(1));
        let refused = || Err(Unreachable::Refused(String::new()));
        let changes: [fn(&mut AddressHandles<u32>, PathAnswer); 2] =
            [|t, _| t.age_all(), |t, refusal| drop(t.answered(&refusal))];
        for change in changes {
            let mut t = AddressHandles::<u32>::default();
            let a = t.create(&to(1)).unwrap();
            let wanted = t.take_wanted()[0];
            change(&mut t, (destination, refused()));
            t.made(&wanted, Ok(1), Instant(0), true);
            assert!(matches!(t.find(a, || Instant(1)), Found::Ready(_)));
            let again = t.take_wanted();
            assert_eq!(again.len(), 1);
            // The same while an object is in use.
            t.age_all();
            t.made(&again[0], Ok(2), Instant(1), true);
            t.find(a, || Instant(2));
            let again = t.take_wanted();
            assert_eq!(again.len(), 1);
            t.made(&again[0], Ok(3), Instant(2), true);
            t.find(a, || Instant(3));
            assert!(t.take_wanted().is_empty());
        }
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
            true,
        );
        assert!(matches!(t.find(a, || Instant(1)), Found::Failed));
        assert!(t.take_wanted().is_empty());
        let later = Instant(0).after(FIRST_WAIT);
        assert!(matches!(t.find(a, || later), Found::Making));
        assert_eq!(t.take_wanted().len(), 1);
    }

    #[test]
    fn an_object_ends_after_the_last_send_that_names_it() {
        let mut t = AddressHandles::<u32>::default();
        let first = t.create(&to(0)).unwrap();
        make_all(&mut t);
        let Found::Ready(named) = t.find(first, || Instant(0)) else {
            panic!("it was made");
        };
        t.release(first);
        for n in 1..=IDLE_MAX as u32 {
            let h = t.create(&to(n)).unwrap();
            t.release(h);
        }
        assert!(matches!(t.find(first, || Instant(0)), Found::Failed));
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
            t.made(wanted, Ok(7), Instant(0), true);
        }
        assert!(matches!(t.find(a, || Instant(0)), Found::Making));
        assert_eq!(t.take_ended().len(), 2);
        let wanted = t.take_wanted();
        assert_eq!(wanted.len(), 1, "nobody uses the other");
        t.made(&wanted[0], Ok(8), Instant(0), true);
        assert!(matches!(t.find(a, || Instant(0)), Found::Ready(o) if *o == 8));
    }

    #[test]
    fn the_answer_about_a_path_is_for_all_handles_to_its_destination() {
        let mut t = AddressHandles::<u32>::default();
        let faster = AhAttributes {
            traffic_class: 8,
            ..to(1)
        };
        let limited = AhAttributes {
            pkey: proto::PKey::new(0x7fff),
            ..to(1)
        };
        let elsewhere = AhAttributes {
            pkey: proto::PKey::new(0x8001),
            ..to(1)
        };
        let all = [to(1), faster, limited, elsewhere, to(2)].map(|a| t.create(&a).unwrap());
        make_all(&mut t);
        let ready = |t: &mut AddressHandles<u32>| {
            all.map(|ah| matches!(t.find(ah, || Instant(0)), Found::Ready(_)))
        };
        let here = destination(&to(1));
        assert!(t.answered(&(here, Err(Unreachable::NoAnswer))).is_empty());
        assert_eq!(ready(&mut t), [true; 5]);
        let refused = (here, Err(Unreachable::Refused("gone".into())));
        assert!(t.answered(&refused).is_empty());
        assert_eq!(ready(&mut t), [false, false, false, true, true]);
        assert_eq!(t.take_ended().len(), 3);
        // They were requested again.
        let wanted = t.take_wanted();
        assert_eq!(wanted.len(), 3);
        for wanted in &wanted {
            assert_eq!(t.resolve(*wanted), here);
        }
        assert_eq!(t.answered(&refused), wanted);
        assert!(t.answered(&refused).is_empty());
    }

    /// Otherwise each packet would ask the subnet administrator again.
    #[test]
    fn a_refused_handle_is_not_requested_again_at_once() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        make_all(&mut t);
        t.age_all();
        assert!(matches!(t.find(a, || Instant(0)), Found::Ready(_)));
        let wanted = t.take_wanted()[0];
        let here = t.resolve(wanted);
        let refused = Unreachable::Refused("no record".into());
        let kind = refused.kind();
        assert_eq!(t.answered(&(here, Err(refused))), [wanted]);
        t.made(&wanted, Err(kind.into()), Instant(0), true);
        assert!(matches!(t.find(a, || Instant(1)), Found::Failed));
        let later = Instant(0).after(FIRST_WAIT);
        assert!(matches!(t.find(a, || later), Found::Making));
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

    /// A router, or a peer, may have another MAC by now; its packets go on meanwhile.
    #[test]
    fn an_old_object_is_in_use_until_the_next_is_made() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        make_all(&mut t);
        let later = Instant(0).after(AGE);
        for _ in 0..2 {
            assert!(matches!(t.find(a, || later), Found::Ready(o) if *o == a.0));
        }
        let wanted = t.take_wanted();
        assert_eq!(wanted.len(), 1);
        assert!(wanted[0].again, "others come first");
        t.made(&wanted[0], Ok(8), later, true);
        assert!(matches!(t.find(a, || later), Found::Ready(o) if *o == 8));
        assert!(t.take_wanted().is_empty());
    }

    /// The peer has another LID, and the subnet administrator answers nothing while it starts.
    #[test]
    fn an_object_that_is_not_confirmed_is_requested_again_soon() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        make_all(&mut t);
        t.age_all();
        t.find(a, || Instant(0));
        let wanted = t.take_wanted();
        let silence = Err(io::ErrorKind::TimedOut.into());
        t.made(&wanted[0], silence, Instant(0), true);
        for (at, requests) in [(Duration::ZERO, 0), (FIRST_WAIT, 1)] {
            let found = t.find(a, || Instant(0).after(at));
            assert!(matches!(found, Found::Ready(o) if *o == a.0));
            assert_eq!(t.take_wanted().len(), requests);
        }
    }

    /// Its peer was away.
    #[test]
    fn a_handle_without_users_is_made_again_for_the_next() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        make_all(&mut t);
        t.release(a);
        assert_eq!(t.create(&to(1)).unwrap(), a);
        for _ in 0..2 {
            assert!(matches!(t.find(a, || Instant(0)), Found::Ready(_)));
        }
        assert_eq!(t.take_wanted().len(), 1);
    }

    /// Its peer came back with another queue pair, and the neighbour of the former one is not forgotten yet.
    #[test]
    fn a_handle_is_made_again_for_a_further_user() {
        let mut t = AddressHandles::<u32>::default();
        let a = t.create(&to(1)).unwrap();
        make_all(&mut t);
        assert_eq!(t.create(&to(1)).unwrap(), a);
        for _ in 0..2 {
            assert!(matches!(t.find(a, || Instant(0)), Found::Ready(_)));
        }
        assert_eq!(t.take_wanted().len(), 1);
    }

    /// Most may be for peers that are gone.
    #[test]
    fn another_device_makes_only_the_handles_in_use() {
        let mut t = AddressHandles::<u32>::default();
        let all: Vec<_> = (0..10).map(|n| t.create(&to(n)).unwrap()).collect();
        make_all(&mut t);
        t.renew();
        assert!(t.take_wanted().is_empty());
        assert_eq!(t.take_ended().len(), 10);
        assert!(matches!(t.find(all[3], || Instant(0)), Found::Making));
        let wanted = t.take_wanted();
        assert_eq!(wanted.len(), 1);
        assert_eq!(wanted[0].handle, all[3]);
    }
}
