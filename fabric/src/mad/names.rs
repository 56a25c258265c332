//! Names of numbers in management datagrams.

use super::{class, cm, method, sa};

/// The class's short name.
pub const fn class_name(class: u8) -> Option<&'static str> {
    Some(match class {
        class::SUBN_LID_ROUTED => "SM",
        class::SUBN_DIRECTED_ROUTE => "SM-DR",
        class::SUBN_ADM => "SA",
        class::PERF => "PerfMgt",
        class::BM => "BM",
        class::DEV_MGMT => "DevMgt",
        class::COM_MGT => "CM",
        class::SNMP => "SNMP",
        0x09..=0x0f | 0x30..=0x4f => "Vendor",
        0x10..=0x2f => "Application",
        _ => return None,
    })
}

/// The method's name (IBA vol. 1, 13.4.5 and 15.2.2).
pub const fn method_name(method: u8) -> Option<&'static str> {
    Some(match method {
        method::GET => "Get",
        method::SET => "Set",
        method::SEND => "Send",
        method::TRAP => "Trap",
        method::REPORT => "Report",
        method::TRAP_REPRESS => "TrapRepress",
        method::GET_TABLE => "GetTable",
        method::GET_TRACE_TABLE => "GetTraceTable",
        method::GET_MULTI => "GetMulti",
        method::DELETE => "Delete",
        method::GET_RESP => "GetResp",
        method::REPORT_RESP => "ReportResp",
        method::GET_TABLE_RESP => "GetTableResp",
        method::GET_MULTI_RESP => "GetMultiResp",
        method::DELETE_RESP => "DeleteResp",
        _ => return None,
    })
}

/// The attribute's name, which depends on the class (IBA vol. 1, 13.4.8, 12.6, 15.2.5, 16.1.3).
pub const fn attribute_name(class: u8, attribute: u16) -> Option<&'static str> {
    match (class, attribute) {
        (_, sa::CLASS_PORT_INFO) => Some("ClassPortInfo"),
        (_, sa::NOTICE) => Some("Notice"),
        (_, sa::INFORM_INFO) => Some("InformInfo"),
        (class::COM_MGT, _) => cm_attribute_name(attribute),
        (class::SUBN_ADM, _) => sa_attribute_name(attribute),
        (class::PERF, 0x0010) => Some("PortSamplesControl"),
        (class::PERF, 0x0011) => Some("PortSamplesResult"),
        (class::PERF, 0x0012) => Some("PortCounters"),
        (class::PERF, 0x001d) => Some("PortCountersExtended"),
        _ => None,
    }
}

const fn cm_attribute_name(attribute: u16) -> Option<&'static str> {
    Some(match attribute {
        cm::REQ => "ConnectRequest",
        cm::MRA => "MsgRcptAck",
        cm::REJ => "ConnectReject",
        cm::REP => "ConnectReply",
        cm::RTU => "ReadyToUse",
        cm::DREQ => "DisconnectRequest",
        cm::DREP => "DisconnectReply",
        cm::SIDR_REQ => "ServiceIDResReq",
        cm::SIDR_REP => "ServiceIDResReqResp",
        cm::LAP => "LoadAlternatePath",
        cm::APR => "AlternatePathResponse",
        _ => return None,
    })
}

const fn sa_attribute_name(attribute: u16) -> Option<&'static str> {
    Some(match attribute {
        sa::NODE_RECORD => "NodeRecord",
        sa::PORT_INFO_RECORD => "PortInfoRecord",
        0x0013 => "SLtoVLMappingTableRecord",
        0x0014 => "SwitchInfoRecord",
        0x0015 => "LinearForwardingTableRecord",
        0x0017 => "MulticastForwardingTableRecord",
        0x0018 => "SMInfoRecord",
        0x0020 => "LinkRecord",
        0x0030 => "GuidInfoRecord",
        sa::SERVICE_RECORD => "ServiceRecord",
        0x0033 => "P_KeyTableRecord",
        sa::PATH_RECORD => "PathRecord",
        0x0036 => "VLArbitrationTableRecord",
        sa::MC_MEMBER_RECORD => "MCMemberRecord",
        0x003a => "MultiPathRecord",
        sa::INFORM_INFO_RECORD => "InformInfoRecord",
        _ => return None,
    })
}

/// The name of a status: the class-specific part (IBA vol. 1, 15.2.4, table 184) before the common part
/// (13.4.7, table 115).
pub const fn status_name(class: u8, status: u16) -> Option<&'static str> {
    if class == class::SUBN_ADM && status >> 8 != 0 {
        return Some(match status >> 8 {
            1 => "no resources",
            2 => "request invalid",
            3 => "no records",
            4 => "too many records",
            5 => "invalid GID",
            6 => "insufficient components",
            7 => "request denied",
            8 => "priority suggested",
            _ => return None,
        });
    }
    Some(match status {
        0x0000 => "ok",
        0x0001 => "busy",
        0x0002 => "redirect",
        0x0004 => "unsupported version",
        0x0008 => "unsupported method",
        0x000c => "unsupported method and attribute",
        0x001c => "invalid attribute value",
        _ => return None,
    })
}
