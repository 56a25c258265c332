//! The UD endpoint of a VNIC that is on a switch: its lanes, groups, and carrier.

use std::sync::Arc;

use control::api::Happening;
use fabric::{FabricError, PKey, PortAttributes};
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use super::{Ethernet, Management, groups_of_one};
use crate::datapath::Command;
use crate::interface::groups::GroupSet;
use crate::interface::{Events, FabricLink, Interface};
use crate::port::{PortRuntime, inactive};

impl Ethernet {
    /// Opens the endpoint, and gives each data thread a lane.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub fn open_endpoint(
        &mut self,
        interface: &Interface,
        port: &mut PortRuntime,
    ) -> Result<(), FabricError> {
        let attributes = port.port.attributes();
        // The same number after a restart, so that peers need not learn it again.
        let qpn = ipoib::local_qpn(attributes.gid, PKey::DEFAULT, &self.identity());
        let bounds = groups_of_one(&port.port.capabilities());
        let keys = (self.info.pkey, self.qkey());
        let id = interface.id.link();
        let link = FabricLink::open(id, keys, Some(qpn), bounds, &mut *port.port)?;
        self.hand_out(interface, &link, &attributes, &port.mailboxes());
        self.link = Some(link);
        Ok(())
    }

    /// Closes the endpoint and its lanes. The counters stay.
    pub fn close_endpoint(
        &mut self,
        interface: &Interface,
        port: &mut PortRuntime,
        events: &mut Events,
    ) {
        let Some(mut link) = self.link.take() else {
            return;
        };
        for mgid in link.groups.clear() {
            events.push(interface.subject(), Happening::GroupLeft { mgid });
        }
        // New cores know no MACs behind the interface and report only changes.
        self.guests.clear();
        self.siblings = Arc::default();
        for part in link.close(&interface.name, port) {
            self.counted.note(&part);
        }
        self.counted.retire();
    }

    /// Joins and leaves groups, until the VNIC has those of its switch. True if the switch's own group was
    /// joined or lost, or the fabric has first answered: without that group there is no carrier, and a carrier of
    /// before is kept only until the answer.
    pub fn sync_groups(
        &mut self,
        interface: &Interface,
        port: &mut PortRuntime,
        events: &mut Events,
    ) -> bool {
        let missed = self.missing_group().is_some();
        let awaited = self.awaits_group();
        let wanted = self.wanted_groups(interface);
        let Some(link) = &mut self.link else {
            return false;
        };
        let changes = link.follow_groups(&interface.name, wanted, &mut *port.port);
        changes.push(events, interface);
        self.missing_group().is_some() != missed || awaited && !self.awaits_group()
    }

    /// Whether the first answer for the group of the switch is awaited.
    fn awaits_group(&self) -> bool {
        let groups = self.link.as_ref().map(|link| &link.groups);
        groups.is_some_and(GroupSet::is_awaited)
    }

    /// Sets the manager's MAC table.
    pub fn set_table(&mut self, interface: &Interface, table: Arc<MacTable>, port: &PortRuntime) {
        self.table = table;
        let id = interface.id.link();
        port.send(|| Command::SetTable(id, self.table.clone()));
    }

    /// Sets the directory: the addresses of the switch's members.
    pub fn set_directory(
        &mut self,
        interface: &Interface,
        directory: Arc<Directory>,
        port: &PortRuntime,
    ) {
        self.directory = directory;
        let id = interface.id.link();
        port.send(|| Command::SetDirectory(id, self.directory.clone()));
    }

    /// Why the VNIC has no carrier, for users; `None` if it has one. `management` is that of its port.
    pub fn no_carrier(
        &self,
        port: &PortAttributes,
        management: Option<&Management>,
    ) -> Option<String> {
        let no_group =
            |why| format!("cannot join the multicast group of its switch, retrying: {why}");
        let group = || self.missing_group().map(no_group);
        self.no_carrier_with_group(port, management).or_else(group)
    }

    /// The same if the group of its switch were joined.
    fn no_carrier_with_group(
        &self,
        port: &PortAttributes,
        management: Option<&Management>,
    ) -> Option<String> {
        if let Some(why) = inactive(port) {
            return Some(why);
        }
        if !self.is_on_switch() {
            return Some(match (self.spec.switch.is_some(), &self.failed) {
                (false, Some(why)) => {
                    format!("cannot apply the settings of its Ethernet Manager: {why}")
                }
                (false, None) => waits_for_manager(management),
                (true, Some(why)) => format!(
                    "cannot join its switch; ibtapd retries when its port becomes active: {why}"
                ),
                (true, None) => "not on a switch yet".into(),
            });
        }
        if self.entry().is_none() {
            return Some(format!(
                "the P_Key {} is not in the P_Key table of {}",
                self.info.pkey, port.name
            ));
        }
        let state = self.info.config_state;
        if !self.is_to_forward() {
            return Some(format!("its Ethernet Manager has set its state to {state}"));
        }
        None
    }

    /// Whether an answer decides the carrier: that of the manager, or that of the fabric for the group of the switch.
    pub fn awaits_carrier(&self, port: &PortAttributes) -> bool {
        // The manager sets first the switch, later the state Forwarding.
        let is_managed = self.spec.switch.is_none();
        let for_manager = is_managed && !self.is_to_forward() && self.failed.is_none();
        let for_group = self.awaits_group() && self.no_carrier_with_group(port, None).is_none();
        inactive(port).is_none() && (for_manager || for_group)
    }
}

fn waits_for_manager(management: Option<&Management>) -> String {
    let waits = "waiting for an Ethernet Manager to assign a switch";
    match management.and_then(Management::missing_group) {
        Some(why) => format!("{waits}; cannot join the multicast group of management: {why}"),
        None => waits.into(),
    }
}
