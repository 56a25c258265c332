use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::channel;

use control::api::{LinkAddress, LogLevel, QueuePairInfo, ResourcesInfo};
use fabric::{Gid, PKey, Qpn};
use serde_json::{Value, json};

use super::*;
use crate::doctor::{DoctorArgs, examine};

/// An interface of a healthy daemon.
pub fn interface() -> InterfaceInfo {
    InterfaceInfo {
        state: PortState::Active,
        reason: None,
        carrier: true,
        qpn: Qpn::new(0x1234),
        ..crate::text::tests::interface()
    }
}

fn view() -> View {
    View {
        version: VersionInfo {
            product: "ibtapd".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: 7,
            log_level: LogLevel::Info,
        },
        pid: Some(7),
        interfaces: vec![interface()],
        vnics: Vec::new(),
        stats: BTreeMap::new(),
        neighbours: BTreeMap::new(),
        guests: BTreeMap::new(),
        tables: Vec::new(),
        resources: Vec::new(),
    }
}

fn levels(view: &View) -> Vec<(&'static str, Level)> {
    judge(view).iter().map(|f| (f.check, f.level)).collect()
}

#[test]
fn vnics_are_interfaces_enough_and_may_wait_for_a_manager() {
    let forwarding = crate::text::vnics_tests::vnic();
    let waiting = VnicInfo {
        carrier: false,
        reason: Some("it waits".into()),
        ..forwarding.clone()
    };
    let without_key = VnicInfo {
        managed: false,
        ..waiting.clone()
    };
    let view = View {
        interfaces: Vec::new(),
        vnics: vec![forwarding, waiting, without_key],
        ..view()
    };
    let expected = [
        ("daemon", Level::Ok),
        ("vnic", Level::Ok),
        ("vnic", Level::Warn),
        ("vnic", Level::Fail),
    ];
    assert_eq!(levels(&view), expected);
}

#[test]
fn a_daemon_that_serves_an_active_interface() {
    let expected = [
        ("daemon", Level::Ok),
        ("interface", Level::Ok),
        ("neighbours", Level::Note),
    ];
    assert_eq!(levels(&view()), expected);
}

#[test]
fn another_version_and_a_port_that_is_down() {
    let mut v = view();
    v.version.version = "0.0.9".into();
    v.interfaces[0].state = PortState::Down;
    v.interfaces[0].reason = Some("eth0 is down".into());
    let findings = judge(&v);
    assert_eq!(findings[0].level, Level::Warn);
    assert_eq!(findings[1].level, Level::Fail);
    assert!(findings[1].found.contains("eth0 is down"), "{findings:?}");
    v.interfaces.clear();
    assert_eq!(judge(&v)[1].level, Level::Warn);
}

#[test]
fn a_daemon_that_is_not_there_fails_unless_it_is_only_to_be() {
    let error = |kind: io::ErrorKind| ClientError::Unreachable {
        path: "/run/x.sock".into(),
        source: kind.into(),
    };
    let absent = judge_absence(&error(io::ErrorKind::NotFound), false);
    assert_eq!(absent.level, Level::Fail);
    assert!(absent.advice.unwrap().contains("systemctl start ibtapd"));
    let rehearsed = judge_absence(&error(io::ErrorKind::NotFound), true);
    assert_eq!(rehearsed.level, Level::Warn);
    let denied = judge_absence(&error(io::ErrorKind::PermissionDenied), false);
    assert!(denied.advice.unwrap().contains("as root"));
}

#[test]
fn a_daemon_that_refuses_is_there_and_one_that_ended_is_not() {
    assert!(is_there(&ClientError::Refused("several".into())));
    let ended = ClientError::Ended {
        path: "s".into(),
        source: io::ErrorKind::UnexpectedEof.into(),
    };
    assert!(!is_there(&ended));
}

#[test]
fn a_daemon_that_hangs_is_there_and_stops_no_check() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    // One client waits, and the queue has no room for another one.
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&socket).unwrap();
    let wait = Duration::from_millis(50);
    let error = ControlClient::connect(&socket, wait).map(drop).unwrap_err();
    assert!(is_there(&error), "{error}");
    let finding = judge_absence(&error, true);
    assert_eq!(finding.level, Level::Fail);
    assert!(finding.advice.unwrap().contains("restart ibtapd"));

    let args = DoctorArgs {
        interface: None,
        underlay: Some("lo".into()),
        device: None,
        config: None,
    };
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(examine(&args, &socket).unwrap().len()));
    let findings = receiver.recv_timeout(Duration::from_secs(120)).unwrap();
    assert!(findings > 1, "{findings}");
}

#[test]
fn a_table_that_fills_up() {
    assert_eq!(neighbours("ib0", LinkLayer::Ethernet, 3).level, Level::Ok);
    assert_eq!(
        neighbours("ib0", LinkLayer::Ethernet, 16000).level,
        Level::Warn
    );
}

