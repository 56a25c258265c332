//! `ibtap decode`: prints the packets of a capture of RoCEv2, or of Omni-Path's 16B packets, and checks every
//! ICRC.

#![forbid(unsafe_code)]

mod aeth;
mod capture;
mod cm;
mod gso;
mod inner;
mod link;
mod mads;
mod record;
mod roce;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod vnic;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;

use capture::{Capture, CaptureError};
pub use record::{Record, Verdict};
use vnic::Joiner;

/// No fault was found.
pub const EXIT_GOOD: u8 = 0;
/// An ICRC is bad, or a packet is malformed.
pub const EXIT_BAD: u8 = 1;
/// The file cannot be read.
pub const EXIT_UNREADABLE: u8 = 2;

/// Print the packets of a capture and check every ICRC.
///
/// Reads pcap and pcapng: RoCEv2 over any link, and Omni-Path's 16B packets with link type USER0 (147)
/// and the ICRC of ibtap. Exit status: 0 without faults, 1 for a bad ICRC or a malformed packet, 2 for an
/// unreadable file.
#[derive(Clone, Debug, clap::Args)]
pub struct DecodeArgs {
    /// The capture, pcap or pcapng; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Totals of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Frames in the file.
    pub frames: u64,
    /// RoCEv2 packets; each packet of a large send counts.
    pub roce: u64,
    /// 16B packets outside of RoCEv2.
    pub raw: u64,
    /// Packets with a good ICRC.
    pub good: u64,
    /// Packets with a bad ICRC.
    pub bad: u64,
    /// Packets whose ICRC cannot be checked.
    pub unknown: u64,
    /// Malformed packets.
    pub malformed: u64,
}

impl Summary {
    fn count(&mut self, record: &Record) {
        let Some(icrc) = record.icrc() else { return };
        match record.roce() {
            Some(_) => self.roce += 1,
            None => self.raw += 1,
        }
        match icrc.verdict {
            Verdict::Good => self.good += 1,
            Verdict::Bad => self.bad += 1,
            Verdict::Unknown => self.unknown += 1,
        }
        if record.malformed().is_some() {
            self.malformed += 1;
        }
    }

    fn exit_status(&self) -> u8 {
        if self.bad > 0 || self.malformed > 0 {
            EXIT_BAD
        } else {
            EXIT_GOOD
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            frames,
            roce,
            raw,
            good,
            bad,
            unknown,
            malformed,
        } = self;
        write!(f, "{frames} frames, {roce} RoCEv2 packets")?;
        if *raw > 0 {
            write!(f, ", {raw} 16B packets")?;
        }
        write!(
            f,
            ": ICRC {good} good, {bad} bad, {unknown} unknown; {malformed} malformed"
        )
    }
}

/// Format of the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A line for each packet.
    Text,
    /// An array of objects, each in one line.
    Json,
    /// An array of indented objects.
    PrettyJson,
}

/// Runs the command: prints the packets, and returns the exit status.
pub fn run(args: &DecodeArgs, format: Format) -> u8 {
    let name = args.file.display();
    let source: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        match File::open(&args.file) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(e) => {
                report(format_args!("ibtap: cannot open {name}: {e}"));
                return EXIT_UNREADABLE;
            }
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut summary = Summary::default();
    let status = match decode_and_count(source, format, &mut out, &mut summary) {
        Ok(()) => {
            // JSON output is only the array.
            if format != Format::Text {
                report(format_args!("{summary}"));
            }
            summary.exit_status()
        }
        // The reader closed the output, as `head` does. The packets before that count.
        Err(DecodeError::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => {
            summary.exit_status()
        }
        Err(e @ DecodeError::Write(_)) => {
            report(format_args!("ibtap: {e}"));
            EXIT_UNREADABLE
        }
        Err(e @ DecodeError::Read(_)) => {
            report(format_args!("ibtap: cannot read {name}: {e}"));
            EXIT_UNREADABLE
        }
    };
    match out.flush() {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            report(format_args!("ibtap: cannot write: {e}"));
            EXIT_UNREADABLE
        }
        _ => status,
    }
}

/// Writes a line to stderr. If the reader has closed stderr, the exit status is the only report. (`eprintln!` panics.)
fn report(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Errors of decoding.
#[derive(Debug)]
pub enum DecodeError {
    /// Reading the capture fails, perhaps after some packets were printed.
    Read(CaptureError),
    /// Writing the output fails.
    Write(io::Error),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Read(e) => e.fmt(f),
            DecodeError::Write(e) => write!(f, "cannot write: {e}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes the capture in `source` and prints it to `out`, record by record. The largest packet bounds the
/// memory.
///
/// # Errors
/// [`DecodeError`]. A JSON array is closed also after an error.
pub fn decode(
    source: impl Read,
    format: Format,
    out: &mut impl Write,
) -> Result<Summary, DecodeError> {
    let mut summary = Summary::default();
    decode_and_count(source, format, out, &mut summary)?;
    Ok(summary)
}

/// Counts in `summary`, also before an error.
fn decode_and_count(
    source: impl Read,
    format: Format,
    out: &mut impl Write,
    summary: &mut Summary,
) -> Result<(), DecodeError> {
    let mut capture = Capture::open(source).map_err(DecodeError::Read)?;
    let mut printer = Printer {
        format,
        first: true,
        out,
    };
    let mut joiner = Joiner::default();
    let end = loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                summary.frames += 1;
                for mut record in roce::records(summary.frames, &frame) {
                    joiner.join(&mut record);
                    summary.count(&record);
                    printer.print(&record).map_err(DecodeError::Write)?;
                }
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(DecodeError::Read(e)),
        }
    };
    printer.finish(summary).map_err(DecodeError::Write)?;
    end
}

struct Printer<'a, W> {
    format: Format,
    first: bool,
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    fn print(&mut self, record: &Record) -> io::Result<()> {
        if self.format == Format::Text {
            return writeln!(self.out, "{record}");
        }
        let before = if self.first { "[\n" } else { ",\n" };
        self.first = false;
        self.out.write_all(before.as_bytes())?;
        if self.format == Format::Json {
            return serde_json::to_writer(&mut self.out, record).map_err(io::Error::from);
        }
        // Line feeds are only between the lines; those of a text are escaped.
        let object = serde_json::to_string_pretty(record)?;
        write!(self.out, "  {}", object.replace('\n', "\n  "))
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        match (self.format, self.first) {
            (Format::Text, _) => writeln!(self.out, "{summary}"),
            (_, true) => writeln!(self.out, "[]"),
            (_, false) => writeln!(self.out, "\n]"),
        }
    }
}
