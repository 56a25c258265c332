//! What Omni-Path's virtual Ethernet switches add to the vocabulary: local identifiers of 24 bits, and the
//! states of a virtual port.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A local identifier of 24 bits (kernel include/rdma/opa_addr.h). Unicast are 0x000001 to 0xefffff,
/// multicast 0xf00000 to 0xf7ffff; 0 stands for none.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct OpaLid(u32);

impl OpaLid {
    /// None.
    pub const NONE: OpaLid = OpaLid(0);
    /// The first multicast LID.
    pub const MULTICAST: OpaLid = OpaLid(0xf0_0000);
    /// The permissive LID, for management before there are LIDs.
    pub const PERMISSIVE: OpaLid = OpaLid(0xff_ffff);

    /// The LID of this number, of which 24 bits count.
    #[must_use]
    pub const fn new(number: u32) -> OpaLid {
        OpaLid(number & 0xff_ffff)
    }

    /// The LID of this number in the 32-bit form that hosts have inside, where multicast are 0xf0000000
    /// and more and the permissive LID is 0xffffffff (kernel include/rdma/opa_addr.h, `__opa_get_lid`);
    /// numbers of 24 bits are themselves. `None` if it is neither, which must not be cut to 24 bits:
    /// 0xf0000002 would become one node's.
    #[must_use]
    pub const fn from_host(number: u32) -> Option<OpaLid> {
        match number {
            0..=0xff_ffff => Some(OpaLid(number)),
            0xf000_0000..=0xf007_ffff => Some(OpaLid(OpaLid::MULTICAST.0 + (number - 0xf000_0000))),
            u32::MAX => Some(OpaLid::PERMISSIVE),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// One node's: neither 0, nor of a group, nor reserved.
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        self.0 != 0 && self.0 < 0xf0_0000
    }

    /// A group's.
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

/// What a virtual port does, or is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigState {
    /// 0: nothing is asked; taken as [`ConfigState::DropAll`] by the kernel's driver.
    Nop,
    /// 1: drop all.
    #[default]
    DropAll,
    /// 2: being set up.
    Init,
    /// 3: forward.
    Forwarding,
}

impl ConfigState {
    /// Its number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            ConfigState::Nop => 0,
            ConfigState::DropAll => 1,
            ConfigState::Init => 2,
            ConfigState::Forwarding => 3,
        }
    }

    /// The state of this number. One that nobody knows is [`ConfigState::DropAll`], as which the kernel's
    /// driver takes it.
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
