//! One rule at a time.

use std::collections::BTreeSet;

use super::*;
use crate::mad::sa::{McMemberRecord, Notice, trap};
use proto::Lid;

/// The example of a broadcast join of the kernel (port GID fe80::2:c903:e7:7e12, P_Key 0xffff).
#[test]
fn a_join_is_the_kernels() {
    let mut expected = [0; 256];
    expected[..4].copy_from_slice(&[1, 3, 2, 2]);
    expected[8..16].copy_from_slice(&[0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78]);
    expected[17] = 0x38;
    expected[0x30..0x38].copy_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0x83]);
    let mgid = [
        0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
    ];
    let port = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0xe7, 0x7e, 0x12,
    ];
    expected[0x38..0x48].copy_from_slice(&mgid);
    expected[0x48..0x58].copy_from_slice(&port);
    expected[0x60..0x62].copy_from_slice(&[0xff, 0xff]);
    expected[0x68] = 1;
    let join = Request::join(Gid(mgid), Gid(port), PKey::DEFAULT, JoinState::FULL);
    assert_eq!(join.datagram(0x1234_5678), expected);
}

#[test]
fn a_path_query_is_the_kernels() {
    let (sgid, dgid) = (Gid([1; 16]), Gid([2; 16]));
    let mad = Request::path(sgid, dgid, PKey::DEFAULT, 7).datagram(1);
    assert_eq!(mad[..4], [1, 3, 2, 1]);
    assert_eq!(mad[16..18], [0, 0x35]);
    assert_eq!(mad[0x30..0x38], [0, 0, 0, 0, 0, 0, 0x34, 0x0c]);
    assert_eq!(mad[0x40..0x60], [[2; 16], [1; 16]].concat());
    assert_eq!(mad[0x68..0x6c], [7, 1, 0xff, 0xff]);
}

#[test]
fn an_answer_ends_its_request_once() {
    let mut client = Client::new(config(1));
    let id = client.ask(NOW, join(7)).unwrap();
    let request = sent(&mut client).remove(0);
    assert_eq!(first_try(&request), u64::from(id.0));
    let reply = answer(&request, 0);
    client.receive(NOW, &reply);
    client.receive(NOW, &reply);
    let events = events(&mut client);
    let [Event::Answered { id: of, result }] = &events[..] else {
        panic!("{events:?}");
    };
    let record: McMemberRecord = result.as_ref().unwrap().first().unwrap();
    assert_eq!((*of, record.mgid), (id, gid(7)));
    assert_eq!(
        (client.counts().answered, client.counts().unmatched),
        (1, 1)
    );
    assert_eq!((client.open(), client.next_deadline()), (0, None));
}

#[test]
fn answers_that_do_not_fit_are_counted() {
    let mut client = Client::new(config(1));
    client.ask(NOW, join(7)).unwrap();
    let reply = answer(&sent(&mut client)[0], 0);
    // Base version, class, class version, method, attribute.
    for (at, value) in [(0, 2), (1, 4), (2, 1), (3, 0x95), (3, 0x02), (17, 0x35)] {
        let mut other = reply;
        other[at] = value;
        client.receive(NOW, &other);
    }
    client.receive(NOW, &reply[..55]);
    client.receive(NOW, &[]);
    let mut unknown = reply;
    unknown[15] ^= 16;
    client.receive(NOW, &unknown);
    assert_eq!(
        (client.counts().malformed, client.counts().unmatched),
        (8, 1)
    );
    assert_eq!((events(&mut client), client.open()), (vec![], 1));
}

#[test]
fn a_request_is_repeated_with_longer_waits_and_given_up() {
    let mut client = Client::new(config(1));
    let id = client.ask(NOW, join(7)).unwrap();
    let first = sent(&mut client);
    let (mut at, mut wait) = (NOW, Duration::from_millis(500));
    for tries in 1..=5 {
        let next = client.next_deadline().unwrap();
        assert!(next.since(at) >= wait && next.since(at) <= wait + wait / 4);
        client.handle_timeout(Instant(next.0 - 1));
        assert!(sent(&mut client).is_empty());
        client.handle_timeout(next);
        (at, wait) = (next, wait * 2);
        assert_eq!(sent(&mut client).len(), usize::from(tries < 5));
    }
    let result = Err(Failure::Timeout);
    assert_eq!(events(&mut client), [Event::Answered { id, result }]);
    client.receive(at, &answer(&first[0], 0));
    assert_eq!((client.counts().retries, client.counts().unmatched), (4, 1));
    assert_eq!(client.counts().timed_out, 1);
}

#[test]
fn a_busy_administrator_is_asked_again() {
    let mut client = Client::new(config(1));
    let id = client.ask(NOW, join(7)).unwrap();
    for _ in 0..5 {
        let request = sent(&mut client).remove(0);
        client.receive(NOW, &answer(&request, 1));
        assert_eq!(events(&mut client), []);
        client.handle_timeout(client.next_deadline().unwrap());
    }
    let result = Err(Failure::Status(1));
    assert_eq!(events(&mut client), [Event::Answered { id, result }]);
    assert_eq!((client.counts().busy, client.counts().timed_out), (5, 0));
}

