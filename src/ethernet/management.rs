//! The management of the VNICs of one port, as the control thread keeps it: an endpoint, an agent, and the
//! messages that go through them.

use std::collections::{BTreeSet, VecDeque};

use control::api::{Counters, ManagementPort};
use control::config::ManagementSettings;
use fabric::{EndpointId, FabricError, Gid, PKey, Port, PortState, Qpn};
use vnic::agent::{Agent, Config, Destination};
use vnic::carriage::fragment::{Reassembler, Splitter};
use vnic::carriage::{Address, MANAGEMENT_QKEY, management_mgid};

use super::{RecentCounters, now};
use crate::datapath::{Command, LinkId, Mailbox};
use crate::interface::FabricLink;
use crate::interface::groups::Bounds;
use crate::port::PortRuntime;

/// The partition in which management travels.
const PKEY: PKey = PKey::DEFAULT;

/// What the queue pair's number is made from; no interface's name has a space.
const IDENTITY: &str = "vnic management";

/// Messages of this port to itself that wait: an answer each for some requests of a manager here.
const LOOPBACK_MAX: usize = 1024;

/// The management of one port.
pub struct Management {
    /// Its link of the fabric; the only group is that of all agents and managers.
    pub link: FabricLink,
    /// The agent; not while it handles a request.
    pub agent: Option<Agent>,
    /// There was news of its interfaces meanwhile, which it is to be told afterwards.
    pub stale: bool,
    /// Messages from this port to this port, which need no fabric.
    pub loopback: VecDeque<(Address, Vec<u8>)>,
    /// Counters that were read for managers.
    pub recent: RecentCounters,
    /// Where clients were told that it is.
    pub told: Option<ManagementPort>,
    splitter: Splitter,
    reassembler: Reassembler,
}

impl Management {
    /// Makes the endpoint, and an agent that announces itself.
    ///
    /// # Errors
    /// The fabric's; nothing is left behind.
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
            thread.send(Command::AddManagement(id, endpoint, MANAGEMENT_QKEY));
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
            told: None,
            splitter: Splitter::new(fabric::random() as u32, attributes.ud_payload_max as usize),
            reassembler: Reassembler::default(),
        };
        management.join(port);
        Ok(management)
    }

    /// Joins the group of all agents and managers, if it can be, and if it is time to try.
    pub fn join(&mut self, port: &mut dyn Port) {
        let name = management_name(port);
        let required = self.link.endpoint.pkey.map(|_| management_mgid(PKEY));
        let wanted = (required, BTreeSet::new());
        self.link.follow_groups(&name, wanted, port);
    }

    /// Why it is not in the group of all agents and managers, and so hears of none.
    pub fn misses_group(&self) -> Option<&str> {
        self.link.groups.misses()
    }

    /// Follows the port: its partition, its queue pairs, its packets' size.
    pub fn follow(&mut self, port: &mut dyn Port) {
        let attributes = port.attributes();
        self.link.read_entry(port);
        self.link.read_qpn(port);
        self.join(port);
        self.splitter
            .set_payload_max(attributes.ud_payload_max as usize);
        if let Some(agent) = &mut self.agent {
            agent.set_payload_max(now(), payload_max(attributes.ud_payload_max));
            agent.set_fabric_up(now(), attributes.state == PortState::Active);
        }
    }

    /// Ends its lanes, and its endpoint.
    pub fn close(&self, port: &mut PortRuntime) {
        self.link.close(&management_name(&*port.port), port);
    }

    /// Where it is.
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

    /// What its agent has counted, and what became of the pieces of messages.
    pub fn counters(&self) -> Counters {
        let agent = self.agent.as_ref().map(Agent::counts);
        let pieces = self.reassembler.counts().named();
        let agent = agent.unwrap_or_default().named();
        agent.into_iter().chain(pieces).collect()
    }

    /// Whether it has this endpoint.
    pub fn has(&self, endpoint: EndpointId) -> bool {
        self.link.endpoint.id == endpoint
    }

    /// A datagram came from the fabric; gives the message that it completes. Our own come back where a
    /// fabric loops multicast, and were heard before.
    pub fn receive(&mut self, own: Gid, from: Address, datagram: &[u8]) -> Option<Vec<u8>> {
        if (from.gid, from.qpn) == (own, self.link.endpoint.qpn) {
            return None;
        }
        self.reassembler
            .receive(now(), from.gid, from.qpn, datagram)
    }

    /// Sends a message from a port with this GID: to itself without the fabric, to all both ways.
    pub fn send(&mut self, own: Gid, to: Destination, mad: Vec<u8>) -> Vec<Command> {
        let is_own = |gid, qpn| (gid, qpn) == (own, self.link.endpoint.qpn);
        let (gid, qpn, by_group) = match to {
            Destination::Node(node) if is_own(node.gid, node.qpn) => {
                self.loop_back(own, false, mad);
                return Vec::new();
            }
            Destination::Node(node) => (node.gid, node.qpn, false),
            Destination::Group => (management_mgid(PKEY), Qpn::MULTICAST, true),
        };
        let pieces = self.splitter.split(&mad);
        let commands = pieces
            .map(|piece| Command::SendManagement(self.link.id, gid, qpn, piece.into_boxed_slice()));
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

/// What the management of a port is called in the log.
fn management_name(port: &dyn Port) -> String {
    format!("{}: VNIC management", port.attributes().name)
}

fn payload_max(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// The node's name for people: that of the host.
fn description() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "ibtapd".into(), |name| name.trim().to_owned())
}
