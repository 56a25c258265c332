//! Changes by an administrator on an interface are announced and can be read.

#[path = "../../rtnl/tests/namespace/mod.rs"]
mod namespace;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use namespace::{close, in_namespace, run, start};
use netdev::ethtool::{Features, all_features};
use netdev::membership;
use netdev::mroute::{self, MulticastRoutes};
use netdev::tap::{Tap, TapOptions, TapQueue};
use rtnl::{Event, Group, Monitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Reads a feature.
type Read = fn(&Features) -> bool;

fn tap() -> (Tap, Vec<TapQueue>) {
    let opened = Tap::open(&TapOptions {
        name: "ib0".to_owned(),
        queues: 1,
        persist: false,
    })
    .unwrap();
    run("ip link set ib0 up");
    run("ip addr add 192.0.2.1/24 dev ib0");
    opened
}

/// Waits for a notification; false after five seconds without one.
fn notified(monitor: &mut Monitor, wanted: impl Fn(&Event) -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if monitor.drain().iter().any(&wanted) {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let timeout = Timespec::try_from(left).unwrap();
        poll(&mut [PollFd::new(monitor, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

#[test]
fn features_follow_ethtool_and_are_announced() {
    in_namespace(|| {
        let (tap, _queues) = tap();
        let all = Features::read("ib0").unwrap();
        assert!(all.gro && all.gso && all.tso && all.tx_checksum, "{all:?}");
        let changes: [(&str, Read); 3] = [
            ("gro", |f| f.gro),
            ("tso", |f| f.tso),
            ("tx", |f| f.tx_checksum),
        ];
        for (feature, read) in changes {
            for on in [false, true] {
                let mut monitor = Monitor::new(&[Group::Link]).unwrap();
                let state = if on { "on" } else { "off" };
                run(&format!("ethtool -K ib0 {feature} {state}"));
                let is_ours =
                    |e: &Event| matches!(e, Event::LinkChanged(l) if l.index == tap.ifindex());
                assert!(notified(&mut monitor, is_ours), "{feature} {state}");
                assert_eq!(
                    read(&Features::read("ib0").unwrap()),
                    on,
                    "{feature} {state}"
                );
            }
        }
    });
}

#[test]
fn what_was_turned_off_stays_off_for_the_next_holder() {
    in_namespace(|| {
        // A new interface has nothing turned off.
        run("ip tuntap add dev ib0 mode tap vnet_hdr");
        let options = TapOptions {
            name: "ib0".to_owned(),
            queues: 1,
            persist: false,
        };
        let held = Tap::open(&options).unwrap();
        let all = Features::read("ib0").unwrap();
        assert!(all.gro && all.gso && all.tso && all.tx_checksum, "{all:?}");
        run("ethtool -K ib0 tso off gro off");
        close(held);
        let _held = Tap::open(&options).unwrap();
        let some = Features::read("ib0").unwrap();
        assert!(!some.gro && !some.tso, "{some:?}");
        assert!(some.gso && some.tx_checksum, "{some:?}");
        run("ethtool -K ib0 tso on");
        assert!(Features::read("ib0").unwrap().tso);
    });
}

#[test]
fn features_of_no_interface_are_an_error() {
    in_namespace(|| {
        for name in ["nosuch", "a-name-longer-than-any", ""] {
            let error = Features::read(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name:?}");
        }
    });
}

#[test]
fn joined_groups_are_announced_and_listed() {
    in_namespace(|| {
        let (tap, _queues) = tap();
        let ifindex = tap.ifindex();
        let groups = [Group::Ipv4Multicast, Group::Ipv6Multicast];
        let mut monitor = Monitor::new(&groups).unwrap();
        let announced = groups.iter().all(|&group| monitor.has(group));
        let joined = || membership::read_all().unwrap().remove(&ifindex).unwrap();
        let before = joined();
        assert!(before.contains(&IpAddr::from([224, 0, 0, 1])), "{before:?}");
        assert!(
            before.contains(&"ff02::1".parse::<IpAddr>().unwrap()),
            "{before:?}"
        );

        let (v4, v6) = (
            Ipv4Addr::new(239, 1, 2, 3),
            "ff15::1234".parse::<Ipv6Addr>().unwrap(),
        );
        let socket4 = UdpSocket::bind("0.0.0.0:0").unwrap();
        let socket6 = UdpSocket::bind("[::]:0").unwrap();
        socket4
            .join_multicast_v4(&v4, &Ipv4Addr::new(192, 0, 2, 1))
            .unwrap();
        for (group, join) in [(IpAddr::V4(v4), false), (IpAddr::V6(v6), true)] {
            if join {
                socket6.join_multicast_v6(&v6, ifindex).unwrap();
            }
            let added = Event::MulticastAdded { ifindex, group };
            assert!(!announced || notified(&mut monitor, |event| *event == added));
            assert!(joined().contains(&group));
        }
        close((socket4, socket6));
        let after = joined();
        assert!(!after.contains(&IpAddr::V4(v4)) && !after.contains(&IpAddr::V6(v6)));
        assert!(
            !membership::read_all()
                .unwrap()
                .contains_key(&(ifindex + 1000))
        );
    });
}

#[test]
fn all_features_are_those_of_ethtool() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        run("ethtool -K east tx-udp-segmentation off");
        for interface in ["east", "west"] {
            let shown = run(&format!("ethtool -k {interface}"));
            let features = all_features(interface).unwrap();
            assert!(features.len() > 40, "{features:?}");
            // The lines of single features; names of groups of features come first.
            let mut compared = 0;
            for line in shown.lines() {
                let Some((name, state)) = line.trim().split_once(": ") else {
                    continue;
                };
                if let Some(on) = features.get(name) {
                    assert_eq!(*on, state.starts_with("on"), "{interface}: {line}");
                    compared += 1;
                }
            }
            assert!(compared > 30, "only {compared} in {shown}");
            assert_eq!(features["tx-udp-segmentation"], interface == "west");
        }
        let missing = all_features("nowhere").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
    });
}

/// Ends a program at the end of the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_multicast_router_shows_with_its_routes() {
    in_namespace(|| {
        let routes = || mroute::Tables::read().unwrap().of("ib0");
        let (_tap, _queues) = tap();
        run("ip link add d0 type veth peer name d1");
        run("ip link set d0 up");
        run("ip addr add 192.0.3.1/24 dev d0");
        assert_eq!(routes(), MulticastRoutes::default());

        let directory = std::env::temp_dir().join(format!("mroute-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("smcroute.conf");
        let text = "phyint ib0 enable\nphyint d0 enable\n\
                    mroute from ib0 source 192.0.2.9 group 239.1.2.3 to d0\n\
                    mroute from ib0 source fd09::9 group ff15::1234 to d0\n\
                    mroute from d0 source 192.0.3.9 group 239.7.8.9 to ib0\n";
        std::fs::write(&file, text).unwrap();
        let mut program = std::process::Command::new("smcrouted");
        program.args(["-n", "-N", "-s", "-f"]).arg(&file);
        program.arg("-P").arg(directory.join("pid"));
        program.arg("-u").arg(directory.join("socket"));
        let started = start(&mut program);
        let router = match started {
            Ok(child) => Running(child),
            Err(e) => return kit::skip(format_args!("smcrouted does not start: {e}")),
        };
        let wanted = MulticastRoutes {
            routes: true,
            groups: ["239.1.2.3", "ff15::1234"]
                .map(|group| group.parse().unwrap())
                .into(),
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while routes() != wanted {
            assert!(Instant::now() < deadline, "{:?}", routes());
            std::thread::sleep(Duration::from_millis(50));
        }
        close(router);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}
