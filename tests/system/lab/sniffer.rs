//! A running packet capture with tcpdump.

use std::path::{Path, PathBuf};

use super::{Background, Host, SOON, eventually};

/// Bytes of a pcap file's header.
const HEADER: u64 = 24;

/// Captures until it is dropped.
pub struct Sniffer {
    file: PathBuf,
    tcpdump: Background,
}

impl Sniffer {
    /// Captures packets that match a filter on an interface, or on `any`; one capture at a time on a host.
    pub fn start(host: &Host, interface: &str, filter: &str) -> Sniffer {
        let file = host.file("sniffed.pcap");
        let _ = std::fs::remove_file(&file);
        let tcpdump = host.spawn(&format!(
            "tcpdump -i {interface} --immediate-mode -U -s 0 -w {} {filter}",
            file.display()
        ));
        let sniffer = Sniffer { file, tcpdump };
        eventually(SOON, "tcpdump to begin", || {
            (sniffer.len() >= HEADER).then_some(())
        });
        sniffer
    }

    /// The file, which grows with each packet.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Ends the capture with a whole file.
    pub fn end(self) {
        self.tcpdump.interrupt();
    }

    /// Whether nothing was captured.
    pub fn is_empty(&self) -> bool {
        self.len() <= HEADER
    }

    fn len(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }
}
