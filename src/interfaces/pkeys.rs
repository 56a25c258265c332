//! The P_Key tables of ports, and the interfaces that follow their changes (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_ib.c, `__ipoib_ib_dev_flush`, heavy).

use control::api::{ApiError, Happening, PkeyTable, PkeysRequest, Reply};
use fabric::pkeys::keep_places;
use fabric::{EndpointId, PKey};

use crate::datapath::{Command, LinkId};
use crate::interface::{FabricLink, Subject};
use crate::interfaces::{Context, Interfaces, Payload, management};
use crate::port::PortId;

impl Interfaces {
    /// Shows P_Key tables, or replaces one.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub fn pkeys(&mut self, cx: &mut Context, request: &PkeysRequest) -> Result<Reply, ApiError> {
        let one = match &request.port {
            Some(name) => Some(cx.ports.called(name)?),
            None => None,
        };
        if let Some(pkeys) = &request.pkeys {
            let at = one.ok_or_else(|| ApiError::BadArgument {
                message: "a new P_Key table needs a port; name the port".into(),
            })?;
            self.give_pkeys(cx, at, pkeys)?;
        }
        let ports = cx.ports.iter();
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

    /// Sets the P_Key table of a port. An empty one selects the automatic table.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`]. The table is unchanged then.
    pub fn give_pkeys(
        &mut self,
        cx: &mut Context,
        at: PortId,
        pkeys: &[PKey],
    ) -> Result<(), ApiError> {
        if let Some(wrong) = pkeys.iter().find(|pkey| !pkey.is_valid()) {
            return Err(ApiError::BadArgument {
                message: format!("{wrong} is not a valid P_Key; leave it out"),
            });
        }
        self.set_pkeys(cx, at, Some(pkeys).filter(|pkeys| !pkeys.is_empty()))
            .map_err(|message| ApiError::Refused { message })
    }

    /// Sets the P_Key table of a port. `None` selects the automatic table, which follows the port's
    /// interfaces.
    ///
    /// # Errors
    /// A sentence. The table is unchanged then.
    pub fn set_pkeys(
        &mut self,
        cx: &mut Context,
        at: PortId,
        pkeys: Option<&[PKey]>,
    ) -> Result<(), String> {
        let table = match pkeys {
            Some(pkeys) => pkeys.to_vec(),
            None => self.asked_pkeys(at, &[], None),
        };
        self.replace_pkeys(cx, at, table)?;
        cx.ports[at].automatic_pkeys = pkeys.is_none();
        Ok(())
    }

    /// Updates an automatic table from the interfaces in service and from the partition of an interface
    /// that will be added.
    ///
    /// # Errors
    /// A sentence. The table is unchanged then.
    pub fn follow_pkeys(
        &mut self,
        cx: &mut Context,
        at: PortId,
        coming: Option<PKey>,
    ) -> Result<(), String> {
        let port = &cx.ports[at];
        if !port.automatic_pkeys {
            return Ok(());
        }
        let before = port.port.attributes().pkeys;
        let table = self.asked_pkeys(at, &before, coming);
        // A port keeps a table even without interfaces.
        if table == before || table.is_empty() {
            return Ok(());
        }
        self.replace_pkeys(cx, at, table)
    }

    /// Updates an automatic table from the interfaces in service, after one was added or removed.
    pub fn unfollow_pkeys(&mut self, cx: &mut Context, at: PortId) {
        if let Err(why) = self.follow_pkeys(cx, at, None) {
            log::warn!("{why}");
        }
    }

    /// The automatic table of a port. Entries of `before` keep their places.
    fn asked_pkeys(&self, at: PortId, before: &[PKey], coming: Option<PKey>) -> Vec<PKey> {
        let on_port = self.ips().filter(|(i, _)| i.port == at);
        let asked = on_port.flat_map(|(_, ip)| ip.links());
        let asked = asked.map(|link| link.fabric.pkey);
        let vnics = self.ethernets().filter(|(i, _)| i.port == at);
        let vnics = vnics.filter(|(_, e)| e.is_on_switch());
        let asked = asked.chain(vnics.map(|(_, e)| e.info.pkey));
        let management = self.managements.get(&at);
        let asked = asked.chain(management.map(|m| m.link.pkey)).chain(coming);
        keep_places(before, &asked.collect::<Vec<_>>())
    }

    fn replace_pkeys(
        &mut self,
        cx: &mut Context,
        at: PortId,
        table: Vec<PKey>,
    ) -> Result<(), String> {
        let port = &mut cx.ports[at].port;
        let name = port.attributes().name;
        if !port.capabilities().pkeys_settable {
            return Err(format!(
                "cannot change the P_Key table of {name}: the subnet manager sets the table of an \
                 RDMA device; without a subnet manager it has only the default partition"
            ));
        }
        let changed = port
            .set_pkeys(table)
            .map_err(|e| format!("{name}: cannot change the P_Key table: {e}"))?;
        log::debug!("{name}: the P_Key table changed");
        let subject = Subject::Port(name);
        cx.events.push(subject, Happening::PkeysChanged);
        self.pkeys_changed(cx, at, &changed);
        Ok(())
    }

    /// The P_Key table entries of these endpoints changed. The links forget what they learned in the old
    /// partition and join their groups again.
    pub fn pkeys_changed(&mut self, cx: &mut Context, at: PortId, changed: &[EndpointId]) {
        let mut concerned = Vec::new();
        let on_port = self.iter_mut().filter(|(i, _)| i.port == at);
        for (interface, payload) in on_port {
            for link in payload.fabric_links_mut() {
                if !changed.contains(&link.endpoint.id) {
                    continue;
                }
                let before = link.endpoint.pkey;
                link.read_entry(&*cx.ports[at].port);
                concerned.push(link.id);
                // `vlans::sync` handles VLANs.
                if link.id == interface.id.link()
                    && let Some(what) = entry_changed(&interface.name, before, link)
                {
                    cx.events.push(interface.subject(), what);
                }
            }
        }
        for id in concerned {
            match self.with_link(id) {
                Some((interface, Payload::Ethernet(_))) => self.sync_vnic_groups(cx, interface.id),
                _ => self.reenter(cx, at, id),
            }
        }
        self.set_carriers(cx, at);
        self.sync_siblings(&cx.ports);
        management::pkeys_changed(self, cx, at, changed);
    }

    /// Restarts an IP link in its partition.
    fn reenter(&mut self, cx: &mut Context, at: PortId, id: LinkId) {
        let port = &cx.ports[at];
        port.send(|| Command::Flush(id));
        if let Some((interface, ip)) = self.with_link_mut(id) {
            cx.pending.forgotten.insert(interface.id);
            if ip.link.id() == id {
                ip.announce(interface, &mut cx.host.netlink, port);
            }
        }
        self.sync_groups(cx, id);
    }
}

/// Logs that a link's P_Key table entry changed or is gone. Returns the event.
fn entry_changed(name: &str, before: Option<PKey>, link: &FabricLink) -> Option<Happening> {
    let pkey = link.pkey;
    match link.endpoint.pkey {
        Some(entry) => {
            log::info!("{name}: uses the P_Key {entry} of the port's table");
            Some(Happening::PkeyAssigned { pkey: entry })
        }
        None if before.is_some() => {
            log::warn!(
                "{name}: waits for the P_Key {pkey}, which is no longer in the port's table"
            );
            Some(Happening::PkeyMissing { pkey })
        }
        None => None,
    }
}
