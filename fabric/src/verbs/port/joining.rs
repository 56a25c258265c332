//! Groups: attachment of queue pairs, membership in the Ethernet below, and requests to the subnet
//! administrator.

use std::io;

use proto::{EndpointId, Gid, Lid, mgid};

use super::VerbsPort;
use crate::group::{GroupParameters, Joined};
use crate::kernel::clock;
use crate::membership::Memberships;
use crate::port::{FabricError, Port, PortEvent};

impl VerbsPort {
    /// Adds an endpoint to a group.
    pub(super) fn join(&mut self, id: EndpointId, mgid: Gid) -> Joined {
        match self.check_group(id, mgid) {
            Err(e) => Joined::Refused(e.to_string()),
            Ok(()) if self.is_ethernet() => self.join_on_ethernet(id, mgid).into(),
            Ok(()) => self.join_on_subnet(id, mgid),
        }
    }

    fn check_group(&self, id: EndpointId, mgid: Gid) -> Result<(), FabricError> {
        self.endpoint(id)?;
        let ipv4 = (mgid.ipv4(), self.usable.gid.gid.ipv4());
        if !mgid.is_multicast() || matches!(ipv4, (Some(_), None)) {
            return Err(FabricError::BadGroup(mgid));
        }
        if self.is_ethernet() && matches!(ipv4, (None, Some(_))) {
            return Err(FabricError::Unusable(format!(
                "{} has an IPv4 GID and cannot join the IPv6 group {mgid}: choose an IPv6 GID",
                self.name
            )));
        }
        let most = self.capabilities().groups_max;
        if !self.groups.has(mgid) && self.groups.len() >= most {
            return Err(FabricError::Limit(format!(
                "{} can attach to at most {most} multicast groups",
                self.name
            )));
        }
        Ok(())
    }

    /// Joins a group of the Ethernet. Its parameters are defaults.
    fn join_on_ethernet(
        &mut self,
        id: EndpointId,
        mgid: Gid,
    ) -> Result<GroupParameters, FabricError> {
        let parameters = GroupParameters::unadministered(self.endpoint(id)?.qkey);
        if self.groups.has_member(mgid, id) {
            return Ok(parameters);
        }
        // While the device is away, joining is postponed.
        if self.device.is_some() {
            self.enter(id, mgid, Lid(0))?;
        }
        self.groups.add(mgid, id, Lid(0));
        Ok(parameters)
    }

    /// Requests a group from the subnet administrator.
    fn join_on_subnet(&mut self, id: EndpointId, mgid: Gid) -> Joined {
        let Some(endpoint) = self.endpoints.get(&id.0) else {
            return Joined::Refused(FabricError::NoSuchEndpoint(id).to_string());
        };
        let (pkey, qkey) = (endpoint.partition, endpoint.qkey);
        // The kernel's interface joins only groups of IP.
        if mgid::broadcast_of(mgid).is_some()
            && !self.groups.has(mgid)
            && let Some(kernel) = self.beside_kernel(pkey)
        {
            return match kernel.join(mgid) {
                Ok(()) => {
                    self.requested.add(mgid, id);
                    Joined::Pending
                }
                Err(e) => Joined::Refused(format!("rdma_cm refused the group: {e}")),
            };
        }
        let Some(administration) = &mut self.administration else {
            return Joined::Refused(format!("{} has no subnet administrator", self.name));
        };
        match administration.subnet.join(clock(), mgid, pkey, qkey) {
            Joined::Now(parameters) => {
                let joined = self.attach(id, mgid, parameters);
                if let Joined::Refused(_) = joined {
                    self.leave_unused(mgid);
                }
                joined
            }
            other => {
                if other == Joined::Pending {
                    self.requested.add(mgid, id);
                }
                other
            }
        }
    }

    /// Attaches an endpoint to a group that the port is a member of, with this MLID from now on.
    fn attach(&mut self, id: EndpointId, mgid: Gid, parameters: GroupParameters) -> Joined {
        let mlid = parameters.mlid.unwrap_or(Lid(0));
        if let Err(why) = self.check_qkey(id, parameters.qkey) {
            self.remove(id, mgid);
            return Joined::Refused(why);
        }
        if self.groups.mlid(mgid, id) == Some(mlid) {
            return Joined::Now(parameters);
        }
        self.remove(id, mgid);
        if let Err(e) = self.enter(id, mgid, mlid) {
            return Joined::Refused(e.to_string());
        }
        self.groups.add(mgid, id, mlid);
        Joined::Now(parameters)
    }

