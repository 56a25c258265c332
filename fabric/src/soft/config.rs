//! How a port is opened.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::underlay::{GidChoice, LinkMtu};
use crate::types::PKey;

/// How to open a port.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// The interface that carries the fabric.
    pub underlay: String,
    /// Which of its addresses is the GID.
    pub gid: GidChoice,
    /// Where copies of multicast packets go, instead of to multicast groups. Empty: the underlay
    /// carries multicast.
    pub peers: Vec<IpAddr>,
    /// The P_Key table; empty means the default partition alone.
    pub pkeys: Vec<PKey>,
    /// How large a UD payload may be.
    pub link_mtu: LinkMtu,
    /// How many workers there are, at least one.
    pub workers: usize,
    /// How long to wait for the underlay to have a usable GID.
    pub gid_wait: Duration,
    /// Ends that wait as if the time were up when it becomes readable.
    pub give_up: Option<Arc<OwnedFd>>,
}

impl SoftConfig {
    /// The defaults, on this underlay: its link-local address, one worker.
    pub fn new(underlay: impl Into<String>) -> SoftConfig {
        SoftConfig {
            underlay: underlay.into(),
            gid: GidChoice::Auto,
            peers: Vec::new(),
            pkeys: vec![PKey::DEFAULT],
            link_mtu: LinkMtu::Auto,
            workers: 1,
            gid_wait: Duration::from_secs(10),
            give_up: None,
        }
    }
}
