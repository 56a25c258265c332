//! Groups of a port, with a fake device and a simulated subnet administrator.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use proto::{PKey, QKey};

use super::*;
use crate::administration::{Administration, UmadCarrier};
use crate::mad::sa::status;
use crate::namespace::Namespace;
use crate::port::UdInit;
use crate::subnet::LocalPort;
use crate::subnet::tests::administrator::Administrator;
use crate::subnet::tests::{broadcast, port_gid};
use crate::umad::fake::{Fake as FakeUmad, active};
use crate::verbs::config::VerbsConfig;
use crate::verbs::ibv::fake::Fake;
use crate::verbs::ibv::{AsyncEvent, LinkLayer};
use crate::verbs::kernel_groups::{KernelGroups, KernelInterface};

/// A port with an endpoint, and what it is connected to.
struct Rig {
    _ns: Namespace,
    device: Arc<Fake>,
    sa: Arc<Mutex<Administrator>>,
    port: VerbsPort,
    endpoint: EndpointId,
}

/// A port on Ethernet, in a namespace of its own.
pub fn on_ethernet(namespace: &str) -> (Namespace, Arc<Fake>, VerbsPort) {
    let ns = Namespace::loopback(namespace);
    let device = Arc::new(Fake::default());
    device.queue().takes = usize::MAX;
    let port = VerbsPort::open_with(device.clone(), VerbsConfig::new("fake", 1)).unwrap();
    (ns, device, port)
}

fn endpoint_of(port: &mut VerbsPort) -> EndpointId {
    let init = UdInit {
        pkey: PKey::DEFAULT,
        qkey: QKey::IPOIB_DEFAULT,
        qpn: None,
    };
    port.create_ud(init).unwrap().id
}

impl Rig {
    fn new(namespace: &str) -> Rig {
        let (ns, device, mut port) = on_ethernet(namespace);
        let sa = Arc::new(Mutex::new(Administrator::new(1)));
        let of_fake = Arc::clone(&sa);
        let gid = port_gid(0);
        let umad = FakeUmad::new(active(gid), move |mad| {
            let answers = of_fake.lock().unwrap().answer(0, mad);
            answers.into_iter().map(|(_, answer)| answer).collect()
        });
        let usable = &mut port.usable;
        usable.link_layer = LinkLayer::InfiniBand;
        usable.gid.gid = gid;
        usable.sm_lid = Some(Lid(1));
        let local = LocalPort {
            gid,
            mtu: usable.active_mtu,
            kernel_pkeys: Vec::new(),
        };
        let carrier = Box::new(UmadCarrier::over(umad.open().unwrap()).unwrap());
        port.administration = Some(Administration::over(carrier, local).unwrap());
        let endpoint = endpoint_of(&mut port);
        Rig {
            _ns: ns,
            device,
            sa,
            port,
            endpoint,
        }
    }

    /// With an interface of the kernel in the default partition: groups are joined by rdma_cm.
    fn beside_kernel(namespace: &str) -> Rig {
        let mut rig = Rig::new(namespace);
        let library: Arc<dyn crate::verbs::sys::Library> = rig.device.clone();
        let groups = KernelGroups::over(&library, PKey::DEFAULT).unwrap();
        let pkey = PKey::DEFAULT;
        rig.port.kernel_groups.insert(pkey.get(), groups);
        let name = "ib0".to_owned();
        rig.port.kernel_interfaces = vec![KernelInterface { name, pkey }];
        rig
    }