    /// Follows news of a group from the subnet administrator.
    pub(super) fn group_answered(&mut self, mgid: Gid, joined: &Joined) -> Vec<PortEvent> {
        let mut events = Vec::new();
        for endpoint in self.requested.answered(mgid, &self.groups.members(mgid)) {
            let joined = match joined {
                Joined::Now(parameters) => self.attach(endpoint, mgid, *parameters),
                other => {
                    self.remove(endpoint, mgid);
                    other.clone()
                }
            };
            events.push(PortEvent::Group {
                endpoint,
                mgid,
                joined,
            });
        }
        self.leave_unused(mgid);
        events
    }

    /// Joins the group in the network and attaches the endpoint's first queue pair, which receives.
    fn enter(&mut self, id: EndpointId, mgid: Gid, mlid: Lid) -> Result<(), FabricError> {
        let failed = |name: &str| {
            let what = format!("{name} cannot join {mgid}");
            move |source| FabricError::Os { what, source }
        };
        // rdma_rxe of Linux 6.1 joins no groups, and NICs leave membership reports to the host.
        // While the interface or its address is missing, joining is postponed to `move_memberships`.
        if self.is_ethernet() && self.memberships.ifindex() != 0 {
            self.memberships
                .join(mgid.to_ip())
                .map_err(failed(&self.name))?;
        }
        let pair = self.endpoints.get(&id.0).and_then(|e| e.pairs.first());
        let attached = pair.map_or(Ok(()), |pair| pair.qp.attach(mgid, mlid));
        attached.map_err(|e: io::Error| {
            if !self.groups.has(mgid) {
                self.memberships.leave(mgid.to_ip());
            }
            failed(&self.name)(e)
        })
    }

    /// Detaches the endpoint's queue pair from a group.
    pub(super) fn detach(&mut self, id: EndpointId, mgid: Gid) {
        let Some(mlid) = self.groups.mlid(mgid, id) else {
            return;
        };
        let pair = self.endpoints.get(&id.0).and_then(|e| e.pairs.first());
        if let Some(Err(e)) = pair.map(|pair| pair.qp.detach(mgid, mlid)) {
            log::debug!("{}: cannot detach from {mgid}: {e}", self.name);
        }
    }

    /// Detaches an endpoint, and removes it from the group.
    fn remove(&mut self, id: EndpointId, mgid: Gid) {
        self.detach(id, mgid);
        self.groups.remove(mgid, id);
    }

    /// Removes an endpoint from a group, and ends its request for it.
    pub(super) fn leave(&mut self, id: EndpointId, mgid: Gid) {
        let was_member = self.groups.has_member(mgid, id);
        let was_requested = self.requested.remove(mgid, id);
        self.remove(id, mgid);
        if was_member || was_requested {
            self.leave_unused(mgid);
        }
    }

    /// Ends the port's membership if no endpoint uses or wants the group.
    fn leave_unused(&mut self, mgid: Gid) {
        if self.groups.has(mgid) || self.requested.has(mgid) {
            return;
        }
        self.memberships.leave(mgid.to_ip());
        for kernel in self.kernel_groups.values_mut() {
            kernel.leave(mgid);
        }
        if let Some(administration) = &mut self.administration {
            administration.subnet.leave(clock(), mgid);
        }
    }

    /// Joins all groups again, with other queue pairs.
    pub(super) fn join_all(&mut self) {
        let all: Vec<(Gid, EndpointId)> = self.groups.all().collect();
        for (mgid, id) in all {
            let mlid = self.groups.mlid(mgid, id).unwrap_or(Lid(0));
            if let Err(e) = self.enter(id, mgid, mlid) {
                log::error!("cannot join a group again: {e}");
            }
        }
    }

    /// Moves the memberships to the current interface; queue pairs stay attached.
    pub(super) fn move_memberships(&mut self) {
        self.memberships = Memberships::new(self.usable.gid.netdev.unwrap_or(0));
        if !self.is_ethernet() || self.memberships.ifindex() == 0 {
            return;
        }
        for mgid in self.groups.mgids() {
            if let Err(e) = self.memberships.join(mgid.to_ip()) {
                log::error!("{} cannot join {mgid} again: {e}", self.name);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
