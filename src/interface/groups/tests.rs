//! A set of groups and a fabric that answers at once, late or twice, or takes groups back.

use std::collections::{BTreeMap, BTreeSet};

use fabric::{FabricError, Gid, GroupParameters, Joined, QKey};
use proto::Time;
use vnic::Random;

use super::requests::take_late;
use super::{Bounds, Changes, GroupSet, News, State, TURN, change, follow};

const MANY: Bounds = Bounds {
    groups: 20_000,
    requests: 20_000,
};

fn group(n: u32) -> Gid {
    let mut raw = [0; 16];
    raw[0] = 0xff;
    raw[12..].copy_from_slice(&n.to_be_bytes());
    Gid(raw)
}

fn groups(all: &[u32]) -> BTreeSet<Gid> {
    all.iter().map(|n| group(*n)).collect()
}

fn parameters(n: u32) -> GroupParameters {
    GroupParameters {
        mtu: Some(n),
        ..GroupParameters::unadministered(QKey::new(0x0b1b))
    }
}

fn given() -> Joined {
    Joined::Now(parameters(2048))
}

fn full() -> Joined {
    Joined::Refused("full".into())
}

fn set(bounds: Bounds) -> GroupSet {
    GroupSet::new(bounds, 7)
}

/// Handles a late answer without new requests.
fn answered(set: &mut GroupSet, now: Time, group: Gid, answer: Joined) -> Changes {
    let mut changes = Changes::default();
    set.answer(group, answer);
    assert_eq!(set.next(), Some(Time(0)));
    take_late(set, now, "ib0", &mut changes);
    changes
}

/// Answers all due requests with `answer`. Returns the requested groups.
fn ask(set: &mut GroupSet, now: u64, answer: &Joined) -> Vec<Gid> {
    let (joins, _) = set.requests(Time(now));
    for group in &joins {
        set.outcome(Time(now), *group, answer.clone());
    }
    joins
}

#[test]
fn refused_groups_are_retried_after_1_to_16_seconds_and_reported_once() {
    let mut set = set(MANY);
    set.want(Some(group(1)), []);
    let (mut tried, mut first_news) = (Vec::new(), 0);
    // The set is checked every 10 ms, as with a storm of datagrams.
    for now in (0..200_000).step_by(10) {
        let (joins, _) = set.requests(Time(now));
        for asked in joins {
            tried.push(now);
            let news = set.outcome(Time(now), asked, full());
            let first = News::Refused {
                first: true,
                attached: false,
            };
            first_news += usize::from(news == Some(first));
            assert!(set.next().is_some_and(|next| next > Time(now)));
        }
    }
    let pauses: Vec<u64> = tried.windows(2).map(|two| two[1] - two[0]).collect();
    let longest = [1_000, 2_000, 4_000, 8_000, 16_000, 16_000, 16_000, 16_000];
    for (pause, longest) in pauses.iter().zip(longest) {
        // Checked every 10 ms, so up to 10 ms late.
        assert!(
            (longest / 4 * 3 - 10..=longest + 10).contains(pause),
            "{tried:?}"
        );
    }
    assert!(pauses[0] <= 1_000 && pauses.len() >= longest.len());
    assert_eq!((first_news, set.required()), (1, Err("full")));
    set.retry_now();
    let (joins, _) = set.requests(Time(200_000));
    assert_eq!(joins, [group(1)]);
    let news = set.outcome(Time(200_000), group(1), given());
    assert_eq!((news, set.next()), (Some(News::Recovered), None));
    assert_eq!(set.required(), Ok(&parameters(2048)));
    // The loss of the group is a new first refusal and starts with a short pause.
    let news = set.outcome(Time(200_000), group(1), full());
    let back = News::Refused {
        first: true,
        attached: true,
    };
    assert_eq!(news, Some(back));
    let next = set.next().map(|next| next.since(Time(200_000)));
    assert!(next.is_some_and(|pause| (750..=1_000).contains(&pause)));
    assert!(!set.is_attached(group(1)));
}

