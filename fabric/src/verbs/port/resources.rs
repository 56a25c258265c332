//! The resources of a port, as `rdma resource show` lists them.

use super::VerbsPort;
use crate::port::{CompletionQueueInfo, GroupInfo, QueuePairInfo, Resources};
use crate::verbs::endpoint::UdEndpointState;

impl VerbsPort {
    /// Queue pairs of endpoints, completion queues and groups.
    pub(super) fn list_resources(&self) -> Resources {
        let queue_pair = |e: &UdEndpointState, qpn, state| QueuePairInfo {
            qpn,
            kind: "UD",
            state,
            pkey: e.entry.map_or(e.partition, |entry| entry.pkey),
            qkey: e.qkey,
            lanes: 1,
            endpoint: e.id,
        };
        let mut queue_pairs = Vec::new();
        for e in self.endpoints.values() {
            if e.pairs.is_empty() {
                queue_pairs.push(queue_pair(e, e.qpn, "RESET"));
            }
            queue_pairs.extend(e.pairs.iter().map(|pair| {
                let state = pair.qp.state().map_or("UNKNOWN", |s| s.name());
                queue_pair(e, pair.qp.qpn(), state)
            }));
        }
        let devices = self.device.iter().flat_map(|(device, _)| device.workers());
        let cqs = (0..)
            .zip(devices)
            .flat_map(|(worker, d)| [&d.receive_cq, &d.send_cq].map(|cq| (worker, cq)));
        let completion_queues = cqs.map(|(worker, cq)| CompletionQueueInfo {
            cqn: cq.number(),
            cqe: cq.capacity() as u32,
            worker,
        });
        let groups = self.groups.all().filter_map(|(mgid, id)| {
            let qpn = self.endpoints.get(&id.0)?.qpn;
            Some(GroupInfo { mgid, qpn })
        });
        Resources {
            queue_pairs,
            completion_queues: completion_queues.collect(),
            groups: groups.collect(),
        }
    }
}
