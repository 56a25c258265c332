use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::fake::Fake;
use super::super::{ReceiveList, SharedReceiveQueue};
use super::*;
use crate::verbs::sys::ibv_wc;

const PLACES: usize = 6;
const LEN: usize = 100;

#[derive(Clone, Debug)]
enum Step {
    /// Posts a number of free places, of which the queue accepts a number.
    Post(usize, usize),
    /// A completion of an identifier that was posted at any time, or another one if there is none.
    Complete(usize),
    /// A completion of any identifier.
    Invent(u64),
    /// Destroys the queue and creates another one.
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..=PLACES, 0..=PLACES).prop_map(|(n, k)| Step::Post(n, k)),
        6 => (0_usize..40).prop_map(Step::Complete),
        1 => any::<u64>().prop_map(Step::Invent),
        1 => Just(Step::Close),
    ]
}

fn completion(wr_id: u64) -> WorkCompletion {
    let raw = ibv_wc {
        wr_id,
        ..crate::verbs::ibv::completion::EMPTY
    };
    WorkCompletion::from_raw(&raw, [0; 4])
}

proptest! {
    /// A place always has one owner: it is free, or posted under one identifier, which returns it once.
    #[test]
    fn a_place_comes_back_once_for_each_posting(steps in proptest::collection::vec(step(), 1..60)) {
        let fake = Arc::new(Fake::default());
        let domain = fake.domain();
        let (mut pool, mut free) = Pool::new(&domain, PLACES, LEN).unwrap();
        let mut queue = SharedReceiveQueue::new(&domain, 16).unwrap();
        let mut list = ReceiveList::new(PLACES);
        let mut posted: HashSet<u64> = HashSet::new();
        for step in steps {
            match step {
                Step::Post(count, takes) => {
                    let mut places: Vec<Place> = free.drain(..count.min(free.len())).collect();
                    let (before, wanted) = (fake.queue().names.len(), places.len());
                    fake.queue().takes = takes;
                    let answer = queue.receive(&mut list, &mut pool, &mut places);
                    prop_assert_eq!(answer.is_ok(), takes >= wanted);
                    prop_assert_eq!(places.len(), wanted - takes.min(wanted));
                    posted.extend(&fake.queue().names[before..]);
                    free.append(&mut places);
                }
                Step::Complete(which) => {
                    let name = fake.queue().names.iter().rev().nth(which).copied();
                    let name = name.unwrap_or(which as u64);
                    match pool.completed(&completion(name)) {
                        Completed::Place(place) => {
                            prop_assert!(posted.remove(&name));
                            free.push(place);
                        }
                        Completed::Part(_) => prop_assert!(false, "receives have no parts"),
                        Completed::Unknown => prop_assert!(!posted.contains(&name)),
                    }
                }
                Step::Invent(name) => {
                    let known = posted.contains(&Place::without_more(name));
                    let taken = pool.completed(&completion(name));
                    prop_assert_eq!(matches!(taken, Completed::Unknown), !known);
                    if let Completed::Place(place) = taken {
                        posted.remove(&name);
                        free.push(place);
                    }
                }
                Step::Close => {
                    let emptied = queue.close().unwrap();
                    free.extend(pool.reclaim(&emptied));
                    posted.clear();
                    queue = SharedReceiveQueue::new(&domain, 16).unwrap();
                }
            }
            prop_assert_eq!(pool.posted(), posted.len());
            let all: HashSet<u32> = free.iter().map(Place::index).collect();
            prop_assert_eq!((all.len(), free.len()), (free.len(), PLACES - posted.len()));
            // Each place has its own memory.
            for place in &mut free {
                let mark = place.index() as u8 + 1;
                place.fill(mark);
            }
            for place in &free {
                prop_assert!(place.iter().all(|byte| u32::from(*byte) == place.index() + 1));
            }
        }
    }
}

#[test]
fn after_an_answer_that_cannot_be_all_places_count_as_posted() {
    let fake = Arc::new(Fake::default());
    let domain = fake.domain();
    let (mut pool, mut places) = Pool::new(&domain, PLACES, LEN).unwrap();
    let queue = SharedReceiveQueue::new(&domain, 16).unwrap();
    *fake.queue() = super::super::fake::Queue {
        takes: 2,
        lies: true,
        ..Default::default()
    };
    let answer = queue.receive(&mut ReceiveList::new(1), &mut pool, &mut places);
    assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!((places.len(), pool.posted()), (0, PLACES));
    assert_eq!(pool.reclaim(&queue.close().unwrap()).len(), PLACES);
}

#[test]
fn a_place_of_another_pool_is_not_taken() {
    let domain = Arc::new(Fake::default()).domain();
    let (mut pool, _) = Pool::new(&domain, 1, LEN).unwrap();
    let (_, mut places) = Pool::new(&domain, 1, LEN).unwrap();
    let queue = SharedReceiveQueue::new(&domain, 16).unwrap();
    let answer = queue.receive(&mut ReceiveList::new(1), &mut pool, &mut places);
    assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!((places.len(), pool.posted()), (1, 0));
}
