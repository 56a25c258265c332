//! Checklist 119: a source with many requests gets few answers, and takes nothing from other sources.

use std::time::Duration;

use super::*;

const NOW: Instant = Instant(1_000_000_000);

/// Requests of one source, without a limit.
struct Flooder {
    gid: Gid,
    sent: u32,
}

impl Flooder {
    const fn new(gid: Gid) -> Flooder {
        Flooder { gid, sent: 0 }
    }

    fn request(&mut self) -> Datagram {
        self.sent += 1;
        let ask = ask(self.gid, gid(1), 0x1000 + self.sent);
        let ca_guid = Guid([6; 8]);
        messages::req(1, CmId(self.sent), ca_guid, &ask)
    }
}

/// Accepts all requests at once.
fn answer(cm: &mut Cm, now: Instant) {
    let mut qpn = 0x10_0000;
    for event in events(cm) {
        if let CmEvent::Requested { id, .. } = event {
            qpn += 1;
            cm.accept(now, id, &consent(qpn));
        }
    }
}

#[test]
fn a_flood_from_one_source_is_in_nobodys_way() {
    let mut cm = Cm::new(config(1));
    let friend = gid(2);
    let request = Flooder::new(friend).request();
    cm.receive(NOW, friend, &request, listens);
    let [CmEvent::Requested { id, .. }] = events(&mut cm)[..] else {
        panic!("no request");
    };
    cm.accept(NOW, id, &consent(0x55));
    let mut flooder = Flooder::new(gid(66));
    let (mut now, mut answers) = (NOW, 0);
    for _ in 0..10_000 {
        now = now.after(Duration::from_micros(100));
        cm.receive(now, flooder.gid, &flooder.request(), listens);
        answer(&mut cm, now);
        let sent = drain(&mut cm);
        answers += sent
            .iter()
            .filter(|(to, m)| *to == flooder.gid && name(m) == "REP")
            .count();
        cm.table.assert_consistent();
    }
    // One second: the burst and the rate.
    assert!((500..=513).contains(&answers), "{answers}");
    assert!(cm.table.half_open().len() <= 1 + config(1).half_open_max / 4);
    assert_eq!(counter(&cm, "cm_rx_rate_limited"), 10_000 - answers as u64);
    // The friend's connection exists, and the friend may request another.
    assert_eq!(cm.state(id), Some("REP_SENT"));
    cm.heard(id);
    assert_eq!(events(&mut cm).last(), Some(&CmEvent::Established { id }));
}

/// Requests from forged sources: the oldest half-open connections are evicted.
#[test]
fn a_flood_from_everywhere_takes_no_more_than_there_is() {
    let config = config(1);
    let mut cm = Cm::new(config);
    for n in 0..10_000u32 {
        let source = std::net::Ipv4Addr::from(0x0a00_0000 + n).into();
        cm.receive(NOW, source, &Flooder::new(source).request(), listens);
        answer(&mut cm, NOW);
        assert!(cm.table.len() <= config.half_open_max);
        assert!(cm.transmit.len() <= TRANSMIT_MAX);
    }
    cm.table.assert_consistent();
    assert_eq!(cm.table.half_open().len(), config.half_open_max);
    assert!(counter(&cm, "cm_half_open_evicted") > 1000);
    assert!(counter(&cm, "cm_tx_queue_full") > 0);
}

/// Requests that the user never takes do not fill the memory.
#[test]
fn events_that_nobody_takes_are_as_many_as_connections() {
    let mut cm = Cm::new(config(1));
    for n in 0..2000u32 {
        let source = std::net::Ipv4Addr::from(0x0a00_0000 + n).into();
        cm.receive(NOW, source, &Flooder::new(source).request(), listens);
    }
    assert_eq!(cm.events.len(), config(1).half_open_max);
}

/// Both sides are notified of an eviction.
#[test]
fn an_eviction_notifies_both_sides() {
    let mut cm = Cm::new(CmConfig {
        half_open_max: 1,
        ..config(1)
    });
    let request = |cm: &mut Cm, n| {
        cm.receive(NOW, gid(n), &Flooder::new(gid(n)).request(), listens);
        let Some(CmEvent::Requested { id, .. }) = events(cm).pop() else {
            panic!("no request");
        };
        cm.accept(NOW, id, &consent(u32::from(n)));
        id
    };
    let first = request(&mut cm, 2);
    drain(&mut cm);
    cm.receive(NOW, gid(3), &Flooder::new(gid(3)).request(), listens);
    let reported = events(&mut cm);
    assert_eq!(
        reported[..2],
        [
            CmEvent::TimedOut { id: first },
            CmEvent::Released { id: first }
        ]
    );
    let sent = drain(&mut cm);
    assert_eq!((sent[0].0, name(&sent[0].1)), (gid(2), "REJ"));
    assert_eq!(sent[0].1[24 + 11], 3);
}
