//! The allowed MTUs of an interface, by mode (kernel drivers/infiniband/ulp/ipoib/ipoib_main.c,
//! `ipoib_change_mtu` and `ipoib_set_mode`).

use std::ops::RangeInclusive;

use control::config::IpoibConfig;
use fabric::Port;
use ipoib::Mode;
use netdev::mss::MssLimit;
use proto::MssChoice;

use super::{ENCAPSULATION, MTU_MIN};
use crate::interface::InterfaceError;

/// The largest MTU of connected mode in bytes (kernel drivers/infiniband/ulp/ipoib/ipoib.h,
/// `IPOIB_CM_MTU`).
pub const CONNECTED_MTU: u32 = 65_520;

/// The largest IP packets in bytes that a port carries for an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuLimits {
    /// In a datagram: the link's MTU.
    pub datagram: u32,
    /// In a message of a connection; 0 without connections.
    pub connected: u32,
    /// Bytes of a message that one system call sends; 0 if one call sends a message of any size.
    pub train: usize,
}

impl MtuLimits {
    /// The current limits of a port.
    pub fn of(port: &dyn Port) -> MtuLimits {
        let can = port.capabilities();
        let message = u32::try_from(can.message_max).unwrap_or(u32::MAX);
        MtuLimits {
            datagram: port
                .attributes()
                .ud_payload_max
                .saturating_sub(ENCAPSULATION),
            connected: message.saturating_sub(ENCAPSULATION).min(CONNECTED_MTU),
            train: can.message_train,
        }
    }

    /// Whether the port supports connections.
    pub fn has_connections(&self) -> bool {
        self.connected != 0
    }

    /// The largest MTU in a mode.
    pub fn most(&self, mode: Mode) -> u32 {
        match mode {
            Mode::Datagram => self.datagram,
            Mode::Connected => self.connected,
        }
    }

    /// The allowed MTUs in a mode.
    pub fn allowed(&self, mode: Mode) -> RangeInclusive<u32> {
        let most = self.most(mode);
        MTU_MIN.min(most)..=most
    }

    /// The largest segment of TCP over connections. `None`: only the interface's MTU limits segments.
    pub fn mss(&self, choice: MssChoice) -> Option<MssLimit> {
        match choice {
            MssChoice::Mtu => None,
            MssChoice::Bytes(bytes) => Some(MssLimit {
                v4: bytes,
                v6: bytes,
            }),
            MssChoice::Train => {
                let encapsulation = ENCAPSULATION as usize;
                let trains = (self.connected as usize + encapsulation).checked_div(self.train)?;
                let message = trains * self.train;
                (trains > 0).then(|| MssLimit::of_packet(message - encapsulation))
            }
        }
    }

    /// The MTU for an interface in `mode`.
    ///
    /// # Errors
    /// [`InterfaceError::Mode`] without connections; [`InterfaceError::Mtu`] if the configured MTU is out
    /// of range.
    pub fn wanted(&self, spec: &IpoibConfig, mode: Mode) -> Result<u32, InterfaceError> {
        let most = self.most(mode);
        if mode == Mode::Connected && !self.has_connections() {
            return Err(InterfaceError::Mode(format!(
                "{} cannot use connected mode, because its port does not support connections; use \
                 mode \"datagram\"",
                spec.name
            )));
        }
        let Some(mtu) = spec.mtu else {
            return Ok(most);
        };
        let name = &spec.name;
        if mtu < MTU_MIN {
            return Err(InterfaceError::Mtu(format!(
                "the MTU {mtu} of {name} is below the minimum of IPoIB, {MTU_MIN}; use {MTU_MIN} to {most}"
            )));
        }
        if mtu <= most {
            return Ok(mtu);
        }
        Err(InterfaceError::Mtu(match mode {
            Mode::Datagram => format!(
                "the MTU {mtu} of {name} is above the link MTU {most}; use at most {most}, raise the \
                 MTU of the network below, or use mode \"connected\""
            ),
            Mode::Connected => format!(
                "the MTU {mtu} of {name} is above the maximum of connected mode, {most}; use at most {most}"
            ),
        }))
    }

    /// The MTU of an interface with the MTU `current` after a change to `mode`: connected mode raises it to
    /// the configured MTU or the maximum; datagram mode reduces it to the link's.
    ///
    /// # Errors
    /// As [`MtuLimits::wanted`].
    pub fn after(
        &self,
        spec: &IpoibConfig,
        mode: Mode,
        current: u32,
    ) -> Result<u32, InterfaceError> {
        match mode {
            Mode::Datagram => Ok(current.min(self.datagram)),
            Mode::Connected => self.wanted(spec, mode),
        }
    }

