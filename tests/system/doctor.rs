//! `ibtap doctor` in typical situations of its users.

use std::time::Duration;

use serde_json::Value;

use crate::lab::{Bridged, Host, Lab, SOON, eventually, ibtap};

/// The findings of the doctor in the host's namespace, and its exit status.
pub fn doctor(host: &Host, options: &str) -> (Vec<Value>, i32) {
    let socket = host.socket();
    let words = format!(
        "{} --json --socket {} doctor {options}",
        ibtap().display(),
        socket.display()
    );
    let done = host.run(&words);
    match serde_json::from_str(&done.out) {
        Ok(Value::Array(findings)) => (findings, done.code.expect("an exit status")),
        other => panic!("{words}: {other:?}: {done:?}"),
    }
}

/// The text of the first finding with this check and level.
pub fn finding(findings: &[Value], check: &str, level: &str) -> Option<(String, String)> {
    let finding = findings
        .iter()
        .find(|f| f["check"] == check && f["level"] == level)?;
    let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    Some((text("found"), text("advice")))
}

fn failed(findings: &[Value], check: &str) -> (String, String) {
    finding(findings, check, "fail")
        .unwrap_or_else(|| panic!("no failure of {check}: {findings:#?}"))
}

fn no_failure(findings: &[Value]) {
    let failure = findings.iter().find(|f| f["level"] == "fail");
    assert!(failure.is_none(), "{failure:#?}");
}

#[test]
fn a_healthy_pair_is_found_healthy() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, _) = lab.two();
    let (findings, status) = doctor(a, "");
    no_failure(&findings);
    assert_eq!(status, 0, "{findings:#?}");
    for check in [
        "daemon",
        "interface",
        "neighbours",
        "rights",
        "underlay",
        "mtu",
        "gid",
        "port 4791",
        "multicast",
        "host",
        "counters",
    ] {
        assert!(
            finding(&findings, check, "ok").is_some(),
            "{check}: {findings:#?}"
        );
    }
    assert_eq!(
        finding(&findings, "multicast", "warn"),
        None,
        "the other answers"
    );

    // The text output, from outside the daemon's namespace.
    let done = a.ibtap("doctor ib0");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("another network namespace"), "{done:?}");
    assert!(done.out.contains("ok    gid eth0: fe80::"), "{done:?}");
    assert!(!done.out.contains('\x1b'), "no colour but on a terminal");
    assert_eq!(a.ibtap("doctor ib9").code, Some(1));
    assert_eq!(a.ibtap("doctor --underlay bad/name").code, Some(1));

    // An interface that the daemon will serve after a reload, and one that nobody knows.
    let file = a.file("ibtapd.toml");
    let both =
        ["ib0", "ib9"].map(|name| format!("[[ipoib]]\nname = \"{name}\"\nunderlay = \"eth0\"\n"));
    std::fs::write(&file, both.concat()).expect("a file");
    let file = file.display();
    let (findings, status) = doctor(a, &format!("--config {file} ib9"));
    no_failure(&findings);
    assert_eq!(status, 0, "{findings:#?}");
    assert!(finding(&findings, "port 4791", "ok").is_some());
    let unknown = a.ibtap(&format!("doctor --config {file} ib8"));
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.err.contains("has no interface named \"ib8\""),
        "{unknown:?}"
    );
}

#[test]
fn without_a_daemon_the_doctor_reports_that_and_checks_the_rest() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 2);
    assert!(failed(&findings, "daemon").1.contains("ibtapd --underlay"));
    assert!(
        finding(&findings, "gid", "ok").is_some(),
        "eth0 was guessed: {findings:#?}"
    );

    // Before the first start nothing is wrong yet.
    let (findings, status) = doctor(a, "--underlay eth0");
    no_failure(&findings);
    assert_eq!(status, 0);
    assert_eq!(
        finding(&findings, "port 4791", "ok").expect("a verdict").0,
        "is free"
    );

    let file = a.file("ibtapd.toml");
    let text = "[[ipoib]]\nname = \"ib0\"\nnetns = \"blue\"\nunderlay = \"eth7\"\n";
    std::fs::write(&file, text).expect("a file");
    let (findings, status) = doctor(a, &format!("--config {} blue/ib0", file.display()));
    assert_eq!(status, 2);
    assert!(finding(&findings, "config", "ok").is_some());
    let (found, advice) = failed(&findings, "underlay");
    assert!(found.contains("no such interface"), "{found}");
    assert!(advice.contains("configuration"), "{advice}");
    std::fs::write(&file, "[[ipoib]]\nnmae = 1\n").expect("a file");
    let (findings, _) = doctor(a, &format!("--config {}", file.display()));
    assert!(
        failed(&findings, "config").0.contains(":2:"),
        "{findings:#?}"
    );
}

