//! `ibtap bugreport`: the archive of a healthy daemon, of one that hangs, and of one that is away.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{Host, Lab, neighbour};

/// A key of WireGuard's form, as it may be in any text of the host.
const WIREGUARD: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
/// A word in a comment of the configuration.
const COMMENT: &str = "hunter2";

/// A key of management, not a constant of the project.
fn management_key() -> String {
    "0f1e2d3c".repeat(8)
}

/// The files of an archive, by name; the archive must be private.
fn unpack(archive: &Path) -> BTreeMap<String, String> {
    let mode = fs::metadata(archive)
        .expect("the archive")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = tempfile::tempdir().expect("a folder");
    let done = Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(done.expect("tar is installed").success());
    let top = folder.path().join("ibtap-bugreport");
    let mut files = BTreeMap::new();
    for folder in [top.clone(), top.join("interfaces"), top.join("config")] {
        let entries = fs::read_dir(folder).into_iter().flatten();
        for path in entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file())
        {
            let name = path
                .strip_prefix(&top)
                .expect("below the top")
                .display()
                .to_string();
            files.insert(name, fs::read_to_string(path).expect("a text"));
        }
    }
    files
}

/// The files of a new report.
fn report(host: &Host, name: &str, options: &str) -> BTreeMap<String, String> {
    let archive = host.file(name);
    let done = host.ibtap(&format!(
        "bugreport --output {} {options}",
        archive.display()
    ));
    assert_eq!(done.code, Some(0), "{done:?}");
    let (path, sentence) = done.out.split_once('\n').expect("two lines");
    assert_eq!(path, archive.to_str().expect("ASCII"));
    assert!(sentence.starts_with("The archive describes"), "{sentence}");
    let files = unpack(&archive);
    let readme = &files["README.txt"];
    for name in files.keys().filter(|name| *name != "README.txt") {
        assert!(readme.contains(&format!("  {name}: ")), "{name}: {readme}");
    }
    for (name, text) in &files {
        for secret in [WIREGUARD, COMMENT, &management_key()] {
            assert!(!text.contains(secret), "{secret} is in {name}:\n{text}");
        }
    }
    files
}

fn assert_has(files: &BTreeMap<String, String>, file: &str, words: &[&str]) {
    let text = files
        .get(file)
        .unwrap_or_else(|| panic!("no {file}: {:?}", files.keys()));
    for word in words {
        assert!(text.contains(word), "{file} lacks {word}:\n{text}");
    }
}

/// The configuration and the host of the report have secrets at several places.
fn start(host: &mut Host) {
    let (key, file) = (host.file("key"), host.file("ibtapd.toml"));
    fs::write(&key, management_key()).expect("a key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a private key");
    let text = format!(
        "# {COMMENT}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
         [[vnic]]\nname = \"vnic0\"\nunderlay = \"eth0\"\n[port.eth0]\nmanagement_key = {key:?}\n"
    );
    fs::write(&file, text).expect("a file");
    let rules = host.file("rules.nft");
    let text = format!(
        "table inet guard {{\n chain input {{\n type filter hook input priority 0; policy accept;\n \
         udp dport 4791 accept comment \"{WIREGUARD}\"\n tcp dport 22 accept\n }}\n}}\n"
    );
    fs::write(&rules, text).expect("a file");
    host.ok(&format!("nft -f {}", rules.display()));
    host.start_with(&["--config", file.to_str().expect("ASCII")]);
    host.configure("ib0");
    host.ok(&format!("ip link set eth0 alias {}", management_key()));
}

