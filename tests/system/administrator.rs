//! The software fabric with a subnet administrator on its Ethernet, reached by QP1: the scripted one of
//! `tests/guest/ib`.

use std::path::Path;

use crate::lab::{Host, Lab, SOON, eventually};

/// The scripted subnet administrator.
const SA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest/ib/sa");

/// LIDs of the hosts and of the subnet administrator, which their MACs and GIDs end in.
const LIDS: [u8; 3] = [0x20, 0x21, 1];

/// Sends a request to the control socket of the subnet administrator; returns the answer.
fn ask(host: &Host, socket: &Path, request: &str) -> serde_json::Value {
    let socket = socket.display();
    host.json(&format!("python3 -B {SA}/control.py {socket} {request}"))
}

/// The members of the broadcast group.
fn members(host: &Host, socket: &Path) -> usize {
    let groups = ask(host, socket, r#"{"do":"groups"}"#);
    let groups = groups["groups"].as_array().expect("an array");
    let broadcast = "ff12:401b:ffff::ffff:ffff";
    let group = groups.iter().find(|group| group["mgid"] == broadcast);
    let members = &group.expect("the broadcast group")["members"];
    members.as_object().expect("an object").len()
}

#[test]
fn groups_are_joined_at_the_administrator_and_again_when_it_has_forgotten_them() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    for (host, lid) in [&*a, b, c].into_iter().zip(LIDS) {
        host.ok("ip link set eth0 down");
        host.ok(&format!(
            "ip link set eth0 address 02:99:00:00:00:{lid:02x}"
        ));
        host.ok("ip link set eth0 up");
    }
    let gid = c.await_link_local("eth0");
    let socket = c.file("sa.sock");
    let options = "--dev eth0 --lid 1 --mtu 5 --control";
    let _sa = c.spawn_into(
        &format!("python3 -B -u {SA} {options} {}", socket.display()),
        &c.file("sa.log"),
    );
    eventually(SOON, "the subnet administrator", || {
        socket.exists().then_some(())
    });
    for host in [&mut *a, b] {
        host.start_config(&format!(
            "[port.eth0]\nsa = {gid:?}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n"
        ));
        host.configure("ib0");
    }
    a.reaches(b);
    assert_eq!(members(c, &socket), 2);
    let shown = a.show("ib0");
    assert_eq!(
        (&shown["sa_gid"], &shown["broadcast_record"]["mlid"]),
        (&gid.into(), &0xc000.into())
    );

    // Without an event.
    ask(c, &socket, r#"{"do":"restart","mlid":49408}"#);
    assert_eq!(members(c, &socket), 0);
    eventually(SOON * 2, "both hosts in the group", || {
        (members(c, &socket) == 2).then_some(())
    });
    eventually(SOON, "the other MLID", || {
        (a.show("ib0")["broadcast_record"]["mlid"] == 49408).then_some(())
    });
    a.reaches(b);

    b.stop();
    eventually(SOON, "one host in the group", || {
        (members(c, &socket) == 1).then_some(())
    });
}
