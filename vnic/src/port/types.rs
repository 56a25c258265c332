//! Inputs and outputs of a virtual port.

use proto::{Gid, Mac, Qpn};

use crate::Lid;
use crate::directory::NodeAddress;
use crate::packet::Prefix;

/// Settings of a virtual port that do not come from its manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Address of the interface.
    pub mac: Mac,
    /// Address of the port on the fabric.
    pub local: NodeAddress,
    /// Learn addresses from received frames, and flood frames to unknown addresses. Otherwise the rules are
    /// those of the kernel's driver.
    pub learning: bool,
    /// Ageing time of learned addresses in milliseconds; 0: no ageing.
    pub ageing_ms: u64,
    /// Maximum number of learned addresses of this replica.
    pub mac_limit: usize,
    /// Key of the flow hash: a secret of the process, equal in all replicas of a port.
    pub hash_key: u64,
    /// This replica reports the addresses behind the interface. Set in one replica of a port.
    pub reports: bool,
}

impl Settings {
    /// Default of [`Settings::mac_limit`].
    pub const MAC_LIMIT: usize = 131_072;
    /// Default of [`Settings::ageing_ms`].
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
            reports: true,
        }
    }
}

/// Source and destination type of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// GID of the sender.
    pub src_gid: Gid,
    /// Queue pair number of the sender.
    pub src_qpn: Qpn,
    /// The datagram was sent to a multicast group.
    pub multicast: bool,
}

impl Meta {
    /// Address of the sender.
    #[must_use]
    pub const fn source(&self) -> NodeAddress {
        NodeAddress {
            gid: self.src_gid,
            qpn: self.src_qpn,
        }
    }
}

/// Destination on the fabric: a slot in the replica's tables. Valid only until the next call that learns,
/// sends or configures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A member of the switch.
    Node(u32),
    /// A multicast group.
    Group(u32),
}

/// Counter class of a sent frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    pub(super) group: bool,
    pub(super) tagged: bool,
    pub(super) sibling: bool,
}

/// Lengths of the frames of one send by the host, which may be a large send. In bytes from the destination
/// address on, including tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Length of every frame but the last.
    pub full: usize,
    /// Number of frames.
    pub count: usize,
    /// Length of the last frame.
    pub last: usize,
}

impl Sizes {
    /// Sizes of a single frame.
    #[must_use]
    pub const fn one(len: usize) -> Sizes {
        Sizes {
            full: len,
            count: 1,
            last: len,
        }
    }
}

/// Decision about a frame from the TAP. The caller counts each frame that is not dropped here once, with
/// [`VeswPort::count_sent`](super::VeswPort::count_sent) or
/// [`VeswPort::count_unsent`](super::VeswPort::count_unsent).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// Send each frame, after segmentation, with this header and a trailer as one datagram.
    Fabric {
        /// Header of all packets.
        prefix: Prefix,
        /// Destination.
        to: Target,
        /// Counter class.
        class: Class,
    },
    /// Deliver the frame, without segmentation, to the sibling with this LID by
    /// [`VeswPort::from_sibling`](super::VeswPort::from_sibling).
    Sibling {
        /// LID of the sibling.
        lid: Lid,
        /// Counter class.
        class: Class,
    },
    /// The frame was dropped and counted.
    Dropped,
}

/// Reason why a frame was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// The fabric had no room.
    NoRoom,
    /// The fabric refused the frame, or there is no way to its destination.
    Refused,
    /// The frame exceeds the MTU.
    TooBig,
    /// The headers are inconsistent.
    BadFrame,
    /// The frame has no destination LID.
    NoDestination,
    /// The port does not forward.
    State,
}

/// Location of an Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Behind this virtual port.
    Here,
    /// Behind the member with this LID.
    At(Lid),
}

/// An update from one replica to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// An address was seen.
    Mac {
        /// Address.
        mac: Mac,
        /// Location of the address.
        place: Place,
    },
    /// An address moved too often and stays for a while.
    MacKept {
        /// Address.
        mac: Mac,
        /// Location where it stays.
        place: Place,
        /// Nobody is any more at the location where it stayed before.
        again: bool,
    },
    /// A packet of a member was received.
    Node {
        /// LID of the member.
        lid: Lid,
        /// Address of the member.
        address: NodeAddress,
    },
    /// A LID moved too often and stays for a while.
    NodeKept {
        /// LID.
        lid: Lid,
        /// Address where it stays.
        address: NodeAddress,
        /// Nobody is any more at the address where it stayed before.
        again: bool,
    },
    /// [`Event::DuplicateLid`] was reported.
    DuplicateReported,
    /// [`Event::Crowded`] was reported.
    CrowdedReported,
}

/// An event for the control thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The addresses behind the interface, without its own, changed. One replica reports this at most once
    /// a second.
    LocalMacs(Vec<Mac>),
    /// More addresses are active behind the interface than the port keeps; the number is that maximum.
    /// Reported once.
    Crowded(usize),
    /// Another host has this port's LID. Reported once, until the port's LID changes.
    DuplicateLid {
        /// LID.
        lid: Lid,
        /// Address of the other host.
        other: NodeAddress,
    },
    /// Two members have one LID: its address alternates. Reported once for each LID.
    LidConflict {
        /// LID.
        lid: Lid,
        /// Address that is used now.
        kept: NodeAddress,
        /// The other address.
        other: NodeAddress,
    },
    /// An address is seen at two locations: it alternates. Reported once for each address.
    MacConflict {
        /// Address.
        mac: Mac,
        /// Location that is used now.
        kept: Place,
        /// The other location.
        other: Place,
    },
    /// The source LID of a packet belongs to another address on the fabric. Each replica reports this once for each
    /// list of members. Multicast with the LID of a sibling is not reported here: the sibling reports
    /// [`Event::DuplicateLid`].
    ForgedLid {
        /// LID.
        lid: Lid,
        /// Address of the sender.
        from: NodeAddress,
    },
}

/// A learned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacInfo {
    /// Address.
    pub mac: Mac,
    /// Location of the address.
    pub place: Place,
    /// Seconds since the last frame from this address.
    pub age: u32,
}

/// A member of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeInfo {
    /// LID of the member.
    pub lid: Lid,
    /// Address of the member.
    pub address: NodeAddress,
    /// The manager or the configuration lists the member; otherwise it was learned.
    pub listed: bool,
}
