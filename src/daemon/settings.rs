//! What sysfs and ethtool set on the kernel's IPoIB.

use std::ops::RangeInclusive;

use control::api::{ApiError, Moderation, ModerationRequest, MtuRequest, Reply, UmcastRequest};
use rustix::io::Errno;

use super::Daemon;
use crate::datapath::Command;
use crate::port::PortId;

/// The largest of both numbers of completion moderation (kernel ipoib_ethtool.c,
/// `ipoib_set_coalesce`: 16 bits each).
pub(super) const MODERATION_MAX: u32 = 0xffff;

impl Daemon {
    /// Tells an interface's MTU, after a change where one is asked for.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`]; [`ApiError::Errno`] with EINVAL where the mode does not have it
    /// (kernel ipoib_main.c, `ipoib_change_mtu`); [`ApiError::Refused`] where rtnetlink refuses.
    pub(crate) fn mtu(&mut self, request: &MtuRequest) -> Result<Reply, ApiError> {
        let (interface, ip) = self.named_ip(&request.interface)?;
        if let Some(mtu) = request.mtu {
            let (id, name) = (interface.id, interface.name.clone());
            check_mtu(&name, mtu, ip.limits.allowed(ip.mode))?;
            self.set_mtu(id, mtu).map_err(|e| ApiError::Refused {
                message: format!("{name}: cannot set the MTU {mtu}: {e}"),
            })?;
        }
        let (interface, _) = self.named_ip(&request.interface)?;
        Ok(Reply::Mtu { mtu: interface.mtu })
    }

    /// Tells an interface's flag `umcast`, after a change where one is asked for.
    ///
    /// The kernel's driver leaves groups alone that a program of the user's has joined with a queue
    /// pair of its own (kernel ipoib_multicast.c, `ipoib_mcast_restart_task`). Here those are attached to
    /// groups beside ours, so the flag is kept and changes nothing.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`].
    pub(crate) fn umcast(&mut self, request: &UmcastRequest) -> Result<Reply, ApiError> {
        let id = self.named_ip(&request.interface)?.0.id;
        if let Some(umcast) = request.umcast
            && let Some((_, ip)) = self.interfaces.ip_mut(id)
        {
            ip.umcast = umcast;
        }
        let (_, ip) = self.named_ip(&request.interface)?;
        Ok(Reply::Umcast { umcast: ip.umcast })
    }

    /// Tells the completion moderation of an interface's port, after a change where one is asked
    /// for.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], [`ApiError::BadArgument`].
    pub(crate) fn moderation(&mut self, request: &ModerationRequest) -> Result<Reply, ApiError> {
        let at = self.named(&request.interface)?.0.port;
        let now = self.ports[at].moderation;
        let wanted = Moderation {
            rx_usecs: request.rx_usecs.unwrap_or(now.rx_usecs),
            rx_frames: request.rx_frames.unwrap_or(now.rx_frames),
        };
        for (what, number) in [
            ("rx_usecs", wanted.rx_usecs),
            ("rx_frames", wanted.rx_frames),
        ] {
            if number > MODERATION_MAX {
                return Err(ApiError::BadArgument {
                    message: format!("{what} is at most {MODERATION_MAX}, not {number}"),
                });
            }
        }
        self.set_moderation(at, wanted);
        Ok(Reply::Moderation(wanted))
    }

    /// Sets the completion moderation of a port, which all its interfaces share.
    pub(crate) fn set_moderation(&mut self, at: PortId, wanted: Moderation) {
        let port = &mut self.ports[at];
        if port.moderation != wanted {
            port.moderation = wanted;
            let (
                name,
                Moderation {
                    rx_usecs,
                    rx_frames,
                },
            ) = (port.port.attributes().name, wanted);
            log::info!("{name}: completion moderation rx-usecs {rx_usecs} rx-frames {rx_frames}");
            port.tell(|| Command::SetModeration(wanted));
        }
    }
}

fn check_mtu(name: &str, mtu: u32, allowed: RangeInclusive<u32>) -> Result<(), ApiError> {
    if allowed.contains(&mtu) {
        return Ok(());
    }
    Err(ApiError::Errno {
        errno: Errno::INVAL.raw_os_error(),
        message: format!(
            "an MTU of {mtu} bytes is out of {name}'s range in its mode; use {} to {}",
            allowed.start(),
            allowed.end()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_that_the_mode_does_not_have_is_invalid() {
        assert_eq!(check_mtu("ib0", 72, 72..=4092), Ok(()));
        assert_eq!(check_mtu("ib0", 4092, 72..=4092), Ok(()));
        for mtu in [0, 71, 4093, u32::MAX] {
            let error = check_mtu("ib0", mtu, 72..=4092).unwrap_err();
            assert!(
                matches!(&error, ApiError::Errno { errno: 22, .. }),
                "{error}"
            );
            assert_eq!(
                error.to_string(),
                format!("an MTU of {mtu} bytes is out of ib0's range in its mode; use 72 to 4092")
            );
        }
    }
}
