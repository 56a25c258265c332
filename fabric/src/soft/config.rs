//! Configuration of a port.
//!
//! The port sends RoCEv2 over UDP 4791 on a named underlay. The default port GID is the underlay's IPv6
//! link-local address. An IPoIB MGID such as `ff12:401b:ffff::ffff:ffff` is also the IPv6 multicast
//! group that the port joins (MLD) and sends to. So no configuration is necessary. `gid = "ipv4"` or an
//! address changes the GID; `peers = [...]` replaces multicast by unicast copies to queue pair
//! 0xffffff. The link MTU is the largest IB MTU (2048, 4096) that fits the underlay. If only 1024 or
//! less fits (on an Ethernet of 1500 bytes, IPoIB would be below IPv6's minimum of 1280), the link MTU
//! is the exact fit. `link_mtu = "exact"` always selects the exact fit.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{GidChoice, LinkMtu, PKey};

/// The largest packet of IPoIB's connected mode: 65520 bytes and a header of 4 (kernel
/// drivers/infiniband/ulp/ipoib/ipoib.h, IPOIB_CM_BUF_SIZE).
const MESSAGE_MAX: usize = 65524;

/// Maximum number of connections of a worker, including those in TIMEWAIT.
const CONNECTIONS_MAX: usize = 16384;

/// Settings of a port.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// The interface that carries the fabric.
    pub underlay: String,
    /// Selects the underlay address that becomes the GID.
    pub gid: GidChoice,
    /// Destinations for copies of multicast packets, instead of multicast groups. Empty: the underlay
    /// carries multicast.
    pub peers: Vec<IpAddr>,
    /// The P_Key table; empty means only the default partition.
    pub pkeys: Vec<PKey>,
    /// The link MTU: the largest UD payload.
    pub link_mtu: LinkMtu,
    /// Number of workers, at least one.
    pub workers: usize,
    /// The largest message of a reliable connection in bytes.
    pub message_max: usize,
    /// Maximum number of reliable connections of each worker.
    pub connections_max: usize,
    /// Receiving sockets of a former process ([`Port::receiving_sockets`](crate::Port::receiving_sockets)). The
    /// port takes them over, and receives from [`Port::set_receiving`](crate::Port::set_receiving) on.
    pub former: Vec<Arc<OwnedFd>>,
    /// How long to wait until the underlay has a usable GID.
    pub gid_wait: Duration,
    /// Ends this wait when it becomes readable, as if `gid_wait` had expired.
    pub give_up: Option<Arc<OwnedFd>>,
}

impl SoftConfig {
    /// The default settings for an underlay: link-local GID, one worker.
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
            former: Vec::new(),
            gid_wait: Duration::from_secs(10),
            give_up: None,
        }
    }
}
