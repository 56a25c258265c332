//! The rules, one by one (from the handlers in drivers/infiniband/core/cm.c).

use std::time::Duration;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::world::{World, perfect};
use super::*;
use crate::mad::MAD_LEN;
use crate::mad::cm::{Answered, Dreq, Mra, Rej, Rep, Req, Rtu};

const NOW: Instant = Instant(1_000_000_000);
const PEER: u8 = 2;

/// A datagram of the peer.
fn mad(attribute: u16, data: &[u8]) -> Datagram {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[8..16].copy_from_slice(&0x1234_5678_9abc_def0u64.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[24..].copy_from_slice(data);
    mad
}

/// The peer's request, modified.
fn req_with(change: impl FnOnce(&mut Req)) -> Datagram {
    let mut cm = Cm::new(config(PEER));
    cm.connect(NOW, &ask(gid(PEER), gid(1), 0x777)).unwrap();
    let sent = only(&mut cm);
    let mut req = Req::read_from_bytes(&sent[24..]).unwrap();
    change(&mut req);
    let mut changed = sent;
    changed[24..].copy_from_slice(req.as_bytes());
    changed
}

/// The peer's id in one of its datagrams.
fn its_id(mad: &Datagram) -> u32 {
    u32::from_be_bytes(*mad[24..].first_chunk().unwrap())
}

fn rej_of(datagram: &Datagram) -> Rej {
    assert_eq!(name(datagram), "REJ");
    Rej::read_from_bytes(&datagram[24..]).unwrap()
}

/// The rejection of a peer's request, if any.
fn rejection(request: &Datagram) -> Option<Rej> {
    let mut cm = Cm::new(config(1));
    cm.receive(NOW, gid(PEER), request, listens);
    match events(&mut cm)[..] {
        [] => Some(rej_of(&only(&mut cm))),
        [CmEvent::Requested { .. }] => None,
        ref other => panic!("{other:?}"),
    }
}

/// A node with an incoming connection in REQ_RCVD.
fn asked() -> (Cm, CmId, Datagram) {
    let mut cm = Cm::new(config(1));
    let req = req_with(|_| {});
    cm.receive(NOW, gid(PEER), &req, listens);
    let [CmEvent::Requested { id, .. }] = events(&mut cm)[..] else {
        panic!("no request");
    };
    (cm, id, req)
}

/// In REP_SENT, with local queue pair 0x55.
fn consented() -> (Cm, CmId, Datagram) {
    let (mut cm, id, req) = asked();
    cm.accept(NOW, id, &consent(0x55));
    assert_eq!(name(&only(&mut cm)), "REP");
    (cm, id, req)
}

/// In ESTABLISHED, on the listener's side.
fn confirmed() -> (Cm, CmId, Datagram) {
    let (mut cm, id, req) = consented();
    cm.receive(NOW, gid(PEER), &rtu(id, its_id(&req)), listens);
    assert_eq!(events(&mut cm), [CmEvent::Established { id }]);
    (cm, id, req)
}

fn rtu(id: CmId, theirs: u32) -> Datagram {
    let mut m = Rtu::new_zeroed();
    m.local_comm_id = U32::new(theirs);
    m.remote_comm_id = U32::new(id.0);
    mad(cm::RTU, m.as_bytes())
}

fn dreq(id: CmId, theirs: u32, qpn: u32) -> Datagram {
    let mut m = Dreq::new_zeroed();
    m.local_comm_id = U32::new(theirs);
    m.remote_comm_id = U32::new(id.0);
    m.set_remote_qpn(Qpn::new(qpn));
    mad(cm::DREQ, m.as_bytes())
}

fn mra(id: CmId, theirs: u32, answered: Answered, timeout: u8) -> Datagram {
    let mut m = Mra::new_zeroed();
    m.local_comm_id = U32::new(theirs);
    m.remote_comm_id = U32::new(id.0);
    m.set_answered_bits(answered as u8);
    m.set_service_timeout(timeout);
    mad(cm::MRA, m.as_bytes())
}

fn rej(id: u32, theirs: u32, rejected: Answered, reason: u16) -> Datagram {
    let mut m = Rej::new_zeroed();
    m.local_comm_id = U32::new(theirs);
    m.remote_comm_id = U32::new(id);
    m.set_rejected_bits(rejected as u8);
    m.reason = U16::new(reason);
    mad(cm::REJ, m.as_bytes())
}

fn rep(id: CmId, theirs: u32, qpn: u32) -> Datagram {
    let mut m = Rep::new_zeroed();
    m.local_comm_id = U32::new(theirs);
    m.remote_comm_id = U32::new(id.0);
    m.set_local_qpn(Qpn::new(qpn));
    m.local_ca_guid = config(PEER).ca_guid.0;
    mad(cm::REP, m.as_bytes())
}

#[test]
fn a_bad_request_is_rejected_with_the_reason() {
    assert_eq!(rejection(&req_with(|_| {})), None);
    let reason = |change: fn(&mut Req)| {
        let request = req_with(change);
        let rej = rejection(&request).unwrap();
        let remote = rej.remote_comm_id.get();
        assert_eq!((rej.local_comm_id.get(), remote), (0, its_id(&request)));
        assert_eq!(rej.rejected(), Answered::Req);
        rej.reason.get()
    };
    assert_eq!(reason(|r| r.service_id.set(1)), 8);
    // UC, RD, XRC.
    assert_eq!(reason(|r| r.set_transport_service(1)), 9);
    assert_eq!(reason(|r| r.set_transport_service(2)), 9);
    assert_eq!(reason(|r| r.set_transport_service(3)), 9);
    assert_eq!(reason(|r| r.primary.local_gid[15] ^= 1), 12);
    assert_eq!(reason(|r| r.pkey.set(0x8000)), 12);
    assert_eq!(reason(|r| r.set_path_mtu(0)), 26);
    assert_eq!(reason(|r| r.set_path_mtu(6)), 26);
}

/// Checklist 105.
#[test]
fn an_alternate_path_does_not_matter() {
    let alternate = req_with(|r| {
        r.alternate.local_lid.set(17);
        r.alternate.local_gid = [0xff; 16];
    });
    assert_eq!(rejection(&alternate), None);
}

#[test]
fn senseless_requests_get_no_answer() {
    let senseless: [fn(&mut Req); 4] = [
        |r| r.local_comm_id.set(0),
        |r| r.set_local_qpn(Qpn::new(0)),
        |r| r.set_local_qpn(Qpn::GSI),
        |r| r.set_local_qpn(Qpn::MULTICAST),
    ];
    for change in senseless {
        let mut cm = Cm::new(config(1));
        cm.receive(NOW, gid(PEER), &req_with(change), listens);
        assert_eq!((drain(&mut cm), events(&mut cm)), (vec![], vec![]));
        assert_eq!(counter(&cm, "cm_rx_malformed"), 1);
    }
    let mut old = req_with(|_| {});
    old[2] = 1;
    let mut cm = Cm::new(config(1));
    cm.receive(NOW, gid(PEER), &old, listens);
    assert_eq!((drain(&mut cm), events(&mut cm)), (vec![], vec![]));
}

/// Checklist 98: no second connection, in any state.
#[test]
fn a_request_that_comes_again_is_known() {
    let (mut cm, id, req) = asked();
    let again = |cm: &mut Cm| {
        cm.receive(NOW, gid(PEER), &req, listens);
        assert_eq!(events(cm), []);
        drain(cm)
    };
    assert_eq!(again(&mut cm), []);
    cm.accept(NOW, id, &consent(0x55));
    let rep = only(&mut cm);
    assert_eq!(again(&mut cm), [(gid(PEER), rep)]);
    cm.receive(NOW, gid(PEER), &rtu(id, its_id(&req)), listens);
    events(&mut cm);
    assert_eq!(again(&mut cm), []);
    cm.receive(NOW, gid(PEER), &dreq(id, its_id(&req), 0x55), listens);
    assert_eq!(events(&mut cm), [CmEvent::Disconnected { id }]);
    drain(&mut cm);
    assert_eq!(cm.state(id), Some("TIMEWAIT"));
    let rej = rej_of(&again(&mut cm)[0].1);
    assert_eq!((rej.reason.get(), rej.local_comm_id.get()), (10, 0));
    assert_eq!(counter(&cm, "cm_rx_duplicates_req"), 4);
    // After TIMEWAIT it counts as a new request.
    cm.handle_timeout(NOW.after(times::timewait()));
    assert_eq!(events(&mut cm), [CmEvent::Released { id }]);
    cm.receive(NOW, gid(PEER), &req, listens);
    assert!(matches!(events(&mut cm)[..], [CmEvent::Requested { id: new, .. }] if new != id));
}

/// Checklist 100: the peer's queue pair in a new connection shows that the peer lost the old one.
#[test]
fn a_queue_pair_in_two_connections_ends_both() {
    let (mut cm, id, req) = confirmed();
    let new = req_with(|r| r.local_comm_id.set(0x77));
    cm.receive(NOW, gid(PEER), &new, listens);
    let sent = drain(&mut cm);
    assert_eq!(sent.len(), 2);
    assert_eq!(rej_of(&sent[0].1).reason.get(), 10);
    let dreq = Dreq::read_from_bytes(&sent[1].1[24..]).unwrap();
    assert_eq!(dreq.remote_comm_id.get(), its_id(&req));
    assert_eq!(dreq.remote_qpn(), Qpn::new(0x777));
    assert_eq!(events(&mut cm), [CmEvent::Disconnected { id }]);
}

/// Only the peer can end a connection like this: another node cannot, not even with the peer's GUID.
#[test]
fn a_request_from_elsewhere_ends_nothing() {
    let (mut cm, id, _) = confirmed();
    let forged = req_with(|r| {
        r.local_comm_id.set(0x77);
        r.primary.local_gid = gid(9).0;
    });
    cm.receive(NOW, gid(9), &forged, listens);
    assert_eq!(cm.state(id), Some("ESTABLISHED"));
    assert_eq!(drain(&mut cm), []);
    assert!(matches!(events(&mut cm)[..], [CmEvent::Requested { .. }]));
}

#[test]
fn what_comes_from_elsewhere_is_nothing_of_a_connection() {
    let stranger = gid(9);
    let (mut cm, id, req) = consented();
    cm.receive(NOW, stranger, &rtu(id, its_id(&req)), listens);
    assert_eq!(cm.state(id), Some("REP_SENT"));
    let (mut cm, id, req) = confirmed();
    for message in [
        dreq(id, its_id(&req), 0x55),
        rej(id.0, its_id(&req), Answered::Other, 28),
    ] {
        cm.receive(NOW, stranger, &message, listens);
        assert_eq!(
            (cm.state(id), events(&mut cm)),
            (Some("ESTABLISHED"), vec![])
        );
    }
    assert_eq!(counter(&cm, "cm_rx_wrong_source"), 2);
    assert_eq!(drain(&mut cm), []);
    let mut cm = Cm::new(config(1));
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    drain(&mut cm);
    cm.receive(NOW, stranger, &rep(id, 7, 0x99), listens);
    cm.receive(NOW, stranger, &rej(id.0, 0, Answered::Req, 8), listens);
    assert_eq!((cm.state(id), events(&mut cm)), (Some("REQ_SENT"), vec![]));
}

/// Checklist 102.
#[test]
fn a_disconnection_of_nothing_is_confirmed() {
    let mut cm = Cm::new(config(1));
    let request = dreq(CmId(0xaaaa_0001), 0xbbbb, 0x55);
    cm.receive(NOW, gid(PEER), &request, listens);
    let drep = only(&mut cm);
    assert_eq!(name(&drep), "DREP");
    assert_eq!(drep[24..32], [0xaa, 0xaa, 0, 1, 0, 0, 0xbb, 0xbb]);
    assert_eq!(drep[8..16], request[8..16]);
}

/// Checklist 102.
#[test]
fn a_disconnection_of_another_queue_pair_is_ignored() {
    let (mut cm, id, req) = confirmed();
    cm.receive(NOW, gid(PEER), &dreq(id, its_id(&req), 0x56), listens);
    assert_eq!((drain(&mut cm), events(&mut cm)), (vec![], vec![]));
    assert_eq!(cm.state(id), Some("ESTABLISHED"));
}

/// Checklist 101.
#[test]
fn a_reply_that_comes_again_is_confirmed_again() {
    let mut cm = Cm::new(config(1));
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    drain(&mut cm);
    let reply = rep(id, 7, 0x99);
    cm.receive(NOW, gid(PEER), &reply, listens);
    assert!(matches!(events(&mut cm)[..], [CmEvent::Replied { .. }]));
    cm.receive(NOW, gid(PEER), &reply, listens);
    assert_eq!((drain(&mut cm), events(&mut cm)), (vec![], vec![]));
    cm.establish(id);
    let confirmation = only(&mut cm);
    cm.receive(NOW, gid(PEER), &reply, listens);
    assert_eq!(only(&mut cm), confirmation);
    // A different reply is no repetition.
    cm.receive(NOW, gid(PEER), &rep(id, 8, 0x9a), listens);
    assert_eq!((drain(&mut cm), events(&mut cm)), (vec![], vec![]));
}

/// A listener that lost the connection of its queue pair.
#[test]
fn a_reply_with_a_queue_pair_that_is_in_use_is_stale() {
    let (mut cm, old, _) = confirmed();
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x56)).unwrap();
    drain(&mut cm);
    cm.receive(NOW, gid(PEER), &rep(id, 9, 0x777), listens);
    let sent = drain(&mut cm);
    let rej = rej_of(&sent[0].1);
    assert_eq!((rej.reason.get(), rej.rejected()), (10, Answered::Rep));
    assert_eq!(
        (rej.local_comm_id.get(), rej.remote_comm_id.get()),
        (id.0, 9)
    );
    assert_eq!(name(&sent[1].1), "DREQ");
    assert_eq!(events(&mut cm), [CmEvent::Disconnected { id: old }]);
    // The request continues, and a new reply may come.
    assert_eq!(cm.state(id), Some("REQ_SENT"));
}

