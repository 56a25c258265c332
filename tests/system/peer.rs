//! `ibtap-peer` with itself; `tests/guest` runs it with rdma-core's programs.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::thread;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::lab::{Background, Host, Lab, SOON, eventually, ibtap_peer};

/// A command line of `ibtap-peer` on `eth0`.
fn line(words: &str) -> String {
    format!("{} {words} --underlay eth0", ibtap_peer().display())
}

/// A running side.
struct Side<'a> {
    host: &'a Host,
    line: String,
    child: Background,
}

impl<'a> Side<'a> {
    fn start(host: &'a Host, words: &str) -> Side<'a> {
        let line = line(words);
        let child = host.spawn_into(&line, &host.file("peer.log"));
        Side { host, line, child }
    }

    /// Its output so far.
    fn output(&self) -> String {
        fs::read_to_string(self.host.file("peer.log")).expect("a log")
    }

    /// Waits until its output contains `words`.
    fn await_output(&mut self, words: &str) {
        eventually(SOON, &format!("{words:?} of {}", self.line), || {
            let ended = self.child.0.try_wait().expect("a child");
            let output = self.output();
            let found = output.contains(words);
            assert!(found || ended.is_none(), "{}: {output}", self.line);
            found.then_some(())
        });
    }

    /// Waits for its end; returns status and output.
    fn ends(mut self) -> (Option<i32>, String) {
        let status = eventually(SOON * 2, &format!("the end of {}", self.line), || {
            self.child.0.try_wait().expect("a child")
        });
        (status.code(), self.output())
    }
}

/// Runs a server on the first host and, when it is ready, its client on the second, until both end.
fn both(lab: &mut Lab, [server, client]: [&str; 2]) -> [(Option<i32>, String); 2] {
    let (a, b) = lab.two();
    let mut server = Side::start(a, server);
    server.await_output("waiting for");
    let client = Side::start(b, client).ends();
    [server.ends(), client]
}

/// Runs two sides that must succeed.
fn agree(lab: &mut Lab, sides: [&str; 2]) {
    let ended = both(lab, sides);
    let right =
        |(code, output): &(Option<i32>, String)| *code == Some(0) && output.contains("all correct");
    assert!(ended.iter().all(right), "{sides:?}: {ended:?}");
}

fn refusal(host: &Host, words: &str, code: i32, sentence: &str) {
    let done = host.run(&line(words));
    assert_eq!(done.code, Some(code), "{words}: {done:?}");
    assert!(done.err.contains(sentence), "{words}: {done:?}");
}

#[test]
fn every_program_is_client_and_server_over_both_families() {
    let Some(mut lab) = Lab::pair() else { return };
    // Programs that find each other by TCP use IPv4 for that, with any GIDs.
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
        let mut receiver = Side::start(a, &common);
        receiver.await_output("joined");
        let sent = b.run(&line(&format!("{common} --send")));
        assert_eq!(sent.code, Some(0), "{sent:?}");
        let (code, output) = receiver.ends();
        assert!(
            code == Some(0) && output.contains("20 datagrams"),
            "{output}"
        );
    }
}

#[test]
fn impossible_requests_are_reported() {
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
    refusal(host, "mckey --group 10.8.0.2", 2, "not a multicast address");
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
        "timeout of 0.5 s",
    );
    refusal(
        host,
        &format!("cmatose --gid ipv4 {alone} fe80::1"),
        2,
        "no address to reach",
    );
}