#[test]
fn an_underlay_that_is_missing_down_or_without_a_link_local_address() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    let (findings, status) = doctor(a, "--underlay eth7");
    assert_eq!(status, 2);
    assert!(
        failed(&findings, "underlay")
            .0
            .contains("no such interface")
    );

    a.ok("ip addr flush dev eth0 scope link");
    let (findings, status) = doctor(a, "--underlay eth0");
    assert_eq!(status, 2);
    assert!(
        failed(&findings, "gid")
            .0
            .contains("no IPv6 link-local address")
    );
    a.ok("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1");
    let (findings, _) = doctor(a, "--underlay eth0");
    assert!(failed(&findings, "gid").1.contains("disable_ipv6=0"));

    a.ok("ip link set eth0 down");
    let (findings, status) = doctor(a, "--underlay eth0");
    assert_eq!(status, 2);
    assert_eq!(failed(&findings, "underlay").1, "ip link set eth0 up");
}

#[test]
fn a_running_daemon_whose_underlay_goes_down() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, _) = lab.two();
    a.ok("ip link set eth0 down");
    a.await_carrier("ib0", false);
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 2);
    assert!(failed(&findings, "interface").0.contains("eth0 is down"));
    assert_eq!(failed(&findings, "underlay").1, "ip link set eth0 up");
}

#[test]
fn the_process_on_the_port_is_named() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    let script = a.file("bind.py");
    let text = "import socket,time\ns=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\n\
                s.bind(('::',4791))\ntime.sleep(600)\n";
    std::fs::write(&script, text).expect("a file");
    let holder = a.spawn(&format!("python3 {}", script.display()));
    let failure = eventually(SOON, "the port to be taken", || {
        let (findings, _) = doctor(a, "--underlay eth0");
        finding(&findings, "port 4791", "fail")
    });
    let expected = format!("process {} (python3, user 0)", holder.0.id());
    assert!(failure.0.contains(&expected), "{failure:?}");
}

#[test]
fn another_daemon_on_the_underlay_is_named() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    let other = a.start_other("other.sock", &["--underlay", "eth0"]);
    let (findings, status) = doctor(a, "--underlay eth0");
    assert_eq!(status, 2);
    let failure = failed(&findings, "port 4791");
    assert!(
        failure.0.contains(&format!("(process {})", other.pid())),
        "{failure:?}"
    );
    assert!(failure.1.contains("--socket"), "{failure:?}");
}

/// The daemon does not answer an ordinary user, who need not stop it.
#[test]
fn to_an_ordinary_user_the_daemon_on_the_port_is_no_fault() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let program = a.file("ordinary");
    std::fs::copy(ibtap(), &program).expect("a copy");
    let folder = program.parent().expect("a folder");
    a.ok(&format!("chmod 755 {}", folder.display()));
    let done = a.run(&format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups {} --json --socket {} doctor --underlay eth0",
        program.display(),
        a.socket().display()
    ));
    let findings: Vec<Value> = serde_json::from_str(&done.out).expect("findings");
    let (found, _) = finding(&findings, "port 4791", "note")
        .unwrap_or_else(|| panic!("no note of the port: {findings:#?}"));
    assert!(found.contains("could not be asked"), "{found}");
}

#[test]
fn a_firewall_rule_that_drops_the_port_is_found_and_the_advice_helps() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let rules = a.file("rules.nft");
    let text = "table inet guard {\n chain input {\n type filter hook input priority 0; policy drop;\n \
                iifname lo accept\n ct state established,related accept\n meta l4proto ipv6-icmp accept\n }\n}\n";
    std::fs::write(&rules, text).expect("a file");
    a.ok(&format!("nft -f {}", rules.display()));
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 2);
    let (found, advice) = failed(&findings, "firewall");
    assert!(
        found.contains("policy of nft chain inet guard input"),
        "{found}"
    );
    assert!(
        finding(&findings, "multicast", "warn").is_some(),
        "{findings:#?}"
    );

    // The rule also drops ib0's own traffic, which does not affect the fabric.
    let (_, command) = advice.split_once(": ").expect("a command");
    let done = a.run_script(command);
    assert_eq!(done.code, Some(0), "{command}: {done:?}");
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 0, "{findings:#?}");
    assert!(finding(&findings, "firewall", "ok").is_some());
    // The rule was the cause: after the advice, packets pass.
    a.ok("nft insert rule inet guard input iifname ib0 accept");
    a.reaches(b);
}

