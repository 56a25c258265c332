//! A link of the fabric: a queue pair in a partition.

use std::collections::BTreeSet;

use fabric::port::UdEndpoint;
use fabric::{FabricError, Gid, PKey, Port, QKey, Qpn, UdInit};

use super::groups::{self, Bounds, Changes, GroupSet};
use crate::datapath::{EthernetSnapshot, LinkId, now};
use crate::port::PortRuntime;

/// What every link has, whatever it carries.
pub struct FabricLink {
    /// Its id in the data threads.
    pub id: LinkId,
    /// The UD endpoint, with the entry of the P_Key table that the endpoint uses now.
    pub endpoint: UdEndpoint,
    /// The partition that was asked for.
    pub pkey: PKey,
    /// The Q_Key.
    pub qkey: QKey,
    /// The groups of the endpoint.
    pub groups: GroupSet,
}

impl FabricLink {
    /// Makes the endpoint. The port may not have the queue pair number that is asked for.
    ///
    /// # Errors
    /// The fabric's.
    pub fn open(
        id: LinkId,
        (pkey, qkey): (PKey, QKey),
        qpn: Option<Qpn>,
        bounds: Bounds,
        port: &mut dyn Port,
    ) -> Result<FabricLink, FabricError> {
        let endpoint = port.create_ud(UdInit { pkey, qkey, qpn })?;
        Ok(FabricLink {
            id,
            endpoint,
            pkey,
            qkey,
            groups: GroupSet::new(bounds, fabric::random()),
        })
    }

    /// Reads which entry of the P_Key table the endpoint uses; true if that is news.
    pub fn read_entry(&mut self, port: &dyn Port) -> bool {
        let entry = port.endpoint_pkey(self.endpoint.id);
        std::mem::replace(&mut self.endpoint.pkey, entry) != entry
    }

    /// Reads the queue pair number; true if that is news.
    pub fn read_qpn(&mut self, port: &dyn Port) -> bool {
        let qpn = port.endpoint_qpn(self.endpoint.id);
        let qpn = qpn.unwrap_or(self.endpoint.qpn);
        std::mem::replace(&mut self.endpoint.qpn, qpn) != qpn
    }

    /// Attaches and detaches so that the groups of the link of this name are those that are wanted, and tries
    /// those again that were refused; the first of the pair is the one that the link cannot do without.
    pub fn follow_groups(
        &mut self,
        name: &str,
        wanted: (Option<Gid>, BTreeSet<Gid>),
        port: &mut dyn Port,
    ) -> Changes {
        let (set, id) = (&mut self.groups, self.endpoint.id);
        groups::follow(set, now(), name, wanted, |joins, leaves| {
            port.change_groups(id, joins, leaves)
        })
    }

    /// Ends the lanes, then the endpoint, of the link of this name; gives what the lanes of a VNIC have
    /// counted.
    pub fn close(&self, name: &str, port: &mut PortRuntime) -> Vec<EthernetSnapshot> {
        let counted = port.remove_lanes(self.id);
        if let Err(e) = port.port.destroy_ud(self.endpoint.id) {
            log::warn!("{name}: cannot close its endpoint: {e}");
        }
        counted
    }
}
