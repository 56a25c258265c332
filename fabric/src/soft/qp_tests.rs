use super::transition::{mask, rule};
use super::*;

use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

const ALL: [State; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];
const SERVICES: [Service; 3] = [Service::Ud, Service::Gsi, Service::Rc];
/// All attributes.
const EVERYTHING: u32 = (1 << mask::NAMES.len()) - 1;

fn in_state(service: Service, state: State) -> QueuePair {
    let mut qp = QueuePair::new(service, Qpn::new(0x11));
    qp.state = state;
    qp
}

fn attributes(given: u32, current: State) -> Attributes {
    let has = |bit| given & bit != 0;
    let address = AhAttributes::to(Gid([9; 16]), proto::PKey::DEFAULT);
    Attributes {
        pkey_index: has(mask::PKEY_INDEX).then_some(3),
        port: has(mask::PORT).then_some(1),
        qkey: has(mask::QKEY).then_some(QKey::new(7)),
        sq_psn: has(mask::SQ_PSN).then_some(Psn::new(9)),
        current_state: has(mask::CUR_STATE).then_some(current),
        sqd_notify: has(mask::SQD_NOTIFY).then_some(true),
        address: has(mask::AV).then_some(address),
        path_mtu: has(mask::PATH_MTU).then_some(IbMtu::B2048),
        dest_qpn: has(mask::DEST_QPN).then_some(Qpn::new(0x22)),
        rq_psn: has(mask::RQ_PSN).then_some(Psn::new(0xff_fffe)),
        max_dest_rd_atomic: has(mask::MAX_DEST_RD_ATOMIC).then_some(1),
        max_rd_atomic: has(mask::MAX_RD_ATOMIC).then_some(2),
        min_rnr_timer: has(mask::MIN_RNR_TIMER).then_some(31),
        timeout: has(mask::TIMEOUT).then_some(31),
        retry_cnt: has(mask::RETRY_CNT).then_some(7),
        rnr_retry: has(mask::RNR_RETRY).then_some(7),
        access_flags: has(mask::ACCESS_FLAGS).then_some(0),
    }
}

/// The transitions of the IBA other than to RESET and ERR: required and optional attributes. Attributes
/// of alternate paths do not exist here.
fn listed(service: Service) -> Vec<(State, State, u32, u32)> {
    let again = "CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER";
    let table: &[(State, State, &str, &str)] = match service {
        Service::Ud => &[
            (Reset, Init, "PKEY_INDEX PORT QKEY", ""),
            (Init, Init, "", "PKEY_INDEX PORT QKEY"),
            (Init, Rtr, "", "PKEY_INDEX QKEY"),
            (Rtr, Rts, "SQ_PSN", "CUR_STATE QKEY"),
            (Rts, Rts, "", "CUR_STATE QKEY"),
            (Rts, Sqd, "", "EN_SQD_ASYNC_NOTIFY"),
            (Sqd, Rts, "", "CUR_STATE QKEY"),
            (Sqd, Sqd, "", "PKEY_INDEX QKEY"),
            (Sqe, Rts, "", "CUR_STATE QKEY"),
        ],
        Service::Gsi => &[
            (Reset, Init, "PKEY_INDEX QKEY", ""),
            (Init, Init, "", "PKEY_INDEX QKEY"),
            (Init, Rtr, "", "PKEY_INDEX QKEY"),
            (Rtr, Rts, "SQ_PSN", "CUR_STATE QKEY"),
            (Rts, Rts, "", "CUR_STATE QKEY"),
            (Rts, Sqd, "", "EN_SQD_ASYNC_NOTIFY"),
            (Sqd, Rts, "", "CUR_STATE QKEY"),
            (Sqd, Sqd, "", "PKEY_INDEX QKEY"),
            (Sqe, Rts, "", "CUR_STATE QKEY"),
        ],
        Service::Rc => &[
            (Reset, Init, "PKEY_INDEX PORT ACCESS_FLAGS", ""),
            (Init, Init, "", "PKEY_INDEX PORT ACCESS_FLAGS"),
            (
                Init,
                Rtr,
                "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
                "ACCESS_FLAGS PKEY_INDEX",
            ),
            (
                Rtr,
                Rts,
                "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC",
                again,
            ),
            (Rts, Rts, "", again),
            (Rts, Sqd, "", "EN_SQD_ASYNC_NOTIFY"),
            (Sqd, Rts, "", again),
            (
                Sqd,
                Sqd,
                "",
                "PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC \
                 ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER",
            ),
        ],
    };
    let row = |&(from, to, required, optional)| (from, to, set_of(required), set_of(optional));
    table.iter().map(row).collect()
}

