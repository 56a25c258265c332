//! Wrong command lines and environments: one error sentence, a non-zero exit status, nothing left behind.

use std::net::UdpSocket;

use crate::lab::{Done, Host, Lab};

/// Checks for one sentence that contains each of `words`, this exit status, and no trace. Log lines about the
/// start may precede it, each once.
fn assert_refused(host: &Host, options: &[&str], code: i32, words: &[&str]) -> Done {
    let before = host.link_names();
    let done = host.refused(options);
    assert_eq!(done.code, Some(code), "{options:?}: {done:?}");
    let mut lines: Vec<_> = done.err.lines().collect();
    let sentence = lines.pop().expect("an error");
    assert!(sentence.starts_with("ibtapd: "), "{options:?}: {done:?}");
    let mut steps: Vec<_> = lines
        .iter()
        .map(|line| line.split_once(" INFO ").expect("steps on the way there").1)
        .collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps.len(), lines.len(), "{options:?}: twice: {done:?}");
    for word in words {
        assert!(
            sentence.to_lowercase().contains(&word.to_lowercase()),
            "{options:?}: {word:?} is not in {sentence:?}",
        );
    }
    assert_eq!(
        host.link_names(),
        before,
        "{options:?}: an interface is left"
    );
    assert!(!host.socket().exists(), "{options:?}: the socket is left");
    done
}

#[test]
fn an_underlay_that_is_not_there_or_is_down() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    assert_refused(host, &["--underlay", "nosuch0"], 2, &["nosuch0"]);
    host.ok("ip link set eth0 down");
    assert_refused(host, &["--underlay", "eth0"], 2, &["eth0", "down"]);
}

#[test]
fn an_underlay_without_an_address() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    host.ok("ip link set eth0 down");
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
    let taken = a
        .namespace()
        .within(|| UdpSocket::bind("[::]:4791").expect("a socket"));
    let own = format!("process {}", std::process::id());
    assert_refused(a, &["--underlay", "eth0"], 2, &["4791", &own, "stop it"]);
    drop(taken);
    // A socket of the kernel, like that of rdma_rxe: a tunnel on its port.
    a.ok("ip link add tunnel type vxlan id 1 group ff02::77 dev eth0 dstport 4791");
    a.ok("ip link set tunnel up");
    let way_out = ["4791", "rdma_rxe", "rdma link delete"];
    assert_refused(a, &["--underlay", "eth0"], 2, &way_out);
    a.ok("ip link del tunnel");
    a.start(&[]);

    // Another daemon on the same underlay, with its own interface and socket.
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
    assert!(host.has_link("ib0"), "the user's interface stays");
}

#[test]
fn an_interface_that_another_daemon_holds() {
    let Some(mut lab) = Lab::pair() else { return };
    lab.add_second_underlay();
    let (elsewhere, host) = lab.two();
    // A daemon with an interface of the same name in another namespace is no conflict.
    elsewhere.start(&[]);
    let first = host.start(&[]).pid();
    let other = host.file("other.sock");
    let socket = other.to_str().expect("an ASCII path");
    let second = host.daemon_run(&["--underlay", "eth1", "--socket", socket]);
    assert_eq!(second.code, Some(2), "{second:?}");
    let holder = format!("process {first} (ibtapd)");
    assert!(second.err.contains(&holder), "{second:?}");
    assert!(host.has_link("ib0") && !other.exists());
    assert_eq!(host.show("ib0")["underlay"], "eth0");
}

#[test]
fn a_start_that_fails_takes_back_what_it_made() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    host.ok("ip link add ib7 type veth peer name other");
    let file = host.file("half.toml");
    let device = |name: &str, pkey: &str| {
        format!(
            "[[ipoib]]\nname = \"{name}\"\nunderlay = \"eth0\"\npkey = {pkey}\npersist = true\n"
        )
    };
    let text = device("ib0", "0xffff") + &device("ib7", "0x8001");
    std::fs::write(&file, text).expect("written");
    let path = file.to_str().expect("an ASCII path");
    assert_refused(host, &["--config", path], 2, &["ib7", "belongs to", "veth"]);
    assert!(!host.ok("ip -6 maddr show dev eth0").contains("inet6 ff12:"));
}

#[test]
fn an_address_that_the_underlay_does_not_have() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let options = ["--underlay", "eth0", "--gid", "2001:db8::99"];
    assert_refused(host, &options, 2, &["eth0", "2001:db8::99"]);
}

#[test]
fn an_interface_cannot_be_its_own_underlay() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let done = host.refused(&["--underlay", "eth0", "--name", "eth0"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("its own underlay"), "{done:?}");
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

    // A separate mount namespace with an empty /dev/net.
    let hidden = host.run_script(&format!(
        "unshare --mount sh -c 'mount -t tmpfs none /dev/net && exec {program} --socket {socket} --underlay eth0'"
    ));
    assert_eq!(hidden.code, Some(2), "{hidden:?}");
    assert!(hidden.err.contains("/dev/net/tun"), "{hidden:?}");
    assert!(hidden.err.contains("modprobe tun"), "{hidden:?}");
    assert!(!host.socket().exists());
}