#[test]
fn places_in_flight_and_in_the_queue_are_bounded() {
    let mut client = Client::new(config(1));
    let ids: Vec<_> = (0..14).map(|n| client.ask(NOW, join(n)).unwrap()).collect();
    assert_eq!(client.ask(NOW, join(14)), Err(Full));
    let mut requests = sent(&mut client);
    assert_eq!((requests.len(), client.open()), (4, 14));
    // A cancelled request makes room, in flight and in the queue.
    client.cancel(NOW, ids[5]);
    client.cancel(NOW, ids[0]);
    assert!(client.ask(NOW, join(14)).is_ok());
    let mut answered = 0;
    requests.remove(0);
    while !requests.is_empty() {
        for request in std::mem::take(&mut requests) {
            client.receive(NOW, &answer(&request, 0));
            answered += 1;
        }
        requests = sent(&mut client);
    }
    assert_eq!(
        (answered, client.open(), client.counts().queue_full),
        (13, 0, 1)
    );
    let mut ended: Vec<_> = events(&mut client)
        .iter()
        .map(|e| match e {
            Event::Answered { id, .. } => *id,
            Event::Reported(_) => panic!("no Report was sent"),
        })
        .collect();
    ended.sort_unstable();
    ended.dedup();
    assert!(ended.len() == 13 && !ended.contains(&ids[0]) && !ended.contains(&ids[5]));
}

/// The kernel's umad layer refuses the id of a request that waits for its answer.
#[test]
fn a_request_that_is_renewed_has_another_id_each_time_it_is_sent() {
    let mut client = Client::new(config(1));
    client.ask(NOW, join(0)).unwrap();
    let mut ids = Vec::new();
    let mut now = NOW;
    let collect = |client: &mut Client, ids: &mut Vec<u64>| {
        ids.extend(sent(client).iter().map(|m| header(m).transaction_id.get()));
    };
    collect(&mut client, &mut ids);
    for renewed in [false, true] {
        if renewed {
            client.renew(now);
        }
        for _ in 0..config(1).tries - u32::from(!renewed) {
            now = client.next_deadline().unwrap();
            client.handle_timeout(now);
            collect(&mut client, &mut ids);
        }
    }
    assert_eq!(ids.len(), 2 * config(1).tries as usize);
    assert_eq!(
        ids.iter().collect::<BTreeSet<_>>().len(),
        ids.len(),
        "{ids:x?}"
    );
}

#[test]
fn a_changed_manager_gets_all_requests_again() {
    let mut client = Client::new(config(1));
    for n in 0..6 {
        client.ask(NOW, join(n)).unwrap();
    }
    let before = sent(&mut client);
    let later = client.next_deadline().unwrap();
    client.handle_timeout(later);
    client.renew(later);
    sent(&mut client);
    client.handle_timeout(later.after(Duration::from_millis(250)));
    let mut again: Vec<u64> = sent(&mut client).iter().map(first_try).collect();
    again.sort_unstable();
    let mut expected: Vec<u64> = before.iter().map(first_try).collect();
    expected.sort_unstable();
    assert_eq!(again, expected);
    // An answer to a try before the change counts, too.
    client.receive(later, &answer(&before[0], 0));
    assert_eq!(events(&mut client).len(), 1);
    // All tries are left.
    let mut tries = 1;
    while client.open() > 0 {
        client.handle_timeout(client.next_deadline().unwrap());
        tries += sent(&mut client)
            .iter()
            .filter(|m| first_try(m) == first_try(&before[1]))
            .count();
    }
    assert_eq!(tries, 5);
}

#[test]
fn a_report_is_answered() {
    let mut client = Client::new(config(1));
    let notice = Notice::of_gid(trap::GROUP_CREATED, gid(9), Lid(1), gid(2));
    let mut report = join(0).datagram(0x77_0000_0055);
    report[3] = 6;
    report[17] = 2;
    report[56..136].copy_from_slice(&notice.write());
    client.receive(NOW, &report);
    assert_eq!(events(&mut client), [Event::Reported(notice)]);
    let replies = sent(&mut client);
    assert_eq!(replies.len(), 1);
    let mad = Mad::parse(&replies[0]).unwrap();
    assert_eq!(mad.header.to_string(), "SA ReportResp Notice");
    assert_eq!(mad.header.transaction_id.get(), 0x77_0000_0055);
    assert_eq!(replies[0][56..136], notice.write());
    // Reports that nobody reads are neither kept nor answered.
    for _ in 0..1000 {
        client.receive(NOW, &report);
        sent(&mut client);
    }
    assert_eq!(client.counts().reports_dropped, 1000 - 256);
    assert_eq!(events(&mut client).len(), 256);
    report[17] = 3;
    client.receive(NOW, &report);
    assert_eq!((sent(&mut client).len(), client.counts().malformed), (0, 1));
}

