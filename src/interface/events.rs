//! Events for monitoring clients, and pending work.

use std::collections::BTreeSet;
use std::net::IpAddr;

use control::api::Happening;

use super::{InterfaceId, Place};
use crate::datapath::LinkId;

/// The subject of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The daemon.
    Daemon,
    /// A fabric port, by its name.
    Port(String),
    /// An interface, by its name and its network namespace, if that is not the daemon's.
    Interface(String, Option<String>),
}

/// Events that were not sent to clients yet, in order.
#[derive(Debug, Default)]
pub struct Events(Vec<(Subject, Happening)>);

impl Events {
    /// Adds an event.
    pub fn push(&mut self, subject: Subject, what: Happening) {
        self.0.push((subject, what));
    }

    /// Takes all events.
    pub fn drain(&mut self) -> impl Iterator<Item = (Subject, Happening)> {
        self.0.drain(..)
    }
}

/// Work that is done once for all changes of one turn of the control loop.
#[derive(Default)]
pub struct Pending {
    /// Links whose groups may have changed.
    pub membership: BTreeSet<LinkId>,
    /// Interfaces whose stacking may have changed.
    pub stacking: BTreeSet<InterfaceId>,
    /// Interfaces whose cores have forgotten the peers.
    pub forgotten: BTreeSet<InterfaceId>,
    /// Interfaces whose addresses may have changed.
    pub addresses: BTreeSet<InterfaceId>,
    /// Namespaces whose multicast routes may have changed.
    pub routes: BTreeSet<Place>,
    /// Groups that were reported with the host's MAC, by the host or by others.
    pub maybe_own: BTreeSet<(LinkId, IpAddr)>,
    /// Closed links; their pings end.
    pub closed: Vec<LinkId>,
}
