//! Keeping an interface's MTU within what it carries.

use control::api::Happening;

use super::{Daemon, Payload};
use crate::interface::InterfaceId;
use crate::interface::unreachable;
use crate::ip::ENCAPSULATION;
use crate::port::PortId;

impl Daemon {
    /// Gives an interface another MTU in bytes, which becomes an event.
    ///
    /// # Errors
    /// What rtnetlink says.
    pub(crate) fn set_mtu(&mut self, id: InterfaceId, mtu: u32) -> Result<(), rtnl::Error> {
        if self.interfaces.get(id).is_none_or(|i| i.mtu == mtu) {
            return Ok(());
        }
        let set = self.inside(id, |interface, netlink| {
            netlink.set_mtu(interface.ifindex, mtu)?;
            interface.mtu = mtu;
            Ok(())
        });
        set.unwrap_or_else(|| Err(unreachable("set the MTU")))?;
        self.mtu_changed(id);
        Ok(())
    }

    /// As [`Daemon::set_mtu`], where there is nobody to hear of errors but the log.
    pub(crate) fn try_mtu(&mut self, id: InterfaceId, mtu: u32) {
        if let Err(e) = self.set_mtu(id, mtu)
            && let Some(interface) = self.interfaces.get(id)
        {
            log::warn!("{}: cannot set the MTU {mtu}: {e}", interface.name);
        }
    }

    /// An interface has another MTU now.
    pub(super) fn mtu_changed(&mut self, id: InterfaceId) {
        let Some((interface, payload)) = self.interfaces.both(id) else {
            return;
        };
        let mtu = interface.mtu;
        if let Payload::Ethernet(_) = payload {
            self.update_lanes(id);
        }
        self.tell(id, Happening::MtuChanged { mtu });
    }

    /// The interface's MTU was seen to be `mtu`: the administrator's, which a TAP takes whatever it
    /// is. What the interface does not carry is put right.
    pub(super) fn correct_mtu(&mut self, id: InterfaceId, mtu: u32) {
        let Some((interface, payload)) = self.interfaces.both_mut(id) else {
            return;
        };
        let allowed = payload.allowed_mtu();
        let (fault, right) = payload.mtu_fault(mtu);
        interface.inside(&mut self.host.netlink, |interface, netlink| {
            // The administrator may have said something better since.
            let now = netlink.link_by_index(interface.ifindex);
            if !now.is_ok_and(|now| !allowed.contains(&now.mtu)) {
                return;
            }
            let name = &interface.name;
            log::warn!("{name}: the MTU {mtu} is {fault} {right}; set to that");
            if let Err(e) = netlink.set_mtu(interface.ifindex, right) {
                log::warn!("{name}: cannot set the MTU: {e}");
            }
        });
    }

    /// The largest datagram of a port changed. In datagram mode the interfaces' MTUs follow.
    pub(super) fn link_mtu_changed(&mut self, at: PortId, payload: u32) {
        let link_mtu = payload.saturating_sub(ENCAPSULATION);
        for id in self.interfaces.ip_ids(|interface, _| interface.port == at) {
            let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
                continue;
            };
            let (mode, asked) = (ip.mode, ip.spec.mtu);
            let mtu = ip.limits.following(mode, asked, interface.mtu, link_mtu);
            ip.limits.datagram = link_mtu;
            let name = &interface.name;
            log::info!("{name}: the link MTU is now {link_mtu}, the MTU {mtu}");
            self.update_lanes(id);
            self.try_mtu(id, mtu);
        }
    }
}
