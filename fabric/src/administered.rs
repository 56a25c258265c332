//! A port of the software fabric on an InfiniBand subnet: the simulated port of ibsim with the same GID stands
//! for it. A subnet manager gives the P_Key table and the LID; the subnet administrator is asked for each group
//! before an endpoint is attached. Packets take the Ethernet, and are addressed by GID.
//!
//! A packet to a group that no endpoint has joined is sent without a membership.

#[cfg(test)]
mod tests;
mod watcher;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use proto::{EndpointId, Gid, IbMtu, PKey, PortState, QKey, Qpn};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::administration::{Administration, Manager};
use crate::group::{GroupParameters, Joined};
use crate::kernel::clock;
use crate::pkeys::PKeyTable;
use crate::port::{
    Capabilities, DeviceAttributes, FabricError, Port, PortAttributes, PortEvent, Resources,
    UdEndpoint, UdInit,
};
use crate::soft::{SoftConfig, SoftPort};
use crate::subnet::{GROUP_REQUESTS, GroupRequests, LocalPort, SubnetEvent, SubnetInfo};
use crate::umad::{self, LinkState, Umad};
use crate::worker::Worker;
use watcher::{Seen, Watcher};

/// See the module.
///
/// As for [`SoftPort`], all calls come from threads in one network namespace.
pub struct AdministeredPort {
    inner: SoftPort,
    administration: Administration,
    watcher: Watcher,
    /// Epoll instance with everything that [`Port::process`] reads.
    events: OwnedFd,
    /// Readable when requests wait to be sent.
    wake: OwnedFd,
    /// The last attributes of the simulated port.
    seen: umad::PortAttributes,
    /// Why the simulated port's attributes are not known.
    silent: Option<String>,
    /// Why the port is not usable on the subnet.
    trouble: Option<String>,
    /// The subnet administrator has no membership of the port any more.
    lost: bool,
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
    pub fn open(config: SoftConfig) -> Result<AdministeredPort, FabricError> {
        let unusable = |e: umad::UmadError| FabricError::Unusable(e.to_string());
        let device = umad::devices().map_err(unusable)?.into_iter().next();
        let device = device.ok_or_else(|| {
            FabricError::Unusable(
                "sa = \"umad\" needs an RDMA device for management datagrams, and there is none: \
                 start ibtapd with ibsim-run, or leave sa out"
                    .into(),
            )
        })?;
        let umad = Umad::open(&device, 1).map_err(unusable)?;
        AdministeredPort::over(SoftPort::open(config)?, umad)
    }

