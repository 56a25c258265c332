//! The control side: the port, its endpoints and groups, and what happens to its device.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::config::VerbsConfig;
use crate::port::{
    Capabilities, EndpointId, FabricError, Port, PortAttributes, PortEvent, Resources, UdEndpoint,
    UdInit,
};
use crate::types::{Gid, PKey, Qpn};
use crate::worker::Worker;

/// A port of an RDMA device.
pub enum VerbsPort {}

impl VerbsPort {
    /// Opens the port. Waits up to [`VerbsConfig::gid_wait`] for it to be active.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with a sentence that says what is missing and how to get on;
    /// [`FabricError::Os`].
    pub fn open(config: VerbsConfig) -> Result<VerbsPort, FabricError> {
        Err(FabricError::Unusable(format!(
            "{}: this build cannot open RDMA devices yet",
            config.name()
        )))
    }
}

impl Port for VerbsPort {
    fn attributes(&self) -> PortAttributes {
        match *self {}
    }
    fn capabilities(&self) -> Capabilities {
        match *self {}
    }
    fn event_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
    fn process(&mut self) -> Vec<PortEvent> {
        match *self {}
    }
    fn take_workers(&mut self) -> Vec<Box<dyn Worker>> {
        match *self {}
    }
    fn create_ud(&mut self, _: UdInit) -> Result<UdEndpoint, FabricError> {
        match *self {}
    }
    fn destroy_ud(&mut self, _: EndpointId) -> Result<(), FabricError> {
        match *self {}
    }
    fn attach(&mut self, _: EndpointId, _: Gid) -> Result<(), FabricError> {
        match *self {}
    }
    fn detach(&mut self, _: EndpointId, _: Gid) -> Result<(), FabricError> {
        match *self {}
    }
    fn set_peers(&mut self, _: Vec<IpAddr>) -> Result<(), FabricError> {
        match *self {}
    }
    fn set_pkeys(&mut self, _: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        match *self {}
    }
    fn endpoint_pkey(&self, _: EndpointId) -> Option<PKey> {
        match *self {}
    }
    fn endpoint_qpn(&self, _: EndpointId) -> Option<Qpn> {
        match *self {}
    }
    fn change_groups(
        &mut self,
        _: EndpointId,
        _: &[Gid],
        _: &[Gid],
    ) -> Result<Vec<(Gid, FabricError)>, FabricError> {
        match *self {}
    }
    fn resources(&self) -> Resources {
        match *self {}
    }
}
