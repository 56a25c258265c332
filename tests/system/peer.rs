//! `ibtap-peer` against itself; `tests/guest` has it against rdma-core's programs.

use std::io::Write;
use std::net::TcpListener;
use std::thread;

use crate::lab::{Done, Host, Lab, SOON, eventually, ibtap_peer};

/// A command line of it on `eth0`.
fn line(words: &str) -> String {
    format!("{} {words} --underlay eth0", ibtap_peer().display())
}

/// Runs the first host's side and the second's, each to its end.
fn both(lab: &mut Lab, [first, second]: [&str; 2]) -> [Done; 2] {
    let (a, b) = lab.two();
    let (first, second) = (line(first), line(second));
    thread::scope(|scope| {
        let side = scope.spawn(|| a.run(&first));
        let other = b.run(&second);
        [side.join().expect("no panic"), other]
    })
}

/// The same for sides that must succeed.
fn agree(lab: &mut Lab, sides: [&str; 2]) {
    let [first, second] = both(lab, sides);
    for done in [&first, &second] {
        let right = done.code == Some(0) && done.out.contains("all of them right");
        assert!(right, "{sides:?}: {first:?} {second:?}");
    }
}

fn refusal(host: &Host, words: &str, code: i32, sentence: &str) {
    let done = host.run(&line(words));
    assert_eq!(done.code, Some(code), "{words}: {done:?}");
    assert!(done.err.contains(sentence), "{words}: {done:?}");
}

#[test]
fn every_program_is_client_and_server_over_both_families() {
    let Some(mut lab) = Lab::pair() else { return };
    // Programs that find each other by TCP do so over IPv4, whatever their GIDs are.
    for gid in ["auto", "ipv4"] {
        for (program, sizes) in [
            ("ud-pingpong", [1, 4096]),
            ("rc-pingpong --mtu 4096", [1, 200_000]),
        ] {
            for size in sizes {
                let common = format!("{program} --gid {gid} --size {size} --count 20");
                agree(&mut lab, [&common, &format!("{common} --connect 10.8.0.1")]);
            }
        }
    }
    let address = |host: &Host| host.await_link_local("eth0");
    let (a, b) = lab.two();
    let (link_local, other) = (address(a), address(b));
    for (gids, server) in [
        (["ipv4", "ipv4"], "10.8.0.1"),
        ([&link_local, &other], link_local.as_str()),
    ] {
        for program in ["cmatose --size 5000", "udaddy --size 50"] {
            let sides = gids.map(|gid| format!("{program} --gid {gid} --count 20"));
            agree(
                &mut lab,
                [&sides[0], &format!("{} --connect {server}", sides[1])],
            );
        }
    }
}

#[test]
fn groups_of_both_families() {
    let Some(mut lab) = Lab::pair() else { return };
    for (gid, group) in [("ipv4", "239.1.2.3"), ("auto", "ff15::7:1")] {
        let common = format!("mckey --gid {gid} --group {group} --count 20");
        let (a, b) = lab.two();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| a.run(&line(&common)));
            eventually(SOON, "a member of the group", || {
                let groups = a.ok("ip maddr show dev eth0");
                groups.contains(group).then_some(())
            });
            let sent = b.run(&line(&format!("{common} --send")));
            let received = receiver.join().expect("no panic");
            assert_eq!(sent.code, Some(0), "{sent:?}");
            assert_eq!(received.code, Some(0), "{received:?} {sent:?}");
            assert!(received.out.contains("20 datagrams"), "{received:?}");
        });
    }
}

