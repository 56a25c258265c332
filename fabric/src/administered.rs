//! A port of the software fabric on a subnet: the subnet administrator is asked for each group before an
//! endpoint is attached. Packets take the Ethernet, and are addressed by GID. The datagrams of subnet
//! administration have one of two carriers (`Side`):
//!
//! * umad of the simulated port of ibsim with the same GID. A subnet manager gives the P_Key table and the
//!   LID.
//! * the port's QP1, if the subnet administrator is at a port of the same Ethernet.
//!
//! A packet to a group that no endpoint has joined makes the port a member that only sends.

mod side;
mod simulated;
#[cfg(test)]
mod tests;
mod watcher;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use proto::{EndpointId, Gid, PKey, PortState, QKey, Qpn};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::administration::Administration;
use crate::group::{GroupParameters, Joined};
use crate::kernel::{clock, wake};
use crate::port::{
    Capabilities, DeviceAttributes, FabricError, Port, PortAttributes, PortEvent, Resources,
    UdEndpoint, UdInit,
};
use crate::soft::{SoftConfig, SoftPort, SubnetMail};
use crate::subnet::{GROUP_REQUESTS, GroupRequests, SubnetEvent, SubnetInfo};
use crate::worker::Worker;
use side::{Side, local};
use simulated::Simulated;

/// See the module.
///
/// As for [`SoftPort`], all calls come from threads in one network namespace.
pub struct AdministeredPort {
    inner: SoftPort,
    administration: Administration<dyn Side>,
    /// Epoll instance with everything that [`Port::process`] reads.
    events: OwnedFd,
    /// Readable when requests wait to be sent.
    wake: Arc<OwnedFd>,
    /// Questions of the workers for the groups that they send to.
    mail: Arc<SubnetMail>,
    /// Why the port is not usable on the subnet.
    trouble: Option<String>,
    /// The subnet administrator has no membership of the port any more.
    lost: bool,
    /// The subnet administrator has forgotten some memberships, which count as lost already.
    forgotten: bool,
    /// Unanswered requests for groups.
    requested: GroupRequests,
}

impl AdministeredPort {
    /// Opens a port of the software fabric, and the first port of the first RDMA device for its management
    /// datagrams.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with a sentence that says what is missing and what to do;
    /// [`FabricError::Os`].
    pub fn by_umad(config: SoftConfig) -> Result<AdministeredPort, FabricError> {
        let simulated = Simulated::open()?;
        AdministeredPort::beside(SoftPort::open(config)?, simulated)
    }

    /// Opens a port of the software fabric whose subnet administrator is at the port `administrator`, reached
    /// by QP1.
    ///
    /// # Errors
    /// As [`AdministeredPort::by_umad`].
    pub fn by_qp1(config: SoftConfig, administrator: Gid) -> Result<AdministeredPort, FabricError> {
        let mut inner = SoftPort::open(config)?;
        let carrier = inner.carrier_to(administrator)?;
        AdministeredPort::over(inner, Box::new(carrier))
    }

    /// With an open port of the software fabric, and umad of the port with its GID.
    ///
    /// # Errors
    /// As [`AdministeredPort::by_umad`].
    #[cfg(test)]
    fn with_umad(
        inner: SoftPort,
        open: simulated::Opener,
    ) -> Result<AdministeredPort, FabricError> {
        AdministeredPort::beside(inner, Simulated::over(open)?)
    }

    fn beside(
        mut inner: SoftPort,
        mut simulated: Simulated,
    ) -> Result<AdministeredPort, FabricError> {
        simulated.begin(&mut inner)?;
        AdministeredPort::over(inner, Box::new(simulated))
    }

