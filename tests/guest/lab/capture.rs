//! What goes over a virtual machine's cable, in the eyes of tshark and of `ibtap decode`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::station::Background;
use super::{Done, SOON, Station, eventually, ibtap};

/// Bytes of a pcap file's own header.
const HEADER: u64 = 24;

/// A capture that goes on.
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

    /// Ends it, and leaves the file where it is for someone to look at.
    pub(super) fn keep(self) -> PathBuf {
        drop(self.tcpdump);
        let name = self.file.file_name().and_then(|name| name.to_str());
        let name = name.expect("an ASCII path");
        let kept = format!("ibtap-guest-{}-{name}", std::process::id());
        let kept = std::env::temp_dir().join(kept);
        std::fs::copy(&self.file, &kept).expect("a copy");
        kept
    }

    /// Ends it. No packet may be malformed, and every ICRC must be right.
    pub(super) fn judge(self) {
        // tcpdump writes each packet as it comes (-U); it may be a moment behind.
        std::thread::sleep(Duration::from_millis(200));
        drop(self.tcpdump);
        let file = self.file.to_str().expect("an ASCII path");
        // It takes RPC for what is none, and then finds it malformed.
        let malformed = said(
            Command::new("tshark")
                .args(["--disable-protocol", "rpcordma", "-n"])
                .args(["-r", file, "-Y", "_ws.malformed"]),
        );
        assert_eq!(malformed, "", "malformed packets in {file}");
        let decoded = said(Command::new(ibtap()).args(["decode", "--json", file]));
        let packets: Vec<Value> = serde_json::from_str(&decoded).expect("JSON");
        let bad = packets.iter().find(|p| p["icrc"]["verdict"] != "good");
        assert!(bad.is_none(), "a wrong ICRC: {bad:?}");
        println!("{} RoCE packets, all sound", packets.len());
        std::fs::remove_file(file).expect("the capture");
    }
}

fn said(command: &mut Command) -> String {
    let done = Done::of(command);
    assert!(done.code == Some(0), "{command:?}: {done:?}");
    done.out
}
