//! A port of the software fabric, with a simulated subnet administrator behind umad or QP1.

mod qp1;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use proto::{GidChoice, IbMtu, Lid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::simulated::Opener;
use super::*;
use crate::mad::sa::JoinState;
use crate::namespace::Namespace;
use crate::subnet::tests::administrator::Administrator;
use crate::subnet::tests::{broadcast, group, port_gid};
use crate::umad::fake::{Fake, active};
use crate::umad::{self, LinkState};
use crate::worker::{AhAttributes, Sent, UdDestination};

/// A second partition, whose key the port has as a limited member.
const RED: PKey = PKey::new(0x8001);

/// The underlay `eth0` with the GID of the simulated port, which is port 0 of the administrator.
struct World<F> {
    sa: Arc<Mutex<Administrator>>,
    /// The other end of the carrier.
    fake: F,
    port: AdministeredPort,
    workers: Vec<Box<dyn Worker>>,
    _ns: Namespace,
}

fn namespace(case: &str, address: Gid) -> Namespace {
    let ns = Namespace::enter(case);
    for words in [
        "link add eth0 mtu 9000 address 02:00:00:00:00:01 type veth peer name peer0 mtu 9000",
        "link set eth0 addrgenmode none",
        "link set peer0 up",
        "link set eth0 up",
        &format!("address add {address}/64 dev eth0 nodad"),
    ] {
        Namespace::ip(words);
    }
    ns
}

fn attributes() -> umad::PortAttributes {
    umad::PortAttributes {
        pkeys: vec![PKey::DEFAULT, PKey::new(0)],
        ..active(port_gid(0))
    }
}

fn config(address: Gid) -> SoftConfig {
    SoftConfig {
        gid: GidChoice::Address(address.to_ip()),
        ..SoftConfig::new("eth0")
    }
}

fn opener(fake: &Arc<Fake>) -> Opener {
    let fake = Arc::clone(fake);
    Box::new(move || fake.open())
}

/// Runs a case on a thread of its own, in its own namespace.
fn run(case: &'static str, test: impl FnOnce(World<Arc<Fake>>) + Send + 'static) {
    thread::spawn(move || test(World::new(case)))
        .join()
        .unwrap();
}

impl World<Arc<Fake>> {
    fn new(case: &str) -> World<Arc<Fake>> {
        let ns = namespace(case, port_gid(0));
        let sa = Arc::new(Mutex::new(Administrator::new(2)));
        let of_fake = Arc::clone(&sa);
        let fake = Fake::new(attributes(), move |mad| {
            let answers = of_fake.lock().unwrap().answer(0, mad);
            answers.into_iter().map(|(_, answer)| answer).collect()
        });
        let soft = SoftPort::open(config(port_gid(0))).unwrap();
        let port = AdministeredPort::with_umad(soft, opener(&fake)).unwrap();
        World::over(port, sa, fake, ns)
    }
}

impl<F> World<F> {
    fn over(
        mut port: AdministeredPort,
        sa: Arc<Mutex<Administrator>>,
        fake: F,
        ns: Namespace,
    ) -> World<F> {
        World {
            workers: port.take_workers(),
            port,
            sa,
            fake,
            _ns: ns,
        }
    }

    /// Waits a short time for news, and handles news of workers and port.
    fn step(&mut self) -> Vec<PortEvent> {
        let mut ready = [PollFd::from_borrowed_fd(
            self.port.event_fd(),
            PollFlags::IN,
        )];
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        poll(&mut ready, Some(&wait)).unwrap();
        for worker in &mut self.workers {
            worker.poll(64).unwrap();
        }
        self.port.process()
    }

    /// Handles news of the port until there is this event; returns all events until then.
    fn until(&mut self, what: &str, is_it: impl Fn(&PortEvent) -> bool) -> Vec<PortEvent> {
        let mut events = Vec::new();
        let patience = std::time::Instant::now() + Duration::from_secs(30);
        while !events.iter().any(&is_it) {
            assert!(
                std::time::Instant::now() < patience,
                "no {what} in {events:?}"
            );
            events.extend(self.step());
        }
        events
    }

