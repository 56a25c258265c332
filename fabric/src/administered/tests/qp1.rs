//! The subnet administrator is at another port of the Ethernet, reached by QP1.

use super::*;
use crate::administration::Place;
use crate::mad::sa::{Notice, trap};
use crate::mad::{MAD_LEN, method};
use crate::sa::Counts;
use crate::soft::fake_gsi::FakeGsi;
use rustix::net::netdevice::name_to_index;

/// The port of the subnet administrator, and one of a stranger.
const SA: u16 = 0x100;
const STRANGER: u16 = 0x101;

/// What the administrator does with its answers before they leave.
type Change = fn(&mut [u8; MAD_LEN]);

/// The ports of administrator and stranger.
struct Far {
    sa: FakeGsi,
    stranger: FakeGsi,
    /// Datagrams to the administrator.
    received: Arc<Mutex<Vec<[u8; MAD_LEN]>>>,
    change: Arc<Mutex<Option<Change>>>,
}

fn run_qp1(case: &'static str, test: impl FnOnce(World<Far>) + Send + 'static) {
    thread::spawn(move || test(world(case))).join().unwrap();
}

fn world(case: &str) -> World<Far> {
    let ns = namespace(case, port_gid(0));
    for n in [SA, STRANGER] {
        Namespace::ip(&format!("address add {}/64 dev peer0 nodad", port_gid(n)));
    }
    let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
    let peer = name_to_index(&socket, "peer0").unwrap();
    let sa = Arc::new(Mutex::new(Administrator::new(2)));
    let received = Arc::new(Mutex::new(Vec::new()));
    let change: Arc<Mutex<Option<Change>>> = Arc::default();
    let (of_sa, log, changes) = (Arc::clone(&sa), Arc::clone(&received), Arc::clone(&change));
    let at_sa = FakeGsi::start(port_gid(SA), peer, move |mad| {
        log.lock().unwrap().push(*mad);
        let answers = of_sa.lock().unwrap().answer(0, mad);
        let mut answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
        if let Some(change) = *changes.lock().unwrap() {
            answers.iter_mut().for_each(change);
        }
        answers
    });
    let far = Far {
        sa: at_sa,
        stranger: FakeGsi::start(port_gid(STRANGER), peer, |_| Vec::new()),
        received,
        change,
    };
    let port = AdministeredPort::by_qp1(config(port_gid(0)), port_gid(SA)).unwrap();
    World::over(port, sa, far, ns)
}

impl World<Far> {
    fn counts(&self) -> Counts {
        *self.port.subnet().unwrap().subnet.counts()
    }

    fn set_change(&self, change: Option<Change>) {
        *self.fake.change.lock().unwrap() = change;
    }

    /// Waits until the workers have dropped one datagram of a stranger.
    fn until_unhandled(&mut self) {
        for _ in 0..6000 {
            if self.counter("rx_mads_unhandled") == 1 {
                return;
            }
            self.step();
        }
        panic!("the stranger's datagram was not dropped");
    }

    /// Waits until the administrator has received such a datagram.
    fn until_received(&mut self, is_it: impl Fn(&[u8; MAD_LEN]) -> bool) -> [u8; MAD_LEN] {
        for _ in 0..6000 {
            let received = self.fake.received.lock().unwrap();
            let found = received.iter().rfind(|mad| is_it(mad)).copied();
            drop(received);
            if let Some(mad) = found {
                return mad;
            }
            self.step();
        }
        panic!("the administrator has not received it");
    }
}