/// Checklist 104, and no longer than [`times::SERVICE_TIMEOUT_MAX`].
#[test]
fn an_mra_extends_the_time_once() {
    let mut cm = Cm::new(config(1));
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    drain(&mut cm);
    // For a reply that was not sent.
    cm.receive(NOW, gid(PEER), &mra(id, 7, Answered::Rep, 24), listens);
    assert_eq!(
        cm.next_deadline(),
        Some(NOW.after(times::request_interval()))
    );
    cm.receive(NOW, gid(PEER), &mra(id, 7, Answered::Req, 31), listens);
    let extended = NOW.after(times::milliseconds(24) + times::milliseconds(15));
    assert_eq!(cm.next_deadline(), Some(extended));
    let later = NOW.after(Duration::from_secs(60));
    cm.handle_timeout(later);
    cm.receive(later, gid(PEER), &mra(id, 7, Answered::Req, 31), listens);
    assert_eq!(cm.next_deadline(), Some(extended));
    assert_eq!(counter(&cm, "cm_rx_duplicates_mra"), 1);
    cm.handle_timeout(extended);
    assert_eq!(name(&only(&mut cm)), "REQ");

    let (mut cm, id, req) = consented();
    cm.receive(
        NOW,
        gid(PEER),
        &mra(id, its_id(&req), Answered::Rep, 10),
        listens,
    );
    let extended = NOW.after(times::milliseconds(10) + times::milliseconds(15));
    assert_eq!(cm.next_deadline(), Some(extended));
}

