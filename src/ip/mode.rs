//! Changes the mode of an interface in service (kernel drivers/infiniband/ulp/ipoib/ipoib_main.c,
//! `ipoib_set_mode`). Carrier and groups do not change.
//!
//! A large packet must not reach a core in datagram mode: the core would answer "too big", and
//! hosts remember that for ten minutes. So the MTU grows after the data threads have confirmed
//! connected mode, and shrinks before they leave it.

use control::api::Happening;
use control::config::IpoibConfig;
use ipoib::Mode;
use rtnl::Requests;

use super::{Ip, MtuLimits};
use crate::interface::{Events, Interface};
use crate::port::PortRuntime;

impl Ip {
    /// Changes the interface's mode, and the MTU to that of `spec` in the new mode.
    ///
    /// # Errors
    /// A sentence. Nothing changes then.
    pub fn change_mode(
        &mut self,
        interface: &mut Interface,
        (mode, spec): (Mode, &IpoibConfig),
        netlink: &mut Requests,
        port: &PortRuntime,
        events: &mut Events,
    ) -> Result<(), String> {
        let old = self.mode;
        let mtu = self.limits.after(spec, mode, interface.mtu);
        let mtu = mtu.map_err(|e| e.to_string())?;
        let name = interface.name.clone();
        let failed = |e| format!("{name}: cannot set the MTU {mtu}: {e}");
        match mode {
            Mode::Connected => {
                self.enter(interface, mode, port);
                port.sync();
                if let Err(e) = interface.set_mtu(mtu, netlink, events) {
                    self.enter(interface, old, port);
                    return Err(failed(e));
                }
            }
            Mode::Datagram => {
                let set = interface.set_mtu(mtu, netlink, events);
                set.map_err(failed)?;
                self.enter(interface, mode, port);
            }
        }
        self.show_mode(interface, netlink, events);
        self.announce(interface, netlink, port);
        self.announce_guests(interface, port);
        Ok(())
    }

    /// Sets mode and addresses in the data threads.
    fn enter(&mut self, interface: &Interface, mode: Mode, port: &PortRuntime) {
        self.mode = mode;
        self.readdress(None);
        self.update_lanes(interface, port);
    }

    /// Logs a new mode, adds an event, and sets the host's largest frame for the mode.
    fn show_mode(&self, interface: &mut Interface, netlink: &mut Requests, events: &mut Events) {
        let (name, mtu) = (&interface.name, interface.mtu);
        log::info!("{name}: mode {}, MTU {mtu}", self.mode_word());
        if mtu > self.limits.datagram {
            log::info!(
                "{name}: multicast packets over {} bytes are dropped, because they are datagrams also in \
                 this mode",
                self.limits.datagram
            );
        }
        let what = Happening::ModeChanged { mode: self.mode };
        events.push(interface.subject(), what);
        interface.inside(netlink, |interface, netlink| {
            interface.set_gso_max(netlink, self.gso_max());
        });
    }

    /// Follows the link MTU of the port and of the broadcast group. Returns the MTU for the interface if it
    /// follows, as it does in datagram mode.
    pub fn follow_link_mtu(&mut self, interface: &Interface, port: &PortRuntime) -> Option<u32> {
        let of_port = MtuLimits::of(&*port.port);
        self.limits.train = of_port.train;
        let link_mtu = of_port.datagram.min(self.link.group_mtu());
        if link_mtu == self.limits.datagram {
            // The groups of VLANs may have changed.
            self.update_lanes(interface, port);
            return None;
        }
        let (mode, asked) = (self.mode, self.spec.mtu);
        let mtu = self.limits.following(mode, asked, interface.mtu, link_mtu);
        self.limits.datagram = link_mtu;
        let name = &interface.name;
        log::info!("{name}: the link MTU is now {link_mtu}, the MTU {mtu}");
        self.update_lanes(interface, port);
        Some(mtu)
    }
}
