//! The management of the VNICs of one port: endpoint, agent and messages, on the control thread.

use std::collections::{BTreeSet, VecDeque};
use std::time::SystemTime;

use control::api::{Counters, ManagementPort};
use control::config::ManagementSettings;
use fabric::{EndpointId, FabricError, Gid, PKey, Port, PortState, Qpn};
use vnic::agent::{Agent, Config, Destination};
use vnic::carriage::fragment::{Reassembler, Splitter};
use vnic::carriage::seal::{Clock, Route, Seal};
use vnic::carriage::{Address, MANAGEMENT_QKEY, management_mgid};
use vnic::directory::NodeAddress;

use super::{RecentCounters, now};
use crate::datapath::{Command, LinkId, Mailbox};
use crate::interface::FabricLink;
use crate::interface::groups::Bounds;
use crate::port::PortRuntime;

/// The partition of management.
const PKEY: PKey = PKey::DEFAULT;

/// The identity from which the queue pair number is derived. No interface name has a space.
const IDENTITY: &str = "vnic management";

/// Maximum number of waiting messages of this port to itself: an answer for each of some requests of a
/// manager on this node.
const LOOPBACK_MAX: usize = 1024;

/// The management of one port.
pub struct Management {
    /// The link; its only group is that of all agents and managers.
    pub link: FabricLink,
    /// The agent; `None` while it handles a request.
    pub agent: Option<Agent>,
    /// Its interfaces changed meanwhile; the agent is updated afterwards.
    pub stale: bool,
    /// Messages of this port to itself, which do not use the fabric.
    pub loopback: VecDeque<(Address, Vec<u8>)>,
    /// Counters that were read recently for managers.
    pub recent: RecentCounters,
    /// The address that clients have got last.
    pub announced: Option<ManagementPort>,
    splitter: Splitter,
    reassembler: Reassembler,
    seal: Seal,
}

impl Management {
    /// Opens the endpoint, and creates an agent, which announces itself.
    ///
    /// # Errors
    /// Errors of the fabric. Nothing stays behind.
    pub fn open(
        id: LinkId,
        number: u8,
        port: &mut dyn Port,
        threads: &[Mailbox],
        settings: &ManagementSettings,
    ) -> Result<Management, FabricError> {
        let attributes = port.attributes();
        let qpn = ipoib::local_qpn(attributes.gid, PKEY, IDENTITY);
        let bounds = Bounds::of(&port.capabilities());
        let link = FabricLink::open(id, (PKEY, MANAGEMENT_QKEY), Some(qpn), bounds, port)?;
        let endpoint = link.endpoint.id;
        for thread in threads {
            thread.send(Command::AddManagement(id, endpoint, PKEY));
        }
        let config = Config {
            guid: attributes.guid,
            incarnation: fabric::random(),
            port: number,
            payload_max: payload_max(attributes.ud_payload_max),
            description: description(),
            managers: settings.managers.clone(),
            may_create: settings.vnic_create,
            seed: fabric::random(),
        };
        let mut management = Management {
            link,
            agent: Some(Agent::new(now(), config)),
            stale: false,
            loopback: VecDeque::new(),
            recent: RecentCounters::default(),
            announced: None,
            splitter: Splitter::new(fabric::random() as u32, 0),
            reassembler: Reassembler::default(),
            seal: Seal::new(now(), settings.management_key.keys()),
        };
        management.set_piece_size(port);
        management.join(port);
        Ok(management)
    }

    /// Joins the group of all agents and managers, if a P_Key entry exists and no retry pause is running.
    pub fn join(&mut self, port: &mut dyn Port) {
        let name = management_name(port);
        let required = self.link.endpoint.pkey.map(|_| management_mgid(PKEY));
        let wanted = (required, BTreeSet::new());
        self.link.follow_groups(&name, wanted, port);
    }

    /// Why the group of all agents and managers is not joined.
    pub fn missing_group(&self) -> Option<&str> {
        self.link.groups.missing()
    }

    /// Follows changes of the port: P_Key entry, GID, queue pair number, payload size, state.
    pub fn follow(&mut self, port: &mut dyn Port) {
        let attributes = port.attributes();
        self.link.read_entry(port);
        self.link.read_qpn(port);
        self.join(port);
        self.set_piece_size(port);
        if let Some(agent) = &mut self.agent {
            let (gid, qpn) = (attributes.gid, self.link.endpoint.qpn);
            agent.set_address(now(), NodeAddress { gid, qpn });
            agent.set_payload_max(now(), payload_max(attributes.ud_payload_max));
            agent.set_fabric_up(now(), attributes.state == PortState::Active);
        }
    }

