//! Codes of MTU, rate and packet lifetime, and the selectors before them.

use std::fmt;
use std::time::Duration;

use proto::IbMtu;

/// How a requester wants a value (IBA vol. 1, 15.2.5.16).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Selector {
    /// Greater than the value.
    #[default]
    GreaterThan = 0,
    /// Less than the value.
    LessThan = 1,
    /// Exactly the value.
    Exactly = 2,
    /// The largest, for a packet lifetime the smallest; the value is ignored.
    Best = 3,
}

/// A selector of two bits before a code of six bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selected {
    /// In a request: how the code is meant. In an answer of OpenSM: [`Selector::Exactly`].
    pub selector: Selector,
    /// The code, below 64.
    pub code: u8,
}

impl Selected {
    /// Exactly this code.
    pub const fn exactly(code: u8) -> Selected {
        Selected {
            selector: Selector::Exactly,
            code,
        }
    }

    /// The MTU of this code; `None` for a reserved code.
    pub fn mtu(self) -> Option<IbMtu> {
        IbMtu::from_code(self.code)
    }

    /// The rate of this code.
    pub const fn rate(self) -> Rate {
        Rate(self.code)
    }

    /// The packet lifetime of this code.
    pub const fn lifetime(self) -> Duration {
        packet_lifetime(self.code)
    }

    pub(super) const fn from_byte(byte: u8) -> Selected {
        let selector = match byte >> 6 {
            0 => Selector::GreaterThan,
            1 => Selector::LessThan,
            2 => Selector::Exactly,
            _ => Selector::Best,
        };
        Selected {
            selector,
            code: byte & 0x3f,
        }
    }

    pub(super) const fn to_byte(self) -> u8 {
        (self.selector as u8) << 6 | self.code & 0x3f
    }
}

/// The time of a code of packet lifetime: 4.096 µs times two to the power of the code (IBA vol. 1,
/// 15.2.5.16). Codes have six bits; the time of a larger code is that of 63.
pub const fn packet_lifetime(code: u8) -> Duration {
    let code = if code > 63 { 63 } else { code };
    let nanoseconds = 4096u128 << code;
    Duration::new(
        ((nanoseconds / 1_000_000_000) & 0xffff_ffff_ffff_ffff) as u64,
        (nanoseconds % 1_000_000_000) as u32,
    )
}

/// A code of a static rate (IBA vol. 1, 15.2.5.16, table 205; kernel include/rdma/ib_verbs.h, `ib_rate`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rate(pub u8);

impl Rate {
    /// 10 Gbit/s: the rate of a port of four lanes with single data rate.
    pub const GBPS_10: Rate = Rate(3);

    /// Mbit/s, with the names of the field for rates that are not whole numbers (14.0625 Gbit/s is
    /// 14 Gbit/s); `None` for a reserved code.
    pub const fn mbps(self) -> Option<u32> {
        Some(match self.0 {
            2 => 2_500,
            3 => 10_000,
            4 => 30_000,
            5 => 5_000,
            6 => 20_000,
            7 => 40_000,
            8 => 60_000,
            9 => 80_000,
            10 => 120_000,
            11 => 14_000,
            12 => 56_000,
            13 => 112_000,
            14 => 168_000,
            15 => 25_000,
            16 => 100_000,
            17 => 200_000,
            18 => 300_000,
            19 => 28_000,
            20 => 50_000,
            21 => 400_000,
            22 => 600_000,
            23 => 800_000,
            24 => 1_200_000,
            _ => return None,
        })
    }

    /// Mbit/s on the wire, as the kernel counts (drivers/infiniband/core/verbs.c, `ib_rate_to_mbps`): 56,250
    /// for 56 Gbit/s. `None` for a reserved code.
    pub const fn wire_mbps(self) -> Option<u32> {
        Some(match self.0 {
            11 => 14_062,
            12 => 56_250,
            13 => 112_500,
            14 => 168_750,
            15 => 25_781,
            16 => 103_125,
            17 => 206_250,
            18 => 309_375,
            19 => 28_125,
            20 => 53_125,
            21 => 425_000,
            22 => 637_500,
            23 => 850_000,
            24 => 1_275_000,
            _ => return self.mbps(),
        })
    }
}

/// Formats like `2.5 Gbit/s`; a reserved code like `rate code 63`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mbps() {
            Some(mbps) => write!(f, "{} Gbit/s", f64::from(mbps) / 1000.0),
            None => write!(f, "rate code {}", self.0),
        }
    }
}
