//! Children, P_Key tables and namespaces from the configuration and by `ibtap`.

use serde_json::Value;

use crate::lab::{Host, Lab, SOON, eventually};

fn ib0_with(rest: &str) -> String {
    format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n{rest}")
}

/// The sentences of `ibtap reload`, which must exit with that status.
fn reload(host: &Host, status: i32) -> (Vec<String>, Vec<String>) {
    let done = host.ibtap("--json reload");
    assert_eq!(done.code, Some(status), "{done:?}");
    let all: Value = serde_json::from_str(&done.out).expect("JSON");
    let list = |key: &str| {
        let list = all[0][key].as_array().expect("a list").iter();
        list.map(|s| s.as_str().expect("a sentence").to_owned())
            .collect()
    };
    (list("applied"), list("refused"))
}

fn child(host: &Host, name: &str) -> Value {
    let all = host.ask("child list");
    let found = all.iter().find(|c| c["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("no child {name} among {all:?}"))
}

fn names(host: &Host) -> Vec<String> {
    let all = host.ask("child");
    all.iter()
        .map(|c| c["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn children_of_the_file_are_there_and_reload_changes_them() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let children =
        "children = [0x8001, { pkey = 2, name = \"st0\", mode = \"connected\", mtu = 9000 }]";
    for (host, number) in [(&mut *a, 1), (&mut *b, 2)] {
        host.start_config(&ib0_with(children));
        host.configure("ib0");
        assert_eq!(names(host), ["ib0.8001", "st0"]);
        for (net, name) in ["ib0.8001", "st0"].into_iter().enumerate() {
            host.ok(&format!("ip addr add 10.7.{net}.{number}/24 dev {name}"));
            host.await_carrier(name, true);
        }
    }
    a.reaches(b);
    for address in ["10.7.0.2", "10.7.1.2"] {
        eventually(SOON, address, || a.pings(address).then_some(()));
    }
    let st0 = child(a, "st0");
    assert_eq!(
        (&st0["pkey"], &st0["parent"]),
        (&0x8002.into(), &"ib0".into())
    );
    assert_eq!(
        (&st0["mode"], &st0["mtu"]),
        (&"connected".into(), &9000.into())
    );
    assert_eq!(a.show("ib0.8001")["queues"], 1);

    // One is removed, one changes, one is added; manual changes stay.
    assert_eq!(a.ibtap("child add ib0 0x8009").out, "ib0.8009\n");
    a.write_config(&ib0_with(
        "children = [{ pkey = 2, name = \"st0\", mtu = 2000 }, 0x8003]",
    ));
    let (applied, _) = reload(a, 0);
    assert_eq!(
        applied,
        [
            "ib0.8001: removed",
            "st0: mode datagram, mtu 2000",
            "ib0.8003: created"
        ]
    );
    assert!(!a.has_link("ib0.8001"));
    assert_eq!(names(a), ["st0", "ib0.8009", "ib0.8003"]);
    eventually(SOON, "st0 after the change", || {
        a.pings("10.7.1.2").then_some(())
    });
    // Configured now, and left unchanged.
    a.write_config(&ib0_with(
        "children = [{ pkey = 2, name = \"st0\", mtu = 2000 }, 0x8003, 0x8009]",
    ));
    let (applied, _) = reload(a, 0);
    let expected = [
        "ib0.8009: existed already and is configured now",
        "ib0.8009: up true",
    ];
    assert_eq!(applied, expected);
    assert_eq!(a.ibtap("reload").out, "nothing has changed\n");
    // The same with settings: those that are possible at run time take effect.
    assert_eq!(a.ibtap("child add ib0 0x800a").out, "ib0.800a\n");
    a.write_config(&ib0_with(
        "children = [{ pkey = 2, name = \"st0\", mtu = 2000 }, 0x8003, 0x8009, \
         { pkey = 0x800a, mode = \"connected\", mtu = 9000, queues = 2, up = true }]",
    ));
    let (applied, refused) = reload(a, 2);
    let expected = [
        "ib0.800a: existed already and is configured now",
        "ib0.800a: mode connected, mtu 9000",
        "ib0.800a: up true",
    ];
    assert_eq!(applied, expected);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("queues"), "{refused:?}");
    let made = child(a, "ib0.800a");
    assert_eq!(
        (&made["mode"], &made["mtu"]),
        (&"connected".into(), &9000.into())
    );
    assert!(a.is_up("ib0.800a"));
    a.write_config(&ib0_with(
        "children = [{ pkey = 2, name = \"st0\", mtu = 2000 }, 0x8003, 0x8009]",
    ));
    assert_eq!(reload(a, 0).0, ["ib0.800a: removed"]);

    // The parent and its children are created again after a manual deletion.
    a.ok("ip link del ib0");
    eventually(SOON, "the daemon to let go", || {
        a.ask("show").is_empty().then_some(())
    });
    let (applied, _) = reload(a, 0);
    assert_eq!(applied[0], "ib0: created");
    assert_eq!(applied.len(), 4, "{applied:?}");
    assert_eq!(names(a), ["st0", "ib0.8003", "ib0.8009"]);
    // A removed parent takes its children along.
    a.write_config("[[ipoib]]\nname = \"ib7\"\nunderlay = \"eth0\"\n");
    let (applied, refused) = reload(a, 0);
    assert_eq!(refused, [""; 0]);
    assert_eq!(applied.last().map(String::as_str), Some("ib7: created"));
    assert_eq!(names(a), [""; 0]);
    for gone in ["ib0", "st0", "ib0.8003", "ib0.8009"] {
        assert!(!a.has_link(gone), "{gone}");
    }
}

#[test]
fn a_child_made_by_hand_stays_when_the_file_no_longer_has_it() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.ok("ip tuntap add dev ib0.8001 mode tap");
    let (with, without) = (ib0_with("children = [0x8001]"), ib0_with(""));
    a.start_config(&with);
    assert_eq!(names(a), ["ib0.8001"]);
    let qpn = a.show("ib0.8001")["qpn"].clone();
    for _ in 0..2 {
        a.write_config(&without);
        let stays = "ib0.8001: no longer configured; it was made by hand and stays as long as ib0";
        assert_eq!(reload(a, 0).0, [stays]);
        assert_eq!(a.ibtap("reload").out, "nothing has changed\n");
        assert_eq!(names(a), ["ib0.8001"]);
        assert_eq!(a.show("ib0.8001")["qpn"], qpn);
        a.write_config(&with);
        let found = "ib0.8001: existed already and is configured now";
        assert_eq!(reload(a, 0).0, [found]);
    }
    // A removed parent takes its children along.
    a.write_config("[[ipoib]]\nname = \"ib7\"\nunderlay = \"eth0\"\n");
    let (applied, refused) = reload(a, 0);
    assert_eq!(refused, [""; 0]);
    assert_eq!(applied[1..], ["ib0: removed", "ib7: created"]);
    assert!(!a.has_link("ib0.8001"));
}

/// The persistence that `ip tuntap add` gives is not taken away.
#[test]
fn a_child_made_by_hand_stays_when_the_file_gets_and_loses_it() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let (with, without) = (ib0_with("children = [0x8001]"), ib0_with(""));
    a.start_config(&without);
    a.ok("ip tuntap add dev ib0.8001 mode tap");
    eventually(SOON, "the child", || {
        (names(a) == ["ib0.8001"]).then_some(())
    });
    let persists = || a.ok("ip -d link show dev ib0.8001").contains("persist on");
    for _ in 0..2 {
        a.write_config(&with);
        let (applied, refused) = reload(a, 0);
        assert_eq!(refused, [""; 0]);
        let found = "ib0.8001: existed already and is configured now";
        assert_eq!(applied[0], found);
        let ends = applied.iter().any(|line| line.contains("persist"));
        assert!(!ends, "{applied:?}");
        assert!(persists());
        a.write_config(&without);
        let stays = "ib0.8001: no longer configured; it was made by hand and stays as long as ib0";
        assert_eq!(reload(a, 0).0, [stays]);
        assert!(persists());
        assert_eq!(names(a), ["ib0.8001"]);
    }
    a.write_config(&with);
    reload(a, 0);
    a.stop();
    assert!(a.has_link("ib0.8001"));
}

#[test]
fn p_key_tables_are_set_and_reloaded() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let table = |keys: &str| {
        format!(
            "[port.eth0]\npkeys = [{keys}]\n{}",
            ib0_with("children = [1]")
        )
    };
    a.start_config(&table("0xffff"));
    a.configure("ib0");
    let waiting = child(a, "ib0.8001");
    assert_eq!(waiting["carrier"], false);
    assert_eq!(waiting.get("entry"), None);
    let reason = waiting["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("0x8001") && reason.contains("table"),
        "{reason}"
    );
    let text = a.ibtap("child list").out;
    assert!(text.contains(&format!("off: {reason}")), "{text}");
    // The doctor prints the exact remedy.
    let diagnosis = a.ibtap("doctor");
    assert_eq!(diagnosis.code, Some(2), "{diagnosis:?}");
    let remedy = "ibtap pkey set soft/eth0 0xffff,0x8001";
    assert!(diagnosis.out.contains(remedy), "{}", diagnosis.out);
    assert_eq!(a.ibtap(&remedy["ibtap ".len()..]).code, Some(0));
    a.await_carrier("ib0.8001", true);

    // A limited member is reported.
    assert_eq!(a.ibtap("pkey set eth0 0xffff,1").code, Some(0));
    a.await_carrier("ib0.8001", true);
    assert_eq!(child(a, "ib0.8001")["entry"], 1);
    assert_eq!(a.show("ib0.8001")["pkey"], 1);
    assert!(a.ibtap("child").out.contains("0x8001 (0x0001)"));
    assert!(a.ibtap("doctor ib0.8001").out.contains("limited member"));
    let shown = a.ibtap("pkey list eth0").out;
    assert!(shown.contains("0x0001  limited  set"), "{shown}");

    a.write_config(&table("0xffff, 0x8005"));
    let (applied, _) = reload(a, 0);
    assert_eq!(applied, ["eth0: 2 pkeys"]);
    a.await_carrier("ib0.8001", false);
    a.write_config(&ib0_with("children = [1]"));
    let (applied, _) = reload(a, 0);
    assert_eq!(applied, ["eth0: pkeys automatic"]);
    a.await_carrier("ib0.8001", true);
    let tables = a.ask("pkey");
    assert_eq!(tables[0]["automatic"], true);
    assert_eq!(tables[0]["pkeys"], serde_json::json!([0xffff, 0x8001]));

    for (words, status) in [
        ("pkey set eth7 auto", 1),
        ("pkey set eth0 0x8000", 1),
        ("pkey list eth7", 1),
    ] {
        let done = a.ibtap(words);
        assert_eq!(done.code, Some(status), "{words}: {done:?}");
        assert_eq!(done.err.lines().next().map(str::is_empty), Some(false));
    }
}

