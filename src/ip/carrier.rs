//! The carrier and the administrative state of an IPoIB interface (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_main.c, `ipoib_open` and `ipoib_stop`).

use fabric::PortAttributes;
use rtnl::Requests;

use super::{Ip, IpLink};
use crate::datapath::Command;
use crate::interface::{Interface, Pending};
use crate::port::{PortRuntime, inactive};

/// The reason for no carrier if the broadcast group is missing.
pub fn no_broadcast_group(why: &str) -> String {
    format!("cannot join its broadcast group, retrying: {why}")
}

impl Ip {
    /// Why the interface has no carrier, for users; `None` if it has one. Depends on port, partition,
    /// parent and broadcast group.
    pub fn no_carrier(&self, port: &PortAttributes, parent: Option<&Interface>) -> Option<String> {
        let group = || self.link.fabric.groups.missing().map(no_broadcast_group);
        self.no_carrier_with_group(port, parent).or_else(group)
    }

    /// Whether the fabric's answer for the broadcast group decides the carrier.
    pub fn awaits_carrier(&self, port: &PortAttributes, parent: Option<&Interface>) -> bool {
        self.link.fabric.groups.is_awaited() && self.no_carrier_with_group(port, parent).is_none()
    }

    /// Why the interface would have no carrier if its broadcast group were joined.
    fn no_carrier_with_group(
        &self,
        port: &PortAttributes,
        parent: Option<&Interface>,
    ) -> Option<String> {
        if let Some(why) = inactive(port) {
            return Some(why);
        }
        if self.link.fabric.endpoint.pkey.is_none() {
            return Some(format!(
                "the P_Key {} is not in the P_Key table of {}",
                self.spec.pkey, port.name
            ));
        }
        let parent = parent.filter(|parent| !parent.up)?;
        Some(format!("its parent {} is down", parent.name))
    }

    /// The interface was set up or down. An interface that is down leaves all groups, the broadcast group too,
    /// and forgets neighbours, paths and connections.
    pub fn up_changed(
        &self,
        interface: &mut Interface,
        netlink: &mut Requests,
        port: &PortRuntime,
        pending: &mut Pending,
    ) {
        if !interface.up {
            for link in self.links() {
                port.send(|| Command::Flush(link.id()));
            }
        }
        pending.membership.extend(self.links().map(IpLink::id));
        self.announce(interface, netlink, port);
    }
}
