//! Partitions that 802.1Q tags select.

use super::Daemon;
use crate::datapath::DeviceId;

impl Daemon {
    /// A frame from a device's TAP has a tag whose partition is not served yet.
    pub(super) fn vlan_wanted(&mut self, id: DeviceId, vid: u16) {
        log::debug!("{id:?}: VLAN {vid} is not served");
    }
}