#[test]
fn a_rejection_ends_what_it_is_about() {
    let mut cm = Cm::new(config(1));
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    cm.receive(NOW, gid(PEER), &rej(id.0, 0, Answered::Req, 8), listens);
    let reason = RejectReason::INVALID_SERVICE_ID;
    let expected = [CmEvent::Rejected { id, reason }, CmEvent::Released { id }];
    assert_eq!(events(&mut cm), expected);
    assert_eq!(cm.state(id), None);

    // Stale: both the peer and this node are in TIMEWAIT.
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    cm.receive(NOW, gid(PEER), &rej(id.0, 0, Answered::Req, 10), listens);
    let reason = RejectReason::STALE_CONNECTION;
    assert_eq!(events(&mut cm), [CmEvent::Rejected { id, reason }]);
    assert_eq!(cm.state(id), Some("TIMEWAIT"));

    for (mut cm, id, req) in [consented(), confirmed()] {
        let theirs = its_id(&req);
        // A rejection of the request does not affect later messages.
        cm.receive(
            NOW,
            gid(PEER),
            &rej(id.0, theirs, Answered::Req, 28),
            listens,
        );
        assert_eq!(events(&mut cm), []);
        cm.receive(
            NOW,
            gid(PEER),
            &rej(id.0, theirs, Answered::Other, 28),
            listens,
        );
        let reason = RejectReason::CONSUMER;
        assert_eq!(events(&mut cm), [CmEvent::Rejected { id, reason }]);
        cm.handle_timeout(NOW.after(times::timewait()));
        assert_eq!(events(&mut cm), [CmEvent::Released { id }]);
    }
}

