//! Takes over existing TAPs, in this network namespace and in others.

#[path = "../../rtnl/tests/namespace/mod.rs"]
mod namespace;

use std::fs::File;
use std::io::IoSlice;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread::sleep;
use std::time::{Duration, Instant};

use namespace::{Elsewhere, close, in_namespace, run, start};
use netdev::ethtool;
use netdev::netns::{self, Namespace};
use netdev::tap::{READ_MAX, Tap, TapError, TapOptions, TapQueue, VNET_HEADER_LEN, is_gone};
use rustix::thread::CapabilitySet;

const NAME: &str = "ib0.8001";

/// Settings of the interface, with values that are not the defaults.
const SYSCTLS: [(&str, &str); 5] = [
    ("ipv4/conf/ib0.8001/rp_filter", "2"),
    ("ipv4/conf/ib0.8001/proxy_arp", "1"),
    ("ipv6/conf/ib0.8001/accept_ra", "0"),
    ("ipv6/conf/ib0.8001/addr_gen_mode", "1"),
    ("ipv4/neigh/ib0.8001/ucast_solicit", "7"),
];

fn options(queues: usize) -> TapOptions {
    TapOptions {
        name: NAME.to_owned(),
        queues,
        persist: false,
    }
}

/// The same namespace in the library's type.
fn handle(elsewhere: &Elsewhere) -> Namespace {
    Namespace::from_fd(elsewhere.0.try_clone().unwrap().into())
}

fn adopt(elsewhere: &Elsewhere, queues: usize) -> Result<(Tap, Vec<TapQueue>), TapError> {
    Tap::adopt(&options(queues), Some(&handle(elsewhere)))
}

/// The visible configuration, without values that change by themselves.
fn shown() -> String {
    let commands = [
        format!("ip -o -d link show {NAME}"),
        format!("ip -o addr show dev {NAME} scope global"),
        format!("ip route show dev {NAME}"),
        format!("ip neigh show nud permanent dev {NAME}"),
        format!(
            "cat {}",
            SYSCTLS
                .map(|(path, _)| format!("/proc/sys/net/{path}"))
                .join(" ")
        ),
    ];
    let words = commands.map(|command| run(&command)).concat();
    let lines = words.lines().map(|line| {
        // A program has it open now.
        let line = line
            .replace("vnet_hdr on", "vnet_hdr off")
            .replace("numqueues 2", "numqueues 0")
            .replace(" user root", "");
        let words = line.split_whitespace().filter(|word| {
            !matches!(*word, "tentative" | "linkdown" | "state" | "UP" | "DOWN")
                && !word.contains("LOWER_UP")
                && !word.contains("NO-CARRIER")
                && !word.ends_with("sec")
        });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn index_here() -> u32 {
    let mut requests = rtnl::Requests::new().unwrap();
    requests.link_by_name(NAME).unwrap().index
}

/// Frames pass in both directions between the adopted interface, 192.0.2.1/24, and its queues.
fn frames_flow(elsewhere: &Elsewhere, queues: &[TapQueue]) {
    elsewhere.run(&format!(
        "ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev {NAME}"
    ));
    let socket = elsewhere.visit(|| std::net::UdpSocket::bind("192.0.2.1:4791").unwrap());
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut buffer = vec![0; READ_MAX];
    'sent: loop {
        assert!(Instant::now() < deadline, "nothing came out");
        let _ = socket.send_to(b"there", "192.0.2.2:9");
        for queue in queues {
            while let Some(length) = queue.read(&mut buffer).unwrap() {
                let frame = &buffer[VNET_HEADER_LEN..length];
                if frame.starts_with(&[2, 0, 0, 0, 0, 2]) && frame.ends_with(b"there") {
                    break 'sent;
                }
            }
        }
        sleep(Duration::from_millis(5));
    }
    // The other direction: the same frame with swapped ends. With VIRTIO_NET_HDR_F_NEEDS_CSUM the host does
    // not verify the UDP checksum.
    let mut frame = vec![1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 0, 0];
    let sent = &buffer[VNET_HEADER_LEN..][..47];
    frame.extend([&sent[6..12], &sent[..6], &sent[12..26]].concat());
    frame.extend([&sent[30..34], &sent[26..30]].concat());
    frame.extend(
        [
            &sent[36..38],
            &sent[34..36],
            &sent[38..40],
            &[0, 0],
            b"again",
        ]
        .concat(),
    );
    queues[0].write_vectored(&[IoSlice::new(&frame)]).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.port()), (&b"again"[..], 9));
}

