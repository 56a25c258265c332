//! `ibtap ping`: echoes from daemon to daemon, without the hosts' IP stacks.

use rustix::process::Signal;
use serde_json::Value;

use crate::lab::{Host, LINK_MTU, Lab, SOON, eventually, one_of_three};

/// The objects that `ibtap --json ping` prints, and its status.
fn ping(host: &Host, words: &str) -> (Vec<Value>, Option<i32>) {
    let done = host.ibtap(&format!("--json ping {words}"));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    (done.out.lines().map(parse).collect(), done.code)
}

fn answers(objects: &[Value]) -> Vec<&Value> {
    objects.iter().filter_map(|o| o.get("answer")).collect()
}

/// Whether a result of [`ping`] has this many answers.
fn has_answers(count: usize) -> impl Fn(&(Vec<Value>, Option<i32>)) -> bool {
    move |(objects, _)| answers(objects).len() == count
}

#[test]
fn a_peer_answers_by_address_and_by_gid_up_to_the_link_mtu() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let there = b.show("ib0");
    let gid = there["gid"].as_str().expect("a GID");
    let largest = LINK_MTU + 4;
    for target in [&*b.v4(), &*b.v6(), gid] {
        for size in [40, 64, largest] {
            let words = format!("ib0 {target} -c 3 -i 0.02 -s {size}");
            let (objects, status) = one_of_three(|| ping(a, &words), has_answers(3));
            assert_eq!(status, Some(0), "{target} {size}: {objects:?}");
            let answers = answers(&objects);
            assert_eq!(answers.len(), 3, "{objects:?}");
            for (i, answer) in answers.iter().enumerate() {
                assert_eq!(answer["sequence"], i + 1);
                assert_eq!(answer["gid"], there["gid"]);
                assert_eq!(answer["qpn"], there["qpn"]);
                assert_eq!(answer["bytes"], size);
                assert!(answer["round_trip_ns"].as_u64() > Some(0));
                let ips = answer["ips"].as_array().expect("a list");
                assert!(ips.iter().any(|ip| *ip == b.v4()), "{answer}");
            }
            let summary = &objects.last().expect("a summary")["summary"];
            assert_eq!(
                (&summary["sent"], &summary["answered"]),
                (&3.into(), &3.into())
            );
        }
    }
    // Hosts that drop ICMP answer nevertheless.
    b.ok("sysctl -qw net.ipv4.icmp_echo_ignore_all=1");
    assert!(!a.pings(&b.v4()));
    let words = format!("ping ib0 {} -c 1", b.v4());
    let text = one_of_three(|| a.ibtap(&words), |done| done.code == Some(0));
    assert_eq!(text.code, Some(0), "{text:?}");
    let expected = format!("64 bytes from {gid} qpn ");
    assert!(
        text.out.lines().any(|l| l.starts_with(&expected)),
        "{text:?}"
    );
    assert!(text.out.contains("1 sent, 1 answered, 0% loss"), "{text:?}");
}

#[test]
fn all_peers_answer_and_strangers_are_found_by_their_gid() {
    let Some(mut lab) = Lab::running_segment(3) else {
        return;
    };
    let all = || ping(lab.host(0), "ib0 all -c 2 -i 0.1");
    let (objects, status) = one_of_three(all, has_answers(4));
    assert_eq!(status, Some(0), "{objects:?}");
    let mut from: Vec<_> = answers(&objects)
        .iter()
        .filter(|a| a["sequence"] == 2)
        .map(|a| a["gid"].clone())
        .collect();
    let mut others = [1, 2].map(|i| lab.host(i).show("ib0")["gid"].clone());
    from.sort_by_key(Value::to_string);
    others.sort_by_key(Value::to_string);
    assert_eq!(from, others, "{objects:?}");

    // A daemon that has just started knows no peers.
    let gid = others[0].as_str().expect("a GID").to_owned();
    let host = lab.host(0);
    let of_new_daemon = || {
        host.stop();
        host.start(&[]);
        host.await_carrier("ib0", true);
        ping(host, &format!("ib0 {gid} -c 2 -i 0.1"))
    };
    let (objects, status) = one_of_three(of_new_daemon, has_answers(2));
    assert_eq!(status, Some(0), "{objects:?}");
    assert_eq!(answers(&objects).len(), 2);
}

#[test]
fn a_missing_peer_and_a_wrong_value_have_a_status_and_a_sentence_each() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let (objects, status) = ping(a, "ib0 fe80::dead -c 2 -i 0.05 -W 0.1");
    assert_eq!(status, Some(1), "{objects:?}");
    assert_eq!(objects[0]["timeout"]["sequence"], 1);
    assert_eq!(objects[2]["summary"]["answers"], 0);
    let own = a.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    let (own, too_big) = (
        format!("ib0 {own}"),
        format!("ib0 10.9.0.2 -s {}", LINK_MTU + 5),
    );
    for (words, status, sentence) in [
        ("ib0 10.9.0.77", 2, "ping -c 1 10.9.0.77"),
        ("ib0 host.example", 1, "is not a peer"),
        ("ib0 all -s 39", 1, "use 40 to 128"),
        (&*too_big, 1, "use 40 to 4096"),
        (&*own, 1, "own GID"),
        ("ib0 all -i 0.001", 1, "use 0.01 to 86400"),
        ("ib0 all -W soon", 1, "is not a number of seconds"),
        ("nosuch0 all", 1, "no interface named"),
    ] {
        let done = a.ibtap(&format!("ping {words}"));
        assert_eq!(done.code, Some(status), "{words}: {done:?}");
        assert!(done.err.contains(sentence), "{words}: {done:?}");
    }
}

#[test]
fn it_goes_on_until_ctrl_c_over_a_peer_that_comes_back() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let gid = b.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    let mut ping = a.follow(&format!("--json ping ib0 {gid} -i 0.05 -W 0.2"));
    ping.await_object("an answer", |o| o.get("answer").is_some());
    b.kill_daemon();
    let lost = ping.await_object("a request without an answer", |o| {
        o.get("timeout").is_some()
    });
    let lost = lost["timeout"]["sequence"].as_u64();
    b.start(&[]);
    ping.await_object("an answer after it", |o| {
        o["answer"]["sequence"].as_u64() > lost
    });
    assert!(ping.end_by(Signal::INT).success());
    let objects = ping.objects();
    let summary = &objects.last().expect("a summary")["summary"];
    let count = |key: &str| summary[key].as_u64().expect("a number");
    assert!(
        count("sent") > count("answered") && count("answered") > 1,
        "{summary}"
    );
    assert_eq!(ping.complaints(), "");
    // The daemon has removed the request.
    eventually(SOON, "the last echo", || {
        let before = a.counter("ib0", "tx_packets");
        std::thread::sleep(std::time::Duration::from_millis(300));
        (a.counter("ib0", "tx_packets") - before < 4).then_some(())
    });
}

#[test]
fn an_interface_that_goes_ends_its_ping() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let mut ping = a.follow("ping ib0 all -i 0.1");
    eventually(SOON, "the first line", || {
        ping.text().contains("bytes from").then_some(())
    });
    a.ok("ip link del ib0");
    assert_eq!(ping.ended().code(), Some(2));
    assert!(ping.complaints().contains("ib0 is out of service"));
}