/// A peer that timed out before a reply does not know our id; its GUID and its own id identify the
/// connection.
#[test]
fn a_timeout_is_found_by_the_guid() {
    let (mut cm, id, req) = consented();
    let mut timeout = rej(0, its_id(&req), Answered::Req, 4);
    cm.receive(NOW, gid(PEER), &timeout, listens);
    assert_eq!(cm.state(id), Some("REP_SENT"));
    timeout[24 + 9] = 8 << 1;
    timeout[24 + 12..24 + 20].copy_from_slice(&config(PEER).ca_guid.0);
    cm.receive(NOW, gid(9), &timeout, listens);
    assert_eq!(cm.state(id), Some("REP_SENT"));
    cm.receive(NOW, gid(PEER), &timeout, listens);
    let reason = RejectReason::TIMEOUT;
    assert_eq!(events(&mut cm), [CmEvent::Rejected { id, reason }]);
}

#[test]
fn data_confirms_as_a_ready_to_use_does() {
    let (mut cm, id, req) = consented();
    cm.heard(id);
    assert_eq!(events(&mut cm), [CmEvent::Established { id }]);
    assert_eq!(cm.next_deadline(), None);
    cm.heard(id);
    cm.receive(NOW, gid(PEER), &rtu(id, its_id(&req)), listens);
    assert_eq!((drain(&mut cm), events(&mut cm)), (vec![], vec![]));
}

