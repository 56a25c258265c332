//! The resources of a port, as `rdma resource show` lists them.

use proto::{EndpointId, Qpn};

use super::SoftPort;
use crate::port::{
    CompletionQueueInfo, GroupInfo, QueuePairInfo, Resources, SharedReceiveQueueInfo,
};
use crate::soft::engine::receive_buffers;
use crate::soft::reception::DELIVERIES;

impl SoftPort {
    /// [`crate::Connections::list`] has the queue pairs of connections, which belong to the workers.
    pub(super) fn list_resources(&self) -> Resources {
        let lanes = self.config.workers;
        let gsi = QueuePairInfo {
            qpn: Qpn::GSI,
            kind: "GSI",
            state: self.gsi.state().name(),
            pkey: self.pkeys.management().pkey,
            qkey: self.gsi.qkey(),
            lanes,
            endpoint: EndpointId(0),
        };
        let endpoints = self.endpoints.values().map(|e| QueuePairInfo {
            qpn: e.qp().qpn(),
            kind: "UD",
            state: e.qp().state().name(),
            pkey: e.pkey().unwrap_or(e.partition()),
            qkey: e.qkey(),
            lanes,
            endpoint: e.id(),
        });
        let qpn = |id: &EndpointId| self.endpoints.get(&id.0).map(|e| e.qp().qpn());
        let groups = self.groups.iter().flat_map(|(&mgid, ids)| {
            ids.iter()
                .filter_map(qpn)
                .map(move |qpn| GroupInfo { mgid, qpn })
        });
        let mut groups: Vec<GroupInfo> = groups.collect();
        groups.sort_unstable_by_key(|g| (g.mgid, g.qpn));
        Resources {
            queue_pairs: std::iter::once(gsi).chain(endpoints).collect(),
            completion_queues: (0..lanes as u32)
                .map(|worker| CompletionQueueInfo {
                    cqn: worker,
                    cqe: DELIVERIES as u32,
                    worker,
                })
                .collect(),
            groups,
            shared_receive_queues: (0..lanes as u32)
                .filter(|_| self.config.message_max > 0)
                .map(|worker| SharedReceiveQueueInfo {
                    contents: "messages",
                    srqe: receive_buffers(self.config.message_max).0 as u32,
                    worker,
                })
                .collect(),
            ..Resources::default()
        }
    }
}
