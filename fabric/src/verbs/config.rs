//! Configuration of a port.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{CmChoice, GidChoice, LinkMtu};

/// The largest message of IPoIB's connected mode: 65520 bytes and a header of 4 (kernel
/// drivers/infiniband/ulp/ipoib/ipoib.h, IPOIB_CM_BUF_SIZE).
const MESSAGE_MAX: usize = 65524;

/// Maximum number of connections of a worker, each with a queue pair of the device.
const CONNECTIONS_MAX: usize = 4096;

/// Configuration of a port.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// The device's name in `rdma link` and `ibv_devices`: `mlx5_0`.
    pub device: String,
    /// The port number, counted from 1.
    pub port: u8,
    /// The choice of the GID.
    pub gid: GidChoice,
    /// The largest UD payload: the port's active MTU, or a smaller number of bytes.
    pub link_mtu: LinkMtu,
    /// The largest message of a reliable connection in bytes.
    pub message_max: usize,
    /// The manager of reliable connections, on InfiniBand.
    pub cm: CmChoice,
    /// Maximum number of reliable connections of a worker.
    pub connections_max: usize,
    /// Number of workers: each sends from its own queue pairs, the first one also receives.
    pub workers: usize,
    /// Maximum time to wait until the port is active with a usable GID.
    pub gid_wait: Duration,
    /// Ends that wait early when it becomes readable.
    pub give_up: Option<Arc<OwnedFd>>,
}

impl VerbsConfig {
    /// Default values for a port of a device.
    pub fn new(device: impl Into<String>, port: u8) -> VerbsConfig {
        VerbsConfig {
            device: device.into(),
            port,
            gid: GidChoice::Auto,
            link_mtu: LinkMtu::Auto,
            message_max: MESSAGE_MAX,
            cm: CmChoice::Auto,
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            gid_wait: Duration::from_secs(10),
            give_up: None,
        }
    }

    /// `mlx5_0/1`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.port)
    }
}