/// The set of attributes with these names.
fn set_of(names: &str) -> u32 {
    let bit = |name| mask::NAMES.iter().find(|n| n.1 == name).unwrap().0;
    names.split_whitespace().map(bit).sum()
}

/// Conformance item 81: tests every set of attributes with every transition. A transition succeeds if
/// and only if all required attributes are present and all others are optional.
#[test]
fn t81_transitions_take_exactly_their_attributes() {
    for service in SERVICES {
        for (from, to, required, optional) in listed(service) {
            for given in 0..=EVERYTHING {
                let fits = given & required == required && given & !(required | optional) == 0;
                let outcome = permit(service, from, to, &attributes(given, from), IbMtu::B4096);
                let place = || format!("{service:?} {from:?} {to:?} {given:#b}");
                assert_eq!(outcome.is_ok(), fits, "{}", place());
                let bad = matches!(outcome, Result::Err(FabricError::BadAttributes { .. }));
                assert_eq!(bad, !fits, "{}", place());
            }
        }
    }
}

/// Conformance item 82: no other transition exists, except to RESET, and to ERR from all but RESET.
#[test]
fn t82_other_transitions_are_illegal() {
    for service in SERVICES {
        let listed = listed(service);
        for from in ALL {
            for to in ALL {
                let known = listed.iter().any(|l| (l.0, l.1) == (from, to))
                    || to == Reset
                    || (to == Err && from != Reset);
                // With all attributes or with none, the error is the transition.
                for given in [0, EVERYTHING] {
                    let outcome = in_state(service, from).modify(to, &attributes(given, from));
                    let illegal =
                        matches!(outcome, Result::Err(FabricError::IllegalTransition { .. }));
                    assert_eq!(illegal, !known, "{service:?} {from:?} {to:?}");
                }
            }
        }
    }
    for (from, to) in [(Reset, Rtr), (Reset, Err), (Init, Rts)] {
        assert!(rule(Service::Ud, from, to).is_none());
    }
    assert!(rule(Service::Rc, Sqe, Rts).is_none());
}

/// Given attributes are set, others do not change, and a refusal changes nothing.
#[test]
fn a_transition_sets_the_given_attributes() {
    for service in [Service::Ud, Service::Gsi] {
        for (from, to, required, optional) in listed(service) {
            for given in [required, required | optional] {
                let mut qp = in_state(service, from);
                qp.modify(to, &attributes(given, from)).unwrap();
                let has = |bit| given & bit != 0;
                assert_eq!(qp.state(), to);
                assert_eq!(qp.qkey().get(), if has(mask::QKEY) { 7 } else { 0 });
                assert_eq!(qp.pkey_index(), if has(mask::PKEY_INDEX) { 3 } else { 0 });
                assert_eq!(qp.sq_psn().get(), if has(mask::SQ_PSN) { 9 } else { 0 });
            }
            let mut qp = in_state(service, from);
            qp.modify(to, &attributes(EVERYTHING, from)).unwrap_err();
            assert_eq!((qp.state(), qp.qkey().get()), (from, 0));
        }
    }
}

/// An RC queue pair moved to `state` with the smallest sets of attributes.
fn connected_in(state: State) -> Connected {
    let mut qp = Connected::new(IbMtu::B4096);
    let steps = [(Reset, Init), (Init, Rtr), (Rtr, Rts), (Rts, Sqd)];
    for (from, to) in steps {
        if qp.state == state {
            break;
        }
        let (required, _) = rule(Service::Rc, from, to).unwrap();
        qp.modify(to, &attributes(required, from)).unwrap();
    }
    assert_eq!(qp.state, state);
    qp
}

#[test]
fn a_connected_queue_pair_keeps_its_attributes() {
    let rts = connected_in(Rts);
    let wanted = Connected {
        state: Rts,
        pkey_index: 3,
        address: AhAttributes::to(Gid([9; 16]), proto::PKey::DEFAULT),
        path_mtu: IbMtu::B2048,
        dest_qpn: Qpn::new(0x22),
        rq_psn: Psn::new(0xff_fffe),
        sq_psn: Psn::new(9),
        min_rnr_timer: 31,
        timeout: 31,
        retry_cnt: 7,
        rnr_retry: 7,
        max_dest_rd_atomic: 1,
        max_rd_atomic: 2,
        ..Connected::new(IbMtu::B4096)
    };
    assert_eq!(rts, wanted);
    let mut refused = rts;
    refused
        .modify(Sqd, &attributes(EVERYTHING, Rts))
        .unwrap_err();
    assert_eq!(refused, rts);
    let mut reset = rts;
    reset.modify(Reset, &Attributes::default()).unwrap();
    assert_eq!(reset, Connected::new(IbMtu::B4096));
}

