//! Making one change of an interface that both kinds have.

use control::config::InterfaceKey;

use super::apply::Outcome;
use crate::daemon::{Daemon, Payload};
use crate::ethernet::Ethernet;
use crate::interface::Interface;
use crate::ip::Ip;

impl Daemon {
    /// The interface that the configuration calls so, whatever it is called now.
    pub(super) fn configured(
        &mut self,
        key: &InterfaceKey,
    ) -> Result<(&mut Interface, &mut Payload), String> {
        let mut all = self.interfaces.iter_mut();
        all.find(|(_, payload)| payload.is_configured_as(key))
            .ok_or_else(|| format!("{key}: it is not in service"))
    }

    /// The same for one that carries IP.
    pub(super) fn configured_ip(
        &mut self,
        key: &InterfaceKey,
    ) -> Result<(&mut Interface, &mut Ip), String> {
        let (interface, payload) = self.configured(key)?;
        let ip = payload.ip_mut();
        let ip = ip.ok_or_else(|| format!("{key}: it is a VNIC"))?;
        Ok((interface, ip))
    }

    /// The same for a VNIC.
    pub(super) fn configured_vnic(
        &mut self,
        key: &InterfaceKey,
    ) -> Result<(&mut Interface, &mut Ethernet), String> {
        let (interface, payload) = self.configured(key)?;
        let ethernet = payload.ethernet_mut();
        let ethernet = ethernet.ok_or_else(|| format!("{key}: it is no VNIC"))?;
        Ok((interface, ethernet))
    }

    pub(super) fn remove_interface(&mut self, key: &InterfaceKey) -> Outcome {
        let (interface, payload) = self.configured(key)?;
        if payload.config().persist
            && let Err(e) = interface.tap.set_persist(false)
        {
            log::warn!("{key}: cannot be removed: {e}");
        }
        // Still persistent: by somebody else's wish.
        let stays = interface.tap.is_persistent().unwrap_or(false);
        let id = interface.id;
        self.forget(id);
        Ok(if stays {
            format!("{key}: out of service; the interface was there before ibtapd and stays")
        } else {
            format!("{key}: removed")
        })
    }

    pub(super) fn set_up(&mut self, key: &InterfaceKey, up: bool) -> Outcome {
        let (interface, payload) = self.configured(key)?;
        payload.config_mut().up = up;
        if !up {
            return Ok(format!("{key}: up false; it stays as it is now"));
        }
        let id = interface.id;
        self.inside(id, |interface, netlink| netlink.set_up(interface.ifindex))
            .ok_or_else(|| format!("{key}: its network namespace cannot be entered"))?
            .map_err(|e| format!("{key}: cannot be set up: {e}"))?;
        Ok(format!("{key}: up true"))
    }

    pub(super) fn set_persist(&mut self, key: &InterfaceKey, persist: bool) -> Outcome {
        let (interface, payload) = self.configured(key)?;
        interface
            .tap
            .set_persist(persist)
            .map_err(|e| format!("{key}: cannot change persist: {e}"))?;
        payload.config_mut().persist = persist;
        Ok(format!("{key}: persist {persist}"))
    }
}
