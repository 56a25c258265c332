//! Nodes with agents, one or two engines, and the fabric between them.

mod change;

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{Gid, Guid, Mac, Qpn, Time};
use vnic::agent::{self, Agent, Host, NewPort};
use vnic::attribute::VeswPortInfo;
use vnic::carriage::Address;
use vnic::counters::Counters;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;
use vnic::mad::{Header, method};
use zerocopy::FromBytes as _;

use super::super::Engine;
use crate::config::{Config, PortKey};
use crate::seam::{Destination, Endpoint, Manager, Outgoing};
use crate::state::State;

/// Settings of an interface by its manager.
#[derive(Default)]
pub struct Interfaces {
    pub macs: BTreeMap<u8, Mac>,
    pub tables: BTreeMap<u8, Arc<MacTable>>,
    pub directories: BTreeMap<u8, Arc<Directory>>,
}

impl Host for Interfaces {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        Ok(new_port(index))
    }
    fn set_mac(&mut self, index: u8, mac: Mac) {
        self.macs.insert(index, mac);
    }
    fn configure(&mut self, _: u8, _: &VeswPortInfo) -> Result<(), String> {
        Ok(())
    }
    fn set_table(&mut self, index: u8, table: Arc<MacTable>) {
        self.tables.insert(index, table);
    }
    fn set_directory(&mut self, index: u8, directory: Arc<Directory>) {
        self.directories.insert(index, directory);
    }
    fn delete(&mut self, index: u8) {
        self.tables.remove(&index);
        self.directories.remove(&index);
    }
    fn counters(&mut self, index: u8) -> Counters {
        Counters {
            tx_packets: 100 + u64::from(index),
            rx_runt: 7,
            ..Counters::default()
        }
    }
}

fn new_port(index: u8) -> NewPort {
    NewPort {
        name: format!("vnic{index}"),
        qpn: Qpn::new(0x200 + u32::from(index)),
        mac: [0x72, 0x99, 0, 0, 0, index],
    }
}

pub struct Node {
    pub agent: Agent,
    pub host: Interfaces,
    pub at: Endpoint,
    /// The node is disconnected.
    pub down: bool,
    /// The agent confirms settings but does not apply them.
    pub stubborn: bool,
    settings: agent::Config,
}

/// Probabilities for each datagram, in thousandths; delay in milliseconds.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
}

pub struct World {
    pub now: Time,
    pub engine: Engine,
    /// The last saved state.
    pub disk: State,
    pub disk_full: bool,
    pub saves: usize,
    pub nodes: Vec<Node>,
    pub own: Endpoint,
    pub weather: Weather,
    /// Set requests that agents received, by attribute.
    pub sets: BTreeMap<u16, usize>,
    pub sent: usize,
    random: u64,
    seed: u64,
    order: u64,
    /// Ordered by time of arrival, then by order of sending.
    air: BTreeMap<(Time, u64), Flying>,
}

struct Flying {
    from: Endpoint,
    to: Endpoint,
    mad: Vec<u8>,
    by_group: bool,
}

/// The virtual port `index` of node `n`.
pub fn node_key(n: usize, index: u8) -> PortKey {
    PortKey {
        guid: guid(n),
        port: 1,
        index,
    }
}

fn guid(n: usize) -> u64 {
    0x0200_00ff_fe00_0000 + n as u64
}

fn gid(n: usize) -> Gid {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&[0xfe, 0x80]);
    raw[8..].copy_from_slice(&guid(n).to_be_bytes());
    Gid(raw)
}

impl World {
    /// Nodes "n0", "n1"... with one virtual port each, and an active engine.
    pub fn new(seed: u64, nodes: usize, config: &str) -> World {
        let config = Config::parse(config, "t.toml").unwrap();
        let mut world = World {
            now: Time(1000),
            engine: Engine::new(config, State::default(), seed as u32 | 1),
            disk: State::default(),
            disk_full: false,
            saves: 0,
            nodes: Vec::new(),
            own: Endpoint {
                gid: gid(0xeeee),
                qpn: Qpn::new(0x40),
            },
            weather: Weather::default(),
            sets: BTreeMap::new(),
            sent: 0,
            random: seed | 1,
            seed,
            order: 0,
            air: BTreeMap::new(),
        };
        for n in 0..nodes {
            world.add_node(n, 1);
        }
        world.engine.attach(world.now, Some(world.own));
        world.engine.set_active(world.now, true);
        world
    }