#[test]
fn groups_are_joined_and_left_by_qp1() {
    run_qp1("qp1-join", |mut world| {
        let subnet = world.port.subnet().unwrap();
        assert_eq!(subnet.administrator, Some(Place::Port(port_gid(SA))));
        let id = world.endpoint(PKey::DEFAULT);
        let joined = parameters(&world.joined(id, broadcast()));
        assert_eq!((joined.mtu, joined.sl), (Some(2048), 3), "of the group");
        assert!(world.attached(broadcast(), id) && world.member(broadcast()) == 1);
        // No subnet manager sets the P_Key table.
        assert!(world.port.capabilities().pkeys_settable);
        let red = world.endpoint(RED);
        let changed = world.port.set_pkeys(vec![PKey::DEFAULT, RED]).unwrap();
        assert_eq!(changed, [red]);
        let refused = world.joined(red, proto::mgid::broadcast(RED, proto::mgid::LINK_LOCAL));
        assert!(matches!(refused, Joined::Refused(_)), "{refused:?}");
        parameters(&world.joined(id, group(7)));
        let sa = Arc::clone(&world.sa);
        let World {
            port,
            workers,
            fake,
            ..
        } = world;
        drop(port);
        for mgid in [broadcast(), group(7)] {
            // The datagram is on its way.
            for _ in 0..1000 {
                if sa.lock().unwrap().member(mgid, 0) == 0 {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(sa.lock().unwrap().member(mgid, 0), 0);
        }
        drop((workers, fake));
    });
}

#[test]
fn only_the_administrator_answers_and_only_its_own_request() {
    run_qp1("qp1-forged", |mut world| {
        // The answers have another transaction id, which differs in the half that is the carrier's number.
        world.set_change(Some(|mad| mad[8] ^= 1));
        let id = world.endpoint(PKey::DEFAULT);
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        let request = world.until_received(|mad| mad[3] == method::SET);
        // A stranger knows the whole request.
        let forged = world.sa.lock().unwrap().answer(0, &request).remove(0).1;
        world.fake.stranger.send(port_gid(0), &forged);
        world.until_unhandled();
        assert_eq!(world.counts().answered, 0);
        assert!(!world.attached(broadcast(), id));
        world.set_change(None);
        parameters(&world.answer(id, broadcast()));
        assert!(world.counts().retries > 0, "the first try had no answer");
    });
}

#[test]
fn a_table_in_segments_shows_that_the_administrator_has_forgotten_a_group() {
    run_qp1("qp1-table", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        for n in 1..=30 {
            parameters(&world.joined(id, group(n)));
        }
        let answered = world.counts().answered;
        world.port.administration.subnet.check(clock());
        world.port.wake();
        while world.counts().answered == answered {
            let events = world.step();
            assert!(!events.contains(&PortEvent::ClientReregister), "{events:?}");
        }
        let is_ack = |mad: &[u8; MAD_LEN]| mad[3] == method::GET_TABLE && mad[25] == 2;
        world.until_received(is_ack);
        world.sa.lock().unwrap().restart();
        world.port.administration.subnet.check(clock());
        world.port.wake();
        world.until("event", |event| *event == PortEvent::ClientReregister);
        assert_eq!(world.join(id, broadcast()), Joined::Pending);
        parameters(&world.answer(id, broadcast()));
        assert_eq!(world.member(broadcast()), 1);
    });
}

#[test]
fn reports_are_answered_and_followed() {
    run_qp1("qp1-report", |mut world| {
        let id = world.endpoint(PKey::DEFAULT);
        parameters(&world.joined(id, broadcast()));
        world.sa.lock().unwrap().restart();
        let notice = Notice::of_gid(trap::GROUP_DELETED, broadcast(), Lid(1), port_gid(SA));
        let mut report = [0; MAD_LEN];
        report[..4].copy_from_slice(&[1, 3, 2, method::REPORT]);
        report[15] = 9;
        report[17] = 2;
        let mut bytes = Vec::new();
        crate::mad::sa::Record::append(&notice, &mut bytes);
        report[56..][..bytes.len()].copy_from_slice(&bytes);
        // The stranger's Report is dropped.
        world.fake.stranger.send(port_gid(0), &report);
        world.fake.sa.send(port_gid(0), &report);
        world.answer(id, broadcast());
        assert_eq!(world.member(broadcast()), 1, "joined again");
        world.until_received(|mad| mad[3] == method::REPORT_RESP && mad[15] == 9);
        assert_eq!(world.counts().reports, 1);
        world.until_unhandled();
    });
}
