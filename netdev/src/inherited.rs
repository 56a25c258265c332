//! Descriptors that were open before this program started: a service manager's store
//! (sd_listen_fds(3), systemd.service(5), FileDescriptorStoreMax).

use std::io;
use std::os::fd::OwnedFd;

use crate::sys;

/// The descriptors that the service manager passes, with the names that they were stored under. They
/// are closed on exec. Only the first call gets them; without a service manager there are none.
///
/// # Errors
/// If the environment describes them wrongly; none is taken then.
pub fn descriptors() -> io::Result<Vec<(String, OwnedFd)>> {
    Ok(sys::own_inherited(sd_notify::listen_fds_with_names()?))
}
