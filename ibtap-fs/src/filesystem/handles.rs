//! Open files and directories, with the snapshots that they read from.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Inode number.
    pub inode: u64,
    /// Whether the entry is a directory; otherwise it is a file.
    pub is_directory: bool,
    /// Name.
    pub name: OsString,
}

/// An open file or directory. All pieces that are read belong to one snapshot; a read from the beginning
/// takes a new one.
#[derive(Debug, Default)]
pub struct Handle {
    contents: Mutex<Option<Vec<u8>>>,
    listing: Mutex<Option<Vec<Listed>>>,
}

impl Handle {
    /// Reads up to `size` bytes from `offset`; `now` returns the current contents.
    ///
    /// # Errors
    /// Errors of `now`.
    pub fn read(
        &self,
        offset: u64,
        size: u32,
        now: impl FnOnce() -> Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        let contents = of_moment(&self.contents, offset, now, <[u8]>::to_vec)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Ok(contents.into_iter().take(size).collect())
    }

    /// Lists a directory from the entry with number `offset`; `now` returns the current entries.
    ///
    /// # Errors
    /// Errors of `now`.
    pub fn list(
        &self,
        offset: u64,
        now: impl FnOnce() -> Result<Vec<Listed>, Errno>,
    ) -> Result<Vec<Listed>, Errno> {
        of_moment(&self.listing, offset, now, <[Listed]>::to_vec)
    }
}

/// The items from `offset`. A read from the beginning takes a new snapshot.
fn of_moment<T, R: Default>(
    items: &Mutex<Option<Vec<T>>>,
    offset: u64,
    now: impl FnOnce() -> Result<Vec<T>, Errno>,
    copy: impl Fn(&[T]) -> R,
) -> Result<R, Errno> {
    let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
    if offset == 0 || items.is_none() {
        *items = Some(now()?);
    }
    let rest = items
        .as_deref()
        .zip(usize::try_from(offset).ok())
        .and_then(|(items, offset)| items.get(offset..));
    Ok(rest.map(copy).unwrap_or_default())
}

/// All open handles, by number.
#[derive(Debug, Default)]
pub struct Handles {
    open: HashMap<u64, Arc<Handle>>,
    last: u64,
}

impl Handles {
    /// Adds a handle. Returns its number.
    pub fn opened(&mut self, handle: Handle) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Arc::new(handle));
        self.last
    }

    /// The handle with this number; a new one if the number is unknown.
    pub fn get(&self, number: u64) -> Arc<Handle> {
        self.open.get(&number).cloned().unwrap_or_default()
    }

    /// Removes a handle.
    pub fn closed(&mut self, number: u64) {
        self.open.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_are_of_one_moment_until_it_begins_anew() {
        let handle = Handle::default();
        let read = |offset, text: &str| {
            let now = text.as_bytes().to_vec();
            String::from_utf8(handle.read(offset, 3, || Ok(now)).unwrap()).unwrap()
        };
        assert_eq!(read(0, "before"), "bef");
        assert_eq!(read(3, "after!"), "ore");
        assert_eq!(read(6, "after!"), "");
        assert_eq!(read(0, "after!"), "aft");
        assert_eq!(read(u64::MAX, "after!"), "");
    }

    #[test]
    fn a_failure_is_no_contents() {
        let handle = Handle::default();
        assert_eq!(handle.read(0, 9, || Err(Errno::NODEV)), Err(Errno::NODEV));
        assert_eq!(handle.read(0, 9, || Ok(b"x".to_vec())), Ok(b"x".to_vec()));
    }

    #[test]
    fn closed_handles_are_gone() {
        let mut handles = Handles::default();
        let number = handles.opened(Handle::default());
        let handle = handles.get(number);
        assert_eq!(Arc::strong_count(&handle), 2);
        handles.closed(number);
        assert_eq!(Arc::strong_count(&handle), 1);
        assert_ne!(handles.opened(Handle::default()), number);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_make_the_whole(contents: Vec<u8>, size in 1u32..50) {
            let handle = Handle::default();
            let mut read = Vec::new();
            loop {
                let piece = handle.read(read.len() as u64, size, || Ok(contents.clone())).unwrap();
                if piece.is_empty() {
                    break;
                }
                read.extend(piece);
            }
            prop_assert_eq!(read, contents);
        }
    }
}
