//! `allow` of a port: who may send to it.

use crate::lab::attacker::Attacker;
use crate::lab::{Host, Lab, SOON, eventually};

fn write(host: &Host, allow: &str) -> String {
    host.write_config(&format!(
        "[port.eth0]\n{allow}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmode = \"connected\"\n\
         [[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n"
    ))
}

/// The first host is allowed, the second only after a reload; interfaces of the host itself always are.
#[test]
fn only_allowed_hosts_reach_the_port() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (friend, stranger, host) = lab.three();
    for peer in [&mut *friend, &mut *stranger] {
        peer.start(&["--mode", "connected"]);
        peer.configure("ib0");
    }
    let gid = |of: &Host| of.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    let (first, second) = (gid(friend), gid(stranger));
    let path = write(host, &format!("allow = [{first:?}]"));
    host.start_with(&["--config", &path]);
    host.configure("ib0");
    friend.reaches(host);
    host.reaches(friend);
    host.connects_to(friend);
    assert!(!stranger.pings(&host.v4()) && !stranger.pings(&host.v6()));
    assert!(!host.pings(&stranger.v4()));
    assert!(host.counter("ib0", "rx_not_allowed") > 0);

    // Unicast datagrams to the queue pair, too.
    let attacker = Attacker::new(stranger, host);
    let before = host.counter("ib0", "rx_not_allowed");
    for _ in 0..100 {
        attacker.send(&attacker.packet(vec![0; 64]).datagram());
    }
    eventually(SOON, "the datagrams", || {
        (host.counter("ib0", "rx_not_allowed") >= before + 100).then_some(())
    });

    // The other way round, while a connection is up.
    write(host, &format!("allow = [{second:?}]"));
    let done = host.ibtap("reload");
    assert!(done.out.contains("eth0: entries of allow: 1"), "{done:?}");
    eventually(SOON, "the second host", || {
        stranger.pings(&host.v4()).then_some(())
    });
    assert!(!friend.pings(&host.v4()));

    write(host, "");
    let done = host.ibtap("reload");
    assert!(done.out.contains("all hosts may send"), "{done:?}");
    for peer in [friend, stranger] {
        eventually(SOON, "both hosts", || peer.pings(&host.v4()).then_some(()));
    }
}