    fn endpoint(&mut self, pkey: PKey) -> EndpointId {
        let init = UdInit {
            pkey,
            qkey: QKey::IPOIB_DEFAULT,
            qpn: None,
        };
        self.port.create_ud(init).unwrap().id
    }

    fn join(&mut self, id: EndpointId, mgid: Gid) -> Joined {
        let answers = self.port.change_groups(id, &[mgid], &[]);
        answers.unwrap().into_iter().next().unwrap()
    }

    /// Joins, and waits for the answer.
    fn joined(&mut self, id: EndpointId, mgid: Gid) -> Joined {
        match self.join(id, mgid) {
            Joined::Pending => {
                assert!(
                    !self.attached(mgid, id),
                    "before the administrator's answer"
                );
                self.answer(id, mgid)
            }
            joined => joined,
        }
    }

    fn answer(&mut self, id: EndpointId, wanted: Gid) -> Joined {
        let is_it = |event: &PortEvent| {
            matches!(event, PortEvent::Group { endpoint, mgid, .. }
                if *endpoint == id && *mgid == wanted)
        };
        let events = self.until("answer", is_it);
        match events.into_iter().find(is_it) {
            Some(PortEvent::Group { joined, .. }) => joined,
            other => panic!("{other:?}"),
        }
    }

    fn attached(&self, mgid: Gid, id: EndpointId) -> bool {
        self.port.inner.members(mgid).contains(&id)
    }

    /// The port's JoinState at the administrator.
    fn member(&self, mgid: Gid) -> u8 {
        self.sa.lock().unwrap().member(mgid, 0)
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.workers.iter().flat_map(|worker| worker.counters());
        all.filter(|(of, _)| *of == name).map(|(_, n)| n).sum()
    }

    /// Sends a datagram with this payload to a group.
    fn send(&mut self, from: EndpointId, mgid: Gid, payload: usize) -> Sent {
        let worker = &mut self.workers[0];
        let attributes = AhAttributes::to(mgid, PKey::DEFAULT);
        let to = UdDestination {
            ah: worker.create_ah(&attributes).unwrap(),
            qpn: Qpn::MULTICAST,
            qkey: QKey::IPOIB_DEFAULT,
        };
        let mut train = worker.train(payload).unwrap();
        train.next(payload).unwrap().fill(1);
        let ticket = train.finish();
        let sent = worker.send(from, &to, ticket);
        worker.destroy_ah(to.ah);
        sent
    }

    /// Waits until this number of datagrams was sent.
    fn until_sent(&mut self, count: u64) {
        self.until_counted("tx_packets", count);
    }

    fn until_counted(&mut self, name: &str, count: u64) {
        for _ in 0..6000 {
            if self.counter(name) >= count {
                assert_eq!(self.counter(name), count);
                return;
            }
            self.step();
        }
        panic!("{name}: {} instead of {count}", self.counter(name));
    }

