//! Descriptors from the service manager's descriptor store (sd_listen_fds(3), systemd.service(5),
//! FileDescriptorStoreMax).

use std::io;
use std::os::fd::OwnedFd;

use crate::sys;

/// Returns the descriptors passed by the service manager, with their store names. They are closed on exec.
/// Only the first call returns them; without a service manager there are none.
///
/// # Errors
/// Invalid environment variables; no descriptor is taken then.
pub fn descriptors() -> io::Result<Vec<(String, OwnedFd)>> {
    Ok(sys::own_inherited(sd_notify::listen_fds_with_names()?))
}
