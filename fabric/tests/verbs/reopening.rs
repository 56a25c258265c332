//! A port over a library that fails and lies: the port closes the device in order and opens it again,
//! and datagrams flow again; nothing is left behind.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::verbs::sys::Library;
use fabric::verbs::{VerbsConfig, VerbsPort};
use fabric::{
    AddressHandle, AhAttributes, CloseReason, ConnectError, ConnectRequest, ConnectionEvent,
    ConnectionId, FabricError, Gid, Joined, PKey, Port, PortEvent, PortState, QKey, Qpn, Room,
    Sent, ServiceId, UdDestination, UdInit, Worker,
};

use crate::device::{self, Device};
use crate::shim::{Fails, Failure, Lie, Shim};

const QKEY: QKey = QKey::new(0x0b1b);
const SERVICE: ServiceId = ServiceId::rdma_cm(24_757);
/// Enough for several attempts to open the device again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Environment variable: makes calls fail of functions whose names start with its value.
const FUNCTION: &str = "IBTAP_TEST_FUNCTION";

/// A port that sends to itself.
struct Loop {
    port: VerbsPort,
    worker: Box<dyn Worker>,
    endpoint: UdEndpoint,
    ah: AddressHandle,
    events: Vec<PortEvent>,
    /// Our established connections, and messages of all connections.
    established: Vec<ConnectionId>,
    messages: Vec<Vec<u8>>,
    /// Why connection requests failed.
    refused: Vec<ConnectError>,
    /// Why connections ended.
    closed: Vec<CloseReason>,
}

/// Why a port is of no use.
#[derive(Debug, PartialEq)]
enum Useless {
    NotOpened(String),
    /// It was opened, and then failed for good.
    Broken(String),
}

fn group() -> Gid {
    "ff12:401b:ffff::77".parse().unwrap()
}

impl Loop {
    fn open(shim: &Arc<Shim>, device: &Device) -> Result<Loop, FabricError> {
        let mut config = VerbsConfig::new(device.name.clone(), 1);
        config.gid_wait = Duration::from_millis(100);
        let mut port = VerbsPort::open_with(shim.clone(), config)?;
        let mut worker = port.take_workers().remove(0);
        let endpoint = port.create_ud(UdInit {
            pkey: PKey::DEFAULT,
            qkey: QKEY,
            qpn: None,
        })?;
        let mut answers = port.change_groups(endpoint.id, &[group()], &[])?;
        let joined = answers.remove(0);
        if matches!(joined, Joined::Now(_)) {
            port.change_groups(endpoint.id, &[], &[group()])?;
        }
        let os = |source| FabricError::Os {
            what: "address handle".to_owned(),
            source,
        };
        let to = AhAttributes::to(port.attributes().gid, fabric::PKey::DEFAULT);
        let ah = worker.create_ah(&to).map_err(os)?;
        if let Some(connections) = worker.connections() {
            connections.listen(endpoint.id, SERVICE);
        }
        Ok(Loop {
            port,
            worker,
            endpoint,
            ah,
            events: Vec::new(),
            established: Vec::new(),
            messages: Vec::new(),
            refused: Vec::new(),
            closed: Vec::new(),
        })
    }

    fn send(&mut self, text: &[u8]) -> Option<Sent> {
        let qpn = self.port.endpoint_qpn(self.endpoint.id)?;
        let mut train = self.worker.train(text.len())?;
        train.next(text.len())?.copy_from_slice(text);
        let train = train.finish();
        let to = UdDestination {
            ah: self.ah,
            qpn,
            qkey: QKEY,
        };
        Some(self.worker.send(self.endpoint.id, &to, train))
    }

    /// Runs a data thread and a control thread for a moment.
    fn turn(&mut self) -> std::io::Result<Vec<Vec<u8>>> {
        let mut got = Vec::new();
        let batch = self.worker.poll(8)?;
        got.extend(batch.datagrams().map(|(_, payload)| payload.to_vec()));
        for (_, message) in batch.messages() {
            self.messages
                .push(message.parts().collect::<Vec<_>>().concat());
        }
        self.connection_events();
        self.worker.flush();
        self.worker.handle_timeout();
        self.worker.arm()?;
        self.events.extend(self.port.process());
        Ok(got)
    }

