//! Multicast senders and receivers, IPv4 and IPv6: joins, packets from non-members, leaves.

use std::time::Duration;

use crate::lab::group::{
    Group, V4, V6, each_once, fill_port, heard, is_full_member, receive, receiver, sender,
};
use crate::lab::{Host, Lab, SOON, eventually};

/// The multicast addresses that the underlay's interface listens to.
fn underlay_groups(host: &Host) -> Vec<String> {
    let shown = host.json("ip -6 -j maddr show dev eth0");
    let entries = shown[0]["maddr"].as_array().expect("entries").clone();
    entries
        .iter()
        .filter_map(|entry| entry["address"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn groups_reach_members_as_unicast_copies_between_ipv4_gids() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let (to_a, to_b) = (a.underlay_v4(), b.underlay_v4());
    a.start(&["--gid", "ipv4", "--peers", &to_b]);
    b.start(&["--gid", "ipv4", "--peers", &to_a]);
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    for group in [&V4, &V6] {
        let listening = receiver(b, "ib0", group);
        let sending = sender(a, "ib0", group);
        heard(&sending, &listening, "a packet at the receiver");
        each_once(&sending, &listening, "fifty packets");
    }
}

fn join_send_leave(group: &Group) {
    let Some(mut lab) = Lab::running_segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();

    let listening = receiver(b, "ib0", group);
    eventually(SOON, "the receiver's group", || {
        is_full_member(b, group).then_some(())
    });
    assert!(underlay_groups(b).iter().any(|g| g == group.mgid));
    assert!(!underlay_groups(c).iter().any(|g| g == group.mgid));

    let sending = sender(a, "ib0", group);
    heard(&sending, &listening, "a packet at the receiver");
    assert!(!is_full_member(a, group), "a sender need not be a member");
    assert!(
        a.groups("ib0", |g| g["send_only"] == true)
            .iter()
            .any(|mgid| mgid == group.mgid),
        "the sender's group is a send-only one"
    );

    each_once(&sending, &listening, "fifty packets");

    drop(listening);
    eventually(SOON, "the receiver to leave", || {
        (!is_full_member(b, group) && !underlay_groups(b).iter().any(|g| g == group.mgid))
            .then_some(())
    });
    let before = b.link("ib0")["stats64"]["rx"]["packets"].clone();
    for _ in 0..200 {
        sending.0.send_to(b"nobody", sending.1).expect("sent");
    }
    std::thread::sleep(Duration::from_millis(500));
    let after = b.link("ib0")["stats64"]["rx"]["packets"].clone();
    let arrived = after.as_u64().expect("a count") - before.as_u64().expect("a count");
    assert!(arrived < 100, "{arrived} packets of a group that was left");
}

#[test]
fn an_ipv4_group_is_joined_heard_and_left() {
    join_send_leave(&V4);
}

#[test]
fn an_ipv6_group_is_joined_heard_and_left() {
    join_send_leave(&V6);
}

fn no_echo(group: &Group) {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let (here, there) = (receiver(a, "ib0", group), receiver(b, "ib0", group));
    for host in [&*a, &*b] {
        eventually(SOON, "the group", || {
            is_full_member(host, group).then_some(())
        });
    }
    let sending = sender(a, "ib0", group);
    heard(&sending, &there, "a packet at the other member");
    // The kernel's loopback gives one copy to the sender's host; the fabric must not add another.
    for (socket, what) in [(&here, "the sender's copy"), (&there, "the other's packet")] {
        while receive(socket).is_some() {}
        each_once(&sending, socket, what);
    }
}

#[test]
fn a_member_that_sends_hears_itself_once_over_ipv4() {
    no_echo(&V4);
}

#[test]
fn a_member_that_sends_hears_itself_once_over_ipv6() {
    no_echo(&V6);
}

#[test]
fn broadcast_and_all_nodes_reach_every_host() {
    let Some(mut lab) = Lab::running_segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    for host in [&*b, &*c] {
        host.ok("sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0");
    }
    let output = a.ok("ping -b -c 6 -i 0.3 -w 10 10.9.0.255");
    for host in [&*b, &*c] {
        assert!(
            output.contains(&host.v4()),
            "{} is silent: {output}",
            host.v4()
        );
    }
    let output = a.ok("ping -c 6 -i 0.3 -w 10 ff02::1%ib0");
    assert!(output.contains("+"), "only one host answered: {output}");
}

#[test]
fn a_group_joined_before_the_daemon_restarts_is_joined_again() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    b.start(&["--persist"]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    let listening = receiver(b, "ib0", &V4);
    let sending = sender(a, "ib0", &V4);
    heard(&sending, &listening, "a packet before the restart");
    b.kill_daemon();
    b.start(&["--persist"]);
    b.await_carrier("ib0", true);
    heard(&sending, &listening, "a packet after the restart");
}

/// `ib0` has all groups of the port, and leaves none for `ib1`.
#[test]
fn an_interface_starts_without_its_broadcast_group_and_has_its_carrier_when_it_is_joined() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let ib0 = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\npersist = true\n";
    let both = format!("{ib0}[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\npkey = 0x8001\n");
    b.start_config(&both);
    b.configure("ib1");
    a.start_config(ib0);
    a.await_carrier("ib0", true);
    let sockets = fill_port(a, "ib0");
    a.write_config(&both);
    assert_eq!(a.ibtap("reload").code, Some(0));
    a.configure_addresses("ib1");
    let shown = a.show("ib1");
    let reason = shown["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("broadcast group") && reason.contains("8192"),
        "{shown}"
    );
    assert_eq!(shown["carrier"], false);
    a.await_carrier("ib1", false);
    a.await_carrier("ib0", true);
    // Retries after 1, 2, 4 and more seconds, with one log line.
    std::thread::sleep(Duration::from_secs(4));
    let log = a.daemon().log();
    let logged = log.matches("ib1: multicast join failed").count();
    assert_eq!(logged, 1, "{log}");
    drop(sockets);
    eventually(Duration::from_secs(60), "the carrier", || {
        let shown = a.show("ib1");
        (shown["carrier"] == true && shown["reason"].is_null()).then_some(())
    });
    a.reaches(b);
    b.reaches(a);
}