    /// With an open port of the software fabric and an open umad port.
    ///
    /// # Errors
    /// As [`AdministeredPort::open`].
    pub fn over(mut inner: SoftPort, umad: Umad) -> Result<AdministeredPort, FabricError> {
        let seen = umad.attributes();
        let seen = seen.map_err(|e| FabricError::Unusable(e.to_string()))?;
        if let Some(why) = other_gid(&inner.attributes(), umad.name(), seen.gid()) {
            return Err(FabricError::Unusable(why));
        }
        inner.set_pkeys(seen.pkeys.clone())?;
        let administration = Administration::over(umad, local(&inner, &seen))?;
        let name = administration.umad().name().to_owned();
        let failed = |source: std::io::Error| FabricError::Os {
            what: format!("{name}: cannot wait for management datagrams"),
            source,
        };
        let watcher = Watcher::start(administration.umad(), &seen).map_err(failed)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC);
        let events = events.map_err(|e| failed(e.into()))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|e| failed(e.into()))?;
        let [mads, timer] = administration.fds();
        for fd in [
            inner.event_fd(),
            watcher.event_fd(),
            wake.as_fd(),
            mads,
            timer,
        ] {
            epoll::add(&events, fd, EventData::new_u64(0), EventFlags::IN)
                .map_err(|e| failed(e.into()))?;
        }
        let mut port = AdministeredPort {
            inner,
            administration,
            watcher,
            events,
            wake,
            seen,
            silent: None,
            trouble: None,
            lost: false,
            requested: GroupRequests::default(),
        };
        port.trouble = port.find_trouble();
        port.follow_manager();
        Ok(port)
    }

    /// Why the port is not usable on the subnet.
    fn find_trouble(&self) -> Option<String> {
        let name = self.administration.umad().name();
        if let Some(why) = &self.silent {
            return Some(why.clone());
        }
        if let Some(why) = other_gid(&self.inner.attributes(), name, self.seen.gid()) {
            return Some(why);
        }
        let state = self.seen.state;
        (state != LinkState::Active).then(|| {
            format!("{name} is in state {state}: the subnet manager has not made it ACTIVE")
        })
    }

    /// Follows the LID of the subnet manager.
    fn follow_manager(&mut self) {
        let seen = &self.seen;
        // While the port is not active, nothing reaches the manager.
        let is_there = self.trouble.is_none() && seen.sm_lid.0 != 0;
        let manager = is_there.then(|| Manager {
            lid: seen.sm_lid,
            sl: seen.sm_sl,
            pkey_index: PKeyTable::new(seen.pkeys.clone()).management().index,
        });
        self.administration.set_manager(clock(), manager);
    }

    /// Follows the attributes of the simulated port.
    fn follow(&mut self, seen: Seen) -> Vec<PortEvent> {
        let now = match seen {
            Ok(now) => now,
            Err(why) => {
                self.silent = Some(why);
                return Vec::new();
            }
        };
        self.silent = None;
        let before = std::mem::replace(&mut self.seen, now);
        // Another manager does not know the registrations, and a registration has the port's LID.
        self.lost |= before.lid != self.seen.lid || before.sm_lid != self.seen.sm_lid;
        if before.pkeys == self.seen.pkeys {
            return Vec::new();
        }
        match self.inner.set_pkeys(self.seen.pkeys.clone()) {
            Ok(changed) => vec![PortEvent::PKeyChange(changed)],
            Err(e) => {
                log::error!("cannot follow the P_Key table of the subnet manager: {e}");
                Vec::new()
            }
        }
    }

    /// Follows whether the port is usable on the subnet. `events` are those of the software fabric.
    fn follow_trouble(&mut self, events: &mut Vec<PortEvent>) {
        let now = self.find_trouble();
        if now.is_some() {
            events.retain(|event| *event != PortEvent::Active);
        }
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

    /// Has all groups joined again if the subnet administrator has lost them.
    fn follow_loss(&mut self) -> Option<PortEvent> {
        if !self.lost || self.trouble.is_some() {
            return None;
        }
        self.lost = false;
        self.administration.subnet.changed(clock(), true);
        self.administration.subscribe_soon(clock());
        Some(PortEvent::ClientReregister)
    }

    /// Sends and receives, and handles answers of the subnet administrator.
    fn process_subnet(&mut self) -> Vec<PortEvent> {
        let news = match self.administration.process(clock()) {
            Ok(news) => news,
            Err(e) => {
                log::error!("{e}; restart ibtapd");
                Vec::new()
            }
        };
        let mut events = Vec::new();
        for event in news {
            // Packets need no path: they are addressed by GID.
            if let SubnetEvent::Group { mgid, joined } = event {
                events.extend(self.group_answered(mgid, &joined));
            }
        }
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
            Joined::Pending => {
                self.requested.add(mgid, id);
                Joined::Pending
            }
            Joined::Now(parameters) => self.attach(id, mgid, parameters),
            Joined::Refused(why) => Joined::Refused(why),
        }
    }

    /// Attaches an endpoint to a group that the port is a member of.
    fn attach(&mut self, id: EndpointId, mgid: Gid, parameters: GroupParameters) -> Joined {
        match self.change_one(id, Some(mgid), None) {
            Joined::Now(_) => Joined::Now(parameters),
            other => {
                self.leave_unused(mgid);
                other
            }
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
        concerned.into_iter().map(event).collect()
    }

    /// Ends the port's membership if no endpoint uses or wants it.
    fn leave_unused(&mut self, mgid: Gid) {
        if self.inner.members(mgid).is_empty() && !self.requested.has(mgid) {
            self.administration.subnet.leave(clock(), mgid);
        }
    }

    /// Has [`Port::process`] called, which sends the requests to the subnet administrator.
    fn wake(&self) {
        if let Err(e) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            log::error!("cannot write to an eventfd: {e}");
        }
    }
}

/// The port for its subnet administrator.
fn local(inner: &SoftPort, seen: &umad::PortAttributes) -> LocalPort {
    let payload = inner.attributes().ud_payload_max;
    LocalPort {
        gid: seen.gid(),
        mtu: IbMtu::fitting(payload).unwrap_or(IbMtu::B256),
        kernel_interface: false,
    }
}

/// A sentence if the software fabric's port has not the GID of the umad port.
fn other_gid(port: &PortAttributes, umad: &str, wanted: Gid) -> Option<String> {
    let (name, gid) = (&port.name, port.gid);
    (gid != wanted).then(|| {
        format!(
            "{name} has the GID {gid}, and {umad} has {wanted}: give the underlay the address {wanted}, \
             and set gid to it"
        )
    })
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
            lid: Some(self.seen.lid).filter(|lid| lid.0 != 0),
            ..inner
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            group_requests: GROUP_REQUESTS,
            pkeys_settable: false,
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
        let (was_read, seen) = self.watcher.take();
        if let Some(seen) = seen {
            events.extend(self.follow(seen));
        }
        if was_read {
            self.lost |= self.administration.watch_manager();
        }
        self.follow_trouble(&mut events);
        let local = local(&self.inner, &self.seen);
        self.administration.subnet.set_port(clock(), local);
        self.follow_manager();
        events.extend(self.follow_loss());
        events.extend(self.process_subnet());
        events
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

    fn set_pkeys(&mut self, _: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        Err(FabricError::Unusable(format!(
            "a subnet manager sets the P_Key table of {}; ibtapd cannot change it",
            self.inner.attributes().name
        )))
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
        let requested = self.requested.take().map(|(mgid, _)| mgid);
        let mut mgids: Vec<Gid> = requested.collect();
        let memberships = self.administration.subnet.memberships();
        mgids.extend(memberships.map(|membership| membership.record.mgid));
        for mgid in mgids {
            self.administration.subnet.leave(clock(), mgid);
        }
        self.administration.finish();
    }
}
