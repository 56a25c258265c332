//! Errors of requests.

use std::io;

/// The reason why a request failed. The text is a whole sentence. It includes the kernel's message, if any
/// (extended acknowledgement, kernel Documentation/userspace-api/netlink/intro.rst).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface, address or namespace does not exist.
    #[error("cannot {what}: not found{reason}")]
    NotFound {
        /// The requested action, for instance `read interface eth0`.
        what: String,
        /// The kernel's message with a separator before it, or empty.
        reason: String,
    },
    /// The name or address is already in use.
    #[error("cannot {what}: already exists{reason}")]
    Exists {
        /// The requested action.
        what: String,
        /// The kernel's message with a separator before it, or empty.
        reason: String,
    },
    /// The caller lacks CAP_NET_ADMIN in the user namespace of the network namespace.
    #[error(
        "cannot {what}: not permitted; run as root or give the process CAP_NET_ADMIN in the user namespace that owns this network namespace{reason}"
    )]
    Permission {
        /// The requested action.
        what: String,
        /// The kernel's message with a separator before it, or empty.
        reason: String,
    },
    /// The kernel refused for another reason.
    #[error("cannot {what}: {errno}{reason}")]
    Refused {
        /// The requested action.
        what: String,
        /// The kernel's error number.
        errno: io::Error,
        /// The kernel's message with a separator before it, or empty.
        reason: String,
    },
    /// The kernel did not answer within the time limit.
    #[error("cannot {what}: no answer from the kernel within {seconds} s; try again")]
    Timeout {
        /// The requested action.
        what: String,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// The argument is invalid; no request was sent.
    #[error("cannot {what}: {reason}")]
    Invalid {
        /// The requested action.
        what: String,
        /// The fault of the argument.
        reason: String,
    },
    /// The socket failed.
    #[error("cannot {what}: the netlink socket failed: {source}")]
    Socket {
        /// The requested action.
        what: String,
        /// The error of the system call.
        source: io::Error,
    },
}

impl Error {
    /// Converts a negated error number and the kernel's message.
    pub(crate) fn from_kernel(what: &str, code: i32, message: Option<String>) -> Error {
        let what = what.to_owned();
        let reason = message.map_or_else(String::new, |m| format!(" (kernel: {m})"));
        match code.wrapping_neg() {
            libc::ENODEV | libc::ENOENT | libc::EADDRNOTAVAIL => Error::NotFound { what, reason },
            libc::EEXIST => Error::Exists { what, reason },
            libc::EPERM | libc::EACCES => Error::Permission { what, reason },
            number => Error::Refused {
                what,
                errno: io::Error::from_raw_os_error(number),
                reason,
            },
        }
    }

    pub(crate) fn socket(what: &str, source: io::Error) -> Error {
        Error::Socket {
            what: what.to_owned(),
            source,
        }
    }

    /// Whether the requested object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound { .. })
    }

    /// Whether the object already exists.
    pub fn is_exists(&self) -> bool {
        matches!(self, Error::Exists { .. })
    }
}
