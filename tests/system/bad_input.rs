//! Wrong command lines and surroundings: one sentence, a non-zero exit, nothing left behind.

use std::net::UdpSocket;

use crate::lab::{Done, Host, Lab};

/// One sentence that contains each of `words`, this exit status, and no trace.
fn assert_refused(host: &Host, options: &[&str], code: i32, words: &[&str]) -> Done {
    let before = host.ok("ip -br link");
    let done = host.refused(options);
    assert_eq!(done.code, Some(code), "{options:?}: {done:?}");
    let errors: Vec<_> = done
        .err
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    assert_eq!(
        errors.len(),
        1,
        "{options:?}: more than a sentence: {done:?}"
    );
    for word in words {
        assert!(
            done.err.to_lowercase().contains(&word.to_lowercase()),
            "{options:?}: {word:?} is not in {:?}",
            done.err
        );
    }
    assert!(!done.err.contains("panicked"), "{done:?}");
    assert_eq!(
        host.ok("ip -br link"),
        before,
        "{options:?}: an interface is left"
    );
    assert!(!host.socket().exists(), "{options:?}: the socket is left");
    done
}

#[test]
fn an_underlay_that_is_not_there_is_down_or_has_no_address() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    assert_refused(host, &["--underlay", "nosuch0"], 2, &["nosuch0"]);
    host.ok("ip link set eth0 down");
    assert_refused(host, &["--underlay", "eth0"], 2, &["eth0", "down"]);
    host.ok("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1");
    host.ok("ip link set eth0 up");
    assert_refused(
        host,
        &["--underlay", "eth0"],
        2,
        &["eth0", "link-local", "disable_ipv6", "gid"],
    );
}

#[test]
fn no_generated_address_names_the_setting() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    host.ok("ip link set eth0 down");
    host.ok("sysctl -qw net.ipv6.conf.eth0.addr_gen_mode=1");
    host.ok("ip link set eth0 up");
    assert_refused(host, &["--underlay", "eth0"], 2, &["eth0", "addr_gen_mode"]);
}

#[test]
fn a_port_in_use_names_the_likely_holder() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let _taken = a
        .namespace()
        .within(|| UdpSocket::bind("[::]:4791").expect("a socket"));
    assert_refused(a, &["--underlay", "eth0"], 2, &["4791", "rdma_rxe"]);

    // Another daemon on the same underlay, with an interface and a socket of its own.
    let first = b.start(&[]).pid();
    let other = b.file("other.sock");
    let second = b.daemon_run(&[
        "--underlay",
        "eth0",
        "--name",
        "ib7",
        "--socket",
        other.to_str().expect("an ASCII path"),
    ]);
    assert_eq!(second.code, Some(2), "{second:?}");
    assert!(second.err.contains("ibtapd"), "{second:?}");
    assert!(second.err.contains(&first.to_string()), "{second:?}");
    assert!(!b.has_link("ib7") && !other.exists());
}

#[test]
fn a_control_socket_in_use_is_not_taken_over() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let first = host.start(&[]).pid();
    let second = host.refused(&["--underlay", "eth0", "--name", "ib7"]);
    assert_eq!(second.code, Some(2), "{second:?}");
    assert!(second.err.contains(&first.to_string()), "{second:?}");
    assert!(!host.has_link("ib7"));
    assert_eq!(host.ask("show").len(), 1, "the first goes on answering");
}

#[test]
fn partition_keys_mtus_and_names_out_of_range() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let with = |option: &'static str, value: &'static str| ["--underlay", "eth0", option, value];
    for (option, value) in [
        ("--pkey", "0"),
        ("--pkey", "0x8000"),
        ("--pkey", "0x10000"),
        ("--pkey", "storage"),
        ("--mtu", "71"),
        ("--mtu", "70000"),
        ("--queues", "0"),
        ("--name", "sixteen-letters-"),
        ("--name", "a/b"),
        ("--gid", "nowhere"),
    ] {
        let done = host.refused(&with(option, value));
        assert_eq!(done.code, Some(1), "{option} {value}: {done:?}");
        assert!(done.err.contains(value), "{option} {value}: {done:?}");
        assert!(!host.has_link("ib0"));
    }
    let limit = "4092";
    assert_refused(host, &with("--mtu", "4093"), 2, &["4093", limit]);
}

#[test]
fn a_name_that_is_taken() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    host.ok("ip link add ib0 type veth peer name other");
    assert_refused(host, &["--underlay", "eth0"], 2, &["ib0"]);
    assert!(host.has_link("ib0"), "somebody else's interface stays");
}

#[test]
fn no_capability_and_no_tun_device() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let program = env!("CARGO_BIN_EXE_ibtapd");
    let socket = host.socket();
    let socket = socket.to_str().expect("an ASCII path");
    let without = host.run(&format!(
        "setpriv --bounding-set=-net_admin {program} --socket {socket} --underlay eth0"
    ));
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(without.err.contains("CAP_NET_ADMIN"), "{without:?}");
    assert!(!host.has_link("ib0") && !host.socket().exists());

    // A mount namespace of its own, in which /dev/net holds nothing.
    let hidden = host.run_script(&format!(
        "unshare --mount sh -c 'mount -t tmpfs none /dev/net && exec {program} --socket {socket} --underlay eth0'"
    ));
    assert_eq!(hidden.code, Some(2), "{hidden:?}");
    assert!(hidden.err.contains("/dev/net/tun"), "{hidden:?}");
    assert!(hidden.err.contains("modprobe tun"), "{hidden:?}");
    assert!(!host.socket().exists());
}

#[test]
fn connected_mode_is_named_as_not_there_yet() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let done = host.refused(&["--underlay", "eth0", "--mode", "connected"]);
    assert!(matches!(done.code, Some(1 | 2)), "{done:?}");
    assert!(done.err.contains("connected"), "{done:?}");
    assert!(!host.has_link("ib0"));
}

#[test]
fn the_tool_without_a_daemon_says_how_to_reach_one() {
    let Some(mut lab) = Lab::pair() else { return };
    let done = lab.host(0).ibtap("show");
    assert_eq!(done.code, Some(3), "{done:?}");
    for word in ["ibtapd", "--socket", "start"] {
        assert!(done.err.contains(word), "{word:?} is not in {done:?}");
    }
}
