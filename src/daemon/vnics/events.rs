//! What the data threads find of a VNIC.

use fabric::EndpointId;
use vnic::directory::NodeAddress;
use vnic::port::Event;

use crate::daemon::Daemon;
use crate::datapath::LinkId;
use crate::ethernet::{Ethernet, now};

impl Daemon {
    /// A VNIC's core has news. What one of a former switch has told is over: its addresses, too.
    pub(in crate::daemon) fn vnic_event(&mut self, link: LinkId, from: EndpointId, event: Event) {
        let is_from = |e: &Ethernet| {
            let link = e.link.as_ref();
            link.is_some_and(|link| link.endpoint.id == from)
        };
        let Some(id) = self.interfaces.by_link(link) else {
            return;
        };
        let found = self.interfaces.ethernet_mut(id);
        let Some((interface, ethernet)) = found.filter(|(_, e)| is_from(e)) else {
            return;
        };
        let name = &interface.name;
        match event {
            Event::LocalMacs(macs) => {
                ethernet.guests = macs;
                self.sync_agent_of(id);
            }
            Event::Crowded(kept) => log::warn!(
                "{name}: more than {kept} addresses behind it are in use: {kept} are kept and told to its \
                 Ethernet Manager, the others are carried, counted (mac_refused), and found by members that \
                 learn"
            ),
            Event::DuplicateLid { lid, other } => log::warn!(
                "{name}: the LID {lid} is also that of {} on this switch, so that neither receives what \
                 is its own; give one of them another LID: lid = ... in its [[vnic]], or let an Ethernet \
                 Manager choose them",
                at_words(&other)
            ),
            Event::LidConflict { lid, kept, other } => {
                if let Some(skipped) = ethernet.lid_conflicts.take(now()) {
                    log::warn!(
                        "{name}: {} and {} both have the LID {lid}; give one of them another one{}",
                        at_words(&kept),
                        at_words(&other),
                        skipped_words(skipped)
                    );
                }
            }
            Event::MacConflict { mac, kept, other } => {
                if let Some(skipped) = ethernet.mac_conflicts.take(now()) {
                    log::warn!(
                        "{name}: the MAC {} was seen {} and {}: is there a loop, or is an address used \
                         twice?{}",
                        control::api::LinkAddress(mac),
                        place_words(kept),
                        place_words(other),
                        skipped_words(skipped)
                    );
                }
            }
            Event::ForgedLid { lid, from } => log::warn!(
                "{name}: {} sends with the LID {lid}, which is not there; its packets are dropped and \
                 counted (rx_forged_lid)",
                at_words(&from)
            ),
        }
    }
}

fn skipped_words(skipped: u64) -> String {
    match skipped {
        0 => String::new(),
        n => format!(" ({n} more of these were not told)"),
    }
}

fn at_words(address: &NodeAddress) -> String {
    format!("{} qpn {}", address.gid, address.qpn)
}

fn place_words(place: vnic::port::Place) -> String {
    match place {
        vnic::port::Place::Here => "behind this interface".into(),
        vnic::port::Place::At(lid) => format!("at the LID {lid}"),
    }
}
