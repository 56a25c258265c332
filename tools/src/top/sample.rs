//! Questions to the daemon and its answers.

use std::time::Duration;

use control::api::{
    ConnectionInfo, InterfaceStats, NeighbourInfo, VersionInfo, VnicMac, VnicStats,
};

use super::view::Shown;

/// What to ask: only what the screen shows. Counters are always asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The states of the interfaces.
    pub interfaces: bool,
    /// A table.
    pub list: Option<List>,
}

/// A table of the daemon, which may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// The neighbours of an IPoIB interface.
    Neighbours(String),
    /// The addresses that a VNIC knows.
    Macs(String),
    /// Connections.
    Connections,
}

/// The contents of a table.
#[derive(Debug)]
pub enum Listed {
    /// Of [`List::Neighbours`], with the interface.
    Neighbours(String, Vec<NeighbourInfo>),
    /// Of [`List::Macs`], with the VNIC.
    Macs(String, Vec<VnicMac>),
    /// Of [`List::Connections`].
    Connections(Vec<ConnectionInfo>),
    /// The daemon refuses; the text is a sentence.
    Refused(String),
}

/// Answers.
#[derive(Debug)]
pub struct Sample {
    /// Time of the counters since the start of the program.
    pub at: Duration,
    /// The daemon.
    pub daemon: VersionInfo,
    /// Counters of IPoIB interfaces.
    pub ipoib: Vec<InterfaceStats>,
    /// Counters of VNICs.
    pub vnics: Vec<VnicStats>,
    /// The states of the interfaces, if asked.
    pub shown: Option<Vec<Shown>>,
    /// The table, if asked.
    pub listed: Option<Listed>,
    /// How long the daemon and the program worked on the table.
    pub listing: Duration,
}

/// The end of a query.
#[derive(Debug)]
pub enum Answer {
    /// The daemon answered.
    Sample(Box<Sample>),
    /// The daemon is away; the text is a sentence.
    Away(String),
    /// The daemon refuses; the text is a sentence.
    Refused(String),
}
