//! Why a request failed.

use std::io;

/// Why the kernel, or the way to it, refused a request. The text is a whole sentence; where the
/// kernel gave a reason of its own (extended acknowledgement, kernel
/// Documentation/userspace-api/netlink/intro.rst) it is quoted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface, address or namespace.
    #[error("{what}: it does not exist{reason}")]
    NotFound {
        /// What was asked, for instance `read interface eth0`.
        what: String,
        /// The kernel's own words with a separator before them, or empty.
        reason: String,
    },
    /// The name or address is in use already.
    #[error("{what}: it exists already{reason}")]
    Exists {
        /// What was asked.
        what: String,
        /// The kernel's own words with a separator before them, or empty.
        reason: String,
    },
    /// The caller lacks CAP_NET_ADMIN in the namespace's user namespace.
    #[error(
        "{what}: not permitted; run as root or give the process CAP_NET_ADMIN in the user namespace that owns this network namespace{reason}"
    )]
    Permission {
        /// What was asked.
        what: String,
        /// The kernel's own words with a separator before them, or empty.
        reason: String,
    },
    /// Any other refusal.
    #[error("{what}: {errno}{reason}")]
    Refused {
        /// What was asked.
        what: String,
        /// The error number that the kernel answered with.
        errno: io::Error,
        /// The kernel's own words with a separator before them, or empty.
        reason: String,
    },
    /// No answer within the time limit.
    #[error("{what}: the kernel gave no answer within {seconds} s; try again")]
    Timeout {
        /// What was asked.
        what: String,
        /// The time limit in seconds.
        seconds: u64,
    },
    /// The argument can never be right; nothing was asked of the kernel.
    #[error("{what}: {reason}")]
    Invalid {
        /// What was asked.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The socket failed.
    #[error("{what}: the netlink socket failed: {source}")]
    Socket {
        /// What was asked.
        what: String,
        /// What the system call said.
        source: io::Error,
    },
}

impl Error {
    /// From a negated error number and the kernel's own words.
    pub(crate) fn from_kernel(what: &str, code: i32, message: Option<String>) -> Error {
        let what = what.to_owned();
        let reason = message.map_or_else(String::new, |m| format!(" (the kernel says: {m})"));
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

    /// Whether what was asked about does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound { .. })
    }

    /// Whether it exists already.
    pub fn is_exists(&self) -> bool {
        matches!(self, Error::Exists { .. })
    }

    /// Whether a privilege is missing.
    pub fn is_permission(&self) -> bool {
        matches!(self, Error::Permission { .. })
    }
}
