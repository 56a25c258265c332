//! VNICs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

const LAN: &str = "[[vnic]]\nname = \"lan\"\nunderlay = \"eth0\"\n";

fn steps(old: &str, new: &str) -> Vec<Step> {
    let plan = plan(old, new);
    assert_eq!(plan.refused, Vec::<String>::new());
    plan.steps
}

fn lan() -> InterfaceKey {
    key("lan")
}

#[test]
fn what_can_change_in_place_does() {
    let old = format!("{LAN}vesw = 1\n");
    let learning = Learning {
        on: false,
        ageing: 60,
        ..Learning::default()
    };
    for (line, change) in [
        ("mtu = 1400", Change::Mtu(Some(1400))),
        ("up = false", Change::Up(false)),
        ("persist = true", Change::Persist(true)),
        ("learning = false\nageing = 60", Change::Learning(learning)),
    ] {
        let found = steps(&old, &format!("{old}{line}\n"));
        assert_eq!(found, [Step::Interface(lan(), change)], "{line}");
    }
    let new = format!("{LAN}vesw = 2\nlid = 7\npeers = [{{ lid = 8, gid = \"fe80::8\" }}]\n");
    let found = steps(&old, &new);
    let [Step::Interface(_, Change::Switch(switch))] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (switch.vesw, switch.peers.as_ref().map(Vec::len)),
        (2, Some(1))
    );
    assert_eq!(steps(&old, &old), []);
}

#[test]
fn the_rest_is_remade() {
    let old = format!("{LAN}vesw = 1\nqueues = 1\n");
    for new in [
        format!("{LAN}queues = 1\n"),
        format!("{LAN}vesw = 1\nqueues = 2\n"),
        format!("{LAN}vesw = 1\nqueues = 1\nindex = 5\n"),
        format!("{LAN}vesw = 1\nqueues = 1\nmac_limit = 5\n"),
    ] {
        let found = steps(&old, &new);
        let [Step::Remove(gone), Step::Add(come)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((gone, &come.interface().key()), (&lan(), &lan()));
    }
}

#[test]
fn ports_come_and_go_with_their_vnics() {
    let ib0 = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth1\"\n";
    let both = format!("{ib0}{LAN}vesw = 1\n");
    let found = steps(ib0, &both);
    assert!(
        matches!(&found[..], [Step::AddPort(..), Step::Add(_)]),
        "{found:?}"
    );
    let found = steps(&both, ib0);
    assert!(
        matches!(&found[..], [Step::Remove(_), Step::RemovePort(_)]),
        "{found:?}"
    );
}

#[test]
fn management_changes_in_place() {
    let old = format!("{LAN}[port.eth0]\n");
    let new = format!("{old}managers = [\"fe80::1\"]\nvnic_create = true\n");
    let found = steps(&old, &new);
    let [Step::Port(_, PortChange::Management(settings))] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(settings.vnic_create);
    assert_eq!(settings.managers, ["fe80::1".parse().unwrap()]);
}

/// The path is the same, the file is not: a reload takes the new key.
#[test]
fn a_new_key_in_the_same_file_changes_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let text = format!("{LAN}[port.eth0]\nmanagement_key = {path:?}\n");
    let with = |digit: &str| {
        std::fs::write(&path, digit.repeat(64)).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        config(&text)
    };
    let (old, new) = (with("1"), with("2"));
    let found = Plan::new(&old, &new).steps;
    let [Step::Port(_, PortChange::Management(settings))] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(settings.management_key.keys(), [[0x22; 32]]);
    assert_eq!(Plan::new(&new, &with("2")), Plan::default());
}
