//! Output of programs and contents of files, with limits of time and size: nothing that hangs or never ends
//! stops a report.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::interruption::Unfinished;

/// Maximum number of bytes of one output or file.
const SIZE: u64 = 512 * 1024;

/// Runs `ask` in a thread of the same network namespace; `None` after the limit.
pub fn within<T: Send + 'static>(
    limit: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    started(ask).recv_timeout(limit).ok()
}

fn started<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    // After the limit, nobody waits for the result.
    thread::spawn(move || sender.send(ask()));
    receiver
}

/// The contents of a file.
///
/// # Errors
/// The reason in words.
pub fn file(
    open: impl FnOnce() -> io::Result<File> + Send + 'static,
    limit: Duration,
) -> Result<String, String> {
    let read = within(limit, move || open().and_then(contents));
    match read {
        Some(text) => text.map_err(|error| error.to_string()),
        None => Err(late(limit)),
    }
}

/// What a program prints, and its exit status unless that is 0.
///
/// # Errors
/// The reason in words.
pub fn output(
    command: &mut Command,
    limit: Duration,
    unfinished: &Unfinished,
) -> Result<String, String> {
    let end = Instant::now() + limit;
    // A group of its own: a program that hangs is killed with the programs that it has started.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = unfinished
        .start(command)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => "the program is not installed".to_owned(),
            _ => error.to_string(),
        })?;
    let ends = [
        child.stdout.take().map(|pipe| started(|| contents(pipe))),
        child.stderr.take().map(|pipe| started(|| contents(pipe))),
    ];
    let left = || end.saturating_duration_since(Instant::now());
    let mut read = ends
        .into_iter()
        .flatten()
        .map(|pipe| pipe.recv_timeout(left()));
    let text = read.try_fold(String::new(), |text, read| {
        let more = read.ok()?.unwrap_or_else(|error| format!("({error})\n"));
        Some(text + &more)
    });
    match text.and_then(|text| Some((text, status(&mut child, end, unfinished)?))) {
        Some((text, status)) if status.success() => Ok(text),
        Some((text, status)) => Ok(format!("{text}({status})\n")),
        None => {
            unfinished.kill(&mut child);
            Err(late(limit))
        }
    }
}

fn status(child: &mut Child, end: Instant, unfinished: &Unfinished) -> Option<ExitStatus> {
    loop {
        match unfinished.status(child) {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

fn late(limit: Duration) -> String {
    format!("no end within {} seconds", limit.as_secs())
}

fn contents(from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let size = from.take(SIZE).read_to_end(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if u64::try_from(size) == Ok(SIZE) {
        text += &format!("\n(cut after {} KiB)\n", SIZE / 1024);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any test here needs on a loaded machine.
    const PATIENCE: Duration = Duration::from_secs(120);

    fn shell(script: &str, limit: Duration) -> Result<String, String> {
        let unfinished = Unfinished::default();
        output(Command::new("sh").args(["-c", script]), limit, &unfinished)
    }

    #[test]
    fn both_outputs_and_the_status_of_a_program() {
        let printed = shell("echo one; echo two >&2; exit 3", PATIENCE);
        assert_eq!(printed.unwrap(), "one\ntwo\n(exit status: 3)\n");
        assert_eq!(shell("true", PATIENCE).unwrap(), "");
        let mut missing = Command::new("/nonexistent/program");
        let missing = output(&mut missing, PATIENCE, &Unfinished::default());
        assert_eq!(missing.unwrap_err(), "the program is not installed");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!(
            "sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait",
            file.display()
        );
        // A loaded machine may need more time to start the programs.
        let mut limit = Duration::from_secs(1);
        let child = loop {
            let late = shell(&script, limit).unwrap_err();
            assert!(late.starts_with("no end within"), "{late}");
            match std::fs::read_to_string(&file) {
                Ok(pid) => break pid,
                Err(_) => limit *= 2,
            }
        };
        let stat = format!("/proc/{}/stat", child.trim());
        // Killed: gone, or a zombie until its parent looks.
        let is_alive = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z "));
        let end = Instant::now() + PATIENCE;
        while is_alive() {
            assert!(Instant::now() < end, "{child} is alive");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_endless_output_is_cut() {
        let printed = shell("yes", PATIENCE).unwrap();
        assert!(printed.contains("(cut after 512 KiB)"), "{}", printed.len());
        let read = file(|| File::open("/dev/zero"), PATIENCE).unwrap();
        assert!(read.ends_with("(cut after 512 KiB)\n"));
    }

    #[test]
    fn a_file_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        file(|| File::open(none), PATIENCE).unwrap_err();
        // Nobody writes to this one: to open it takes forever.
        let fifo = folder.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let late = file(|| File::open(fifo), Duration::from_millis(100)).unwrap_err();
        assert_eq!(late, "no end within 0 seconds");
    }
}
