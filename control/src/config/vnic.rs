//! VNICs: virtual ports of virtual Ethernet switches.

use std::ops::{Deref, DerefMut};

use proto::{Gid, PKey, Qpn};
use proto::{Mac, OpaLid};

use super::{InterfaceConfig, IpoibConfig, KeyFault, PortName, values};

/// Maximum number of virtual ports of a fabric port (kernel opa_vnic_vema.c: an attribute's modifier has 8
/// bits for them, OPA_VNIC_MAX_NUM_VPORT is 255).
pub const VPORTS_MAX: usize = 255;

/// A VNIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnicConfig {
    /// Settings that IPoIB interfaces share.
    pub interface: InterfaceConfig,
    /// Number of the VNIC on its port.
    pub index: u8,
    /// The switch; `None`: an Ethernet Manager configures the VNIC.
    pub switch: Option<SwitchConfig>,
    /// Learning of addresses from received frames.
    pub learning: Learning,
}

/// The switch of a VNIC without a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Number of the switch, 1 to 4095.
    pub vesw: u16,
    /// Number of the fabric, 0 to 1023.
    pub fabric_id: u16,
    /// The partition, as the user wrote it; without bit 15, membership is limited.
    pub pkey: PKey,
    /// The VNIC's LID; `None`: derived from the port's GUID and the VNIC's index.
    pub lid: Option<OpaLid>,
    /// The TAP's MAC; `None`: derived from fabric, switch and LID.
    pub mac: Option<Mac>,
    /// All other members of the switch; `None`: the VNIC finds them.
    pub peers: Option<Vec<VnicPeer>>,
}

/// The address of a member of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnicPeer {
    /// Its LID.
    pub lid: OpaLid,
    /// The GID of its port.
    pub gid: Gid,
    /// Its queue pair number; `None`: the VNIC learns it.
    pub qpn: Option<Qpn>,
}

/// Learning of addresses from received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Whether the VNIC learns addresses.
    pub on: bool,
    /// Seconds until an unused address expires.
    pub ageing: u32,
    /// Maximum number of learned addresses, for each data thread.
    pub mac_limit: usize,
}

impl Default for Learning {
    /// The ageing time is that of the kernel's bridge (net/bridge/br_device.c, BR_DEFAULT_AGEING_TIME).
    fn default() -> Learning {
        Learning {
            on: true,
            ageing: 300,
            mac_limit: 131_072,
        }
    }
}

impl Learning {
    /// Milliseconds until an unused address expires.
    pub fn ageing_ms(&self) -> u64 {
        u64::from(self.ageing) * 1000
    }
}

impl SwitchConfig {
    /// A switch with the defaults.
    pub fn new(vesw: u16) -> SwitchConfig {
        SwitchConfig {
            vesw,
            fabric_id: 0,
            pkey: PKey::DEFAULT,
            lid: None,
            mac: None,
            peers: None,
        }
    }
}

impl Deref for VnicConfig {
    type Target = InterfaceConfig;

    fn deref(&self) -> &InterfaceConfig {
        &self.interface
    }
}

impl DerefMut for VnicConfig {
    fn deref_mut(&mut self) -> &mut InterfaceConfig {
        &mut self.interface
    }
}

impl VnicConfig {
    /// A managed VNIC with the defaults.
    pub fn new(name: &str, port: PortName, index: u8) -> VnicConfig {
        VnicConfig {
            interface: InterfaceConfig::new(name, port),
            index,
            switch: None,
            learning: Learning::default(),
        }
    }

    /// The configured partition; for a managed VNIC the default partition, that of its management.
    pub fn pkey(&self) -> PKey {
        self.switch.as_ref().map_or(PKey::DEFAULT, |s| s.pkey)
    }

    /// The first free number on a port.
    ///
    /// # Errors
    /// A sentence if all numbers are in use.
    pub(super) fn free_index(port: &PortName, others: &[VnicConfig]) -> Result<u8, String> {
        let taken = |index: u8| others.iter().any(|o| o.port == *port && o.index == index);
        let all = 0..VPORTS_MAX as u8;
        all.into_iter()
            .find(|index| !taken(*index))
            .ok_or_else(|| format!("the port has {VPORTS_MAX} VNICs, the maximum; remove one"))
    }

