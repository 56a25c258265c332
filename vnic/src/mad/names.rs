//! Names for display.

use super::{attribute, method, status};

/// Name of an attribute in the kernel's driver.
#[must_use]
pub const fn attribute_name(id: u16) -> Option<&'static str> {
    Some(match id {
        attribute::CLASS_PORT_INFO => "ClassPortInfo",
        attribute::NOTICE => "Notice",
        attribute::VESW_PORT_INFO => "VeswPortInfo",
        attribute::VESW_MAC_ENTRIES => "VeswPortMacEntries",
        attribute::IFACE_UCAST_MACS => "IfaceUcastMacs",
        attribute::IFACE_MCAST_MACS => "IfaceMcastMacs",
        attribute::DELETE_VESW => "DeleteVesw",
        attribute::SUMMARY_COUNTERS => "VeswPortSummaryCounters",
        attribute::ERROR_COUNTERS => "VeswPortErrorCounters",
        attribute::LID_DIRECTORY => "LidDirectory",
        attribute::NODE_INFO => "NodeInfo",
        attribute::MANAGER_INFO => "ManagerInfo",
        _ => return None,
    })
}

/// Name of a method.
#[must_use]
pub const fn method_name(method: u8) -> Option<&'static str> {
    Some(match method {
        method::GET => "Get",
        method::SET => "Set",
        method::SEND => "Send",
        method::TRAP => "Trap",
        method::GET_RESP => "GetResp",
        _ => return None,
    })
}

/// Meaning of a status.
#[must_use]
pub const fn status_name(status: u16) -> Option<&'static str> {
    Some(match status {
        status::OK => "ok",
        status::UNSUPPORTED => "unsupported method or attribute",
        status::INVALID => "invalid attribute value",
        _ => return None,
    })
}
