mod fake;

use proto::{PKey, Qpn, Time};

use super::*;
use crate::api::*;
use crate::config::Config;
use crate::state::State;
pub use fake::Fake;

pub fn vesw() -> VeswInfo {
    VeswInfo {
        name: "storage".into(),
        id: 2,
        fabric_id: 0x301,
        pkey: PKey::new(0x8001),
        eth_mtu: Some(2005),
        u_mcast_dlid: vnic::Lid::new(0xf0_0002),
        groups: vec![GroupInfo {
            mac: "01:00:5e:00:00:fb".parse().unwrap(),
            lid: vnic::Lid::new(0xf0_0100),
            listeners: 2,
        }],
        members: 3,
        forwarding: 2,
        mac_entries: 5,
        drained: false,
        problems: vec!["node3:1:0 carries 1500 bytes only".into()],
    }
}

pub fn port() -> PortInfo {
    PortInfo {
        port: "0x00117501016fbe21:1:0".into(),
        name: "node1:1:0".into(),
        interface: "vnic0".into(),
        vesw: Some("storage".into()),
        condition: PortCondition::Forwarding,
        lid: Some(vnic::Lid::new(5)),
        mac: Some("06:2c:00:05:00:00".parse().unwrap()),
        gid: Some(gid(1)),
        qpn: Some(Qpn::new(0x4d)),
        mtu_limit: Some(4053),
        digest: Some(0x1234_5678),
        heard_ms: Some(2500),
        problem: Some("two ports have one of its addresses".into()),
    }
}

pub fn mac() -> MacInfo {
    MacInfo {
        vesw: "storage".into(),
        mac: "52:54:00:12:34:56".parse().unwrap(),
        lid: vnic::Lid::new(5),
        port: Some("0x00117501016fbe21:1:0".into()),
        name: Some("node1:1:0".into()),
        origin: MacOrigin::Reported,
        in_table: true,
    }
}

pub fn counters() -> CountersInfo {
    CountersInfo {
        port: "0x00117501016fbe21:1:0".into(),
        name: "node1:1:0".into(),
        vesw: Some("storage".into()),
        counters: [("tx_packets", 4), ("rx_packets", 0)].into_iter().collect(),
        problem: Some("it does not answer".into()),
    }
}

pub fn explanation() -> Explanation {
    Explanation {
        vesw: "storage".into(),
        dst: "52:54:00:12:34:56".parse().unwrap(),
        dlid: vnic::Lid::new(5),
        port: Some("node1:1:0".into()),
        listeners_only: true,
        sc: 0,
        rc: 1,
        why: "in the MAC table".into(),
    }
}

pub fn gid(last: u8) -> Gid {
    format!("fe80::{last}").parse().unwrap()
}

pub fn candidate(id: u64) -> Candidate {
    Candidate {
        id,
        priority: 5,
        elevated_priority: 8,
        lease_ms: 900,
    }
}

pub fn attached(last: u8, state: PortState) -> Arrival {
    Arrival::Attached(ManagementPort {
        port: "soft/eth0".into(),
        gid: gid(last),
        qpn: Qpn::new(0x34),
        guid: "0002:c903:00e7:7e12".into(),
        pkey: PKey::DEFAULT,
        link_mtu: 4096,
        state,
    })
}

fn from(last: u8) -> Endpoint {
    Endpoint {
        gid: gid(last),
        qpn: Qpn::new(0x34),
    }
}

/// Runs for a duration and returns the announcements.
fn run(runtime: &mut Runtime<Fake>, from: u64, to: u64) -> Vec<ManagerInfo> {
    let mut announced = Vec::new();
    for now in (from..to).step_by(5) {
        runtime.advance(Time(now));
        while let Some(message) = runtime.poll_transmit(Time(now)) {
            assert_eq!(message.to, Destination::Group);
            let mad = Mad::parse(&message.mad).unwrap();
            assert_eq!(mad.header.method, method::SEND);
            announced.push(mad.attribute().unwrap());
        }
    }
    announced
}