    fn connection_events(&mut self) {
        let Some(connections) = self.worker.connections() else {
            return;
        };
        while let Some(event) = connections.poll_event() {
            match event {
                ConnectionEvent::Requested { connection, .. } => {
                    connections.accept(connection, b"yes");
                }
                ConnectionEvent::Replied { connection, .. } => {
                    connections.establish(connection);
                    self.established.push(connection);
                }
                ConnectionEvent::Closed { connection, reason } => {
                    self.closed.push(reason);
                    self.established.retain(|c| *c != connection);
                }
            }
        }
    }

    /// Connects to itself and sends messages until one arrives, or the time is over.
    fn echo_message(&mut self, text: &[u8], patience: Duration) -> std::io::Result<bool> {
        let until = Instant::now() + patience;
        let mut connect_at = Instant::now();
        while Instant::now() < until {
            let gid = self.port.attributes().gid;
            let to = self.port.endpoint_qpn(self.endpoint.id);
            if let Some(connections) = self.worker.connections() {
                if self.established.is_empty() && Instant::now() >= connect_at {
                    connect_at = Instant::now() + Duration::from_secs(2);
                    let request = ConnectRequest {
                        service: SERVICE,
                        peer: gid,
                        to: to.unwrap_or(Qpn::new(0)),
                        private_data: b"me",
                    };
                    // Without a device, connecting fails.
                    let asked = connections.connect(self.endpoint.id, &request);
                    self.refused.extend(asked.err());
                }
                for connection in self.established.clone() {
                    if let Some(mut places) = connections.message(connection, text.len()) {
                        if let Some(place) = places.next(text.len()) {
                            place.copy_from_slice(text);
                        }
                        let ticket = places.finish();
                        connections.post(connection, ticket);
                    }
                }
            }
            for _ in 0..20 {
                self.turn()?;
                if self.messages.iter().any(|message| message == text) {
                    return Ok(true);
                }
                sleep(Duration::from_millis(2));
            }
        }
        Ok(false)
    }

    /// Sends until a datagram arrives, or the time is over.
    fn echo(&mut self, text: &[u8], patience: Duration) -> std::io::Result<bool> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if self.worker.room() != Room::Nothing {
                self.send(text);
            }
            for _ in 0..20 {
                if self.turn()?.iter().any(|payload| payload == text) {
                    return Ok(true);
                }
                sleep(Duration::from_millis(2));
            }
        }
        Ok(false)
    }

    /// Opens a port and runs all tests. Returns what did not arrive in time, or why the port is of no use.
    fn live(
        shim: &Arc<Shim>,
        device: &Device,
        patience: Duration,
    ) -> Result<Option<String>, Useless> {
        let mut all = Loop::open(shim, device).map_err(|e| Useless::NotOpened(e.to_string()))?;
        let lost = all
            .everything(patience)
            .map_err(|e| Useless::Broken(format!("the worker: {e}")))?
            .map(|what| {
                let connections = all.worker.connections().map(|c| c.list());
                format!(
                    "{what}; {:?}; up {:?} of {connections:?}, refused {:?}, closed {:?}; {:?}",
                    all.events,
                    all.established,
                    all.refused,
                    all.closed,
                    all.worker.counters()
                )
            });
        all.port.resources();
        all.port
            .destroy_ud(all.endpoint.id)
            .map_err(|e| Useless::Broken(e.to_string()))?;
        Ok(lost)
    }

    /// Runs all tests; returns what did not arrive.
    fn everything(&mut self, patience: Duration) -> std::io::Result<Option<&'static str>> {
        Ok(if !self.echo(b"one", patience)? {
            Some("a datagram")
        } else if !self.echo_message(b"message", patience)? {
            Some("a message")
        } else if !self.echo(b"another", patience)? {
            Some("another datagram")
        } else {
            None
        })
    }
}

/// Threads that destroy address handles may finish a moment later.
fn assert_clean(shim: &Shim, when: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !shim.leaks().is_empty() && Instant::now() < until {
        sleep(Duration::from_millis(10));
    }
    assert_eq!(shim.leaks(), [""; 0], "{when}");
}