    /// Checks the settings together, and against the other interfaces. LIDs are unique on a switch.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(super) fn check(
        &self,
        ipoib: &[IpoibConfig],
        others: &[VnicConfig],
    ) -> Result<(), KeyFault> {
        let of_ipoib = ipoib.iter().map(|other| &other.interface);
        let of_vnics = others.iter().map(|other| &other.interface);
        self.interface.check(of_ipoib.chain(of_vnics))?;
        if let (PortName::Rdma { .. }, Some(queues @ 2..)) = (&self.port, self.queues) {
            let what = format!(
                "{queues} queues: a VNIC on an RDMA device sends from one queue pair, because peers learn \
                 its address from packets; leave queues out"
            );
            return Err(KeyFault::new("queues", what));
        }
        let own = |v: &VnicConfig| v.switch.as_ref().map(|s| (s.vesw, s.lid));
        let Some((vesw, Some(lid))) = own(self) else {
            return Ok(());
        };
        match others.iter().find(|o| own(o) == Some((vesw, Some(lid)))) {
            Some(other) => Err(KeyFault::new(
                "lid",
                format!(
                    "{:?} has the LID {lid} on the switch {vesw} already",
                    other.name
                ),
            )),
            None => Ok(()),
        }
    }

    /// Checks that the number on the port is unique.
    pub(super) fn check_index(&self, others: &[VnicConfig]) -> Result<(), String> {
        let taken = |o: &&VnicConfig| o.port == self.port && o.index == self.index;
        match others.iter().find(taken) {
            Some(other) => Err(format!(
                "{:?} has the index {} on that port already",
                other.name, self.index
            )),
            None => Ok(()),
        }
    }
}

impl VnicPeer {
    /// Checks that the LID is unique.
    pub(super) fn check(&self, others: &[VnicPeer]) -> Result<(), String> {
        match others.iter().any(|o| o.lid == self.lid) {
            true => Err(format!("the LID {} is listed twice; remove one", self.lid)),
            false => Ok(()),
        }
    }
}

/// The smallest MTU of an Ethernet interface, in bytes (kernel include/uapi/linux/if_ether.h,
/// ETH_MIN_MTU).
pub const ETH_MTU_MIN: u32 = 68;

/// The largest MTU of the packet format: 2047 quad words minus header, tail and 18 bytes of an Ethernet
/// header with a tag.
pub const ETH_MTU_MAX: u32 = 16_351 - 18;

/// The number of a virtual Ethernet switch.
///
/// # Errors
/// A sentence for the user.
pub fn vesw_from_number(number: u64) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(vesw @ 1..=4095) => Ok(vesw),
        _ => Err(format!(
            "the switch {number} is out of range; use 1 to 4095"
        )),
    }
}

/// Parses the number of a switch; see [`vesw_from_number`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_vesw(text: &str) -> Result<u16, String> {
    match values::parse_number(text) {
        Some(number) => vesw_from_number(number),
        None => Err(format!(
            "{text:?} is not the number of a switch; use 1 to 4095"
        )),
    }
}

/// A unicast LID, 24 bits.
///
/// # Errors
/// A sentence for the user.
pub fn lid_from_number(number: u64) -> Result<OpaLid, String> {
    let lid = u32::try_from(number).ok().filter(|n| *n <= 0xff_ffff);
    lid.map(OpaLid::new)
        .filter(|lid| lid.is_unicast())
        .ok_or_else(|| format!("the LID {number:#x} is out of range; use 0x000001 to 0xefffff"))
}

