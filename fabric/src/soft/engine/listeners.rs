//! The listeners for each service.

use std::collections::HashMap;

use proto::{EndpointId, Qpn, ServiceId};

use super::{Partition, Standing};

/// A listener for a service.
#[derive(Clone, Copy, Debug)]
struct Listener {
    endpoint: EndpointId,
    /// None while the endpoint waits for its P_Key.
    partition: Option<Partition>,
}

/// The listeners of one worker. A service of rdma_cm may have several: requests select the listener by
/// its queue pair. Other services have one.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    services: HashMap<ServiceId, Vec<Listener>, foldhash::fast::RandomState>,
}

impl Listeners {
    /// Adds an endpoint as listener; ignored for a deleted endpoint.
    pub fn insert(&mut self, endpoint: EndpointId, standing: Standing, service: ServiceId) {
        let partition = match standing {
            Standing::Gone => return,
            Standing::Waiting => None,
            Standing::Member(partition) => Some(partition),
        };
        let several = service.rdma_cm_port().is_some();
        let listeners = self.services.entry(service).or_default();
        listeners.retain(|l| several && l.endpoint != endpoint);
        listeners.push(Listener {
            endpoint,
            partition,
        });
    }

    /// Removes an endpoint from all services.
    pub fn remove(&mut self, endpoint: EndpointId) {
        self.retain(|l| l.endpoint != endpoint);
    }

    /// Applies the present state of the endpoints.
    pub fn follow(&mut self, standing: impl Fn(EndpointId) -> Standing) {
        self.retain(|l| match standing(l.endpoint) {
            Standing::Gone => false,
            Standing::Waiting => {
                l.partition = None;
                true
            }
            Standing::Member(partition) => {
                l.partition = Some(partition);
                true
            }
        });
    }

    fn retain(&mut self, mut keeps: impl FnMut(&mut Listener) -> bool) {
        self.services.retain(|_, listeners| {
            listeners.retain_mut(&mut keeps);
            !listeners.is_empty()
        });
    }

    /// Whether a service has a listener with a partition.
    pub fn any(&self, service: ServiceId) -> bool {
        self.serving(service).next().is_some()
    }

    /// The listener for a request. `to` names its queue pair; 0 selects the only listener.
    pub fn find(&self, service: ServiceId, to: Qpn) -> Option<(EndpointId, Partition)> {
        let mut serving = self.serving(service);
        if to != Qpn::new(0) {
            return serving.find(|(_, partition)| partition.qpn == to);
        }
        let only = serving.next()?;
        serving.next().is_none().then_some(only)
    }

    fn serving(&self, service: ServiceId) -> impl Iterator<Item = (EndpointId, Partition)> {
        let listeners = self.services.get(&service).into_iter().flatten();
        listeners.filter_map(|l| Some((l.endpoint, l.partition?)))
    }

    /// Whether no service has a listener.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }
}