/// Otherwise the requester would stay connected forever.
#[test]
fn a_late_confirmation_is_rejected() {
    let (mut cm, id, req) = consented();
    let mut now = NOW;
    while let Some(deadline) = cm.next_deadline() {
        now = deadline;
        cm.handle_timeout(now);
    }
    assert_eq!(
        events(&mut cm),
        [CmEvent::TimedOut { id }, CmEvent::Released { id }]
    );
    let sent = drain(&mut cm);
    let replies = sent.iter().filter(|(_, m)| name(m) == "REP").count();
    assert_eq!(replies, usize::from(times::REPLY_RETRIES));
    let last = rej_of(&sent.last().unwrap().1);
    assert_eq!((last.reason.get(), last.ari_length()), (4, 8));
    assert_eq!(last.ari[..8], config(1).ca_guid.0);
    cm.receive(now, gid(PEER), &rtu(id, its_id(&req)), listens);
    let rej = rej_of(&only(&mut cm));
    assert_eq!((rej.reason.get(), rej.rejected()), (6, Answered::Other));
    assert_eq!(
        (rej.local_comm_id.get(), rej.remote_comm_id.get()),
        (id.0, its_id(&req))
    );
}

/// A user that never answers: the peer is notified, and no state is left.
#[test]
fn what_is_not_answered_ends() {
    let (mut passive, theirs, _) = asked();
    let mut active = Cm::new(config(1));
    let ours = active.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    drain(&mut active);
    active.receive(NOW, gid(PEER), &rep(ours, 7, 0x99), listens);
    events(&mut active);
    for (cm, id, rejected) in [
        (&mut passive, theirs, Answered::Req),
        (&mut active, ours, Answered::Rep),
    ] {
        assert_eq!(cm.next_deadline(), Some(NOW.after(times::ANSWER)));
        while let Some(deadline) = cm.next_deadline() {
            cm.handle_timeout(deadline);
        }
        let rej = rej_of(&only(cm));
        assert_eq!((rej.reason.get(), rej.rejected()), (4, rejected));
        assert_eq!(
            events(cm),
            [CmEvent::TimedOut { id }, CmEvent::Released { id }]
        );
    }
}

#[test]
fn a_request_that_is_refused_leaves_nothing() {
    let (mut cm, id, req) = asked();
    cm.reject(NOW, id, RejectReason::NO_QP, b"sorry");
    let rej = rej_of(&only(&mut cm));
    assert_eq!((rej.reason.get(), rej.rejected()), (1, Answered::Req));
    assert_eq!(
        (rej.local_comm_id.get(), rej.remote_comm_id.get()),
        (id.0, its_id(&req))
    );
    assert_eq!(rej.private_data[..5], *b"sorry");
    assert_eq!(events(&mut cm), [CmEvent::Released { id }]);
    assert_eq!((cm.state(id), cm.next_deadline()), (None, None));
}