#[test]
fn it_attaches_announces_itself_and_manages() {
    let mut runtime = Runtime::new(Fake::default(), candidate(1), vec![], 7);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    assert_eq!(runtime.engine.attached, Some(from(1)));
    assert!(!runtime.engine.active);
    let announced = run(&mut runtime, 0, 900);
    assert!(runtime.engine.active);
    assert!(announced.len() >= 4, "{announced:?}");
    let last = announced.last().unwrap();
    assert_eq!((last.id, last.priority, last.active), (1, 8, true));
    let status = runtime.status(Time(900), "/run/x".into());
    assert_eq!((status.role, status.agents), (Role::Active, 3));
    assert_eq!(status.counters.get("requests"), Some(7));
    assert!(status.counters.get("sent") > Some(0));
}

#[test]
fn a_port_that_goes_ends_it_all_and_one_that_comes_back_begins_anew() {
    let mut runtime = Runtime::new(Fake::default(), candidate(1), vec![], 7);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    run(&mut runtime, 0, 900);
    for gone in [
        attached(1, PortState::Down),
        Arrival::Detached("cannot reach ibtapd".into()),
    ] {
        runtime.arrived(Time(900), gone);
        assert_eq!(runtime.role(), Role::Detached);
        assert_eq!(
            (runtime.engine.attached, runtime.engine.active),
            (None, false)
        );
        assert_eq!(runtime.poll_transmit(Time(901)), None);
        assert!(runtime.farewell().is_none());
    }
    let status = runtime.status(Time(900), "/run/x".into());
    assert_eq!(status.detached.as_deref(), Some("cannot reach ibtapd"));
    runtime.arrived(Time(1000), attached(2, PortState::Active));
    assert_eq!(runtime.role(), Role::Listening);
    run(&mut runtime, 1000, 1900);
    assert!(runtime.engine.active);
    // The same address again changes nothing.
    runtime.arrived(Time(1900), attached(2, PortState::Active));
    assert!(runtime.engine.active);
}

#[test]
fn a_better_manager_keeps_it_quiet_and_its_messages_are_not_the_engines() {
    let mut better = Runtime::new(Fake::default(), candidate(1), vec![], 8);
    let mut worse = Runtime::new(Fake::default(), candidate(2), vec![], 7);
    better.arrived(Time(0), attached(1, PortState::Active));
    worse.arrived(Time(0), attached(2, PortState::Active));
    for now in (0..5000).step_by(5) {
        for own in 0..2 {
            let (sender, receiver) = match own {
                0 => (&mut better, &mut worse),
                _ => (&mut worse, &mut better),
            };
            sender.advance(Time(now));
            while let Some(message) = sender.poll_transmit(Time(now)) {
                let arrival = Arrival::Received {
                    from: from(own + 1),
                    mad: message.mad,
                };
                // The group echoes the announcement.
                sender.arrived(Time(now), arrival.clone());
                receiver.arrived(Time(now), arrival);
            }
        }
    }
    assert!(better.engine.active && !worse.engine.active);
    assert_eq!(worse.role(), Role::Standby);
    assert!(better.engine.received.is_empty() && worse.engine.received.is_empty());
    let status = worse.status(Time(5000), String::new());
    assert_eq!(status.managers.len(), 1);
    assert_eq!(status.managers[0].gid, gid(1));
    assert!(status.managers[0].active);

    // The manager leaves; the other need not wait for a lease.
    let farewell = better.farewell().unwrap();
    let mad = farewell.mad;
    worse.arrived(Time(5000), Arrival::Received { from: from(1), mad });
    assert_eq!(worse.role(), Role::Claiming);
}

