//! Shares of receive places where each queue pair has its own queue.

use std::collections::HashMap;

use proto::EndpointId;

/// The number of places of each endpoint, and the owner of each place.
#[derive(Debug)]
pub struct Shares {
    /// Number of places for each endpoint.
    share: usize,
    posted: HashMap<EndpointId, usize, foldhash::fast::RandomState>,
    /// Owners, by index of the place.
    owners: Vec<Option<EndpointId>>,
}

impl Shares {
    /// For `places` places, `share` for each endpoint.
    pub fn new(places: usize, share: usize) -> Shares {
        Shares {
            share,
            posted: HashMap::default(),
            owners: vec![None; places],
        }
    }

    /// Number of places that an endpoint lacks.
    pub fn missing(&self, endpoint: EndpointId) -> usize {
        let posted = self.posted.get(&endpoint).copied().unwrap_or(0);
        self.share.saturating_sub(posted)
    }

    /// Assigns a place to an endpoint before it is posted.
    pub fn gives(&mut self, endpoint: EndpointId, place: u32) {
        self.comes_back(place);
        if let Some(owner) = self.owners.get_mut(place as usize) {
            *owner = Some(endpoint);
            *self.posted.entry(endpoint).or_default() += 1;
        }
    }

    /// Frees a place that came back or was not posted.
    pub fn comes_back(&mut self, place: u32) {
        let owner = self.owners.get_mut(place as usize).and_then(Option::take);
        let Some(owner) = owner else { return };
        if let Some(posted) = self.posted.get_mut(&owner) {
            *posted -= 1;
            if *posted == 0 {
                self.posted.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: EndpointId = EndpointId(1);
    const OTHER: EndpointId = EndpointId(2);

    #[test]
    fn each_endpoint_lacks_what_it_has_not() {
        let mut shares = Shares::new(8, 3);
        for place in 0..3 {
            shares.gives(ONE, place);
        }
        shares.gives(OTHER, 3);
        assert_eq!((shares.missing(ONE), shares.missing(OTHER)), (0, 2));
        shares.comes_back(1);
        assert_eq!((shares.missing(ONE), shares.missing(OTHER)), (1, 2));
        shares.comes_back(1);
        assert_eq!(shares.missing(ONE), 1, "it can come back once");
        shares.gives(OTHER, 0);
        assert_eq!((shares.missing(ONE), shares.missing(OTHER)), (2, 1));
    }

    proptest! {
        #[test]
        fn the_books_agree(steps in prop::collection::vec((0u32..3, 0u32..20), 0..200)) {
            let mut shares = Shares::new(16, 16);
            let mut owners = [0; 16];
            for (endpoint, place) in steps {
                match endpoint {
                    0 => shares.comes_back(place),
                    id => shares.gives(EndpointId(id), place),
                }
                if let Some(owner) = owners.get_mut(place as usize) {
                    *owner = endpoint;
                }
            }
            for id in 1..3 {
                let has = owners.iter().filter(|owner| **owner == id).count();
                prop_assert_eq!(shares.missing(EndpointId(id)), 16 - has);
            }
        }
    }
}
