//! Multicast groups and their attached endpoints.

use std::collections::BTreeMap;

use proto::{EndpointId, Gid};

/// The attachments of a port; kept while the device is away.
#[derive(Debug, Default)]
pub struct Groups(BTreeMap<Gid, Vec<EndpointId>>);

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
        self.0.get(&mgid).is_some_and(|ids| ids.contains(&id))
    }

    /// Adds an endpoint that is not in the group.
    pub fn add(&mut self, mgid: Gid, id: EndpointId) {
        self.0.entry(mgid).or_default().push(id);
    }

    /// Removes an endpoint; true if the group has no members now.
    pub fn remove(&mut self, mgid: Gid, id: EndpointId) -> bool {
        let Some(ids) = self.0.get_mut(&mgid) else {
            return false;
        };
        ids.retain(|e| *e != id);
        let over = ids.is_empty();
        if over {
            self.0.remove(&mgid);
        }
        over
    }

    /// The endpoints of a group.
    pub fn members(&self, mgid: Gid) -> &[EndpointId] {
        self.0.get(&mgid).map_or(&[], Vec::as_slice)
    }

    /// The groups of an endpoint.
    pub fn of(&self, id: EndpointId) -> Vec<Gid> {
        let its = self.0.iter().filter(|(_, ids)| ids.contains(&id));
        its.map(|(mgid, _)| *mgid).collect()
    }

    /// All groups.
    pub fn mgids(&self) -> impl Iterator<Item = Gid> {
        self.0.keys().copied()
    }

    /// All attachments.
    pub fn all(&self) -> impl Iterator<Item = (Gid, EndpointId)> {
        self.0
            .iter()
            .flat_map(|(mgid, ids)| ids.iter().map(|id| (*mgid, *id)))
    }
}
