//! Several network namespaces of the running kernel: nsids, notifications, and interfaces that move between
//! them.

mod namespace;

use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

use namespace::{Elsewhere, in_namespace, run};
use rtnl::{Error, EthtoolEvent, EthtoolMonitor, Event, Group, Monitor, Notice, Requests};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CapabilitySet;

/// Drains until `wanted` finds a result, for at most five seconds.
fn wait_for<T, M: std::os::fd::AsFd, E: std::fmt::Debug>(
    monitor: &mut M,
    drain: impl Fn(&mut M) -> Vec<E>,
    wanted: impl Fn(&E) -> Option<T>,
) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut seen = Vec::new();
    loop {
        let events = drain(monitor);
        if let Some(found) = events.iter().find_map(&wanted) {
            return found;
        }
        seen.extend(events);
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "it never came; what did: {seen:#?}");
        let timeout = Timespec::try_from(left).unwrap();
        poll(&mut [PollFd::new(monitor, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

/// The namespace and index in the next change of the interface `name`.
fn changed(monitor: &mut Monitor, name: &str) -> (Option<i32>, u32) {
    wait_for(monitor, Monitor::notices, |notice| match &notice.event {
        Event::LinkChanged(link) if link.name == name => Some((notice.nsid, link.index)),
        _ => None,
    })
}

fn here() -> File {
    File::open("/proc/thread-self/ns/net").unwrap()
}

fn index_of(name: &str) -> u32 {
    Requests::new().unwrap().link_by_name(name).unwrap().index
}

#[test]
fn a_namespace_is_numbered_once_and_not_kept_alive() {
    in_namespace(|| {
        let mut requests = Requests::new().unwrap();
        let (a, b) = (Elsewhere::new(), Elsewhere::new());
        assert_eq!(requests.nsid_of(&a.0).unwrap(), None);
        let number = requests.assign_nsid(&a.0).unwrap();
        assert_eq!(requests.nsid_of(&a.0).unwrap(), Some(number));
        assert_eq!(requests.assign_nsid(&a.0).unwrap(), number);
        assert_ne!(requests.assign_nsid(&b.0).unwrap(), number);
        // Each namespace has its own nsids.
        assert_eq!(
            b.visit(|| Requests::new().unwrap().nsid_of(&a.0).unwrap()),
            None
        );

        // A veth disappears with the namespace of its peer.
        run("ip link add east type veth peer name west");
        requests
            .move_link(index_of("west"), &a.0, None, None)
            .unwrap();
        drop(a);
        let deadline = Instant::now() + Duration::from_secs(5);
        while run("ip -o link").contains("east") {
            assert!(Instant::now() < deadline, "the namespace lives on");
            sleep(Duration::from_millis(10));
        }
        let error = requests
            .nsid_of(File::open("/dev/null").unwrap())
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    });
}

#[test]
fn events_of_other_namespaces_have_their_nsid() {
    in_namespace(|| {
        let (numbered, unknown) = (Elsewhere::new(), Elsewhere::new());
        let mut monitor = Monitor::across_namespaces(&[Group::Link, Group::Ipv4Address]).unwrap();
        assert!(monitor.hears_all_namespaces());
        let mut requests = Requests::new().unwrap();
        let number = requests.assign_nsid(&numbered.0).unwrap();

        unknown.run("ip link add silent type veth peer name silent2");
        numbered.run("ip link add north type veth peer name south");
        run("ip link add east type veth peer name west");
        let mut seen: Vec<(Option<i32>, String)> = Vec::new();
        while !seen
            .iter()
            .any(|(nsid, name)| nsid.is_none() && name == "east")
        {
            seen.extend(
                monitor
                    .notices()
                    .into_iter()
                    .filter_map(|notice| match notice.event {
                        Event::LinkChanged(link) => Some((notice.nsid, link.name)),
                        _ => None,
                    }),
            );
        }
        assert!(
            seen.contains(&(Some(number), "north".to_owned())),
            "{seen:?}"
        );
        assert!(
            !seen.iter().any(|(_, name)| name.starts_with("silent")),
            "{seen:?}"
        );

        numbered.run("ip addr add 192.0.2.1/24 dev north");
        let nsid = wait_for(&mut monitor, Monitor::notices, |notice| {
            match notice.event {
                Event::AddressAdded(address) if address.prefix_len == 24 => Some(notice.nsid),
                _ => None,
            }
        });
        assert_eq!(nsid, Some(number));

        // A namespace may have an nsid for itself; its messages then carry it.
        let own = requests.assign_nsid(here()).unwrap();
        assert_ne!(own, number);
        run("ip link set east up");
        assert_eq!(changed(&mut monitor, "east").0, None);
        numbered.run("ip link set north up");
        assert_eq!(changed(&mut monitor, "north").0, Some(number));
    });
}

#[test]
fn drain_returns_events_of_the_own_namespace_only() {
    in_namespace(|| {
        let elsewhere = Elsewhere::new();
        let mut monitor = Monitor::across_namespaces(&[Group::Link]).unwrap();
        Requests::new().unwrap().assign_nsid(&elsewhere.0).unwrap();
        elsewhere.run("ip link add north type veth peer name south");
        run("ip link add east type veth peer name west");
        let names: Vec<_> = monitor
            .drain()
            .into_iter()
            .map(|event| match event {
                Event::LinkChanged(link) => link.name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(names.contains(&"east".to_owned()), "{names:?}");
        assert!(!names.contains(&"north".to_owned()), "{names:?}");
    });
}

#[test]
fn an_interface_is_followed_over_several_moves_and_back() {
    in_namespace(|| {
        let mut monitor = Monitor::across_namespaces(&[Group::Link]).unwrap();
        let mut requests = Requests::new().unwrap();
        let (a, b) = (Elsewhere::new(), Elsewhere::new());
        let [a_number, b_number] = [&a, &b].map(|ns| requests.assign_nsid(&ns.0).unwrap());
        run("ip link add east type veth peer name west");
        let gone = |monitor: &mut Monitor| {
            wait_for(monitor, Monitor::notices, |notice: &Notice| {
                match notice.event {
                    Event::LinkGone { moved, .. } => Some((notice.nsid, moved)),
                    _ => None,
                }
            })
        };

        requests
            .move_link(index_of("east"), &a.0, None, None)
            .unwrap();
        assert_eq!(gone(&mut monitor), (None, true));

        let file = &b.0;
        a.visit(|| {
            let index = index_of("east");
            let mut there = Requests::new().unwrap();
            there
                .move_link(index, file, Some("storage0"), Some(77))
                .unwrap();
        });
        assert_eq!(gone(&mut monitor), (Some(a_number), true));
        assert_eq!(b.visit(|| index_of("storage0")), 77);
        b.run("ip link set storage0 up");
        assert_eq!(changed(&mut monitor, "storage0"), (Some(b_number), 77));

        let home = here();
        b.visit(|| {
            let mut there = Requests::new().unwrap();
            there.move_link(77, &home, Some("east"), None).unwrap();
        });
        assert_eq!(gone(&mut monitor), (Some(b_number), true));
        run("ip link set east up");
        assert_eq!(changed(&mut monitor, "east").0, None);

        run("ip link del east");
        assert_eq!(gone(&mut monitor), (None, false));
    });
}

#[test]
fn the_end_of_a_namespace_is_reported() {
    in_namespace(|| {
        let groups = [Group::Link, Group::Namespace];
        let mut monitor = Monitor::across_namespaces(&groups).unwrap();
        let elsewhere = Elsewhere::new();
        let number = Requests::new().unwrap().assign_nsid(&elsewhere.0).unwrap();
        elsewhere.run("ip link add north type veth peer name south");
        assert_eq!(changed(&mut monitor, "north").0, Some(number));
        drop(elsewhere);
        let notice = wait_for(&mut monitor, Monitor::notices, |notice| {
            Some(notice.clone())
        });
        let gone = Event::NamespaceGone { nsid: number };
        assert_eq!((notice.nsid, notice.event), (None, gone));
        // The kernel does not report the deletion of an interface there.
        run("ip link add east type veth peer name west");
        let after = wait_for(&mut monitor, Monitor::notices, |notice| {
            Some(notice.clone())
        });
        assert!(matches!(after.event, Event::LinkChanged(_)), "{after:?}");
    });
}

#[test]
fn a_move_to_where_the_name_or_index_is_taken_changes_nothing() {
    in_namespace(|| {
        let a = Elsewhere::new();
        a.run("ip link add east index 90 type veth peer name west");
        run("ip link add east type veth peer name west");
        let mut requests = Requests::new().unwrap();
        let index = index_of("east");
        let error = requests.move_link(index, &a.0, None, None).unwrap_err();
        assert!(error.is_exists(), "{error}");
        let error = requests
            .move_link(index, &a.0, Some("west"), None)
            .unwrap_err();
        assert!(error.is_exists(), "{error}");
        let error = requests
            .move_link(index, &a.0, Some("free0"), Some(90))
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        let error = requests
            .move_link(index, &a.0, Some("a b"), None)
            .unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert_eq!(index_of("east"), index);
        requests
            .move_link(index, &a.0, Some("free0"), Some(91))
            .unwrap();
        assert_eq!(a.visit(|| index_of("free0")), 91);

        // The kernel checks the new name last, after the move.
        let error = requests
            .move_link(index_of("west"), &a.0, Some("east"), None)
            .unwrap_err();
        assert!(error.is_exists(), "{error}");
        assert!(
            requests.link_by_name("west").is_ok(),
            "the names west and east are both taken"
        );
        run("ip link set west name south");
        let error = requests
            .move_link(index_of("south"), &a.0, Some("east"), None)
            .unwrap_err();
        assert!(error.is_exists(), "{error}");
        assert_ne!(a.visit(|| index_of("south")), 0);
    });
}

#[test]
fn without_the_capability_only_the_own_namespace_is_monitored() {
    in_namespace(|| {
        let mut capabilities = rustix::thread::capabilities(None).unwrap();
        capabilities.effective.remove(CapabilitySet::NET_BROADCAST);
        rustix::thread::set_capabilities(None, capabilities).unwrap();
        let mut monitor = Monitor::across_namespaces(&[Group::Link]).unwrap();
        assert!(!monitor.hears_all_namespaces());
        run("ip link add east type veth peer name west");
        assert_eq!(changed(&mut monitor, "east").0, None);
    });
}

#[test]
fn lost_notifications_of_another_namespace_are_an_overrun() {
    in_namespace(|| {
        let elsewhere = Elsewhere::new();
        let mut monitor = Monitor::across_namespaces(&[Group::Link]).unwrap();
        let number = Requests::new().unwrap().assign_nsid(&elsewhere.0).unwrap();
        elsewhere.visit(|| {
            let mut requests = Requests::new().unwrap();
            let lo = requests.link_by_name("lo").unwrap().index;
            requests.set_up(lo).unwrap();
            for alias in 0..4000 {
                requests.set_alias(lo, &alias.to_string()).unwrap();
            }
        });
        let notices = monitor.notices();
        assert!(notices.iter().any(|notice| notice.event == Event::Overrun));
        assert!(notices.len() < 4000);
        elsewhere.run("ip link set lo alias after");
        assert_eq!(changed(&mut monitor, "lo").0, Some(number));
    });
}

#[test]
fn moderation_is_reported_from_every_namespace() {
    in_namespace(|| {
        let Some(mut monitor) = EthtoolMonitor::new().unwrap() else {
            return kit::skip("this kernel (before 5.6) has no ethtool notifications");
        };
        let elsewhere = Elsewhere::new();
        let number = Requests::new().unwrap().assign_nsid(&elsewhere.0).unwrap();
        run("ip tuntap add dev ib0 mode tap");
        elsewhere.run("ip tuntap add dev ib1 mode tap");
        run("ethtool -C ib0 rx-frames 16");
        elsewhere.run("ethtool -C ib1 rx-frames 5");
        run("ethtool -K ib0 gro off");
        run("ethtool -C ib0 rx-frames 0");
        let ib1 = elsewhere.visit(|| index_of("ib1"));
        let wanted = [
            (None, index_of("ib0"), "ib0", 16),
            (Some(number), ib1, "ib1", 5),
            (None, index_of("ib0"), "ib0", 0),
        ];
        let wanted = wanted.map(|(nsid, ifindex, name, frames)| EthtoolEvent::Coalesce {
            nsid,
            ifindex,
            name: name.to_owned(),
            rx_frames: Some(frames),
            // The TAP driver has no such setting.
            rx_usecs: None,
        });
        assert_eq!(monitor.drain(), wanted);
        assert_eq!(monitor.drain(), []);
    });
}

/// Output of `ip`, without counters of the kernel.
fn configuration(name: &str) -> String {
    let shown = [
        format!("ip -4 -d addr show dev {name}"),
        format!("ip -6 -d addr show dev {name} scope global"),
        format!("ip -4 route show table all dev {name}"),
        format!("ip -6 route show table all dev {name}"),
        format!("ip neigh show nud permanent dev {name}"),
    ];
    let lines = shown.map(|command| run(&command)).concat();
    let mut lines: Vec<_> = lines.lines().map(without_lifetimes).collect();
    lines.sort();
    lines.join("\n")
}

/// Removes lifetimes, which run, and flags of IPv6 duplicate address detection, which restarts.
fn without_lifetimes(line: &str) -> String {
    let mut words = line.split_whitespace().filter(|word| *word != "tentative");
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if matches!(word, "valid_lft" | "preferred_lft" | "expires") {
            let forever = words.next() == Some("forever");
            kept.push(format!(
                "{word} {}",
                if forever { "forever" } else { "some time" }
            ));
        } else {
            kept.push(word.to_owned());
        }
    }
    kept.join(" ")
}

#[test]
fn what_a_move_takes_is_put_back() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        run("ip link set west up");
        run("ip link set east up");
        for command in [
            "ip addr add 192.0.2.1/24 brd + dev east label east:a metric 77",
            "ip addr add 192.0.2.9/24 dev east noprefixroute",
            "ip addr add 192.0.2.10/24 dev east valid_lft 1000 preferred_lft 500",
            "ip addr add 10.9.9.1 peer 10.9.9.2/32 dev east scope link",
            "ip addr add 2001:db8::1/64 dev east nodad",
            "ip addr add 2001:db8::2/64 dev east valid_lft 1000 preferred_lft 0 nodad",
            "ip route add 198.51.100.0/24 via 192.0.2.2 dev east metric 9 mtu lock 1400",
            "ip route add 203.0.113.0/24 via 203.0.113.1 dev east onlink table 99",
            "ip route add default via 2001:db8::fe dev east",
            // The kernel lists the second route first; it needs the first one.
            "ip route add 10.8.8.8 dev east",
            "ip route add 10.7.0.0/16 via 10.8.8.8 dev east",
            "ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev east",
            "ip neigh add 2001:db8::fe lladdr 02:00:00:00:00:fe dev east",
        ] {
            run(command);
        }
        let before = configuration("east");
        assert!(
            before.contains("198.51.100.0/24") && before.contains("east:a"),
            "{before}"
        );
        let mut requests = Requests::new().unwrap();
        let index = index_of("east");
        let saved = requests.save(index).unwrap();
        assert!(!saved.is_empty());

        let (elsewhere, home) = (Elsewhere::new(), here());
        requests.move_link(index, &elsewhere.0, None, None).unwrap();
        elsewhere.visit(|| {
            let index = index_of("east");
            Requests::new()
                .unwrap()
                .move_link(index, &home, None, Some(300))
                .unwrap();
        });
        assert_eq!(index_of("east"), 300);
        assert!(!configuration("east").contains("192.0.2.1"));
        requests.restore_addresses(300, &saved).unwrap();
        requests.set_up(300).unwrap();
        requests.restore_routes(300, &saved).unwrap();
        assert_eq!(
            configuration("east"),
            before.replace(&format!("{index}: east"), "300: east")
        );
        // A second time: no duplicates.
        requests.restore_addresses(300, &saved).unwrap();
        requests.restore_routes(300, &saved).unwrap();
        assert!(!requests.save(300).unwrap().is_empty());
        assert_eq!(
            configuration("east"),
            before.replace(&format!("{index}: east"), "300: east")
        );
    });
}

#[test]
fn an_interface_without_settings_has_nothing_to_put_back() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        run("ip link set west up");
        run("ip link set east up");
        let mut requests = Requests::new().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while requests.addresses(index_of("east")).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "no link-local address");
            sleep(Duration::from_millis(10));
        }
        assert!(requests.save(index_of("east")).unwrap().is_empty());
        assert!(requests.save(4711).unwrap().is_empty());
    });
}

