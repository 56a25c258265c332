//! How a port is opened.
//!
//! RoCEv2 over UDP 4791 on a named underlay. The default port GID is the underlay's IPv6 link-local
//! address, and an IPoIB MGID such as `ff12:401b:ffff::ffff:ffff` is the IPv6 multicast group that
//! is joined (MLD) and sent to. So nothing needs configuration. `gid = "ipv4"` or an address
//! changes the GID; `peers = [...]` replaces multicast by unicast copies to queue pair 0xffffff.
//! The link MTU is the largest IB MTU (2048, 4096) that fits the underlay. If only 1024 or less
//! fits (an Ethernet of 1500 bytes: IPoIB would be below IPv6's minimum of 1280), the link MTU is
//! the exact fit. `link_mtu = "exact"` always takes the exact fit.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{GidChoice, LinkMtu, PKey};

/// What IPoIB's connected mode sends at most: 65520 bytes and its header of 4 (kernel
/// drivers/infiniband/ulp/ipoib/ipoib.h, IPOIB_CM_BUF_SIZE).
const MESSAGE_MAX: usize = 65524;

/// Connections of a worker, those that wait for their numbers to be free again included.
const CONNECTIONS_MAX: usize = 16384;

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
    /// The largest message of a reliable connection in bytes.
    pub message_max: usize,
    /// How many reliable connections each worker may have.
    pub connections_max: usize,
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
            message_max: MESSAGE_MAX,
            connections_max: CONNECTIONS_MAX,
            gid_wait: Duration::from_secs(10),
            give_up: None,
        }
    }
}
