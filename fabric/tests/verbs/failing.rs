//! Any call of the library may fail: the caller gets an error, and nothing is left behind.

use std::sync::Arc;

use fabric::verbs::sys::Library;

use crate::device::{self, Device};
use crate::exercise;
use crate::shim::{Fails, Failure, Shim};

fn run(shim: &Arc<Shim>, device: &Device) -> std::io::Result<()> {
    let library: Arc<dyn Library> = shim.clone();
    exercise::all(&library, &device.name)
}

#[test]
fn a_library_that_works_is_used_in_pairs() {
    let Some(device) = device::find() else {
        return;
    };
    let shim = Arc::new(Shim::honest(&device.library));
    run(&shim, &device).unwrap();
    assert_eq!(shim.leaks(), [""; 0]);
    for kind in [
        "context",
        "queue pair",
        "memory region",
        "address handle",
        "identifier",
    ] {
        assert!(shim.made(kind) > 0, "the exercise made no {kind}");
    }
}

#[test]
fn whichever_call_fails_nothing_is_left_behind() {
    let Some(device) = device::find() else {
        return;
    };
    let honest = Arc::new(Shim::honest(&device.library));
    run(&honest, &device).unwrap();
    let calls = honest.calls().len();
    let failures = [
        Failure::Errno(libc::ENOMEM),
        Failure::Errno(libc::EIO),
        Failure::Silent,
    ];
    let mut errors = 0;
    for call in 0..calls {
        let failure = failures[call % failures.len()];
        let shim = Arc::new(Shim::failing(&device.library, Fails::Number(call), failure));
        let result = run(&shim, &device);
        errors += usize::from(result.is_err());
        let name = shim.calls().get(call).copied();
        assert_eq!(
            shim.leaks(),
            [""; 0],
            "after {name:?}, call {call} of {calls}, failed with {failure:?} ({result:?})"
        );
    }
    // Failing destructors are only logged, and empty polls are possible; all other failures are errors.
    assert!(errors * 2 > calls, "{errors} errors of {calls} calls");
    run(&honest, &device).unwrap();
}
