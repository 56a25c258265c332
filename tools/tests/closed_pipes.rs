//! `ibtap decode FILE 2>&1 | head -0`, and other readers that have closed a pipe.

use std::fs;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

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

fn capture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures");
    folder.join(name)
}

#[test]
fn decode_without_a_reader_of_stderr() {
    let file = capture("cm_reject_v4.pcap");
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

#[test]
fn a_bad_packet_that_was_decoded_counts_without_a_reader_of_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.pcap");
    let mut bytes = fs::read(capture("rc_loss_v4.pcap")).unwrap();
    for (last_byte, status) in [(0, 0), (1, 1)] {
        // The length of the first frame is behind the headers of the file and of the frame.
        let length = u32::from_le_bytes(bytes[32..36].try_into().unwrap());
        bytes[40 + length as usize - 1] ^= last_byte;
        fs::write(&file, &bytes).unwrap();
        let words = ["--json", "decode", file.to_str().unwrap()];
        let done = ibtap(&words).output().unwrap();
        assert_eq!(done.status.code(), Some(status), "{done:?}");
        // Some of the packets are written before the end.
        assert!(done.stdout.len() > 16 * 1024);
        let done = ibtap(&words).stdout(closed()).output().unwrap();
        assert_eq!(done.status.code(), Some(status), "{done:?}");
    }
}

#[test]
fn ping_without_a_reader_of_stdout() {
    let answer = r#"{"answer":{"sequence":1,"gid":"fe80::2","qpn":18,"ips":[],"bytes":64,"round_trip_ns":9}}"#;
    let timeout = r#"{"timeout":{"sequence":1}}"#;
    let folder = tempfile::tempdir().unwrap();
    for (number, reply, status) in [(0, answer, 0), (1, timeout, 1)] {
        for json in [false, true] {
            let socket = folder.path().join(format!("{number}{json}"));
            let listener = UnixListener::bind(&socket).unwrap();
            let daemon = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                reader.read_until(0, &mut request).unwrap();
                let reply = format!("{{\"continues\":true,\"parameters\":{reply}}}\0");
                stream.write_all(reply.as_bytes()).unwrap();
                // The program ends without further replies.
                reader.read_until(0, &mut request).unwrap();
            });
            let socket = socket.to_str().unwrap();
            let mut words = vec!["--socket", socket, "ping", "ib0", "fe80::2"];
            words.extend(json.then_some("--json"));
            let done = ibtap(&words).stdout(closed()).output().unwrap();
            assert_eq!(done.status.code(), Some(status), "{reply} {done:?}");
            daemon.join().unwrap();
        }
    }
}
