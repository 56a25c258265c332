//! Keeping an interface's MTU within what its mode and its link carry.

use control::api::Happening;
use ipoib::Mode;

use super::Daemon;
use super::place::unreachable;
use crate::datapath::{Command, DeviceId};
use crate::device::ENCAPSULATION;
use crate::port::PortId;

impl Daemon {
    /// Gives an interface another MTU in bytes, and tells those who watch.
    ///
    /// # Errors
    /// What rtnetlink says.
    pub(crate) fn set_mtu(&mut self, id: DeviceId, mtu: u32) -> Result<(), rtnl::Error> {
        let Some((_, device)) = self.devices.get(&id) else {
            return Ok(());
        };
        if device.mtu == mtu {
            return Ok(());
        }
        let set = self.inside(id, |device, netlink| {
            netlink.set_mtu(device.ifindex, mtu)?;
            device.mtu = mtu;
            Ok(())
        });
        set.unwrap_or_else(|| Err(unreachable("set the MTU")))?;
        self.tell_device(id, Happening::MtuChanged { mtu });
        Ok(())
    }

    /// The interface's MTU was seen to be `mtu`: the administrator's, which a TAP takes whatever it
    /// is. What the mode does not have is put right.
    pub(super) fn mtu_seen(&mut self, id: DeviceId, mtu: u32) {
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        let allowed = device.limits.allowed(device.mode);
        if allowed.contains(&mtu) {
            if device.mtu != mtu {
                device.mtu = mtu;
                let what = Happening::MtuChanged { mtu };
                self.watchers.tell(device.subject(), what);
            }
            return;
        }
        let (fault, right) = match device.mode {
            _ if mtu < *allowed.start() => ("under IPoIB's", *allowed.start()),
            Mode::Datagram => ("over the link's", *allowed.end()),
            Mode::Connected => ("over connected mode's", *allowed.end()),
        };
        self.inside(id, |device, netlink| {
            // The administrator may have said something better since.
            let now = netlink.link_by_index(device.ifindex);
            if !now.is_ok_and(|now| !allowed.contains(&now.mtu)) {
                return;
            }
            log::warn!(
                "{}: the MTU {mtu} is {fault} {right}; set to that",
                device.name
            );
            if let Err(e) = netlink.set_mtu(device.ifindex, right) {
                log::warn!("{}: cannot set the MTU: {e}", device.name);
            }
        });
    }

    /// The largest datagram of a port changed. In datagram mode the interfaces' MTUs follow.
    pub(super) fn link_mtu_changed(&mut self, at: PortId, payload: u32) {
        let link_mtu = payload.saturating_sub(ENCAPSULATION);
        let on_port = |(id, (port, _)): (&DeviceId, &(PortId, _))| (*port == at).then_some(*id);
        let ids: Vec<DeviceId> = self.devices.iter().filter_map(on_port).collect();
        for id in ids {
            let Some((_, device)) = self.devices.get_mut(&id) else {
                continue;
            };
            let (mode, asked) = (device.mode, device.spec.mtu);
            let mtu = device.limits.following(mode, asked, device.mtu, link_mtu);
            device.limits.datagram = link_mtu;
            let name = device.name.clone();
            log::info!("{name}: the link MTU is now {link_mtu}, the MTU {mtu}");
            self.ports[at].tell(|| Command::SetPayloadMax(id, payload as usize));
            if let Err(e) = self.set_mtu(id, mtu) {
                log::warn!("{name}: cannot set the MTU {mtu}: {e}");
            }
        }
    }
}