    /// Waits until the administrator has no membership of the group.
    fn until_left(&mut self, mgid: Gid) {
        for _ in 0..6000 {
            if self.member(mgid) == 0 {
                return;
            }
            self.step();
        }
        panic!("the port is still a member of {mgid}");
    }
}

fn parameters(joined: &Joined) -> GroupParameters {
    match joined {
        Joined::Now(parameters) => *parameters,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_administrator_is_asked_before_an_endpoint_is_attached() {
    run("asked", |mut world| {
        let [one, two] = [(); 2].map(|()| world.endpoint(PKey::DEFAULT));
        let joined = parameters(&world.joined(one, broadcast()));
        assert_eq!(joined.mtu, Some(2048), "that of the group");
        assert!(world.attached(broadcast(), one) && world.member(broadcast()) == 1);
        // The port has one membership for all endpoints.
        assert_eq!(parameters(&world.join(two, broadcast())), joined);
        world.port.change_groups(one, &[], &[broadcast()]).unwrap();
        world.port.process();
        assert!(!world.attached(broadcast(), one) && world.attached(broadcast(), two));
        assert_eq!(world.member(broadcast()), 1);
        world.port.destroy_ud(two).unwrap();
        world.until_left(broadcast());
    });
}

#[test]
fn c71_a_group_is_joined_to_send_before_the_first_packet_leaves() {
    run("sends", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        assert_eq!(world.send(id, group(3), 100), Sent::Done);
        assert_eq!(world.send(id, group(3), 100), Sent::Done);
        let (sent, member) = (world.counter("tx_packets"), world.member(group(3)));
        assert_eq!((sent, member), (0, 0), "they wait");
        world.until_sent(2);
        let send_only = JoinState::SEND_ONLY_FULL_MEMBER.0;
        assert_eq!(world.member(group(3)), send_only);
        assert!(!world.attached(group(3), id));
        // The administrator forgets: the next packet asks again.
        world.sa.lock().unwrap().restart();
        world.fake.change(|port| port.lid = Lid(0x50));
        world.until("event", |event| *event == PortEvent::ClientReregister);
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        parameters(&world.answer(id, broadcast()));
        assert_eq!(world.member(group(3)), 0);
        assert_eq!(world.send(id, group(3), 100), Sent::Done);
        world.until_sent(3);
        while world.member(group(3)) != send_only {
            world.step();
        }
    });
}

#[test]
fn a_refused_sender_sends_nothing_and_asks_again_later() {
    run("sender-refused", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        world.sa.lock().unwrap().faults.refuses = 0xf;
        for _ in 0..6 {
            world.send(id, group(3), 100);
        }
        // Four wait for the answer.
        world.until_counted("tx_failed", 6);
        assert_eq!(world.counter("tx_packets"), 0);
        assert_eq!(world.send(id, group(3), 100), Sent::Failed, "a pause");
        world.sa.lock().unwrap().faults.refuses = 0;
        while world.send(id, group(3), 100) == Sent::Failed {
            world.step();
        }
        world.until_sent(1);
    });
}

#[test]
fn the_mtu_of_a_group_bounds_its_packets() {
    run("mtu", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        // A group of a VNIC has an MTU of its own.
        let mut vnic = [7; 16];
        vnic[..4].copy_from_slice(&[0xff, 0x12, 0xa0, 0x0f]);
        world.sa.lock().unwrap().faults.mtu = Some(IbMtu::B1024 as u8);
        for (mgid, mtu) in [(broadcast(), 2048), (Gid(vnic), 1024)] {
            parameters(&world.joined(id, mgid));
            let (sent, refused) = (world.counter("tx_packets"), world.counter("tx_too_big"));
            world.send(id, mgid, mtu);
            world.until_sent(sent + 1);
            assert_eq!(world.send(id, mgid, mtu + 1), Sent::Failed);
            assert_eq!(world.counter("tx_too_big"), refused + 1);
        }
        assert_eq!(world.port.attributes().ud_payload_max, 4096);
    });
}

#[test]
fn a_refused_group_attaches_nothing() {
    run("refused", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        world.sa.lock().unwrap().faults.refuses = 1;
        let joined = world.joined(id, broadcast());
        assert!(matches!(joined, Joined::Refused(_)), "{joined:?}");
        assert!(!world.attached(broadcast(), id));
        assert!(world.port.resources().groups.is_empty());
        // A unicast GID is no group, and nobody asks for it.
        let joined = world.join(id, port_gid(1));
        assert!(matches!(joined, Joined::Refused(_)), "{joined:?}");
    });
}

#[test]
fn an_answer_after_the_group_was_left_attaches_nothing() {
    run("late", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        world.port.change_groups(id, &[], &[broadcast()]).unwrap();
        world.port.process();
        world.until_left(broadcast());
        // The next answer is that of the next join.
        parameters(&world.joined(id, broadcast()));
        assert!(world.attached(broadcast(), id));
    });
}

#[test]
fn the_table_of_the_subnet_manager_is_that_of_the_port() {
    run("table", |mut world| {
        let red = world.endpoint(RED);
        assert_eq!(world.port.endpoint_pkey(red), None);
        let limited = PKey::new(0x0001);
        let keys = vec![PKey::DEFAULT, limited];
        world.fake.change(|port| port.pkeys.clone_from(&keys));
        let changed = PortEvent::PKeyChange(vec![red]);
        world.until("change of the table", |event| *event == changed);
        assert_eq!(world.port.endpoint_pkey(red), Some(limited));
        assert_eq!(world.port.attributes().pkeys, keys);
        assert!(!world.port.capabilities().pkeys_settable);
        let refused = world.port.set_pkeys(vec![PKey::DEFAULT, RED]);
        assert!(matches!(refused, Err(FabricError::Unusable(_))));
        assert_eq!(world.port.endpoint_pkey(red), Some(limited));
    });
}

