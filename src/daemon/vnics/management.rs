//! The management of VNICs: what comes to a port's endpoint of it goes to the port's agent, which has the
//! VNICs here do what their manager wants, and to managers that are clients of the control socket.

use std::sync::Arc;
use std::time::Duration;

use fabric::{EndpointId, PKey, PortEvent};
use vnic::Mac;
use vnic::agent::{Agent, Destination, Host, NewPort};
use vnic::attribute::VeswPortInfo;
use vnic::carriage::Address;
use vnic::counters::Counters;
use vnic::directory::{Directory, NodeAddress};
use vnic::mad::Mad;
use vnic::port::Event;
use vnic::table::MacTable;

use crate::api::{
    ApiError, FabricAddress, Hex, ManageRequest, ManagementDatagram, Reply, SendManagementRequest,
};
use crate::config::VnicConfig;
use crate::control::StreamId;
use crate::daemon::Daemon;
use crate::datapath::{Datagram, DeviceId};
use crate::vnic::{Management, Vnic, now};

/// Messages of a port to itself that are handled at once: what comes of them waits for the next turn.
const LOOPBACK_AT_ONCE: usize = 256;

/// The endpoint and the agent.
impl Daemon {
    /// Has a port's management be there, and know of its VNICs.
    pub(crate) fn manage_port(&mut self, at: usize) {
        if let Err(why) = self.open_management(at) {
            log::warn!(
                "{}: VNIC management: {why}",
                self.ports[at].port.attributes().name
            );
        }
        self.sync_agent(at);
    }

