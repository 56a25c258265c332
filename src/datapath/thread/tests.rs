use std::sync::{Arc, Mutex};

use crossbeam_channel::unbounded;
use fabric::{CloseReason, ConnectionEvent, EndpointId, RejectReason, ServiceId};

use super::super::command::Command;
use super::super::handle::mailbox;
use super::super::testing::{Call, DEVICE, ENDPOINT, FakeFabric, State, address, lane};
use super::*;

struct Rig {
    thread: DataThread,
    commands: Mailbox,
    state: Arc<Mutex<State>>,
}

impl Rig {
    fn new() -> Rig {
        let fabric = FakeFabric::new(16);
        let state = fabric.shared();
        let (commands, inbox) = mailbox().unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let thread = DataThread::new(Parts {
            index: 0,
            fabric: Box::new(fabric),
            busy_poll: Duration::ZERO,
            inbox,
            siblings: Vec::new(),
            reports: unbounded().0,
            reports_wake: Arc::new(wake),
        });
        Rig {
            thread: thread.unwrap(),
            commands,
            state,
        }
    }

    /// Runs until all these commands are done; then the thread has ended.
    fn run(self, commands: impl IntoIterator<Item = Command>) -> Vec<Call> {
        for command in commands {
            self.commands.send(command);
        }
        self.commands.send(Command::Stop);
        self.thread.run();
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

fn add(connections: usize) -> Command {
    Command::AddLane(Box::new(lane(connections).0))
}

/// The end of the thread's last device.
const ENDED: [Call; 2] = [Call::CloseAll(ENDPOINT), Call::Flush];

fn listens(qpn: u64) -> [Call; 2] {
    [0x1000_0000_0000_0000, 0x0100_0000_0000_0000]
        .map(|service: u64| Call::Listen(ENDPOINT, ServiceId(service | qpn)))
}

#[test]
fn a_device_listens_by_both_service_ids_and_says_goodbye_at_the_end() {
    let calls = Rig::new().run([add(16)]);
    assert_eq!(calls, [&listens(0x17)[..], &[Call::Flush], &ENDED].concat());
}

#[test]
fn a_device_that_takes_no_connections_does_not_listen() {
    let calls = Rig::new().run([add(0)]);
    assert_eq!(calls, [&[Call::Flush][..], &ENDED].concat());
}

/// A disconnect request that stays behind leaves the peer with a dead connection.
#[test]
fn what_a_removed_device_says_to_its_peers_leaves() {
    let (done, _) = unbounded();
    let calls = Rig::new().run([add(16), Command::RemoveLane(DEVICE, done)]);
    assert_eq!(
        calls[2..],
        [Call::CloseAll(ENDPOINT), Call::Flush, Call::Flush]
    );
}

#[test]
fn another_queue_pair_is_listened_for_anew_and_another_gid_is_not() {
    let mut moved = address(0x17);
    moved.0[19] = 77;
    let calls = Rig::new().run([add(16), Command::SetLocal(DEVICE, moved)]);
    assert_eq!(calls[2..], [&[Call::Flush][..], &ENDED].concat());
    let calls = Rig::new().run([add(16), Command::SetLocal(DEVICE, address(0x18))]);
    let expected = [
        &[Call::CloseAll(ENDPOINT), Call::Flush],
        &listens(0x18)[..],
        &[Call::Flush],
        &ENDED,
    ];
    assert_eq!(calls[2..], expected.concat());
}

fn requested(connection: u32, endpoint: EndpointId) -> ConnectionEvent {
    ConnectionEvent::Requested {
        connection: ConnectionId(connection),
        endpoint,
        service: ServiceId(0x1000_0000_0000_0017),
        peer: address(1).gid(),
        private_data: vec![0; 92].into(),
    }
}

#[test]
fn a_request_for_a_device_that_has_gone_is_rejected() {
    let rig = Rig::new();
    let event = requested(4, EndpointId(99));
    rig.state.lock().unwrap().events.push_back(event);
    let calls = rig.run([add(16)]);
    let rejected = Call::Reject(ConnectionId(4), RejectReason::INVALID_SERVICE_ID);
    assert_eq!(calls[2..], [&[rejected, Call::Flush][..], &ENDED].concat());
}

#[test]
fn which_device_a_connection_is_of_is_known_until_it_ends() {
    let mut rig = Rig::new();
    rig.commands.send(add(16));
    let now = now();
    rig.thread.commands(now);
    for connection in [4, 5, 6] {
        let event = requested(connection, ENDPOINT);
        rig.state.lock().unwrap().events.push_back(event);
    }
    let closed = ConnectionEvent::Closed {
        connection: ConnectionId(5),
        reason: CloseReason::Disconnected,
    };
    rig.state.lock().unwrap().events.push_back(closed);
    rig.thread.serve_connections(now);
    assert!(!rig.thread.connections.contains_key(&ConnectionId(5)));
    let (done, _) = unbounded();
    rig.commands.send(Command::RemoveLane(DEVICE, done));
    rig.thread.commands(now);
    assert!(rig.thread.connections.is_empty());
}

#[test]
fn the_fabric_is_woken_when_it_asked_to_be() {
    let rig = Rig::new();
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(1));
    assert_eq!(rig.run([]), [Call::Timeout, Call::Flush]);
    let rig = Rig::new();
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(u64::MAX));
    assert_eq!(rig.run([]), [Call::Flush]);
}

#[test]
fn the_thread_sleeps_until_the_fabric_s_deadline() {
    let rig = Rig::new();
    assert_eq!(rig.thread.timeout(), None);
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(1));
    let past = rig.thread.timeout().unwrap();
    assert_eq!((past.tv_sec, past.tv_nsec), (0, 0));
    let later = nanoseconds() + 5_000_000_000;
    rig.state.lock().unwrap().deadline = Some(fabric::Instant(later));
    let left = rig.thread.timeout().unwrap();
    assert!(left.tv_sec < 5 && (left.tv_sec, left.tv_nsec) > (0, 0));
}

#[test]
fn a_flood_of_memberships_does_not_pile_up_and_hides_no_guest() {
    let (mac, ip) = ([2; 6], std::net::IpAddr::from([239, 1, 2, 3]));
    let joined = Event::GroupJoined { mac, group: ip };
    assert!(may_wait(&joined, 0) && may_wait(&joined, REPORTS_MAX - 1));
    assert!(!may_wait(&joined, REPORTS_MAX));
    assert!(may_wait(
        &Event::GuestLearned {
            ip,
            mac,
            weak: false
        },
        REPORTS_MAX
    ));
    assert!(may_wait(&Event::GuestForgotten { ip }, REPORTS_MAX));
}
