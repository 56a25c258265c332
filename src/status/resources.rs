//! Resources of ports, converted from the providers' types to those of the control socket.

use control::api::{CompletionQueueInfo, LinkInfo, MemberInfo, QueuePairInfo, ResourcesInfo};
use fabric::subnet::SubnetInfo;
use fabric::{DeviceAttributes, EndpointId, PortAttributes, Resources};

use super::subnet::{sm_lid, sm_sl};

/// The link of a port: the attributes of port and RDMA device or underlay.
pub fn link_info(
    port: &PortAttributes,
    device: &DeviceAttributes,
    subnet: Option<SubnetInfo<'_>>,
) -> LinkInfo {
    LinkInfo {
        state: port.state,
        link_layer: device.link_layer,
        lid: port.lid.map(|lid| lid.0),
        sm_lid: subnet.and_then(sm_lid),
        sm_sl: subnet.and_then(sm_sl),
        gid: port.gid,
        gid_index: device.gid_index,
        guid: port.guid.to_string(),
        link_mtu: port.ud_payload_max,
        firmware: device.firmware.clone(),
        netdev: device.netdev.clone(),
    }
}

/// The resources of a port without its link; `interface` names the interface of an endpoint.
pub fn resources_info(
    port: String,
    resources: &Resources,
    interface: impl Fn(EndpointId) -> Option<String>,
) -> ResourcesInfo {
    let queue_pairs = resources.queue_pairs.iter().map(|qp| QueuePairInfo {
        qpn: qp.qpn,
        kind: qp.kind.to_owned(),
        state: qp.state.to_owned(),
        pkey: qp.pkey,
        qkey: Some(qp.qkey),
        peer_qpn: None,
        lanes: u32::try_from(qp.lanes).unwrap_or(u32::MAX),
        interface: interface(qp.endpoint),
    });
    let completion_queues = resources.completion_queues.iter();
    let completion_queues = completion_queues.map(|cq| CompletionQueueInfo {
        cqn: cq.cqn,
        cqe: cq.cqe,
        worker: cq.worker,
    });
    let groups = resources.groups.iter().map(|group| MemberInfo {
        mgid: group.mgid,
        qpn: group.qpn,
    });
    ResourcesInfo {
        port,
        link: None,
        queue_pairs: queue_pairs.collect(),
        completion_queues: completion_queues.collect(),
        groups: groups.collect(),
    }
}
