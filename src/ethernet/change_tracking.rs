//! Tracks whether an agent, while it handled a message, changed interface properties that it must read
//! back: names, queue pairs, addresses, states.
//!
//! Any node that knows the Q_Key may send requests. Gets, refused Sets and pages of MAC tables must not
//! cause a scan of all interfaces of the port.

use std::sync::Arc;

use vnic::Mac;
use vnic::agent::{Host, NewPort};
use vnic::attribute::VeswPortInfo;
use vnic::counters::Counters;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

/// A [`Host`] that notes such changes.
pub struct ChangeTracking<H> {
    host: H,
    changed: bool,
}

impl<H: Host> ChangeTracking<H> {
    /// Wraps a host.
    pub const fn new(host: H) -> ChangeTracking<H> {
        ChangeTracking {
            host,
            changed: false,
        }
    }

    /// Whether something changed.
    pub const fn is_changed(&self) -> bool {
        self.changed
    }

    fn change(&mut self) -> &mut H {
        self.changed = true;
        &mut self.host
    }
}

impl<H: Host> Host for ChangeTracking<H> {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        let made = self.host.create(index);
        self.changed |= made.is_ok();
        made
    }

    fn refuse(&self, index: u8, info: &VeswPortInfo) -> Option<String> {
        self.host.refuse(index, info)
    }

    fn set_mac(&mut self, index: u8, mac: Mac) {
        self.change().set_mac(index, mac);
    }

    fn configure(&mut self, index: u8, info: &VeswPortInfo) -> Result<(), String> {
        self.change().configure(index, info)
    }

    fn set_table(&mut self, index: u8, table: Arc<MacTable>) {
        self.host.set_table(index, table);
    }

    fn set_directory(&mut self, index: u8, directory: Arc<Directory>) {
        self.host.set_directory(index, directory);
    }

    fn delete(&mut self, index: u8) {
        self.change().delete(index);
    }

    fn counters(&mut self, index: u8) -> Counters {
        self.host.counters(index)
    }
}

#[cfg(test)]
mod tests {
    use fabric::{Gid, Guid, PKey, Qpn};
    use vnic::agent::{Agent, Config};
    use vnic::attribute::ConfigState;
    use vnic::carriage::Address;
    use vnic::mac_table::MacEntry;
    use vnic::mad::{self, Attribute, Header, MacEntries, Mad, attribute, method, status};
    use vnic::{Lid, Time};

    use super::*;

    struct Interfaces;

    impl Host for Interfaces {
        fn create(&mut self, _: u8) -> Result<NewPort, String> {
            Err("no more interfaces".into())
        }
        fn set_mac(&mut self, _: u8, _: Mac) {}
        fn configure(&mut self, _: u8, _: &VeswPortInfo) -> Result<(), String> {
            Ok(())
        }
        fn set_table(&mut self, _: u8, _: Arc<MacTable>) {}
        fn set_directory(&mut self, _: u8, _: Arc<Directory>) {}
        fn delete(&mut self, _: u8) {}
        fn counters(&mut self, _: u8) -> Counters {
            Counters::default()
        }
    }

    fn agent(managers: Vec<Gid>) -> Agent {
        let config = Config {
            guid: Guid([1; 8]),
            incarnation: 1,
            port: 1,
            payload_max: 4096,
            description: "node".into(),
            managers,
            may_create: true,
            seed: 1,
        };
        let mut agent = Agent::new(Time(0), config);
        let port = NewPort {
            name: "vnic0".into(),
            qpn: Qpn::new(2),
            mac: [2, 0, 0, 0, 0, 1],
        };
        agent.add_port(Time(0), 0, port);
        agent
    }

    fn info(lid: u32) -> VeswPortInfo {
        VeswPortInfo {
            vesw_id: 1,
            pkey: PKey::DEFAULT,
            encap_slid: Lid::new(lid),
            base_mac_addr: [2, 0, 0, 0, 0, 7],
            config_state: ConfigState::Forwarding,
            ..VeswPortInfo::default()
        }
    }

    /// Returns the status of the answer, and whether interfaces changed.
    fn ask(
        agent: &mut Agent,
        method: u8,
        id: u16,
        index: u8,
        asked: &impl Attribute,
    ) -> (u16, bool) {
        let from = Address {
            gid: "fe80::9".parse().unwrap(),
            qpn: Qpn::new(9),
            by_group: false,
        };
        let header = Header::new(method, id, index.into(), 5);
        let mut request = mad::write_empty(&header);
        if method == method::SET {
            asked.encode(&mut request);
        }
        let mut host = ChangeTracking::new(Interfaces);
        let answer = agent.handle(Time(1), from, &request, &mut host).unwrap();
        let code = Mad::parse(&answer).unwrap().header.status.get();
        (code, host.is_changed())
    }

    #[test]
    fn gets_and_refused_sets_change_nothing() {
        let mut agent = agent(Vec::new());
        for id in [
            attribute::NODE_INFO,
            attribute::VESW_PORT_INFO,
            attribute::SUMMARY_COUNTERS,
            attribute::ERROR_COUNTERS,
            attribute::IFACE_UCAST_MACS,
        ] {
            let answered = ask(&mut agent, method::GET, id, 0, &info(5));
            // Some are refused, because the request lacks the data.
            assert!(!answered.1, "{id:#x}: {answered:?}");
        }
        // A LID that is not unicast; a port that cannot be created.
        for (index, lid) in [(0, 0xf0_0001), (7, 5)] {
            let set = attribute::VESW_PORT_INFO;
            let refused = ask(&mut agent, method::SET, set, index, &info(lid));
            assert_eq!(refused, (status::INVALID, false));
        }
    }

    #[test]
    fn sets_of_other_nodes_change_nothing() {
        let mut agent = agent(vec!["fe80::1".parse().unwrap()]);
        for id in [
            attribute::VESW_PORT_INFO,
            attribute::DELETE_VESW,
            attribute::VESW_MAC_ENTRIES,
        ] {
            let refused = ask(&mut agent, method::SET, id, 0, &info(5));
            assert_eq!(refused, (status::INVALID, false));
        }
    }

    #[test]
    fn sets_of_a_manager_change_interfaces_once() {
        let mut agent = agent(Vec::new());
        let set = attribute::VESW_PORT_INFO;
        let first = ask(&mut agent, method::SET, set, 0, &info(5));
        assert_eq!(first, (status::OK, true));
        let again = ask(&mut agent, method::SET, set, 0, &info(5));
        assert_eq!(again, (status::OK, false));
        let page = MacEntries {
            offset: 0,
            digest: 7,
            entries: vec![MacEntry {
                mac: [0x52, 0x54, 0, 0, 0, 9],
                mask: [0; 6],
                dlid_sd: 6 << 8,
            }],
        };
        let table = ask(
            &mut agent,
            method::SET,
            attribute::VESW_MAC_ENTRIES,
            0,
            &page,
        );
        assert_eq!(table, (status::OK, false));
        let deleted = ask(&mut agent, method::SET, attribute::DELETE_VESW, 0, &info(5));
        assert_eq!(deleted, (status::OK, true));
    }
}