#[test]
fn what_ibtap_child_refuses_and_with_which_status() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--child", "0x8001"]);
    a.ok("ip link add ib0.8004 type veth peer name other0");
    let before = a.ask("show").len();
    for (words, status, sentence) in [
        ("child add ib0 0", 1, "partition 0"),
        ("child add ib0 0x8000", 1, "partition 0"),
        ("child add ib0 0x10000", 1, "out of range"),
        ("child add ib0 0x7fff", 2, "ib0"),
        ("child add ib0 0x8001", 2, "ib0.8001"),
        ("child add ib0 1", 2, "ib0.8001"),
        ("child add ib0.8001 0x8002", 1, "child"),
        ("child add ib9 0x8002", 1, "ib9"),
        ("child add ib0 0x8004", 2, "ib0.8004"),
        ("child add ib0 0x8005 --mtu 60000", 1, "MTU 60000"),
        ("child add ib0 0x8005 --netns nosuch", 2, "nosuch"),
        ("child del ib0 0x8006", 1, "0x8006"),
        ("child del ib9", 1, "ib9"),
        ("child del ib0", 1, "ib0"),
        ("child list ib9", 1, "ib9"),
        ("coalesce ib9", 1, "ib9"),
    ] {
        let done = a.ibtap(words);
        assert_eq!(done.code, Some(status), "{words}: {done:?}");
        assert!(done.err.contains(sentence), "{words}: {}", done.err);
        assert!(done.out.is_empty(), "{words}: {}", done.out);
    }
    assert_eq!(a.ask("show").len(), before, "nothing half-made");
    assert_eq!(names(a), ["ib0.8001"]);
    let made = a.ask("child add ib0 0x8002 --name fast --mode connected --mtu 9000");
    assert_eq!(made[0]["interface"], "fast");
    let fast = child(a, "fast");
    assert_eq!(
        (&fast["mode"], &fast["mtu"]),
        (&"connected".into(), &9000.into())
    );
    assert_eq!(a.ibtap("child del fast").code, Some(0));
    assert_eq!(a.ibtap("child delete ib0 1").code, Some(0));
    assert_eq!(names(a), [""; 0]);
    assert!(!a.has_link("fast") && !a.has_link("ib0.8001"));
}
