//! Notifications of the running kernel, each test in its own network namespace.

mod namespace;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use namespace::{in_namespace, run};
use rtnl::{Event, Group, Monitor, Requests};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The first event that `wanted` accepts, within five seconds.
fn wait_for<T>(monitor: &mut Monitor, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut seen = Vec::new();
    loop {
        let events = monitor.drain();
        if let Some(found) = events.iter().find_map(&mut wanted) {
            return found;
        }
        seen.extend(events);
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "it never came; what did: {seen:#?}");
        let timeout = Timespec::try_from(left).unwrap();
        poll(&mut [PollFd::new(monitor, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

/// Returns when all of `wanted` have come, in any order.
fn wait_for_all<const N: usize>(monitor: &mut Monitor, wanted: [Event; N]) {
    let mut missing = wanted.to_vec();
    wait_for(monitor, |event| {
        missing.retain(|wanted| wanted != event);
        missing.is_empty().then_some(())
    });
}

#[test]
fn links_come_change_and_go() {
    in_namespace(|| {
        let mut monitor = Monitor::new(&[Group::Link]).unwrap();
        assert!(monitor.drain().is_empty());
        run("ip link add east type veth peer name west");
        let index = wait_for(&mut monitor, |event| match event {
            Event::LinkChanged(link) if link.name == "east" => Some(link.index),
            _ => None,
        });
        run("ip link set west up");
        run("ip link set east up");
        wait_for(&mut monitor, |event| match event {
            Event::LinkChanged(link) if link.index == index && link.is_usable() => Some(()),
            _ => None,
        });
        run("ip link set west down");
        wait_for(&mut monitor, |event| match event {
            Event::LinkChanged(link) if link.index == index && link.up && !link.lower_up => {
                (!link.carrier).then_some(())
            }
            _ => None,
        });
        run("ip link set east name north mtu 9000");
        wait_for(&mut monitor, |event| match event {
            Event::LinkChanged(link) if link.name == "north" && link.mtu == 9000 => Some(()),
            _ => None,
        });
        run("ip link del north");
        let moved = wait_for(&mut monitor, |event| match event {
            Event::LinkGone {
                index: gone,
                name,
                moved,
            } if *gone == index => {
                assert_eq!(name, "north");
                Some(*moved)
            }
            _ => None,
        });
        assert!(!moved);
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
fn a_move_is_distinguished_from_a_deletion() {
    in_namespace(|| {
        let mut monitor = Monitor::new(&[Group::Link]).unwrap();
        run("ip link add east type veth peer name west");
        // The namespace of a command lives as long as the command runs.
        let mut command = std::process::Command::new("unshare");
        let other = Running(command.args(["-n", "sleep", "60"]).spawn().unwrap());
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", other.0.id());
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::read_link(&theirs).is_ok_and(|ns| ns == own) {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        run(&format!("ip link set east netns {}", other.0.id()));
        let moved = wait_for(&mut monitor, |event| match event {
            Event::LinkGone { name, moved, .. } if name == "east" => Some(*moved),
            _ => None,
        });
        assert!(moved);
    });
}

#[test]
fn addresses_come_and_go() {
    in_namespace(|| {
        let mut monitor = Monitor::new(&[Group::Ipv4Address, Group::Ipv6Address]).unwrap();
        run("ip link add east type veth peer name west");
        run("ip link set west up");
        run("ip link set east up");
        let index = Requests::new().unwrap().link_by_name("east").unwrap().index;
        wait_for(&mut monitor, |event| match event {
            Event::AddressAdded(address) => {
                (address.ifindex == index && address.ip.is_ipv6() && address.is_usable())
                    .then_some(())
            }
            _ => None,
        });
        for (action, added) in [("add", true), ("del", false)] {
            run(&format!("ip addr {action} 192.0.2.1/24 dev east"));
            let address = wait_for(&mut monitor, |event| match event {
                Event::AddressAdded(address) if added => Some(*address),
                Event::AddressRemoved(address) if !added => Some(*address),
                _ => None,
            });
            assert_eq!(address.ip, IpAddr::from([192, 0, 2, 1]));
            assert_eq!((address.ifindex, address.prefix_len), (index, 24));
        }
    });
}

#[test]
fn joined_groups_are_announced() {
    in_namespace(|| {
        let groups = [Group::Ipv4Multicast, Group::Ipv6Multicast];
        let mut monitor = Monitor::new(&groups).unwrap();
        if !groups.iter().all(|&group| monitor.has(group)) {
            return kit::skip("this kernel (before 2025) does not announce memberships");
        }
        run("ip link add east type veth peer name west");
        run("ip link set west up");
        run("ip link set east up");
        run("ip addr add 192.0.2.1/24 dev east");
        let ifindex = Requests::new().unwrap().link_by_name("east").unwrap().index;
        let (v4, v6) = (
            Ipv4Addr::new(239, 1, 2, 3),
            "ff15::1234".parse::<Ipv6Addr>().unwrap(),
        );
        let socket4 = UdpSocket::bind("0.0.0.0:0").unwrap();
        let socket6 = UdpSocket::bind("[::]:0").unwrap();
        socket4
            .join_multicast_v4(&v4, &Ipv4Addr::new(192, 0, 2, 1))
            .unwrap();
        socket6.join_multicast_v6(&v6, ifindex).unwrap();
        let groups = [IpAddr::V4(v4), IpAddr::V6(v6)];
        wait_for_all(
            &mut monitor,
            groups.map(|group| Event::MulticastAdded { ifindex, group }),
        );
        drop((socket4, socket6));
        wait_for_all(
            &mut monitor,
            groups.map(|group| Event::MulticastRemoved { ifindex, group }),
        );
    });
}

#[test]
fn lost_notifications_are_an_overrun_and_listening_goes_on() {
    in_namespace(|| {
        let mut monitor = Monitor::new(&[Group::Link]).unwrap();
        let mut requests = Requests::new().unwrap();
        let lo = requests.link_by_name("lo").unwrap().index;
        // The kernel does not announce a new alias of a down interface.
        requests.set_up(lo).unwrap();
        for number in 0..4000 {
            requests.set_alias(lo, &format!("number {number}")).unwrap();
        }
        let events = monitor.drain();
        // After the waiting notifications, which are older than the lost ones.
        let overruns = events.iter().filter(|event| **event == Event::Overrun);
        assert_eq!(overruns.count(), 1);
        assert_eq!(events.last(), Some(&Event::Overrun));
        assert!(events.len() < 4000);
        requests.set_alias(lo, "after").unwrap();
        wait_for(&mut monitor, |event| match event {
            Event::LinkChanged(link) if link.alias.as_deref() == Some("after") => Some(()),
            _ => None,
        });
    });
}
