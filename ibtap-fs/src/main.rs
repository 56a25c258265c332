//! `ibtap-fs`: the interfaces of a running `ibtapd` as files, as `/sys/class/net` and debugfs have
//! those of the kernel's IPoIB.
//!
//! It is a client of the control socket like `ibtap`, and a program of its own so that neither the
//! daemon nor `ibtap` has to do with FUSE: a mount that hangs, or dies, harms nobody but its users.
//!
//! Exit status: 0 after a signal or umount(8), 1 wrong usage, 2 the kernel refused.

#![forbid(unsafe_code)]

mod caller;
mod contents;
mod filesystem;
mod interfaces;
mod mount;
mod number;
mod requests;
#[cfg(test)]
mod samples;
mod tree;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use control::config::args::FsArgs;
use control::exit::{EXIT_OK, EXIT_REFUSED, EXIT_USAGE};
use fuser::{Config, Session, SessionACL};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use filesystem::Tree;
use mount::{MountError, Mountpoint};
use requests::Requests;

/// So many requests are served at once. Each may wait for the daemon.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let status = match control::exit::parse_from::<FsArgs>(std::env::args_os()) {
        Ok(args) => match run(args) {
            Ok(()) => EXIT_OK,
            Err(failure) => {
                eprintln!("ibtap-fs: {failure}");
                failure.status()
            }
        },
        Err(status) => status,
    };
    ExitCode::from(status)
}

/// Why it ends before its time; the texts are sentences.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
    #[error("the kernel's FUSE does not go on: {0}")]
    Session(io::Error),
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Failure::Mount(MountError::Mountpoint { .. }) => EXIT_USAGE,
            _ => EXIT_REFUSED,
        }
    }
}

fn run(args: FsArgs) -> Result<(), Failure> {
    // Before there is something to unmount.
    let signals = signals().map_err(Failure::Signals)?;
    let mountpoint = Mountpoint::prepare(&args.mountpoint)?;
    let (mount, device) = mountpoint.mount(!args.private)?;
    let tree = Tree::of(Requests::to(args.socket));
    let session = session(tree, device, args.private).map_err(Failure::Session)?;
    notify(NotifyState::Ready);
    let ended = await_end(signals, session);
    notify(NotifyState::Stopping);
    drop(mount);
    ended
}

fn session(tree: Tree, device: OwnedFd, private: bool) -> io::Result<Session<Tree>> {
    let acl = match private {
        true => SessionACL::Owner,
        false => SessionACL::All,
    };
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    Session::from_fd(tree, device, acl, config)
}

/// Serves until a signal comes, or until somebody has unmounted it.
fn await_end(mut signals: UnixStream, session: Session<Tree>) -> Result<(), Failure> {
    let (tell, told) = mpsc::channel();
    let unmounted = tell.clone();
    // Where the other one was first, nobody listens to the second any longer.
    thread::spawn(move || drop(unmounted.send(session.run().map_err(Failure::Session))));
    thread::spawn(move || {
        let caught = signals.read(&mut [0]).map_err(Failure::Signals);
        drop(tell.send(caught.map(drop)));
    });
    first(&told)
}

fn first(told: &Receiver<Result<(), Failure>>) -> Result<(), Failure> {
    // Without a sender left both threads have panicked, which they have said themselves.
    told.recv()
        .unwrap_or_else(|_| Err(Failure::Session(io::Error::other("its threads are gone"))))
}

/// A stream that becomes readable with each of the signals that end it.
fn signals() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}

/// Tells systemd, if it listens.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        eprintln!("ibtap-fs: cannot notify the service manager: {error}");
    }
}
