//! What the libraries' ways of failing come to.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

/// Of a function that gives 0, or an errno, or -1 with errno set. Manual pages and libraries do not
/// always agree on which of the two it is, so both are heeded.
pub fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(result)),
        ..0 => Err(last_error()),
    }
}

/// Of a function that gives a pointer, or NULL with errno set.
pub fn pointer<T>(result: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(result).ok_or_else(last_error)
}

/// errno, unless nobody has set it.
fn last_error() -> io::Error {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(0) | None => io::Error::other("the verbs library failed and did not say why"),
        Some(_) => error,
    }
}

/// An answer that cannot be true.
pub fn lie(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Logs that an object could not be destroyed. It is not used again, and not tried again.
pub fn destroyed(what: &str, result: c_int) -> bool {
    match check(result) {
        Ok(()) => true,
        Err(error) => {
            log::warn!("verbs: {what} could not be destroyed: {error}");
            false
        }
    }
}

/// Of a function that finds nothing to read on a descriptor that does not block.
pub fn unless_empty<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}
