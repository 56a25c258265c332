//! The resources of a port, as `rdma resource show` lists them.

use super::VerbsPort;
use crate::port::{
    CompletionQueueInfo, GroupInfo, MemoryRegionInfo, QueuePairInfo, Resources,
    SharedReceiveQueueInfo,
};
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
        let workers = || {
            let devices = self.device.iter().flat_map(|(device, _)| device.workers());
            (0..).zip(devices)
        };
        let cqs =
            workers().flat_map(|(worker, d)| [&d.receive_cq, &d.send_cq].map(|cq| (worker, cq)));
        let completion_queues = cqs.map(|(worker, cq)| CompletionQueueInfo {
            cqn: cq.number(),
            cqe: cq.capacity() as u32,
            worker,
        });
        let groups = self.groups.all().filter_map(|(mgid, id)| {
            let qpn = self.endpoints.get(&id.0)?.qpn;
            Some(GroupInfo { mgid, qpn })
        });
        let queues = workers().flat_map(|(worker, d)| {
            let queues = [("datagrams", &d.datagrams), ("messages", &d.messages)];
            queues.map(|(contents, queue)| (worker, contents, queue.as_ref()))
        });
        let shared_receive_queues = queues.filter_map(|(worker, contents, queue)| {
            Some(SharedReceiveQueueInfo {
                contents,
                srqe: queue?.capacity() as u32,
                worker,
            })
        });
        let regions = workers().flat_map(|(worker, d)| d.regions.iter().map(move |r| (worker, r)));
        let memory_regions = regions.map(|(worker, (lkey, bytes))| MemoryRegionInfo {
            lkey: *lkey,
            mrlen: *bytes as u64,
            worker,
        });
        Resources {
            shared_receive_queues: shared_receive_queues.collect(),
            memory_regions: memory_regions.collect(),
            protection_domains: workers().map(|(worker, _)| worker).collect(),
            queue_pairs,
            completion_queues: completion_queues.collect(),
            groups: groups.collect(),
        }
    }
}
