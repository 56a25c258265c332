//! Offload features of an interface, as shown by `ethtool -k`.
//!
//! After `ethtool -K` the kernel sends RTM_NEWLINK for the interface (NETDEV_FEAT_CHANGE, kernel
//! net/core/rtnetlink.c). To follow the features, read them again at each [`rtnl::Event::LinkChanged`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::{self, EthtoolFeature};

// Commands of kernel include/uapi/linux/ethtool.h; each returns 0 or 1.
const ETHTOOL_GRXCSUM: u32 = 0x14;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;

/// The offloads that are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Generic receive offload: received segments of a flow may be merged.
    pub gro: bool,
    /// Generic segmentation offload.
    pub gso: bool,
    /// TCP segmentation offload, of any kind.
    pub tso: bool,
    /// Received checksums need not be verified by the host.
    pub rx_checksum: bool,
    /// Transmit checksums of any kind need not be computed by the host.
    pub tx_checksum: bool,
}

impl Features {
    /// Reads the features of the interface `name` in the calling thread's network namespace (SIOCETHTOOL,
    /// kernel net/ethtool/ioctl.c). Needs no privilege.
    ///
    /// # Errors
    /// ENODEV if the interface does not exist.
    pub fn read(name: &str) -> io::Result<Features> {
        let socket = socket_for(name)?;
        let is_on = |command| Ok::<_, io::Error>(sys::ethtool_value(&socket, name, command)? != 0);
        Ok(Features {
            gro: is_on(ETHTOOL_GGRO)?,
            gso: is_on(ETHTOOL_GGSO)?,
            tso: is_on(ETHTOOL_GTSO)?,
            rx_checksum: is_on(ETHTOOL_GRXCSUM)?,
            tx_checksum: is_on(ETHTOOL_GTXCSUM)?,
        })
    }
}

/// All features of the interface `name`: name, such as `tx-udp-segmentation`, and state.
///
/// # Errors
/// ENODEV if the interface does not exist; ENOBUFS if the kernel has more features than expected.
pub fn all_features(name: &str) -> io::Result<BTreeMap<String, bool>> {
    let all = sys::ethtool_features(socket_for(name)?, name)?.into_iter();
    // Bits without a feature have no name.
    let named = all.filter(|feature| !feature.name.is_empty());
    Ok(named
        .map(|feature| (feature.name, feature.active))
        .collect())
}

/// The features of an interface that an administrator turned off, by bit.
#[derive(Debug, Default)]
pub(crate) struct TurnedOff(BTreeSet<usize>);

impl TurnedOff {
    /// Reads the features of the interface `name` in the calling thread's network namespace. Features that
    /// are off only for now are not included, such as those that the next holder of a TAP decides.
    ///
    /// # Errors
    /// As [`all_features`].
    pub(crate) fn read(name: &str) -> io::Result<TurnedOff> {
        let all = sys::ethtool_features(socket_for(name)?, name)?;
        let off = |(_, feature): &(usize, &EthtoolFeature)| feature.available && !feature.requested;
        let off = all.iter().enumerate().filter(off);
        Ok(TurnedOff(off.map(|(bit, _)| bit).collect()))
    }

    /// Turns off those of the features that are on.
    ///
    /// # Errors
    /// As [`all_features`]; EPERM without CAP_NET_ADMIN.
    pub(crate) fn restore(&self, name: &str) -> io::Result<()> {
        let socket = socket_for(name)?;
        let all = sys::ethtool_features(&socket, name)?;
        let on = |bit: &usize| all.get(*bit).is_some_and(|feature| feature.requested);
        let again: Vec<usize> = self.0.iter().copied().filter(on).collect();
        if again.is_empty() {
            return Ok(());
        }
        Ok(sys::ethtool_turn_off(socket, name, all.len(), &again)?)
    }
}

/// Interrupt moderation, as shown by `ethtool -c`. For a TAP only the daemon uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalesce {
    /// Microseconds after which a receive is reported; 0 for a TAP, which has no such setting.
    pub rx_usecs: u32,
    /// Frames after which a receive is reported; 0 for no limit.
    pub rx_frames: u32,
}

/// Reads the moderation of the interface `name` in the calling thread's network namespace.
/// [`rtnl::EthtoolMonitor`] reports changes.
///
/// # Errors
/// ENODEV if the interface does not exist; EOPNOTSUPP if the driver has no moderation.
pub fn coalesce(name: &str) -> io::Result<Coalesce> {
    let read = sys::ethtool_coalesce(socket_for(name)?, name)?;
    Ok(Coalesce {
        rx_usecs: read.rx_coalesce_usecs,
        rx_frames: read.rx_max_coalesced_frames,
    })
}

/// The speed of the interface `name` in Mb/s; `None` if the driver does not know it, for example without a link.
///
/// # Errors
/// ENODEV if the interface does not exist; EOPNOTSUPP if the driver has no speed.
pub fn speed(name: &str) -> io::Result<Option<u32>> {
    // SPEED_UNKNOWN is -1; drivers also report 0.
    let speed = sys::ethtool_speed(socket_for(name)?, name)?;
    Ok(Some(speed).filter(|speed| ![0, u32::MAX].contains(speed)))
}

/// A socket of the calling thread's network namespace; any kind works.
fn socket_for(name: &str) -> io::Result<OwnedFd> {
    if name.len() > rtnl::NAME_MAX {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(socket)
}