    fn open_management(&mut self, at: usize) -> Result<(), String> {
        if self.ports[at].management.is_some() {
            return Ok(());
        }
        // An automatic table holds its partition, too.
        self.follow_pkeys(at, Some(PKey::DEFAULT))?;
        let id = DeviceId(self.next_id);
        self.next_id += 1;
        let port = &mut self.ports[at];
        let threads = port.mailboxes();
        let settings = &port.management_settings;
        let opened = Management::open(id, at, &mut *port.port, &threads, settings);
        port.management = Some(opened.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// A VNIC of a port is gone: with the last that is managed goes the management.
    pub(in crate::daemon) fn vnic_gone(&mut self, at: usize) {
        self.sync_agent(at);
        let mut all = self.vnics.values();
        let port = &mut self.ports[at];
        let is_used = port.management_settings.vnic_create
            || self.management.are_on(&port.name)
            || all.any(|v| v.at == at && v.spec.switch.is_none());
        if !is_used && let Some(management) = port.management.take() {
            port.remove_lanes(management.id);
            management.close(&mut *port.port);
            self.unfollow_pkeys(at);
        }
    }

    /// The P_Keys that VNICs and their management need on a port.
    pub(in crate::daemon) fn vnic_pkeys(&self, at: usize) -> impl Iterator<Item = PKey> {
        let on_switches = self.vnics.values();
        let on_switches = on_switches.filter(move |v| v.at == at && v.is_on_switch());
        let management = self.ports[at].management.as_ref();
        let management = management.map(|_| PKey::DEFAULT);
        on_switches.map(|v| v.info.pkey).chain(management)
    }

    /// Tells a port's agent what its VNICs are like now. What it knows already is no news to it.
    pub(in crate::daemon) fn sync_agent(&mut self, at: usize) {
        let now = now();
        let port = &mut self.ports[at];
        let Some(management) = &mut port.management else {
            return;
        };
        management.follow(&mut *port.port);
        let Some(agent) = &mut management.agent else {
            // It is at work, and is told afterwards.
            return;
        };
        let mut gone: Vec<u8> = agent.ports().map(|(index, ..)| index).collect();
        let managed = |v: &&Vnic| v.at == at && v.spec.switch.is_none();
        for vnic in self.vnics.values().filter(managed) {
            let index = vnic.spec.index;
            gone.retain(|known| *known != index);
            agent.add_port(now, index, new_port(vnic));
            agent.set_name(now, index, &vnic.name);
            agent.set_qpn(now, index, vnic.qpn());
            agent.set_admin_up(now, index, vnic.up);
            agent.set_ready(now, index, vnic.is_ready());
            agent.set_interface_mac(now, index, vnic.mac);
            agent.set_unicast_macs(now, index, vnic.guests.clone());
            agent.set_multicast_macs(now, index, vnic.groups.clone());
        }
        for index in gone {
            agent.remove_port(now, index);
        }
        let place = management.place(&*port.port);
        if management.told.as_ref() != Some(&place) {
            self.management.moved(&port.name, &place);
            management.told = Some(place);
        }
    }

    fn sync_agent_of(&mut self, id: DeviceId) {
        if let Some(at) = self.vnics.get(&id).map(|v| v.at) {
            self.sync_agent(at);
        }
    }

    /// A VNIC is up or down now, or has another carrier.
    pub(in crate::daemon) fn management_link_changed(&mut self, id: DeviceId) {
        self.sync_agent_of(id);
    }

    /// A VNIC's interface has another MAC, or another name.
    pub(in crate::daemon) fn management_macs_changed(&mut self, id: DeviceId) {
        self.sync_agent_of(id);
    }

    /// The host has joined other groups on a VNIC's interface.
    pub(in crate::daemon) fn management_groups_changed(&mut self, id: DeviceId) {
        self.sync_agent_of(id);
    }

    /// A port has news.
    pub(in crate::daemon) fn management_port_event(&mut self, at: usize, _: &PortEvent) {
        self.sync_agent(at);
    }

    /// The entries of these endpoints in a port's P_Key table are others now.
    pub(in crate::daemon) fn management_pkeys_changed(
        &mut self,
        at: usize,
        changed: &[EndpointId],
    ) {
        let management = self.ports[at].management.as_ref();
        if management.is_some_and(|m| changed.iter().any(|endpoint| m.has(*endpoint))) {
            self.sync_agent(at);
        }
    }

    /// The counters of the agent that a VNIC has.
    pub(in crate::daemon) fn management_counters(&self, vnic: &Vnic) -> crate::api::Counters {
        let management = self.ports[vnic.at].management.as_ref();
        let its = management.filter(|_| vnic.spec.switch.is_none());
        its.map(Management::counters).unwrap_or_default()
    }

    /// Who manages a VNIC.
    pub(in crate::daemon) fn manager_of(&self, vnic: &Vnic) -> Option<FabricAddress> {
        let management = self.ports[vnic.at].management.as_ref()?;
        let owner = management.agent.as_ref()?.owner(now())?;
        let (gid, qpn) = (owner.gid, owner.qpn);
        let is_managed = vnic.spec.switch.is_none();
        is_managed.then_some(FabricAddress { gid, qpn })
    }
}

/// What comes and goes.
impl Daemon {
    /// A datagram came to an endpoint of management.
    pub(in crate::daemon) fn management_received(&mut self, datagram: &Datagram) {
        let is_its = |m: &Management| m.id == datagram.at;
        let mut ports = self.ports.iter();
        let Some(at) = ports.position(|p| p.management.as_ref().is_some_and(is_its)) else {
            return;
        };
        let port = &mut self.ports[at];
        let own = port.port.attributes().gid;
        let from = Address {
            gid: datagram.gid,
            qpn: datagram.qpn,
            by_group: datagram.multicast,
        };
        let management = port.management.as_mut();
        let mad = management.and_then(|m| m.receive(own, from, &datagram.payload));
        if let Some(mad) = mad {
            self.management_message(at, from, mad);
        }
        self.tend_management(at);
    }

    /// A whole message came, from the fabric or from this port itself.
    fn management_message(&mut self, at: usize, from: Address, mad: Vec<u8>) {
        let is_request = Mad::parse(&mad).is_ok_and(|mad| mad.header.is_request());
        let agent = self.ports[at].management.as_mut();
        if let Some(mut agent) = agent.and_then(|m| m.agent.take()) {
            let mut host = PortHost { daemon: self, at };
            let answer = agent.handle(now(), from, &mad, &mut host);
            if let Some(management) = &mut self.ports[at].management {
                management.agent = Some(agent);
            }
            if let Some(answer) = answer {
                let (gid, qpn) = (from.gid, from.qpn);
                self.send_mad(at, Destination::Node(NodeAddress { gid, qpn }), answer);
            }
            if is_request {
                self.sync_agent(at);
            }
        }
        if !is_request {
            let datagram = ManagementDatagram {
                gid: from.gid,
                qpn: from.qpn,
                by_group: from.by_group,
                mad: Hex(mad),
                lost: None,
            };
            self.management.received(&self.ports[at].name, &datagram);
        }
    }

    fn send_mad(&mut self, at: usize, to: Destination, mad: Vec<u8>) {
        let port = &mut self.ports[at];
        let own = port.port.attributes().gid;
        if let Some(management) = &mut port.management {
            for command in management.send(own, to, mad) {
                port.tell_first(command);
            }
        }
    }

    /// Sends what a port's agent has to say, and hears what the port has said to itself.
    fn tend_management(&mut self, at: usize) {
        for _ in 0..LOOPBACK_AT_ONCE {
            // An agent that is at work hears, and is heard, afterwards.
            let management = self.ports[at].management.as_mut();
            let Some(management) = management.filter(|m| m.agent.is_some()) else {
                return;
            };
            if let Some((from, mad)) = management.loopback.pop_front() {
                self.management_message(at, from, mad);
                continue;
            }
            let Some(agent) = &mut management.agent else {
                return;
            };
            match agent.poll_transmit(now()) {
                Some(transmit) => self.send_mad(at, transmit.to, transmit.mad),
                None => break,
            }
        }
        self.tell_agent_events(at);
    }

    fn tell_agent_events(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let name = port.port.attributes().name;
        let agent = port.management.as_mut().and_then(|m| m.agent.as_mut());
        for event in agent
            .into_iter()
            .flat_map(|a| std::iter::from_fn(|| a.poll_event()))
        {
            match event.is_warning() {
                true => log::warn!("{name}: VNIC management: {event}"),
                false => log::info!("{name}: VNIC management: {event}"),
            }
        }
    }

    /// How long until [`Daemon::tick_management`] has something to do.
    pub(in crate::daemon) fn next_management_tick(&self) -> Option<Duration> {
        let now = now();
        let all = self.ports.iter().filter_map(|p| p.management.as_ref());
        let due = all.filter_map(|m| match m.loopback.is_empty() {
            true => m.agent.as_ref().and_then(Agent::next_deadline),
            false => Some(now),
        });
        due.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Lets time pass for management.
    pub(in crate::daemon) fn tick_management(&mut self) {
        for at in 0..self.ports.len() {
            self.tend_management(at);
        }
    }
}

/// Managers that are clients of the control socket.
impl Daemon {
    /// A client wants to manage over a port.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub(crate) fn manage(
        &mut self,
        stream: StreamId,
        request: &ManageRequest,
    ) -> Result<(), ApiError> {
        let at = self.port_to_manage(request.port.as_deref())?;
        self.open_management(at)
            .map_err(|message| ApiError::Refused { message })?;
        self.sync_agent(at);
        let port = &self.ports[at];
        if let Some(management) = &port.management {
            let place = management.place(&*port.port);
            self.management.add(stream, port.name.clone(), place);
        }
        Ok(())
    }

    /// A client that manages sends something.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub(crate) fn send_management(
        &mut self,
        request: &SendManagementRequest,
    ) -> Result<Reply, ApiError> {
        let at = self.port_to_manage(request.port.as_deref())?;
        let bad = |message: String| ApiError::BadArgument { message };
        let to = match (request.gid, request.qpn) {
            (None, None) => Destination::Group,
            (Some(gid), Some(qpn)) if !gid.is_multicast() => {
                Destination::Node(NodeAddress { gid, qpn })
            }
            (Some(gid), Some(_)) => return Err(bad(format!("{gid} is the GID of a group"))),
            _ => return Err(bad("give both gid and qpn, or neither".into())),
        };
        Mad::parse(&request.mad.0).map_err(|e| bad(e.to_string()))?;
        self.open_management(at)
            .map_err(|message| ApiError::Refused { message })?;
        self.send_mad(at, to, request.mad.0.clone());
        self.tend_management(at);
        Ok(Reply::SendManagement {})
    }

    /// The port that is named, or the only one.
    fn port_to_manage(&self, name: Option<&str>) -> Result<usize, ApiError> {
        match (name, self.ports.len()) {
            (Some(name), _) => self.port_called(name),
            (None, 1) => Ok(0),
            (None, _) => {
                let names = self.ports.iter().map(|p| p.port.attributes().name);
                let names = names.collect::<Vec<_>>().join(", ");
                Err(ApiError::BadArgument {
                    message: format!("which port? ibtapd has {names}; name one"),
                })
            }
        }
    }
}

/// What the data threads find.
impl Daemon {
    /// A VNIC's core has news.
    pub(in crate::daemon) fn vnic_event(&mut self, id: DeviceId, event: Event) {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        let name = &vnic.name;
        match event {
            Event::LocalMacs(macs) => {
                vnic.guests = macs;
                self.sync_agent_of(id);
            }
            Event::Crowded(kept) => log::warn!(
                "{name}: more than {kept} addresses behind it are in use: {kept} are kept and told to its \
                 Ethernet Manager, the others are carried, counted (mac_refused), and found by members that \
                 learn"
            ),
            Event::DuplicateLid { lid, other } => log::warn!(
                "{name}: the LID {lid} is also that of {} on this switch, so that neither receives what \
                 is its own; give one of them another LID: lid = ... in its [[vnic]], or let an Ethernet \
                 Manager choose them",
                at_words(&other)
            ),
            Event::LidConflict { lid, kept, other } => log::warn!(
                "{name}: {} and {} both have the LID {lid}; give one of them another one",
                at_words(&kept),
                at_words(&other)
            ),
            Event::MacConflict { mac, kept, other } => log::warn!(
                "{name}: the MAC {} was seen {} and {}: is there a loop, or is an address used twice?",
                crate::api::LinkAddress(mac),
                place_words(kept),
                place_words(other)
            ),
            Event::ForgedLid { lid, from } => log::warn!(
                "{name}: {} sends with the LID {lid}, which is not there; its packets are dropped and \
                 counted (rx_forged_lid)",
                at_words(&from)
            ),
        }
    }
}

fn at_words(address: &NodeAddress) -> String {
    format!("{} qpn {}", address.gid, address.qpn)
}

fn place_words(place: vnic::port::Place) -> String {
    match place {
        vnic::port::Place::Here => "behind this interface".into(),
        vnic::port::Place::At(lid) => format!("at the LID {lid}"),
    }
}

fn new_port(vnic: &Vnic) -> NewPort {
    NewPort {
        name: vnic.name.clone(),
        qpn: vnic.qpn(),
        mac: vnic.mac,
    }
}

/// A port's VNICs, as its agent has them.
struct PortHost<'d> {
    daemon: &'d mut Daemon,
    at: usize,
}

