//! `scripts/netns-lab`, used as by a person.

use std::path::Path;
use std::process::Command;

use crate::lab::{Done, Load, Presence, ibtap, ibtapd, source, unanswered};

/// Runs the script with the programs under test. `None`, with a message, without root.
fn netns_lab(options: &[&str]) -> Option<Done> {
    if !kit::is_root() {
        return None;
    }
    // Its hosts are no lab, but they disturb tests that run alone.
    let _presence = Presence::begin();
    // The helper program must be in the same folder.
    assert_eq!(ibtap().parent(), ibtapd().parent());
    let folder = ibtapd().parent().expect("a program is in a folder");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "120"])
        .arg(source().join("scripts/netns-lab"))
        .arg("--bin")
        .arg(folder)
        .args(options)
        .stdin(std::process::Stdio::null());
    Some(Done::of(&mut command))
}

/// Whether a namespace of the lab with this ID exists. Another lab's ID may begin with the same digits.
fn has_namespace(id: &str) -> bool {
    let listed = Done::of(Command::new("ip").args(["netns", "list"])).out;
    let mut labs = listed.lines().filter_map(|line| line.split('-').next());
    labs.any(|lab| lab == id)
}

/// The lab's ID in the output of a command.
fn id(done: &Done) -> &str {
    let line = done.out.lines().find_map(|line| line.strip_prefix("lab "));
    line.unwrap_or_else(|| panic!("{done:?}"))
}

#[test]
fn a_lab_on_a_bridge_runs_a_command_and_goes() {
    let command = "echo lab $LAB; ip netns exec {3} ping -q -c 1 -w 15 10.9.0.2 && \
                   ibtap --socket $SOCKET2 mode ib0; exit 7";
    let Some(done) = netns_lab(&["--nodes", "3", "--mode", "connected", "--cmd", command]) else {
        return;
    };
    assert_eq!(done.code, Some(7), "the command's own: {done:?}");
    assert!(
        done.out.contains("1 received") && done.out.contains("connected\n"),
        "{done:?}"
    );
    assert!(!has_namespace(id(&done)));
}

/// Processes with this word in their command line.
fn processes(word: &str) -> String {
    Done::of(Command::new("pgrep").args(["-f", word])).out
}

#[test]
fn a_lab_ends_what_it_has_started_and_nothing_else() {
    // Without the variable, the second process is as one that entered the namespace otherwise.
    let sleep =
        |name| format!("bash -c \"exec -a $LAB.{name} sleep 300\" </dev/null >/dev/null 2>&1 &");
    let command = format!(
        "echo lab $LAB; setsid ip netns exec {{1}} {} setsid env -u IBTAP_LAB ip netns exec {{2}} {} \
         until pgrep -f $LAB.left && pgrep -f $LAB.other; do sleep 0.1; done",
        sleep("left"),
        sleep("other")
    );
    let Some(done) = netns_lab(&["--cmd", &command]) else {
        return;
    };
    assert_eq!(done.code, Some(0), "{done:?}");
    let id = id(&done);
    let other = processes(&format!("{id}\\.other"));
    let ended = Done::of(Command::new("kill").args(other.split_whitespace()));
    assert_eq!(ended.code, Some(0), "{other:?}");
    assert_eq!(processes(&format!("{id}\\.left")), "");
    assert!(!has_namespace(id));
}

#[test]
fn a_routed_lab_has_a_subnet_for_each_host() {
    let command = "echo lab $LAB; ip -n $NODE1 route get 10.8.2.2; \
                   ip netns exec {1} ping -q -c 1 -w 15 fd09::2";
    let Some(done) = netns_lab(&["--routed", "--cmd", command, "--", "--mtu", "1500"]) else {
        return;
    };
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.out.contains("via 10.8.1.1") && done.out.contains("1 received"),
        "{done:?}"
    );
    assert!(!has_namespace(id(&done)));
}

/// Traffic over `ib0` of a lab whose underlay is encrypted, with three series of pings; prints kinds of packets on the wire,
/// and the number of those with RoCEv2 in clear. Neighbour discovery is in clear with IPsec.
const ENCRYPTED: &str = "echo lab $LAB; \
    ip netns exec {1} tcpdump -i eth0 -U -w $OUT/eth0.pcap 2>/dev/null & \
    until [ -s $OUT/eth0.pcap ]; do sleep 0.1; done; \
    for series in 1 2 3; do echo series of pings; ip netns exec {1} ping -n -c 20 -i 0.01 -w 20 10.9.0.2; \
    ip netns exec {1} ping -n -c 2 -i 0.1 -w 20 fd09::2; done; \
    ip netns exec {2} iperf3 -s -1 -D; \
    until ip netns exec {2} ss -Hltn sport = :5201 | grep -q .; do sleep 0.1; done; ip netns exec {1} iperf3 -c 10.9.0.2 -t 1; \
    ibtap --socket $SOCKET1 doctor; kill %1; wait %1; \
    tcpdump -nn -e -r $OUT/eth0.pcap 2>/dev/null >$OUT/eth0.txt; \
    for kind in UDP,.length ESP 0x88e5; do echo seen: $kind $(grep -c $kind $OUT/eth0.txt); done; \
    echo clear: $(tcpdump -nn -r $OUT/eth0.pcap port 4791 2>/dev/null | wc -l)";