/// Parses the MAC of an interface: neither a group address nor all zeros.
///
/// # Errors
/// A sentence for the user.
pub fn parse_mac(text: &str) -> Result<Mac, String> {
    match text.parse::<crate::api::MacAddress>() {
        Ok(mac) if mac.0[0] & 1 != 0 => Err(format!(
            "{mac} is the address of a group; use the MAC of an interface"
        )),
        Ok(mac) if mac.0 == [0; 6] => Err(format!(
            "{mac} is not a valid MAC; use the MAC of an interface"
        )),
        Ok(mac) => Ok(mac.0),
        Err(_) => Err(format!(
            "{text:?} is not a MAC; use six bytes such as 02:00:00:00:00:01"
        )),
    }
}

/// The value of `--vnic`: `VESW` or `NAME=VESW` for a switch, `NAME` or nothing for a managed VNIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnicOption {
    /// Interface name; `None`: the next free name of `vnic0`, `vnic1`, ….
    pub name: Option<String>,
    /// The switch; `None`: a manager assigns it.
    pub vesw: Option<u16>,
}

/// Parses a [`VnicOption`].
///
/// # Errors
/// A sentence for the user.
pub fn parse_option(text: &str) -> Result<VnicOption, String> {
    let named = |name: &str| values::parse_interface(name).map(Some);
    let (name, vesw) = match text.split_once('=') {
        Some((name, vesw)) => (named(name)?, Some(parse_vesw(vesw)?)),
        None if text.is_empty() => (None, None),
        None if text.starts_with(|c: char| c.is_ascii_digit()) => (None, Some(parse_vesw(text)?)),
        None => (named(text)?, None),
    };
    Ok(VnicOption { name, vesw })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e04_switches_are_numbered_from_1_to_4095() {
        assert_eq!(vesw_from_number(1), Ok(1));
        assert_eq!(vesw_from_number(4095), Ok(4095));
        for wrong in [0, 4096, 0x1_0001, u64::MAX] {
            assert!(vesw_from_number(wrong).unwrap_err().contains("1 to 4095"));
        }
        assert_eq!(parse_vesw("0x10"), Ok(16));
        assert!(parse_vesw("-1").is_err() && parse_vesw("").is_err());
    }

    #[test]
    fn lids_are_unicast() {
        assert_eq!(lid_from_number(7), Ok(OpaLid::new(7)));
        assert_eq!(lid_from_number(0xef_ffff), Ok(OpaLid::new(0xef_ffff)));
        for wrong in [0, 0xf0_0000, 0x100_0001, u64::MAX] {
            assert!(lid_from_number(wrong).is_err(), "{wrong:#x}");
        }
    }

    #[test]
    fn macs_are_one_interfaces() {
        assert_eq!(parse_mac("02:00:00:00:00:01"), Ok([2, 0, 0, 0, 0, 1]));
        for wrong in ["01:00:5e:00:00:01", "00:00:00:00:00:00", "02:00", ""] {
            assert!(parse_mac(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_option_has_a_name_a_switch_both_or_neither() {
        let option = |name: Option<&str>, vesw| VnicOption {
            name: name.map(str::to_owned),
            vesw,
        };
        assert_eq!(parse_option(""), Ok(option(None, None)));
        assert_eq!(parse_option("7"), Ok(option(None, Some(7))));
        assert_eq!(parse_option("lan"), Ok(option(Some("lan"), None)));
        assert_eq!(parse_option("lan=0x7"), Ok(option(Some("lan"), Some(7))));
        for wrong in ["=7", "lan=", "lan=0", "0", "4096", "a/b", "lan=seven"] {
            assert!(parse_option(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_free_index_is_taken() {
        let port = PortName::Underlay("eth0".into());
        let on = |index| VnicConfig::new("v", port.clone(), index);
        let others = [on(0), on(2)];
        assert_eq!(VnicConfig::free_index(&port, &others), Ok(1));
        let elsewhere = PortName::Underlay("eth1".into());
        assert_eq!(VnicConfig::free_index(&elsewhere, &others), Ok(0));
        let all: Vec<VnicConfig> = (0..VPORTS_MAX as u8).map(on).collect();
        assert!(VnicConfig::free_index(&port, &all).is_err());
    }
}