    pub fn add_node(&mut self, n: usize, ports: u8) {
        let settings = agent::Config {
            guid: Guid(guid(n).to_be_bytes()),
            incarnation: 0,
            port: 1,
            payload_max: 4096,
            description: format!("n{n}"),
            managers: Vec::new(),
            may_create: false,
            seed: self.seed ^ n as u64,
        };
        let at = Endpoint {
            gid: gid(n),
            qpn: Qpn::new(0x30),
        };
        self.nodes.push(Node {
            agent: Agent::new(self.now, settings.clone()),
            host: Interfaces::default(),
            at,
            down: false,
            stubborn: false,
            settings,
        });
        self.restart_node(n, ports, 4096);
    }

    /// The node's daemon restarts without state.
    pub fn restart_node(&mut self, n: usize, ports: u8, payload_max: u16) {
        let (now, random) = (self.now, self.draw());
        let node = &mut self.nodes[n];
        node.settings.incarnation = random;
        node.settings.payload_max = payload_max;
        node.at.qpn = Qpn::new(0x30 + (random & 0xfff) as u32);
        node.agent = Agent::new(now, node.settings.clone());
        node.host = Interfaces::default();
        node.agent.set_fabric_up(now, true);
        for index in 0..ports {
            node.agent.add_port(now, index, new_port(index));
            node.agent.set_admin_up(now, index, true);
        }
        self.tell_address(n);
    }

    fn tell_address(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let (gid, qpn) = (node.at.gid, node.at.qpn);
        let own = vnic::directory::NodeAddress { gid, qpn };
        node.agent.set_address(self.now, own);
    }

    fn draw(&mut self) -> u64 {
        // xorshift64*, Vigna 2014.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        self.draw() % 1000 < thousandths
    }

