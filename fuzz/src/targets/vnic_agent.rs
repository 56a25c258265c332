//! An agent with several managers, while its interfaces change.
//!
//! Input: records of a flag byte, a length of two bytes, and a datagram without its header: method, attribute
//! in two bytes, virtual port, then the attribute. Flags: sender in the lower 2 bits, 4 by the group, 8 the
//! link of port 0 goes up or down first, the rest is time.

use std::sync::Arc;

use fabric::{Gid, Guid, Qpn};
use vnic::agent::{Agent, Config, Host, NewPort};
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::carriage::Address;
use vnic::counters::Counters;
use vnic::directory::Directory;
use vnic::mac_table::{MAC_TABLE_ENTRIES, MacTable};
use vnic::mad::{self, DIRECTORY_MAX, Header, MAD_MAX, Mad, NODE_PORTS_MAX};
use vnic::{Mac, Time};

use crate::records;

/// An invalid switch.
const FAILING: u16 = 0xfff;

struct Interfaces {
    made: usize,
}

impl Host for Interfaces {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        self.made += 1;
        Ok(NewPort {
            name: format!("vnic{index}"),
            qpn: Qpn::new(u32::from(index) + 2),
            mac: [2, 0, 0, 0, 0, index],
        })
    }

    fn set_mac(&mut self, _: u8, mac: Mac) {
        assert_ne!(mac, [0; 6]);
    }

    fn configure(&mut self, _: u8, info: &VeswPortInfo) -> Result<(), String> {
        assert!(info.vesw_id < 4096);
        if info.config_state == ConfigState::Forwarding {
            assert!(info.vesw_id != 0 && info.encap_slid.is_unicast());
            assert!((68..=981).contains(&info.eth_mtu));
        }
        if info.vesw_id == FAILING {
            return Err("no queue pair is left".to_owned());
        }
        Ok(())
    }

    fn set_table(&mut self, _: u8, table: Arc<MacTable>) {
        assert!(table.len() <= MAC_TABLE_ENTRIES);
    }

    fn set_directory(&mut self, _: u8, directory: Arc<Directory>) {
        assert!(directory.nodes.len() <= DIRECTORY_MAX);
    }

    fn delete(&mut self, _: u8) {}

    fn counters(&mut self, _: u8) -> Counters {
        Counters::default()
    }
}

fn agent() -> Agent {
    let config = Config {
        guid: Guid([1; 8]),
        incarnation: 1,
        port: 1,
        payload_max: 1024,
        description: "fuzz".to_owned(),
        managers: Vec::new(),
        may_create: true,
        seed: 1,
    };
    let mut agent = Agent::new(Time(0), config);
    agent.set_fabric_up(Time(0), true);
    agent
}

pub fn run(data: &[u8]) {
    let mut agent = agent();
    let mut host = Interfaces { made: 0 };
    let mut now = 0;
    for (flags, record) in records(data) {
        let Some((&[method, a, b, index], attribute)) = record.split_first_chunk() else {
            continue;
        };
        now += u64::from(flags >> 4) * 500;
        if flags & 8 != 0 {
            let up = agent.port(0).is_some_and(|info| info.eth_link_status == 1);
            agent.set_admin_up(Time(now), 0, !up);
        }
        let header = Header::new(method, u16::from_be_bytes([a, b]), index.into(), now);
        let request = [&mad::write_empty(&header), attribute].concat();
        let from = Address {
            gid: Gid([flags & 3 | 0x20; 16]),
            qpn: Qpn::new(7),
            by_group: flags & 4 != 0,
        };
        if let Some(answer) = agent.handle(Time(now), from, &request, &mut host) {
            let answer = Mad::parse(&answer).expect("one of this class");
            assert_eq!(answer.header, header.response(answer.header.status.get()));
        }
        while let Some(transmit) = agent.poll_transmit(Time(now)) {
            assert!(transmit.mad.len() <= MAD_MAX);
        }
        while let Some(event) = agent.poll_event() {
            assert!(!event.to_string().is_empty());
        }
        assert!(agent.next_deadline().is_none_or(|due| due > Time(now)));
        assert_eq!(agent.ports().count(), host.made);
        assert!(host.made <= NODE_PORTS_MAX);
    }
}