/// A drain reports its end only on request; a request for an earlier drain does not count.
#[test]
fn each_drain_needs_its_own_request_for_an_event() {
    let mut qp = connected_in(Rts);
    qp.modify(Sqd, &attributes(mask::SQD_NOTIFY, Rts)).unwrap();
    assert!(qp.sqd_notify);
    qp.modify(Rts, &Attributes::default()).unwrap();
    qp.modify(Sqd, &Attributes::default()).unwrap();
    assert!(!qp.sqd_notify);
}

/// Values at their limits are accepted, larger ones are refused, and the error names them.
#[test]
fn values_are_checked() {
    type Set = fn(&mut Attributes, u8);
    let cases: [(&str, State, State, u8, Set); 7] = [
        ("PATH_MTU 4096", Init, Rtr, 4, |a, v| {
            a.path_mtu = Some(IbMtu::ALL[usize::from(v) - 1]);
        }),
        ("MIN_RNR_TIMER", Init, Rtr, 31, |a, v| {
            a.min_rnr_timer = Some(v)
        }),
        ("TIMEOUT", Rtr, Rts, 31, |a, v| a.timeout = Some(v)),
        ("RETRY_CNT", Rtr, Rts, 7, |a, v| a.retry_cnt = Some(v)),
        ("RNR_RETRY", Rtr, Rts, 7, |a, v| a.rnr_retry = Some(v)),
        ("PORT", Reset, Init, 1, |a, v| a.port = Some(v)),
        ("ACCESS_FLAGS", Reset, Init, 0, |a, v| {
            a.access_flags = Some(v.into());
        }),
    ];
    for (name, from, to, most, set) in cases {
        let (required, _) = rule(Service::Rc, from, to).unwrap();
        let mut given = attributes(required, from);
        let outcome = |given: &Attributes| permit(Service::Rc, from, to, given, IbMtu::B2048);
        set(&mut given, most);
        assert!(outcome(&given).is_ok(), "{name}");
        set(&mut given, most + 1);
        let error = outcome(&given).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

/// Conformance item 83: the effect on posted requests in each state.
#[test]
fn t83_posting_follows_the_state() {
    use Posted::{Flushed, Processed, Queued, Refused};
    let table = [
        (Reset, Refused, Refused),
        (Init, Refused, Queued),
        (Rtr, Refused, Processed),
        (Rts, Processed, Processed),
        (Sqd, Queued, Processed),
        (Sqe, Flushed, Processed),
        (Err, Flushed, Flushed),
    ];
    for (state, send, receive) in table {
        let qp = in_state(Service::Ud, state);
        assert_eq!(
            (qp.post_send(), state.post_recv()),
            (send, receive),
            "{state:?}"
        );
        assert_eq!(qp.receives(), receive == Processed);
        assert_eq!(state.takes_responses(), [Rts, Sqd].contains(&state));
    }
}

/// Conformance item 35: a controlled Q_Key in a request selects the queue pair's own.
#[test]
fn t35_controlled_qkeys_are_replaced() {
    let own = QKey::new(0x0b1b);
    let qp = QueuePair::ready(Service::Ud, Qpn::new(2), 0, own, Psn::new(0)).unwrap();
    assert_eq!(qp.qkey_to_send(QKey::new(0x8000_0000)), own);
    assert_eq!(qp.qkey_to_send(QKey::new(0x8001_0000)), own);
    assert_eq!(
        qp.qkey_to_send(QKey::new(0x7fff_ffff)),
        QKey::new(0x7fff_ffff)
    );
    let gsi = QueuePair::ready(Service::Gsi, Qpn::GSI, 0, QKey::GSI, Psn::new(0)).unwrap();
    assert_eq!(gsi.qkey_to_send(QKey::new(5)), QKey::GSI);
}

/// Conformance item 86, for unreliable datagrams: RESET clears everything.
#[test]
fn t86_reset_forgets() {
    let psn = Psn::new(77);
    let mut qp = QueuePair::ready(Service::Ud, Qpn::new(2), 4, QKey::new(1), psn).unwrap();
    assert_eq!((qp.pkey_index(), qp.sq_psn()), (4, psn));
    qp.modify(Reset, &Attributes::default()).unwrap();
    assert_eq!(qp.state(), Reset);
    assert_eq!((qp.pkey_index(), qp.sq_psn().get()), (0, 0));
    assert_eq!((qp.qkey(), qp.qpn()), (QKey::new(0), Qpn::new(2)));
}

#[test]
fn a_wrong_belief_about_the_state_is_refused() {
    for service in SERVICES {
        for believed in ALL {
            let belief = attributes(mask::CUR_STATE, believed);
            let outcome = permit(service, Rts, Rts, &belief, IbMtu::B4096);
            assert_eq!(outcome.is_ok(), believed == Rts, "{service:?} {believed:?}");
        }
    }
}