fn tap_elsewhere(kind: &str) -> Elsewhere {
    let elsewhere = Elsewhere::new();
    elsewhere.run(&format!("ip tuntap add dev {NAME} mode tap {kind}"));
    elsewhere
}

#[test]
fn a_tap_of_another_namespace_is_taken_over_with_what_it_had() {
    in_namespace(|| {
        for (kind, queues) in [("", 1), ("multi_queue", 2)] {
            let elsewhere = tap_elsewhere(kind);
            for command in [
                "ip link set ib0.8001 address 02:00:00:00:00:01",
                "ip link set ib0.8001 mtu 2044 txqueuelen 77 alias storage",
                "ip link property add dev ib0.8001 altname the-storage-partition",
                "ip link set ib0.8001 up",
                "ip addr add 192.0.2.1/24 brd + dev ib0.8001",
                "ip addr add 2001:db8::1/64 dev ib0.8001 nodad",
                "ip route add 198.51.100.0/24 via 192.0.2.2 dev ib0.8001",
                "ip neigh add 192.0.2.3 lladdr 02:00:00:00:00:03 dev ib0.8001",
            ] {
                elsewhere.run(command);
            }
            elsewhere.visit(|| {
                for (path, value) in SYSCTLS {
                    std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
                }
            });
            // Its name and index are taken in this namespace.
            let before = elsewhere.visit(|| (index_here(), shown()));
            run(&format!(
                "ip link add {NAME} index {} type bridge",
                before.0
            ));

            let (tap, ends) = adopt(&elsewhere, queues).unwrap();
            tap.set_carrier(true).unwrap();
            assert_eq!(ends.len(), queues);
            assert!(tap.existed());
            assert_eq!(tap.ifindex(), before.0);
            assert_eq!(tap.name().unwrap(), NAME);
            assert_eq!(
                tap.namespace().unwrap().id().unwrap(),
                handle(&elsewhere).id().unwrap()
            );
            assert_eq!(elsewhere.visit(|| (index_here(), shown())), before);
            assert!(!run("ip -o link").contains("ibtap"));
            frames_flow(&elsewhere, &ends);
            run(&format!("ip link del {NAME}"));
        }
    });
}

/// The kernel refuses such a route while its address is tentative.
#[test]
fn a_route_with_a_source_address_is_kept() {
    in_namespace(|| {
        let elsewhere = tap_elsewhere("");
        let address = "2001:db8::1/64 dev ib0.8001";
        for command in [
            "ip link set ib0.8001 up".to_owned(),
            // Without a carrier, the address would stay tentative.
            format!("ip addr add {address} nodad"),
            format!("ip addr change {address}"),
            "ip -6 route add 2001:db8:1::/64 dev ib0.8001 src 2001:db8::1".to_owned(),
        ] {
            elsewhere.run(&command);
        }
        let state = || {
            let addresses = run("ip -o addr show dev ib0.8001 scope global");
            let routes = run("ip -6 route show dev ib0.8001 2001:db8:1::/64");
            (addresses, routes.replace(" linkdown", ""))
        };
        let before = elsewhere.visit(state);
        assert!(
            !before.0.contains("nodad") && !before.0.contains("tentative"),
            "{before:?}"
        );
        let _tap = adopt(&elsewhere, 1).unwrap();
        assert_eq!(elsewhere.visit(state), before);
    });
}

