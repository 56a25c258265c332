//! The units and drop-ins in `systemd/`: devices, and restarts.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of `systemd/` with this extension.
fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let entries = fs::read_dir(folder).expect("the folder of the units");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let found: Vec<_> = paths
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect();
    assert!(!found.is_empty(), "no file *.{extension}");
    found
}

/// The values of a setting in one section of a unit, in order.
fn values(file: &Path, section: &str, setting: &str) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a unit");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if let Some((name, value)) = line.split_once('=')
            && inside
            && name == setting
        {
            found.push(value.to_owned());
        }
    }
    found
}

fn devices(file: &Path) -> Vec<String> {
    values(file, "Service", "DeviceAllow")
}

fn named(paths: &[PathBuf], name: &str) -> PathBuf {
    let is_it = |path: &&PathBuf| path.ends_with(name);
    paths.iter().find(is_it).expect("the file").clone()
}

/// `char-misc` opens `/dev/kvm`, `/dev/uinput`, `/dev/vhost-net` and more to a daemon that was taken over.
#[test]
fn a_unit_opens_no_device_that_its_service_does_not_use() {
    let units = files("service");
    for name in ["ibtapd.service", "ibtapd@.service"] {
        let unit = named(&units, name);
        assert_eq!(devices(&unit), ["/dev/net/tun rw"], "{name}");
        assert_eq!(values(&unit, "Service", "DevicePolicy"), ["closed"]);
    }
    let drop_ins = files("conf");
    let rdma = [
        "char-infiniband_verbs rw",
        "char-infiniband_mad rw",
        "/dev/infiniband/rdma_cm rw",
    ];
    assert_eq!(devices(&named(&drop_ins, "rdma.conf")), rdma);
    for file in units.iter().chain(&drop_ins) {
        let is_misc = |value: &String| value.contains("char-misc");
        assert!(!devices(file).iter().any(is_misc), "{}", file.display());
    }
}

/// By default systemd gives up after five failed starts in ten seconds. A local user who holds UDP port 4791
/// for that time would stop the daemon for good.
#[test]
fn systemd_restarts_a_service_without_limit() {
    for unit in files("service") {
        let limit = values(&unit, "Unit", "StartLimitIntervalSec");
        assert_eq!(limit, ["0"], "{}", unit.display());
        assert_eq!(values(&unit, "Service", "Restart"), ["on-failure"]);
    }
}
