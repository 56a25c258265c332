//! Who is attached to which multicast group.

use std::collections::BTreeMap;

use proto::{EndpointId, Gid};

/// The attachments of a port, whether its device is there or not.
#[derive(Debug, Default)]
pub struct Groups(BTreeMap<Gid, Vec<EndpointId>>);

impl Groups {
    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a group has anybody.
    pub fn has(&self, mgid: Gid) -> bool {
        self.0.contains_key(&mgid)
    }

    /// Whether an endpoint is in a group.
    pub fn has_member(&self, mgid: Gid, id: EndpointId) -> bool {
        self.0.get(&mgid).is_some_and(|ids| ids.contains(&id))
    }

    /// Notes an endpoint that is not in the group.
    pub fn add(&mut self, mgid: Gid, id: EndpointId) {
        self.0.entry(mgid).or_default().push(id);
    }

    /// Forgets an endpoint; true if the group has nobody any more.
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