/// A rejected reply is rejected again if the first rejection was lost.
#[test]
fn a_reply_that_is_refused_is_refused_again() {
    let mut cm = Cm::new(config(1));
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    drain(&mut cm);
    let reply = rep(id, 7, 0x99);
    cm.receive(NOW, gid(PEER), &reply, listens);
    cm.reject(NOW, id, RejectReason::CONSUMER, &[]);
    let refusal = only(&mut cm);
    assert_eq!(rej_of(&refusal).rejected(), Answered::Rep);
    cm.receive(NOW, gid(PEER), &reply, listens);
    assert_eq!(only(&mut cm), refusal);
}

/// The user left before the reply: the peer does not know, and finds the connection by the GUID.
#[test]
fn a_reply_to_nobody_is_refused() {
    let mut cm = Cm::new(config(1));
    let id = cm.connect(NOW, &ask(gid(1), gid(PEER), 0x55)).unwrap();
    cm.disconnect(NOW, id);
    let sent = drain(&mut cm);
    let first = rej_of(&sent[1].1);
    assert_eq!((first.reason.get(), first.rejected()), (4, Answered::Req));
    assert_eq!(first.remote_comm_id.get(), 0);
    cm.receive(NOW, gid(PEER), &rep(id, 7, 0x99), listens);
    let second = rej_of(&only(&mut cm));
    assert_eq!((second.reason.get(), second.rejected()), (4, Answered::Rep));
    assert_eq!(
        (second.local_comm_id.get(), second.remote_comm_id.get()),
        (id.0, 7)
    );
    assert_eq!(second.ari[..8], config(1).ca_guid.0);
    assert_eq!(events(&mut cm), []);
    // Later, no state of it is left.
    cm.handle_timeout(cm.next_deadline().unwrap());
    assert_eq!(cm.state(id), None);
    cm.receive(NOW, gid(PEER), &rep(id, 7, 0x99), listens);
    let third = rej_of(&only(&mut cm));
    assert_eq!((third.reason.get(), third.rejected()), (6, Answered::Rep));
    assert_eq!(
        (third.local_comm_id.get(), third.remote_comm_id.get()),
        (id.0, 7)
    );
}

/// A node whose reply was rejected ends the connection and stops repeating the reply.
#[test]
fn a_refused_reply_ends_what_was_consented_to() {
    let (mut cm, id, req) = consented();
    let refusal = rej(id.0, its_id(&req), Answered::Rep, 6);
    cm.receive(NOW, gid(PEER), &refusal, listens);
    let reason = RejectReason::INVALID_COMM_ID;
    assert_eq!(events(&mut cm), [CmEvent::Rejected { id, reason }]);
    assert_eq!(cm.state(id), Some("TIMEWAIT"));
}

/// Neither a flood of replies, nor replies minutes apart.
#[test]
fn times_of_a_request_are_taken_within_bounds() {
    for (code, interval, ack_timeout) in [(0, 64, 18), (16, 256, 16), (31, 4096, 18)] {
        let mut cm = Cm::new(config(1));
        let request = req_with(|r| {
            r.set_local_response_timeout(code);
            r.set_max_cm_retries(2);
            r.primary.set_ack_timeout(code);
        });
        cm.receive(NOW, gid(PEER), &request, listens);
        let [CmEvent::Requested { id, remote, .. }] = &events(&mut cm)[..] else {
            panic!("no request");
        };
        assert_eq!(remote.ack_timeout, ack_timeout);
        cm.accept(NOW, *id, &consent(0x55));
        let again = NOW.after(Duration::from_millis(interval));
        assert_eq!(cm.next_deadline(), Some(again));
        for _ in 0..2 {
            cm.handle_timeout(cm.next_deadline().unwrap());
            assert_eq!(cm.state(*id), Some("REP_SENT"));
        }
        cm.handle_timeout(cm.next_deadline().unwrap());
        assert_eq!(cm.state(*id), Some("TIMEWAIT"));
    }
}

