//! `ibtap-fs`: the interfaces of a running `ibtapd` as files, like those of the kernel's IPoIB in
//! `/sys/class/net` and debugfs; its ports like those of `/sys/class/infiniband`.
//!
//! A client of the control socket, like `ibtap`. FUSE needs a separate program: if a mount hangs or ends,
//! only its users are affected.
//!
//! Exit status: 0 after a signal or umount(8), 1 wrong usage, 2 the kernel refused.

#![forbid(unsafe_code)]

mod caller;
mod contents;
mod filesystem;
mod handover;
mod interfaces;
mod mount;
mod number;
mod paths;
mod ports;
mod recent;
mod remembered;
mod requests;
#[cfg(test)]
mod samples;
mod tree;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use control::config::args::FsArgs;
use control::exit::{EXIT_OK, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE};
use control::output::complain;
use control::signals::{SIGHUP, SIGINT, SIGTERM, Signals};
use fuser::{Config, Session, SessionACL};
use sd_notify::NotifyState;

use filesystem::Tree;
use mount::{MountError, Mountpoint};
use requests::Requests;

/// Number of threads that serve requests. Each may wait for the daemon.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let status = match control::exit::parse_from::<FsArgs>(std::env::args_os()) {
        Ok(FsArgs {
            probe: Some(path), ..
        }) => match mount::probe(&path) {
            true => EXIT_OK,
            false => EXIT_UNREACHABLE,
        },
        Ok(args) => match run(args) {
            Ok(()) => EXIT_OK,
            Err(failure) => {
                control::logging::report_end("ibtap-fs", &failure);
                failure.status()
            }
        },
        Err(status) => status,
    };
    ExitCode::from(status)
}

/// An error that ends the program; the texts are sentences.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
    #[error("the FUSE connection failed: {0}")]
    Session(io::Error),
    #[error("cannot listen on {}: {source}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error(
        "cannot hand the mount over on {0}: {source}; start ibtap-fs --take {0} first",
        path.display()
    )]
    Give { path: PathBuf, source: io::Error },
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
    // Before the mount, so that a signal always unmounts.
    let signals = Signals::catch(&[SIGTERM, SIGINT, SIGHUP]).map_err(Failure::Signals)?;
    let tree = Tree::of(Requests::to(args.socket));
    if let Some(path) = args.take {
        return serve_taken(tree, signals, &path);
    }
    let Some(mountpoint) = args.mountpoint else {
        unreachable!("clap requires the mount point otherwise");
    };
    let (mount, device) = Mountpoint::prepare(&mountpoint)?.mount(!args.private)?;
    if let Some(path) = args.give {
        handover::give(&path, device).map_err(|source| Failure::Give { path, source })?;
        mount.leave();
        return Ok(());
    }
    let acl = match args.private {
        true => SessionACL::Owner,
        false => SessionACL::All,
    };
    let session = session(tree, device, acl)?;
    notify(NotifyState::Ready);
    let ended = await_end(signals, move || session.run().map_err(Failure::Session));
    notify(NotifyState::Stopping);
    drop(mount);
    ended
}

/// Serves a mount of `ibtap-fs --give`. The kernel has checked the users of a private one.
fn serve_taken(tree: Tree, signals: Signals, path: &Path) -> Result<(), Failure> {
    let failed = |source| Failure::Listen {
        path: path.to_owned(),
        source,
    };
    let listener = handover::listen(path).map_err(failed)?;
    notify(NotifyState::Ready);
    let ended = await_end(signals, move || {
        let (device, giver) = handover::take(&listener).map_err(Failure::Session)?;
        let session = session(tree, device, SessionACL::All)?;
        handover::confirm(giver).map_err(Failure::Session)?;
        session.run().map_err(Failure::Session)
    });
    notify(NotifyState::Stopping);
    ended
}

fn session(tree: Tree, device: OwnedFd, acl: SessionACL) -> Result<Session<Tree>, Failure> {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    Session::from_fd(tree, device, acl, config).map_err(Failure::Session)
}

/// Serves until a signal arrives or the file system is unmounted.
fn await_end(
    mut signals: Signals,
    serve: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (sender, results) = mpsc::channel();
    let unmounted = sender.clone();
    // After the first result, the second is dropped.
    thread::spawn(move || drop(unmounted.send(serve())));
    thread::spawn(move || {
        let caught = signals.wait().map_err(Failure::Signals);
        drop(sender.send(caught));
    });
    first(&results)
}

fn first(results: &Receiver<Result<(), Failure>>) -> Result<(), Failure> {
    // No sender is left if both threads panicked; each panic was printed.
    results
        .recv()
        .unwrap_or_else(|_| Err(Failure::Session(io::Error::other("its threads ended"))))
}

/// Notifies systemd, if it listens.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        let what = format_args!("cannot notify systemd: {error}");
        complain("ibtap-fs", what);
    }
}
