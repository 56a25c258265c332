use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 9];

fn port(index: u8) -> PortKey {
    PortKey {
        guid: 1,
        port: 1,
        index,
    }
}

fn owner(claims: &Claims) -> Option<PortKey> {
    claims
        .places(|_| true)
        .find(|(mac, _)| *mac == MAC)
        .map(|(_, port)| port)
}

#[test]
fn the_newest_claim_wins_and_is_reported_once() {
    let (mut claims, mut alarms) = (Claims::default(), Vec::new());
    let macs = BTreeSet::from([MAC]);
    assert!(claims.report(Time(0), port(1), &macs, &mut alarms));
    assert!(claims.report(Time(1), port(2), &macs, &mut alarms));
    assert_eq!(owner(&claims), Some(port(2)));
    // The same list again is not a new claim.
    assert!(!claims.report(Time(2), port(1), &macs, &mut alarms));
    assert_eq!(owner(&claims), Some(port(2)));
    assert_eq!(
        alarms,
        [Alarm::Duplicate {
            mac: MAC,
            from: port(1),
            to: port(2)
        }]
    );
    // The address returns to the port that still claims it.
    assert!(claims.report(Time(3), port(2), &BTreeSet::new(), &mut alarms));
    assert_eq!(owner(&claims), Some(port(1)));
    assert!(claims.report(Time(4), port(1), &BTreeSet::new(), &mut alarms));
    assert_eq!(owner(&claims), None);
    let _ = claims.advance(claims.deadline().unwrap());
    assert!(claims.by_mac.is_empty() && claims.by_port.is_empty());
    assert_eq!(claims.orphans, 0);
}

#[test]
fn while_the_owner_is_no_member_the_newest_member_has_the_address() {
    let (mut claims, mut alarms) = (Claims::default(), Vec::new());
    let macs = BTreeSet::from([MAC]);
    for index in [2_u8, 1, 3] {
        let now = Time(u64::from(index));
        let _ = claims.report(now, port(index), &macs, &mut alarms);
    }
    let place = |members: &[u8]| {
        let is_member = |key: &PortKey| members.contains(&key.index);
        claims.places(is_member).next()
    };
    assert_eq!(place(&[1, 2, 3]), Some((MAC, port(3))));
    // Port 1 claimed the address after port 2.
    assert_eq!(place(&[1, 2]), Some((MAC, port(1))));
    assert_eq!(place(&[2]), Some((MAC, port(2))));
    assert_eq!(place(&[]), None);
}

/// Two ports claim an address in turn, again and again. `gap`: in between, no port claims it.
fn to_and_fro(gap: bool) {
    let (mut claims, mut alarms) = (Claims::default(), Vec::new());
    let (has, none) = (BTreeSet::from([MAC]), BTreeSet::new());
    let mut moves = 0;
    let _ = claims.report(Time(0), port(0), &has, &mut alarms);
    for n in 1..40_u64 {
        let (to, from) = (port((n % 2) as u8), port((1 - n % 2) as u8));
        let before = claims.by_mac[&MAC].last;
        let mut steps = [(to, &has), (from, &none)];
        if gap {
            steps.reverse();
        }
        for (port, macs) in steps {
            let _ = claims.report(Time(n * 10), port, macs, &mut alarms);
        }
        moves += u8::from(owner(&claims).is_some_and(|now| now != before));
    }
    assert_eq!(moves, MOVES, "{gap}");
    let damped = |a: &&Alarm| matches!(a, Alarm::Damped { .. });
    assert_eq!(alarms.iter().filter(damped).count(), 1, "{alarms:?}");
    // The address left the port where it was held, and other members do not learn the new port.
    assert_eq!(owner(&claims), None);
    let until = claims.deadline().unwrap();
    assert!(!claims.advance(Time(until.0 - 1)));
    assert!(claims.advance(until));
    assert_eq!(claims.deadline(), None);
    assert_eq!(owner(&claims), Some(port(1)));
}

#[test]
fn an_address_that_goes_to_and_fro_stays_for_a_while() {
    to_and_fro(false);
    to_and_fro(true);
}

#[test]
fn the_owner_of_a_contested_address_keeps_it_after_a_restart_in_any_order() {
    let macs = BTreeSet::from([MAC]);
    for order in [[1, 2], [2, 1]] {
        let mut alarms = Vec::new();
        let mut claims = Claims::new(BTreeMap::from([(MAC, port(1))]));
        for index in order {
            let _ = claims.report(Time(0), port(index), &macs, &mut alarms);
        }
        assert_eq!(owner(&claims), Some(port(1)), "{order:?}");
        let alarm = [Alarm::Duplicate {
            mac: MAC,
            from: port(2),
            to: port(1),
        }];
        assert_eq!(alarms, alarm, "{order:?}");
        let contested = claims.take_contested().cloned();
        assert_eq!(contested, Some(BTreeMap::from([(MAC, port(1))])));
        assert_eq!(claims.take_contested(), None);
        // From now on a new claim is newer.
        claims.all_heard();
        let _ = claims.report(Time(1), port(2), &BTreeSet::new(), &mut alarms);
        assert_eq!(claims.take_contested(), Some(&BTreeMap::new()));
        let _ = claims.report(Time(2), port(2), &macs, &mut alarms);
        assert_eq!(owner(&claims), Some(port(2)), "{order:?}");
    }
    // The former owner is absent.
    let mut claims = Claims::new(BTreeMap::from([(MAC, port(1))]));
    let _ = claims.report(Time(0), port(2), &macs, &mut Vec::new());
    assert_eq!(owner(&claims), Some(port(2)));
}

#[test]
fn deadlines_are_those_of_the_claims() {
    let (mut claims, mut alarms) = (Claims::default(), Vec::new());
    let mac = |n: u64| [2, 0, 0, 0, 1, n as u8];
    for n in 0..400_u64 {
        let (at, who) = (Time(n * 700), port((n % 3) as u8));
        let some = (0..20).filter(|m| (n * m + n / 3) % 3 == 0).map(mac);
        let _ = claims.report(at, who, &some.collect(), &mut alarms);
        if n % 5 == 0 {
            let _ = claims.advance(at);
        }
        let real = claims.by_mac.values().filter_map(Claim::deadline).min();
        assert_eq!(claims.deadline(), real, "{n}");
        let many = claims.by_mac.values().filter(|c| c.deadline().is_some());
        assert_eq!(claims.deadlines.len(), many.count(), "{n}");
    }
    assert!(alarms.len() > 10, "{alarms:?}");
}

#[test]
fn multicast_and_broadcast_addresses_cannot_be_claimed() {
    let (mut claims, mut alarms) = (Claims::default(), Vec::new());
    let macs = BTreeSet::from([
        [0xff; 6],
        [0x33, 0x33, 0, 0, 0, 1],
        [1, 0, 0x5e, 0, 0, 1],
        MAC,
    ]);
    assert!(claims.report(Time(0), port(1), &macs, &mut alarms));
    assert_eq!(claims.places(|_| true).count(), 1);
    assert_eq!(owner(&claims), Some(port(1)));
}

#[test]
fn a_port_claims_so_many_addresses_and_no_more() {
    let (mut claims, mut alarms) = (Claims::default(), Vec::new());
    let many = (0..5000_u16).map(|n| {
        let [a, b] = n.to_be_bytes();
        [2, 0, 0, 0, a, b]
    });
    let _ = claims.report(Time(0), port(1), &many.collect(), &mut alarms);
    assert_eq!(claims.places(|_| true).count(), PORT_CLAIMS);
}
