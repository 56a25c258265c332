//! The state file on disk.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{State, StateError};

const FILE: &str = "state";
const NEW: &str = "state.new";
const LOCK: &str = "lock";

/// The directory of the state, locked for one manager.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Holds the lock while it is open.
    _lock: File,
}

/// Result of opening a [`Store`].
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Its state.
    pub state: State,
    /// Whether there was no state before.
    pub new: bool,
}

/// Steps of writing a file. Each step can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Create,
    /// With this number of bytes written before.
    Write(usize),
    Sync,
    Rename,
    SyncDirectory,
}

impl Store {
    /// Locks the directory, creating it if necessary, and reads the state. Without a file, the state is empty
    /// and `id` becomes the id of the manager.
    ///
    /// # Errors
    /// One sentence: another manager uses the directory, it is not accessible, or the file is damaged.
    pub fn open(directory: &Path, id: u64) -> Result<Opened, StateError> {
        let fault = |what: String| StateError(what);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| {
                fault(format!(
                    "cannot create the state directory {}: {error}",
                    directory.display()
                ))
            })?;
        let lock = lock(directory)?;
        let path = directory.join(FILE);
        let (state, new) = match std::fs::read(&path) {
            Ok(file) => (
                State::decode(&file).map_err(|error| damaged(&path, &error))?,
                false,
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let state = State {
                    manager: id,
                    ..State::default()
                };
                (state, true)
            }
            Err(error) => {
                return Err(fault(format!(
                    "cannot read the state file {}: {error}",
                    path.display()
                )));
            }
        };
        let store = Store {
            directory: directory.into(),
            _lock: lock,
        };
        Ok(Opened { store, state, new })
    }

    /// Writes a state. It is on disk after the return; until then the former state is.
    ///
    /// # Errors
    /// One sentence, for example for a full disk. The former state is still stored; after a failed sync of the
    /// directory, either the former or the new state.
    pub fn save(&self, state: &State) -> Result<(), StateError> {
        self.save_by(state, &mut |_| Ok(()))
    }

    /// [`Store::save`], with a call before each step.
    pub(super) fn save_by(
        &self,
        state: &State,
        before: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<(), StateError> {
        let file = state.encode()?;
        self.write(&file, before).map_err(|error| {
            StateError(format!(
                "cannot write the state to {}: {error}",
                self.directory.join(FILE).display()
            ))
        })
    }

    fn write(&self, file: &[u8], before: &mut dyn FnMut(Step) -> io::Result<()>) -> io::Result<()> {
        let new = self.directory.join(NEW);
        before(Step::Create)?;
        let mut out = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        for (at, part) in file.chunks(4096).enumerate() {
            before(Step::Write(at * 4096))?;
            out.write_all(part)?;
        }
        before(Step::Sync)?;
        out.sync_all()?;
        before(Step::Rename)?;
        std::fs::rename(&new, self.directory.join(FILE))?;
        // Otherwise the name could refer to the former file after a power failure.
        before(Step::SyncDirectory)?;
        File::open(&self.directory)?.sync_all()
    }
}

fn lock(directory: &Path) -> Result<File, StateError> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| StateError(format!("cannot open {}: {error}", path.display())))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError(format!(
            "another ibtap-em uses the state directory {}; stop it, or configure another state_dir",
            directory.display()
        ))),
        Err(error) => Err(StateError(format!(
            "cannot lock {}: {error}",
            path.display()
        ))),
    }
}

fn damaged(path: &Path, error: &StateError) -> StateError {
    StateError(format!(
        "the state file {} is damaged: {error}; restore a copy, or remove it to start anew (ports may then \
         get other LIDs and addresses)",
        path.display()
    ))
}
