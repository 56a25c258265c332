//! Converts the libraries' results to [`io::Result`].

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

/// Result of a function that returns 0, an errno, or -1 with errno set. Manual pages and libraries do
/// not always agree on the last two, so both are accepted.
pub fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(result)),
        ..0 => Err(last_error()),
    }
}

/// Result of a function that returns a pointer, or NULL with errno set.
pub fn pointer<T>(result: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(result).ok_or_else(last_error)
}

/// The error of errno, if it is set.
fn last_error() -> io::Error {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(0) | None => io::Error::other("the verbs library failed without an error number"),
        Some(_) => error,
    }
}

/// Error for an invalid answer of the library.
pub fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Logs an error of destroying an object, which is then neither used nor destroyed again.
pub fn destroyed(what: &str, result: c_int) -> bool {
    match check(result) {
        Ok(()) => true,
        Err(error) => {
            log::warn!("verbs: cannot destroy {what}: {error}");
            false
        }
    }
}

/// Result of a read from a nonblocking descriptor: `None` if there is nothing to read.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::sys::Failing;

    #[test]
    fn both_ways_of_failing_are_heeded() {
        assert!(check(0).is_ok());
        let errno = |result| check(result).unwrap_err().raw_os_error();
        assert_eq!(errno(libc::EBUSY), Some(libc::EBUSY));
        assert_eq!(errno(Failing::failing(libc::ENODEV)), Some(libc::ENODEV));
        assert_eq!(errno(Failing::failing(0)), None);
        let null: *mut u8 = Failing::failing(libc::ENOMEM);
        assert_eq!(
            pointer(null).unwrap_err().raw_os_error(),
            Some(libc::ENOMEM)
        );
    }

    #[test]
    fn nothing_to_read_is_no_error() {
        assert!(unless_empty(check(libc::EAGAIN)).unwrap().is_none());
        assert!(unless_empty(check(0)).unwrap().is_some());
        assert!(unless_empty(check(libc::EIO)).is_err());
    }
}
