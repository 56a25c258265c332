//! A VNIC that moves to another switch takes nothing along.

use rustix::process::Signal;
use serde_json::Value;

use super::{count, mac_of, managed_pair, vesw};
use crate::lab::frame::{Mac, ethernet};
use crate::lab::packet::{frames, ud_of_frame};
use crate::lab::packet16::{Packet16, data_qkey};
use crate::lab::{Host, Load, SOON, Sniffer, eventually};

const BROADCAST: Mac = [0xff; 6];

/// Minimum number of frames that wait; the host sends fewer of its own meanwhile.
const WAITED: u64 = 10;

/// Waits until a host sends more on its VNIC.
fn more_is_sent(host: &Host) {
    let before = count(host, "tx_packets");
    eventually(SOON, "more frames", || {
        (count(host, "tx_packets") > before + 100).then_some(())
    });
}

/// A frame that tells when it was sent.
fn marked(host: &Host, word: &[u8; 4]) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, mac_of(host, "vnic0"), 0x88b5);
    frame.extend(word);
    frame.resize(100, 0x5a);
    frame
}

/// Packets of a switch in a capture.
fn on_switch(wire: &Sniffer, vesw: u16) -> Vec<Packet16> {
    let file = std::fs::read(wire.file()).expect("a capture");
    let all = frames(&file);
    let all = all.iter().filter_map(|frame| ud_of_frame(frame));
    let its = all.filter(|ud| ud.qkey == data_qkey(vesw));
    its.filter_map(|ud| Packet16::parse(&ud.payload)).collect()
}

/// The kernel may stop the host up to a second after the loss of the carrier if it has just handled another
/// link. Packets that the host sends meanwhile wait in the TAP's queue; no host may receive them. If the kernel stops the
/// host at once, nothing waits: another move follows.
#[test]
fn vs14_what_is_sent_without_a_switch_does_not_appear_on_the_next() {
    let Some((mut lab, em)) = managed_pair("poll_interval = 1", "") else {
        return;
    };
    let (a, b) = lab.two();
    // Splits trains before the capture.
    a.ok("ethtool -K eth0 tx-udp-segmentation off");
    let wire = Sniffer::of_bulk(b, "eth0", "udp port 4791");
    let nobody = vesw(9, "").replace("*:1:*", "*:1:200");
    let mut moves = Vec::new();
    let mut switch = 1;
    let mut waited = 0;
    let _turn = Load::begin();
    for next in [258, 3, 4, 5, 6] {
        let dropped = count(a, "tx_drop_state");
        let stale = marked(a, &u32::from(switch).to_be_bytes());
        let sending = a.start_frames("vnic0", 50_000, &vec![stale.clone(); 200_000]);
        more_is_sent(a);
        em.reconfigure(|text| text.replace(&vesw(switch, ""), &nobody));
        em.reload();
        eventually(SOON, "the switch to be left", || {
            (a.show("vnic0")["vesw"] == 0).then_some(())
        });
        drop(sending);
        em.reconfigure(|text| text.replace(&nobody, &vesw(next, "")));
        em.reload();
        for host in [&*a, &*b] {
            host.await_carrier("vnic0", true);
            assert_eq!(host.show("vnic0")["vesw"], next);
        }
        moves.push((next, stale));
        switch = next;
        waited = count(a, "tx_drop_state") - dropped;
        if waited >= WAITED {
            break;
        }
    }
    assert!(waited >= WAITED, "nothing waited in the queue in any move");
    let fresh = marked(a, b"this");
    eventually(SOON, "what is sent then", || {
        a.send_frames("vnic0", 100, [&fresh]);
        let heard = on_switch(&wire, switch);
        heard.iter().any(|p| p.frame == fresh).then_some(())
    });
    for (next, stale) in moves {
        let heard = on_switch(&wire, next);
        assert!(heard.iter().all(|p| p.frame != stale), "on {next}");
    }
    a.reaches(b);
}

/// The host is notified, as if a cable were moved to another switch.
#[test]
fn vs14_a_move_to_another_switch_is_a_moment_without_carrier() {
    let Some((mut lab, em)) = managed_pair("poll_interval = 1", "") else {
        return;
    };
    let (a, b) = lab.two();
    let mut monitor = a.follow("--json monitor");
    monitor.await_object("the first event", |e| e["event"] == "watching");
    em.reconfigure(|text| text.replace("id = 1", "id = 258"));
    em.reload();
    let of_kind = |e: &Value, kind: &str| {
        let event = e["event"].as_str()?;
        let is_its = e["interface"] == "vnic0" && event.starts_with(kind);
        is_its.then(|| event.to_owned())
    };
    let of_group = |e: &Value| of_kind(e, "group-");
    let changes = |wanted: usize| {
        let of_carrier = |e: &Value| of_kind(e, "carrier-");
        let all: Vec<String> = monitor.objects().iter().filter_map(of_carrier).collect();
        (all.len() >= wanted).then_some(all)
    };
    let seen = eventually(SOON, "the carrier to go and come", || changes(2));
    assert_eq!(seen, ["carrier-off", "carrier-on"]);
    let groups: Vec<String> = monitor.objects().iter().filter_map(of_group).collect();
    assert_eq!(groups, ["group-left", "group-joined"], "one for another");
    a.reaches(b);
    assert_eq!(a.show("vnic0")["vesw"], 258);
    // Other changes are no move for the host.
    em.reconfigure(|text| text.replace("id = 258", "id = 258\neth_mtu = 1500"));
    em.reload();
    eventually(SOON, "the other limit", || {
        (a.show("vnic0")["mtu_max"] == 1500).then_some(())
    });
    assert_eq!(changes(0).expect("a list").len(), 2);
    monitor.end_by(Signal::INT);
}
