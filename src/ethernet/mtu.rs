//! The MTU of a VNIC: the configured one, limited by switch, port and the group of the switch.

use std::ops::RangeInclusive;

use control::config::VnicConfig;
use control::config::vnic::ETH_MTU_MIN;
use fabric::PortAttributes;
use vnic::packet::eth_mtu;

use super::Ethernet;
use crate::interface::{Interface, InterfaceError, TAP_MTU};
use crate::port::PortRuntime;

impl Ethernet {
    /// The allowed MTUs: up to the limits of switch and port.
    pub fn allowed_mtu(&self) -> RangeInclusive<u32> {
        let of_switch = match self.is_on_switch() {
            true => u32::from(self.info.eth_mtu).max(ETH_MTU_MIN),
            false => self.carried_mtu,
        };
        let most = of_switch.min(self.carried_mtu);
        ETH_MTU_MIN.min(most)..=most
    }

    /// The largest UD payload in bytes that the port and the group of the switch carry.
    pub(super) fn payload_max(&self, port: &PortAttributes) -> u32 {
        let group = self.link.as_ref().and_then(|link| link.parameters);
        let of_group = group.and_then(|group| group.mtu);
        of_group.map_or(port.ud_payload_max, |mtu| mtu.min(port.ud_payload_max))
    }

    /// Follows the largest UD payload. Returns the MTU to set, if the largest MTU has changed. An MTU that was the
    /// largest follows; others are only reduced. That of a managed VNIC never grows by itself.
    pub fn follow_payload(&mut self, interface: &Interface, port: &PortRuntime) -> Option<u32> {
        let carried = carried_mtu(self.payload_max(&port.port.attributes()));
        if carried == self.carried_mtu {
            return None;
        }
        let had_most = interface.mtu == *self.allowed_mtu().end();
        self.carried_mtu = carried;
        let is_static = self.spec.switch.is_some();
        if is_static && self.is_on_switch() {
            // No manager sets the MTU of this switch.
            self.info.eth_mtu = mtu_of(carried);
        }
        let most = *self.allowed_mtu().end();
        let mtu = match self.spec.mtu {
            Some(asked) if is_static => asked.min(most),
            None if is_static && had_most => most,
            _ => interface.mtu.min(most),
        };
        self.update_lanes(interface, port);
        log::info!(
            "{}: the largest MTU is now {most}, the MTU {mtu}",
            interface.name
        );
        Some(mtu)
    }
}

/// An MTU in the type of the data threads.
pub fn mtu_of(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// The largest MTU in bytes for UD payloads of `payload_max` bytes.
pub fn carried_mtu(payload_max: u32) -> u32 {
    u32::try_from(eth_mtu(payload_max as usize)).unwrap_or(u32::MAX)
}

/// The MTU of a VNIC by its configuration, if at most `most` is possible. That of a managed VNIC never grows by itself (kernel opa_vnic_netdev.c,
/// `opa_vnic_process_vema_config`).
pub fn wanted_mtu(spec: &VnicConfig, most: u32) -> Result<u32, InterfaceError> {
    let name = &spec.name;
    if most < ETH_MTU_MIN {
        return Err(InterfaceError::Mtu(format!(
            "cannot create {name}: its port carries an MTU of {most} bytes, and Ethernet needs \
             {ETH_MTU_MIN}; raise the MTU of the network below"
        )));
    }
    match spec.mtu {
        None if spec.switch.is_some() => Ok(most),
        None => Ok(TAP_MTU.min(most)),
        Some(mtu) if mtu <= most => Ok(mtu),
        Some(mtu) => Err(InterfaceError::Mtu(format!(
            "the MTU {mtu} of {name} is above the maximum of the switch or the port, {most}; use at most {most}, or raise \
             the MTU of the network below"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::PortName;
    use control::config::vnic::SwitchConfig;

    fn spec(mtu: Option<u32>, managed: bool) -> VnicConfig {
        let mut spec = VnicConfig::new("vnic0", PortName::Underlay("eth0".into()), 0);
        spec.mtu = mtu;
        spec.switch = (!managed).then(|| SwitchConfig::new(1));
        spec
    }

    #[test]
    fn the_mtu_is_the_ports_the_configurations_or_the_usual_one() {
        assert_eq!(carried_mtu(4096), 4053);
        assert_eq!(wanted_mtu(&spec(None, false), 4053).unwrap(), 4053);
        assert_eq!(wanted_mtu(&spec(None, true), 4053).unwrap(), 1500);
        assert_eq!(wanted_mtu(&spec(None, true), 1381).unwrap(), 1381);
        assert_eq!(wanted_mtu(&spec(Some(1400), false), 4053).unwrap(), 1400);
        let refused = wanted_mtu(&spec(Some(9000), false), 4053).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the MTU 9000 of vnic0 is above the maximum of the switch or the port, 4053; use at most 4053, or raise the MTU of the \
             network below"
        );
        assert!(wanted_mtu(&spec(None, false), 67).is_err());
    }
}
