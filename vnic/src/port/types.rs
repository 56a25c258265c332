//! What goes in and comes out.

use proto::{Gid, Mac, Qpn};

use crate::Lid;
use crate::directory::NodeAddress;
use crate::packet::Prefix;

/// What a virtual port is, besides what its manager says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The interface's own address.
    pub mac: Mac,
    /// Where the port is on the fabric.
    pub local: NodeAddress,
    /// Learn from received frames where addresses are, and flood frames to those that are not known.
    /// Else the rules are those of the kernel's driver.
    pub learning: bool,
    /// Milliseconds after which an address that was not heard of is forgotten; 0: never.
    pub ageing_ms: u64,
    /// Addresses that are learned from received frames, per replica.
    pub mac_limit: usize,
    /// The key of the flow hash: a secret of the process, the same for all replicas of one port.
    pub hash_key: u64,
    /// Whether this replica is the one that tells the control side of addresses behind the interface.
    pub tells: bool,
}

impl Settings {
    /// Addresses that are learned unless configured otherwise.
    pub const MAC_LIMIT: usize = 131_072;
    /// Milliseconds until an address is forgotten unless configured otherwise.
    pub const AGEING_MS: u64 = 300_000;
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mac: [0; 6],
            local: NodeAddress {
                gid: Gid([0; 16]),
                qpn: Qpn::new(0),
            },
            learning: true,
            ageing_ms: Settings::AGEING_MS,
            mac_limit: Settings::MAC_LIMIT,
            hash_key: 0,
            tells: true,
        }
    }
}

/// Where a datagram came from, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The sender's GID.
    pub src_gid: Gid,
    /// The sender's queue pair.
    pub src_qpn: Qpn,
    /// Sent to the multicast queue pair number.
    pub multicast: bool,
}

impl Meta {
    /// Where the sender is.
    #[must_use]
    pub const fn source(&self) -> NodeAddress {
        NodeAddress {
            gid: self.src_gid,
            qpn: self.src_qpn,
        }
    }
}

/// Where packets go on the fabric: a slot of the replica's tables. Good until the next call that learns,
/// sends or configures: use it at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// One member of the switch.
    Node(u32),
    /// A group of members.
    Group(u32),
}

/// What a frame counts as once it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    pub(super) group: bool,
    pub(super) tagged: bool,
    pub(super) sibling: bool,
}

/// Lengths of the frames that a send of the host's becomes, in bytes from the destination address on, tags
/// included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Of every frame but the last.
    pub full: usize,
    /// How many there are.
    pub count: usize,
    /// Of the last.
    pub last: usize,
}

impl Sizes {
    /// A single frame.
    #[must_use]
    pub const fn one(len: usize) -> Sizes {
        Sizes {
            full: len,
            count: 1,
            last: len,
        }
    }
}

/// What to do with a frame from the TAP. A frame that is not dropped here is to be counted by
/// [`VeswPort::count_sent`](super::VeswPort::count_sent) or
/// [`VeswPort::count_unsent`](super::VeswPort::count_unsent), once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// Put each frame that it becomes between header and trailer, and send that as one datagram.
    Fabric {
        /// The header of all these packets.
        prefix: Prefix,
        /// Where to.
        to: Target,
        /// What it counts as.
        class: Class,
    },
    /// Give it, uncut, to the virtual port of this daemon that has this LID on the same switch, by
    /// [`VeswPort::from_sibling`](super::VeswPort::from_sibling).
    Sibling {
        /// Its LID.
        lid: Lid,
        /// What it counts as.
        class: Class,
    },
    /// Dropped and counted.
    Dropped,
}

/// Why a frame was not sent after all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// The fabric had no room.
    NoRoom,
    /// The fabric refused it, or there is no way to its destination.
    Refused,
    /// It is larger than the MTU allows.
    TooBig,
    /// Its headers do not add up.
    BadFrame,
    /// There is no destination LID.
    NoDestination,
    /// The port does not forward.
    State,
}

/// Where an Ethernet address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Behind the virtual port itself.
    Here,
    /// Behind the member with this LID.
    At(Lid),
}

/// What one replica tells the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// An address was heard of.
    Mac {
        /// The address.
        mac: Mac,
        /// Where it is.
        place: Place,
    },
    /// An address was to move too often, and stays for a while.
    MacKept {
        /// The address.
        mac: Mac,
    },
    /// A member was heard of.
    Node {
        /// Its LID.
        lid: Lid,
        /// Where it is.
        address: NodeAddress,
    },
    /// A LID was to move too often, and stays for a while.
    NodeKept {
        /// The LID.
        lid: Lid,
    },
    /// The control side was told of somebody else with this port's LID.
    ToldDuplicate,
    /// The control side was told of more addresses behind the interface than are kept.
    ToldCrowded,
}

/// What the control side is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The addresses behind the interface other than its own have changed. At most once a second, and by
    /// one replica only.
    LocalMacs(Vec<Mac>),
    /// More addresses are behind the interface than are kept: so many are. Told once.
    Crowded(usize),
    /// Somebody else has this port's LID. Told once, until the port gets another.
    DuplicateLid {
        /// The LID.
        lid: Lid,
        /// Where the other one is.
        other: NodeAddress,
    },
    /// Two members have one LID: it went to and fro. Told once for each.
    LidConflict {
        /// The LID.
        lid: Lid,
        /// Where packets for it go now.
        kept: NodeAddress,
        /// The other place.
        other: NodeAddress,
    },
    /// An address is at two places: it went to and fro. Told once for each.
    MacConflict {
        /// The address.
        mac: Mac,
        /// Where frames for it go now.
        kept: Place,
        /// The other place.
        other: Place,
    },
    /// Packets come from a place where their source LID is not. Told once.
    ForgedLid {
        /// The LID.
        lid: Lid,
        /// Where they come from.
        from: NodeAddress,
    },
}

/// An address that was learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacInfo {
    /// The address.
    pub mac: Mac,
    /// Where it is.
    pub place: Place,
    /// Seconds since it was last heard of.
    pub age: u32,
}

/// A member of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// Its LID.
    pub lid: Lid,
    /// Where it is.
    pub address: NodeAddress,
    /// The manager or the configuration says so; else it was learned.
    pub listed: bool,
}
