//! Whether a device is still there.
//!
//! Where a driver cannot take a device away under its users, as rdma_rxe's cannot, removing it waits for
//! them to close it, and no event tells them; what they can see is that its node has gone (kernel
//! drivers/infiniband/core/uverbs_main.c, `ib_uverbs_remove_one`).

use std::path::{Path, PathBuf};

use super::sysfs;

/// A device's place in sysfs, by which programs find it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presence(Option<PathBuf>);

impl Presence {
    /// Of a device that was opened. Without sysfs it is never missed.
    pub fn of(device: &str) -> Presence {
        let node = sysfs::uverbs(device);
        Presence(node.map(|name| Path::new(sysfs::UVERBS_CLASS).join(name)))
    }

    /// Whether it has gone.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|path| !path.exists())
    }
}
