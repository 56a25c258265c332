//! The P_Key tables of ports, and what follows them (kernel drivers/infiniband/ulp/ipoib/ipoib_ib.c,
//! `__ipoib_ib_dev_flush`, heavy).

use fabric::{EndpointId, PKey};

use super::Daemon;
use crate::api::{ApiError, Happening, PkeyTable, PkeysRequest, Reply};
use crate::datapath::{Command, DeviceId};
use crate::watch::Subject;

/// An entry that is not in use (IBA vol. 1, 10.9.2): what comes behind it keeps its index, and so is
/// not disturbed.
const UNUSED: PKey = PKey::new(0);

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
        let ports = self.ports.iter().enumerate();
        let tables = ports
            .filter(|(at, _)| one.is_none_or(|one| one == *at))
            .map(|(_, port)| {
                let attributes = port.port.attributes();
                PkeyTable {
                    port: attributes.name,
                    pkeys: attributes.pkeys,
                    automatic: port.automatic_pkeys,
                }
            })
            .collect();
        Ok(Reply::Pkeys { tables })
    }

    fn port_called(&self, name: &str) -> Result<usize, ApiError> {
        let called = |port: &crate::port::PortRuntime| {
            port.underlay == name || port.port.attributes().name == name
        };
        let at = self.ports.iter().position(called);
        at.ok_or_else(|| ApiError::BadArgument {
            message: format!("ibtapd has no port {name:?}"),
        })
    }

    fn give_pkeys(&mut self, at: usize, pkeys: &[PKey]) -> Result<(), ApiError> {
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
    pub(crate) fn set_pkeys(&mut self, at: usize, pkeys: Option<&[PKey]>) -> Result<(), String> {
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
    pub(super) fn follow_pkeys(&mut self, at: usize, coming: Option<PKey>) -> Result<(), String> {
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

    /// The same after a device has gone.
    pub(super) fn unfollow_pkeys(&mut self, at: usize) {
        if let Err(why) = self.follow_pkeys(at, None) {
            log::warn!("{why}");
        }
    }

    /// The table that a port's devices ask for, with what is in `before` already at its place.
    fn asked_pkeys(&self, at: usize, before: &[PKey], coming: Option<PKey>) -> Vec<PKey> {
        let devices = self.devices.values().filter(|(port, _)| *port == at);
        let asked = devices.map(|(_, device)| device.spec.pkey).chain(coming);
        arrange(before, &asked.collect::<Vec<_>>())
    }

    fn replace_pkeys(&mut self, at: usize, table: Vec<PKey>) -> Result<(), String> {
        let port = &mut self.ports[at].port;
        let name = port.attributes().name;
        let changed = port
            .set_pkeys(table)
            .map_err(|e| format!("{name}: the P_Key table cannot change: {e}"))?;
        log::debug!("{name}: the P_Key table changed");
        let subject = Subject::Port(&name);
        self.watchers.tell(subject, Happening::PkeysChanged);
        self.pkeys_changed(at, &changed);
        Ok(())
    }

    /// The entries of these endpoints in a port's P_Key table are others now: what was learned in
    /// the old partition is forgotten, the link is entered anew.
    pub(super) fn pkeys_changed(&mut self, at: usize, changed: &[EndpointId]) {
        for endpoint in changed {
            let on_port = |(port, device): &(usize, crate::device::Device)| {
                *port == at && device.endpoint.id == *endpoint
            };
            let found = self.devices.iter().find(|(_, device)| on_port(device));
            if let Some(id) = found.map(|(id, _)| *id) {
                self.pkey_changed(at, id);
            }
        }
        self.set_carriers(at);
    }

    fn pkey_changed(&mut self, at: usize, id: DeviceId) {
        let port = &self.ports[at];
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        let before = device.endpoint.pkey;
        device.endpoint.pkey = port.port.endpoint_pkey(device.endpoint.id);
        let (name, pkey) = (&device.name, device.spec.pkey);
        let what = match device.endpoint.pkey {
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
            self.watchers.tell(Subject::Interface(name), what);
        }
        port.tell(|| Command::Flush(id));
        self.sync_groups(id);
        self.announce(id);
    }
}

/// `before` with what is no longer asked for taken out, and what is new put into the first places
/// that are free.
fn arrange(before: &[PKey], asked: &[PKey]) -> Vec<PKey> {
    let keep = |pkey: &PKey| match asked.contains(pkey) {
        true => *pkey,
        false => UNUSED,
    };
    let mut table: Vec<PKey> = before.iter().map(keep).collect();
    for pkey in asked {
        if table.contains(pkey) {
            continue;
        }
        match table.iter_mut().find(|entry| **entry == UNUSED) {
            Some(free) => *free = *pkey,
            None => table.push(*pkey),
        }
    }
    while table.last() == Some(&UNUSED) {
        table.pop();
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(keys: &[u16]) -> Vec<PKey> {
        keys.iter().copied().map(PKey::new).collect()
    }

    #[test]
    fn a_table_holds_what_is_asked_for_no_less_and_no_more() {
        for (before, asked, after) in [
            (&[][..], &[0xffff, 0x8001][..], &[0xffff, 0x8001][..]),
            (&[0xffff], &[0xffff, 0x8001, 0x8001], &[0xffff, 0x8001]),
            // What stays does not move.
            (
                &[0xffff, 0x8001, 0x8002],
                &[0xffff, 0x8002],
                &[0xffff, 0, 0x8002],
            ),
            (
                &[0xffff, 0, 0x8002],
                &[0xffff, 0x8002, 0x8003],
                &[0xffff, 0x8003, 0x8002],
            ),
            (&[0xffff, 0x8001], &[0xffff], &[0xffff]),
            (&[0xffff, 0, 0x8002], &[0xffff], &[0xffff]),
            (&[0xffff], &[], &[]),
            // Limited and full membership are two entries.
            (&[0x8001], &[0x8001, 0x0001], &[0x8001, 0x0001]),
        ] {
            assert_eq!(arrange(&keys(before), &keys(asked)), keys(after));
        }
    }

    proptest! {
        #[test]
        fn who_stays_is_not_disturbed(
            before in proptest::collection::vec(1..20u16, 0..12),
            asked in proptest::collection::vec(1..20u16, 0..12),
        ) {
            // No key twice in a table, as it comes to be.
            let before = arrange(&[], &keys(&before));
            let asked = keys(&asked);
            let after = arrange(&before, &asked);
            for (index, pkey) in before.iter().enumerate() {
                prop_assert_eq!(asked.contains(pkey), after.get(index) == Some(pkey));
            }
            let used = |pkey: &&PKey| **pkey != UNUSED;
            prop_assert!(asked.iter().all(|pkey| after.contains(pkey)));
            prop_assert!(after.iter().filter(used).all(|pkey| asked.contains(pkey)));
        }
    }
}
