//! Resources of ports, converted from the providers' types to those of the control socket.

use control::api::{
    ApiError, CompletionQueueInfo, LinkInfo, MemberInfo, MemoryRegionInfo, PortInfo,
    ProtectionDomainInfo, QueuePairInfo, Reply, ResourcesInfo, SharedReceiveQueueInfo,
};
use fabric::subnet::SubnetInfo;
use fabric::{DeviceAttributes, EndpointId, PortAttributes, Resources};

use netdev::ethtool;

use super::View;
use super::connections::check_count;
use super::subnet::{sm_lid, sm_sl};

impl View<'_> {
    /// The resources of all ports.
    ///
    /// # Errors
    /// [`ApiError::Refused`] if there are more connections than one answer may have.
    pub(crate) fn resources(&self) -> Result<Reply, ApiError> {
        let resources: Vec<ResourcesInfo> = self
            .ports
            .iter()
            .map(|(at, p)| {
                let name = p.port.attributes().name;
                let mut info = resources_info(name, &p.port.resources(), |endpoint| {
                    self.with_endpoint(at, endpoint)
                });
                let port = &*p.port;
                info.link = Some(link_info(&port.attributes(), &port.device(), port.subnet()));
                self.add_connections(at, &mut info);
                info
            })
            .collect();
        check_count(resources.iter().map(|port| port.cm_ids.len()).sum())?;
        Ok(Reply::Resources { resources })
    }

    /// The ports with their counters.
    ///
    /// # Errors
    /// As [`crate::port::Ports::snapshots`].
    pub(crate) fn ports(&self) -> Result<Reply, ApiError> {
        let all = self.ports.iter().map(|(at, _)| at).collect();
        let snapshots = self.ports.snapshots(all, false)?;
        let ports = self.ports.iter().map(|(at, p)| {
            let (port, device) = (&*p.port, p.port.device());
            let attributes = port.attributes();
            let speed = |name: &String| ethtool::speed(name).ok().flatten();
            let fabric = snapshots[&at].iter().flat_map(|s| &s.worker.fabric);
            PortInfo {
                link: link_info(&attributes, &device, port.subnet()),
                speed: device.netdev.as_ref().and_then(speed),
                port: attributes.name,
                pkeys: attributes.pkeys,
                counters: fabric.copied().collect(),
            }
        });
        Ok(Reply::Ports {
            ports: ports.collect(),
        })
    }
}

/// The link of a port: the attributes of port and RDMA device or underlay.
fn link_info(
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
fn resources_info(
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
    let shared_receive_queues = resources.shared_receive_queues.iter();
    let shared_receive_queues = shared_receive_queues.map(|srq| SharedReceiveQueueInfo {
        contents: srq.contents.to_owned(),
        srqe: srq.srqe,
        worker: srq.worker,
    });
    let memory_regions = resources.memory_regions.iter();
    let memory_regions = memory_regions.map(|mr| MemoryRegionInfo {
        lkey: mr.lkey,
        mrlen: mr.mrlen,
        worker: mr.worker,
    });
    let domains = resources.protection_domains.iter();
    ResourcesInfo {
        port,
        link: None,
        queue_pairs: queue_pairs.collect(),
        completion_queues: completion_queues.collect(),
        groups: groups.collect(),
        pid: std::process::id(),
        shared_receive_queues: shared_receive_queues.collect(),
        cm_ids: Vec::new(),
        memory_regions: memory_regions.collect(),
        protection_domains: domains
            .map(|&worker| ProtectionDomainInfo { worker })
            .collect(),
    }
}
