//! The commands of the pages `docs/ip-link.md`, `docs/from-ib_ipoib.md`, `docs/bridges.md` and `docs/vnic.md`,
//! typed as printed, and the configurations of all pages. `containers`, `managers` and `virtual_machines` type
//! further pages.

use std::process::Command;

use kit::pages::{blocks, commands, folder};
use serde_json::Value;

use crate::lab::{Done, Lab, SOON, Shell, eventually, ibtapd, one_of_three};

/// Two running hosts without addresses on `ib0`.
pub fn two_running() -> Option<Lab> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    for host in [a, b] {
        host.start(&[]);
        host.ok("ip link set ib0 up");
        host.await_carrier("ib0", true);
    }
    Some(lab)
}

/// The same, with a shell each.
pub fn two_hosts() -> Option<(Lab, [Shell; 2])> {
    let mut lab = two_running()?;
    let (a, b) = lab.two();
    let shells = [Shell::open(a, 1), Shell::open(b, 2)];
    Some((lab, shells))
}

/// Runs a block on both hosts and returns their output.
pub fn both_do(shells: &[Shell; 2], block: &str) -> [String; 2] {
    shells.each_ref().map(|shell| shell.ok(block))
}

/// Runs a block of the page on bridges on both hosts, then the next one.
fn done_on_both(first: usize) {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    let blocks = commands("bridges.md");
    assert_eq!(blocks.len(), 4, "a block to set up and one to look, twice");
    both_do(&shells, &blocks[first]);
    both_do(&shells, &blocks[first + 1]);
}

#[test]
fn the_pages_ip_link_works_as_printed() {
    let Some((mut lab, shells)) = two_hosts() else {
        return;
    };
    let blocks = commands("ip-link.md");
    let [make, ping, change, carry, ping_there, remove] = &blocks[..] else {
        panic!("six blocks, not {}", blocks.len());
    };
    let (a, b) = lab.two();
    let hosts = [&*a, &*b];

    both_do(&shells, make);
    for host in hosts {
        eventually(SOON, "the alias", || {
            let alias = "ibtap: soft/eth0 child of ib0 pkey 0x8001 datagram";
            (host.link("ib0.8001")["ifalias"] == alias).then_some(())
        });
    }
    both_do(&shells, ping);

    // The page warns that this fails.
    let refused = shells[0].run("ip tuntap del dev ib0.8001 mode tap");
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(a.has_link("ib0.8001"));

    both_do(&shells, change);
    for (number, host) in (1..).zip(hosts) {
        let link = host.link("storage0");
        assert_eq!(link["ifalias"], "for the backups");
        assert_eq!(link["altnames"][0], "fast");
        let mac = format!("02:00:00:00:80:0{number}");
        eventually(SOON, "all that was changed", || {
            let shown = host.ibtap("--json show storage0").out;
            let shown: Value = serde_json::from_str(&shown).ok()?;
            let shown = &shown[0];
            let is_so = shown["mode"] == "connected"
                && shown["mtu"] == 9000
                && shown["mac"] == mac.as_str()
                && shown["carrier"] == true;
            is_so.then_some(())
        });
        eventually(SOON, "the moderation", || {
            (host.ask("coalesce storage0")[0]["rx_frames"] == 16).then_some(())
        });
    }

    both_do(&shells, carry);
    for host in hosts {
        assert!(!host.has_link("storage0"));
    }
    both_do(&shells, ping_there);

    for listed in both_do(&shells, remove) {
        for word in ["storage0", "ib0", "0x8001", "connected", "9000"] {
            assert!(listed.contains(word), "{word}: {listed}");
        }
    }
    for host in hosts {
        eventually(SOON, "the child to go", || {
            host.ask("child list").is_empty().then_some(())
        });
        assert_eq!(host.ask("show").len(), 1, "its parent stays");
    }
}

#[test]
fn the_commands_for_people_from_ib_ipoib_work_as_printed() {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    let blocks = commands("from-ib_ipoib.md");
    let [commands] = &blocks[..] else {
        panic!("one block, not {}", blocks.len());
    };
    let output = shells[0].ok(commands);
    for words in [
        "child of ib0 pkey 0x8001 connected",
        "\nconnected\n",
        "GID: ff12:401b:ffff",
        "tx_packets",
        "0x8001",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
}

#[test]
fn the_pages_bridge_works_as_printed() {
    done_on_both(0);
}

#[test]
fn the_pages_macvlan_works_as_printed() {
    done_on_both(2);
}

#[test]
fn the_pages_vnic_works_as_printed() {
    let Some(mut lab) = Lab::pair() else { return };
    let blocks = commands("vnic.md");
    let [daemon, set_up, look] = &blocks[..] else {
        panic!("three blocks, not {}", blocks.len());
    };
    let (start, _) = daemon.split_once('&').expect("it stays in the background");
    let words: Vec<&str> = start.split_whitespace().collect();
    let (program, options) = words.split_first().expect("a command");
    assert_eq!(*program, "ibtapd");
    let (a, b) = lab.two();
    a.start_with(options);
    b.start_with(options);
    let shells = [Shell::open(a, 1), Shell::open(b, 2)];
    both_do(&shells, set_up);
    for shell in &shells {
        let words = [" 0% packet loss", "vnic0", "learned"];
        let missing = |output: &String| words.into_iter().find(|word| !output.contains(*word));
        let output = one_of_three(|| shell.ok(look), |output| missing(output).is_none());
        assert_eq!(missing(&output), None, "{output}");
    }
}

#[test]
fn the_pages_configurations_are_valid() {
    let mut checked = 0;
    for entry in folder().read_dir().expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        for block in blocks(&path, "toml") {
            if !block.starts_with("[[ipoib]]") && !block.starts_with("[[vnic]]") {
                continue;
            }
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), &block).expect("a file");
            let done = Done::of(
                Command::new(ibtapd())
                    .arg("--check-config")
                    .arg(file.path()),
            );
            assert_eq!(
                done.code,
                Some(0),
                "{}: {block}{}",
                path.display(),
                done.err
            );
            checked += 1;
        }
    }
    assert!(checked >= 5, "only {checked} configurations found");
}
