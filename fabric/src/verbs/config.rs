//! How a port is opened.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{Gid, GidChoice, Lid, LinkMtu};

/// What IPoIB's connected mode sends at most: 65520 bytes and its header of 4 (kernel
/// drivers/infiniband/ulp/ipoib/ipoib.h, IPOIB_CM_BUF_SIZE).
const MESSAGE_MAX: usize = 65524;

/// Connections of a worker: each has a queue pair of the device.
const CONNECTIONS_MAX: usize = 4096;

/// How to open a port.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// The device's name, as `rdma link` and `ibv_devices` have it: `mlx5_0`.
    pub device: String,
    /// Its port, counted from 1.
    pub port: u8,
    /// Which GID.
    pub gid: GidChoice,
    /// The largest UD payload: the port's active MTU, unless it is to be a smaller number of bytes.
    pub link_mtu: LinkMtu,
    /// On an InfiniBand link layer: where ports and groups are, by GID. Nobody else tells as long as
    /// there is no subnet administration here.
    pub lids: BTreeMap<Gid, Lid>,
    /// The largest message of a reliable connection in bytes.
    pub message_max: usize,
    /// How many reliable connections a worker may have.
    pub connections_max: usize,
    /// How long to wait for the port to be active with a usable GID.
    pub gid_wait: Duration,
    /// Ends that wait as if the time were up when it becomes readable.
    pub give_up: Option<Arc<OwnedFd>>,
}

impl VerbsConfig {
    /// The defaults, for a port of a device.
    pub fn new(device: impl Into<String>, port: u8) -> VerbsConfig {
        VerbsConfig {
            device: device.into(),
            port,
            gid: GidChoice::Auto,
            link_mtu: LinkMtu::Auto,
            lids: BTreeMap::new(),
            message_max: MESSAGE_MAX,
            connections_max: CONNECTIONS_MAX,
            gid_wait: Duration::from_secs(10),
            give_up: None,
        }
    }

    /// `mlx5_0/1`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.port)
    }
}
