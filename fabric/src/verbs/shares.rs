//! Which queue pair has which places, where each has a receive queue of its own.

use std::collections::HashMap;

use proto::EndpointId;

/// How many places each endpoint has, and whose a place is.
#[derive(Debug)]
pub struct Shares {
    /// Places that an endpoint is to have.
    share: usize,
    posted: HashMap<EndpointId, usize, foldhash::fast::RandomState>,
    /// By the index of the place.
    owners: Vec<Option<EndpointId>>,
}

impl Shares {
    /// For so many places, of which each endpoint is to have `share`.
    pub fn new(places: usize, share: usize) -> Shares {
        Shares {
            share,
            posted: HashMap::default(),
            owners: vec![None; places],
        }
    }

    /// How many places an endpoint lacks.
    pub fn missing(&self, endpoint: EndpointId) -> usize {
        let posted = self.posted.get(&endpoint).copied().unwrap_or(0);
        self.share.saturating_sub(posted)
    }

    /// A place is about to be posted to an endpoint's queue.
    pub fn gives(&mut self, endpoint: EndpointId, place: u32) {
        self.comes_back(place);
        if let Some(owner) = self.owners.get_mut(place as usize) {
            *owner = Some(endpoint);
            *self.posted.entry(endpoint).or_default() += 1;
        }
    }

    /// A place is nobody's: it came back, or was not posted after all.
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