#[test]
fn times_differ_from_seed_to_seed() {
    let next = |seed| {
        let mut set = GroupSet::new(MANY, seed);
        set.want(Some(group(1)), []);
        ask(&mut set, 0, &full());
        set.next()
    };
    let all: BTreeSet<Option<Time>> = (0..20).map(next).collect();
    assert!(all.len() > 10, "{all:?}");
    assert_eq!(next(3), next(3));
}

#[test]
fn a_new_group_is_requested_at_once_and_changes_no_times() {
    let mut set = set(MANY);
    set.want(None, groups(&[1]));
    ask(&mut set, 0, &full());
    let next = set.next().unwrap();
    set.want(None, groups(&[1, 2]));
    assert_eq!(ask(&mut set, 500, &full()), [group(2)]);
    assert_eq!(set.next(), Some(next));
    assert_eq!(set.requests(next).0, [group(1), group(2)]);
    // One is joined; the refusal of the other changes nothing.
    let joined = set.outcome(next, group(1), given());
    assert_eq!(joined, Some(News::Joined));
    let refused = set.outcome(next, group(2), full());
    let other = News::Refused {
        first: false,
        attached: false,
    };
    assert_eq!(refused, Some(other));
    assert_eq!(set.state(group(1)), Some(State::Joined(&parameters(2048))));
    assert_eq!(set.state(group(2)), Some(State::Refused("full")));
}

#[test]
fn unwanted_groups_are_forgotten() {
    let mut set = set(MANY);
    set.want(None, groups(&[1]));
    ask(&mut set, 0, &full());
    set.want(None, []);
    assert_eq!(set.requests(Time(1)), (vec![], vec![]));
    assert_eq!((set.state(group(1)), set.next()), (None, None));
}

#[test]
fn a_late_answer_joins_and_one_that_comes_twice_changes_nothing() {
    let mut set = set(MANY);
    set.want(Some(group(1)), groups(&[2]));
    assert_eq!(set.state(group(1)), Some(State::Wanted));
    assert_eq!(set.missing(), Some("it was not requested yet"));
    assert_eq!(ask(&mut set, 0, &Joined::Pending), [group(1), group(2)]);
    assert_eq!(set.state(group(1)), Some(State::Pending));
    assert_eq!(set.missing(), Some("the fabric has not answered yet"));
    assert_eq!((set.requests(Time(60_000)), set.next()), Default::default());
    let news = set.outcome(Time(70_000), group(1), given());
    assert_eq!((news, set.missing()), (Some(News::Joined), None));
    // A second answer, then one with other parameters.
    assert_eq!(set.outcome(Time(70_000), group(1), given()), None);
    let other = Joined::Now(parameters(4096));
    assert_eq!(set.outcome(Time(70_001), group(1), other), None);
    assert_eq!(set.required(), Ok(&parameters(4096)));
    // A second refusal does not move the time.
    set.outcome(Time(70_001), group(2), full());
    let next = set.next();
    assert_eq!(set.outcome(Time(70_500), group(2), full()), None);
    assert_eq!(set.next(), next);
    assert_eq!(set.attached().collect::<Vec<_>>(), [group(1)]);
}

#[test]
fn a_group_that_is_left_while_its_answer_is_awaited_stays_left() {
    let mut set = set(MANY);
    set.want(None, groups(&[1, 2]));
    ask(&mut set, 0, &Joined::Pending);
    set.want(None, []);
    // Wanted again before any request: it stays pending.
    set.want(None, groups(&[2]));
    assert_eq!(set.requests(Time(1)), (vec![], vec![group(1)]));
    for late in [given(), full(), Joined::Pending] {
        assert_eq!(set.outcome(Time(2), group(1), late), None);
    }
    assert_eq!((set.state(group(1)), set.next()), (None, None));
    assert_eq!(set.attached().count(), 0);
    // Wanted again: a new request.
    set.want(None, groups(&[1, 2]));
    assert_eq!(set.requests(Time(3)), (vec![group(1)], vec![]));
    // Refused before it was left: no change, nothing to leave, and a new request if it is wanted.
    set.want(None, groups(&[1]));
    assert_eq!(set.outcome(Time(4), group(2), full()), None);
    set.want(None, groups(&[1, 2]));
    assert_eq!(set.requests(Time(5)), (vec![group(2)], vec![]));
}

