//! Makes one change of an interface of either kind.

use control::config::InterfaceKey;

use super::Apply;
use super::apply::Outcome;
use crate::ethernet::Ethernet;
use crate::interface::Interface;
use crate::interfaces::Payload;
use crate::ip::Ip;

impl Apply<'_> {
    /// The interface with this key in the configuration, whatever its current name.
    pub(super) fn configured(
        &mut self,
        key: &InterfaceKey,
    ) -> Result<(&mut Interface, &mut Payload), String> {
        let mut all = self.interfaces.iter_mut();
        all.find(|(_, payload)| payload.is_configured_as(key))
            .ok_or_else(|| format!("{key}: not in service"))
    }

    /// The IPoIB interface with this key in the configuration.
    pub(super) fn configured_ip(
        &mut self,
        key: &InterfaceKey,
    ) -> Result<(&mut Interface, &mut Ip), String> {
        let (interface, payload) = self.configured(key)?;
        let ip = payload.ip_mut();
        let ip = ip.ok_or_else(|| format!("{key}: is a VNIC, not an IPoIB interface"))?;
        Ok((interface, ip))
    }

    /// The VNIC with this key in the configuration.
    pub(super) fn configured_vnic(
        &mut self,
        key: &InterfaceKey,
    ) -> Result<(&mut Interface, &mut Ethernet), String> {
        let (interface, payload) = self.configured(key)?;
        let ethernet = payload.ethernet_mut();
        let ethernet =
            ethernet.ok_or_else(|| format!("{key}: is an IPoIB interface, not a VNIC"))?;
        Ok((interface, ethernet))
    }

    pub(super) fn remove_interface(&mut self, key: &InterfaceKey) -> Outcome {
        let (interface, payload) = self.configured(key)?;
        if payload.config().persist
            && let Err(e) = interface.tap.set_persist(false)
        {
            log::warn!("{key}: cannot remove the interface: {e}");
        }
        // Still persistent: the user has made it so.
        let stays = interface.tap.is_persistent().unwrap_or(false);
        let parent = payload.ip().and_then(|ip| ip.parent_name.as_ref());
        if stays && let Some(parent) = parent {
            return Ok(format!(
                "{key}: no longer configured; it was made by hand and stays as long as {parent}"
            ));
        }
        let id = interface.id;
        self.interfaces.forget(self.cx, id);
        Ok(if stays {
            format!("{key}: out of service; the interface existed before ibtapd and stays")
        } else {
            format!("{key}: removed")
        })
    }

    pub(super) fn set_up(&mut self, key: &InterfaceKey, up: bool) -> Outcome {
        let (interface, payload) = self.configured(key)?;
        payload.config_mut().up = up;
        if !up {
            return Ok(format!("{key}: up false; the state stays as it is"));
        }
        let id = interface.id;
        self.interfaces
            .inside(self.cx, id, |interface, netlink| {
                netlink.set_up(interface.ifindex)
            })
            .ok_or_else(|| format!("{key}: cannot enter its network namespace"))?
            .map_err(|e| format!("{key}: cannot set the interface up: {e}"))?;
        Ok(format!("{key}: up true"))
    }

    pub(super) fn set_configured_mtu(&mut self, key: &InterfaceKey, mtu: Option<u32>) -> Outcome {
        let (interface, payload) = self.configured(key)?;
        let id = interface.id;
        let bytes = payload.wanted_mtu(mtu);
        let bytes = bytes.map_err(|e| format!("{key}: {e}"))?;
        self.interfaces
            .set_mtu(self.cx, id, bytes)
            .map_err(|e| format!("{key}: cannot set the MTU {bytes}: {e}"))?;
        let (_, payload) = self.configured(key)?;
        payload.config_mut().mtu = mtu;
        Ok(format!("{key}: mtu {bytes}"))
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
