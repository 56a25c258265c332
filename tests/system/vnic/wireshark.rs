//! The Wireshark dissector `docs/wireshark/ibtap.lua`, run by tshark.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;
use serde_json::Value;

use super::{managed, vesw};
use crate::lab::{Done, Em, Lab, SOON, Sniffer, eventually, ibtap};

/// A path in the repository.
fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    path.to_str().expect("UTF-8").to_owned()
}

/// Runs tshark with the dissector; returns the lines of its output. As root, tshark ignores scripts: it runs as the
/// user nobody, with copies that everyone may read.
fn tshark(capture: &str, arguments: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a directory");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its owner");
    let [script, copy] = ["ibtap.lua", "x.pcap"].map(|name| folder.path().join(name));
    fs::write(&script, include_str!("../../../docs/wireshark/ibtap.lua")).expect("written");
    fs::write(&copy, fs::read(capture).expect("a capture")).expect("written");
    let mut command = Command::new("tshark");
    if geteuid().is_root() {
        command = Command::new("setpriv");
        command.args("--reuid 65534 --regid 65534 --clear-groups tshark".split(' '));
    }
    command.env("HOME", folder.path());
    command.args(["-X", &format!("lua_script:{}", script.display())]);
    command.arg("-r").arg(&copy).args(arguments);
    let done = command.output().expect("tshark is installed");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(!errors.to_lowercase().contains("lua"), "{errors}");
    let out = String::from_utf8_lossy(&done.stdout);
    out.lines().map(str::to_owned).collect()
}

/// Lines of fields, separated by commas.
fn fields(capture: &str, filter: &str, names: &[&str]) -> Vec<String> {
    let mut arguments = vec!["-Y", filter, "-T", "fields", "-E", "separator=,"];
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    tshark(capture, &arguments)
}

/// `ibtap decode` and the dissector agree on the 16B headers. Returns the number of headers.
fn agrees_with_decode(capture: &str) -> usize {
    let done = Done::of(Command::new(ibtap()).args(["decode", "--json", capture]));
    let decoded: Vec<Value> = serde_json::from_str(&done.out).expect("JSON");
    let header = |packet: &Value| {
        let of = |name: &str| packet["vnic"][name].as_u64().expect("a number");
        format!(
            "0x{:08x},0x{:08x},{},{},0x{:04x}",
            of("slid"),
            of("dlid"),
            of("length"),
            of("vesw"),
            of("entropy")
        )
    };
    let ours = decoded.iter().filter(|packet| packet["vnic"].is_object());
    let expected: Vec<String> = ours.map(header).collect();
    let names = ["slid", "dlid", "length", "vesw_id", "entropy"];
    let names = names.map(|name| format!("opa_vnic.{name}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(fields(capture, "opa_vnic", &names), expected);
    let bad = "_ws.malformed or _ws.lua.error or opa_vnic.wrong_length or opa_vnic.wrong_pad";
    assert_eq!(tshark(capture, &["-Y", bad]), Vec::<String>::new());
    expected.len()
}

/// The packets with management show these words in their columns.
fn management_shows(capture: &str, words: &[&str]) {
    let lines = tshark(capture, &["-Y", "opa_vema"]).join("\n");
    for words in words {
        assert!(lines.contains(words), "{words}: {lines}");
    }
}

#[test]
fn the_capture_of_the_documents_is_dissected() {
    let capture = repository("tests/data/captures/vnic/managed.pcap");
    assert!(agrees_with_decode(&capture) >= 8);
    management_shows(
        &capture,
        &[
            "Get ClassPortInfo",
            "Set VeswPortInfo",
            "GetResp NodeInfo",
            "Set LidDirectory",
        ],
    );
    let states = fields(
        &capture,
        "opa_vema.method == 2 and opa_vema.attr_id == 0x11",
        &[
            "opa_vema.vesw_id",
            "opa_vema.config_state",
            "opa_vema.eth_mtu",
        ],
    );
    assert!(states.contains(&"1,3,4053".to_owned()), "{states:?}");
    let echoes = fields(
        &capture,
        "ibtap_echo",
        &["ibtap_echo.operation", "ibtap_echo.seq"],
    );
    assert_eq!(echoes[..2], ["1,1", "2,1"], "{echoes:?}");
    // The frame is dissected as Ethernet.
    assert!(!tshark(&capture, &["-Y", "opa_vnic and icmp"]).is_empty());
    // Without the dissector, tshark shows payload only: the test can fail.
    let mut plain = Command::new("tshark");
    let plain = plain.args(["-r", &capture]).output();
    let plain = plain.expect("tshark is installed").stdout;
    assert!(!String::from_utf8_lossy(&plain).contains("VNIC"));
}

#[test]
fn what_daemons_send_today_is_dissected() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        let ipoib = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
        host.start_config(&format!("{}{ipoib}", managed("vnic0")));
        host.configure_addresses("vnic0");
        host.ok("ethtool -K eth0 tx-udp-segmentation off");
    }
    let mut wire = Sniffer::start(b, "eth0", "udp port 4791");
    let _em = Em::start(a, "", &vesw(1, ""));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    a.ok(&format!("ping -q -c 3 -i 0.05 -W 2 -s 1000 {}", b.v4()));
    let gid = b.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    a.ibtap(&format!("ping ib0 {gid} -c 2 -i 0.1"));
    let capture = wire.file().to_str().expect("ASCII").to_owned();
    eventually(SOON, "both replies", || {
        let replies = tshark(&capture, &["-Y", "ibtap_echo.operation == 2"]);
        (replies.len() == 2).then_some(())
    });
    wire.end();
    assert!(agrees_with_decode(&capture) >= 6);
    management_shows(
        &capture,
        &[
            "ClassPortInfo",
            "Set VeswPortInfo",
            "GetResp VeswPortInfo",
            "NodeInfo",
            "LidDirectory",
        ],
    );
}
