//! Port events, of a port whose answers the test chooses.

use std::time::Duration;

use crate::port::fake::FakePort;
use control::api::Moderation;
use control::config::PortName;
use fabric::{GroupParameters, Joined, PortEvent, QKey};

use super::*;
use crate::port::{PortRuntime, PortSettings};

/// A port with management, whose group is the only one; the joins that it saw.
struct Rig {
    interfaces: Interfaces,
    cx: Context,
    at: PortId,
    port: std::sync::Arc<std::sync::Mutex<crate::port::fake::State>>,
}

fn add(cx: &mut Context, fake: FakePort) -> PortId {
    let settings = PortSettings {
        automatic_pkeys: true,
        kernel_peers: false,
        busy_poll: Duration::ZERO,
        moderation: Moderation::default(),
    };
    let name = PortName::Underlay("fake".into());
    let (sender, wake) = (&cx.reports.sender, &cx.reports.wake);
    let runtime = PortRuntime::start(name, Box::new(fake), settings, sender, wake).unwrap();
    cx.ports.add(runtime)
}

impl Rig {
    fn new(answer: Joined) -> Rig {
        Rig::of(FakePort::new().unwrap(), answer)
    }

    fn of(fake: FakePort, answer: Joined) -> Rig {
        let port = fake.state();
        port.lock().unwrap().answer = answer;
        let (mut interfaces, mut cx) = (Interfaces::default(), Context::open().unwrap());
        let at = add(&mut cx, fake);
        management::manage_port(&mut interfaces, &mut cx, at);
        Rig {
            interfaces,
            cx,
            at,
            port,
        }
    }

    fn joins(&self) -> Vec<fabric::Gid> {
        self.port.lock().unwrap().joins.clone()
    }

    fn event(&mut self, event: PortEvent) {
        self.interfaces.port_event(&mut self.cx, self.at, event);
        self.interfaces.tick(&mut self.cx);
    }

    /// The port answers the join of the management's group.
    fn answer(&mut self, joined: Joined) {
        let (mgid, management) = (self.joins()[0], &self.interfaces.managements[&self.at]);
        let endpoint = management.link.endpoint.id;
        self.event(PortEvent::Group {
            endpoint,
            mgid,
            joined,
        });
    }

    fn missed(&self) -> Option<&str> {
        self.interfaces.managements[&self.at].missing_group()
    }
}

#[test]
fn a_late_answer_reaches_the_endpoint_that_asked() {
    let parameters = GroupParameters::unadministered(QKey::new(1));
    let mut rig = Rig::new(Joined::Pending);
    assert_eq!(
        (rig.joins().len(), rig.missed()),
        (1, Some("the fabric has not answered yet"))
    );
    rig.answer(Joined::Now(parameters));
    assert_eq!(rig.missed(), None);
    rig.answer(Joined::Refused("taken back".into()));
    assert_eq!(rig.missed(), Some("taken back"));
    let mut rig = Rig::new(Joined::Pending);
    rig.answer(Joined::Refused("no room".into()));
    assert_eq!(rig.missed(), Some("no room"));
}

#[test]
fn a_fabric_that_lost_its_registrations_gets_all_joins_again() {
    let parameters = GroupParameters::unadministered(QKey::new(1));
    let mut rig = Rig::new(Joined::Now(parameters));
    assert_eq!((rig.joins().len(), rig.missed()), (1, None));
    assert_eq!(rig.interfaces.next_group_tick(), None);
    rig.event(PortEvent::ClientReregister);
    let wait = rig.interfaces.next_group_tick();
    let mut wait = wait.into_iter().collect::<Vec<_>>();
    // All nodes ask within two seconds, each at a time of its own.
    while let Some(wait) = wait.pop() {
        assert!(wait <= Duration::from_secs(2));
        std::thread::sleep(wait);
        rig.interfaces.tick(&mut rig.cx);
    }
    let joins = rig.joins();
    assert_eq!((joins.len(), joins[0]), (2, joins[1]));
}

/// Interfaces announce their addresses at once, and the announcements need the broadcast group.
#[test]
fn a_port_with_another_gid_on_a_subnet_joins_its_groups_again_at_once_and_once() {
    let parameters = GroupParameters::unadministered(QKey::new(1));
    let fake = FakePort::new().unwrap().on_subnet();
    let mut rig = Rig::of(fake, Joined::Now(parameters));
    assert_eq!(rig.joins().len(), 1);
    let gid = fabric::Gid([7; 16]);
    for event in [PortEvent::GidChange(gid), PortEvent::ClientReregister] {
        rig.interfaces.port_event(&mut rig.cx, rig.at, event);
    }
    rig.interfaces.tick(&mut rig.cx);
    assert_eq!(rig.joins().len(), 2);
    assert_eq!(rig.interfaces.next_group_tick(), None);
    // Without a subnet, nothing has forgotten the groups.
    let mut rig = Rig::new(Joined::Now(parameters));
    rig.event(PortEvent::GidChange(gid));
    assert_eq!(rig.joins().len(), 1);
}

/// The carrier of a former daemon is kept while the fabric has not answered, and not after a refusal.
#[test]
fn a_refused_group_ends_the_carrier_that_a_vnic_has_kept() {
    if !kit::is_root() {
        kit::skip("making a TAP needs root");
        return;
    }
    let mut rig = Rig::new(Joined::Pending);
    let text = "[[vnic]]\nname = \"ibtap-refused\"\nunderlay = \"fake\"\nvesw = 1\n";
    let config = control::config::Config::parse(text, "t.toml").unwrap();
    let at = rig.at;
    let id = rig.interfaces.add_vnic(&mut rig.cx, at, &config.vnics[0]);
    let id = id.unwrap();
    let interface = rig.interfaces.get_mut(id).unwrap();
    assert!(interface.set_carrier(true));
    interface.carrier_left = Some(crate::datapath::now().after(15_000));
    rig.interfaces.set_carriers(&mut rig.cx, at);
    let kept = |rig: &Rig| {
        let interface = rig.interfaces.get(id).unwrap();
        (interface.carrier, interface.carrier_left.is_some())
    };
    assert_eq!(kept(&rig), (true, true));
    let (_, ethernet) = rig.interfaces.ethernet(id).unwrap();
    let endpoint = ethernet.link.as_ref().unwrap().endpoint.id;
    let mgid = *rig.joins().last().unwrap();
    let joined = Joined::Refused("no room".into());
    rig.event(PortEvent::Group {
        endpoint,
        mgid,
        joined,
    });
    assert_eq!(kept(&rig), (false, false));
}

/// Ethernet Managers know VNICs by the number of their port.
#[test]
fn a_port_that_is_removed_and_added_again_has_its_number() {
    let mut cx = Context::open().unwrap();
    let ids = [0; 3].map(|_| add(&mut cx, FakePort::new().unwrap()));
    assert_eq!(ids.map(|id| cx.ports[id].number), [1, 2, 3]);
    cx.ports.remove(ids[1]).unwrap().stop();
    let again = add(&mut cx, FakePort::new().unwrap());
    assert_eq!(cx.ports[again].number, 2);
    cx.ports.stop();
}