/// Whether this machine can load libibverbs: errors about devices come later.
fn has_libraries(host: &Host) -> bool {
    let found = host.run_script(
        "ldconfig -p | grep -q libibverbs.so.1 && ldconfig -p | grep -q librdmacm.so.1",
    );
    found.code == Some(0)
}

#[test]
fn an_rdma_device_that_is_not_there() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    // No machine has a device with this name.
    let options = ["--provider", "verbs", "--device", "nosuch_7"];
    let words = match has_libraries(host) {
        true => ["no rdma device", "nosuch_7"],
        false => ["libibverbs", "apt-get install"],
    };
    assert_refused(host, &options, 2, &words);
    // The doctor reports the same.
    let doctor = host.ibtap("doctor --device nosuch_7");
    assert_eq!(doctor.code, Some(2), "{doctor:?}");
    let output = doctor.out.to_lowercase();
    assert!(words.iter().all(|word| output.contains(word)), "{doctor:?}");
}

#[test]
fn without_rdma_core_the_error_names_the_packages() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    // A root directory with the program and its libraries, but without rdma-core.
    let root = host.file("root");
    let root = root.to_str().expect("an ASCII path");
    let program = env!("CARGO_BIN_EXE_ibtapd");
    let made = host.run_script(&format!(
        "set -e; mkdir -p {root}/proc {root}/run; cp {program} {root}/ibtapd; \
         for lib in $(ldd {program} | grep -o '/[^ ]*'); do \
         mkdir -p {root}$(dirname $lib); cp $lib {root}$lib; done; ! ldd {program} | grep -q ibverbs"
    ));
    assert_eq!(made.code, Some(0), "{made:?}");
    let done = host.run_script(&format!(
        "unshare --mount sh -c 'mount --rbind /proc {root}/proc && exec chroot {root} /ibtapd \
         --socket /run/s --provider verbs --device mlx5_0'"
    ));
    assert_eq!(done.code, Some(2), "{done:?}");
    // A log line about the sandbox may come before.
    let error = done.err.lines().last().expect("an error");
    for word in [
        "ibtapd: cannot load libibverbs.so.1",
        "apt-get install",
        "libibverbs1",
        "librdmacm1",
    ] {
        assert!(error.contains(word), "{word:?} is not in {done:?}");
    }
    assert!(!host.has_link("ib0"));
}

#[test]
fn options_of_one_provider_are_not_the_others() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    for (options, expected) in [
        (
            &["--provider", "verbs", "--underlay", "eth0"][..],
            "no --underlay",
        ),
        (&["--provider", "verbs"], "--device"),
        (&["--device", "mlx5_0"], "--provider verbs"),
        (&["--underlay", "eth0", "--port", "1"], "--provider verbs"),
        (
            &[
                "--provider",
                "verbs",
                "--device",
                "mlx5_0",
                "--vnic",
                "1",
                "--queues",
                "2",
            ],
            "one queue pair",
        ),
        (&["--underlay", "eth0", "--gid", "1"], "GID table"),
    ] {
        let done = host.refused(options);
        assert_eq!(done.code, Some(1), "{options:?}: {done:?}");
        assert!(
            done.err.contains(expected),
            "{options:?}: {expected:?} is not in {done:?}"
        );
    }
}

#[test]
fn modes_mtus_and_connections_that_there_are_not() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    for (options, expected) in [
        (&["--mode", "rc"][..], "datagram, connected"),
        (&["--mode", "connected", "--mtu", "65521"], "72 to 65520"),
        (&["--mtu", "9000"], "above the link MTU 4092"),
        (&["--connections", "16385"], "0 to 16384"),
    ] {
        let all = [&["--underlay", "eth0"], options].concat();
        let done = host.refused(&all);
        assert!(matches!(done.code, Some(1 | 2)), "{done:?}");
        assert!(
            done.err.contains(expected),
            "{expected:?} is not in {done:?}"
        );
        assert!(!host.has_link("ib0"));
    }
    host.start(&[]);
    for (words, expected) in [("mode ib9", "ib9"), ("mode ib0 rc", "datagram, connected")] {
        let done = host.ibtap(words);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.err.contains(expected),
            "{expected:?} is not in {done:?}"
        );
    }
    assert_eq!(host.ibtap("mode ib0").out, "datagram\n");
}

#[test]
fn the_tool_without_a_daemon_prints_how_to_reach_one() {
    let Some(mut lab) = Lab::pair() else { return };
    let done = lab.host(0).ibtap("show");
    assert_eq!(done.code, Some(3), "{done:?}");
    for word in ["ibtapd", "--socket", "start"] {
        assert!(done.err.contains(word), "{word:?} is not in {done:?}");
    }
}
