//! Management that is authenticated by a key.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::hostile::{MANAGEMENT_QKEY, management_qpn, takeover};
use super::{managed, stats, vesw};
use crate::lab::attacker::Attacker;
use crate::lab::{Em, Host, Lab, SOON, eventually};

/// Writes keys, one of these digits each; returns the path.
fn key_file(host: &Host, digits: &[char]) -> PathBuf {
    let path = host.file("management.key");
    let line = |digit: &char| digit.to_string().repeat(64) + "\n";
    let keys: String = digits.iter().map(line).collect();
    std::fs::write(&path, keys).expect("written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("private");
    path
}

/// A managed `vnic0`, with a key.
fn keyed(host: &Host, digits: &[char]) -> String {
    let path = key_file(host, digits);
    let key = format!("[port.eth0]\nmanagement_key = {path:?}\n");
    key + &managed("vnic0")
}

/// Sends the agent of `b` a forged Set, which puts `vnic0` on switch 9.
fn attack(a: &Host, b: &Host) {
    let mut attacker = Attacker::of(a, b, "vnic0");
    attacker.qpn = management_qpn(b);
    let mut packet = attacker.packet(takeover(1));
    packet.qkey = MANAGEMENT_QKEY;
    attacker.send(&packet.datagram());
}

fn refused(host: &Host, reason: &str) -> u64 {
    let all = stats(host, "vnic0");
    let count = all["management"][reason].as_u64();
    count.unwrap_or_else(|| panic!("{reason} in {all}"))
}

fn reload(host: &Host) {
    let done = host.ibtap("reload");
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_key_keeps_forged_management_out() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    // The attack: any host can configure an agent that no manager owns.
    for host in [&mut *a, &mut *b] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
    }
    attack(a, b);
    eventually(SOON, "the attacker's switch", || {
        (b.show("vnic0")["vesw"] == 9).then_some(())
    });
    // With a key, the same datagram changes nothing.
    for host in [&mut *a, &mut *b] {
        host.kill_daemon();
        let text = keyed(host, &['1']);
        host.start_config(&text);
        host.configure_addresses("vnic0");
    }
    attack(a, b);
    eventually(SOON, "the refusal", || {
        (refused(b, "no_mac") == 1).then_some(())
    });
    assert_ne!(b.show("vnic0")["vesw"], 9);
    let gid = a.await_link_local("eth0");
    let line = format!("refused a datagram of {gid}: it has no MAC");
    assert!(b.daemon().log().contains(&line), "{}", b.daemon().log());
    // The manager has the key, because its node has it.
    let em = Em::start(a, "poll_interval = 1", &vesw(1, ""));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);

    // A new key without an interruption: first it is accepted, then it is used, then the old one is gone.
    for digits in [&['1', '2'][..], &['2', '1'], &['2']] {
        for host in [&*a, &*b] {
            key_file(host, digits);
            reload(host);
        }
    }
    em.reconfigure(|text| text.replace("id = 1", "id = 3"));
    em.reload();
    eventually(SOON, "the manager's new switch", || {
        (b.show("vnic0")["vesw"] == 3).then_some(())
    });
    assert_eq!(refused(b, "wrong_mac"), 0);
    a.reaches(b);

    // A node with another key is heard by no one.
    key_file(b, &['3']);
    reload(b);
    em.reconfigure(|text| text.replace("id = 3", "id = 4"));
    em.reload();
    eventually(SOON, "wrong MACs", || {
        (refused(b, "wrong_mac") > 0 && refused(a, "wrong_mac") > 0).then_some(())
    });
    assert_eq!(b.show("vnic0")["vesw"], 3);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, _) = lab.two();
    let config = a.write_config(&keyed(a, &['1']));
    let key = a.file("management.key");
    let public = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&key, public).expect("public");
    let done = a.daemon_run(&["--check-config", &config]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let expected = format!(
        "every user may read or write the key file {}",
        key.display()
    );
    assert!(done.err.contains(&expected), "{}", done.err);
}
