//! `ibtap bugreport`: one archive with what a maintainer needs, and nothing private that need not be.
//!
//! The parts of a report do not depend on each other: each has limits of time and size, and a part that fails
//! leaves its reason in the report.

mod collect;
mod configuration;
mod facts;
mod interruption;
mod parts;
mod pseudonyms;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use control::exit::EXIT_OK;
use control::logging::Utc;
use flate2::Compression;
use flate2::write::GzEncoder;
use netdev::netns::Namespace;
use serde::Serialize;

use crate::doctor;
use crate::output::{Failure, Format, print};
use facts::Facts;
use interruption::Unfinished;
use parts::{Part, Source, Words};
use pseudonyms::Pseudonyms;

/// Time that a daemon on a loaded machine has to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for one source; `ibtap doctor` waits for other hosts.
const LIMIT: Duration = Duration::from_secs(20);
/// Time for all parts; parts that would begin later are left out.
const LIMIT_OF_ALL: Duration = Duration::from_secs(180);
/// The folder in the archive.
const FOLDER: &str = "ibtap-bugreport";

/// Write an archive that describes a fault, for a maintainer
///
/// Run this as root while the fault lasts, and attach the archive to the report. The archive has the state
/// of ibtapd, its interfaces, its processes, its log, its configuration, and what the host has around them. Keys are
/// removed. Pseudonyms replace addresses and the name of the host, the same in all files. README.txt in the
/// archive lists the files, and what could not be collected. Nothing is sent anywhere.
#[derive(Args, Clone, Debug)]
pub struct BugreportArgs {
    /// Write this file, which must not exist [default: ibtap-bugreport-TIME.tar.gz]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Keep addresses and the name of the host; keys are removed all the same
    #[arg(long)]
    pub full: bool,
}

/// The object of `ibtap bugreport`.
#[derive(Serialize)]
struct Made {
    file: PathBuf,
    /// The number of sources that are missing.
    missing: usize,
    /// Whether pseudonyms replace addresses.
    pseudonyms: bool,
}

/// Writes the report, and prints its path.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn run(args: &BugreportArgs, socket: &Path, format: Format) -> Result<u8, Failure> {
    let now = SystemTime::now();
    let path = args.output.clone().unwrap_or_else(|| default_path(now));
    let cannot = |error: io::Error| {
        Failure::System(match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{} exists; name another file with --output", path.display())
            }
            _ => format!("cannot write {}: {error}", path.display()),
        })
    };
    let unfinished = Unfinished::watch(interruption::signals()?);
    // First of all, because the rest takes a while.
    let file = unfinished.create(&path).map_err(cannot)?;
    let pseudonyms = match args.full {
        true => Pseudonyms::none(),
        false => Pseudonyms::new(&hostname()),
    };
    let report = Report::collect(socket, pseudonyms, Arc::clone(&unfinished));
    let written = report.write(file, now, args.full);
    if let Err(error) = written {
        unfinished.remove();
        return Err(cannot(error));
    }
    unfinished.keep();
    let made = Made {
        file: path,
        missing: report.missing.len(),
        pseudonyms: !args.full,
    };
    print(format, &[made], |all| all.iter().map(Made::text).collect())?;
    Ok(EXIT_OK)
}

impl Made {
    fn text(&self) -> String {
        let addresses = match self.pseudonyms {
            true => "pseudonyms replace addresses and the host's name",
            false => "addresses and the host's name are in it",
        };
        format!(
            "{}\nThe archive describes ibtapd, its interfaces and this host, without keys; {addresses}.\n",
            self.file.display()
        )
    }
}

fn default_path(now: SystemTime) -> PathBuf {
    let time = Utc(now).to_string();
    let seconds = time.split('.').next().unwrap_or_default();
    let time = seconds.replace(['-', ':'], "");
    format!("{FOLDER}-{time}.tar.gz").into()
}

fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The collected texts.
struct Report {
    pseudonyms: Pseudonyms,
    unfinished: Arc<Unfinished>,
    socket: PathBuf,
    end: Instant,
    silence: Option<String>,
    /// Names, descriptions and texts of files.
    files: Vec<(String, &'static str, String)>,
    /// What could not be collected, and why.
    missing: Vec<String>,
}

impl Report {
    fn collect(socket: &Path, pseudonyms: Pseudonyms, unfinished: Arc<Unfinished>) -> Report {
        let facts = facts::gather(socket, ANSWER);
        let mut report = Report {
            pseudonyms,
            unfinished,
            socket: socket.to_owned(),
            end: Instant::now() + LIMIT_OF_ALL,
            silence: facts.silence.clone(),
            files: Vec::new(),
            missing: Vec::new(),
        };
        report.add_all(&facts);
        report
    }