/// Two sides with different parameters: each reports the difference.
#[test]
fn what_differs_is_noticed() {
    let Some(mut lab) = Lab::pair() else { return };
    // Otherwise, address resolution would be in the time limits, and may take more than a second on a busy machine.
    let (a, b) = lab.two();
    let link_local = format!("{}%eth0", a.await_link_local("eth0"));
    b.reaches_all(&["10.8.0.1", &link_local]);
    let failed = Some(2);
    for program in ["ud-pingpong", "rc-pingpong"] {
        let server = format!("{program} --size 200 --timeout 5");
        let client = format!("{program} --size 100 --timeout 5 --connect 10.8.0.1");
        let [(server, output), (client, _)] = both(&mut lab, [&server, &client]);
        assert_eq!((server, client), (failed, failed), "{output}");
        assert!(
            output.contains("message 0 has 100 bytes instead of 200"),
            "{output}"
        );
    }
    let server = "rc-pingpong --timeout 5";
    let client = "rc-pingpong --gid ipv4 --timeout 5 --connect 10.8.0.1";
    let [(server, why), (client, left)] = both(&mut lab, [server, client]);
    assert_eq!((server, client), (failed, failed), "{why} {left}");
    assert!(why.contains("another --gid"), "{why}");
    assert!(left.contains("left before"), "{left}");
}

#[test]
fn a_peer_without_parameters_is_reported() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let listener = b
        .namespace()
        .within(|| TcpListener::bind("10.8.0.2:18515").expect("a socket"));
    // The thread also ends when a client does not come.
    set_socket_timeout(&listener, Timeout::Recv, Some(SOON)).expect("a timeout");
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&[b'x'; 52]).expect("sent");
            // This client sends nothing.
            let (stream, _) = listener.accept().expect("a client");
            thread::sleep(SOON / 10);
            drop(stream);
        });
        let client = "ud-pingpong --connect 10.8.0.2 --timeout 0.5";
        refusal(a, client, 2, "which are no parameters");
        refusal(a, client, 2, "does not send its parameters");
    });
}

/// The receiver of the last message may have ended when the loss of its acknowledgement shows.
#[test]
fn a_lost_last_acknowledgement_is_no_failure() {
    let Some(mut lab) = Lab::pair() else { return };
    // Opcode 0x11 of the base transport header: an acknowledgement of a reliable connection.
    lab.two().0.nft(
        "table inet ibtap {
           chain input { type filter hook input priority 0; udp dport 4791 @th,64,8 0x11 drop; }
         }",
    );
    let server = "rc-pingpong --count 1";
    let client = "rc-pingpong --count 1 --timeout 3 --connect 10.8.0.1";
    let [(server, output), (client, got)] = both(&mut lab, [server, client]);
    assert_eq!((server, client), (Some(0), Some(0)), "{output} {got}");
    assert!(output.contains("was not acknowledged"), "{output}");
    assert!(got.contains("all correct"), "{got}");
}

/// If one side is killed, the other ends with an error sentence.
#[test]
fn a_peer_that_disappears_is_reported() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let endless = "--gid ipv4 --count 4000000000 --timeout 1";
    let meet = |program: &str, met: &str| {
        let server = format!("{program} {endless}");
        let client = format!("{server} --connect 10.8.0.1");
        let mut server = Side::start(a, &server);
        server.await_output("waiting for");
        let mut client = Side::start(b, &client);
        server.await_output(met);
        client.await_output(met);
        [server, client]
    };
    let is_told = |survivor: Side<'_>| {
        let (code, output) = survivor.ends();
        let (_, why) = output.split_once("ibtap-peer: ").expect("a sentence");
        // The peer may end during the exchange of parameters.
        let named = ["timeout of", "ended", "left before", "does not accept"];
        let is_named = named.iter().any(|words| why.contains(words));
        assert!(code == Some(2) && is_named, "{code:?}: {output}");
    };
    for (program, met) in [
        ("rc-pingpong", "remote address"),
        ("ud-pingpong", "remote address"),
        ("cmatose", "connected"),
    ] {
        let [server, client] = meet(program, met);
        drop(client);
        is_told(server);
        let [server, client] = meet(program, met);
        drop(server);
        is_told(client);
    }
    // Its client would send 4,000,000,000 datagrams before it receives.
    let [server, client] = meet("udaddy", "QPN");
    drop(client);
    is_told(server);
}