#[test]
fn groups_are_joined_again_when_the_subnet_or_its_manager_was_away() {
    run("away", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        let before = parameters(&world.joined(id, broadcast()));
        // Another manager, which knows no members and has other MLIDs.
        world.sa.lock().unwrap().restart();
        world.fake.change(|port| port.sm_lid = Lid(3));
        world.until("event", |event| *event == PortEvent::ClientReregister);
        assert!(world.attached(broadcast(), id), "until the next answer");
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        let after = parameters(&world.answer(id, broadcast()));
        assert!(after.mlid != before.mlid && world.member(broadcast()) == 1);

        world.fake.change(|port| port.state = LinkState::Init);
        let down =
            |event: &PortEvent| matches!(event, PortEvent::Down(why) if why.contains("INIT"));
        world.until("loss of the subnet", down);
        let attributes = world.port.attributes();
        assert_eq!(attributes.state, PortState::Down);
        assert!(attributes.state_reason.unwrap().contains("INIT"));
        world.fake.change(|port| port.state = LinkState::Active);
        let events = world.until("event", |event| *event == PortEvent::ClientReregister);
        assert!(events.contains(&PortEvent::Active), "{events:?}");
        assert_eq!(world.port.attributes().state, PortState::Active);
    });
}

#[test]
fn a_removed_device_is_opened_again_when_it_is_back() {
    run("removed", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        world.fake.remove();
        let down =
            |event: &PortEvent| matches!(event, PortEvent::Down(why) if why.contains("removed"));
        world.until("loss of the device", down);
        assert_eq!(world.port.attributes().state, PortState::Down);
        // No more than one line in the log.
        let end = std::time::Instant::now() + Duration::from_secs(3);
        while std::time::Instant::now() < end {
            assert_eq!(world.step(), []);
        }
        world.sa.lock().unwrap().restart();
        world.fake.bring_back();
        let events = world.until("event", |event| *event == PortEvent::ClientReregister);
        assert!(events.contains(&PortEvent::Active), "{events:?}");
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        parameters(&world.answer(id, broadcast()));
        assert_eq!(world.member(broadcast()), 1);
    });
}

#[test]
fn c117_with_another_lid_groups_are_joined_again_and_the_port_stays_active() {
    run("lid", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        world.sa.lock().unwrap().restart();
        world.fake.change(|port| port.lid = Lid(0x50));
        let events = world.until("event", |event| *event == PortEvent::ClientReregister);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(world.port.attributes().lid, Some(Lid(0x50)));
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        parameters(&world.answer(id, broadcast()));
        assert_eq!(world.member(broadcast()), 1);
    });
}

#[test]
fn a_port_that_closes_leaves_its_groups() {
    run("closes", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        for mgid in [broadcast(), group(7)] {
            parameters(&world.joined(id, mgid));
            assert_eq!(world.member(mgid), 1);
        }
        let sa = Arc::clone(&world.sa);
        drop(world);
        for mgid in [broadcast(), group(7)] {
            assert_eq!(sa.lock().unwrap().member(mgid, 0), 0);
        }
    });
}

#[test]
fn an_underlay_with_another_gid_is_refused() {
    let run = || {
        let _ns = namespace("gid", port_gid(1));
        let fake = Fake::new(attributes(), |_| Vec::new());
        let soft = SoftPort::open(config(port_gid(1))).unwrap();
        let why = match AdministeredPort::with_umad(soft, opener(&fake)) {
            Err(e) => e.to_string(),
            Ok(_) => panic!("it has the GID of another port"),
        };
        assert!(
            why.contains(&format!("the address {}", port_gid(0))),
            "{why}"
        );
    };
    thread::spawn(run).join().unwrap();
}