    /// Uses other settings from now on. The caller opens or closes the management as they require.
    pub fn configure(&mut self, port: &dyn Port, settings: &ManagementSettings) {
        self.seal.set_keys(settings.management_key.keys());
        self.set_piece_size(port);
        if let Some(agent) = &mut self.agent {
            agent.set_managers(settings.managers.clone());
            agent.set_may_create(settings.vnic_create);
        }
    }

    fn set_piece_size(&mut self, port: &dyn Port) {
        let payload_max = port.attributes().ud_payload_max as usize;
        let payload_max = payload_max.saturating_sub(self.seal.overhead());
        self.splitter.set_payload_max(payload_max);
    }

    /// Closes lanes and endpoint.
    pub fn close(&self, port: &mut PortRuntime) {
        self.link.close(&management_name(&*port.port), port);
    }

    /// The address for clients.
    pub fn place(&self, port: &dyn Port) -> ManagementPort {
        let attributes = port.attributes();
        ManagementPort {
            port: attributes.name,
            gid: attributes.gid,
            qpn: self.link.endpoint.qpn,
            guid: attributes.guid.to_string(),
            pkey: self.link.endpoint.pkey.unwrap_or(PKEY),
            link_mtu: attributes.ud_payload_max,
            state: attributes.state,
        }
    }

    /// The counters of the agent and of reassembly.
    pub fn counters(&self) -> Counters {
        let agent = self.agent.as_ref().map(Agent::counts);
        let pieces = self.reassembler.counts().named();
        let seal = self.seal.counts().named();
        let agent = agent.unwrap_or_default().named();
        agent.into_iter().chain(pieces).chain(seal).collect()
    }

    /// Whether this is its endpoint.
    pub fn has(&self, endpoint: EndpointId) -> bool {
        self.link.endpoint.id == endpoint
    }

    /// Handles a datagram from the fabric. Returns the message that it completes. Own datagrams, which some
    /// fabrics loop back, are ignored: [`Management::send`] has delivered them.
    pub fn receive(&mut self, port: &dyn Port, from: Address, datagram: &[u8]) -> Option<Vec<u8>> {
        let own = (port.attributes().gid, self.link.endpoint.qpn);
        if (from.gid, from.qpn) == own {
            return None;
        }
        let route = Route {
            from: (from.gid, from.qpn),
            to: if from.by_group { group() } else { own },
        };
        let clock = Clock {
            wall_us: wall_us(),
            now: now(),
        };
        let piece = self.seal.open(clock, &route, datagram);
        let piece = piece.map_err(|refused| {
            if self.seal.should_log(now(), refused) {
                let name = management_name(port);
                log::warn!("{name}: refused a datagram of {}: {refused}", from.gid);
            }
        });
        self.reassembler
            .receive(now(), from.gid, from.qpn, piece.ok()?)
    }

    /// Sends a message from a port with the GID `own`. Messages to itself do not use the fabric; messages
    /// to the group take both ways.
    pub fn send(&mut self, own: Gid, to: Destination, mad: Vec<u8>) -> Vec<Command> {
        let is_own = |gid, qpn| (gid, qpn) == (own, self.link.endpoint.qpn);
        let ((gid, qpn), by_group) = match to {
            Destination::Node(node) if is_own(node.gid, node.qpn) => {
                self.loop_back(own, false, mad);
                return Vec::new();
            }
            Destination::Node(node) => ((node.gid, node.qpn), false),
            Destination::Group => (group(), true),
        };
        let route = Route {
            from: (own, self.link.endpoint.qpn),
            to: (gid, qpn),
        };
        let pieces = self.splitter.split(&mad);
        let datagrams = pieces.map(|piece| self.seal.seal(wall_us(), &route, piece));
        let commands = datagrams
            .map(|bytes| Command::SendManagement(self.link.id, gid, qpn, bytes.into_boxed_slice()));
        let commands = commands.collect();
        if by_group {
            self.loop_back(own, true, mad);
        }
        commands
    }

    fn loop_back(&mut self, gid: Gid, by_group: bool, mad: Vec<u8>) {
        if self.loopback.len() < LOOPBACK_MAX {
            let from = Address {
                gid,
                qpn: self.link.endpoint.qpn,
                by_group,
            };
            self.loopback.push_back((from, mad));
        }
    }
}

/// The address of all agents and managers.
fn group() -> (Gid, Qpn) {
    (management_mgid(PKEY), Qpn::MULTICAST)
}

/// Microseconds since 1970; 0 before.
fn wall_us() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The name of a port's management in the log.
fn management_name(port: &dyn Port) -> String {
    format!("{}: VNIC management", port.attributes().name)
}

fn payload_max(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// The node's description for users: the host name.
fn description() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "ibtapd".into(), |name| name.trim().to_owned())
}
