//! Datagram services over a network that loses and duplicates, and against peers with too many
//! requests.

use std::time::Duration;

use proptest::prelude::*;
use proto::QKey;

use super::*;

const NOW: Instant = Instant(1_000_000_000);
const DATAGRAMS: ServiceId = ServiceId::rdma_cm_datagrams(4755);

const FOUND: DatagramService = DatagramService {
    qpn: Qpn::new(0x42),
    qkey: QKey::new(0x0b1b),
};

fn ask_of(peer: Gid) -> SidrAsk<'static> {
    SidrAsk {
        service: DATAGRAMS,
        peer,
        pkey: PKey::DEFAULT,
        private_data: b"where",
    }
}

/// A node with the service answers all requests.
fn serve(cm: &mut Cm) {
    while let Some(event) = cm.poll_sidr() {
        let SidrEvent::Requested { request, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(request.service, DATAGRAMS);
        cm.answer(&request, Ok(FOUND));
    }
}

fn answer(cm: &mut Cm) -> Option<(SidrId, Result<DatagramService, NoService>)> {
    match cm.poll_sidr()? {
        SidrEvent::Answered { id, service } => Some((id, service)),
        event => panic!("{event:?}"),
    }
}

#[test]
fn an_answer_comes_once_however_often_it_is_heard() {
    let (mut us, mut them) = (Cm::new(config(1)), Cm::new(config(2)));
    let id = us.ask_for_datagrams(NOW, &ask_of(gid(2))).unwrap();
    let request = only(&mut us);
    for _ in 0..2 {
        them.receive(NOW, gid(1), &request, |s| s == DATAGRAMS);
    }
    serve(&mut them);
    let replies = drain(&mut them);
    assert_eq!(replies.len(), 2);
    // Not from another node.
    us.receive(NOW, gid(3), &replies[0].1, |_| true);
    assert_eq!(answer(&mut us), None);
    assert_eq!(counter(&us, "cm_rx_wrong_source"), 1);
    for (_, reply) in &replies {
        us.receive(NOW, gid(2), reply, |_| true);
    }
    assert_eq!(answer(&mut us), Some((id, Ok(FOUND))));
    assert_eq!(answer(&mut us), None);
    assert_eq!(counter(&us, "cm_rx_unmatched"), 1);
    assert_eq!(us.next_deadline(), None);
}

#[test]
fn nobody_there_is_found_out() {
    let mut cm = Cm::new(config(1));
    let id = cm.ask_for_datagrams(NOW, &ask_of(gid(2))).unwrap();
    let (mut sent, mut now) = (drain(&mut cm).len(), NOW);
    while let Some(at) = cm.next_deadline() {
        assert!(at > now);
        now = at;
        cm.handle_timeout(now);
        sent += drain(&mut cm).len();
    }
    assert_eq!(answer(&mut cm), Some((id, Err(NoService::TimedOut))));
    assert_eq!(sent, 1 + usize::from(times::MAX_CM_RETRIES));
    assert_eq!(counter(&cm, "cm_tx_retries_sidr_req"), 7);
    assert!(now.since(NOW) < Duration::from_secs(10));
}

#[test]
fn every_refusal_is_reported() {
    use NoService::{NoQp, Other, Redirected, Rejected, Unsupported, Version};
    for refusal in [Unsupported, Rejected, NoQp, Redirected, Version, Other(77)] {
        let (mut us, mut them) = (Cm::new(config(1)), Cm::new(config(2)));
        let id = us.ask_for_datagrams(NOW, &ask_of(gid(2))).unwrap();
        them.receive(NOW, gid(1), &only(&mut us), |_| true);
        let Some(SidrEvent::Requested { request, .. }) = them.poll_sidr() else {
            panic!("no request");
        };
        them.answer(&request, Err(refusal));
        us.receive(NOW, gid(2), &only(&mut them), |_| true);
        assert_eq!(answer(&mut us), Some((id, Err(refusal))));
    }
}

/// A reserved queue pair number is no answer: the request continues.
#[test]
fn a_reserved_queue_pair_is_no_answer() {
    let mut cm = Cm::new(config(1));
    cm.ask_for_datagrams(NOW, &ask_of(gid(2))).unwrap();
    let mut reply = only(&mut cm);
    reply[17] = cm::SIDR_REP as u8;
    for qpn in [0, 1, 0xff_ffff] {
        reply[28..].fill(0);
        reply[24 + 8..][..3].copy_from_slice(&Qpn::new(qpn).to_bytes());
        cm.receive(NOW, gid(2), &reply, |_| true);
    }
    assert_eq!(answer(&mut cm), None);
    assert_eq!(counter(&cm, "cm_rx_malformed"), 3);
    assert!(cm.next_deadline().is_some());
}

#[test]
fn a_flood_is_answered_at_its_rate_and_takes_no_memory() {
    let mut cm = Cm::new(config(1));
    let mut flooder = Cm::new(config(2));
    let mut now = NOW;
    let mut answers = 0;
    for n in 0..5000u32 {
        now = now.after(Duration::from_micros(100));
        if flooder.ask_for_datagrams(now, &ask_of(gid(1))).is_err() {
            // It has no memory for more requests.
            flooder = Cm::new(CmConfig {
                seed: [n.into(), 7],
                ..config(2)
            });
            continue;
        }
        for (_, request) in drain(&mut flooder) {
            cm.receive(now, gid(2), &request, |_| true);
        }
        serve(&mut cm);
        answers += drain(&mut cm).len();
    }
    // Half a second: the burst and the rate.
    assert!((380..=386).contains(&answers), "{answers}");
    // The user takes no events: their number is limited.
    for n in 0..1000u32 {
        let source = std::net::Ipv4Addr::from(0x0a00_0000 + n).into();
        let mut asker = Cm::new(config(3));
        asker.ask_for_datagrams(now, &ask_of(gid(1))).unwrap();
        cm.receive(now, source, &only(&mut asker), |_| true);
    }
    assert_eq!(std::iter::from_fn(|| cm.poll_sidr()).count(), 256);
}

proptest! {
    /// The answer arrives exactly once, for any losses, duplicates and delays, unless everything is
    /// lost.
    #[test]
    fn an_answer_comes_over_a_bad_network(seed in any::<u64>()) {
        let mut random = Random::new([seed, 0]);
        let (mut us, mut them) = (Cm::new(config(1)), Cm::new(config(2)));
        let id = us.ask_for_datagrams(NOW, &ask_of(gid(2))).unwrap();
        let mut late: Vec<Datagram> = Vec::new();
        let (mut now, mut answers, mut lost) = (NOW, Vec::new(), 0);
        for _ in 0..20 {
            for (_, request) in drain(&mut us) {
                let fate = random.next() % 10;
                // Of eight requests at most six are lost, or their answers.
                if fate < 5 && lost + late.len() < 6 {
                    lost += 1;
                    continue;
                }
                them.receive(now, gid(1), &request, |_| true);
                if fate == 9 {
                    them.receive(now, gid(1), &request, |_| true);
                }
            }
            serve(&mut them);
            for (_, reply) in drain(&mut them) {
                match random.next() % 10 {
                    0..3 if lost + late.len() < 6 => lost += 1,
                    3..5 if lost + late.len() < 6 => late.push(reply),
                    _ => us.receive(now, gid(2), &reply, |_| true),
                }
            }
            answers.extend(answer(&mut us));
            now = us.next_deadline().unwrap_or(now).max(now);
            us.handle_timeout(now);
            answers.extend(answer(&mut us));
        }
        for reply in late {
            us.receive(now, gid(2), &reply, |_| true);
        }
        answers.extend(answer(&mut us));
        prop_assert_eq!(answers, [(id, Ok(FOUND))]);
    }

    /// Random bytes answer the request at most once.
    #[test]
    fn nonsense_answers_nothing(bodies in prop::collection::vec(any::<[u8; 32]>(), 0..40)) {
        let mut cm = Cm::new(config(1));
        let id = cm.ask_for_datagrams(NOW, &ask_of(gid(2))).unwrap();
        let sent = only(&mut cm);
        let mut answers = 0;
        for fill in bodies {
            let mut mad: Datagram = std::array::from_fn(|i| fill[i % 32]);
            mad[..24].copy_from_slice(&sent[..24]);
            mad[17] = cm::SIDR_REQ as u8 + (fill[0] & 1);
            if fill[0] & 2 == 0 {
                mad[24..28].copy_from_slice(&id.0.to_be_bytes());
            }
            cm.receive(NOW, gid(2), &mad, |_| fill[1] & 1 == 0);
            drain(&mut cm);
            while let Some(event) = cm.poll_sidr() {
                answers += usize::from(matches!(event, SidrEvent::Answered { .. }));
            }
        }
        prop_assert!(answers <= 1);
    }
}
