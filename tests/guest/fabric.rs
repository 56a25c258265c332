//! Tests of `fabric` that need an RDMA device: the tests of a port for either provider, and those of a
//! library that fails or lies.

use std::time::Duration;

use crate::lab::{Node, on_silent_stage};

/// Time limit for all tests of one program.
const LIMIT: Duration = Duration::from_secs(300);

/// A separate device, on an interface that may go down and disappear.
const DEVICE: &str = "set -e
    ip link add u0 mtu 4500 type veth peer name u1 mtu 4500
    for i in u0 u1; do
        sysctl -qw net.ipv6.conf.$i.accept_dad=0
        ip link set $i up
    done
    ip addr add 192.0.2.1/24 dev u0
    rdma link del rxe0
    rdma link add suite0 type rxe netdev u0
    until rdma link show suite0/1 | grep -q ACTIVE; do sleep 0.1; done";

/// Runs test programs on a device for them alone. `at_least` is a lower bound for the number of tests, so
/// that skipped tests are noticed.
fn all_pass(programs: &[&str], at_least: usize) {
    on_silent_stage(|stage| {
        let machine = &stage.machine;
        stage.add_fabric_tests();
        machine.ok(DEVICE);
        let mut passed = 0;
        for program in programs {
            passed += machine.passes(program, LIMIT);
        }
        machine.ok("rdma link del suite0; ip link del u0");
        assert!(passed >= at_least, "only {passed} tests");
    });
}

#[test]
fn ports_do_over_verbs_what_they_do_over_the_software_fabric() {
    let suite = "IBTAP_SUITE_DEVICE=suite0 /host/suite --skip soft::";
    all_pass(&[suite], 30);
}

/// The test that removes the device has a separate process: librdmacm keeps a device open as long as a process
/// lives that has used it for connections.
#[test]
fn a_library_that_fails_or_lies_is_survived() {
    let removal = "IBTAP_TEST_MAY_REMOVE=1 /host/verbs a_device_is_removed";
    let others = "/host/verbs --skip a_device_is_removed";
    all_pass(&[removal, others], 20);
}
