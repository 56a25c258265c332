//! What `ethtool -C` sets on an interface, in whichever network namespace it is: the kernel tells of
//! it by ethtool's netlink family alone.

use control::api::Moderation;
use netdev::ethtool;
use rtnl::EthtoolEvent;

use crate::daemon::Daemon;
use crate::daemon::settings::MODERATION_MAX;
use crate::interface::InterfaceId;
use crate::interface::Place;

impl Daemon {
    /// Follows what ethtool has set since.
    pub(in crate::daemon) fn process_ethtool(&mut self) {
        let Some(monitor) = &mut self.host.ethtool else {
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
                    if let Some(id) = self.interfaces.by_index(Place { nsid }, ifindex) {
                        self.moderation_seen(id, rx_frames);
                    }
                }
                EthtoolEvent::Coalesce { .. } => {}
                EthtoolEvent::Overrun => {
                    let ids = self.interfaces.ip_ids(|_, _| true);
                    ids.into_iter().for_each(|id| self.read_coalesce(id));
                    return;
                }
            }
        }
    }

    /// Looks at what ethtool has set on an interface before, which stays with a persistent one.
    pub(in crate::daemon) fn read_coalesce(&mut self, id: InterfaceId) {
        let read = self.inside(id, |interface, _| ethtool::coalesce(&interface.name));
        if let Some(Ok(coalesce)) = read
            && coalesce.rx_frames != 0
        {
            self.moderation_seen(id, coalesce.rx_frames);
        }
    }

    /// An interface was told to gather `rx_frames` packets before it looks at them. (The kernel's
    /// TAP takes no time to wait for them; `ibtap coalesce` sets that.)
    fn moderation_seen(&mut self, id: InterfaceId, rx_frames: u32) {
        if let Some(interface) = self.interfaces.get(id) {
            log::debug!("{}: ethtool -C rx-frames {rx_frames}", interface.name);
            let at = interface.port;
            let now = self.ports[at].moderation;
            self.set_moderation(
                at,
                Moderation {
                    rx_frames: rx_frames.min(MODERATION_MAX),
                    ..now
                },
            );
        }
    }
}