#[test]
fn requests_and_groups_are_bounded_and_the_required_one_comes_first() {
    let mut set = set(Bounds {
        groups: 10,
        requests: 4,
    });
    // Reported once, until all fit.
    assert_eq!(
        set.want(Some(group(9)), (0..20).map(group)),
        Some(group(9 + 1))
    );
    assert_eq!(set.want(Some(group(9)), (0..20).map(group)), None);
    let (joins, _) = set.requests(Time(0));
    assert_eq!(joins, [9, 0, 1, 2].map(group));
    assert_eq!(set.requests(Time(0)), (vec![], vec![]));
    set.outcome(Time(1), group(1), given());
    set.outcome(Time(1), group(0), full());
    assert_eq!(set.requests(Time(1)).0, [3, 4].map(group));
    // Groups that are left make room, too.
    assert_eq!(set.want(None, groups(&[1, 7, 8])), None);
    let (joins, leaves) = set.requests(Time(2));
    assert_eq!((joins.len(), leaves), (2, [2, 3, 4, 9].map(group).to_vec()));
    assert_eq!(set.want(None, (0..20).map(group)), Some(group(10)));
}

#[test]
fn groups_are_joined_again_within_the_spread_and_none_is_left() {
    let times = (0..50).map(|seed| {
        let mut set = GroupSet::new(MANY, seed);
        set.want(Some(group(1)), groups(&[2, 3]));
        ask(&mut set, 0, &given());
        set.want(Some(group(1)), groups(&[2, 3, 4]));
        ask(&mut set, 0, &full());
        set.rejoin_all(Time(100), 1_000);
        let next = set.next().unwrap();
        assert!((100..=1_100).contains(&next.0));
        // Refused groups are requested by then, too, if not earlier.
        let before = set.requests(next).0;
        let (mut joins, leaves) = set.requests(Time(1_100));
        joins.extend(before);
        joins.sort();
        // A request without an answer is repeated.
        joins.dedup();
        assert_eq!((joins, leaves), ([1, 2, 3, 4].map(group).to_vec(), vec![]));
        // The endpoint stayed attached, so the answers change nothing.
        assert_eq!((set.missing(), set.attached().count()), (None, 3));
        assert_eq!(set.outcome(next, group(2), Joined::Pending), None);
        assert_eq!(set.outcome(next, group(1), given()), None);
        let back = News::Refused {
            first: false,
            attached: true,
        };
        assert_eq!(set.outcome(next, group(3), full()), Some(back));
        assert_eq!(set.attached().collect::<Vec<_>>(), [1, 2].map(group));
        next
    });
    let times: BTreeSet<Time> = times.collect();
    assert!(times.len() > 25, "{times:?}");
}

/// The fabric has lost the requests together with the memberships: with another GID, or with another device.
#[test]
fn unanswered_groups_are_requested_again_with_the_joined_ones() {
    let mut set = set(Bounds {
        requests: 3,
        ..MANY
    });
    set.want(Some(group(9)), groups(&[1, 2, 3, 4]));
    assert_eq!(ask(&mut set, 0, &Joined::Pending), [9, 1, 2].map(group));
    set.rejoin_all(Time(100), 0);
    assert_eq!(set.next(), Some(Time(100)));
    // A group that is left meanwhile is not requested again.
    set.want(Some(group(9)), groups(&[1, 3, 4]));
    let (joins, leaves) = set.requests(Time(100));
    assert_eq!(
        (joins, leaves),
        ([9, 1, 3].map(group).to_vec(), vec![group(2)])
    );
    assert_eq!(set.next(), None, "each group is requested once");
    // Joined, and requested again without an answer.
    set.outcome(Time(101), group(9), given());
    set.rejoin_all(Time(200), 0);
    assert_eq!(ask(&mut set, 200, &Joined::Pending), [9, 1, 3].map(group));
    set.rejoin_all(Time(300), 0);
    assert_eq!(ask(&mut set, 300, &Joined::Pending), [9, 1, 3].map(group));
    assert!(set.is_attached(group(9)));
    // The answers make room for the last group.
    set.outcome(Time(301), group(1), given());
    assert_eq!(set.requests(Time(301)).0, [group(4)]);
}

