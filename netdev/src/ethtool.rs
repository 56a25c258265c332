//! Offload features of an interface, as `ethtool -k` shows them.
//!
//! After `ethtool -K` the kernel sends RTM_NEWLINK for the interface (NETDEV_FEAT_CHANGE, kernel
//! net/core/rtnetlink.c), so that reading the features again at each [`rtnl::Event::LinkChanged`]
//! is enough to follow them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::{self, EthtoolFeature};

// Commands of kernel include/uapi/linux/ethtool.h, each of which gives 0 or 1.
const ETHTOOL_GRXCSUM: u32 = 0x14;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;

/// Which offloads an administrator left on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Generic receive offload: received segments of a flow may be merged.
    pub gro: bool,
    /// Generic segmentation offload.
    pub gso: bool,
    /// TCP segmentation offload, of any kind.
    pub tso: bool,
    /// Receive checksums may be left to this side.
    pub rx_checksum: bool,
    /// Transmit checksums may be left to this side, of any kind.
    pub tx_checksum: bool,
}

impl Features {
    /// Reads the features of the interface `name` in the calling thread's network namespace
    /// (SIOCETHTOOL, kernel net/ethtool/ioctl.c). No privilege is needed.
    ///
    /// # Errors
    /// ENODEV if there is no such interface.
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

/// All features of the interface `name` by their names, such as `tx-udp-segmentation`, and whether
/// each is on.
///
/// # Errors
/// ENODEV if there is no such interface, ENOBUFS if the kernel has more features than expected.
pub fn all_features(name: &str) -> io::Result<BTreeMap<String, bool>> {
    let all = sys::ethtool_features(socket_for(name)?, name)?.into_iter();
    // Bits without a feature have no name.
    let named = all.filter(|feature| !feature.name.is_empty());
    Ok(named
        .map(|feature| (feature.name, feature.active))
        .collect())
}

/// The features of an interface that were turned off, by their bits.
#[derive(Debug, Default)]
pub(crate) struct TurnedOff(BTreeSet<usize>);

impl TurnedOff {
    /// Reads those of the interface `name` in the calling thread's network namespace. One that is off
    /// for now, as those that a TAP's next holder is to say of, is not among them.
    ///
    /// # Errors
    /// As [`all_features`].
    pub(crate) fn read(name: &str) -> io::Result<TurnedOff> {
        let all = sys::ethtool_features(socket_for(name)?, name)?;
        let off = |(_, feature): &(usize, &EthtoolFeature)| feature.available && !feature.requested;
        let off = all.iter().enumerate().filter(off);
        Ok(TurnedOff(off.map(|(bit, _)| bit).collect()))
    }

    /// Turns off again what was on meanwhile.
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

/// Interrupt moderation, as `ethtool -c` shows it; for TAP a number that nobody but the daemon heeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalesce {
    /// Microseconds after which a receive is reported; TAP has no such setting (0).
    pub rx_usecs: u32,
    /// Frames after which a receive is reported; 0 for none.
    pub rx_frames: u32,
}

/// Moderation of the interface `name` in the calling thread's network namespace. Changes are told by
/// [`rtnl::EthtoolMonitor`].
///
/// # Errors
/// ENODEV if there is no such interface, EOPNOTSUPP if its driver has no moderation.
pub fn coalesce(name: &str) -> io::Result<Coalesce> {
    let read = sys::ethtool_coalesce(socket_for(name)?, name)?;
    Ok(Coalesce {
        rx_usecs: read.rx_coalesce_usecs,
        rx_frames: read.rx_max_coalesced_frames,
    })
}

/// Any socket of the network namespace will do.
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
