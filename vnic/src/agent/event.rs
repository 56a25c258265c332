//! What people may want to know of an agent.

use std::fmt;

use proto::Gid;

use super::Invalid;

/// Something that belongs in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Somebody tried to manage who may not; told once for each.
    NotManager {
        /// Where from.
        gid: Gid,
    },
    /// A second manager tried to while the first one does; told once for each.
    NotOwner {
        /// Where from.
        gid: Gid,
        /// Who manages.
        owner: Gid,
    },
    /// Another one manages now.
    Owned {
        /// Where it is.
        gid: Gid,
    },
    /// The manager has said that it stands by.
    Released {
        /// Where it is.
        gid: Gid,
    },
    /// A manager wanted something that cannot be.
    Invalid {
        /// Where it is.
        gid: Gid,
        /// The virtual port that it was about.
        index: u8,
        /// What is wrong.
        what: Invalid,
    },
    /// A manager wanted a virtual port that cannot be made.
    NotCreated {
        /// Where it is.
        gid: Gid,
        /// The virtual port.
        index: u8,
        /// Why.
        why: String,
    },
    /// The host could not do what a manager wanted.
    Failed {
        /// Where it is.
        gid: Gid,
        /// The virtual port.
        index: u8,
        /// Why.
        why: String,
    },
    /// A virtual port has more news than it may tell; told once each time that happens.
    TrapsSuppressed {
        /// The virtual port.
        index: u8,
    },
}

impl Event {
    /// Whether somebody should do something about it.
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
                "refused management from {gid}, which is not among the managers of this port"
            ),
            Event::NotOwner { gid, owner } => write!(
                f,
                "refused management from {gid} while {owner} manages: two active managers?"
            ),
            Event::Owned { gid } => write!(f, "managed by {gid}"),
            Event::Released { gid } => write!(f, "manager {gid} stands by"),
            Event::Invalid { gid, index, what } => {
                write!(
                    f,
                    "refused what {gid} wants of virtual port {index}: {what}"
                )
            }
            Event::NotCreated { gid, index, why } => {
                write!(f, "no virtual port {index} for {gid}: {why}")
            }
            Event::Failed { gid, index, why } => {
                write!(
                    f,
                    "cannot do what {gid} wants of virtual port {index}: {why}"
                )
            }
            Event::TrapsSuppressed { index } => write!(
                f,
                "virtual port {index} changes too often to tell its manager of each time"
            ),
        }
    }
}
