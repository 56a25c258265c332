//! The software fabric with a subnet administrator on its Ethernet, reached by QP1: the scripted one of
//! `tests/guest/ib`.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::lab::{Background, Host, Lab, SOON, eventually};

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

/// Gives the hosts the MACs that the subnet administrator knows, and starts it on the last host; its control socket
/// and its GID.
fn start_administrator(hosts: [&Host; 3]) -> (Background, PathBuf, String) {
    for (host, lid) in hosts.into_iter().zip(LIDS) {
        host.ok("ip link set eth0 down");
        host.ok(&format!(
            "ip link set eth0 address 02:99:00:00:00:{lid:02x}"
        ));
        host.ok("ip link set eth0 up");
    }
    let [.., c] = hosts;
    let gid = c.await_link_local("eth0");
    let socket = c.file("sa.sock");
    let options = "--dev eth0 --lid 1 --mtu 5 --control";
    let sa = c.spawn_into(
        &format!("python3 -B -u {SA} {options} {}", socket.display()),
        &c.file("sa.log"),
    );
    eventually(SOON, "the subnet administrator", || {
        socket.exists().then_some(())
    });
    (sa, socket, gid)
}

/// The configuration of a host.
fn with_administrator(gid: &str) -> String {
    format!("[port.eth0]\nsa = {gid:?}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n")
}

#[test]
fn groups_are_joined_at_the_administrator_and_again_when_it_has_forgotten_them() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    let (_sa, socket, gid) = start_administrator([a, b, c]);
    for host in [&mut *a, b] {
        host.start_config(&with_administrator(&gid));
        host.configure("ib0");
    }
    a.reaches(b);
    assert_eq!(members(c, &socket), 2);
    let shown = a.show("ib0");
    assert_eq!(
        (&shown["sa_gid"], &shown["broadcast_record"]["mlid"]),
        (&gid.into(), &0xc000.into())
    );

    // Without an event. The other MLID shows that the hosts have joined again.
    ask(c, &socket, r#"{"do":"restart","mlid":49408}"#);
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

/// The next daemon asks the administrator for the broadcast group again, and the answer takes a moment.
#[test]
fn a_restart_keeps_the_carrier_until_the_administrator_answers() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    let (sa, _, gid) = start_administrator([a, b, c]);
    let path = a.write_config(&with_administrator(&gid));
    let service = a.start_service_with(64, &["--config", &path]);
    b.start_config(&with_administrator(&gid));
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    a.reaches(b);
    let changes = || a.ok("cat /sys/class/net/ib0/carrier_changes");
    let before = changes();
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        eventually(SOON, "the answer", || {
            (a.show("ib0")["carrier"] == true).then_some(())
        });
        a.reaches(b);
        assert_eq!(changes(), before, "after {signal:?}");
    }
    // An administrator that does not answer ends the carrier, too.
    drop(sa);
    service.restart_by(Signal::TERM);
    eventually(3 * SOON, "the carrier to go", || {
        (changes() != before).then_some(())
    });
}