#[test]
fn a_port_that_returns_misses_its_required_group_until_the_answer() {
    let mut set = set(MANY);
    set.want(Some(group(1)), groups(&[2]));
    ask(&mut set, 0, &given());
    set.port_returned(Time(5));
    // The parameters stay, and the endpoint stays attached.
    assert!(set.missing().is_some() && set.required() == Ok(&parameters(2048)));
    assert_eq!(set.next(), Some(Time(5)));
    assert_eq!(ask(&mut set, 5, &Joined::Pending), [1, 2].map(group));
    set.outcome(Time(6), group(2), given());
    assert!(set.missing().is_some(), "an answer for another group");
    set.outcome(Time(6), group(1), given());
    assert_eq!(set.missing(), None);
    // A refusal has its own reason.
    set.port_returned(Time(7));
    ask(&mut set, 7, &full());
    assert_eq!(set.missing(), Some("full"));
    // A port without its group waits for nothing more than before.
    set.port_returned(Time(8));
    assert_eq!(set.missing(), Some("full"));
    // Another required group has its own answer.
    ask(&mut set, 100_000, &given());
    set.port_returned(Time(100_000));
    set.want(Some(group(2)), groups(&[1]));
    assert_eq!(set.missing(), None);
    set.port_returned(Time(100_001));
    set.want(None, groups(&[1, 2]));
    assert_eq!(set.missing(), None);
}

/// Sends the requests of all turns that are due at once, and answers each join with `answer`. Returns the number of
/// turns, and of joined and left groups.
fn turns(set: &mut GroupSet, now: Time, answer: &Joined) -> (usize, usize, usize) {
    let mut sums = (0, 0, 0);
    while sums.0 == 0 || set.next() == Some(Time(0)) {
        let changes = change(set, now, "ib0", |joins, leaves| {
            assert!(joins.len() <= TURN && leaves.len() <= TURN);
            Ok(vec![answer.clone(); joins.len()])
        });
        sums.0 += 1;
        sums.1 += changes.joined.len();
        sums.2 += changes.left.len();
    }
    sums
}

/// The control loop serves others between the turns.
#[test]
fn ten_thousand_groups_take_many_turns_and_have_one_timer() {
    let all_turns = 10_000_usize.div_ceil(TURN);
    let mut set = set(MANY);
    let all: BTreeSet<Gid> = (0..10_000).map(group).collect();
    set.want(Some(group(0)), all.clone());
    assert_eq!(turns(&mut set, Time(0), &full()), (all_turns, 0, 0));
    let next = set.next().unwrap();
    assert!((750..=1_000).contains(&next.0));
    assert_eq!(turns(&mut set, next, &full()), (all_turns, 0, 0));
    let last = set.next().unwrap();
    assert!(last.since(next) <= 2_666);
    assert_eq!(turns(&mut set, last, &given()), (all_turns, 10_000, 0));
    assert_eq!((set.next(), set.attached().count()), (None, 10_000));
    // Half of the groups that are to be left are wanted again, in the middle.
    set.want(None, []);
    set.requests(last);
    set.want(None, all.iter().copied().step_by(2));
    assert_eq!(turns(&mut set, last, &given()).1, TURN / 2);
    assert_eq!((set.next(), set.attached().count()), (None, 5_000));
    // The fabric has lost the memberships while groups are being left: only wanted groups are joined again.
    set.want(None, [group(0)]);
    set.requests(last);
    set.rejoin_all(last, 0);
    let (joins, leaves) = set.requests(last);
    assert_eq!((joins, leaves.len()), (vec![group(0)], TURN));
    set.outcome(last, group(0), given());
    turns(&mut set, last, &given());
    assert_eq!(set.attached().collect::<Vec<_>>(), [group(0)]);
}

