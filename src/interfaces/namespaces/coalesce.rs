//! Settings of `ethtool -C` on interfaces in any network namespace. The kernel announces them only over
//! ethtool's netlink family.

use control::api::Moderation;
use netdev::ethtool;
use rtnl::EthtoolEvent;

use crate::interface::{InterfaceId, Place};
use crate::interfaces::{Context, Interfaces};

impl Interfaces {
    /// Follows the notifications of ethtool.
    pub fn process_ethtool(&mut self, cx: &mut Context) {
        let Some(monitor) = &mut cx.host.ethtool else {
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
                        self.moderation_seen(cx, id, rx_frames);
                    }
                }
                EthtoolEvent::Coalesce { .. } => {}
                EthtoolEvent::Overrun => {
                    let ids = self.ip_ids(|_, _| true);
                    ids.into_iter().for_each(|id| self.read_coalesce(cx, id));
                    return;
                }
            }
        }
    }

    /// Reads the settings of an interface that existed before; a persistent TAP keeps them.
    pub fn read_coalesce(&mut self, cx: &mut Context, id: InterfaceId) {
        let read = self.inside(cx, id, |interface, _| ethtool::coalesce(&interface.name));
        if let Some(Ok(coalesce)) = read
            && coalesce.rx_frames != 0
        {
            self.moderation_seen(cx, id, coalesce.rx_frames);
        }
    }

    /// `ethtool` has set an interface's rx-frames. (The kernel's TAP has no rx-usecs; `ibtap coalesce` sets
    /// it.)
    fn moderation_seen(&mut self, cx: &mut Context, id: InterfaceId, rx_frames: u32) {
        if let Some(interface) = self.get(id) {
            log::debug!("{}: ethtool -C rx-frames {rx_frames}", interface.name);
            let at = interface.port;
            let now = cx.ports[at].moderation;
            cx.ports[at].set_moderation(Moderation {
                rx_frames: rx_frames.min(Moderation::MAX),
                ..now
            });
        }
    }
}