#[test]
fn a_port_recovers_from_any_call_that_fails_once() {
    let Some(device) = device::find() else {
        return;
    };
    let honest = Arc::new(Shim::honest(&device.library));
    assert_eq!(Loop::live(&honest, &device, PATIENCE), Ok(None));
    assert_clean(&honest, "without failures");
    let (mut refused, mut recovered) = (0, 0);
    let thorough = device::is_thorough();
    let only = std::env::var(FUNCTION).ok();
    for (function, times) in honest.functions() {
        if only
            .as_ref()
            .is_some_and(|only| !function.starts_with(only))
        {
            continue;
        }
        // These functions fail in tests in which connections are established afterwards.
        if function.starts_with("rdma_") && only.is_none() && !thorough {
            continue;
        }
        // For functions that are also called during opening, includes a call later in the port's life.
        let mut numbers = vec![times / 2];
        if thorough {
            numbers.extend([0, 1, times - 1]);
        }
        numbers.retain(|number| *number < times);
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let failure = match function.len() % 2 {
                0 => Failure::Errno(libc::EIO),
                _ => Failure::Silent,
            };
            let fails = Fails::Function(function, number);
            let shim = Arc::new(Shim::failing(&device.library, fails, failure));
            // Opening may fail with an error; an open port must recover.
            match Loop::live(&shim, &device, PATIENCE) {
                Ok(None) => recovered += 1,
                Err(Useless::NotOpened(_)) => refused += 1,
                unrecovered => panic!("after {fails:?}: {unrecovered:?}"),
            }
            assert_clean(&shim, &format!("after {fails:?}"));
        }
    }
    assert!(
        only.is_some() || (refused > 5 && recovered > 5),
        "{refused} {recovered}"
    );
}

#[test]
fn a_device_that_fails_for_good_is_removed_and_found_again_when_it_works() {
    let Some(device) = device::find() else {
        return;
    };
    let failure = Failure::Errno(libc::EIO);
    let shim = Arc::new(Shim::failing(&device.library, Fails::Always, failure));
    let mut all = Loop::open(&shim, &device).unwrap();
    assert!(all.echo(b"before", PATIENCE).unwrap());
    let before = all.endpoint.qpn;

    shim.set_broken(true);
    let until = Instant::now() + PATIENCE;
    while !all.events.contains(&PortEvent::Removed) {
        assert!(Instant::now() < until, "{:?}", all.events);
        all.send(b"lost");
        all.turn().unwrap();
        sleep(Duration::from_millis(5));
    }
    assert_eq!(all.port.attributes().state, PortState::Down);
    assert_eq!(all.port.endpoint_qpn(all.endpoint.id), Some(before));
    // Joined while there is no device.
    let id = all.endpoint.id;
    let answers = all.port.change_groups(id, &[group()], &[]).unwrap();
    assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");

    shim.set_broken(false);
    assert!(all.echo(b"after", PATIENCE).unwrap(), "{:?}", all.events);
    assert_eq!(all.port.attributes().state, PortState::Active);
    let after = all.port.endpoint_qpn(all.endpoint.id).unwrap();
    assert!(
        all.events
            .iter()
            .any(|e| matches!(e, PortEvent::QpnChange(_))),
        "{:?}",
        all.events
    );
    assert_ne!(after, Qpn::new(0));
    assert_eq!(all.port.resources().groups.len(), 1);
    drop(all);
    assert_clean(&shim, "in the end");
}

#[test]
fn a_port_survives_whatever_it_is_told() {
    let Some(device) = device::find() else {
        return;
    };
    for lie in Lie::ALL {
        let shim = Arc::new(Shim::lying(&device.library, lie));
        // Most lies never end, so nothing may arrive; it is enough that the port keeps working.
        let harmless = matches!(lie, Lie::Twice | Lie::CqEventTwice | Lie::AsyncEvents);
        let patience = if harmless {
            PATIENCE
        } else {
            Duration::from_millis(500)
        };
        let came = Loop::live(&shim, &device, patience);
        assert_clean(&shim, &format!("after {lie:?} ({came:?})"));
        assert!(!harmless || came == Ok(None), "{lie:?}: {came:?}");
    }
    let library: Arc<dyn Library> = device.library.clone();
    let honest = Arc::new(Shim::honest(&library));
    assert_eq!(Loop::live(&honest, &device, PATIENCE), Ok(None));
}
