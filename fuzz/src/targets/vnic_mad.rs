//! Management datagrams of VNICs. A decoded datagram is encoded to one that decodes to the same.

use std::fmt::Debug;

use vnic::attribute::{LidDirectory, ManagerInfo, NodeInfo, VeswPortInfo};
use vnic::mad::{
    self, Attribute, ClassPortInfo, DATA_MAX, ErrorCounters, LidDirectoryQuery, MAD_MAX,
    MacEntries, MacEntriesQuery, MacList, MacListQuery, Mad, Notice, SummaryCounters, attribute,
};

fn settles<A: Attribute + PartialEq + Debug>(data: &[u8]) {
    if let Ok(value) = A::decode(data) {
        let mut again = Vec::new();
        value.encode(&mut again);
        assert!(again.len() <= DATA_MAX);
        assert_eq!(A::decode(&again), Ok(value));
    }
}

pub fn run(data: &[u8]) {
    let Ok(mad) = Mad::parse(data) else {
        return;
    };
    assert!(data.len() <= MAD_MAX);
    assert_eq!([&mad::write_empty(&mad.header), mad.data].concat(), data);
    match mad.header.attribute_id.get() {
        attribute::CLASS_PORT_INFO => settles::<ClassPortInfo>(mad.data),
        attribute::NOTICE => settles::<Notice>(mad.data),
        attribute::VESW_PORT_INFO => settles::<VeswPortInfo>(mad.data),
        attribute::VESW_MAC_ENTRIES => {
            settles::<MacEntriesQuery>(mad.data);
            settles::<MacEntries>(mad.data);
        }
        attribute::IFACE_UCAST_MACS | attribute::IFACE_MCAST_MACS => {
            settles::<MacListQuery>(mad.data);
            settles::<MacList>(mad.data);
        }
        attribute::SUMMARY_COUNTERS => settles::<SummaryCounters>(mad.data),
        attribute::ERROR_COUNTERS => settles::<ErrorCounters>(mad.data),
        attribute::LID_DIRECTORY => {
            settles::<LidDirectoryQuery>(mad.data);
            settles::<LidDirectory>(mad.data);
        }
        attribute::NODE_INFO => settles::<NodeInfo>(mad.data),
        attribute::MANAGER_INFO => settles::<ManagerInfo>(mad.data),
        _ => {}
    }
}