#[test]
fn the_kernel_resolves_forgotten_neighbours_again() {
    in_namespace(|| {
        for command in [
            "ip link add east type veth peer name west",
            "ip link set west up",
            "ip link set east up",
            "ip link add link east name vlan type macvlan",
            "ip link set vlan up",
            "ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev east nud reachable",
            "ip neigh add 2001:db8::1 lladdr 02:00:00:00:00:01 dev east nud stale",
            "ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev vlan nud reachable",
            // These stay.
            "ip neigh add 192.0.2.3 lladdr 02:00:00:00:00:03 dev east",
            "ip neigh add 192.0.2.4 lladdr 02:00:00:00:00:04 dev east nud reachable extern_learn",
            "ip neigh add 192.0.2.5 lladdr 02:00:00:00:00:05 dev west nud reachable",
        ] {
            run(command);
        }
        let mut requests = Requests::new().unwrap();
        let links = requests.links().unwrap();
        let of = rtnl::with_stacked(&links, [index_of("east")].into());
        assert_eq!(of, [index_of("east"), index_of("vlan")].into());
        requests.forget_neighbours(&of).unwrap();
        let left = run("ip neigh show nud all");
        for (address, stays) in [
            ("192.0.2.1 ", false),
            ("2001:db8::1 ", false),
            ("192.0.2.2 ", false),
            ("192.0.2.3 ", true),
            ("192.0.2.4 ", true),
            ("192.0.2.5 ", true),
        ] {
            assert_eq!(left.contains(address), stays, "{address}: {left}");
        }
        requests.forget_neighbours(&[4711].into()).unwrap();
    });
}
