//! Files that are shipped with the program agree with it.

use std::path::Path;

use ibtap_em::args::{DEFAULT_CONFIG, DEFAULT_EM_SOCKET};
use ibtap_em::config::{Config, ManagerConfig};

fn shipped(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(name)).unwrap()
}

#[test]
fn the_example_is_valid_and_shows_the_defaults() {
    let text = shipped("docs/ibtap-em.example.toml");
    let example = Config::parse(&text, "ibtap-em.example.toml").unwrap();
    assert_eq!(example.em, ManagerConfig::default());
    assert_eq!(example.switches.len(), 2);
    // Commented-out settings are valid, too.
    let all: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && !rest.starts_with(' ') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let example = Config::parse(&all, "ibtap-em.example.toml").unwrap();
    assert_eq!(example.em.port.as_deref(), Some("eth0"));
    assert_eq!(example.switches[0].eth_mtu, Some(1500));
}

#[test]
fn the_packaged_configuration_is_valid() {
    let text = shipped("packaging/ibtap-em.toml");
    let packaged = Config::parse(&text, "ibtap-em.toml").unwrap();
    assert_eq!(packaged.em, ManagerConfig::default());
    assert_eq!(packaged.switches.len(), 1);
}

#[test]
fn the_unit_runs_it_with_the_default_paths() {
    let unit = shipped("systemd/ibtap-em.service");
    assert!(unit.contains(&format!(
        "ExecStart=/usr/bin/ibtap-em run --config {DEFAULT_CONFIG}\n"
    )));
    assert!(unit.contains(&format!("ConditionPathExists={DEFAULT_CONFIG}\n")));
    let state = ManagerConfig::default().state_dir;
    let below = state.strip_prefix("/var/lib").unwrap();
    assert!(unit.contains(&format!("StateDirectory={}\n", below.display())));
    let runtime = Path::new(DEFAULT_EM_SOCKET).parent().unwrap();
    let below = runtime.strip_prefix("/run").unwrap();
    assert!(unit.contains(&format!("RuntimeDirectory={}\n", below.display())));
    assert_eq!(
        ManagerConfig::default().socket,
        Path::new(DEFAULT_EM_SOCKET)
    );
}
