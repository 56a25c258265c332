//! `ibtap metrics` prints what the metrics address serves.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;

/// The kernel allows control characters in names; two names stay two.
#[test]
fn labels_of_a_file_are_those_of_the_metrics_address() {
    let served = "# TYPE ibtap_up gauge\nibtap_up{interface=\"a\u{1b}\"} 1\nibtap_up{interface=\"a\u{7f}\"} 1\n# EOF\n";
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let reply = format!(
        "{}\0",
        serde_json::json!({ "parameters": { "text": served } })
    );
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        reader.read_until(0, &mut Vec::new()).unwrap();
        stream.write_all(reply.as_bytes()).unwrap();
    });
    let done = Command::new(env!("CARGO_BIN_EXE_ibtap"))
        .arg("--socket")
        .arg(socket)
        .arg("metrics")
        .output()
        .unwrap();
    daemon.join().unwrap();
    let printed = String::from_utf8(done.stdout).unwrap();
    assert_eq!(printed, control::metrics::classic(served));
}
