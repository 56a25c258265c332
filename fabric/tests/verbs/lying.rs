//! Results of the library may be wrong: they are detected or do no harm, and nothing is left behind.

use std::sync::Arc;

use fabric::verbs::sys::Library;

use crate::device;
use crate::exercise;
use crate::shim::{Lie, Shim};

/// Harmless lies: the wrong value is not used, or the right value follows.
const HARMLESS: [Lie; 4] = [Lie::Twice, Lie::Qpn, Lie::CqEventTwice, Lie::AsyncEvents];

#[test]
fn whatever_is_told_does_no_harm() {
    let Some(device) = device::find() else {
        return;
    };
    for lie in Lie::ALL {
        let shim = Arc::new(Shim::lying(&device.library, lie));
        let library: Arc<dyn Library> = shim.clone();
        let result = exercise::all(&library, &device.name);
        drop(library);
        assert!(shim.lies() > 0, "{lie:?} was never used: {result:?}");
        assert_eq!(shim.leaks(), [""; 0], "{lie:?}: {result:?}");
        assert_eq!(
            result.is_ok(),
            HARMLESS.contains(&lie),
            "{lie:?}: {result:?}"
        );
    }
    let honest: Arc<dyn Library> = Arc::new(Shim::honest(&device.library));
    exercise::all(&honest, &device.name).unwrap();
}