#[test]
fn a_namespace_that_is_deleted_is_gone_while_its_tap_is_open() {
    in_namespace(|| {
        let elsewhere = tap_elsewhere("");
        // A veth disappears with the namespace of its peer, so its other end here is a witness.
        run("ip link add witness type veth peer name peer0");
        let mut requests = rtnl::Requests::new().unwrap();
        let peer = requests.link_by_name("peer0").unwrap().index;
        requests.move_link(peer, &elsewhere.0, None, None).unwrap();
        let (tap, queues) = adopt(&elsewhere, 1).unwrap();
        drop(elsewhere);
        let deadline = Instant::now() + Duration::from_secs(5);
        while run("ip -o link").contains("witness") {
            assert!(Instant::now() < deadline, "the namespace lives on");
            sleep(Duration::from_millis(10));
        }
        assert!(is_gone(&queues[0].read(&mut [0; 100]).unwrap_err()));
        assert!(is_gone(&tap.name().unwrap_err()));
        assert!(is_gone(&tap.namespace().unwrap_err()));
    });
}

#[test]
fn a_held_tap_is_not_touched() {
    in_namespace(|| {
        for kind in ["", "multi_queue"] {
            let elsewhere = tap_elsewhere(kind);
            elsewhere.run("ip link set ib0.8001 up");
            let held = elsewhere.visit(|| Tap::open(&options(1)).unwrap());
            held.0.set_carrier(true).unwrap();
            // The kernel notifies of a carrier later, together with the change of the state.
            elsewhere.visit(|| {
                let mut requests = rtnl::Requests::new().unwrap();
                while requests.link_by_name(NAME).unwrap().operstate != rtnl::OperState::Up {
                    sleep(Duration::from_millis(1));
                }
            });
            let mut monitor = rtnl::Monitor::across_namespaces(&[rtnl::Group::Link]).unwrap();
            rtnl::Requests::new()
                .unwrap()
                .assign_nsid(&elsewhere.0)
                .unwrap();
            let error = adopt(&elsewhere, 1).unwrap_err();
            assert!(error.is_held(), "{error}");
            assert!(
                error.to_string().contains("in use by another process"),
                "{error}"
            );
            let named = elsewhere.visit(|| error.with_holder().to_string());
            let us = format!("process {} (", std::process::id());
            assert!(named.contains(&us), "{named}");
            assert_eq!(monitor.notices(), []);
            // The holder releases the TAP.
            close(held);
            assert!(adopt(&elsewhere, 1).is_ok());
        }
    });
}

#[test]
fn a_held_tap_without_carrier_comes_back_as_it_was() {
    in_namespace(|| {
        let elsewhere = tap_elsewhere("");
        elsewhere.run("ip link set ib0.8001 up");
        elsewhere.run("ip addr add 192.0.2.1/24 dev ib0.8001");
        let (held, queues) = elsewhere.visit(|| Tap::open(&options(1)).unwrap());
        let before = elsewhere.visit(|| (index_here(), shown()));
        let error = adopt(&elsewhere, 1).unwrap_err();
        assert!(error.is_held(), "{error}");
        assert_eq!(elsewhere.visit(|| (index_here(), shown())), before);
        assert!(!run("ip -o link").contains("ibtap"));
        held.set_carrier(true).unwrap();
        frames_flow(&elsewhere, &queues);
    });
}

#[test]
fn what_a_move_would_end_is_refused() {
    in_namespace(|| {
        let elsewhere = tap_elsewhere("");
        elsewhere.run("ip link add br0 type bridge");
        elsewhere.run("ip link set ib0.8001 master br0");
        let error = adopt(&elsewhere, 1).unwrap_err();
        assert!(error.to_string().contains("is a port of br0"), "{error}");
        assert!(
            elsewhere
                .run("ip -o link show ib0.8001")
                .contains("master br0")
        );
        elsewhere.run("ip link set ib0.8001 nomaster");
        elsewhere.run("ip link add mv0 link ib0.8001 type macvlan mode bridge");
        let error = adopt(&elsewhere, 1).unwrap_err();
        assert!(error.to_string().contains("has mv0 on top"), "{error}");
        elsewhere.run("ip link del mv0");
        assert!(adopt(&elsewhere, 1).is_ok());
    });
}