#[test]
fn a_table_of_the_kernel_has_its_length() {
    let mut client = Client::new(ClientConfig {
        own_rmpp: false,
        ..config(1)
    });
    client.ask(NOW, Request::group(gid(3))).unwrap();
    let mut table = answer(&sent(&mut client)[0], 0).to_vec();
    table[24..28].copy_from_slice(&[1, 1, 3, 0]);
    table[45] = 7;
    table.resize(56 + 7 * 56, 0);
    client.receive(NOW, &table);
    let Event::Answered { result, .. } = events(&mut client).remove(0) else {
        panic!("no answer");
    };
    let records: Vec<McMemberRecord> = result.unwrap().all().collect();
    assert_eq!((records.len(), records[0].mgid), (7, gid(3)));
}

/// The first segment of an answer of three segments.
fn first_segment(request: &[u8; MAD_LEN]) -> [u8; MAD_LEN] {
    let mut segment = answer(request, 0);
    segment[24..28].copy_from_slice(&[1, 1, 3, 0]);
    segment[31] = 1;
    segment[34..36].copy_from_slice(&[2, 0x60]);
    segment[45] = 7;
    segment
}

#[test]
fn a_segment_that_nobody_put_together_is_a_part_of_a_table() {
    let mut client = Client::new(ClientConfig {
        own_rmpp: false,
        ..config(1)
    });
    client.ask(NOW, Request::group(gid(3))).unwrap();
    let segment = first_segment(&sent(&mut client)[0]);
    client.receive(NOW, &segment);
    let Event::Answered { result, .. } = events(&mut client).remove(0) else {
        panic!("no answer");
    };
    let table = result.unwrap();
    assert!(table.truncated && table.records().count() == 3);
}

/// The administrator begins a long answer and stops sending: it is told, and asked again.
#[test]
fn a_transfer_that_stops_is_ended_and_asked_for_again() {
    let mut client = Client::new(config(1));
    let id = client.ask(NOW, Request::group(gid(3))).unwrap();
    let request = sent(&mut client).remove(0);
    let begun = |client: &mut Client, at| {
        client.receive(at, &first_segment(&request));
        let acknowledgement = sent(client).remove(0);
        assert_eq!(
            acknowledgement[24..36],
            [1, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 65]
        );
        assert_eq!(
            (acknowledgement[3], &acknowledgement[8..12]),
            (0x12, &[0, 1, 0, 0][..])
        );
    };
    begun(&mut client, NOW);
    // No try is due while the answer is on its way.
    let late = client.next_deadline().unwrap();
    assert_eq!(late, NOW.after(Duration::from_secs(6)));
    client.handle_timeout(late);
    let abort = sent(&mut client).remove(0);
    assert_eq!((abort[3], &abort[24..28]), (0x12, &[1, 4, 1, 118][..]));
    let again = client.next_deadline().unwrap();
    client.handle_timeout(again);
    let repeated = sent(&mut client).remove(0);
    assert_eq!(first_try(&repeated), first_try(&request));
    begun(&mut client, again);
    client.cancel(again, id);
    assert_eq!(sent(&mut client).remove(0)[24..28], [1, 4, 1, 118]);
    assert_eq!((client.open(), client.counts().aborted), (0, 1));
    assert_eq!(events(&mut client), []);
}

#[test]
fn a_stopped_answer_is_asked_for_again_and_its_status_reported() {
    let mut client = Client::new(config(1));
    let id = client.ask(NOW, Request::group(gid(3))).unwrap();
    let mut stop = first_segment(&sent(&mut client)[0]);
    stop[25..28].copy_from_slice(&[3, 1, 1]);
    for _ in 0..5 {
        client.receive(NOW, &stop);
        assert_eq!(events(&mut client), []);
        client.handle_timeout(client.next_deadline().unwrap());
        sent(&mut client);
    }
    let result = Err(Failure::Aborted(1));
    assert_eq!(events(&mut client), [Event::Answered { id, result }]);
}

#[test]
fn a_table_beyond_the_limit_is_not_asked_for_again() {
    let mut client = Client::new(config(1));
    let id = client.ask(NOW, Request::group(gid(3))).unwrap();
    let mut segment = first_segment(&sent(&mut client)[0]);
    segment[32..36].copy_from_slice(&[0xff; 4]);
    client.receive(NOW, &segment);
    assert_eq!(sent(&mut client).remove(0)[24..28], [1, 3, 1, 1]);
    let result = Err(Failure::Aborted(1));
    assert_eq!(events(&mut client), [Event::Answered { id, result }]);
}

#[test]
fn a_table_needs_the_length_of_its_records() {
    let mut client = Client::new(config(1));
    client.ask(NOW, Request::group(gid(3))).unwrap();
    let mut table = answer(&sent(&mut client)[0], 0);
    table[24..28].copy_from_slice(&[1, 1, 7, 0]);
    table[31] = 1;
    table[35] = 76;
    client.receive(NOW, &table);
    let Event::Answered { result, .. } = events(&mut client).remove(0) else {
        panic!("no answer");
    };
    assert_eq!(result, Err(Failure::Malformed(Unusable::NoRecordLength)));
}
