//! What `fabric`'s tests ask of an RDMA device: those of a port that run over either provider, and those
//! of a library that fails and lies.

use std::time::Duration;

use crate::lab::{Node, on_stage};

/// For all of one program.
const LIMIT: Duration = Duration::from_secs(300);

/// A device of their own, on an interface that may go down and away.
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

/// Runs programs of tests on a device that is there for them alone. `at_least` is fewer tests than there
/// are: none left out is to pass for all.
fn all_pass(programs: &[&str], at_least: usize) {
    on_stage(|stage| {
        let machine = &stage.machine;
        machine.ok(DEVICE);
        let mut passed = 0;
        for program in programs {
            let run = format!("RUST_BACKTRACE=0 {program} --test-threads 1");
            let done = machine.run_for(&run, LIMIT);
            // What could not be tested is said there.
            eprint!("{}", done.err);
            assert_eq!(done.code, Some(0), "{program}: {}", done.out);
            assert!(!done.err.contains("SKIPPED"), "{program} leaves out tests");
            passed += done.out.matches("... ok").count();
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

/// Those that take the device away have a process of their own: librdmacm has a device open for as long
/// as a process lives that has used it for connections.
#[test]
fn a_library_that_fails_or_lies_is_survived() {
    let removal = "IBTAP_TEST_MAY_REMOVE=1 /host/verbs events:: a_device_is_removed";
    let others = "/host/verbs --skip events:: --skip a_device_is_removed";
    all_pass(&[removal, others], 23);
}
