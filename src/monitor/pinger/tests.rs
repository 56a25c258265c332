use control::api::PingRequest;

use super::*;
use ipoib::EchoTarget;

const STREAM: StreamId = StreamId(1);
const LINK: LinkId = LinkId(3);
const PORT: PortId = PortId(1);
const MS: Duration = Duration::from_millis(1);

fn gid(n: u8) -> Gid {
    format!("fe80::{n}").parse().unwrap()
}

fn names() -> Names {
    let ips = vec!["10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap()];
    [((gid(2), Qpn::new(0x12)), ips)].into()
}

fn request(target: &str) -> PingRequest {
    PingRequest {
        interface: "ib0".into(),
        target: target.into(),
        count: Some(2),
        size: None,
        interval_ms: Some(100),
        timeout_ms: Some(1000),
    }
}

fn plan(request: &PingRequest) -> Result<Plan, String> {
    let names = names();
    let link = Link {
        link: LINK,
        port: PORT,
        gid: gid(1),
        payload_max: 4096,
        names: &names,
    };
    Plan::new(request, &link).map_err(|e| e.to_string())
}

fn start(target: &str) -> (Pingers, Instant) {
    let mut pingers = Pingers::default();
    let now = Instant::now();
    pingers.add(STREAM, plan(&request(target)).unwrap(), names(), now);
    (pingers, now)
}

fn answer(sequence: u32, peer: u8, round_trip: u64) -> Answered {
    Answered {
        from: HardwareAddress::new(0, Qpn::new(0x12), gid(peer)),
        id: 1,
        sequence,
        len: 64,
        round_trip,
    }
}

/// All replies that wait for the client.
fn replies(pingers: &mut Pingers) -> Vec<Streamed> {
    let mut all = Vec::new();
    loop {
        match pingers.next(STREAM) {
            None | Some(Streamed::Nothing) => return all,
            Some(reply) => all.push(reply),
        }
    }
}

fn timeout(sequence: u32) -> Streamed {
    Streamed::Reply(Reply::Ping(PingReply::Timeout(EchoTimeout { sequence })))
}

fn summary(last: &Streamed) -> PingSummary {
    match last {
        Streamed::Last(Ok(Reply::Ping(PingReply::Summary(summary)))) => *summary,
        other => panic!("no summary: {other:?}"),
    }
}

#[test]
fn requests_are_paced_answers_matched_and_summed_up() {
    let (mut pingers, t0) = start("10.9.0.2");
    assert_eq!(pingers.deadline(), Some(t0));
    let sent = pingers.due(t0);
    assert_eq!(sent.len(), 1);
    let (port, link, first) = sent[0];
    assert_eq!((port, link), (PORT, LINK));
    assert_eq!((first.sequence, first.len), (1, 64));
    assert_eq!(first.target, EchoTarget::Ip("10.9.0.2".parse().unwrap()));
    assert_eq!(pingers.due(t0), []);
    assert_eq!(pingers.deadline(), Some(t0 + 100 * MS));
    pingers.answered(LINK, &answer(1, 2, 3000));
    let Streamed::Reply(Reply::Ping(PingReply::Answer(a))) = &replies(&mut pingers)[0] else {
        panic!("no answer");
    };
    assert_eq!((a.sequence, a.gid, a.round_trip_ns), (1, gid(2), 3000));
    assert_eq!(a.ips.len(), 2);

    assert_eq!(pingers.due(t0 + 100 * MS)[0].2.sequence, 2);
    // Second answers, and answers of another ping or another link, are not counted.
    pingers.answered(LINK, &answer(1, 2, 1));
    pingers.answered(
        LINK,
        &Answered {
            id: 9,
            ..answer(2, 2, 1)
        },
    );
    pingers.answered(LinkId(4), &answer(2, 2, 1));
    assert_eq!(replies(&mut pingers), []);
    pingers.answered(LINK, &answer(2, 2, 1000));
    let all = replies(&mut pingers);
    let expected = PingSummary {
        sent: 2,
        answered: 2,
        answers: 2,
        min_ns: 1000,
        mean_ns: 2000,
        max_ns: 3000,
    };
    assert_eq!(summary(&all[1]), expected);
    assert!(pingers.next(STREAM).is_none() && pingers.deadline().is_none());
}

#[test]
fn requests_without_an_answer_time_out_one_by_one() {
    let (mut pingers, t0) = start("fe80::9");
    pingers.due(t0);
    pingers.due(t0 + 150 * MS);
    assert_eq!(pingers.deadline(), Some(t0 + 1000 * MS));
    assert_eq!(replies(&mut pingers), []);
    pingers.due(t0 + 1000 * MS);
    assert_eq!(replies(&mut pingers), [timeout(1)]);
    pingers.answered(LINK, &answer(1, 9, 1));
    pingers.due(t0 + 1150 * MS);
    let all = replies(&mut pingers);
    assert_eq!(all[0], timeout(2));
    let nothing = PingSummary {
        sent: 2,
        ..PingSummary::default()
    };
    assert_eq!(summary(&all[1]), nothing);
}

#[test]
fn everybody_may_answer_until_the_time_is_up() {
    let (mut pingers, t0) = start("all");
    pingers.due(t0);
    pingers.due(t0 + 100 * MS);
    for peer in 2..5 {
        pingers.answered(LINK, &answer(1, peer, 10));
    }
    assert_eq!(replies(&mut pingers).len(), 3);
    pingers.due(t0 + 1100 * MS);
    let all = replies(&mut pingers);
    assert_eq!(all[0], timeout(2));
    let s = summary(&all[1]);
    assert_eq!((s.sent, s.answered, s.answers), (2, 1, 3));
}

#[test]
fn names_are_read_again_for_a_new_peer_but_not_for_each_answer() {
    let (mut pingers, t0) = start("all");
    pingers.due(t0);
    assert!(!pingers.lacks_names(LINK, &answer(1, 2, 1), t0 + 2000 * MS));
    assert!(!pingers.lacks_names(LINK, &answer(1, 7, 1), t0));
    assert!(pingers.lacks_names(LINK, &answer(1, 7, 1), t0 + 1000 * MS));
    pingers.set_names(LINK, &names(), t0 + 1000 * MS);
    assert!(!pingers.lacks_names(LINK, &answer(1, 7, 1), t0 + 1001 * MS));
}

#[test]
fn an_unreachable_target_is_explained_once() {
    let (mut pingers, t0) = start("10.9.0.7");
    pingers.due(t0);
    pingers.refused(LINK, 1, 1);
    let [Streamed::Last(Err(ApiError::Refused { message }))] = &replies(&mut pingers)[..] else {
        panic!("not refused");
    };
    assert_eq!(
        message,
        "ib0 has no neighbour with the address 10.9.0.7; run \"ping -c 1 10.9.0.7\" first, \
         or use the GID of the peer"
    );

    let (mut pingers, t0) = start("10.9.0.2");
    pingers.due(t0);
    pingers.answered(LINK, &answer(1, 2, 1));
    pingers.due(t0 + 100 * MS);
    pingers.refused(LINK, 1, 2);
    assert_eq!(replies(&mut pingers)[1], timeout(2));
}

#[test]
fn a_closed_interface_ends_its_pings() {
    let (mut pingers, t0) = start("all");
    pingers.due(t0);
    pingers.link_closed(LINK);
    assert_eq!(pingers.due(t0 + 500 * MS), []);
    let all = replies(&mut pingers);
    assert!(matches!(&all[..], [Streamed::Last(Err(_))]), "{all:?}");
}

#[test]
fn identifiers_of_pings_in_progress_are_not_reused() {
    let (mut pingers, t0) = start("all");
    for n in 0..=u64::from(u16::MAX) {
        let other = StreamId(STREAM.0 + 1 + n);
        pingers.add(other, plan(&request("all")).unwrap(), names(), t0);
        assert_ne!(pingers.all[&other].id, pingers.all[&STREAM].id);
        pingers.remove(other);
    }
}

#[test]
fn replies_for_a_slow_client_are_bounded() {
    let (mut pingers, t0) = start("all");
    pingers.due(t0);
    for _ in 0..2 * QUEUE_MAX {
        pingers.answered(LINK, &answer(1, 2, 1));
    }
    assert_eq!(pingers.all[&STREAM].queue.len(), QUEUE_MAX);
    assert_eq!(pingers.all[&STREAM].tally.answers, 2 * QUEUE_MAX as u32);
}

#[test]
fn an_ipv6_address_is_of_a_neighbour_or_a_gid() {
    let target = |text: &str| plan(&request(text)).map(|p| p.target);
    let ip = |text: &str| Ok(EchoTarget::Ip(text.parse().unwrap()));
    assert_eq!(target("fd09::2"), ip("fd09::2"));
    assert_eq!(target("fe80::2"), Ok(EchoTarget::Gid(gid(2))));
    assert_eq!(
        target("::ffff:192.0.2.1"),
        Ok(EchoTarget::Gid("::ffff:192.0.2.1".parse().unwrap()))
    );
    assert_eq!(target("all"), Ok(EchoTarget::All));
    assert!(target("fe80::1").unwrap_err().contains("own GID"));
    assert!(target("ff02::1").unwrap_err().contains("\"all\""));
    assert!(
        target("host.example")
            .unwrap_err()
            .contains("is not a peer")
    );
}

#[test]
fn sizes_and_times_out_of_range_are_refused_with_a_message() {
    let with = |change: &dyn Fn(&mut PingRequest)| {
        let mut request = request("10.9.0.2");
        change(&mut request);
        plan(&request).map(drop)
    };
    assert_eq!(with(&|r| r.size = Some(4096)), Ok(()));
    assert_eq!(
        with(&|r| r.size = Some(4097)).unwrap_err(),
        "4097 bytes are out of range for an echo request to 10.9.0.2 on ib0; use 40 to 4096"
    );
    assert!(with(&|r| r.size = Some(39)).is_err());
    let many = |size| {
        with(&|r| {
            r.target = "all".into();
            r.size = Some(size);
        })
    };
    assert!(many(128).is_ok() && many(129).is_err());
    let gid = |n: u8, size| {
        with(&|r| {
            r.target = format!("fe80::{n}");
            r.size = Some(size);
        })
    };
    assert!(gid(2, 4096).is_ok() && gid(9, 128).is_ok());
    assert_eq!(
        gid(9, 129).unwrap_err(),
        "129 bytes are out of range for an echo request to fe80::9 on ib0; use 40 to 128; larger \
         sizes need a known peer: ping one of its IP addresses first"
    );
    assert!(with(&|r| r.interval_ms = Some(9)).is_err());
    assert!(with(&|r| r.timeout_ms = Some(0)).is_err());
    assert!(with(&|r| r.timeout_ms = Some(60_001)).is_err());
    assert!(with(&|r| r.count = Some(0)).is_err());
}
