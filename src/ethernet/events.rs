//! Events of the data threads about a VNIC.

use control::api::LinkAddress;
use fabric::EndpointId;
use vnic::directory::NodeAddress;
use vnic::port::{Event, Place};

use super::{Ethernet, now};
use crate::interface::Interface;

impl Ethernet {
    /// A core of the VNIC reports an event. True if the MACs behind the interface changed. Events of a
    /// former endpoint, `from`, are ignored.
    pub fn event(&mut self, interface: &Interface, from: EndpointId, event: Event) -> bool {
        let link = self.link.as_ref();
        if link.is_none_or(|link| link.endpoint.id != from) {
            return false;
        }
        let name = &interface.name;
        match event {
            Event::LocalMacs(macs) => {
                self.guests = macs;
                return true;
            }
            Event::Crowded(kept) => log::warn!(
                "{name}: more than {kept} guests are active; ibtapd reports {kept} guests to the Ethernet \
                 Manager, and counts refused guests (mac_refused); frames of refused guests are forwarded, and \
                 members that learn reach the refused guests"
            ),
            Event::DuplicateLid { lid, other } => log::warn!(
                "{name}: {} on this switch also has the LID {lid}, and both lose packets; give one of them \
                 another LID: lid = ... in its [[vnic]], or let an Ethernet Manager assign LIDs",
                at_words(&other)
            ),
            Event::LidConflict { lid, kept, other } => {
                if let Some(skipped) = self.lid_conflicts.take(now()) {
                    log::warn!(
                        "{name}: {} and {} both have the LID {lid}; give one of them another one{}",
                        at_words(&kept),
                        at_words(&other),
                        skipped_words(skipped)
                    );
                }
            }
            // The ports of a bond have one MAC: the backup port of an active-backup bond hears the broadcasts of the
            // active port.
            Event::MacConflict { mac, .. } if self.bonded && mac == interface.mac => {}
            Event::MacConflict { mac, kept, other } => {
                if let Some(skipped) = self.mac_conflicts.take(now()) {
                    log::warn!(
                        "{name}: the MAC {} is used {} and {}; remove the loop or the duplicate MAC{}",
                        LinkAddress(mac),
                        place_words(kept),
                        place_words(other),
                        skipped_words(skipped)
                    );
                }
            }
            Event::ForgedLid { lid, from } => log::warn!(
                "{name}: {} sends with the LID {lid}, which is not its own; its packets are dropped and \
                 counted (rx_forged_lid)",
                at_words(&from)
            ),
        }
        false
    }
}

fn skipped_words(skipped: u64) -> String {
    match skipped {
        0 => String::new(),
        n => format!(" ({n} more of these were not logged)"),
    }
}

fn at_words(address: &NodeAddress) -> String {
    format!("{} qpn {}", address.gid, address.qpn)
}

fn place_words(place: Place) -> String {
    match place {
        Place::Here => "behind this interface".into(),
        Place::At(lid) => format!("at the LID {lid}"),
    }
}