/// Number of open descriptors of this process for files that the crate opens.
fn open_descriptors() -> usize {
    let targets = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    targets
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| {
            let target = target.to_string_lossy();
            target == "/dev/net/tun" || target.starts_with("net:") || target.starts_with("socket:")
        })
        .count()
}

#[test]
fn nothing_is_left_behind_while_taps_come_and_go_under_the_feet() {
    // Other tests in the process would change the count.
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "adoption_against_deletion", "--ignored"]);
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = start(&mut program).unwrap().wait_with_output().unwrap();
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stdout)
    );
}

#[test]
#[ignore = "runs alone, in a process of its own"]
fn adoption_against_deletion() {
    in_namespace(|| {
        let elsewhere = Elsewhere::new();
        let before = open_descriptors();
        let elsewhere = &elsewhere;
        let add_and_adopt = |deleted_after: Option<Duration>| {
            elsewhere.run("ip tuntap add dev ib0.8001 mode tap");
            let both = &Barrier::new(2);
            std::thread::scope(|scope| {
                let deletion = deleted_after.map(|delay| {
                    scope.spawn(move || {
                        both.wait();
                        sleep(delay);
                        elsewhere.visit(|| while !delete_tap() {});
                    })
                });
                if deletion.is_some() {
                    both.wait();
                }
                let start = Instant::now();
                let adopted = adopt(elsewhere, 1).is_ok();
                let taken = start.elapsed();
                if deletion.is_none() {
                    assert!(elsewhere.visit(delete_tap));
                }
                (adopted, taken)
            })
        };
        let undisturbed = (0..5).map(|_| {
            let (adopted, taken) = add_and_adopt(None);
            assert!(adopted);
            taken
        });
        let undisturbed = undisturbed.min().unwrap();
        let (mut round, mut refused) = (0, false);
        // On a busy machine the deletion may come late in every one of the first rounds.
        while round < 60 || !refused {
            assert!(round < 1200, "the deletion never met an adoption");
            let (adopted, _) = add_and_adopt(Some(undisturbed * (round % 60) / 60));
            refused |= !adopted;
            round += 1;
            assert!(!elsewhere.run("ip -o link").contains("tun"));
            assert!(!run("ip -o link").contains("ibtap"));
        }
        assert_eq!(open_descriptors(), before);
    });
}

/// Deletes the TAP under its present name; false while it is away.
fn delete_tap() -> bool {
    let mut requests = rtnl::Requests::new().unwrap();
    let links = requests.links().unwrap();
    let tap = links.iter().find(|link| link.tun.is_some());
    tap.is_some_and(|tap| requests.delete_link(tap.index).is_ok())
}

#[test]
fn without_cap_sys_admin_the_error_names_it() {
    in_namespace(|| {
        let elsewhere = tap_elsewhere("");
        let mut capabilities = rustix::thread::capabilities(None).unwrap();
        capabilities.effective.remove(CapabilitySet::SYS_ADMIN);
        rustix::thread::set_capabilities(None, capabilities).unwrap();
        let error = adopt(&elsewhere, 1).unwrap_err();
        assert!(matches!(error, TapError::Namespace { .. }), "{error}");
        assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    });
}

#[test]
fn what_is_no_tap_or_not_there_is_refused_here_and_elsewhere() {
    in_namespace(|| {
        let elsewhere = Elsewhere::new();
        let refused = |wanted: fn(&TapError) -> bool| {
            for namespace in [None, Some(handle(&elsewhere))] {
                let error = Tap::adopt(&options(1), namespace.as_ref()).unwrap_err();
                assert!(wanted(&error), "{error}");
            }
        };
        refused(|error| matches!(error, TapError::Missing(_)));
        let other_kind = "ip link add ib0.8001 type veth peer name west";
        run(other_kind);
        elsewhere.run(other_kind);
        refused(|error| matches!(error, TapError::NameTaken { .. }));
        assert!(!run("ip -o link").contains("tun"));
    });
}

