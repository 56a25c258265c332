//! The P_Key tables of ports, and what follows them (kernel drivers/infiniband/ulp/ipoib/ipoib_ib.c,
//! `__ipoib_ib_dev_flush`, heavy).

use control::api::{ApiError, Happening, PkeyTable, PkeysRequest, Reply};
use fabric::pkeys::keep_places;
use fabric::{EndpointId, PKey};

use super::{Daemon, Payload};
use crate::datapath::{Command, LinkId};
use crate::interface::{FabricLink, Subject};
use crate::port::PortId;

impl Daemon {
    /// Tells or replaces P_Key tables.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub(crate) fn pkeys(&mut self, request: &PkeysRequest) -> Result<Reply, ApiError> {
        let one = match &request.port {
            Some(name) => Some(self.port_called(name)?),
            None => None,
        };
        if let Some(pkeys) = &request.pkeys {
            let at = one.ok_or_else(|| ApiError::BadArgument {
                message: "which port's P_Key table is to change? name the port".into(),
            })?;
            self.give_pkeys(at, pkeys)?;
        }
        let ports = self.ports.iter();
        let tables = ports
            .filter(|(at, _)| one.is_none_or(|one| one == *at))
            .map(|(_, port)| {
                let attributes = port.port.attributes();
                PkeyTable {
                    port: attributes.name,
                    pkeys: attributes.pkeys,
                    automatic: port.automatic_pkeys,
                    settable: port.port.capabilities().pkeys_settable,
                }
            })
            .collect();
        Ok(Reply::Pkeys { tables })
    }

    pub(super) fn port_called(&self, name: &str) -> Result<PortId, ApiError> {
        let called = |port: &crate::port::PortRuntime| {
            port.name.to_string() == name || port.port.attributes().name == name
        };
        self.ports
            .find(called)
            .ok_or_else(|| ApiError::BadArgument {
                message: format!("ibtapd has no port {name:?}"),
            })
    }

    fn give_pkeys(&mut self, at: PortId, pkeys: &[PKey]) -> Result<(), ApiError> {
        if let Some(wrong) = pkeys.iter().find(|pkey| !pkey.is_valid()) {
            return Err(ApiError::BadArgument {
                message: format!("{wrong} is the P_Key of no partition; leave it out"),
            });
        }
        self.set_pkeys(at, Some(pkeys).filter(|pkeys| !pkeys.is_empty()))
            .map_err(|message| ApiError::Refused { message })
    }

    /// Gives a port a P_Key table, or with `None` the one that its devices ask for, from now on.
    ///
    /// # Errors
    /// A sentence. The table is as it was then.
    pub(crate) fn set_pkeys(&mut self, at: PortId, pkeys: Option<&[PKey]>) -> Result<(), String> {
        let table = match pkeys {
            Some(pkeys) => pkeys.to_vec(),
            None => self.asked_pkeys(at, &[], None),
        };
        self.replace_pkeys(at, table)?;
        self.ports[at].automatic_pkeys = pkeys.is_none();
        Ok(())
    }

    /// Has an automatic table follow the devices that are in service, and one that is to come.
    ///
    /// # Errors
    /// A sentence. The table is as it was then.
    pub(super) fn follow_pkeys(&mut self, at: PortId, coming: Option<PKey>) -> Result<(), String> {
        let port = &self.ports[at];
        if !port.automatic_pkeys {
            return Ok(());
        }
        let before = port.port.attributes().pkeys;
        let table = self.asked_pkeys(at, &before, coming);
        // Without a device there is nobody to ask; a port has a table nevertheless.
        if table == before || table.is_empty() {
            return Ok(());
        }
        self.replace_pkeys(at, table)
    }

    /// The same for those in service alone, after one has come or gone.
    pub(super) fn unfollow_pkeys(&mut self, at: PortId) {
        if let Err(why) = self.follow_pkeys(at, None) {
            log::warn!("{why}");
        }
    }

    /// The table that a port's devices ask for; what is in `before` already stays at its place.
    fn asked_pkeys(&self, at: PortId, before: &[PKey], coming: Option<PKey>) -> Vec<PKey> {
        let on_port = self.interfaces.ips().filter(|(i, _)| i.port == at);
        let asked = on_port.flat_map(|(_, ip)| ip.links());
        let asked = asked.map(|link| link.fabric.pkey);
        let vnics = self.interfaces.ethernets().filter(|(i, _)| i.port == at);
        let vnics = vnics.filter(|(_, e)| e.is_on_switch());
        let asked = asked.chain(vnics.map(|(_, e)| e.info.pkey));
        let management = self.ports[at].management.as_ref();
        let asked = asked.chain(management.map(|m| m.link.pkey)).chain(coming);
        keep_places(before, &asked.collect::<Vec<_>>())
    }

    fn replace_pkeys(&mut self, at: PortId, table: Vec<PKey>) -> Result<(), String> {
        let port = &mut self.ports[at].port;
        let name = port.attributes().name;
        if !port.capabilities().pkeys_settable {
            return Err(format!(
                "the P_Key table of {name} is its device's: a subnet manager sets it, and a device \
                 without one has the default partition alone"
            ));
        }
        let changed = port
            .set_pkeys(table)
            .map_err(|e| format!("{name}: the P_Key table cannot change: {e}"))?;
        log::debug!("{name}: the P_Key table changed");
        let subject = Subject::Port(name);
        self.events.push(subject, Happening::PkeysChanged);
        self.pkeys_changed(at, &changed);
        Ok(())
    }

    /// The entries of these endpoints in a port's P_Key table are others now: what was learned in
    /// the old partition is forgotten, the link is entered anew.
    pub(super) fn pkeys_changed(&mut self, at: PortId, changed: &[EndpointId]) {
        let mut concerned = Vec::new();
        let on_port = self.interfaces.iter_mut().filter(|(i, _)| i.port == at);
        for (interface, payload) in on_port {
            for link in payload.fabric_links_mut() {
                if !changed.contains(&link.endpoint.id) {
                    continue;
                }
                let before = link.endpoint.pkey;
                link.read_entry(&*self.ports[at].port);
                concerned.push(link.id);
                // What becomes of VLANs is found out with those that wait.
                if link.id == interface.id.link()
                    && let Some(what) = entry_changed(&interface.name, before, link)
                {
                    self.events.push(interface.subject(), what);
                }
            }
        }
        for id in concerned {
            match self.interfaces.with_link(id) {
                Some((interface, Payload::Ethernet(_))) => self.sync_vnic_groups(interface.id),
                _ => self.reenter(at, id),
            }
        }
        self.set_carriers(at);
        self.sync_siblings();
        self.sync_vnic_siblings();
        self.management_pkeys_changed(at, changed);
    }

    /// An IP link is entered anew.
    fn reenter(&mut self, at: PortId, id: LinkId) {
        let port = &self.ports[at];
        port.tell(|| Command::Flush(id));
        if let Some((interface, ip)) = self.interfaces.with_link_mut(id)
            && let Some(link) = ip.link_mut(id)
            && interface.up
        {
            link.announce(port);
        }
        self.sync_groups(id);
    }
}

/// An interface's link uses another entry of the P_Key table than before, or none: says so in the log, and to
/// those who watch.
fn entry_changed(name: &str, before: Option<PKey>, link: &FabricLink) -> Option<Happening> {
    let pkey = link.pkey;
    match link.endpoint.pkey {
        Some(entry) => {
            log::info!("{name}: uses the P_Key table's entry {entry}");
            Some(Happening::PkeyAssigned { pkey: entry })
        }
        None if before.is_some() => {
            log::warn!("{name}: waits for the P_Key {pkey}, which left the port's table");
            Some(Happening::PkeyMissing { pkey })
        }
        None => None,
    }
}
