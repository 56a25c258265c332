//! Datagrams that belong to no connection by their communication ids.

use super::*;

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