    /// The MTU of an interface with the MTU `current` after the link's became `datagram`. An MTU equal to
    /// the link's or to the configured one follows; others, which the administrator has set, are only reduced
    /// (`ipoib_mcast_join_finish` in the kernel's driver). In connected mode the MTU stays
    /// (`ipoib_mcast_carrier_on_task`).
    pub fn following(&self, mode: Mode, asked: Option<u32>, current: u32, datagram: u32) -> u32 {
        let most = |link: u32| asked.map_or(link, |asked| asked.min(link));
        match mode {
            Mode::Connected => current,
            Mode::Datagram if current == most(self.datagram) => most(datagram),
            Mode::Datagram => current.min(datagram),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::config::PortName;

    const LIMITS: MtuLimits = MtuLimits {
        datagram: 4092,
        connected: CONNECTED_MTU,
        train: 15 * 4096,
    };

    fn spec(mtu: Option<u32>) -> IpoibConfig {
        let mut spec = IpoibConfig::new("ib0", PortName::Underlay("eth0".into()));
        spec.mtu = mtu;
        spec
    }

    #[test]
    fn c113_the_mtu_follows_the_mode() {
        use Mode::{Connected, Datagram};
        // Mode, configured, before, after.
        for (mode, asked, before, after) in [
            (Connected, None, 4092, 65_520),
            (Connected, None, 2044, 65_520),
            (Connected, Some(9000), 4092, 9000),
            (Datagram, None, 65_520, 4092),
            (Datagram, None, 2044, 2044),
            (Datagram, Some(65_520), 65_520, 4092),
            (Datagram, Some(2044), 2044, 2044),
        ] {
            let found = LIMITS.after(&spec(asked), mode, before).unwrap();
            assert_eq!(found, after, "{mode:?} {asked:?} {before}");
        }
        assert_eq!(LIMITS.allowed(Connected), 72..=65_520);
        assert_eq!(LIMITS.allowed(Datagram), 72..=4092);
    }

    #[test]
    fn the_links_mtu_is_followed_in_datagram_mode_only() {
        use Mode::{Connected, Datagram};
        for (mode, asked, before, after) in [
            (Datagram, None, 4092, 1424),
            (Datagram, None, 1000, 1000),
            (Datagram, Some(2044), 2044, 1424),
            (Datagram, Some(2044), 1000, 1000),
            (Datagram, Some(2044), 3000, 1424),
            (Connected, None, 65_520, 65_520),
            (Connected, Some(9000), 9000, 9000),
        ] {
            let found = LIMITS.following(mode, asked, before, 1424);
            assert_eq!(found, after, "{mode:?} {asked:?} {before}");
        }
        // The administrator's MTU stays.
        assert_eq!(LIMITS.following(Datagram, Some(2044), 1000, 2044), 1000);
        // A reduced MTU grows again.
        let small = MtuLimits {
            datagram: 1424,
            ..LIMITS
        };
        assert_eq!(small.following(Datagram, Some(2044), 1424, 4092), 2044);
        assert_eq!(small.following(Datagram, None, 1424, 4092), 4092);
    }

    #[test]
    fn segments_fill_whole_trains() {
        let mss = |train, choice| {
            let limits = MtuLimits { train, ..LIMITS };
            limits.mss(choice).map(|limit| (limit.v4, limit.v6))
        };
        use MssChoice::{Bytes, Mtu, Train};
        assert_eq!(mss(15 * 4096, Train), Some((61_396, 61_376)));
        assert_eq!(mss(62 * 1024, Train), Some((63_444, 63_424)));
        // Three trains of the smallest packets.
        assert_eq!(mss(64 * 256, Train), Some((49_108, 49_088)));
        assert_eq!(mss(0, Train), None);
        assert_eq!(mss(15 * 4096, Mtu), None);
        assert_eq!(mss(0, Bytes(1400)), Some((1400, 1400)));
    }

    #[test]
    fn refused_mtus_and_modes_are_sentences() {
        let refused =
            |limits: MtuLimits, mode, mtu| limits.wanted(&spec(mtu), mode).unwrap_err().to_string();
        assert_eq!(
            refused(LIMITS, Mode::Datagram, Some(9000)),
            "the MTU 9000 of ib0 is above the link MTU 4092; use at most 4092, raise the MTU of the \
             network below, or use mode \"connected\""
        );
        let short = MtuLimits {
            connected: 8188,
            ..LIMITS
        };
        assert_eq!(
            refused(short, Mode::Connected, Some(9000)),
            "the MTU 9000 of ib0 is above the maximum of connected mode, 8188; use at most 8188"
        );
        assert_eq!(
            refused(LIMITS, Mode::Connected, Some(71)),
            "the MTU 71 of ib0 is below the minimum of IPoIB, 72; use 72 to 65520"
        );
        let without = MtuLimits {
            connected: 0,
            ..LIMITS
        };
        assert!(!without.has_connections());
        assert_eq!(
            refused(without, Mode::Connected, None),
            "ib0 cannot use connected mode, because its port does not support connections; use mode \
             \"datagram\""
        );
    }
}