/// Runs the traffic in a lab with these options; the packets on the wire must be of the kind. False if the kernel
/// cannot encrypt so.
fn encrypts(options: &[&str], kind: &str) -> bool {
    // The presence is first: a test that has a turn must not wait for one that runs alone.
    let _presence = Presence::begin();
    let _turn = Load::begin();
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_str().expect("an ASCII path");
    let command = ENCRYPTED.replace("$OUT", path);
    let Some(done) = netns_lab(&[options, &["--cmd", &command]].concat()) else {
        return false;
    };
    if let Some(lacks) = done
        .err
        .lines()
        .find(|line| line.contains("this kernel has no"))
    {
        kit::skip(lacks);
        assert_eq!(
            (done.code, done.err.lines().count()),
            (Some(1), 1),
            "{done:?}"
        );
        return false;
    }
    assert_eq!(done.code, Some(0), "{done:?}");
    for expected in ["receiver", "clear: 0\n"] {
        assert!(done.out.contains(expected), "{expected}: {done:?}");
    }
    // A fault loses a packet of each series; see `one_of_three`.
    let is_whole = |series: &str| {
        let all = [("10.9.0.2: ", 20), ("fd09::2: ", 2)];
        all.iter()
            .all(|(from, count)| unanswered(series, from, *count).is_none())
    };
    let mut series = done.out.split("series of pings").skip(1);
    assert!(series.any(is_whole), "{done:?}");
    let (_, seen) = done
        .out
        .split_once(&format!("seen: {kind} "))
        .expect("a number");
    let seen = seen.lines().next().and_then(|number| number.parse().ok());
    // The pings of one series alone are 44.
    assert!(seen >= Some(44), "{kind}: {done:?}");
    assert!(!done.out.contains("not an Ethernet interface"), "{done:?}");
    assert!(!done.out.contains("wg0 mtu 9000"), "{done:?}");
    assert!(!has_namespace(id(&done)));
    true
}

/// docs/security.md has this as a recipe.
#[test]
fn encrypted_by_wireguard() {
    let has = "command -v wg && { command -v wireguard-go || modprobe -n wireguard; }";
    if Done::of(Command::new("sh").args(["-c", has])).code != Some(0) {
        return kit::skip(
            "there is no program wg, or neither wireguard-go nor the kernel's WireGuard",
        );
    }
    for (family, mode) in [("4", "datagram"), ("6", "connected")] {
        encrypts(&["--wireguard", family, "--mode", mode], "UDP,.length");
    }
}

#[test]
fn encrypted_by_macsec() {
    for mode in ["datagram", "connected"] {
        if !encrypts(&["--macsec", "--mode", mode], "0x88e5") {
            return;
        }
    }
}

#[test]
fn encrypted_by_ipsec() {
    for mode in ["datagram", "connected"] {
        if !encrypts(&["--ipsec", "--mode", mode], "ESP") {
            return;
        }
    }
}

#[test]
fn a_lab_is_kept_until_it_is_taken_down() {
    // With a file, and a process that keeps running.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nqpn = 0x10{n}\n";
    std::fs::write(file.path(), text).expect("a file");
    let config = file.path().to_str().expect("an ASCII path");
    let command = "echo lab $LAB; ip netns exec {1} bash -c \"exec -a $LAB.left sleep 300\" \
                   </dev/null >/dev/null 2>&1 &";
    let Some(done) = netns_lab(&["--config", config, "--keep", "--cmd", command]) else {
        return;
    };
    let id = id(&done).to_owned();
    // The socket has the path that the script prints.
    let ask = done
        .out
        .lines()
        .find_map(|line| line.split_once("ask its daemon:"));
    let words = ask.expect("how to ask").1.split_whitespace();
    let shown = Done::of(Command::new("env").args(words).arg("--json"));
    let down = Done::of(Command::new(source().join("scripts/netns-lab")).args(["--down", &id]));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(shown.out.contains("\"qpn\":257"), "{shown:?}");
    assert_eq!(down.code, Some(0), "{down:?}");
    assert!(!has_namespace(&id));
    assert_eq!(processes(&format!("{id}\\.")), "", "nothing of it runs");
}

#[test]
fn a_lab_that_fails_leaves_nothing() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "nonsense = 1\n").expect("a file");
    let config = file.path().to_str().expect("an ASCII path");
    let Some(done) = netns_lab(&["--config", config, "--cmd", "true"]) else {
        return;
    };
    assert_eq!(done.code, Some(1), "{done:?}");
    // A daemon's error about its copy of the file, in a folder named after the lab. Either host's daemon may end first.
    let (copy, _) = done
        .err
        .split_whitespace()
        .find_map(|word| word.split_once(".toml"))
        .expect("what is wrong with the file");
    let (folder, _) = copy.rsplit_once('/').expect("an absolute path");
    let name = folder.rsplit('/').next().expect("a last part");
    let (id, _) = name.split_once('.').expect("an ID and something random");
    assert!(id.starts_with("ibt"), "{done:?}");
    assert!(!Path::new(folder).exists());
    assert!(!has_namespace(id));
}

#[test]
fn a_lab_that_makes_no_sense_is_not_begun() {
    for (options, why) in [
        (&["--nodes", "1", "--keep"][..], "2 to 200"),
        (&["--mode", "fast", "--keep"], "datagram or connected"),
        (&["--down", "ibt"], "not the ID of a lab"),
        (&["--down", "ibt0"], "there is no lab"),
        (&["--cmd"], "needs a value"),
        (&["--macsec", "--ipsec", "--keep"], "exclude each other"),
        (&[], "no terminal"),
    ] {
        let Some(done) = netns_lab(options) else {
            return;
        };
        assert_eq!(done.code, Some(1), "{options:?}: {done:?}");
        assert!(done.err.contains(why), "{options:?}: {done:?}");
        assert_eq!(done.err.lines().count(), 1, "{options:?}: {done:?}");
    }
}
