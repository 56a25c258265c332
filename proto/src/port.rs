//! Ids and states of a port and its endpoints.

use serde::{Deserialize, Serialize};

use crate::connection::ServiceId;

/// Identifies an endpoint (a queue pair with its lanes) of a port. Never reused while the port lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, PartialOrd, Ord)]
#[serde(transparent)]
pub struct EndpointId(pub u32);

/// The logical state of a port, as far as consumers need it (IBA vol. 1, 14.2.5.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortState {
    /// No link, or no usable address.
    Down,
    /// Packets flow.
    Active,
}

crate::display_as_serialized!(PortState, LinkLayer);

/// The address of a datagram's destination below the queue pair, made by a worker (IBA vol. 1, 11.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressHandle(pub u32);

/// The link layer of a port (IBA vol. 1, annex A16: `rdma_port_get_link_layer`). The names are those of
/// `ibv_devinfo` and /sys/class/infiniband/*/ports/*/link_layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LinkLayer {
    /// RoCE: MACs address ports. A port has no LID.
    #[default]
    Ethernet,
    /// InfiniBand: LIDs address ports.
    InfiniBand,
}

/// The connection requests that reach a port, and those that it can send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Services {
    /// Both for any service id: the provider owns communication management (QP1).
    #[default]
    Any,
    /// Both for services of rdma_cm's TCP port space only ([`ServiceId::rdma_cm`]): the kernel owns
    /// communication management and keeps all other requests.
    RdmaCm,
    /// Both for any service id without IP addresses, on InfiniBand: the provider owns communication
    /// management. Some peers only take requests for services of [`ServiceId::rdma_ib`].
    InfiniBand,
    /// Requests for services of rdma_cm's InfiniBand port space reach the port ([`ServiceId::rdma_ib`]): the
    /// kernel owns communication management and keeps all others. The port can send requests for any
    /// service of InfiniBand.
    RdmaCmInfiniBand,
}

impl Services {
    /// Whether requests for a service reach the port.
    pub const fn receives(self, service: ServiceId) -> bool {
        match self {
            Services::Any => true,
            Services::InfiniBand => !service.is_rdma_cm(),
            Services::RdmaCm => service.rdma_cm_port().is_some(),
            Services::RdmaCmInfiniBand => service.rdma_ib_port().is_some(),
        }
    }

    /// Whether the port can send requests for a service.
    pub const fn requests(self, service: ServiceId) -> bool {
        match self {
            Services::Any => true,
            Services::RdmaCm => service.rdma_cm_port().is_some(),
            // Requests for these carry IP addresses.
            Services::InfiniBand | Services::RdmaCmInfiniBand => !service.is_rdma_cm(),
        }
    }

    /// Whether peers may take requests for services of [`ServiceId::rdma_ib`] only.
    pub const fn is_infiniband(self) -> bool {
        matches!(self, Services::InfiniBand | Services::RdmaCmInfiniBand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_receives_and_sends_requests_for_its_services() {
        let linux = ServiceId(0x1000_0000_0000_0042);
        let (tcp, ib) = (ServiceId::rdma_cm(4755), ServiceId::rdma_ib(4755));
        assert_eq!(ib, ServiceId(0x013f_1293));
        assert_eq!((ib.rdma_ib_port(), tcp.rdma_ib_port()), (Some(4755), None));
        let of = |services: Services| {
            let three = [linux, tcp, ib];
            (
                three.map(|s| services.receives(s)),
                three.map(|s| services.requests(s)),
            )
        };
        let all = [true; 3];
        let no_ip = [true, false, true];
        assert_eq!(of(Services::Any), (all, all));
        assert_eq!(of(Services::InfiniBand), (no_ip, no_ip));
        let only_tcp = [false, true, false];
        assert_eq!(of(Services::RdmaCm), (only_tcp, only_tcp));
        assert_eq!(
            of(Services::RdmaCmInfiniBand),
            ([false, false, true], no_ip)
        );
    }
}