#[test]
fn what_cannot_be_is_said() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    for words in [
        "",
        "ud-pingpong --size 0",
        "rc-pingpong --count 0",
        "rc-pingpong --mtu 1000",
        "cmatose --gid ff02::1",
        "mckey",
        "udaddy --timeout never",
        "cmatose --connect nobody",
    ] {
        let done = host.run(&line(words));
        assert_eq!(done.code, Some(1), "{words}: {done:?}");
    }
    let usage = host.run(&format!("{} mckey --group ff15::1", ibtap_peer().display()));
    assert_eq!(usage.code, Some(1), "{usage:?}");
    refusal(host, "ud-pingpong --size 8193", 2, "lower --size");
    refusal(host, "mckey --group 10.8.0.2", 2, "no multicast address");
    refusal(
        host,
        "mckey --group 239.1.2.3",
        2,
        "not a multicast GID that this port can join",
    );
    refusal(
        host,
        "rc-pingpong --gid 10.8.0.77",
        2,
        "does not have the address",
    );
    let alone = "--timeout 0.5 --connect";
    refusal(
        host,
        &format!("ud-pingpong {alone} 10.8.0.2"),
        2,
        "cannot reach 10.8.0.2",
    );
    refusal(
        host,
        &format!("udaddy --gid ipv4 {alone} 10.8.0.2"),
        2,
        "in vain",
    );
    refusal(
        host,
        &format!("cmatose --gid ipv4 {alone} fe80::1"),
        2,
        "no address to reach",
    );
}

/// Two sides that do not agree find out, and each says what is wrong.
#[test]
fn what_differs_is_noticed() {
    let Some(mut lab) = Lab::pair() else { return };
    for program in ["ud-pingpong", "rc-pingpong"] {
        let server = format!("{program} --size 200 --timeout 1");
        let client = format!("{program} --size 100 --timeout 1 --connect 10.8.0.1");
        let [server, client] = both(&mut lab, [&server, &client]);
        assert_eq!(
            (server.code, client.code),
            (Some(2), Some(2)),
            "{server:?} {client:?}"
        );
        assert!(
            server
                .err
                .contains("message 0 has 100 bytes instead of 200"),
            "{server:?}"
        );
    }
    let server = "rc-pingpong --timeout 1";
    let client = "rc-pingpong --gid ipv4 --timeout 1 --connect 10.8.0.1";
    let [server, client] = both(&mut lab, [server, client]);
    assert_eq!(
        (server.code, client.code),
        (Some(2), Some(2)),
        "{server:?} {client:?}"
    );
    assert!(server.err.contains("another --gid"), "{server:?}");
    assert!(client.err.contains("left before"), "{client:?}");
}

#[test]
fn a_peer_that_tells_no_parameters_is_told_of() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let listener = b
        .namespace()
        .within(|| TcpListener::bind("10.8.0.2:18515").expect("a socket"));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&[b'x'; 52]).expect("sent");
            // It says nothing at all.
            let (stream, _) = listener.accept().expect("a client");
            thread::sleep(SOON / 10);
            drop(stream);
        });
        let client = "ud-pingpong --connect 10.8.0.2 --timeout 0.5";
        refusal(a, client, 2, "which are no parameters");
        refusal(a, client, 2, "does not tell its parameters");
    });
}

/// Whichever side is killed, the other ends with a sentence.
#[test]
fn a_peer_that_vanishes_is_told_of() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let (a, b): (&Host, &Host) = (a, b);
    let endless = "--gid ipv4 --count 4000000000 --timeout 1";
    let ends = |killed: (&Host, &str), other: (&Host, &str)| {
        let dies = format!("timeout --signal KILL 2 {}", killed.1);
        let done = thread::scope(|scope| {
            let dying = scope.spawn(|| killed.0.run(&dies));
            let done = other.0.run(other.1);
            dying.join().expect("no panic");
            done
        });
        assert_eq!(
            done.code,
            Some(2),
            "{other_line}: {done:?}",
            other_line = other.1
        );
        let sentence = done.err.strip_prefix("ibtap-peer: ").expect("its name");
        assert!(
            sentence.contains("in vain for") || sentence.contains("ended"),
            "{done:?}"
        );
    };
    for program in ["rc-pingpong", "ud-pingpong", "cmatose", "udaddy"] {
        let server = line(&format!("{program} {endless}"));
        let client = format!("{server} --connect 10.8.0.1");
        ends((b, &client), (a, &server));
        // A client of udaddy would send four thousand million datagrams before it listens.
        if program != "udaddy" {
            ends((a, &server), (b, &client));
        }
    }
}