    fn over(mut inner: SoftPort, side: Box<dyn Side>) -> Result<AdministeredPort, FabricError> {
        let administration = Administration::over(side, local(&inner))?;
        let failed = |source: rustix::io::Errno| FabricError::Os {
            what: "cannot wait for management datagrams".to_owned(),
            source: source.into(),
        };
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let wake = Arc::new(wake);
        let [mads, timer] = administration.fds();
        for fd in [inner.event_fd(), wake.as_fd(), mads, timer] {
            epoll::add(&events, fd, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        let trouble = administration.carrier.trouble(&inner.attributes());
        let port = AdministeredPort {
            mail: inner.enter_subnet(Arc::clone(&wake)),
            inner,
            administration,
            events,
            wake,
            trouble,
            lost: false,
            forgotten: false,
            requested: GroupRequests::default(),
        };
        // The first `process` sets the timer.
        port.wake();
        Ok(port)
    }

    /// Follows whether the port is usable on the subnet. `events` are those of the software fabric.
    fn follow_trouble(&mut self, events: &mut Vec<PortEvent>) {
        let now = self
            .administration
            .carrier
            .trouble(&self.inner.attributes());
        if now.is_some() {
            events.retain(|event| *event != PortEvent::Active);
        }
        // Memberships of a port that was down are lost.
        self.lost |= events.contains(&PortEvent::Active);
        if now == self.trouble {
            return;
        }
        self.trouble = now;
        self.lost |= self.trouble.is_none();
        if self.inner.attributes().state != PortState::Active {
            return;
        }
        match &self.trouble {
            Some(why) => events.push(PortEvent::Down(why.clone())),
            None if events.contains(&PortEvent::Active) => {}
            None => events.push(PortEvent::Active),
        }
    }

    /// Follows the attributes of the port.
    fn follow_port(&mut self) {
        let local = local(&self.inner);
        // Memberships are those of a GID.
        self.lost |= self.administration.subnet.port().gid != local.gid;
        self.administration.set_port(clock(), local);
    }

    /// Has all groups joined again if the subnet administrator has lost some.
    fn follow_loss(&mut self) -> Option<PortEvent> {
        if !(self.lost || self.forgotten) || self.trouble.is_some() {
            return None;
        }
        self.forgotten = false;
        let lost = std::mem::take(&mut self.lost);
        self.administration.subnet.changed(clock(), lost);
        self.inner.age_paths();
        self.administration.subscribe_soon(clock());
        Some(PortEvent::ClientReregister)
    }

    /// Sends and receives, and handles answers of the subnet administrator.
    fn process_subnet(&mut self) -> Vec<PortEvent> {
        let mut paths = Vec::new();
        for destination in self.mail.destinations.take() {
            let path = self.administration.subnet.resolve(clock(), destination);
            paths.extend(path.map(|path| (destination, path)));
        }
        let news = match self.administration.process(clock()) {
            Ok(news) => news,
            Err(e) => {
                log::error!("{e}; restart ibtapd");
                Vec::new()
            }
        };
        let mut events = Vec::new();
        for event in news {
            match event {
                SubnetEvent::Group { mgid, joined } => {
                    events.extend(self.group_answered(mgid, &joined));
                }
                SubnetEvent::Forgotten => self.forgotten = true,
                SubnetEvent::Path { destination, path } => paths.push((destination, path)),
            }
        }
        self.mail.answer(&paths);
        events
    }

    /// Requests a group from the subnet administrator.
    fn join(&mut self, id: EndpointId, mgid: Gid) -> Joined {
        let (pkey, qkey) = match self.inner.keys(id) {
            Ok(_) if !mgid.is_multicast() => {
                return Joined::Refused(FabricError::BadGroup(mgid).to_string());
            }
            Ok(keys) => keys,
            Err(e) => return Joined::Refused(e.to_string()),
        };
        let subnet = &mut self.administration.subnet;
        match subnet.join(clock(), mgid, pkey, qkey) {
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

    /// Attaches an endpoint to a group that the port is a member of.
    fn attach(&mut self, id: EndpointId, mgid: Gid, parameters: GroupParameters) -> Joined {
        match self.change_one(id, Some(mgid), None) {
            Joined::Now(_) => Joined::Now(parameters),
            other => other,
        }
    }

    fn change_one(&mut self, id: EndpointId, join: Option<Gid>, leave: Option<Gid>) -> Joined {
        let answers = self
            .inner
            .change_groups(id, join.as_slice(), leave.as_slice());
        match answers.map(|answers| answers.into_iter().next()) {
            Ok(Some(joined)) => joined,
            Ok(None) => Joined::Refused("the group was left".into()),
            Err(e) => Joined::Refused(e.to_string()),
        }
    }

    /// Follows news of a group from the subnet administrator.
    fn group_answered(&mut self, mgid: Gid, joined: &Joined) -> Vec<PortEvent> {
        let concerned = self.requested.answered(mgid, self.inner.members(mgid));
        let event = |endpoint| {
            let joined = match joined {
                Joined::Now(parameters) => self.attach(endpoint, mgid, *parameters),
                other => {
                    self.change_one(endpoint, None, Some(mgid));
                    other.clone()
                }
            };
            PortEvent::Group {
                endpoint,
                mgid,
                joined,
            }
        };
        let events = concerned.into_iter().map(event).collect();
        self.leave_unused(mgid);
        events
    }

    /// Ends the port's membership if no endpoint uses or wants it.
    fn leave_unused(&mut self, mgid: Gid) {
        if self.inner.members(mgid).is_empty() && !self.requested.has(mgid) {
            self.administration.subnet.leave(clock(), mgid);
        }
    }

    /// Has [`Port::process`] called, which sends the requests to the subnet administrator.
    fn wake(&self) {
        wake(&self.wake);
    }
}

impl Port for AdministeredPort {
    fn attributes(&self) -> PortAttributes {
        let inner = self.inner.attributes();
        let state = match self.trouble {
            Some(_) => PortState::Down,
            None => inner.state,
        };
        PortAttributes {
            state,
            state_reason: inner.state_reason.or_else(|| self.trouble.clone()),
            lid: self.administration.carrier.lid(),
            ..inner
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            group_requests: GROUP_REQUESTS,
            pkeys_settable: !self.administration.carrier.sets_pkeys(),
            ..self.inner.capabilities()
        }
    }

    fn subnet(&self) -> Option<SubnetInfo<'_>> {
        Some(self.administration.info())
    }

    fn device(&self) -> DeviceAttributes {
        self.inner.device()
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn process(&mut self) -> Vec<PortEvent> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        let mut events = self.inner.process();
        let changes = self.administration.carrier.look(&mut self.inner);
        events.extend(changes.events);
        self.lost |= changes.lost;
        self.follow_trouble(&mut events);
        self.follow_port();
        events.extend(self.process_subnet());
        // Also a loss that the answers revealed.
        if let Some(event) = self.follow_loss() {
            events.push(event);
            self.wake();
        }
        events
    }

    fn receiving_sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.receiving_sockets()
    }

    fn set_receiving(&mut self, on: bool) {
        self.inner.set_receiving(on);
    }

    fn take_workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.inner.take_workers()
    }

    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError> {
        self.inner.create_ud(init)
    }

    fn destroy_ud(&mut self, id: EndpointId) -> Result<(), FabricError> {
        let mut mgids = self.inner.groups_of(id);
        mgids.extend(self.requested.of(id));
        self.inner.destroy_ud(id)?;
        for mgid in mgids {
            self.requested.remove(mgid, id);
            self.leave_unused(mgid);
        }
        self.wake();
        Ok(())
    }

    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError> {
        self.inner.set_peers(peers)
    }

    fn set_pkeys(&mut self, pkeys: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        if self.administration.carrier.sets_pkeys() {
            return Err(FabricError::Unusable(format!(
                "a subnet manager sets the P_Key table of {}; ibtapd cannot change it",
                self.inner.attributes().name
            )));
        }
        self.inner.set_pkeys(pkeys)
    }

    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey> {
        self.inner.endpoint_pkey(id)
    }

    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn> {
        self.inner.endpoint_qpn(id)
    }

    fn set_qkey(&mut self, id: EndpointId, qkey: QKey) -> Result<(), FabricError> {
        self.inner.set_qkey(id, qkey)
    }

    fn change_groups(
        &mut self,
        id: EndpointId,
        joins: &[Gid],
        leaves: &[Gid],
    ) -> Result<Vec<Joined>, FabricError> {
        self.inner.change_groups(id, &[], leaves)?;
        for &mgid in leaves {
            self.requested.remove(mgid, id);
            self.leave_unused(mgid);
        }
        let answers = joins.iter().map(|mgid| self.join(id, *mgid)).collect();
        self.wake();
        Ok(answers)
    }

    fn resources(&self) -> Resources {
        self.inner.resources()
    }
}

impl Drop for AdministeredPort {
    /// Leaves all groups.
    fn drop(&mut self) {
        self.administration.finish();
    }
}
