//! A running packet capture with tcpdump.

use std::path::{Path, PathBuf};

use super::{Background, SOON, Scratch, Station, eventually};

/// Bytes of a pcap file's header.
const HEADER: u64 = 24;

/// Captures until it is dropped, which removes the file.
pub struct Sniffer {
    tcpdump: Option<Background>,
    file: PathBuf,
    scratch: Scratch,
}

impl Sniffer {
    /// Captures packets that match a filter of pcap-filter(7) on an interface, or on `any`.
    pub fn start(station: &Station, interface: &str, filter: &str) -> Sniffer {
        Sniffer::with_buffer(station, 2 << 10, interface, filter)
    }

    /// The same with room for bursts of bulk traffic.
    pub fn of_bulk(station: &Station, interface: &str, filter: &str) -> Sniffer {
        Sniffer::with_buffer(station, 64 << 10, interface, filter)
    }

    fn with_buffer(station: &Station, kib: u32, interface: &str, filter: &str) -> Sniffer {
        let scratch = Scratch::create("ibtap-capture-");
        let mut sniffer = Sniffer {
            tcpdump: None,
            file: scratch.path().join("pcap"),
            scratch,
        };
        let words = format!(
            "tcpdump -i {interface} --immediate-mode -U -s 0 -B {kib} -w {} {filter}",
            sniffer.file.display()
        );
        sniffer.tcpdump = Some(station.spawn_into(&words, &sniffer.log()));
        eventually(SOON, "tcpdump to begin", || {
            (sniffer.len() >= HEADER).then_some(())
        });
        sniffer
    }

    /// The file, which grows with each packet.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    /// Ends the capture with a whole file. tcpdump must have run until now; returns what it reports at its end.
    pub fn end(&mut self) -> String {
        let mut tcpdump = self.tcpdump.take().expect("a capture ends once");
        let ended = tcpdump.0.try_wait().expect("a child");
        if ended.is_none() {
            tcpdump.interrupt();
        }
        let report = std::fs::read_to_string(self.log()).expect("a scratch file");
        assert_eq!(ended, None, "tcpdump has ended: {report}");
        report
    }

    /// Whether nothing was captured.
    pub fn is_empty(&self) -> bool {
        self.len() <= HEADER
    }

    fn len(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }
}
