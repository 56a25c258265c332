//! The units and drop-ins in `systemd/`: devices, restarts, and rights.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Each queue of an interface is a descriptor.
#[test]
fn descriptors_suffice_for_the_documented_number_of_vnics() {
    for unit in files("service").iter().filter(|unit| {
        let name = unit.file_name().expect("a name").to_string_lossy();
        name.starts_with("ibtapd")
    }) {
        let limit = values(unit, "Service", "LimitNOFILE");
        let limit: usize = limit.concat().parse().expect("a limit");
        assert!(limit > 4 * control::config::vnic::VPORTS_MAX, "{unit:?}");
    }
}

/// `char-misc` opens `/dev/kvm`, `/dev/uinput`, `/dev/vhost-net` and more to a daemon that was taken over.
#[test]
fn a_unit_opens_no_device_that_its_service_does_not_use() {
    let units = files("service");
    for name in ["ibtapd.service", "ibtapd@.service"] {
        let unit = named(&units, name);
        assert_eq!(devices(&unit), ["/dev/net/tun rw"], "{name}");
        assert_eq!(values(&unit, "Service", "PrivateDevices"), ["yes"]);
        // Without the bind, the private /dev has no such device.
        assert_eq!(values(&unit, "Service", "BindPaths"), ["-/dev/net/tun"]);
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
        // After an end because of a wrong configuration, a restart does not help.
        let ends = values(&unit, "Service", "RestartPreventExitStatus");
        assert_eq!(ends, ["1"], "{}", unit.display());
    }
}

/// The exposure of a unit with drop-ins, as `systemd-analyze security` counts it: 0 is best, 10 worst. `None`
/// without systemd-analyze.
fn exposure(unit: &str, drop_ins: &[&str]) -> Option<f64> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let root = tempfile::tempdir().expect("a directory");
    let folder = root.path().join("etc/systemd/system");
    let own = folder.join(format!("{unit}.d"));
    fs::create_dir_all(&own).expect("a directory");
    fs::copy(source.join(unit), folder.join(unit)).expect("a unit");
    for drop_in in drop_ins {
        fs::copy(source.join(drop_in), own.join(drop_in)).expect("a drop-in");
    }
    let analysed = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--root"])
        .args([root.path().as_os_str(), unit.as_ref()])
        .output();
    let Ok(analysed) = analysed else {
        kit::skip("systemd-analyze is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&analysed.stdout);
    let (_, level) = text
        .rsplit_once("exposure level for ")
        .unwrap_or_else(|| panic!("{analysed:?}"));
    let number = level.split_whitespace().nth(1).expect("a number");
    Some(number.parse().expect("a number"))
}

/// Before: 4.9, 2.8 and 6.2. `systemd-analyze` of another version may count other settings.
#[test]
fn the_exposure_of_the_units_stays_low() {
    for (unit, drop_ins, most) in [
        ("ibtapd.service", &[][..], 1.7),
        ("ibtapd@.service", &[], 1.7),
        ("ibtapd.service", &["rdma.conf"], 1.7),
        ("ibtapd.service", &["namespaces.conf"], 2.1),
        ("ibtap-em.service", &[], 0.4),
        ("ibtap-fs.service", &[], 0.7),
    ] {
        if let Some(found) = exposure(unit, drop_ins) {
            assert!(found <= most, "{unit} with {drop_ins:?}: {found} > {most}");
        }
    }
}

/// seccomp, Landlock and capset are calls that systemd's filter would refuse, and with them the restrictions of
/// the daemon itself.
#[test]
fn systemd_allows_the_daemon_to_restrict_itself() {
    let units = files("service");
    for name in ["ibtapd.service", "ibtapd@.service"] {
        let filters = values(&named(&units, name), "Service", "SystemCallFilter");
        let (allowed, refused) = (filters.last().expect("a filter"), &filters[1]);
        assert!(refused.starts_with('~'), "{refused}");
        for call in [
            "capset",
            "seccomp",
            "landlock_create_ruleset",
            "landlock_add_rule",
            "landlock_restrict_self",
        ] {
            assert!(
                allowed.split(' ').any(|word| word == call),
                "{name}: {call}"
            );
        }
    }
}

#[test]
fn no_service_runs_as_root() {
    let units = files("service");
    for unit in &units {
        assert_eq!(values(unit, "Service", "User"), ["ibtap"]);
    }
    // Commands with "+" have all rights: only those of the mount.
    let is_privileged =
        |line: &&str| line.starts_with("Exec") && (line.contains("=-+") || line.contains("=+"));
    for unit in &units {
        let text = fs::read_to_string(unit).expect("a unit");
        let privileged = text.lines().filter(is_privileged).count();
        let expected = if unit.ends_with("ibtap-fs.service") {
            4
        } else {
            0
        };
        assert_eq!(privileged, expected, "{}", unit.display());
    }
    let users =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/sysusers.conf"));
    let users = users.expect("a file");
    assert!(users.lines().any(|line| line.starts_with("u ibtap ")));
}
