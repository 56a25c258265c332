//! Events of nodes.

use vnic::attribute::NodeInfo;
use vnic::mad::{self, Mad, attribute};

use super::*;

impl World {
    pub fn may_create(&mut self, n: usize) {
        self.nodes[n].agent.set_may_create(true);
    }

    /// kill -9 of the manager, and a new manager with the state on disk.
    pub fn restart_engine(&mut self, config: &str) {
        let config = Config::parse(config, "t.toml").unwrap();
        let mark = self.draw() as u32;
        self.engine = Engine::new(config, self.disk.clone(), mark);
        self.engine.attach(self.now, Some(self.own));
        self.engine.set_active(self.now, true);
    }

    /// The node's daemon restarts, and its fabric port has another number; queue pair numbers are the same.
    pub fn renumber_node(&mut self, n: usize, port: u8) {
        let qpn = self.nodes[n].at.qpn;
        self.nodes[n].settings.port = port;
        self.restart_node(n, 1, 4096);
        self.nodes[n].at.qpn = qpn;
    }

    /// The node has another address, and its daemon restarts.
    pub fn readdress_node(&mut self, n: usize) {
        self.change_gid(n);
        self.restart_node(n, 1, 4096);
    }

    /// The node has another address; its daemon goes on.
    pub fn move_node(&mut self, n: usize) {
        self.change_gid(n);
        self.tell_address(n);
    }

    fn change_gid(&mut self, n: usize) {
        let number = self.draw();
        self.nodes[n].at.gid.0[8..].copy_from_slice(&number.to_be_bytes());
    }

    /// The last node restarts with the GUID of another node.
    pub fn make_twin_of(&mut self, n: usize) {
        let twin = self.nodes.len() - 1;
        self.nodes[twin].settings.guid = self.nodes[n].settings.guid;
        self.restart_node(twin, 1, 4096);
    }

    /// An announcement arrives from any endpoint.
    pub fn announce(&mut self, from: Endpoint, info: &NodeInfo) {
        let header = Header::new(method::SEND, attribute::NODE_INFO, 0, 1);
        self.engine
            .receive(self.now, from, &mad::write(&header, info));
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.done("requests")
    }

    /// One of the engine's counters.
    pub fn done(&self, name: &str) -> u64 {
        let counters = self.engine.overview(self.now).counters;
        let found = counters.iter().find(|(known, _)| *known == name);
        found.expect("a counter").1
    }

    /// Number of log lines that contain `part`.
    pub fn logged(&self, part: &str) -> usize {
        let lines = self.engine.log.iter();
        lines.filter(|line| line.contains(part)).count()
    }
}

/// A Set of VeswPortInfo or ClassPortInfo as the Get with the same answer.
pub fn as_question(set: &[u8]) -> Option<Vec<u8>> {
    let header = Mad::parse(set).ok()?.header;
    let id = header.attribute_id.get();
    let heeded = ![attribute::VESW_PORT_INFO, attribute::CLASS_PORT_INFO].contains(&id);
    if header.method != method::SET || heeded {
        return None;
    }
    let (modifier, transaction) = (header.modifier.get(), header.transaction_id.get());
    let header = Header::new(method::GET, id, modifier, transaction);
    Some(mad::write_empty(&header))
}
