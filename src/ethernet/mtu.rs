//! The MTU of a VNIC: the configured one, limited by switch and port.

use std::ops::RangeInclusive;

use control::config::VnicConfig;
use control::config::vnic::ETH_MTU_MIN;
use vnic::packet::eth_mtu;

use super::Ethernet;
use crate::interface::{InterfaceError, TAP_MTU};

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
}

/// An MTU in the type of the data threads.
pub fn mtu_of(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// The largest MTU in bytes for UD payloads of `payload_max` bytes.
pub fn carried_mtu(payload_max: u32) -> u32 {
    u32::try_from(eth_mtu(payload_max as usize)).unwrap_or(u32::MAX)
}

/// The initial MTU of a VNIC. That of a managed VNIC never grows by itself (kernel opa_vnic_netdev.c,
/// `opa_vnic_process_vema_config`).
pub(super) fn wanted_mtu(spec: &VnicConfig, most: u32) -> Result<u32, InterfaceError> {
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
            "the MTU {mtu} of {name} is over the port's {most}; use at most {most}, or raise the MTU of \
             the network below"
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
            "the MTU 9000 of vnic0 is over the port's 4053; use at most 4053, or raise the MTU of the \
             network below"
        );
        assert!(wanted_mtu(&spec(None, false), 67).is_err());
    }
}
