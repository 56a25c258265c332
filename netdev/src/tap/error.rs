//! Errors of opening a TAP, as sentences for the administrator.

use rustix::io::Errno;

use super::holder::{Holder, holder_of};

/// The reason why a TAP could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// An interface cannot have this name.
    #[error("{name:?} cannot be an interface name: {reason}")]
    Name {
        /// The name.
        name: String,
        /// The fault of the name.
        reason: &'static str,
    },
    /// The number of queues is out of range.
    #[error("a TAP cannot have {0} queues; give a number from 1 to 256")]
    Queues(usize),
    /// The TUN driver is missing.
    #[error(
        "/dev/net/tun does not exist or has no driver; load it with `modprobe tun`; in a container, pass `--device /dev/net/tun`"
    )]
    NoDevice,
    /// The device node cannot be opened.
    #[error(
        "cannot open /dev/net/tun: {0}; run as root or give the user access to the device node; in a container, pass `--device /dev/net/tun`"
    )]
    Device(Errno),
    /// CAP_NET_ADMIN is missing.
    #[error(
        "cannot make or open the TAP interface {0}: not permitted; run as root or with CAP_NET_ADMIN (in a container: `--cap-add NET_ADMIN`)"
    )]
    Permission(String),
    /// The name belongs to an interface that is not a TAP.
    #[error(
        "the name {name} belongs to an interface of kind {kind}; choose another name or delete the interface with `ip link del {name}`"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The link kind.
        kind: String,
    },
    /// Another process has the TAP open.
    #[error(
        "the TAP interface {name} is in use by {holder}; stop the process or choose another name"
    )]
    Held {
        /// The name.
        name: String,
        /// The holder, as far as this process may see it.
        holder: Holder,
    },
    /// The interface of the inherited queues is in another network namespace.
    #[error("the TAP interface {name} is in another network namespace")]
    Elsewhere {
        /// The interface's name there.
        name: String,
    },
    /// The interface to take over does not exist.
    #[error("the TAP interface {0} does not exist; it may have been deleted a moment ago")]
    Missing(String),
    /// A TAP of another namespace has relations that a move would end.
    #[error(
        "cannot take over the TAP interface {name} in another network namespace: it {part}; change that first"
    )]
    TakesPart {
        /// The name.
        name: String,
        /// The relation, such as `is a port of br0`.
        part: String,
    },
    /// The network namespace of the TAP cannot be entered.
    #[error(
        "cannot enter the network namespace of the TAP interface {name}: {source}; this needs CAP_SYS_ADMIN"
    )]
    Namespace {
        /// The name.
        name: String,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A TAP that was moved here could not be moved back.
    #[error(
        "cannot move the TAP interface {name} back to its network namespace: {source}; it is in this namespace now, with the name {called}"
    )]
    Stranded {
        /// The name in its namespace.
        name: String,
        /// The name here.
        called: String,
        /// The reason.
        source: Box<rtnl::Error>,
    },
    /// The kernel refused a setting.
    #[error("TAP interface {name}: cannot {what}: {errno}")]
    Setup {
        /// The name.
        name: String,
        /// The action.
        what: &'static str,
        /// The error of the kernel.
        errno: Errno,
    },
    /// The interface's state could not be read.
    #[error(transparent)]
    Netlink(#[from] rtnl::Error),
}

impl TapError {
    pub(super) fn held(name: &str) -> TapError {
        TapError::Held {
            name: name.to_owned(),
            holder: Holder::Unsought,
        }
    }

    /// Finds the holder of a held TAP: searches all processes of the calling thread's network namespace.
    #[must_use]
    pub fn with_holder(self) -> TapError {
        match self {
            TapError::Held { name, .. } => TapError::Held {
                holder: holder_of(&name),
                name,
            },
            other => other,
        }
    }

    /// An error of opening the device node.
    pub(super) fn device(errno: Errno) -> TapError {
        match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => TapError::NoDevice,
            errno => TapError::Device(errno),
        }
    }

    /// An error of TUNSETIFF.
    pub(super) fn attach(name: &str, errno: Errno) -> TapError {
        match errno {
            Errno::PERM | Errno::ACCESS => TapError::Permission(name.to_owned()),
            Errno::BUSY => TapError::held(name),
            errno => TapError::setup(name, "open a queue", errno),
        }
    }

    pub(super) fn setup(name: &str, what: &'static str, errno: Errno) -> TapError {
        TapError::Setup {
            name: name.to_owned(),
            what,
            errno,
        }
    }

    /// Whether the error may disappear after a moment.
    pub fn is_held(&self) -> bool {
        matches!(self, TapError::Held { .. })
    }
}