/// A request in the name of a host that never asked: that host gets few replies, whatever the request says.
#[test]
fn a_reply_is_repeated_three_times_at_most() {
    for (allowed, replies) in [(0, 1), (3, 4), (15, 4)] {
        let mut cm = Cm::new(config(1));
        let request = req_with(|r| r.set_max_cm_retries(allowed));
        cm.receive(NOW, gid(PEER), &request, listens);
        let [CmEvent::Requested { id, .. }] = events(&mut cm)[..] else {
            panic!("no request");
        };
        cm.accept(NOW, id, &consent(0x55));
        while cm.state(id) == Some("REP_SENT") {
            cm.handle_timeout(cm.next_deadline().unwrap());
        }
        let sent = drain(&mut cm);
        let count = sent.iter().filter(|(_, m)| name(m) == "REP").count();
        assert_eq!(count, replies, "{allowed} repetitions allowed");
    }
}

/// Checklist 106: ids, and their start.
#[test]
fn ids_name_the_worker_and_differ_after_a_restart() {
    for (worker, workers) in [(0, 1), (0, 3), (2, 3), (6, 7), (255, 256)] {
        let ids = |seed| {
            let mut cm = Cm::new(CmConfig {
                worker,
                workers,
                seed,
                connections_max: 1000,
                ..config(1)
            });
            let mut connect = |n: u32| cm.connect(NOW, &ask(gid(1), gid(PEER), 100 + n)).unwrap();
            (0..500).map(&mut connect).collect::<Vec<_>>()
        };
        let (before, after) = (ids([1, 7]), ids([2, 7]));
        let of_worker = |id: &CmId| id.0 as usize % 256 % workers == worker;
        assert!(before.iter().chain(&after).all(of_worker));
        assert!(before.iter().all(|id| id.0 != 0 && !after.contains(id)));
        // All 128 bits of the seed count: 64 known bits give no id.
        let other_half = ids([1, 8]);
        assert!(before.iter().all(|id| !other_half.contains(id)));
    }
}

#[test]
fn there_are_no_more_connections_than_there_may_be() {
    let mut cm = Cm::new(CmConfig {
        connections_max: 2,
        ..config(1)
    });
    let first = cm.connect(NOW, &ask(gid(1), gid(PEER), 1001)).unwrap();
    cm.connect(NOW, &ask(gid(1), gid(PEER), 1002)).unwrap();
    assert_eq!(cm.connect(NOW, &ask(gid(1), gid(PEER), 1003)), Err(Full));
    drain(&mut cm);
    cm.receive(NOW, gid(PEER), &req_with(|_| {}), listens);
    assert_eq!(rej_of(&only(&mut cm)).reason.get(), 3);
    // TIMEWAIT continues after the end of the connection.
    cm.disconnect(NOW, first);
    assert_eq!(cm.connect(NOW, &ask(gid(1), gid(PEER), 1003)), Err(Full));
    cm.handle_timeout(NOW.after(times::timewait()));
    assert!(cm.connect(NOW, &ask(gid(1), gid(PEER), 1003)).is_ok());
}

#[test]
fn a_user_that_leaves_hears_only_of_the_release() {
    let (mut cm, id, req) = confirmed();
    cm.receive(NOW, gid(PEER), &dreq(id, its_id(&req), 0x55), listens);
    // The event exists; the user has not taken it yet.
    cm.disconnect(NOW, id);
    assert_eq!(events(&mut cm), []);
    cm.handle_timeout(NOW.after(times::timewait()));
    assert_eq!(events(&mut cm), [CmEvent::Released { id }]);
}

/// All messages use the transaction id of the request; a disconnection has its own.
#[test]
fn transactions_are_those_of_the_request() {
    let mut world = World::new(perfect);
    let id = world.connect(0);
    let tid = |world: &World<'_>, node: usize| {
        let cm = &world.nodes[node].cm;
        let id = *world.nodes[node].seen.keys().next().unwrap();
        cm.table.get(id).unwrap().tid
    };
    world.run(Duration::from_secs(1));
    assert_eq!(tid(&world, 0), tid(&world, 1));
    let node = &mut world.nodes[0];
    node.cm.disconnect(world.now, id);
    let bye = only(&mut node.cm);
    assert_ne!(bye[8..16], node.cm.table.get(id).unwrap().tid.to_be_bytes());
}
