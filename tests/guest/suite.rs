//! What a port does, asked of the verbs provider: `fabric`'s tests that run over either one.

use std::time::Duration;

use crate::lab::{Node, on_stage};

/// For all of them.
const LIMIT: Duration = Duration::from_secs(300);

/// Fewer than there are; none left out is to pass for all.
const AT_LEAST: usize = 30;

/// A device of their own, on an interface that may go down and away.
const DEVICE: &str = "set -e
    ip link add u0 mtu 4500 type veth peer name u1 mtu 4500
    for i in u0 u1; do
        sysctl -qw net.ipv6.conf.$i.accept_dad=0
        ip link set $i up
    done
    ip addr add 192.0.2.1/24 dev u0
    rdma link add suite0 type rxe netdev u0
    until rdma link show suite0/1 | grep -q ACTIVE; do sleep 0.1; done";

#[test]
fn ports_do_over_verbs_what_they_do_over_the_software_fabric() {
    on_stage(|stage| {
        let guest = &stage.guests[0];
        guest.ok(DEVICE);
        let done = guest.run_for(
            "IBTAP_SUITE_DEVICE=suite0 RUST_BACKTRACE=0 /host/suite --skip soft:: --test-threads 1",
            LIMIT,
        );
        guest.run("rdma link del suite0; ip link del u0");
        // What could not be tested is said there.
        eprint!("{}", done.err);
        assert_eq!(done.code, Some(0), "{}", done.out);
        let passed = done.out.matches("... ok").count();
        assert!(passed >= AT_LEAST, "only {passed}: {}", done.out);
    });
}
