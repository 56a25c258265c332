//! Where interfaces are: they may move to other network namespaces, and work on there.

use super::Daemon;
use crate::datapath::DeviceId;
use crate::device::Device;

/// The network namespace of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// What the daemon's own namespace calls it (RTM_NEWNSID); `None`: it is the daemon's own.
    pub nsid: Option<i32>,
}

impl Daemon {
    /// Asks the kernel in the namespace where a device's interface is; everything about an
    /// interface that goes through rtnetlink, ethtool or `/proc` goes through here. `None` if there
    /// is no such device, or its interface cannot be reached: it is gone, and that will be told.
    pub(crate) fn inside<T>(
        &mut self,
        id: DeviceId,
        ask: impl FnOnce(&mut Device, &mut rtnl::Requests) -> T,
    ) -> Option<T> {
        let (_, device) = self.devices.get_mut(&id)?;
        Some(ask(device, &mut self.netlink))
    }
}
