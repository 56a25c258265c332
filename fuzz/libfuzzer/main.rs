//! libFuzzer with the fuzz target that the environment variable `IBTAP_FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fn chosen() -> fn(&[u8]) {
    let name = std::env::var("IBTAP_FUZZ_TARGET").expect("IBTAP_FUZZ_TARGET names a target");
    let target = ibtap_fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    target
        .unwrap_or_else(|| panic!("there is no target {name}"))
        .1
}

fuzz_target!(|data: &[u8]| TARGET.get_or_init(chosen)(data));
