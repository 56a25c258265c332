//! Types of Omni-Path's virtual Ethernet switches: 24-bit local identifiers and the states of a virtual
//! port.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A local identifier of 24 bits (kernel include/rdma/opa_addr.h): unicast from 0x000001 to 0xefffff,
/// multicast from 0xf00000 to 0xf7ffff, 0 for none.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct OpaLid(u32);

impl OpaLid {
    /// No LID.
    pub const NONE: OpaLid = OpaLid(0);
    /// The first multicast LID.
    pub const MULTICAST: OpaLid = OpaLid(0xf0_0000);
    /// The permissive LID, for management before LIDs are assigned.
    pub const PERMISSIVE: OpaLid = OpaLid(0xff_ffff);

    /// Keeps the low 24 bits of `number`.
    #[must_use]
    pub const fn new(number: u32) -> OpaLid {
        OpaLid(number & 0xff_ffff)
    }

    /// Converts the 32-bit form inside hosts: multicast LIDs start at 0xf0000000, the permissive LID is
    /// 0xffffffff (kernel include/rdma/opa_addr.h, `__opa_get_lid`), and 24-bit numbers are unchanged.
    /// `None` for other numbers: cut to 24 bits, 0xf0000002 would be the LID of a node.
    #[must_use]
    pub const fn from_host(number: u32) -> Option<OpaLid> {
        match number {
            0..=0xff_ffff => Some(OpaLid(number)),
            0xf000_0000..=0xf007_ffff => Some(OpaLid(OpaLid::MULTICAST.0 + (number - 0xf000_0000))),
            u32::MAX => Some(OpaLid::PERMISSIVE),
            _ => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether this is the LID of a node: not 0, not multicast, not reserved.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        self.0 != 0 && self.0 < 0xf0_0000
    }

    /// Whether this is the LID of a group.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0 >= 0xf0_0000 && self.0 < 0xf8_0000
    }
}

impl fmt::Display for OpaLid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// The state of a virtual port, present or requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigState {
    /// 0: no request. The kernel's driver handles it as [`ConfigState::DropAll`].
    Nop,
    /// 1: drop all frames.
    #[default]
    DropAll,
    /// 2: initialization.
    Init,
    /// 3: forward frames.
    Forwarding,
}

impl ConfigState {
    /// The number of the state.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            ConfigState::Nop => 0,
            ConfigState::DropAll => 1,
            ConfigState::Init => 2,
            ConfigState::Forwarding => 3,
        }
    }

    /// The state with this number; [`ConfigState::DropAll`] for unknown numbers, as in the kernel's driver.
    #[must_use]
    pub const fn from_code(code: u8) -> ConfigState {
        match code {
            0 => ConfigState::Nop,
            2 => ConfigState::Init,
            3 => ConfigState::Forwarding,
            _ => ConfigState::DropAll,
        }
    }
}

impl fmt::Display for ConfigState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigState::Nop => "nop",
            ConfigState::DropAll => "drop-all",
            ConfigState::Init => "init",
            ConfigState::Forwarding => "forwarding",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_meet_without_a_gap() {
        let kinds = [
            (0, false, false),
            (1, true, false),
            (0xef_ffff, true, false),
            (0xf0_0000, false, true),
            (0xf7_ffff, false, true),
            (0xf8_0000, false, false),
            (0xff_ffff, false, false),
        ];
        for (number, unicast, multicast) in kinds {
            let lid = OpaLid::new(number);
            assert_eq!(
                (lid.is_unicast(), lid.is_multicast()),
                (unicast, multicast),
                "{lid}"
            );
        }
    }

    #[test]
    fn vc25_multicast_in_the_form_of_hosts_stays_multicast() {
        let of = |number| OpaLid::from_host(number).map(OpaLid::get);
        assert_eq!(of(0xf000_0000), Some(0xf0_0000));
        assert_eq!(of(0xf000_0002), Some(0xf0_0002));
        assert_eq!(of(0xf007_ffff), Some(0xf7_ffff));
        assert_eq!(of(0xffff_ffff), Some(0xff_ffff));
        assert_eq!(of(0xf0_0002), Some(0xf0_0002));
        assert_eq!(of(5), Some(5));
        for neither in [0x0100_0000, 0xefff_ffff, 0xf008_0000, 0xffff_fffe] {
            assert_eq!(of(neither), None, "{neither:#x}");
        }
    }
}
