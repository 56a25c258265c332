//! Packets on a virtual machine's cable, checked by tshark and by `ibtap decode`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::{Done, Sniffer, Station, ibtap};

/// A running capture.
pub struct Capture(Sniffer);

impl Capture {
    /// Captures RoCE packets at a port of the switch.
    pub(super) fn start(switch: &Station, port: &str) -> Capture {
        Capture(Sniffer::of_bulk(switch, port, "udp port 4791"))
    }

    /// Runs a test, then judges its packets. `expects`: whether there must be packets. Keeps the packets of a failed
    /// test.
    pub(super) fn watch(self, expects: bool, test: impl FnOnce()) {
        match catch_unwind(AssertUnwindSafe(test)) {
            Ok(()) => self.judge(expects),
            Err(panic) => {
                eprintln!("the packets of the test: {}", self.keep().display());
                resume_unwind(panic);
            }
        }
    }

    /// Ends the capture, and keeps the file for inspection.
    fn keep(mut self) -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.0.end();
        let kept = format!("ibtap-guest-{}-{number}.pcap", std::process::id());
        let kept = std::env::temp_dir().join(kept);
        std::fs::copy(self.0.file(), &kept).expect("a copy");
        kept
    }

    /// Ends the capture. No packet may be missing or malformed, and every ICRC must be right.
    fn judge(mut self, expects: bool) {
        let report = self.0.end();
        assert!(report.contains("\n0 packets dropped by kernel"), "{report}");
        let file = self.0.file().to_str().expect("an ASCII path");
        // tshark takes other traffic for RPC, and reports it as malformed.
        let malformed = output_of(
            Command::new("tshark")
                .args(["--disable-protocol", "rpcordma", "-n"])
                .args(kit::tshark_any_payload())
                .args(["-r", file, "-Y", "_ws.malformed"]),
        );
        assert_eq!(malformed, "", "malformed packets in {file}");
        let decoded = output_of(Command::new(ibtap()).args(["decode", "--json", file]));
        let packets: Vec<Value> = serde_json::from_str(&decoded).expect("JSON");
        let bad = packets.iter().find(|p| p["icrc"]["verdict"] != "good");
        assert!(bad.is_none(), "a wrong ICRC: {bad:?}");
        assert!(!packets.is_empty() || !expects, "no RoCE packet: {report}");
        println!("{} RoCE packets, all sound", packets.len());
    }
}

fn output_of(command: &mut Command) -> String {
    let done = Done::of(command);
    assert!(done.code == Some(0), "{command:?}: {done:?}");
    done.out
}
