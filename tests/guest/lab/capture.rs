//! Packets on a virtual machine's cable, checked by tshark and by `ibtap decode`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::station::Background;
use super::{Done, SOON, Station, eventually, ibtap};

/// Bytes of a pcap file's header.
const HEADER: u64 = 24;

/// A running capture.
pub struct Capture {
    file: PathBuf,
    tcpdump: Background,
}

impl Capture {
    /// Captures RoCE packets at a port of the switch.
    pub(super) fn start(switch: &Station, port: &str, scratch: &Path) -> Capture {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = scratch.join(format!("{number}.pcap"));
        let tcpdump = switch.spawn(&format!(
            "tcpdump -i {port} --immediate-mode -U -s 0 -B 65536 -w {} udp port 4791",
            file.display()
        ));
        eventually(SOON, "tcpdump to begin", || {
            (std::fs::metadata(&file).ok()?.len() >= HEADER).then_some(())
        });
        Capture { file, tcpdump }
    }

    /// Runs a test, then judges its packets. Keeps the packets of a failed test.
    pub(super) fn watch(self, test: impl FnOnce()) {
        match catch_unwind(AssertUnwindSafe(test)) {
            Ok(()) => self.judge(),
            Err(panic) => {
                eprintln!("the packets of the test: {}", self.keep().display());
                resume_unwind(panic);
            }
        }
    }

    /// Ends the capture, and keeps the file for inspection.
    fn keep(self) -> PathBuf {
        drop(self.tcpdump);
        let name = self.file.file_name().and_then(|name| name.to_str());
        let name = name.expect("an ASCII path");
        let kept = format!("ibtap-guest-{}-{name}", std::process::id());
        let kept = std::env::temp_dir().join(kept);
        std::fs::copy(&self.file, &kept).expect("a copy");
        kept
    }

    /// Ends the capture. No packet may be malformed, and every ICRC must be right.
    fn judge(self) {
        // tcpdump writes each packet as it arrives (-U); it may be a moment late.
        std::thread::sleep(Duration::from_millis(200));
        drop(self.tcpdump);
        let file = self.file.to_str().expect("an ASCII path");
        // tshark takes other traffic for RPC, and reports it as malformed.
        let malformed = output_of(
            Command::new("tshark")
                .args(["--disable-protocol", "rpcordma", "-n"])
                .args(kit::TSHARK_ANY_PAYLOAD)
                .args(["-r", file, "-Y", "_ws.malformed"]),
        );
        assert_eq!(malformed, "", "malformed packets in {file}");
        let decoded = output_of(Command::new(ibtap()).args(["decode", "--json", file]));
        let packets: Vec<Value> = serde_json::from_str(&decoded).expect("JSON");
        let bad = packets.iter().find(|p| p["icrc"]["verdict"] != "good");
        assert!(bad.is_none(), "a wrong ICRC: {bad:?}");
        println!("{} RoCE packets, all sound", packets.len());
        std::fs::remove_file(file).expect("the capture");
    }
}

fn output_of(command: &mut Command) -> String {
    let done = Done::of(command);
    assert!(done.code == Some(0), "{command:?}: {done:?}");
    done.out
}