    fn sa(&self) -> MutexGuard<'_, Administrator> {
        self.sa.lock().unwrap()
    }

    fn is_member(&self) -> bool {
        self.sa().member(broadcast(), 0) != 0
    }

    /// Requests the broadcast group.
    fn join(&mut self) {
        assert_eq!(self.port.join(self.endpoint, broadcast()), Joined::Pending);
    }

    /// The next answers for groups.
    fn answers(&mut self) -> Vec<Joined> {
        for _ in 0..3000 {
            let events = self.port.process_subnet().into_iter();
            let answers = events.filter_map(|event| match event {
                PortEvent::Group { joined, .. } => Some(joined),
                _ => None,
            });
            let answers: Vec<Joined> = answers.collect();
            if !answers.is_empty() {
                return answers;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no answer for a group");
    }
}

/// Each test has a network namespace, and so a thread, of its own.
fn run(test: fn()) {
    thread::spawn(test).join().unwrap();
}

/// The fake device refuses to attach queue pairs.
fn a_refused_attachment() {
    let mut rig = Rig::new("attach");
    rig.device.device().refuses_attachments = true;
    rig.join();
    let answers = rig.answers();
    assert!(matches!(answers[..], [Joined::Refused(_)]), "{answers:?}");
    for _ in 0..3000 {
        rig.port.process_subnet();
        if !rig.is_member() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the port is a member still");
}

#[test]
fn a_group_that_no_queue_pair_could_be_attached_to_is_left() {
    run(a_refused_attachment);
}

/// The kernel has joined, and the question for the group's parameters fails.
fn a_refused_question() {
    let mut rig = Rig::beside_kernel("question");
    rig.sa().faults.status = status::REQ_INVALID;
    rig.join();
    assert_eq!(rig.device.device().cm_groups(), 1);
    let answers = rig.answers();
    assert!(matches!(answers[..], [Joined::Refused(_)]), "{answers:?}");
    assert_eq!(rig.device.device().cm_groups(), 0);
}

#[test]
fn a_group_that_the_kernel_has_joined_and_that_is_refused_is_left_in_the_kernel() {
    run(a_refused_question);
}

/// The kernel reports that it has lost the groups: the subnet manager asks for registrations again.
fn a_loss_in_the_kernel() {
    let mut rig = Rig::beside_kernel("loss");
    rig.join();
    let answers = rig.answers();
    let [Joined::Now(before)] = answers[..] else {
        panic!("{answers:?}");
    };
    // With another MLID.
    rig.sa().restart();
    rig.device.device().fail_cm_groups(libc::ENETRESET);
    let answers = rig.answers();
    let [Joined::Now(after)] = answers[..] else {
        panic!("{answers:?}");
    };
    assert_ne!(before.mlid, after.mlid);
    assert_eq!(rig.device.device().cm_groups(), 1);
    // A group that the kernel cannot join.
    rig.device.device().fail_cm_groups(libc::EINVAL);
    let answers = rig.answers();
    assert!(matches!(answers[..], [Joined::Refused(_)]), "{answers:?}");
}

#[test]
fn a_group_that_the_kernel_has_lost_is_joined_again_and_not_refused() {
    run(a_loss_in_the_kernel);
}

/// The kernel has lost the groups, and its interface is slower than the daemon to join its broadcast group again.
fn a_slower_interface_of_the_kernel() {
    let mut rig = Rig::beside_kernel("slower");
    rig.join();
    rig.answers();
    rig.device.device().refuses_cm_groups = true;
    rig.device.device().fail_cm_groups(libc::ENETRESET);
    for _ in 0..10 {
        assert_eq!(rig.port.process_subnet(), []);
    }
    assert!(rig.port.groups.has_member(broadcast(), rig.endpoint));
    assert_eq!(rig.device.device().cm_groups(), 0);
    rig.device.device().refuses_cm_groups = false;
    // The interface has asked for its broadcast group, and has no answer yet.
    while rig.device.device().cm_groups() == 0 {
        assert_eq!(rig.port.process_subnet(), []);
    }
    rig.device.device().refuse_cm_joins(libc::EINVAL);
    assert_eq!(rig.port.process_subnet(), []);
    let answers = rig.answers();
    assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");
    assert_eq!(rig.device.device().cm_groups(), 1);
    // A group that is left meanwhile stays left.
    rig.device.device().refuses_cm_groups = true;
    rig.device.device().fail_cm_groups(libc::ENETRESET);
    rig.port.process_subnet();
    rig.port.leave(rig.endpoint, broadcast());
    rig.device.device().refuses_cm_groups = false;
    rig.port.process_subnet();
    assert_eq!(rig.device.device().cm_groups(), 0);
}

#[test]
fn a_group_stays_joined_until_the_interface_of_the_kernel_is_in_its_broadcast_group_again() {
    run(a_slower_interface_of_the_kernel);
}

/// The kernel refuses joins in a partition without an interface of its own.
fn an_interface_that_is_gone() {
    let mut rig = Rig::beside_kernel("gone");
    rig.port.kernel_interfaces.clear();
    rig.join();
    let answers = rig.answers();
    assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");
    assert_eq!(rig.device.device().cm_groups(), 0);
    assert!(rig.is_member());
}

#[test]
fn without_an_interface_of_the_kernel_groups_are_joined_at_the_subnet_administrator() {
    run(an_interface_that_is_gone);
}

/// The port was down between two readings of its state.
fn a_short_loss_of_the_port() {
    let mut rig = Rig::new("short");
    rig.join();
    rig.answers();
    for event in [AsyncEvent::PortError(1), AsyncEvent::PortActive(1)] {
        rig.port.event(event).unwrap();
    }
    let events = rig.port.process_subnet();
    assert_eq!(events, [PortEvent::ClientReregister]);
    rig.join();
}

#[test]
fn groups_are_joined_again_after_a_port_was_down_for_a_moment() {
    run(a_short_loss_of_the_port);
}

/// The subnet manager has lost its tables, and configures the subnet for longer than all tries of a request.
fn a_silent_administrator() {
    let mut rig = Rig::new("silent");
    rig.join();
    rig.answers();
    rig.sa().restart();
    rig.sa().faults.silent = true;
    rig.port
        .event(AsyncEvent::ClientReregister(rig.port.config.port))
        .unwrap();
    assert_eq!(rig.port.process_subnet(), [PortEvent::ClientReregister]);
    rig.join();
    let timed_out = |rig: &Rig| {
        let administration = rig.port.administration.as_ref().unwrap();
        administration.subnet.counts().timed_out > 0
    };
    while !timed_out(&rig) {
        assert_eq!(rig.port.process_subnet(), []);
        assert!(rig.port.groups.has_member(broadcast(), rig.endpoint));
        thread::sleep(Duration::from_millis(10));
    }
    rig.sa().faults.silent = false;
    let answers = rig.answers();
    assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");
    assert!(rig.is_member());
}

#[test]
fn a_queue_pair_stays_attached_while_the_administrator_does_not_answer() {
    run(a_silent_administrator);
}

fn a_while_without_the_gid() {
    let (_ns, _device, mut port) = on_ethernet("no-gid");
    let id = endpoint_of(&mut port);
    let [first, second] =
        ["ff12:401b:ffff::1", "ff12:401b:ffff::2"].map(|group| group.parse().unwrap());
    let join = |port: &mut VerbsPort, group: Ipv6Addr| {
        let joined = port.join(id, Gid::from(IpAddr::from(group)));
        assert!(matches!(joined, Joined::Now(_)), "{joined:?}");
    };
    let events_after = |port: &mut VerbsPort, change: &str| {
        Namespace::ip(change);
        for _ in 0..500 {
            let events = port.process();
            if !events.is_empty() {
                return events;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("no event after {change}");
    };
    join(&mut port, first);
    assert!(Namespace::has_joined("lo", first));
    let events = events_after(&mut port, "address del ::1/128 dev lo");
    assert!(matches!(events[..], [PortEvent::Down(_)]), "{events:?}");
    // A process that another test has forked, and that has not called exec yet, holds the socket of the group, too.
    let left = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !Namespace::has_joined("lo", first)
    });
    assert!(left);
    join(&mut port, second);
    assert!(!Namespace::has_joined("lo", second));
    let events = events_after(&mut port, "address add ::1/128 dev lo nodad");
    assert_eq!(events, [PortEvent::Active]);
    assert!(Namespace::has_joined("lo", first) && Namespace::has_joined("lo", second));
}

#[test]
fn the_port_joins_its_groups_when_the_gid_is_there_again() {
    run(a_while_without_the_gid);
}
