//! Configuration files, several interfaces, partitions.

use rustix::process::Signal;

use crate::lab::{Lab, SOON, eventually};

const TWO_PARTITIONS: &str = r#"
log_level = "debug"

[[ipoib]]
name = "ib0"
underlay = "eth0"

[[ipoib]]
name = "ib1"
underlay = "eth0"
pkey = "0x8001"
mtu = 2044
queues = 1
"#;

#[test]
fn two_devices_in_two_partitions_share_an_underlay() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for (host, number) in [(&mut *a, 1), (&mut *b, 2)] {
        host.start_config(TWO_PARTITIONS);
        host.configure("ib0");
        host.ok(&format!("ip addr add 10.10.0.{number}/24 dev ib1"));
        host.ok("ip link set ib1 up");
        host.await_carrier("ib1", true);
        assert_eq!(host.ask("show").len(), 2);
        assert_eq!(host.show("ib1")["pkey"], 0x8001);
        assert_eq!(host.mtu("ib1"), 2044);
        assert_eq!(host.show("ib1")["broadcast"], "ff12:401b:8001::ffff:ffff");
    }
    a.reaches(b);
    eventually(SOON, "the other partition", || {
        a.pings("10.10.0.2").then_some(())
    });
    let groups = a.groups("ib1", |_| true);
    assert!(
        groups.iter().all(|mgid| mgid.contains(":8001:")),
        "{groups:?}"
    );
}

#[test]
fn limited_members_reach_full_ones_and_not_each_other() {
    for (here, there, expected) in [
        ("0x8001", "0x8001", true),
        ("0x0001", "0x8001", true),
        ("0x8001", "0x0001", true),
        ("0x0001", "0x0001", false),
        ("0x8001", "0x8002", false),
    ] {
        let Some(mut lab) = Lab::pair() else { return };
        let (a, b) = lab.two();
        a.start(&["--pkey", here]);
        b.start(&["--pkey", there]);
        a.configure("ib0");
        b.configure("ib0");
        if expected {
            a.reaches(b);
        } else {
            let pings = a.run(&format!("ping -c 4 -i 0.5 -w 4 {}", b.v4()));
            assert_eq!(pings.code, Some(1), "{here} and {there}: {pings:?}");
        }
    }
}

#[test]
fn check_config_accepts_a_file_or_prints_the_place_of_the_error() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let good = host.write_config(TWO_PARTITIONS);
    let checked = host.daemon_run(&["--check-config", &good]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(!host.has_link("ib0"), "checking makes nothing");
    for (text, line, column) in [
        (
            "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\ncolour = 1\n",
            4,
            1,
        ),
        (
            "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmtu = \"big\"\n",
            4,
            7,
        ),
        (
            "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\npkey = 0\n",
            4,
            8,
        ),
        (
            "[[ipoib]]\nname = \"an-overlong-name\"\nunderlay = \"eth0\"\n",
            2,
            8,
        ),
    ] {
        let bad = host.write_config(text);
        let checked = host.daemon_run(&["--check-config", &bad]);
        assert_eq!(checked.code, Some(1), "{text}: {checked:?}");
        let place = format!(":{line}:{column}:");
        assert!(checked.err.contains(&place), "no {place} in {checked:?}");
        assert_eq!(checked.err.trim_end().lines().count(), 1, "{checked:?}");
    }
    let connected = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmode = \"connected\"\n";
    let checked = host.daemon_run(&["--check-config", &host.write_config(connected)]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let too_much = format!("{connected}mtu = 65521\n");
    let checked = host.daemon_run(&["--check-config", &host.write_config(&too_much)]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.err.contains("use 72 to 65520"), "{checked:?}");
}

#[test]
fn two_daemons_serve_two_underlays_of_one_host() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    lab.add_second_underlay();
    let (a, b) = lab.two();
    let options = ["--underlay", "eth1", "--name", "ib1"];
    let mut others = [a, b].map(|host| host.start_other("other.sock", &options));
    let (a, b) = lab.two();
    for (host, number) in [(&*a, 1), (&*b, 2)] {
        host.ok(&format!("ip addr add 10.10.0.{number}/24 dev ib1"));
        host.await_carrier("ib1", true);
        assert_eq!(host.show("ib0")["underlay"], "eth0");
        assert_eq!(host.ask("show").len(), 1, "each has its own");
    }
    eventually(SOON, "the other network", || {
        a.pings("10.10.0.2").then_some(())
    });
    a.reaches(b);
    for other in &mut others {
        assert!(other.end_by(Signal::TERM).success());
    }
    a.reaches(b);
}

#[test]
fn a_file_that_is_missing_or_wrong_starts_nothing() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    let missing = host.refused(&["--config", "/nonexistent/ibtapd.toml"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(
        missing.err.contains("/nonexistent/ibtapd.toml"),
        "{missing:?}"
    );
    let path = host.write_config("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmtuu = 2044\n");
    let wrong = host.refused(&["--config", &path]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    let place = format!("{path}:4:1: unknown key `mtuu`");
    assert!(wrong.err.contains(&place), "{wrong:?}");
    assert!(!host.has_link("ib0") && !host.socket().exists());
}
