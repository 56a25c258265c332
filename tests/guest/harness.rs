//! The virtual machines themselves; all other tests rely on them.

use std::time::Duration;

use crate::lab::{Node, SOON, eventually, on_both_stages, on_silent_stage};

#[test]
fn guests_have_an_rdma_device_and_reach_each_other_and_the_host() {
    on_both_stages(|one, other| {
        let (a, b) = (&one.machine, &other.machine);
        for machine in [a, b] {
            let device = machine.ok("ibv_devinfo -d rxe0");
            assert!(device.contains("PORT_ACTIVE"), "{device}");
            let mtu = device.lines().find(|line| line.contains("active_mtu"));
            assert!(mtu.is_some_and(|line| line.contains("4096")), "{device}");
            machine.reaches(&one.host.underlay_v4());
            machine.reaches(&one.host.underlay_v6());
        }
        let mut server = a.spawn("ibv_ud_pingpong -d rxe0 -g 1 -s 1000 -n 5");
        a.ok("until [ \"$(ss -Hltn sport = :18515)\" ]; do sleep 0.1; done");
        let client = b.ok(&format!(
            "ibv_ud_pingpong -d rxe0 -g 1 -s 1000 -n 5 {}",
            a.underlay_v4()
        ));
        assert!(client.contains("5 iters"), "{client}");
        server.succeeds(Duration::from_secs(10));
    });
}

#[test]
fn a_command_of_a_guest_returns_its_status_and_both_outputs_and_has_a_limit() {
    on_silent_stage(|stage| {
        let machine = &stage.machine;
        let done = machine.run("echo one; echo two >&2; exit 3");
        assert_eq!(
            (done.code, done.out.as_str(), done.err.as_str()),
            (Some(3), "one\n", "two\n")
        );
        // While other virtual machines start, a shell needs seconds to start, too.
        let late = machine.run_for("echo begun; sleep 1000", Duration::from_secs(20));
        assert_eq!((late.code, late.out.as_str()), (Some(124), "begun\n"));
        let mut begun = machine.spawn("echo begun; exec sleep 1001");
        begun.await_output("begun");
        drop(begun);
        eventually(SOON, "the end of both", || {
            // The brackets exclude the shell with this pattern in its own words. 1: nothing matches.
            let left = machine.run("pgrep -f '[s]leep 100'");
            (left.code == Some(1)).then_some(())
        });
    });
}
