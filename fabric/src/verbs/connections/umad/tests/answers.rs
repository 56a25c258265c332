//! Datagrams that belong to no connection by their communication ids.

use super::*;
use crate::cm::{Cm, SidrAsk};
use crate::mad::cm::SidrRep;

/// The requester never learned the communication id of the other side.
#[test]
fn a_requester_that_gives_up_without_a_reply_releases_the_other_side() {
    let mut net = Net::listening();
    let asked = net.ask(linux(MY_QPN));
    // The request arrives, and the reply does not.
    net.fates = vec![Fate::Lost, Fate::Arrives];
    assert_eq!(net.run(Duration::from_millis(100)), []);
    assert_eq!(net.states(), ["REQ_SENT", "REP_SENT"]);
    net.hosts[0].engine.close(net.now, asked);
    let closed = net.run(Duration::from_millis(100));
    let reason = CloseReason::Rejected(RejectReason::TIMEOUT);
    assert_eq!(closed, [(1, reason)]);
}

#[test]
fn only_the_requester_s_port_can_give_up_its_request() {
    let mut net = Net::listening();
    let asked = net.ask(linux(MY_QPN));
    net.fates = vec![Fate::Lost, Fate::Arrives];
    net.run(Duration::from_millis(100));
    net.hosts[0].port().lid = Lid(0x99);
    net.hosts[0].engine.close(net.now, asked);
    assert_eq!(net.run(Duration::from_millis(100)), []);
    assert_eq!(net.states(), ["REP_SENT"]);
}

#[test]
fn a_service_for_connections_is_none_for_datagrams() {
    let mut net = Net::listening();
    let config = CmConfig {
        ca_guid: Guid([9; 8]),
        worker: 0,
        workers: 1,
        seed: [5, 6],
        half_open_max: 4,
        connections_max: 4,
    };
    let mut asker = Cm::new(config);
    let ask = SidrAsk {
        service: linux(MY_QPN),
        peer: gid(Lid(0x12)),
        pkey: PKey::DEFAULT,
        private_data: &[],
    };
    asker.ask_for_datagrams(net.now, &ask).unwrap();
    let request = asker.poll_transmit().unwrap().datagram;
    let to = To::gsi(Lid(0x12), 0);
    net.deliver(1, &received(Lid(0x10), &to, &request));
    let answer = net.hosts[1].port().manager.poll_transmit();
    let (back, answer) = answer.expect("an answer");
    assert_eq!(back.dlid, Lid(0x10));
    let Some(Message::SidrRep(answer)) = Mad::parse(&answer).unwrap().communication_management()
    else {
        panic!("another answer");
    };
    assert_eq!(answer.status, SidrRep::UNSUPPORTED);
}