#[test]
fn late_answers_make_room_for_more_requests() {
    let bounds = Bounds {
        requests: 3,
        ..MANY
    };
    let mut set = set(bounds);
    let mut asked = Vec::new();
    let wanted = (None, (0..10).map(group).collect());
    follow(&mut set, Time(0), "ib0", wanted, |joins, _| {
        asked.extend_from_slice(joins);
        Ok(vec![Joined::Pending; joins.len()])
    });
    let mut at = 0;
    while at < asked.len() {
        assert!(asked.len() - at <= 3);
        let changes = answered(&mut set, Time(1), asked[at], given());
        assert_eq!(changes.joined, [asked[at]]);
        at += 1;
        change(&mut set, Time(1), "ib0", |joins, _| {
            asked.extend_from_slice(joins);
            Ok(vec![Joined::Pending; joins.len()])
        });
    }
    assert_eq!((at, set.attached().count()), (10, 10));
}

#[test]
fn an_error_of_the_port_is_retried() {
    let mut set = set(MANY);
    let gone = FabricError::NoSuchEndpoint(fabric::EndpointId(1));
    let why = gone.to_string();
    let mut gone = Some(gone);
    let wanted = (Some(group(1)), BTreeSet::new());
    follow(&mut set, Time(0), "ib0", wanted, |_, _| {
        Err(gone.take().unwrap())
    });
    assert_eq!(set.missing(), Some(&*why));
    assert!(set.next().is_some());
}

#[test]
fn a_closed_endpoint_clears_the_set() {
    let mut set = set(MANY);
    set.want(Some(group(1)), groups(&[2]));
    ask(&mut set, 0, &given());
    set.want(Some(group(1)), groups(&[2, 3]));
    ask(&mut set, 0, &full());
    assert_eq!(set.clear(), [1, 2].map(group));
    assert_eq!((set.next(), set.missing()), (None, None));
    assert_eq!(set.requests(Time(100_000)), (vec![], vec![]));
}

/// A fabric that keeps requests and answers at random times.
#[derive(Default)]
struct Fabric {
    /// The groups that the endpoint is attached to.
    attached: BTreeSet<Gid>,
    /// Requests without an answer.
    asked: BTreeSet<Gid>,
    /// Answers on their way, some for groups that were left.
    underway: Vec<(Gid, Joined)>,
}

impl Fabric {
    /// As [`fabric::Port::change_groups`].
    fn change(&mut self, random: &mut Random, joins: &[Gid], leaves: &[Gid]) -> Vec<Joined> {
        for group in leaves.iter().chain(joins) {
            self.asked.remove(group);
        }
        for group in leaves {
            self.attached.remove(group);
        }
        let answers = joins.iter().map(|group| match random.below(4) {
            0 => {
                self.attached.insert(*group);
                given()
            }
            1 => {
                self.attached.remove(group);
                full()
            }
            _ => {
                self.asked.insert(*group);
                Joined::Pending
            }
        });
        answers.collect()
    }

    /// Answers some requests, some twice, and takes some groups back.
    fn turn(&mut self, random: &mut Random) {
        for group in std::mem::take(&mut self.asked) {
            let answer = match random.below(4) {
                0 => {
                    self.attached.insert(group);
                    given()
                }
                1 => {
                    self.attached.remove(&group);
                    full()
                }
                _ => {
                    self.asked.insert(group);
                    continue;
                }
            };
            for _ in 0..=random.below(2) {
                self.underway.push((group, answer.clone()));
            }
        }
        let taken: Vec<Gid> = self.attached.iter().copied().collect();
        for group in taken.into_iter().filter(|_| random.below(20) == 0) {
            if !self.asked.contains(&group) {
                self.attached.remove(&group);
                self.underway.push((group, full()));
            }
        }
    }
}