#[test]
fn another_queue_pair_with_our_gid_is_a_duplicate() {
    use control::api::NeighbourState;

    let ours = interface();
    let neighbour = |gid, qpn| NeighbourInfo {
        mac: LinkAddress([2; 6]),
        address: LinkAddress([0; 20]),
        gid,
        qpn: Qpn::new(qpn),
        ips: Vec::new(),
        state: NeighbourState::Confirmed,
        idle_ms: 0,
        queuelen: None,
    };
    let other = Gid([0xfd; 16]);
    // Another link of this daemon on the same port has the same GID.
    let queue_pair = |qpn| QueuePairInfo {
        qpn: Qpn::new(qpn),
        kind: "UD".into(),
        state: "RTS".into(),
        pkey: PKey::DEFAULT,
        qkey: None,
        peer_qpn: None,
        lanes: 2,
        interface: None,
    };
    let port = |name: &str, qpns: &[u32]| ResourcesInfo {
        port: name.into(),
        queue_pairs: qpns.iter().copied().map(queue_pair).collect(),
        ..ResourcesInfo::default()
    };
    let ports = [port("soft/eth1", &[9]), port("soft/eth0", &[0x1234, 8])];
    let duplicates = |n| crate::doctor::gid::duplicates(&ours, &ports, &[n]).len();
    assert_eq!(duplicates(neighbour(other, 9)), 0);
    assert_eq!(duplicates(neighbour(ours.gid, 0x1234)), 0, "ourselves");
    assert_eq!(duplicates(neighbour(ours.gid, 8)), 0, "our other one");
    assert_eq!(duplicates(neighbour(ours.gid, 9)), 1);
    let elsewhere = InterfaceInfo {
        netns: Some("blue".into()),
        ..ours.clone()
    };
    let found = crate::doctor::gid::duplicates(&elsewhere, &ports, &[neighbour(ours.gid, 9)]);
    assert_eq!(found[0].subject, "blue/ib0");
    let unknown = crate::doctor::gid::duplicates(&ours, &ports[..1], &[neighbour(ours.gid, 9)]);
    assert_eq!(unknown, []);
    let beside_the_kernel = InterfaceInfo {
        link_layer: LinkLayer::InfiniBand,
        ..ours.clone()
    };
    let kernels = neighbour(ours.gid, 9);
    let found = crate::doctor::gid::duplicates(&beside_the_kernel, &ports, &[kernels]);
    assert_eq!(found, []);
}

/// The name of the second interface of [`serve`].
const REMOVED: &str = "removed0";

/// A daemon that lists two interfaces; the second is away when somebody asks for it.
fn serve(listener: &UnixListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut request = Vec::new();
        reader.read_until(0, &mut request).unwrap();
        let Some((0, request)) = request.split_last() else {
            return;
        };
        let request: Value = serde_json::from_slice(request).unwrap();
        let method = request["method"].as_str().unwrap();
        let second = InterfaceInfo {
            name: REMOVED.into(),
            ..interface()
        };
        let reply = match method.rsplit('.').next().unwrap() {
            _ if request["parameters"]["interface"] == REMOVED => json!({
                "error": "org.ibtap.Daemon.NoSuchInterface",
                "parameters": { "interface": REMOVED },
            }),
            "Version" => json!({ "parameters": view().version }),
            "Show" => json!({ "parameters": { "interfaces": [interface(), second] } }),
            "Vnics" => json!({ "parameters": { "vnics": [] } }),
            "Neighbours" => json!({ "parameters": { "neighbours": [] } }),
            "Guests" => json!({ "parameters": { "guests": [] } }),
            "Stats" => json!({ "parameters": { "stats": [] } }),
            "Pkeys" => json!({ "parameters": { "tables": [] } }),
            "Resources" => json!({ "parameters": { "resources": [] } }),
            other => panic!("{other}"),
        };
        let mut reply = reply.to_string().into_bytes();
        reply.push(0);
        stream.write_all(&reply).unwrap();
    }
}

#[test]
fn an_interface_that_goes_during_the_requests_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || serve(&listener));
    let mut client = ControlClient::connect(&socket, Duration::from_secs(120)).unwrap();
    let seen = gather(&mut client, None).unwrap();
    let names: Vec<_> = seen.interfaces.iter().map(|i| &i.name).collect();
    assert_eq!(names, ["ib0"]);
    let error = gather(&mut client, Some(REMOVED)).unwrap_err();
    assert!(
        matches!(error, ClientError::NoSuchInterface { .. }),
        "{error}"
    );
    drop(client);
    server.join().unwrap();
}

#[test]
fn an_interface_that_goes_during_the_checks_has_no_finding() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || [(), ()].map(|()| serve(&listener)));
    let found = ["elsewhere0", REMOVED].map(|name| {
        let one = InterfaceInfo {
            name: name.into(),
            ..interface()
        };
        let mut requests = rtnl::Requests::new().unwrap();
        let found = crate::doctor::look_at(&one, Some(&view()), &socket, &mut requests).unwrap();
        found.iter().map(|f| f.level).collect::<Vec<_>>()
    });
    assert_eq!(found, [vec![Level::Fail], vec![]]);
    server.join().unwrap();
}
