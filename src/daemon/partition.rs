//! The P_Key tables of ports, and what follows them (kernel drivers/infiniband/ulp/ipoib/ipoib_ib.c,
//! `__ipoib_ib_dev_flush`, heavy).

use control::api::{ApiError, Happening, PkeyTable, PkeysRequest, Reply};
use fabric::pkeys::keep_places;
use fabric::{EndpointId, PKey};

use super::Daemon;
use crate::datapath::{Command, LinkId};
use crate::interface::Subject;
use crate::ip::IpLink;
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
        let asked = asked.chain(self.vnic_pkeys(at)).chain(coming);
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
        let has_it = |link: &&IpLink| changed.contains(&link.fabric.endpoint.id);
        let on_port = self.interfaces.ips().filter(|(i, _)| i.port == at);
        let links = on_port.flat_map(|(_, ip)| ip.links());
        for id in links.filter(has_it).map(IpLink::id).collect::<Vec<_>>() {
            self.pkey_changed(at, id);
        }
        self.set_carriers(at);
        self.sync_siblings();
        self.vnic_pkeys_changed(at, changed);
        self.management_pkeys_changed(at, changed);
    }

    fn pkey_changed(&mut self, at: PortId, id: LinkId) {
        let port = &self.ports[at];
        let Some((interface, ip)) = self.interfaces.link_mut(id) else {
            return;
        };
        let subject = interface.subject();
        let Some(link) = ip.link_mut(id) else {
            return;
        };
        let before = link.fabric.endpoint.pkey;
        link.fabric.read_entry(&*port.port);
        let (name, pkey) = (link.name(interface), link.fabric.pkey);
        let what = match link.fabric.endpoint.pkey {
            // What becomes of VLANs is found out with those that wait.
            _ if link.vid.is_some() => None,
            Some(entry) => {
                log::info!("{name}: uses the P_Key table's entry {entry}");
                Some(Happening::PkeyAssigned { pkey: entry })
            }
            None if before.is_some() => {
                log::warn!("{name}: waits for the P_Key {pkey}, which left the port's table");
                Some(Happening::PkeyMissing { pkey })
            }
            None => None,
        };
        if let Some(what) = what {
            self.events.push(subject, what);
        }
        port.tell(|| Command::Flush(id));
        if interface.up {
            link.announce(port);
        }
        self.sync_groups(id);
    }
}
