//! Tests of `tests/system` that need kernel modules: bonds, VLAN links, MACsec, IPsec and WireGuard. The machine has
//! these modules; the host of the tests may lack them.

use std::time::Duration;

use crate::lab::{Served, on_systemd};

/// Time limit for all tests of one theme.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs tests of `tests/system`, whose number is known: none may be missing or skip itself.
fn all_pass(served: &Served, tests: &str, number: usize) {
    served.add_system_tests();
    let program = format!("IBTAP_PROGRAMS=/host /host/system {tests}");
    assert_eq!(served.machine.passes(&program, LIMIT), number);
}

#[test]
fn bonds_of_the_kernel_fail_over() {
    on_systemd(|served| all_pass(served, "bond::an_active_backup_bond", 2));
}

#[test]
fn vlan_links_of_the_kernel_select_partitions() {
    on_systemd(|served| all_pass(served, "vlan::kernel::", 2));
}

#[test]
fn wireguard_macsec_and_ipsec_of_the_kernel_encrypt_the_underlay() {
    on_systemd(|served| all_pass(served, "netns_lab::encrypted", 3));
}
