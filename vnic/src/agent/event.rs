//! Events of an agent, for the log.

use std::fmt;

use proto::Gid;

use super::Invalid;

/// An event of an agent. `Display` gives the log line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A sender without permission tried to manage. Reported once for each sender.
    NotManager {
        /// GID of the sender.
        gid: Gid,
    },
    /// A second manager sent a Set during the owner's lease. Reported once for each sender.
    NotOwner {
        /// GID of the sender.
        gid: Gid,
        /// GID of the owner.
        owner: Gid,
    },
    /// A manager became the owner.
    Owned {
        /// GID of the manager.
        gid: Gid,
    },
    /// The owner announced that it is now standby.
    Released {
        /// GID of the manager.
        gid: Gid,
    },
    /// A manager sent an invalid value.
    Invalid {
        /// GID of the manager.
        gid: Gid,
        /// Index of the virtual port.
        index: u8,
        /// The invalid value.
        what: Invalid,
    },
    /// The virtual port that a manager requested cannot be created.
    NotCreated {
        /// GID of the manager.
        gid: Gid,
        /// Index of the virtual port.
        index: u8,
        /// Reason.
        why: String,
    },
    /// The host could not apply a manager's settings.
    Failed {
        /// GID of the manager.
        gid: Gid,
        /// Index of the virtual port.
        index: u8,
        /// Reason.
        why: String,
    },
    /// There are too many Sets, or changes of one virtual port. Reported once a minute.
    SetsLimited {
        /// GID of the manager.
        gid: Gid,
    },
    /// A virtual port exceeded the limit of traps. Reported once for each window.
    TrapsSuppressed {
        /// Index of the virtual port.
        index: u8,
    },
}

impl Event {
    /// Whether the log level is warning.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        !matches!(
            self,
            Event::Owned { .. } | Event::Released { .. } | Event::TrapsSuppressed { .. }
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::NotManager { gid } => write!(
                f,
                "refused management from {gid}: not in `managers` of this port"
            ),
            Event::NotOwner { gid, owner } => write!(
                f,
                "refused management from {gid}: {owner} manages this port (two active managers?)"
            ),
            Event::Owned { gid } => write!(f, "managed by {gid}"),
            Event::Released { gid } => write!(f, "manager {gid} is now standby"),
            Event::Invalid { gid, index, what } => {
                write!(
                    f,
                    "refused request of {gid} for virtual port {index}: {what}"
                )
            }
            Event::NotCreated { gid, index, why } => {
                write!(f, "cannot create virtual port {index} for {gid}: {why}")
            }
            Event::Failed { gid, index, why } => {
                write!(
                    f,
                    "cannot apply settings of {gid} to virtual port {index}: {why}"
                )
            }
            Event::SetsLimited { gid } => write!(
                f,
                "{gid} sends too many Sets: some are dropped (forged datagrams?)"
            ),
            Event::TrapsSuppressed { index } => write!(
                f,
                "virtual port {index} changes too often: traps to its manager are delayed"
            ),
        }
    }
}
