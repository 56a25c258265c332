//! Tests of an agent with a host that records calls.

mod attributes;
mod failures;
mod forged;
mod links;
mod managers;
mod nodes;
mod shared;
mod tables;
mod world;

use std::sync::Arc;

use proto::{Mac, PKey};

use super::*;
use crate::Lid;
use crate::attribute::ConfigState;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::mac_table::MacTable;
use crate::mad::{Attribute, Notice, TrapKind, status};

const MANAGER: Address = address(0xee, 0x40);
const OTHER: Address = address(0xdd, 0x50);
const OWN_MAC: Mac = [2, 0, 0, 0, 0, 1];

const fn gid(n: u8) -> Gid {
    let mut raw = [0; 16];
    raw[0] = 0xfe;
    raw[1] = 0x80;
    raw[15] = n;
    Gid(raw)
}

const fn address(n: u8, qpn: u32) -> Address {
    Address {
        gid: gid(n),
        qpn: Qpn::new(qpn),
        by_group: false,
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Call {
    Create(u8),
    Mac(u8, Mac),
    Configure(u8, ConfigState),
    Table(u8, usize),
    Directory(u8, usize),
    Delete(u8),
}

#[derive(Default)]
struct TestHost {
    calls: Vec<Call>,
    counters: Counters,
    cannot_create: bool,
    /// Number of the next calls of `configure` that fail.
    cannot_configure: u32,
    refuses: Option<String>,
}

impl Host for TestHost {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        self.calls.push(Call::Create(index));
        if self.cannot_create {
            return Err("no more interfaces".to_owned());
        }
        Ok(new_port(index))
    }

    fn refuse(&self, _: u8, _: &VeswPortInfo) -> Option<String> {
        self.refuses.clone()
    }

    fn set_mac(&mut self, index: u8, mac: Mac) {
        self.calls.push(Call::Mac(index, mac));
    }

    fn configure(&mut self, index: u8, info: &VeswPortInfo) -> Result<(), String> {
        self.calls.push(Call::Configure(index, info.config_state));
        if let Some(left) = self.cannot_configure.checked_sub(1) {
            self.cannot_configure = left;
            return Err("no queue pair is left".to_owned());
        }
        Ok(())
    }

    fn set_table(&mut self, index: u8, table: Arc<MacTable>) {
        self.calls.push(Call::Table(index, table.len()));
    }

    fn set_directory(&mut self, index: u8, directory: Arc<Directory>) {
        assert!(directory.closed);
        self.calls
            .push(Call::Directory(index, directory.nodes.len()));
    }

    fn delete(&mut self, index: u8) {
        self.calls.push(Call::Delete(index));
    }

    fn counters(&mut self, _: u8) -> Counters {
        self.counters
    }
}

fn new_port(index: u8) -> NewPort {
    NewPort {
        name: format!("vnic{index}"),
        qpn: Qpn::new(0x100 + u32::from(index)),
        mac: OWN_MAC,
    }
}

fn config() -> Config {
    Config {
        guid: Guid([2, 0, 0, 0, 0, 0, 0, 1]),
        incarnation: 0x1234,
        port: 1,
        payload_max: 4096,
        description: "host one".to_owned(),
        managers: Vec::new(),
        may_create: false,
        seed: 1,
    }
}

/// An agent and its host. The test sends as [`MANAGER`] and advances the time.
struct World {
    agent: Agent,
    host: TestHost,
    now: Time,
    next_tid: u64,
}

impl World {
    fn new() -> World {
        World::with(config())
    }

    /// The fabric is up; virtual port 0 exists and is administratively up.
    fn with(config: Config) -> World {
        let mut agent = Agent::new(Time(0), config);
        agent.set_fabric_up(Time(0), true);
        assert!(agent.add_port(Time(0), 0, new_port(0)));
        agent.set_admin_up(Time(0), 0, true);
        World {
            agent,
            host: TestHost::default(),
            now: Time(0),
            next_tid: 0x77,
        }
    }

    /// Port 0 forwards; traps go to the manager.
    fn forwarding() -> World {
        let mut w = World::new();
        w.set_class_port_info();
        w.set(0, &forwarding());
        w.traps();
        w.host.calls.clear();
        w
    }

    fn at(&mut self, now: u64) -> &mut World {
        self.now = Time(now);
        self
    }

    fn header(&mut self, method: u8, id: u16, index: u8) -> Header {
        self.next_tid += 1;
        Header::new(method, id, index.into(), self.next_tid)
    }

    /// Returns status and attribute of the answer; checks that the answer repeats the request's header.
    #[track_caller]
    fn send(&mut self, from: Address, request: &[u8]) -> (u16, Vec<u8>) {
        let answer = self
            .agent
            .handle(self.now, from, request, &mut self.host)
            .expect("an answer");
        let asked = Mad::parse(request).unwrap().header;
        let mad = Mad::parse(&answer).unwrap();
        let code = mad.header.status.get();
        assert_eq!(mad.header, asked.response(code));
        if code != status::OK {
            assert!(mad.data.is_empty());
        }
        (code, mad.data.to_vec())
    }

    #[track_caller]
    fn ask(
        &mut self,
        method: u8,
        id: u16,
        index: u8,
        attribute: &impl Attribute,
    ) -> (u16, Vec<u8>) {
        let header = self.header(method, id, index);
        self.send(MANAGER, &mad::write(&header, attribute))
    }

    #[track_caller]
    fn ask_empty(&mut self, method: u8, id: u16, index: u8) -> (u16, Vec<u8>) {
        let header = self.header(method, id, index);
        self.send(MANAGER, &mad::write_empty(&header))
    }

    #[track_caller]
    fn get<A: Attribute>(&mut self, id: u16, index: u8, query: &impl Attribute) -> A {
        let (code, data) = self.ask(method::GET, id, index, query);
        assert_eq!(code, status::OK);
        A::decode(&data).unwrap()
    }

    #[track_caller]
    fn info(&mut self, index: u8) -> VeswPortInfo {
        let (code, data) = self.ask_empty(method::GET, attribute::VESW_PORT_INFO, index);
        assert_eq!(code, status::OK);
        VeswPortInfo::decode(&data).unwrap()
    }

    #[track_caller]
    fn set(&mut self, index: u8, info: &VeswPortInfo) -> VeswPortInfo {
        let (code, data) = self.ask(method::SET, attribute::VESW_PORT_INFO, index, info);
        assert_eq!(code, status::OK);
        VeswPortInfo::decode(&data).unwrap()
    }

    fn set_class_port_info(&mut self) {
        let info = ClassPortInfo::default().with_trap(MANAGER.gid, MANAGER.qpn, 1);
        let (code, _) = self.ask(method::SET, attribute::CLASS_PORT_INFO, 0, &info);
        assert_eq!(code, status::OK);
    }

    fn calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.host.calls)
    }

    /// Traps that are sent now.
    fn traps(&mut self) -> Vec<TrapKind> {
        let mut kinds = Vec::new();
        while let Some(transmit) = self.agent.poll_transmit(self.now) {
            let mad = Mad::parse(&transmit.mad).unwrap();
            if mad.header.method == method::TRAP {
                let to = NodeAddress {
                    gid: MANAGER.gid,
                    qpn: MANAGER.qpn,
                };
                assert_eq!(transmit.to, Destination::Node(to));
                kinds.push(mad.attribute::<Notice>().unwrap().kind);
            }
        }
        kinds
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.agent.poll_event())
            .map(|event| event.to_string())
            .collect()
    }
}

fn forwarding() -> VeswPortInfo {
    VeswPortInfo {
        fabric_id: 1,
        vesw_id: 2,
        pkey: PKey::new(0x8001),
        u_mcast_dlid: Lid::new(0xf0_0002),
        eth_mtu: 2005,
        port_num: 7,
        base_mac_addr: [6, 0, 0, 5, 0, 0],
        config_state: ConfigState::Forwarding,
        encap_slid: Lid::new(5),
        ..VeswPortInfo::default()
    }
}
