use super::*;

use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

const ALL: [State; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

fn in_state(service: Service, state: State) -> QueuePair {
    let mut qp = QueuePair::new(service, Qpn::new(0x11));
    qp.state = state;
    qp
}

fn attributes(given: u8, current: State) -> Attributes {
    let has = |bit| given & bit != 0;
    Attributes {
        pkey_index: has(mask::PKEY_INDEX).then_some(3),
        port: has(mask::PORT).then_some(1),
        qkey: has(mask::QKEY).then_some(QKey::new(7)),
        sq_psn: has(mask::SQ_PSN).then_some(Psn::new(9)),
        current_state: has(mask::CUR_STATE).then_some(current),
        sqd_notify: has(mask::SQD_NOTIFY).then_some(true),
        ..Attributes::default()
    }
}

/// The transitions as the IBA lists them, other than to RESET and ERR: required, optional.
fn listed(service: Service) -> Vec<(State, State, u8, u8)> {
    use mask::{CUR_STATE, PKEY_INDEX, PORT, QKEY, SQ_PSN, SQD_NOTIFY};
    let (init, reinit) = match service {
        Service::Ud => (PKEY_INDEX | PORT | QKEY, PKEY_INDEX | PORT | QKEY),
        Service::Gsi => (PKEY_INDEX | QKEY, PKEY_INDEX | QKEY),
    };
    vec![
        (Reset, Init, init, 0),
        (Init, Init, 0, reinit),
        (Init, Rtr, 0, PKEY_INDEX | QKEY),
        (Rtr, Rts, SQ_PSN, CUR_STATE | QKEY),
        (Rts, Rts, 0, CUR_STATE | QKEY),
        (Rts, Sqd, 0, SQD_NOTIFY),
        (Sqd, Rts, 0, CUR_STATE | QKEY),
        (Sqd, Sqd, 0, PKEY_INDEX | QKEY),
        (Sqe, Rts, 0, CUR_STATE | QKEY),
    ]
}

/// Conformance item 81: every set of attributes meets every transition; it goes through if and only
/// if all required ones are there and no foreign one is.
#[test]
fn t81_transitions_take_exactly_their_attributes() {
    for service in [Service::Ud, Service::Gsi] {
        for (from, to, required, optional) in listed(service) {
            for given in 0..64u8 {
                let mut qp = in_state(service, from);
                let fits = given & required == required && given & !(required | optional) == 0;
                let outcome = qp.modify(to, &attributes(given, from));
                assert_eq!(
                    outcome.is_ok(),
                    fits,
                    "{service:?} {from:?} {to:?} {given:#b}"
                );
                assert_eq!(qp.state(), if fits { to } else { from });
                if fits && given & mask::QKEY != 0 {
                    assert_eq!(qp.qkey(), QKey::new(7));
                }
            }
        }
    }
}

/// Conformance item 82: no other transition exists, but to RESET, and to ERR from all but RESET.
#[test]
fn t82_other_transitions_are_illegal() {
    for service in [Service::Ud, Service::Gsi] {
        let listed = listed(service);
        for from in ALL {
            for to in ALL {
                let known = listed.iter().any(|l| (l.0, l.1) == (from, to))
                    || to == Reset
                    || (to == Err && from != Reset);
                // With all attributes or with none: it is the transition that is refused.
                for given in [0, 63] {
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
}

/// Conformance item 83: what posted requests meet in each state.
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
            (qp.post_send(), qp.post_recv()),
            (send, receive),
            "{state:?}"
        );
        assert_eq!(qp.receives(), receive == Processed);
    }
}

/// Conformance item 35: a controlled Q_Key in a request stands for the queue pair's own.
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

/// Conformance item 86, as far as unreliable datagrams go: RESET forgets everything.
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
    let mut qp = in_state(Service::Ud, Rts);
    let outcome = qp.modify(Rts, &attributes(mask::CUR_STATE, Sqd));
    assert!(matches!(
        outcome,
        Result::Err(FabricError::BadAttributes { .. })
    ));
}

#[test]
fn a_failed_send_leads_to_sqe_and_back() {
    let mut qp = in_state(Service::Ud, Rts);
    qp.send_failed();
    assert_eq!(qp.state(), Sqe);
    qp.modify(Rts, &Attributes::default()).unwrap();
    assert_eq!(qp.state(), Rts);
}
