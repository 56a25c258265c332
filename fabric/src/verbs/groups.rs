//! Multicast groups and their attached endpoints.

use std::collections::BTreeMap;

use proto::{EndpointId, Gid, Lid};

/// The attachments of a port, each with the group's MLID on InfiniBand, 0 on Ethernet. On Ethernet they are kept while
/// the device is away.
#[derive(Debug, Default)]
pub struct Groups(BTreeMap<Gid, Vec<(EndpointId, Lid)>>);

impl Groups {
    /// Number of groups.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a group has members.
    pub fn has(&self, mgid: Gid) -> bool {
        self.0.contains_key(&mgid)
    }

    /// Whether an endpoint is in a group.
    pub fn has_member(&self, mgid: Gid, id: EndpointId) -> bool {
        self.mlid(mgid, id).is_some()
    }

    /// The MLID of an endpoint's attachment.
    pub fn mlid(&self, mgid: Gid, id: EndpointId) -> Option<Lid> {
        let mut members = self.0.get(&mgid)?.iter();
        members.find(|(of, _)| *of == id).map(|(_, mlid)| *mlid)
    }

    /// Adds an endpoint that is not in the group.
    pub fn add(&mut self, mgid: Gid, id: EndpointId, mlid: Lid) {
        self.0.entry(mgid).or_default().push((id, mlid));
    }

    /// Removes an endpoint.
    pub fn remove(&mut self, mgid: Gid, id: EndpointId) {
        let Some(members) = self.0.get_mut(&mgid) else {
            return;
        };
        members.retain(|(of, _)| *of != id);
        if members.is_empty() {
            self.0.remove(&mgid);
        }
    }

    /// The endpoints of a group.
    pub fn members(&self, mgid: Gid) -> Vec<EndpointId> {
        let members = self.0.get(&mgid).into_iter().flatten();
        members.map(|(id, _)| *id).collect()
    }

    /// The groups of an endpoint.
    pub fn of(&self, id: EndpointId) -> Vec<Gid> {
        let mgids = self.mgids();
        mgids.filter(|mgid| self.has_member(*mgid, id)).collect()
    }

    /// All groups.
    pub fn mgids(&self) -> impl Iterator<Item = Gid> {
        self.0.keys().copied()
    }

    /// All attachments.
    pub fn all(&self) -> impl Iterator<Item = (Gid, EndpointId)> {
        self.0
            .iter()
            .flat_map(|(mgid, members)| members.iter().map(|(id, _)| (*mgid, *id)))
    }
}