    fn add_all(&mut self, facts: &Facts) {
        if !rustix::process::geteuid().is_root() {
            self.missing
                .push("parts that only root may read: root did not make this report".into());
        }
        // Like ibtap doctor, the programs run where the daemon runs.
        if let [pid] = facts.processes[..]
            && let Some(error) = doctor::enter_namespace_of(pid)
        {
            self.missing.push(error);
        }
        for part in parts::parts(facts) {
            let text = match &part.netns {
                None => self.text(&part),
                Some(netns) => {
                    let there = Namespace::named(netns);
                    let text = there.and_then(|there| there.visit(|| self.text(&part)));
                    text.unwrap_or_else(|error| {
                        let why = format!("cannot enter the network namespace {netns}: {error}");
                        self.missing.push(format!("{}: {why}", part.name));
                        why
                    })
                }
            };
            let text = self.pseudonyms.apply(&text);
            // The name of an interface or file may have an address.
            let name = self.pseudonyms.apply(&part.name);
            self.files.push((name, part.about, text));
        }
    }

    /// The sources of a part, one after the other, each with its name.
    fn text(&mut self, part: &Part) -> String {
        let mut text = String::new();
        for source in &part.sources {
            let title = source.title();
            let found = self.ask(source).unwrap_or_else(|why| {
                self.missing.push(format!("{}: {title}: {why}", part.name));
                format!("not collected: {why}")
            });
            text += &format!("== {title}\n{}\n\n", found.trim_end());
        }
        text
    }

    fn ask(&self, source: &Source) -> Result<String, String> {
        let left = self.end.saturating_duration_since(Instant::now());
        let limit = LIMIT.min(left);
        if limit.is_zero() {
            return Err("the parts before have taken too long".into());
        }
        let run = |words: &Words| {
            let mut words = words.iter();
            let mut program = doctor::program(words.next().map_or("", String::as_str));
            collect::output(program.args(words), limit, &self.unfinished)
        };
        match source {
            Source::Ask(_) if self.silence.is_some() => Err("ibtapd does not answer".into()),
            Source::Ask(words) | Source::Ibtap(words) => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut ibtap = doctor::program(own);
                ibtap.arg("--socket").arg(&self.socket).args(words);
                collect::output(&mut ibtap, limit, &self.unfinished)
            }
            Source::Run(words) => run(words),
            Source::Lines(words, wanted) => run(words).map(|text| chosen(&text, wanted)),
            // NUL separates the words of a command line.
            Source::File(path) => {
                let path = path.clone();
                Ok(collect::file(|| File::open(path), limit)?.replace('\0', " "))
            }
            Source::Configuration(file) => {
                let file = file.clone();
                configuration::without_secrets(&collect::file(move || file.open(), limit)?)
            }
        }
    }

    /// The first file of the archive.
    fn readme(&self, now: SystemTime, full: bool) -> String {
        let kept = match full {
            true => "Addresses and the name of the host are in the files.",
            false => {
                "Pseudonyms replace MACs, IP addresses, GIDs, GUIDs and the name of the host, the same ones in all\n\
                 files. The vendor of a MAC, the first and the last byte of an IPv4 address, link-local prefixes and\n\
                 group addresses stay. Addresses with a common prefix have pseudonyms with a common prefix."
            }
        };
        let mut text = format!(
            "Report of `ibtap bugreport`, {}, made at {}.\n\n\
             Keys are removed: no key file is read, and in other texts long hexadecimal and base64 numbers are\n\
             replaced by \"{}\". {kept}\n\
             Names of interfaces, network namespaces, nodes and files stay. Read the files before you send them.\n\n",
            control::version::version(),
            Utc(now),
            pseudonyms::REMOVED,
        );
        if let Some(silence) = &self.silence {
            let silence = self.pseudonyms.apply(silence);
            text += &format!("The daemon could not be asked: {silence}\n\n");
        }
        text += "Files:\n";
        for (name, about, _) in &self.files {
            // Writing to a String does not fail.
            let _ = writeln!(text, "  {name}: {about}");
        }
        text += "\nNot collected:\n";
        for missing in &self.missing {
            let _ = writeln!(text, "  {}", self.pseudonyms.apply(missing));
        }
        if self.missing.is_empty() {
            text += "  nothing is missing\n";
        }
        text
    }

    fn write(&self, file: File, now: SystemTime, full: bool) -> io::Result<()> {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        let mut add = |name: &str, text: &str| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o600);
            header.set_mtime(since.as_secs());
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())
        };
        add("README.txt", &self.readme(now, full))?;
        for (name, _, text) in &self.files {
            add(name, text)?;
        }
        archive.into_inner()?.finish()?.sync_all()
    }
}

/// The lines with one of the words, and the number of other lines.
fn chosen(text: &str, words: &[&str]) -> String {
    let (chosen, others): (Vec<_>, Vec<_>) = text
        .lines()
        .partition(|line| words.iter().any(|word| line.contains(word)));
    let mut lines = chosen.join("\n");
    if !others.is_empty() {
        lines += &format!("\n({} other lines)\n", others.len());
    }
    lines
}