impl PortHost<'_> {
    fn vnic(&self, index: u8) -> Option<&Vnic> {
        self.daemon
            .vnic_of(self.at, index)
            .filter(|v| v.spec.switch.is_none())
    }

    fn id(&self, index: u8) -> Option<DeviceId> {
        self.vnic(index).map(|v| v.id)
    }

    /// The name of a VNIC that a manager makes.
    fn free_name(&self, index: u8) -> String {
        let daemon = &self.daemon;
        let taken = |name: &String| {
            let mut vnics = daemon.vnics.values();
            let mut devices = daemon.devices.values();
            vnics.any(|v| v.name == *name || v.spec.name == *name)
                || devices.any(|(_, d)| d.name == *name)
        };
        let numbers = std::iter::once(u32::from(index)).chain(0..);
        let mut names = numbers.map(|n| format!("vnic{n}"));
        names.find(|name| !taken(name)).unwrap_or_default()
    }
}

impl Host for PortHost<'_> {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        if let Some(vnic) = self.daemon.vnic_of(self.at, index) {
            return Err(format!(
                "{} has that index, and its switch is configured here",
                vnic.name
            ));
        }
        let name = self.free_name(index);
        let port = self.daemon.ports[self.at].name.clone();
        let spec = VnicConfig::new(&name, port, index);
        let made = self.daemon.add_vnic(self.at, &spec);
        let id = made.map_err(|e| e.to_string())?;
        let vnic = self.daemon.vnics.get_mut(&id);
        let vnic = vnic.ok_or_else(|| format!("{name} is gone already"))?;
        vnic.made_by_manager = true;
        Ok(new_port(vnic))
    }

    fn set_mac(&mut self, index: u8, mac: Mac) {
        if let Some(id) = self.id(index) {
            self.daemon.set_vnic_mac(id, mac);
        }
    }

    fn configure(&mut self, index: u8, info: &VeswPortInfo) {
        let Some(vnic) = self.vnic(index) else {
            return;
        };
        let (id, name) = (vnic.id, vnic.name.clone());
        let was = (
            vnic.info.vesw_id,
            vnic.info.encap_slid,
            vnic.info.config_state,
        );
        let configured = self.daemon.configure_vnic(id, info.clone());
        if let Some(vnic) = self.daemon.vnics.get_mut(&id) {
            vnic.failed = configured.is_err();
        }
        if let Err(e) = configured {
            log::warn!("{name}: cannot be what its Ethernet Manager wants: {e}");
            return;
        }
        if was != (info.vesw_id, info.encap_slid, info.config_state) {
            let state = crate::api::VnicState::from(info.config_state);
            let (vesw, lid) = (info.vesw_id, info.encap_slid);
            log::info!("{name}: its Ethernet Manager says: switch {vesw}, LID {lid}, {state}");
        }
    }

    fn set_table(&mut self, index: u8, table: Arc<MacTable>) {
        if let Some(id) = self.id(index) {
            self.daemon.set_vnic_table(id, table);
        }
    }

    fn set_directory(&mut self, index: u8, directory: Arc<Directory>) {
        if let Some(id) = self.id(index) {
            self.daemon.set_vnic_directory(id, directory);
        }
    }

    fn delete(&mut self, index: u8) {
        let Some(id) = self.id(index) else {
            return;
        };
        // Without a switch there is no endpoint to fail to be made.
        let _ = self.daemon.configure_vnic(id, VeswPortInfo::default());
        self.daemon.set_vnic_table(id, Arc::default());
        self.daemon.set_vnic_directory(id, Arc::default());
        if let Some(vnic) = self.daemon.vnics.get(&id) {
            log::info!(
                "{}: its Ethernet Manager takes it off its switch",
                vnic.name
            );
        }
    }

    fn counters(&mut self, index: u8) -> Counters {
        let Some(vnic) = self.vnic(index) else {
            return Counters::default();
        };
        self.daemon.vnic_counters(vnic)
    }
}
