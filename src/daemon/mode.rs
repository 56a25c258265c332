//! Changing how an interface's packets travel while it runs (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_main.c, `ipoib_set_mode`). Carrier and groups stay as they are.
//!
//! A large packet must not reach a core in datagram mode: the core would answer "too big", and
//! hosts remember that for ten minutes. So the MTU grows after the data threads have confirmed
//! connected mode, and shrinks before they leave it.

use control::api::{ApiError, Happening, ModeRequest, Reply};
use control::config::IpoibConfig;
use ipoib::Mode;

use super::Daemon;
use crate::interface::InterfaceId;

impl Daemon {
    /// Tells an interface's mode, after a change where one is asked for. A restart goes back to what
    /// the configuration says.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], and [`ApiError::Refused`] where it cannot change.
    pub(crate) fn mode(&mut self, request: &ModeRequest) -> Result<Reply, ApiError> {
        let (interface, ip) = self.named_ip(&request.interface)?;
        let (id, spec) = (interface.id, ip.spec.clone());
        if let Some(mode) = request.mode {
            self.change_mode(id, mode, &spec)
                .map_err(|message| ApiError::Refused { message })?;
        }
        let (_, ip) = self.named_ip(&request.interface)?;
        Ok(Reply::Mode { mode: ip.mode })
    }

    /// Changes an interface's mode, and its MTU to what `spec` asks for in that mode. The same mode
    /// again is nothing to do.
    ///
    /// # Errors
    /// A sentence. Nothing has changed then.
    pub(crate) fn change_mode(
        &mut self,
        id: InterfaceId,
        mode: Mode,
        spec: &IpoibConfig,
    ) -> Result<(), String> {
        let Some((interface, ip)) = self.interfaces.ip(id) else {
            return Ok(());
        };
        if ip.mode == mode {
            return Ok(());
        }
        let (at, old, name) = (interface.port, ip.mode, interface.name.clone());
        let mtu = ip.limits.after(spec, mode, interface.mtu);
        let mtu = mtu.map_err(|e| e.to_string())?;
        let failed = |e| format!("{name}: cannot set the MTU {mtu}: {e}");
        match mode {
            // Packets of the new size may come as soon as the MTU is set: one that came too early
            // would be answered by "packet too big", which hosts remember for ten minutes.
            Mode::Connected => {
                self.enter(id, mode);
                self.ports[at].sync();
                if let Err(e) = self.set_mtu(id, mtu) {
                    self.enter(id, old);
                    return Err(failed(e));
                }
            }
            Mode::Datagram => {
                self.set_mtu(id, mtu).map_err(failed)?;
                self.enter(id, mode);
            }
        }
        self.show_mode(id);
        self.announce(id);
        Ok(())
    }

    /// Has the data threads serve an interface in a mode, under the address that says so.
    fn enter(&mut self, id: InterfaceId, mode: Mode) {
        if let Some((_, ip)) = self.interfaces.ip_mut(id) {
            ip.mode = mode;
            ip.readdress(None);
            self.update_lanes(id);
        }
    }

    /// Says a new mode wherever it shows: in the log, to those who watch, in what `ip link` prints.
    fn show_mode(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip(id) else {
            return;
        };
        let (name, mtu) = (&interface.name, interface.mtu);
        log::info!("{name}: mode {}, MTU {mtu}", ip.mode_word());
        if mtu > ip.limits.datagram {
            log::info!(
                "{name}: multicast packets over {} bytes are dropped, since they are datagrams still",
                ip.limits.datagram
            );
        }
        let what = Happening::ModeChanged { mode: ip.mode };
        self.tell(id, what);
        if let Some((interface, ip)) = self.interfaces.ip_mut(id) {
            let most = ip.gso_max();
            interface.inside(&mut self.host.netlink, |interface, netlink| {
                interface.set_gso_max(netlink, most);
            });
        }
        self.renew_alias(id);
    }
}
