//! Resources of all tests: stages, each a bridge with a host and a virtual machine, and a cable between two
//! of the bridges, unplugged unless a test needs both. They are created for the first test, and removed with
//! this process.

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::capture::Capture;
use super::machine::Link;
use super::shared::Shared;
use super::{Local, Machine, Station, UNDERLAY_MTU};

/// An Ethernet with a host of this machine and a virtual machine.
pub struct Stage {
    /// Number 1 to 3.
    pub host: Local,
    /// Number 11 to 13.
    pub machine: Machine,
    switch: Station,
    shared: &'static Shared,
}

/// Tests mostly wait: three virtual machines finish sooner than two, also on two processors.
const STAGES: usize = 3;

/// The two stages with the cable between them.
const CABLED: [bool; STAGES] = [true, true, false];

/// Runs a test on a reset stage, and checks the packets of its virtual machine. Prints the reason if virtual
/// machines are impossible. As many tests run at a time as there are stages.
pub fn on_stage(test: impl FnOnce(&Stage)) {
    on_one_stage(true, test);
}

/// The same for a test whose virtual machine need not send or receive a RoCE packet.
pub fn on_silent_stage(test: impl FnOnce(&Stage)) {
    on_one_stage(false, test);
}

fn on_one_stage(expects: bool, test: impl FnOnce(&Stage)) {
    let Some(stages) = Stages::get() else { return };
    let lease = stages.one();
    lease.stages[0].watch(expects, test);
}

/// Runs a test with two stages on one Ethernet.
pub fn on_both_stages(test: impl FnOnce(&Stage, &Stage)) {
    let Some(stages) = Stages::get() else { return };
    let lease = stages.both();
    lease.stages[1].machine.reset();
    lease.stages[0].watch(true, |stage| test(stage, lease.stages[1]));
}

impl Stage {
    /// A folder for files of the tests.
    pub fn scratch(&self) -> &Path {
        self.shared.scratch()
    }

    /// Gives the virtual machine the tests of `fabric`, as `/host/suite` and `/host/verbs`.
    pub fn add_fabric_tests(&self) {
        for target in ["suite", "verbs"] {
            self.shared.add_tests(target);
        }
    }

    /// `expects`: whether there must be packets.
    fn watch(&self, expects: bool, test: impl FnOnce(&Stage)) {
        self.machine.reset();
        let capture = Capture::start(&self.switch, &self.machine.port());
        capture.watch(expects, || test(self));
    }
}

/// A switch, which is a bridge `br0`, and host `number` at it.
pub(super) fn switch_with_host(number: usize, shared: &Shared) -> (Station, Local) {
    let switch = Station::create(&format!("switch {number}"));
    switch.ok(&format!(
        "ip link add br0 mtu {UNDERLAY_MTU} type bridge mcast_snooping 0"
    ));
    switch.ok("ip link set br0 up");
    let host = Local::at(&switch, number, shared.scratch());
    (switch, host)
}

/// All stages, and the ones in use.
struct Stages {
    all: [Stage; STAGES],
    taken: Mutex<Taken>,
    given_back: Condvar,
}

#[derive(Default)]
struct Taken {
    stages: [bool; STAGES],
    /// Number of tests that wait for the cabled stages. Others leave these stages to them, so that they are
    /// not the last to finish.
    want_both: usize,
}

/// Stages in use by a test.
struct Lease<'s> {
    stages: Vec<&'s Stage>,
    of: &'s Stages,
    which: [bool; STAGES],
}

impl Stages {
    fn get() -> Option<&'static Stages> {
        static STAGES: OnceLock<Option<Stages>> = OnceLock::new();
        let stages = STAGES.get_or_init(Stages::make).as_ref();
        if stages.is_none() {
            kit::skip("it needs virtual machines, see above");
        }
        stages
    }

    /// Waits for a free stage.
    fn one(&self) -> Lease<'_> {
        self.lease(|taken| {
            let kept = |stage: usize| taken.want_both > 0 && CABLED[stage];
            let free = (0..STAGES).rfind(|stage| !taken.stages[*stage] && !kept(*stage))?;
            Some(std::array::from_fn(|stage| stage == free))
        })
    }

    /// Waits for the cabled stages, and plugs the cable in.
    fn both(&self) -> Lease<'_> {
        self.taken().want_both += 1;
        let lease = self.lease(|taken| {
            let free = (0..STAGES).all(|stage| !(CABLED[stage] && taken.stages[stage]));
            taken.want_both -= usize::from(free);
            free.then_some(CABLED)
        });
        self.all[0].switch.ok("ip link set trunk up");
        lease
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self, choose: impl Fn(&mut Taken) -> Option<[bool; STAGES]>) -> Lease<'_> {
        let mut taken = self.taken();
        loop {
            if let Some(which) = choose(&mut taken) {
                for (taken, wanted) in taken.stages.iter_mut().zip(which) {
                    *taken |= wanted;
                }
                let stages = self.all.iter().zip(which);
                return Lease {
                    stages: stages
                        .filter_map(|(s, wanted)| wanted.then_some(s))
                        .collect(),
                    of: self,
                    which,
                };
            }
            let waited = self.given_back.wait(taken);
            taken = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make() -> Option<Stages> {
        let shared = Shared::with("rxe-guest")?;
        let sides: [_; STAGES] = std::array::from_fn(|i| switch_with_host(i + 1, shared));
        let [(switch, _), (other, _), ..] = &sides;
        switch.ok(&format!(
            "ip link add trunk mtu {UNDERLAY_MTU} master br0 type veth \
             peer name trunk mtu {UNDERLAY_MTU} netns {}",
            other.namespace().name()
        ));
        other.ok("ip link set trunk master br0 up");
        let all = std::thread::scope(|scope| {
            let mut number = 10;
            sides
                .map(|(switch, host)| {
                    number += 1;
                    scope.spawn(move || {
                        let machine = Machine::boot(&switch, number, Link::Ethernet, shared);
                        Stage {
                            host,
                            machine: machine.unwrap_or_else(|e| panic!("rxe-guest boot: {e:?}")),
                            switch,
                            shared,
                        }
                    })
                })
                .map(|booting| booting.join().expect("no panic"))
        });
        Some(Stages {
            all,
            taken: Mutex::default(),
            given_back: Condvar::new(),
        })
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.which == CABLED {
            let pulled = self.of.all[0].switch.run("ip link set trunk down");
            assert!(pulled.code == Some(0) || std::thread::panicking());
        }
        let mut taken = self.of.taken();
        for (taken, ours) in taken.stages.iter_mut().zip(self.which) {
            *taken &= !ours;
        }
        self.of.given_back.notify_all();
    }
}
