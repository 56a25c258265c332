//! Requests of endpoints for groups that the subnet administrator has not answered yet. Several endpoints of
//! a port may wait for one group.

use std::collections::BTreeSet;

use proto::{EndpointId, Gid};

/// Maximum number of unanswered joins of one endpoint.
pub const GROUP_REQUESTS: usize = 32;

/// The unanswered requests of a port. The users of a port bound them: [`GROUP_REQUESTS`] for each endpoint.
#[derive(Debug, Default)]
pub struct GroupRequests(BTreeSet<(Gid, EndpointId)>);

impl GroupRequests {
    /// Notes a request.
    pub fn add(&mut self, mgid: Gid, id: EndpointId) {
        self.0.insert((mgid, id));
    }

    /// Ends a request; true if there was one.
    pub fn remove(&mut self, mgid: Gid, id: EndpointId) -> bool {
        self.0.remove(&(mgid, id))
    }

    /// Whether an endpoint waits for a group.
    pub fn has(&self, mgid: Gid) -> bool {
        self.any(mgid).is_some()
    }

    /// An endpoint that waits for a group.
    pub fn any(&self, mgid: Gid) -> Option<EndpointId> {
        let requested = self.0.iter().find(|(group, _)| *group == mgid);
        requested.map(|(_, id)| *id)
    }

    /// The groups that an endpoint waits for.
    pub fn of(&self, id: EndpointId) -> Vec<Gid> {
        let its = self.0.iter().filter(|(_, of)| *of == id);
        its.map(|(mgid, _)| *mgid).collect()
    }

    /// Ends all requests, and returns them.
    pub fn take(&mut self) -> impl Iterator<Item = (Gid, EndpointId)> {
        std::mem::take(&mut self.0).into_iter()
    }

    /// Ends the requests for a group, because there is an answer. Returns the endpoints that the answer
    /// concerns, each once: those with requests, and the members of the group.
    pub fn answered(&mut self, mgid: Gid, members: &[EndpointId]) -> Vec<EndpointId> {
        let mut ids = members.to_vec();
        self.0.retain(|(group, id)| {
            let is_answered = *group == mgid;
            if is_answered {
                ids.push(*id);
            }
            !is_answered
        });
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_concerns_members_and_requests_once_and_ends_the_requests() {
        let [one, two] = [1, 2].map(|n| Gid([n; 16]));
        let [a, b, c] = [1, 2, 3].map(EndpointId);
        let mut requests = GroupRequests::default();
        requests.add(one, c);
        requests.add(one, a);
        requests.add(two, a);
        assert_eq!(requests.of(a), [one, two]);
        assert_eq!(requests.answered(one, &[b, a]), [a, b, c]);
        assert!(!requests.has(one) && requests.has(two));
        assert_eq!(requests.answered(one, &[b]), [b]);
        assert!(requests.remove(two, a) && !requests.remove(two, a));
        assert!(requests.take().next().is_none());
    }
}