#[test]
fn nonsense_is_counted_and_other_messages_go_to_the_engine() {
    let mut runtime = Runtime::new(Fake::default(), candidate(1), vec![], 7);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    let mut receive = |mad: Vec<u8>| {
        runtime.arrived(Time(1), Arrival::Received { from: from(2), mad });
    };
    receive(vec![]);
    receive(vec![0; 40]);
    let header = |method, attribute| Header::new(method, attribute, 0, 1);
    // An announcement that is too short, and one with a wrong method.
    let info = mad::attribute::MANAGER_INFO;
    receive(mad::write_empty(&header(method::SEND, info)));
    let word = ManagerInfo {
        id: 9,
        priority: 15,
        active: true,
        lease_ms: 900,
        gid: gid(9),
    };
    receive(mad::write(&header(method::SET, info), &word));
    let trap = mad::write_empty(&header(method::TRAP, mad::attribute::NOTICE));
    receive(trap.clone());
    runtime.arrived(Time(1), Arrival::Lost(3));
    assert_eq!(runtime.engine.received, [trap]);
    let status = runtime.status(Time(1), String::new());
    for (name, value) in [("received", 5), ("malformed", 4), ("lost", 3)] {
        assert_eq!(status.counters.get(name), Some(value), "{name}");
    }
    assert!(status.managers.is_empty());
}

#[test]
fn where_a_manager_is_it_does_not_say_itself() {
    let mut runtime = Runtime::new(Fake::default(), candidate(1), vec![], 7);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    let word = ManagerInfo {
        id: 9,
        priority: 15,
        active: true,
        lease_ms: 900,
        gid: gid(77),
    };
    let header = Header::new(method::SEND, mad::attribute::MANAGER_INFO, 0, 1);
    let mad = mad::write(&header, &word);
    runtime.arrived(Time(1), Arrival::Received { from: from(2), mad });
    assert_eq!(
        runtime.status(Time(1), String::new()).managers[0].gid,
        gid(2)
    );
}

#[test]
fn managers_that_the_configuration_does_not_name_are_ignored() {
    let named = vec![gid(1), gid(3)];
    let mut runtime = Runtime::new(Fake::default(), candidate(1), named, 7);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    let word = ManagerInfo {
        id: 9,
        priority: 15,
        active: true,
        lease_ms: 900,
        gid: gid(3),
    };
    let header = Header::new(method::SEND, mad::attribute::MANAGER_INFO, 0, 1);
    for last in [2, 2, 3] {
        let (from, mad) = (from(last), mad::write(&header, &word));
        runtime.arrived(Time(1), Arrival::Received { from, mad });
    }
    let status = runtime.status(Time(1), String::new());
    assert_eq!(status.managers.len(), 1);
    assert_eq!(status.managers[0].gid, gid(3));
    assert_eq!(status.counters.get("strangers"), Some(2));
}

/// The upper half of the transaction id identifies a manager to agents: requests and announcements of one
/// manager have the same, those of another manager behind the same queue pair have not.
#[test]
fn requests_and_announcements_have_one_mark() {
    use crate::engine::Engine;
    use vnic::attribute::NodeInfo;

    let seed = 0xdead_beef_7777_1234_u64;
    let config = Config::parse("[[vesw]]\nname = \"a\"\nid = 1\nmembers = [\"*\"]\n", "t").unwrap();
    let engine = Engine::new(config, State::default(), seed as u32);
    let mut runtime = Runtime::new(engine, candidate(1), vec![], seed);
    runtime.arrived(Time(0), attached(1, PortState::Active));
    let node = NodeInfo {
        guid: proto::Guid([2; 8]),
        incarnation: 1,
        port: 1,
        payload_max: 4096,
        description: "node2".into(),
        first: 0,
        next: 0,
        ports: Vec::new(),
    };
    let header = Header::new(method::SEND, mad::attribute::NODE_INFO, 0, 1);
    let mad = mad::write(&header, &node);
    runtime.arrived(Time(0), Arrival::Received { from: from(2), mad });
    let (mut announced, mut asked) = (0, 0);
    for now in (0..900).step_by(5) {
        runtime.advance(Time(now));
        while let Some(message) = runtime.poll_transmit(Time(now)) {
            let header = Mad::parse(&message.mad).unwrap().header;
            let mark = header.transaction_id.get() >> 32;
            match (header.method, message.to) {
                (method::SEND, _) => announced += 1,
                (_, Destination::Agent(_)) => asked += 1,
                // A query to all agents belongs to no manager.
                (_, Destination::Group) => continue,
            }
            assert_eq!(mark, 0x7777_1234, "{header:?}");
        }
        let _ = runtime.engine.take_unsaved(Time(now));
    }
    assert!(announced > 0 && asked > 0, "{announced} {asked}");
}
