//! `ibtap-em run --check-config | head -0`

use std::path::Path;
use std::process::Command;

#[test]
fn a_reader_that_has_closed_stdout_is_no_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = Command::new(env!("CARGO_BIN_EXE_ibtap-em"))
        .args(["run", "--check-config", "--config"])
        .arg(root.join("docs/ibtap-em.example.toml"))
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(done.stderr.is_empty(), "{done:?}");
}
