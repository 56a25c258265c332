//! Why a TAP could not be opened, in sentences for the administrator.

use rustix::io::Errno;

use super::holder::{Holder, holder_of};

/// Why a TAP could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// No interface can have this name.
    #[error("{name:?} cannot be an interface name: {reason}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The number of queues is out of range.
    #[error("a TAP cannot have {0} queues; give a number from 1 to 256")]
    Queues(usize),
    /// The TUN driver is missing.
    #[error(
        "/dev/net/tun does not exist or has no driver; load it with `modprobe tun`, in a container pass `--device /dev/net/tun`"
    )]
    NoDevice,
    /// The device node cannot be opened.
    #[error(
        "opening /dev/net/tun failed: {0}; run as root or give the user access to the device node, in a container pass `--device /dev/net/tun`"
    )]
    Device(Errno),
    /// CAP_NET_ADMIN is missing.
    #[error(
        "making or opening the TAP interface {0} is not permitted; run as root or with CAP_NET_ADMIN (in a container: `--cap-add NET_ADMIN`)"
    )]
    Permission(String),
    /// The name belongs to an interface that is no TAP.
    #[error(
        "the name {name} is taken by an interface of kind {kind}; choose another name, or delete that interface with `ip link del {name}`"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The link kind.
        kind: String,
    },
    /// Another process has the TAP open.
    #[error("the TAP interface {name} is in use by {holder}; stop that, or choose another name")]
    Held {
        /// The name.
        name: String,
        /// Who holds it, as far as this process may see.
        holder: Holder,
    },
    /// The queues that were passed belong to an interface that is not here.
    #[error("the TAP interface {name} is in another network namespace")]
    Elsewhere {
        /// Its name there.
        name: String,
    },
    /// There is no such interface to take over.
    #[error("there is no TAP interface {0}; it may have been deleted a moment ago")]
    Missing(String),
    /// A TAP of another namespace takes part in something that it would lose on the way.
    #[error(
        "the TAP interface {name} {part}; it cannot be taken over in another network namespace while that is so"
    )]
    TakesPart {
        /// The name.
        name: String,
        /// What it takes part in, such as `is a port of bridge br0`.
        part: String,
    },
    /// The network namespace of the TAP cannot be entered.
    #[error(
        "entering the network namespace of the TAP interface {name} failed: {source}; that takes CAP_SYS_ADMIN"
    )]
    Namespace {
        /// The name.
        name: String,
        /// What the system call said.
        source: std::io::Error,
    },
    /// A TAP that came here to be opened could not go back.
    #[error(
        "the TAP interface {name} could not go back to its network namespace and is here now, with the name {called}: {source}"
    )]
    Stranded {
        /// Its name there.
        name: String,
        /// Its name here.
        called: String,
        /// Why.
        source: Box<rtnl::Error>,
    },
    /// The kernel refused a setting.
    #[error("could not {what} of the TAP interface {name}: {errno}")]
    Setup {
        /// The name.
        name: String,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// Reading the interface's state failed.
    #[error(transparent)]
    Netlink(#[from] rtnl::Error),
}

impl TapError {
    pub(super) fn held(name: &str) -> TapError {
        TapError::Held {
            name: name.to_owned(),
            holder: holder_of(name),
        }
    }

    /// From opening the device node.
    pub(super) fn device(errno: Errno) -> TapError {
        match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => TapError::NoDevice,
            errno => TapError::Device(errno),
        }
    }

    /// From TUNSETIFF.
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

    /// Whether trying again after a moment may help.
    pub fn is_held(&self) -> bool {
        matches!(self, TapError::Held { .. })
    }
}
