//! Configuration files: an error always has a position.

#![no_main]

use control::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Config::parse(text, "file") {
        assert!(error.to_string().starts_with("file:"));
    }
});