#[test]
fn the_commands_of_iptables_are_understood() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    a.ok("ip6tables -A INPUT -i eth+ -p udp -m multiport --dports 53,4700:4800 -j DROP");
    let (findings, status) = doctor(a, "--underlay eth0");
    assert_eq!(status, 2);
    let (found, advice) = failed(&findings, "firewall");
    assert!(
        found.contains("ip6tables") && found.contains("4700:4800"),
        "{found}"
    );
    let (_, command) = advice.split_once(": ").expect("a command");
    a.ok(command);
    let (findings, status) = doctor(a, "--underlay eth0");
    assert_eq!(status, 0, "{findings:#?}");
}

/// Simulates a snooping switch that has forgotten the groups; unicast continues.
fn lose_multicast(host: &Host) {
    let rules = host.file("rules.nft");
    let text = "table inet switch {\n chain pre {\n type filter hook prerouting priority 0; policy accept;\n \
                iifname eth0 ip6 daddr ff10::/12 udp dport 4791 drop\n }\n}\n";
    std::fs::write(&rules, text).expect("a file");
    host.ok(&format!("nft -f {}", rules.display()));
}

#[test]
fn a_network_without_multicast_is_noticed() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let (findings, _) = doctor(a, "");
    assert_eq!(finding(&findings, "multicast", "warn"), None, "not yet");
    lose_multicast(b);
    // Unicast goes on.
    a.reaches_all(&[b.v4()]);
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 0, "{findings:#?}");
    let (found, advice) = finding(&findings, "multicast", "warn").expect("a warning");
    assert!(found.contains("none answers"), "{found}");
    assert!(
        advice.contains("querier") && advice.contains("--peers"),
        "{advice}"
    );
}

#[test]
fn a_bridge_that_snoops_without_a_querier_is_noticed() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    a.ok("ip link add br0 type bridge mcast_snooping 1");
    a.ok("ip link set eth0 master br0");
    a.bring_up("br0");
    let (findings, status) = doctor(a, "--underlay eth0");
    assert_eq!(status, 2, "a port of a bridge receives nothing");
    assert!(failed(&findings, "underlay").1.contains("--underlay br0"));

    a.await_link_local("br0");
    let (findings, status) = doctor(a, "--underlay br0");
    assert_eq!(status, 0, "{findings:#?}");
    let (_, advice) = finding(&findings, "multicast", "warn").expect("a warning");
    let command = advice.split_once(',').expect("two ways out").0;
    a.ok(command);
    let (findings, _) = doctor(a, "--underlay br0");
    assert_eq!(
        finding(&findings, "multicast", "warn"),
        None,
        "{findings:#?}"
    );
}

#[test]
fn peers_and_keys_of_the_running_daemon_are_known() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let (a, b) = lab.two();
    let (of_a, of_b) = (a.await_link_local("eth0"), b.await_link_local("eth0"));
    a.start(&["--peers", &of_b]);
    b.start(&["--peers", &of_a, "--pkey", "0x8001"]);
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 0, "{findings:#?}");
    let (found, _) = finding(&findings, "multicast", "ok").expect("a verdict");
    assert!(found.contains("unicast copies to 1 peers"), "{found}");

    // The packets of the other host have another partition.
    b.run(&format!("ping -c 2 -W 1 {}", a.v4()));
    let (found, advice) = eventually(SOON, "a violation to be counted", || {
        std::thread::sleep(Duration::from_millis(100));
        finding(&doctor(a, "").0, "counters", "warn")
    });
    assert!(found.contains("rx_pkey_violations"), "{found}");
    assert!(advice.contains("P_Key"), "{advice}");
}

#[test]
fn a_bridge_over_the_interface_is_healthy_unless_multicast_is_not() {
    let Some(mut bridged) = Bridged::start(&[]) else {
        return;
    };
    bridged.all_reach_all();
    let (a, b, c) = bridged.lab.three();
    let (findings, status) = doctor(a, "");
    assert_eq!(status, 0, "{findings:#?}");
    assert_eq!(
        finding(&findings, "multicast", "warn"),
        None,
        "{findings:#?}"
    );
    // Guests of the host, which receive multicast through the bridge, must not hide a fault of the fabric.
    lose_multicast(b);
    lose_multicast(c);
    let (findings, _) = doctor(a, "");
    let (found, _) = finding(&findings, "multicast", "warn").expect("a warning");
    assert!(found.contains("none answers"), "{found}");
}
