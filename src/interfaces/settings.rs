//! Settings that the kernel's IPoIB has in sysfs and ethtool.

use std::ops::RangeInclusive;

use control::api::{
    ApiError, ModeRequest, Moderation, ModerationRequest, MtuRequest, Reply, UmcastRequest,
};
use control::config::IpoibConfig;
use ipoib::Mode;
use rustix::io::Errno;

use crate::interface::InterfaceId;
use crate::interfaces::{Context, Interfaces};

impl Interfaces {
    /// Sets an interface's mode, if the request has one, and answers with the mode. A restart restores the
    /// configured mode.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`]; [`ApiError::Refused`] if the mode cannot change.
    pub fn mode(&mut self, cx: &mut Context, request: &ModeRequest) -> Result<Reply, ApiError> {
        let (interface, ip) = self.named_ip(cx.host.home, &request.interface)?;
        let (id, spec) = (interface.id, ip.spec.clone());
        if let Some(mode) = request.mode {
            self.change_mode(cx, id, mode, &spec)
                .map_err(|message| ApiError::Refused { message })?;
        }
        let (_, ip) = self.named_ip(cx.host.home, &request.interface)?;
        Ok(Reply::Mode { mode: ip.mode })
    }

    /// Changes an interface's mode, and the MTU to that of `spec` in the new mode. No change if the mode is
    /// the same.
    ///
    /// # Errors
    /// A sentence. Nothing changes then.
    pub fn change_mode(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        mode: Mode,
        spec: &IpoibConfig,
    ) -> Result<(), String> {
        let found = self.ip_mut(id).filter(|(_, ip)| ip.mode != mode);
        let Some((interface, ip)) = found else {
            return Ok(());
        };
        let port = &cx.ports[interface.port];
        let netlink = &mut cx.host.netlink;
        ip.change_mode(interface, (mode, spec), netlink, port, &mut cx.events)?;
        self.renew_alias(cx, id);
        Ok(())
    }

    /// Sets an interface's MTU, if the request has one, and answers with the MTU.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`]; [`ApiError::Errno`] with EINVAL if the MTU is out of range for the
    /// mode (kernel ipoib_main.c, `ipoib_change_mtu`); [`ApiError::Refused`] for errors of rtnetlink.
    pub fn mtu(&mut self, cx: &mut Context, request: &MtuRequest) -> Result<Reply, ApiError> {
        let (interface, ip) = self.named_ip(cx.host.home, &request.interface)?;
        if let Some(mtu) = request.mtu {
            let (id, name) = (interface.id, interface.name.clone());
            check_mtu(&name, mtu, ip.limits.allowed(ip.mode))?;
            self.set_mtu(cx, id, mtu).map_err(|e| ApiError::Refused {
                message: format!("{name}: cannot set the MTU {mtu}: {e}"),
            })?;
        }
        let (interface, _) = self.named_ip(cx.host.home, &request.interface)?;
        Ok(Reply::Mtu { mtu: interface.mtu })
    }

    /// Sets an interface's flag `umcast`, if the request has one, and answers with the flag.
    ///
    /// With `umcast`, the kernel's driver leaves groups alone that a program has joined with its own queue
    /// pair (kernel ipoib_multicast.c, `ipoib_mcast_restart_task`). Here, the groups of other queue pairs
    /// are independent, so the flag is stored and has no effect.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`].
    pub fn umcast(&mut self, cx: &mut Context, request: &UmcastRequest) -> Result<Reply, ApiError> {
        let id = self.named_ip(cx.host.home, &request.interface)?.0.id;
        if let Some(umcast) = request.umcast
            && let Some((_, ip)) = self.ip_mut(id)
        {
            ip.umcast = umcast;
        }
        let (_, ip) = self.named_ip(cx.host.home, &request.interface)?;
        Ok(Reply::Umcast { umcast: ip.umcast })
    }

    /// Sets the completion moderation of an interface's port, if the request has any, and answers with it.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], [`ApiError::BadArgument`].
    pub fn moderation(
        &mut self,
        cx: &mut Context,
        request: &ModerationRequest,
    ) -> Result<Reply, ApiError> {
        let at = self.named(cx.host.home, &request.interface)?.0.port;
        let now = cx.ports[at].moderation;
        let wanted = Moderation {
            rx_usecs: request.rx_usecs.unwrap_or(now.rx_usecs),
            rx_frames: request.rx_frames.unwrap_or(now.rx_frames),
        };
        for (what, number) in [
            ("rx_usecs", wanted.rx_usecs),
            ("rx_frames", wanted.rx_frames),
        ] {
            if number > Moderation::MAX {
                return Err(ApiError::BadArgument {
                    message: format!("{what} is at most {}, not {number}", Moderation::MAX),
                });
            }
        }
        cx.ports[at].set_moderation(wanted);
        Ok(Reply::Moderation(wanted))
    }
}

fn check_mtu(name: &str, mtu: u32, allowed: RangeInclusive<u32>) -> Result<(), ApiError> {
    if allowed.contains(&mtu) {
        return Ok(());
    }
    Err(ApiError::Errno {
        errno: Errno::INVAL.raw_os_error(),
        message: format!(
            "the MTU {mtu} is out of range for {name} in its mode; use {} to {}",
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
                format!("the MTU {mtu} is out of range for ib0 in its mode; use 72 to 4092")
            );
        }
    }
}
