//! Configuration files: an error always has a position.

use control::config::Config;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(error) = Config::parse(text, "file") {
        assert!(error.to_string().starts_with("file:"));
    }
}
