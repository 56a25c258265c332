//! VNICs in service.

use std::collections::BTreeMap;

use super::Daemon;
use crate::api::{ApiError, ManageRequest, Reply, Selection, SendManagementRequest};
use crate::control::StreamId;
use crate::datapath::DeviceId;

/// One.
pub(crate) struct Vnic;

/// All of them.
pub(crate) type Vnics = BTreeMap<DeviceId, Vnic>;

impl Daemon {
    pub(crate) fn vnics(&mut self, _: &Selection) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }
    pub(crate) fn vnic_stats(&mut self, _: &Selection) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }
    pub(crate) fn vnic_macs(&mut self, _: &str) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }
    pub(crate) fn manage(&mut self, _: StreamId, _: &ManageRequest) -> Result<(), ApiError> {
        Err(ApiError::Busy)
    }
    pub(crate) fn send_management(&mut self, _: &SendManagementRequest) -> Result<Reply, ApiError> {
        Err(ApiError::Busy)
    }
}