/// With any answers, and any order of changes: a set is bounded, has one timer while a group is refused,
/// and in the end is attached to the groups that the fabric has given.
#[test]
fn set_and_fabric_agree_in_the_end() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let bounds = Bounds {
            groups: 12,
            requests: 1 + random.below(12) as usize,
        };
        let mut set = GroupSet::new(bounds, seed);
        let mut fabric = Fabric::default();
        let mut now = Time(0);
        let mut known: BTreeMap<Gid, bool> = BTreeMap::new();
        for _ in 0..300 {
            now = now.after(random.below(2_000));
            match random.below(7) {
                0 => {
                    let wanted = (0..16).map(group).filter(|_| random.below(2) == 0);
                    let wanted: Vec<Gid> = wanted.collect();
                    let required = (random.below(3) > 0).then_some(group(3));
                    set.want(required, wanted);
                }
                1 => set.rejoin_all(now, 1_000),
                2 => set.retry_now(),
                3 => {
                    // The port lost its requests.
                    fabric.asked.clear();
                    set.port_returned(now);
                }
                _ => {}
            }
            let rejoins = set.rejoin.is_some_and(|at| at <= now);
            let ask = |joins: &[Gid], leaves: &[Gid]| {
                assert!(joins.len() <= bounds.requests);
                let is_new = |group: &Gid| !fabric.asked.contains(group);
                assert!(rejoins || joins.iter().all(is_new));
                assert!(joins.iter().collect::<BTreeSet<_>>().len() == joins.len());
                let answers = fabric.change(&mut random, joins, leaves);
                assert!(fabric.asked.len() <= bounds.requests);
                // Answers for left groups are still on their way, unless the port drops them.
                fabric.underway.retain(|(group, _)| !joins.contains(group));
                Ok(answers)
            };
            let changes = change(&mut set, now, "ib0", ask);
            fabric.turn(&mut random);
            let mut all = vec![changes];
            for (group, answer) in std::mem::take(&mut fabric.underway) {
                all.push(answered(&mut set, now, group, answer));
            }
            // Monitoring clients see each group joined and left in turn.
            for changes in all {
                for group in changes.left {
                    assert_eq!(known.insert(group, false), Some(true), "{group} left");
                }
                for group in changes.joined {
                    assert_ne!(known.insert(group, true), Some(true), "{group} joined");
                }
            }
            let attached: BTreeSet<Gid> = set.attached().collect();
            let reported = known.iter().filter(|(_, joined)| **joined);
            assert!(attached.iter().eq(reported.map(|(group, _)| group)));
            assert_eq!(attached, fabric.attached, "seed {seed}");
            let states = (0..16).filter_map(|n| set.state(group(n)));
            let refused = states.filter(|state| matches!(state, State::Refused(_)));
            if refused.count() > 0 && fabric.asked.is_empty() && set.fresh.is_empty() {
                assert!(set.next().is_some(), "seed {seed}");
            }
        }
        // From now on, the fabric accepts all requests at once.
        for group in std::mem::take(&mut fabric.asked) {
            answered(&mut set, now, group, full());
            fabric.attached.remove(&group);
        }
        loop {
            now = set.next().map_or(now, |next| next.max(now));
            change(&mut set, now, "ib0", |joins, leaves| {
                fabric.attached.retain(|group| !leaves.contains(group));
                fabric.attached.extend(joins);
                Ok(vec![given(); joins.len()])
            });
            if set.next().is_none() {
                break;
            }
        }
        assert!(set.attached().eq(set.wanted.iter().copied()), "seed {seed}");
        assert!(set.attached().eq(fabric.attached.iter().copied()));
        assert_eq!((set.next(), set.missing()), (None, None));
    }
}

#[test]
fn the_required_group_is_awaited_until_its_first_answer() {
    let mut set = set(MANY);
    assert!(!set.is_awaited());
    set.want(Some(group(1)), [group(1), group(2)]);
    assert!(set.is_awaited());
    ask(&mut set, 0, &Joined::Pending);
    assert!(set.is_awaited());
    set.outcome(Time(0), group(2), full());
    assert!(set.is_awaited());
    set.outcome(Time(0), group(1), full());
    assert!(!set.is_awaited());
    ask(&mut set, 16_000, &Joined::Pending);
    assert!(!set.is_awaited());
    set.outcome(Time(0), group(1), given());
    assert!(!set.is_awaited());
}
