//! What sysfs and ethtool set on the kernel's IPoIB.

use super::Daemon;
use crate::api::{ApiError, ModerationRequest, MtuRequest, Reply, UmcastRequest};

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
    pub(crate) fn moderation(&mut self, _request: &ModerationRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }
}
