use proptest::prelude::*;

use super::*;
use crate::testing::hex;

const MAC: Mac = [6, 1, 2, 3, 4, 5];
const T0: Time = Time(10_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn snooper(max: usize) -> Snooper {
    Snooper::new(MAC, max)
}

/// The groups of all due queries.
fn queries(s: &mut Snooper) -> Vec<IpAddr> {
    let mut frame = Vec::new();
    let mut all = Vec::new();
    while s.poll_query(&mut frame) {
        let group = if frame[12..14] == [8, 0] {
            IpAddr::from(<[u8; 4]>::try_from(&frame[42..46]).unwrap())
        } else {
            IpAddr::from(<[u8; 16]>::try_from(&frame[70..86]).unwrap())
        };
        all.push(group);
    }
    all
}

/// Runs until `end`. For each deadline: time since `T0`, number of queries, whether groups were removed.
fn run(s: &mut Snooper, end: u64) -> Vec<(u64, usize, bool)> {
    let mut all = Vec::new();
    let mut now = T0;
    while let Some(at) = s.next_deadline().filter(|at| at.0 <= T0.0 + end) {
        now = now.max(at);
        let gone = s.handle_timeout(now);
        let asked = queries(s).len();
        if asked > 0 || gone {
            all.push((now.0 - T0.0, asked, gone));
        }
    }
    all
}

/// tshark has checked each query, and Linux has answered it.
#[test]
fn the_bytes_of_queries() {
    let mut s = snooper(8);
    s.set_querying(T0, true);
    for group in ["239.1.2.3", "ff15::1234"] {
        s.joined(T0, ip(group));
        s.left(T0, ip(group));
    }
    let expected = [
        "01005e000001 060102030405 0800
         46c000240000400001020413 00000000e0000001 94040000 1164ec1e00000000027d0000",
        "333300000001 060102030405 86dd 6000000000240001
         fe80000000000000040102fffe030405 ff020000000000000000000000000001 3a00050200000100
         82004d8e27100000 00000000000000000000000000000000 027d0000",
        "01005e010203 060102030405 0800
         46c00024000040000102f30f 00000000ef010203 94040000 110afb73ef010203027d0000",
        "333300001234 060102030405 86dd 6000000000240001
         fe80000000000000040102fffe030405 ff150000000000000000000000001234 3a00050200000100
         82004d2603e80000 ff150000000000000000000000001234 027d0000",
    ];
    let mut frame = vec![1, 2, 3];
    for bytes in expected {
        assert!(s.poll_query(&mut frame));
        assert_eq!(frame, hex(bytes), "{bytes}");
    }
    assert!(!s.poll_query(&mut frame));
}

#[test]
fn general_queries_come_early_at_first() {
    let mut s = snooper(8);
    assert_eq!(s.next_deadline(), None);
    s.set_querying(T0, true);
    let times: Vec<u64> = run(&mut s, 300_000).into_iter().map(|(t, ..)| t).collect();
    assert_eq!(times, [0, 31_250, 156_250, 281_250]);
    s.set_querying(T0, false);
    assert_eq!(s.next_deadline(), None);
}

#[test]
fn a_membership_lives_for_260_seconds_after_the_last_report() {
    let mut s = snooper(8);
    assert!(s.joined(T0, ip("239.1.2.3")));
    assert!(!s.joined(T0.after(100_000), ip("239.1.2.3")));
    assert_eq!(run(&mut s, 359_999), []);
    assert!(s.is_member(ip("239.1.2.3")));
    assert_eq!(run(&mut s, 360_000), [(360_000, 0, true)]);
    assert!(!s.is_member(ip("239.1.2.3")));
    assert_eq!(s.next_deadline(), None);
}

#[test]
fn after_a_leave_the_others_are_asked_twice() {
    let mut s = snooper(8);
    s.set_querying(T0, true);
    let _ = queries(&mut s);
    s.joined(T0, ip("ff15::1"));
    s.left(T0, ip("ff15::1"));
    assert_eq!(run(&mut s, 1500), [(0, 1, false), (1000, 1, false)]);
    // A repetition delays nothing.
    s.left(T0.after(1500), ip("ff15::1"));
    assert_eq!(run(&mut s, 10_000), [(2000, 0, true)]);
    assert_eq!(s.groups().count(), 0);
}

#[test]
fn a_member_that_answers_keeps_the_group() {
    let mut s = snooper(8);
    s.set_querying(T0, true);
    let _ = queries(&mut s);
    s.joined(T0, ip("239.1.2.3"));
    s.left(T0, ip("239.1.2.3"));
    assert_eq!(queries(&mut s), [ip("239.1.2.3")]);
    assert!(!s.joined(T0.after(700), ip("239.1.2.3")));
    assert_eq!(run(&mut s, 31_000), []);
    assert_eq!(s.groups().collect::<Vec<_>>(), [ip("239.1.2.3")]);
}

#[test]
fn without_a_querier_a_leave_counts_after_two_seconds() {
    let mut s = snooper(8);
    s.joined(T0, ip("239.1.2.3"));
    s.left(T0, ip("239.1.2.3"));
    assert_eq!(run(&mut s, 10_000), [(2000, 0, true)]);
}

#[test]
fn a_full_table_keeps_what_it_has() {
    let mut s = snooper(2);
    assert!(s.joined(T0, ip("239.0.0.1")));
    assert!(s.joined(T0, ip("239.0.0.2")));
    assert!(!s.joined(T0, ip("239.0.0.3")));
    assert!(!s.joined(T0, ip("239.0.0.1")));
    assert_eq!(s.refused(), 1);
    assert!(!s.is_member(ip("239.0.0.3")));
    s.left(T0, ip("239.0.0.2"));
    run(&mut s, 2000);
    assert!(s.joined(T0.after(2000), ip("239.0.0.3")));
}

proptest! {
    #[test]
    fn it_stays_bounded_and_comes_to_rest(
        steps in prop::collection::vec((0u8..4, 0u8..8, 0u64..2000), 0..200)
    ) {
        let mut s = snooper(4);
        let mut now = T0;
        for (what, group, pause) in steps {
            let group = IpAddr::from([239, 0, 0, group]);
            now = now.after(pause);
            match what {
                0 => { s.joined(now, group); }
                1 => s.left(now, group),
                2 => s.set_querying(now, pause % 2 == 0),
                _ => { s.handle_timeout(now); }
            }
            prop_assert!(s.groups().count() <= 4);
            // One for each group, and the two general ones.
            prop_assert!(s.queries.len() <= 4 + 2, "{} queries wait", s.queries.len());
        }
        s.set_querying(now, false);
        s.handle_timeout(now.after(MEMBERSHIP_MS));
        prop_assert_eq!(s.groups().count(), 0);
        prop_assert_eq!(s.next_deadline(), None);
    }
}