#[test]
fn the_report_of_a_healthy_daemon() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let (a, b) = lab.two();
    start(a);
    b.start(&[]);
    b.configure("ib0");
    a.reaches(b);
    let peer = neighbour(a, "ib0", &b.v6());
    let files = report(a, "report.tar.gz", "");
    let pid = a.daemon().pid();
    assert_has(&files, "versions.txt", &["ibtapd 0."]);
    assert_has(&files, "system.txt", &["PRETTY_NAME=", "MemTotal:"]);
    assert_has(&files, "doctor.txt", &["ok    port 4791"]);
    assert_has(&files, "show.txt", &["ib0\n", "vnic0"]);
    assert_has(&files, "stats.txt", &["rx_packets", "tx_no_room"]);
    assert_has(&files, "res.txt", &["qp"]);
    assert_has(&files, "metrics.txt", &["# HELP ibtap_"]);
    assert_has(&files, "firewall.txt", &["4791 accept", "other lines"]);
    assert_has(
        &files,
        &format!("process-{pid}.txt"),
        &["CapEff:", "Max locked memory", "--config", "/ibtapd\n"],
    );
    assert_has(&files, "interfaces/eth0.txt", &["veth", "alias (removed)"]);
    assert_has(
        &files,
        "interfaces/ib0.txt",
        &[
            "tun type tap",
            "STATE",
            "GID: ff12:401b:ffff",
            "tx-checksum",
        ],
    );
    assert_has(&files, "interfaces/vnic0.txt", &["tun type tap"]);
    let config = files
        .keys()
        .find(|name| name.starts_with("config/0-"))
        .expect("the configuration");
    assert_has(&files, config, &["[[ipoib]]", "management_key = \"/"]);

    // Addresses have pseudonyms, the same ones in all files.
    let (gid, mac) = (a.show("ib0")["gid"].clone(), a.show("ib0")["mac"].clone());
    let originals = [gid.as_str(), mac.as_str()].map(|text| text.expect("a string").to_owned());
    let [gid, mac] = &originals;
    for private in [gid, mac, &a.v6(), &b.v6(), &peer] {
        for (name, text) in &files {
            assert!(
                !text.contains(private.as_str()),
                "{private} is in {name}:\n{text}"
            );
        }
    }
    let line = files["show.txt"]
        .lines()
        .find(|line| line.trim_start().starts_with("MAC:"));
    let pseudonym = line
        .and_then(|line| line.split_whitespace().last())
        .expect("a MAC");
    assert_has(
        &files,
        "interfaces/ib0.txt",
        &[&format!("link/ether {pseudonym}")],
    );

    // A file that exists stays.
    let archive = a.file("report.tar.gz");
    let before = fs::read(&archive).expect("the archive");
    let done = a.ibtap(&format!("bugreport --output {}", archive.display()));
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("exists; name another file"), "{done:?}");
    assert_eq!(fs::read(&archive).expect("the archive"), before);
}

#[test]
fn the_report_of_a_daemon_that_hangs_or_is_away() {
    let Some(mut lab) = Lab::pair() else {
        return;
    };
    let a = lab.host(0);
    start(a);
    let pid = a.daemon().pid();
    let process = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a process");
    kill_process(process, Signal::STOP).expect("a child");
    let files = report(a, "hangs.tar.gz", "--full");
    kill_process(process, Signal::CONT).expect("a child");
    assert_has(
        &files,
        "README.txt",
        &["The daemon could not be asked: ", "does not answer"],
    );
    assert_has(
        &files,
        "README.txt",
        &["  conn.txt: ibtap conn: ibtapd does not answer"],
    );
    assert_has(&files, &format!("process-{pid}.txt"), &["T (stopped)"]);
    // The configuration names the interfaces.
    // With --full, addresses are in the report, and keys are not.
    let address = a.await_link_local("eth0");
    assert_has(&files, "interfaces/ib0.txt", &["tun type tap", &a.v6()]);
    assert_has(
        &files,
        "interfaces/eth0.txt",
        &[&address, "alias (removed)"],
    );

    a.stop();
    let files = report(a, "away.tar.gz", "");
    assert_has(
        &files,
        "README.txt",
        &["The daemon could not be asked: cannot reach ibtapd"],
    );
    assert_has(
        &files,
        "show.txt",
        &["not collected: ibtapd does not answer"],
    );
    assert_has(&files, "doctor.txt", &["FAIL"]);
    assert_has(&files, "system.txt", &["PRETTY_NAME="]);
}
