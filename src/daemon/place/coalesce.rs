//! What `ethtool -C` sets on an interface, in whichever network namespace it is: the kernel tells of
//! it by ethtool's netlink family alone.

use rtnl::EthtoolEvent;

use super::Place;
use crate::daemon::Daemon;
use crate::datapath::DeviceId;

impl Daemon {
    /// Follows what ethtool has set since.
    pub(in crate::daemon) fn process_ethtool(&mut self) {
        let Some(monitor) = &mut self.ethtool else {
            return;
        };
        for event in monitor.drain() {
            match event {
                EthtoolEvent::Coalesce {
                    nsid,
                    ifindex,
                    rx_frames: Some(rx_frames),
                    ..
                } => {
                    if let Some(id) = self.by_index(Place { nsid }, ifindex) {
                        self.moderation_seen(id, rx_frames);
                    }
                }
                EthtoolEvent::Coalesce { .. } => {}
                EthtoolEvent::Overrun => {
                    log::debug!("what ethtool has set was announced too fast; ask it again");
                }
            }
        }
    }

    /// An interface was told to gather `rx_frames` packets before it looks at them. (The kernel's
    /// TAP takes no time to wait for them; `ibtap coalesce` sets that.)
    fn moderation_seen(&mut self, id: DeviceId, rx_frames: u32) {
        if let Some((_, device)) = self.devices.get(&id) {
            log::debug!("{}: ethtool -C rx-frames {rx_frames}", device.name);
        }
    }
}
