//! Open files and directories, and what each has read so far.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its inode number.
    pub inode: u64,
    /// Whether it is a directory; else it is a file.
    pub is_directory: bool,
    /// Its name.
    pub name: OsString,
}

/// An open file or directory. What is read of it, in however many pieces, is of one moment; going
/// back to the beginning makes that the present one.
#[derive(Debug, Default)]
pub struct Handle {
    contents: Mutex<Option<Vec<u8>>>,
    listing: Mutex<Option<Vec<Listed>>>,
}

impl Handle {
    /// Up to `size` bytes from `offset` of the contents, which `now` gives.
    ///
    /// # Errors
    /// Those of `now`.
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

    /// What a directory lists from the entry of number `offset` on; `now` gives its contents.
    ///
    /// # Errors
    /// Those of `now`.
    pub fn list(
        &self,
        offset: u64,
        now: impl FnOnce() -> Result<Vec<Listed>, Errno>,
    ) -> Result<Vec<Listed>, Errno> {
        of_moment(&self.listing, offset, now, <[Listed]>::to_vec)
    }
}

/// The items from `offset` on, which are fetched at the beginning only.
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

/// All that are open, by number.
#[derive(Debug, Default)]
pub struct Handles {
    open: HashMap<u64, Arc<Handle>>,
    last: u64,
}

impl Handles {
    /// Gives one a number.
    pub fn opened(&mut self, handle: Handle) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Arc::new(handle));
        self.last
    }

    /// The one of this number; a new one where the kernel names none that is open.
    pub fn get(&self, number: u64) -> Arc<Handle> {
        self.open.get(&number).cloned().unwrap_or_default()
    }

    /// Forgets one.
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
