//! Groups: attaching queue pairs, and what the network below has to know of it.

use proto::{EndpointId, Gid, Lid};

use super::VerbsPort;
use crate::group::GroupParameters;
use crate::membership::Memberships;
use crate::port::{FabricError, Port};

impl VerbsPort {
    /// What a group is called on the wire: its MLID on InfiniBand.
    pub(super) fn mlid(&self, mgid: Gid) -> Result<Lid, FabricError> {
        if !mgid.is_multicast() {
            return Err(FabricError::BadGroup(mgid));
        }
        if !self.is_ethernet() {
            return self.lids.get(&mgid).copied().ok_or_else(|| {
                FabricError::Unusable(format!(
                    "{} cannot join {mgid}: it is not in the port's table of lids, and subnet \
                     administration is not there yet",
                    self.name
                ))
            });
        }
        match (mgid.ipv4(), self.usable.gid.gid.ipv4()) {
            (None, Some(_)) => Err(FabricError::Unusable(format!(
                "{} has an IPv4 GID and cannot join {mgid}: IPoIB's groups are IPv6 groups; choose an \
                 IPv6 GID for multicast",
                self.name
            ))),
            (Some(_), None) => Err(FabricError::BadGroup(mgid)),
            _ => Ok(Lid(0)),
        }
    }

    /// Puts an endpoint into a group. The group's LID is that of the configuration, and nobody
    /// administers the rest.
    pub(super) fn join(
        &mut self,
        id: EndpointId,
        mgid: Gid,
    ) -> Result<GroupParameters, FabricError> {
        let mlid = self.mlid(mgid)?;
        let qkey = self.endpoint(id)?.qkey;
        let parameters = GroupParameters {
            mlid: (!self.is_ethernet()).then_some(mlid),
            ..GroupParameters::unadministered(qkey, self.usable.ud_payload_max)
        };
        if self.groups.has_member(mgid, id) {
            return Ok(parameters);
        }
        let first = !self.groups.has(mgid);
        let most = self.capabilities().groups_max;
        if first && self.groups.len() >= most {
            return Err(FabricError::Limit(format!(
                "{} attaches to {most} multicast groups at most",
                self.name
            )));
        }
        // While the device is away there is nothing to join; it is made up for.
        if self.device.is_some() {
            self.enter(id, mgid, mlid)?;
        }
        self.groups.add(mgid, id);
        Ok(parameters)
    }

    /// Has the network and the device deliver a group to an endpoint.
    fn enter(&mut self, id: EndpointId, mgid: Gid, mlid: Lid) -> Result<(), FabricError> {
        let failed = |name: &str| {
            let what = format!("{name} cannot join {mgid}");
            move |source| FabricError::Os { what, source }
        };
        // rdma_rxe of Linux 6.1 joins no group itself, and NICs leave reports to the host.
        if self.is_ethernet() && self.memberships.ifindex() != 0 {
            self.memberships
                .join(mgid.to_ip())
                .map_err(failed(&self.name))?;
        }
        let pair = self.endpoints.get(&id.0).and_then(|e| e.pair.as_ref());
        let attached = pair.map_or(Ok(()), |pair| pair.qp.attach(mgid, mlid));
        attached.map_err(|e| {
            if !self.groups.has(mgid) {
                self.memberships.leave(mgid.to_ip());
            }
            failed(&self.name)(e)
        })
    }

    /// Takes an endpoint out of a group.
    pub(super) fn leave(&mut self, id: EndpointId, mgid: Gid) {
        if !self.groups.has_member(mgid, id) {
            return;
        }
        let mlid = self.mlid(mgid).unwrap_or(Lid(0));
        let pair = self.endpoints.get(&id.0).and_then(|e| e.pair.as_ref());
        if let Some(Err(e)) = pair.map(|pair| pair.qp.detach(mgid, mlid)) {
            log::warn!("{}: {mgid} cannot be left: {e}", self.name);
        }
        if self.groups.remove(mgid, id) {
            self.memberships.leave(mgid.to_ip());
        }
    }

    /// Joins all groups anew: on another interface, or with another device's queue pairs.
    pub(super) fn join_all(&mut self) {
        self.memberships = Memberships::new(self.usable.gid.netdev.unwrap_or(0));
        let all: Vec<(Gid, EndpointId)> = self.groups.all().collect();
        for (mgid, id) in all {
            let joined = self.mlid(mgid).and_then(|mlid| self.enter(id, mgid, mlid));
            if let Err(e) = joined {
                log::error!("a group cannot be joined again: {e}");
            }
        }
    }

    /// Memberships follow the interface, queue pairs stay attached.
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