#[test]
fn a_tap_that_is_here_stays_here() {
    in_namespace(|| {
        run("ip tuntap add dev ib0.8001 mode tap");
        let index = index_here();
        let here = Namespace::current().unwrap();
        for namespace in [None, Some(&here)] {
            let (tap, queues) = Tap::adopt(&options(4), namespace).unwrap();
            assert_eq!((tap.ifindex(), queues.len()), (index, 1));
            assert_eq!(tap.namespace().unwrap().id().unwrap(), here.id().unwrap());
            close((tap, queues));
        }
    });
}

#[test]
fn an_open_tap_is_found_over_several_moves_and_back() {
    in_namespace(|| {
        let (tap, queues) = Tap::open(&options(1)).unwrap();
        let home = Namespace::current().unwrap();
        let (a, b) = (Elsewhere::new(), Elsewhere::new());
        let is_in = |namespace: &Namespace, name: &str| {
            assert_eq!(
                tap.namespace().unwrap().id().unwrap(),
                namespace.id().unwrap()
            );
            assert_eq!(tap.name().unwrap(), name);
        };
        is_in(&home, NAME);
        let move_to = |namespace: &Namespace, name: Option<&str>| {
            let index = index_here();
            let mut requests = rtnl::Requests::new().unwrap();
            requests.move_link(index, namespace, name, None).unwrap();
        };
        move_to(&handle(&a), None);
        is_in(&handle(&a), NAME);
        a.visit(|| move_to(&handle(&b), None));
        is_in(&handle(&b), NAME);
        b.run("ip link set ib0.8001 name storage0");
        is_in(&handle(&b), "storage0");
        b.run("ip link set storage0 name ib0.8001");
        b.visit(|| move_to(&home, Some("ib0.8002")));
        is_in(&home, "ib0.8002");
        run("ip link del ib0.8002");
        assert!(is_gone(&tap.namespace().unwrap_err()));
        assert!(is_gone(&queues[0].read(&mut [0; 100]).unwrap_err()));
    });
}

#[test]
fn moderation_is_read() {
    in_namespace(|| {
        run("ip tuntap add dev ib0.8001 mode tap");
        assert_eq!(
            ethtool::coalesce(NAME).unwrap(),
            ethtool::Coalesce::default()
        );
        run("ethtool -C ib0.8001 rx-frames 32");
        let set = ethtool::coalesce(NAME).unwrap();
        assert_eq!((set.rx_frames, set.rx_usecs), (32, 0));
        let missing = ethtool::coalesce("ib9").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
        let none = ethtool::coalesce("lo").unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::EOPNOTSUPP));
    });
}

#[test]
fn speed_is_read() {
    in_namespace(|| {
        run("ip link add fast type veth peer name peer0");
        // The speed of all veths (kernel drivers/net/veth.c, `veth_get_link_ksettings`).
        assert_eq!(ethtool::speed("fast").unwrap(), Some(10_000));
        let none = ethtool::speed("lo").unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::EOPNOTSUPP));
        let missing = ethtool::speed("ib9").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
    });
}

/// A namespace of `ip netns`, deleted at the end.
struct Named(String);

impl Named {
    fn new() -> Named {
        let name = format!("ibtap-adopt-{}", std::process::id());
        run(&format!("ip netns add {name}"));
        Named(name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn named_namespaces_are_known_by_name() {
    in_namespace(|| {
        let named = Named::new();
        let there = Namespace::named(&named.0).unwrap();
        assert_eq!(netns::name_of(&there), Some(named.0.clone()));
        let all = netns::named_all().unwrap();
        assert!(all.contains(&(named.0.clone(), there.id().unwrap())));
        assert_ne!(
            there.id().unwrap(),
            Namespace::current().unwrap().id().unwrap()
        );
        assert_eq!(netns::name_of(&Namespace::current().unwrap()), None);
        // A leftover of an interrupted `ip netns add`.
        let empty = format!("{}-empty", named.0);
        let path = format!("/run/netns/{empty}");
        File::create(&path).unwrap();
        let all = netns::named_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!all.iter().any(|(name, _)| *name == empty));
    });
}
