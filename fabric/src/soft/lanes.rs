//! The packet sequence numbers of one worker. Each endpoint has its own sequence in each worker, since
//! each worker sends from its own UDP port.

use proto::{EndpointId, Psn};

use super::snapshot::{Endpoint, Endpoints};

/// The sequence of one endpoint.
#[derive(Clone, Copy, Debug)]
struct Lane {
    id: EndpointId,
    /// The start of the queue pair that the sequence belongs to.
    starts: u32,
    next: Psn,
}

impl Lane {
    fn of(endpoint: &Endpoint) -> Lane {
        Lane {
            id: endpoint.id,
            starts: endpoint.starts,
            next: endpoint.qp.sq_psn(),
        }
    }
}

/// The sequences, by ascending endpoint id.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Lane>);

impl Lanes {
    /// Creates a lane for each endpoint in service. Lanes of queue pairs that were not restarted
    /// continue.
    pub fn follow(&mut self, endpoints: &Endpoints) {
        let mut old = std::mem::take(&mut self.0).into_iter().peekable();
        let lanes = endpoints.working().iter().map(|e| {
            while old.next_if(|lane| lane.id.0 < e.id.0).is_some() {}
            old.next_if(|lane| lane.id == e.id && lane.starts == e.starts)
                .unwrap_or_else(|| Lane::of(e))
        });
        self.0 = lanes.collect();
    }

    /// Takes `count` PSNs: the start of the queue pair, and the first PSN.
    pub fn take(&mut self, from: EndpointId, count: usize) -> Option<(u32, Psn)> {
        let at = self.0.binary_search_by_key(&from.0, |lane| lane.id.0);
        let lane = self.0.get_mut(at.ok()?)?;
        let psn = lane.next;
        lane.next = psn.advance(count as u32);
        Some((lane.starts, psn))
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::UdQueuePair;
    use super::*;
    use crate::pkeys::Entry;
    use proto::{PKey, QKey, Qpn};

    fn endpoint(id: u32) -> UdQueuePair {
        let qpn = Qpn::new(0x100 + id);
        UdQueuePair::new(EndpointId(id), qpn, PKey::DEFAULT, QKey::IPOIB_DEFAULT)
    }

    fn at(index: u16) -> Option<Entry> {
        let pkey = PKey::DEFAULT;
        Some(Entry { index, pkey })
    }

    #[test]
    fn a_lane_continues_until_its_queue_pair_restarts() {
        let mut all: Vec<UdQueuePair> = [1, 4, 7].map(endpoint).into();
        for ud in &mut all {
            ud.follow(at(0), Psn::new(100));
        }
        let mut lanes = Lanes::default();
        lanes.follow(&Endpoints::of(all.iter()));
        let take = |lanes: &mut Lanes, id| lanes.take(EndpointId(id), 5).map(|(_, psn)| psn.get());
        for id in [1, 4, 7] {
            assert_eq!(take(&mut lanes, id), Some(100));
        }
        // The first was deleted, the second restarted, the fourth is new, the fifth waits.
        all.remove(0);
        all[0].follow(at(1), Psn::new(200));
        all.push(endpoint(8));
        all[2].follow(at(0), Psn::new(300));
        all.push(endpoint(9));
        lanes.follow(&Endpoints::of(all.iter()));
        let next = [1, 4, 7, 8, 9].map(|id| take(&mut lanes, id));
        assert_eq!(next, [None, Some(200), Some(105), Some(300), None]);
    }
}
