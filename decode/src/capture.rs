//! Frames from pcap and pcapng files.

use std::fmt;
use std::io::{self, Cursor, Read};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

/// The first four bytes of a pcapng file, in both byte orders (its Section Header Block type).
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// One captured frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Time since 1970, UTC.
    pub time: Duration,
    /// Link type.
    pub link: DataLink,
    /// The captured bytes.
    pub data: Vec<u8>,
    /// Length of the frame in bytes; a snap length may have cut the captured bytes.
    pub original_len: usize,
}

/// Errors of reading a capture.
#[derive(Debug)]
pub enum CaptureError {
    /// Reading the file fails.
    Io(io::Error),
    /// Neither pcap nor pcapng.
    Format,
    /// The file ends in the middle of a packet.
    CutShort,
    /// A header is wrong.
    Broken(String),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Io(e) => e.fmt(f),
            CaptureError::Format => f.write_str("the file is neither pcap nor pcapng"),
            CaptureError::CutShort => f.write_str("the file ends in the middle of a packet"),
            CaptureError::Broken(what) => write!(f, "the capture is damaged: {what}"),
        }
    }
}

impl std::error::Error for CaptureError {}

impl From<PcapError> for CaptureError {
    fn from(e: PcapError) -> CaptureError {
        match e {
            PcapError::IncompleteBuffer => CaptureError::CutShort,
            PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                CaptureError::CutShort
            }
            PcapError::IoError(e) => CaptureError::Io(e),
            other => CaptureError::Broken(other.to_string()),
        }
    }
}

/// The source, preceded by its first four bytes, which `open` has read.
type Source<R> = io::Chain<Cursor<[u8; 4]>, R>;

/// An open capture.
pub enum Capture<R: Read> {
    /// The classic format.
    Pcap(PcapReader<Source<R>>),
    /// The next generation.
    PcapNg(PcapNgReader<Source<R>>),
}

impl<R: Read> Capture<R> {
    /// Opens a capture; the first bytes of `source` identify the format.
    ///
    /// # Errors
    /// [`CaptureError::Io`], [`CaptureError::Format`].
    pub fn open(mut source: R) -> Result<Capture<R>, CaptureError> {
        let mut magic = [0; 4];
        source.read_exact(&mut magic).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => CaptureError::Format,
            _ => CaptureError::Io(e),
        })?;
        let source = Cursor::new(magic).chain(source);
        if magic == PCAPNG_MAGIC {
            Ok(Capture::PcapNg(PcapNgReader::new(source)?))
        } else {
            PcapReader::new(source)
                .map(Capture::Pcap)
                .map_err(|_| CaptureError::Format)
        }
    }

    /// The next frame; `None` at the end. No frames follow an error.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn next_frame(&mut self) -> Result<Option<Frame>, CaptureError> {
        match self {
            Capture::Pcap(reader) => next_pcap(reader),
            Capture::PcapNg(reader) => next_pcapng(reader),
        }
    }
}

fn next_pcap<R: Read>(reader: &mut PcapReader<R>) -> Result<Option<Frame>, CaptureError> {
    let header = reader.header();
    // The raw form: the other form refuses packets that a snap length has cut.
    let Some(packet) = reader.next_raw_packet() else {
        return Ok(None);
    };
    let packet = packet?;
    let fraction = u64::from(packet.ts_frac);
    let nanoseconds = match header.ts_resolution {
        TsResolution::MicroSecond => fraction * 1000,
        TsResolution::NanoSecond => fraction,
    };
    Ok(Some(Frame {
        time: Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(nanoseconds),
        link: header.datalink,
        original_len: packet.orig_len as usize,
        data: packet.data.into_owned(),
    }))
}

fn next_pcapng<R: Read>(reader: &mut PcapNgReader<R>) -> Result<Option<Frame>, CaptureError> {
    loop {
        let Some(block) = reader.next_block() else {
            return Ok(None);
        };
        let (interface, ticks, original_len, data) = match block? {
            Block::EnhancedPacket(p) => {
                // The reader treats ticks of any resolution as nanoseconds.
                let ticks = Some(p.timestamp.as_nanos() as u64);
                (p.interface_id, ticks, p.original_len, p.data.into_owned())
            }
            // Such a packet has no time.
            Block::SimplePacket(p) => (0, None, p.original_len, p.data.into_owned()),
            _ => continue,
        };
        let interface = reader.interfaces().get(interface as usize).ok_or_else(|| {
            CaptureError::Broken(format!("a packet names the missing interface {interface}"))
        })?;
        return Ok(Some(Frame {
            time: ticks.map_or(Duration::ZERO, |ticks| {
                shift(to_time(ticks, resolution(interface)), offset(interface))
            }),
            link: interface.linktype,
            original_len: original_len as usize,
            data,
        }));
    }
}

/// The interface's `if_tsresol`; microseconds if it has none.
fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> u8 {
    let found = interface.options.iter().find_map(|o| match o {
        InterfaceDescriptionOption::IfTsResol(r) => Some(*r),
        _ => None,
    });
    found.unwrap_or(6)
}

/// The interface's `if_tsoffset` in seconds, a signed number; 0 if it has none.
fn offset(interface: &InterfaceDescriptionBlock<'_>) -> i64 {
    let found = interface.options.iter().find_map(|o| match o {
        InterfaceDescriptionOption::IfTsOffset(seconds) => Some(seconds.cast_signed()),
        _ => None,
    });
    found.unwrap_or(0)
}

/// Adds seconds. Times before 1970 become 1970.
fn shift(time: Duration, seconds: i64) -> Duration {
    let by = Duration::from_secs(seconds.unsigned_abs());
    match seconds < 0 {
        true => time.saturating_sub(by),
        false => time.saturating_add(by),
    }
}

/// Time of ticks. With bit 7 of `resolution` set, a tick is 2^-n seconds, otherwise 10^-n. The resolution is
/// limited to the finest that fits.
fn to_time(ticks: u64, resolution: u8) -> Duration {
    let exponent = u32::from(resolution & 0x7f);
    let per_second = if resolution & 0x80 != 0 {
        1u64 << exponent.min(63)
    } else {
        10u64.pow(exponent.min(19))
    };
    let fraction = u128::from(ticks % per_second) * 1_000_000_000 / u128::from(per_second);
    Duration::new(ticks / per_second, fraction as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_any_resolution() {
        let t = |ticks, r| to_time(ticks, r);
        assert_eq!(t(1_500_000, 6), Duration::from_millis(1500));
        assert_eq!(t(1_500_000_000, 9), Duration::from_millis(1500));
        assert_eq!(t(3, 0x81), Duration::from_millis(1500));
        assert_eq!(t(7, 0), Duration::from_secs(7));
        assert!(t(u64::MAX, 0x7f) < Duration::from_secs(2));
        assert!(t(u64::MAX, 0xff) < Duration::from_secs(3));
    }

    #[test]
    fn no_offset_overflows() {
        let second = Duration::from_secs(1);
        assert_eq!(shift(second, -1), Duration::ZERO);
        assert_eq!(shift(second, i64::MIN), Duration::ZERO);
        assert_eq!(shift(Duration::MAX, i64::MAX), Duration::MAX);
    }
}
