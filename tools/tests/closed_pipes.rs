//! `ibtap decode FILE 2>&1 | head -0`, and other readers that have closed a pipe.

use std::io::PipeWriter;
use std::path::Path;
use std::process::Command;

fn ibtap(words: &[&str]) -> Command {
    let mut ibtap = Command::new(env!("CARGO_BIN_EXE_ibtap"));
    ibtap.args(words);
    ibtap
}

fn closed() -> PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

#[test]
fn decode_without_a_reader_of_stderr() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures/cm_reject_v4.pcap");
    let file = file.to_str().unwrap();
    for (words, status) in [
        (["--json", "decode", file], 0),
        (["--json", "decode", "/none"], 2),
    ] {
        let done = ibtap(&words).stderr(closed()).output().unwrap();
        assert_eq!(done.status.code(), Some(status), "{words:?}: {done:?}");
    }
}

#[test]
fn the_status_does_not_depend_on_the_reader_of_stdout() {
    // Nothing listens there.
    let words = ["--socket", "/nonexistent/socket", "version"];
    let done = ibtap(&words).stdout(closed()).output().unwrap();
    assert_eq!(done.status.code(), Some(3), "{done:?}");
}
