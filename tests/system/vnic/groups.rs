//! Groups with separate multicast LIDs.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use super::{count, managed, vesw};
use crate::lab::group::{self, Group, V4, heard, receive, receiver};
use crate::lab::{Em, Host, Lab, SOON, eventually, one_of_three};

/// The MAC of [`V4`] (RFC 1112, section 6.4), and its LID.
const GROUPS: &str = "groups = [{ mac = \"01:00:5e:01:02:03\", lid = 0xf00100 }]";
const LID: u64 = 0xf0_0100;
/// Another group, with the switch's multicast LID.
const OTHER: Group = Group {
    address: IpAddr::V4(Ipv4Addr::new(239, 7, 7, 7)),
    mgid: "",
};
/// As many as a socket buffer holds.
const MANY: u64 = 100;

/// Sends many packets to a group; returns the number of additional multicast frames that each host has
/// received, accepted or not.
fn send_many(from: &Host, to: &Group, others: [&Host; 2]) -> [u64; 2] {
    let arrived = |host: &Host| count(host, "rx_mcastbcast") + count(host, "rx_other_lid");
    let before = others.map(arrived);
    let (socket, address) = group::sender(from, "vnic0", to);
    for n in 0..MANY {
        socket.send_to(&[7; 200], address).expect("sent");
        if n % 20 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    // Later packets have overtaken nothing.
    for other in others {
        from.reaches(other);
    }
    let after = others.map(arrived);
    [after[0] - before[0], after[1] - before[1]]
}

/// The same. All packets must arrive at `listener`; the number that `needed` makes of the two must be as high.
fn all_arrive(
    from: &Host,
    to: &Group,
    others: [&Host; 2],
    listener: &UdpSocket,
    needed: fn([u64; 2]) -> u64,
) -> [u64; 2] {
    let series = || {
        let at_others = send_many(from, to, others);
        let received = std::iter::from_fn(|| receive(listener)).count() as u64;
        assert!(received <= MANY, "{received} instead of {MANY}");
        (at_others, received)
    };
    let is_whole =
        |(at_others, received): &([u64; 2], u64)| *received == MANY && needed(*at_others) >= MANY;
    let arrived = one_of_three(series, is_whole);
    assert!(is_whole(&arrived), "{arrived:?} of {MANY}");
    arrived.0
}

#[test]
fn a_group_with_its_own_lid_reaches_its_listeners_only() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    for host in [&mut *a, &mut *b, &mut *c] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
    }
    let em = Em::start(a, "poll_interval = 1", &vesw(1, GROUPS));
    for host in [&*a, &*b, &*c] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    a.reaches(c);
    let listener = receiver(b, "vnic0", &V4);
    heard(&group::sender(a, "vnic0", &V4), &listener, "the group");
    let shown = eventually(SOON, "the manager to know of the listener", || {
        let group = em.ask("vesw").remove(0)["groups"][0].take();
        (group["listeners"] == 1).then_some(group)
    });
    assert_eq!(
        (&shown["mac"], &shown["lid"]),
        (&"01:00:5e:01:02:03".into(), &LID.into())
    );
    let explained = em.ask("explain 1 01:00:5e:01:02:03").remove(0);
    assert_eq!(
        (&explained["dlid"], &explained["listeners_only"]),
        (&LID.into(), &true.into())
    );

    let [_, at_c] = all_arrive(a, &V4, [b, c], &listener, |[at_b, _]| at_b);
    // The kernels send packets to their own groups now and then.
    assert!(at_c < MANY / 4, "{at_c} frames at the other host");

    // A capture of all packets receives the group, only while it runs.
    let capture = crate::lab::Sniffer::start(c, "vnic0", "udp");
    eventually(SOON, "its frames at the capture", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c >= MANY).then_some(())
    });
    drop(capture);
    eventually(SOON, "none of them afterwards", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c < MANY / 4).then_some(())
    });
    c.ok("ip link set vnic0 allmulticast on");
    eventually(SOON, "its frames with all groups enabled", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c >= MANY).then_some(())
    });
    c.ok("ip link set vnic0 allmulticast off");
    eventually(SOON, "none of them afterwards", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c < MANY / 4).then_some(())
    });
    c.ok("ip maddr add 01:00:5e:01:02:03 dev vnic0");
    c.ok("ip link set vnic0 mtu 1399");
    eventually(SOON, "its frames at the listener below IP", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c >= MANY).then_some(())
    });
    c.ok("ip maddr del 01:00:5e:01:02:03 dev vnic0");
    c.ok("ip link set vnic0 mtu 1400");
    eventually(SOON, "none of them afterwards", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c < MANY / 4).then_some(())
    });
    while receive(&listener).is_some() {}

    // Another group is unaffected: all members receive its frames.
    let listener = receiver(c, "vnic0", &OTHER);
    heard(
        &group::sender(a, "vnic0", &OTHER),
        &listener,
        "the other group",
    );
    all_arrive(a, &OTHER, [b, c], &listener, |both| both[0].min(both[1]));
    drop(listener);

    // A new listener receives it from then on; without its LID, the group is like any other.
    let late = receiver(c, "vnic0", &V4);
    heard(
        &group::sender(a, "vnic0", &V4),
        &late,
        "the group at the later listener",
    );
    drop(late);
    em.reconfigure(|text| text.replace(GROUPS, ""));
    em.reload();
    eventually(SOON, "the group to be for all", || {
        let explained = em.ask("explain 1 01:00:5e:01:02:03").remove(0);
        (explained["dlid"] == 0xf0_0001).then_some(())
    });
    eventually(SOON, "its frames at the other host", || {
        let [_, at_c] = send_many(a, &V4, [b, c]);
        (at_c >= MANY).then_some(())
    });
}
