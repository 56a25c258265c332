//! A link: a queue pair in a partition.

use std::collections::BTreeSet;

use fabric::port::UdEndpoint;
use fabric::{FabricError, Gid, GroupParameters, PKey, Port, QKey, Qpn, UdInit};

use super::groups::{self, Bounds, Changes, GroupSet};
use crate::datapath::{EthernetSnapshot, LinkId, now};
use crate::port::PortRuntime;

/// The parts that every link has.
pub struct FabricLink {
    /// The id in the data threads.
    pub id: LinkId,
    /// The UD endpoint, with its current P_Key table entry.
    pub endpoint: UdEndpoint,
    /// The configured partition.
    pub pkey: PKey,
    /// The Q_Key.
    pub qkey: QKey,
    /// The groups of the endpoint.
    pub groups: GroupSet,
    /// The parameters of the required group as joined last. They stay in use while the group is lost.
    pub parameters: Option<GroupParameters>,
}

impl FabricLink {
    /// Opens the endpoint. The port may choose another queue pair number than `qpn`.
    ///
    /// # Errors
    /// Errors of the fabric.
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
            parameters: None,
        })
    }

    /// Reads the endpoint's P_Key table entry; true if it changed.
    pub fn read_entry(&mut self, port: &dyn Port) -> bool {
        let entry = port.endpoint_pkey(self.endpoint.id);
        std::mem::replace(&mut self.endpoint.pkey, entry) != entry
    }

    /// Reads the queue pair number; true if it changed.
    pub fn read_qpn(&mut self, port: &dyn Port) -> bool {
        let qpn = port.endpoint_qpn(self.endpoint.id);
        let qpn = qpn.unwrap_or(self.endpoint.qpn);
        std::mem::replace(&mut self.endpoint.qpn, qpn) != qpn
    }

    /// Joins and leaves groups until the link has the `wanted` ones, and retries refused groups. The first
    /// of the pair is the group that the link requires, which decides the Q_Key; `name` is for the log.
    pub fn follow_groups(
        &mut self,
        name: &str,
        wanted: (Option<Gid>, BTreeSet<Gid>),
        port: &mut dyn Port,
    ) -> Changes {
        let (set, id) = (&mut self.groups, self.endpoint.id);
        let changes = groups::follow(set, now(), name, wanted, |joins, leaves| {
            port.change_groups(id, joins, leaves)
        });
        if let Ok(parameters) = self.groups.required() {
            self.parameters = Some(*parameters);
            self.follow_qkey(name, parameters.qkey, port);
        }
        changes
    }

    /// Takes over the Q_Key of the required group (RFC 4391, section 9.1.2).
    fn follow_qkey(&mut self, name: &str, qkey: QKey, port: &mut dyn Port) {
        if self.qkey == qkey {
            return;
        }
        log::info!("{name}: uses the Q_Key {qkey} of its group");
        self.qkey = qkey;
        if let Err(e) = port.set_qkey(self.endpoint.id, qkey) {
            log::warn!("{name}: cannot change the Q_Key: {e}");
        }
    }

    /// Closes the lanes, then the endpoint. Returns the last counters of a VNIC's lanes; `name` is for the
    /// log.
    pub fn close(&self, name: &str, port: &mut PortRuntime) -> Vec<EthernetSnapshot> {
        let counted = port.remove_lanes(self.id);
        if let Err(e) = port.port.destroy_ud(self.endpoint.id) {
            log::warn!("{name}: cannot close the endpoint: {e}");
        }
        counted
    }
}