    fn send(&mut self, from: Endpoint, to: Endpoint, mad: &[u8], by_group: bool) {
        self.sent += 1;
        if self.chance(self.weather.lost) {
            return;
        }
        let copies = if self.chance(self.weather.doubled) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let late = 1 + self.draw() % (self.weather.late + 1);
            self.order += 1;
            let at = (self.now.after(late), self.order);
            let mad = mad.to_vec();
            let flying = Flying {
                from,
                to,
                mad,
                by_group,
            };
            self.air.insert(at, flying);
        }
    }

    fn send_all(&mut self, from: Endpoint, mad: &[u8]) {
        let everybody: Vec<Endpoint> = self.nodes.iter().map(|node| node.at).collect();
        for to in everybody.into_iter().chain([self.own]) {
            self.send(from, to, mad, true);
        }
    }

    fn arrive(&mut self, from: Endpoint, mad: &[u8], to: Endpoint, by_group: bool) {
        let is_request = |header: &Header| header.is_request();
        let header = Header::read_from_prefix(mad).unwrap().0;
        if to == self.own && !is_request(&header) {
            self.engine.receive(self.now, from, mad);
            return;
        }
        let Some(n) = self
            .nodes
            .iter()
            .position(|node| node.at == to && !node.down)
        else {
            return;
        };
        if header.method == method::SET {
            *self.sets.entry(header.attribute_id.get()).or_default() += 1;
        }
        let node = &mut self.nodes[n];
        let unheeded = node.stubborn.then(|| change::as_question(mad)).flatten();
        let mad = unheeded.as_deref().unwrap_or(mad);
        let address = Address {
            gid: from.gid,
            qpn: from.qpn,
            by_group,
        };
        if let Some(answer) = node.agent.handle(self.now, address, mad, &mut node.host) {
            self.send(to, from, &answer, false);
        }
    }

    fn drain(&mut self) {
        loop {
            let mut idle = true;
            if let Some(state) = self.engine.take_unsaved(self.now) {
                idle = false;
                self.saves += 1;
                if self.disk_full {
                    self.engine
                        .not_saved(self.now, "cannot write the state: no space left");
                } else {
                    self.disk = state;
                }
            }
            while let Some(Outgoing { to, mad }) = self.engine.poll_transmit(self.now) {
                idle = false;
                // State must be on disk before it is sent.
                let reported = self.engine.save_problem().is_some();
                assert!(reported || self.disk == *self.engine.state());
                match to {
                    Destination::Agent(to) => self.send(self.own, to, &mad, false),
                    Destination::Group => self.send_all(self.own, &mad),
                }
            }
            for n in 0..self.nodes.len() {
                let (at, down) = (self.nodes[n].at, self.nodes[n].down);
                while let Some(out) = self.nodes[n].agent.poll_transmit(self.now) {
                    idle = false;
                    if down {
                        continue;
                    }
                    match out.to {
                        agent::Destination::Group => self.send_all(at, &out.mad),
                        agent::Destination::Node(to) => {
                            let to = Endpoint {
                                gid: to.gid,
                                qpn: to.qpn,
                            };
                            self.send(at, to, &out.mad, false);
                        }
                    }
                }
            }
            if idle {
                return;
            }
        }
    }

    /// Runs for a number of milliseconds.
    pub fn run(&mut self, milliseconds: u64) {
        let end = self.now.after(milliseconds);
        loop {
            self.engine.advance(self.now);
            self.drain();
            // Otherwise the program would spin.
            let deadline = self.engine.next_deadline();
            assert!(
                deadline.is_none_or(|deadline| deadline > self.now),
                "seed {}: the engine ignores a deadline that has passed",
                self.seed
            );
            let next = self.nodes.iter().filter_map(|n| n.agent.next_deadline());
            let next = next
                .chain(deadline)
                .chain(self.air.keys().next().map(|(at, _)| *at))
                .min();
            match next.filter(|next| *next <= end) {
                Some(next) => self.now = next,
                None => break,
            }
            while let Some((&(at, order), _)) = self.air.first_key_value() {
                if at > self.now {
                    break;
                }
                if let Some(it) = self.air.remove(&(at, order)) {
                    self.arrive(it.from, &it.mad, it.to, it.by_group);
                }
            }
        }
        self.now = end;
    }

    pub fn info(&self, n: usize) -> &VeswPortInfo {
        self.nodes[n].agent.port(0).unwrap()
    }

    /// Returns and clears all Sets so far.
    pub fn take_sets(&mut self) -> usize {
        std::mem::take(&mut self.sets).values().sum()
    }

    /// Destination of a frame from a node's interface to this address.
    pub fn lookup(&self, n: usize, mac: Mac) -> Option<vnic::Lid> {
        self.nodes[n].host.tables.get(&0)?.lookup(mac)
    }

    /// Whether every port of these nodes forwards on this switch and has all of them in its directory.
    pub fn assert_joined(&self, nodes: &[usize], vesw: u16) {
        let seed = self.seed;
        let lids: Vec<_> = nodes.iter().map(|n| self.info(*n).encap_slid).collect();
        for n in nodes {
            let info = self.info(*n);
            assert_eq!(info.vesw_id, vesw, "seed {seed}: n{n}: {info:?}");
            assert_eq!(
                info.config_state,
                vnic::attribute::ConfigState::Forwarding,
                "seed {seed}: n{n}"
            );
            let directory = &self.nodes[*n].host.directories[&0];
            let there: Vec<_> = directory.nodes.keys().copied().collect();
            let mut expected = lids.clone();
            expected.sort();
            assert_eq!(there, expected, "seed {seed}: n{n}");
            for (other, lid) in nodes.iter().zip(&lids) {
                assert_eq!(
                    directory.nodes[lid].gid, self.nodes[*other].at.gid,
                    "seed {seed}"
                );
            }
        }
    }
}
