//! Requests to the running kernel, each test in its own network namespace.

mod namespace;

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use namespace::{in_namespace, run};
use rtnl::{Address, Error, MacvlanMode, Requests, Scope, Stacking};
use rustix::thread::CapabilitySet;

#[test]
fn a_link_is_read_and_changed() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        let mut requests = Requests::new().unwrap();
        let a = requests.link_by_name("east").unwrap();
        assert_eq!(a.kind.as_deref(), Some("veth"));
        assert!(!a.up && !a.running && !a.lower_up && !a.is_usable());
        assert_eq!((a.mtu, a.hardware_type), (1500, 1));

        requests.set_mac(a.index, [2, 0, 0, 0, 0, 0x20]).unwrap();
        requests.set_mtu(a.index, 9000).unwrap();
        requests.set_alias(a.index, "ibtap: eth").unwrap();
        requests.set_gso_max(a.index, 60000).unwrap();
        run("ip link set east txqueuelen 64");
        requests.set_name(a.index, "fabric0").unwrap();
        requests.set_up(a.index).unwrap();
        let b = requests.link_by_name("west").unwrap();
        requests.set_up(b.index).unwrap();

        let a = requests.link_by_index(a.index).unwrap();
        assert_eq!(a.name, "fabric0");
        assert_eq!(a.address, Some([2, 0, 0, 0, 0, 0x20]));
        assert_eq!((a.mtu, a.tx_queue_len), (9000, 64));
        assert_eq!(a.alias.as_deref(), Some("ibtap: eth"));
        assert_eq!((a.gso_max_size, a.gso_ipv4_max_size), (60000, 60000));
        assert!(a.is_usable() && a.carrier && a.multicast);

        // Another tool shows the same values.
        let shown = run("ip -d link show fabric0");
        for text in [
            "mtu 9000",
            "qlen 64",
            "alias ibtap: eth",
            "gso_max_size 60000",
            "LOWER_UP",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }

        requests.set_alias(a.index, "").unwrap();
        requests.set_down(a.index).unwrap();
        let a = requests.link_by_index(a.index).unwrap();
        assert_eq!(a.alias, None);
        assert!(!a.up && !a.is_usable());
        let names: Vec<_> = requests
            .links()
            .unwrap()
            .into_iter()
            .map(|l| l.name)
            .collect();
        assert_eq!(names, ["lo", "west", "fabric0"]);

        requests.delete_link(a.index).unwrap();
        assert!(requests.link_by_index(a.index).unwrap_err().is_not_found());
        assert_eq!(requests.links().unwrap().len(), 1);
    });
}

#[test]
fn a_port_of_a_bridge_knows_its_master() {
    in_namespace(|| {
        run("ip link add br0 type bridge");
        run("ip link add east type veth peer name west");
        run("ip link set east master br0");
        let mut requests = Requests::new().unwrap();
        let bridge = requests.link_by_name("br0").unwrap();
        assert_eq!(
            requests.link_by_name("east").unwrap().master,
            Some(bridge.index)
        );
        assert_eq!(requests.link_by_name("west").unwrap().master, None);
    });
}

/// Runs a command that makes an interface; false if this kernel does not support it.
fn made(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let mut program = std::process::Command::new(words.next().unwrap());
    let output = program.args(words).output().unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        kit::skip(format_args!("{command}: {}", why.trim()));
    }
    output.status.success()
}

/// The stacking on the interface `name`.
fn stacking(name: &str) -> Stacking {
    let links = Requests::new().unwrap().links().unwrap();
    let link = links.iter().find(|link| link.name == name).unwrap();
    Stacking::on(&links, link)
}

#[test]
fn a_port_of_a_bridge_has_guests() {
    in_namespace(|| {
        run("ip tuntap add dev ib0 mode tap");
        assert_eq!(stacking("ib0"), Stacking::None);
        assert!(!stacking("ib0").has_guests());
        run("ip link add br0 type bridge");
        run("ip link set ib0 master br0");
        assert_eq!(stacking("ib0"), Stacking::Bridge("br0".into()));
        assert!(stacking("ib0").has_guests());
        let link = Requests::new().unwrap().link_by_name("ib0").unwrap();
        assert!(link.promiscuity > 0);
        run("ip link set ib0 nomaster");
        assert_eq!(stacking("ib0"), Stacking::None);
    });
}

#[test]
fn a_bond_is_one_host_until_something_is_stacked_on_it() {
    in_namespace(|| {
        if !made("ip link add bond0 type bond mode active-backup") {
            return;
        }
        run("ip tuntap add dev ib0 mode tap");
        run("ip link set ib0 master bond0");
        assert_eq!(stacking("ib0"), Stacking::Bond("bond0".into()));
        assert!(!stacking("ib0").has_guests());
        run("ip link add br0 type bridge");
        run("ip link set bond0 master br0");
        assert_eq!(stacking("ib0"), Stacking::Bridge("br0".into()));
    });
}

#[test]
fn a_routing_domain_has_no_guests() {
    in_namespace(|| {
        if !made("ip link add red type vrf table 10") {
            return;
        }
        run("ip tuntap add dev ib0 mode tap");
        run("ip link set ib0 master red");
        assert_eq!(stacking("ib0"), Stacking::None);
    });
}

#[test]
fn what_is_made_on_an_interface_shows() {
    in_namespace(|| {
        run("ip tuntap add dev ib0 mode tap");
        run("ip link set ib0 up");
        let index = Requests::new().unwrap().link_by_name("ib0").unwrap().index;
        let vlan = made("ip link add link ib0 name ib0.5 type vlan id 5");
        if vlan {
            assert_eq!(stacking("ib0"), Stacking::Other("ib0.5".into()));
        }
        run("ip link add link ib0 name mv0 type macvlan mode vepa");
        assert_eq!(stacking("ib0"), Stacking::Macvlan("mv0".into()));
        let above = Requests::new().unwrap().link_by_name("mv0").unwrap();
        assert_eq!(above.link, Some(index));
        assert_eq!(above.macvlan, Some(MacvlanMode::Vepa));

        // After a move only promiscuity of the lower interface shows it.
        if vlan {
            run("ip link del ib0.5");
        }
        let elsewhere = Named::new("macvlan");
        run("ip link set mv0 up");
        run(&format!("ip link set mv0 netns {}", elsewhere.0));
        run(&format!("ip -n {} link set mv0 up", elsewhere.0));
        assert_eq!(stacking("ib0"), Stacking::Promiscuous);
        run(&format!("ip -n {} link del mv0", elsewhere.0));
        assert_eq!(stacking("ib0"), Stacking::None);
    });
}

#[test]
fn the_lower_interface_of_another_namespace_is_no_index_here() {
    let named = Named::new("lower");
    let name = named.0.clone();
    in_namespace(move || {
        run("ip link add east type veth peer name west");
        let mut requests = Requests::new().unwrap();
        let west = requests.link_by_name("west").unwrap();
        assert_eq!(
            requests.link_by_name("east").unwrap().link,
            Some(west.index)
        );
        assert_eq!(stacking("west"), Stacking::None, "a peer is not above");
        run(&format!("ip link set west netns {name}"));
        assert_eq!(requests.link_by_name("east").unwrap().link, None);
    });
}

#[test]
fn users_of_every_group_are_counted() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        let count = || {
            let mut requests = Requests::new().unwrap();
            requests.link_by_name("east").unwrap().allmulti
        };
        assert_eq!(count(), 0);
        run("ip link set east allmulticast on");
        assert_eq!(count(), 1);
    });
}

#[test]
fn a_bridge_reports_its_multicast_settings() {
    in_namespace(|| {
        run("ip link add br0 type bridge");
        let mut requests = Requests::new().unwrap();
        let bridge = requests.link_by_name("br0").unwrap().bridge.unwrap();
        assert!(bridge.snooping && !bridge.querier && !bridge.mld_querier_seen);
        run("ip link set br0 type bridge mcast_snooping 0");
        let bridge = requests.link_by_name("br0").unwrap().bridge.unwrap();
        assert!(!bridge.snooping);
        run("ip link set br0 type bridge mcast_snooping 1 mcast_querier 1");
        let bridge = requests.link_by_name("br0").unwrap().bridge.unwrap();
        assert!(bridge.snooping && bridge.querier && bridge.mld_querier_seen);
        assert_eq!(requests.link_by_name("lo").unwrap().bridge, None);
    });
}

#[test]
fn the_interface_below_is_known_where_it_is_near() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        run("ip link add link east name above type macvlan");
        let mut requests = Requests::new().unwrap();
        let mut link = |name| requests.link_by_name(name).unwrap();
        let (east, west) = (link("east"), link("west"));
        assert_eq!(link("above").link, Some(east.index));
        assert_eq!(west.link, Some(east.index));
        assert_eq!(link("lo").link, None);
        let far = Named::new("far");
        run(&format!("ip link set west netns {}", far.0));
        let lower = requests.link_by_name("east").unwrap().link;
        assert_eq!(
            lower, None,
            "an index of another namespace is meaningless here"
        );
    });
}

#[test]
fn a_tap_reports_its_mode() {
    in_namespace(|| {
        run("ip tuntap add dev t0 mode tap multi_queue vnet_hdr");
        run("ip tuntap add dev t1 mode tun");
        let mut requests = Requests::new().unwrap();
        let tap = requests.link_by_name("t0").unwrap().tun.unwrap();
        assert!(tap.tap && tap.multi_queue && tap.persist && tap.vnet_hdr);
        assert_eq!((tap.queues, tap.disabled_queues), (0, 0));
        let tun = requests.link_by_name("t1").unwrap().tun.unwrap();
        assert!(!tun.tap && !tun.multi_queue && !tun.vnet_hdr && tun.persist);
        assert_eq!(requests.link_by_name("lo").unwrap().tun, None);
    });
}

fn settled(requests: &mut Requests, ifindex: u32) -> Vec<Address> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let found = requests.addresses(ifindex).unwrap();
        if !found.is_empty() && found.iter().all(Address::is_unique) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn addresses_are_added_and_listed() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        run("ip link set east address 02:00:00:00:00:20");
        run("ip link set west up");
        let mut requests = Requests::new().unwrap();
        let a = requests.link_by_name("east").unwrap().index;
        assert!(requests.addresses(a).unwrap().is_empty());
        assert!(requests.addresses(a + 1000).unwrap().is_empty());

        requests.set_up(a).unwrap();
        let fresh = requests.addresses(a).unwrap();
        assert!(fresh.iter().all(|found| found.tentative), "{fresh:?}");
        let link_local = settled(&mut requests, a)[0];
        assert_eq!(link_local.ip, "fe80::ff:fe00:20".parse::<IpAddr>().unwrap());
        assert_eq!((link_local.scope, link_local.prefix_len), (Scope::Link, 64));
        assert!(link_local.permanent && !link_local.temporary && !link_local.deprecated);
        assert!(link_local.created > 0);

        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        run("ip addr add 192.0.2.1/24 dev east");
        run("ip addr add 2001:db8::1/64 dev east");
        let found = settled(&mut requests, a);
        assert_eq!(found.len(), 3);
        let v4_found = found.iter().find(|found| found.ip == v4).unwrap();
        assert_eq!((v4_found.scope, v4_found.prefix_len), (Scope::Global, 24));
    });
}

#[test]
fn an_optimistic_address_is_usable_before_it_is_unique() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        for name in ["east", "west"] {
            run(&format!("ip link set {name} up"));
        }
        let mut requests = Requests::new().unwrap();
        let east = requests.link_by_name("east").unwrap().index;
        settled(&mut requests, east);
        run("sysctl -qw net.ipv6.conf.east.optimistic_dad=1");
        run("ip addr add 2001:db8::1/64 dev east optimistic");
        let global =
            |all: &[rtnl::Address]| *all.iter().find(|a| a.scope == Scope::Global).unwrap();
        let new = global(&requests.addresses(east).unwrap());
        assert!(new.is_usable() && !new.is_unique(), "{new:?}");
        assert!(global(&settled(&mut requests, east)).is_unique());
    });
}

#[test]
fn forwarding_is_a_setting_of_the_interface() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        run("sysctl -qw net.ipv6.conf.east.forwarding=1");
        let mut requests = Requests::new().unwrap();
        for (name, forwards) in [("east", true), ("west", false)] {
            let index = requests.link_by_name(name).unwrap().index;
            assert_eq!(requests.forwards_ipv6(index).unwrap(), forwards, "{name}");
        }
        assert!(requests.forwards_ipv6(99).unwrap_err().is_not_found());
    });
}

#[test]
fn duplicate_address_detection_shows() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        for name in ["east", "west"] {
            run(&format!("ip link set {name} address 02:00:00:00:00:20"));
            run(&format!("ip link set {name} up"));
        }
        let mut requests = Requests::new().unwrap();
        let mut indexes = ["east", "west"].map(|name| requests.link_by_name(name).unwrap().index);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let failed = indexes.iter_mut().any(|index| {
                let found = requests.addresses(*index).unwrap();
                found.iter().any(|a| a.dadfailed && !a.is_usable())
            });
            if failed {
                break;
            }
            assert!(Instant::now() < deadline, "no address failed");
            sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn refusals_are_typed_and_quote_the_kernel() {
    in_namespace(|| {
        run("ip link add east type veth peer name west");
        let mut requests = Requests::new().unwrap();
        let missing = requests.link_by_name("nosuch").unwrap_err();
        assert!(missing.is_not_found());
        assert_eq!(
            missing.to_string(),
            "cannot read interface nosuch: not found"
        );
        for name in ["", "..", "a/b", "a b", "sixteen-bytes-xx"] {
            let error = requests.link_by_name(name).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }

        let a = requests.link_by_name("east").unwrap().index;
        assert!(requests.set_name(a, "west").unwrap_err().is_exists());
        assert!(requests.set_up(a + 1000).unwrap_err().is_not_found());
        let mtu = requests.set_mtu(a, 1).unwrap_err().to_string();
        assert!(
            mtu.contains("set the MTU") && mtu.contains("(kernel:"),
            "{mtu}"
        );
    });
}

#[test]
fn without_cap_net_admin_changes_are_not_permitted() {
    in_namespace(|| {
        let mut capabilities = rustix::thread::capabilities(None).unwrap();
        capabilities.effective.remove(CapabilitySet::NET_ADMIN);
        rustix::thread::set_capabilities(None, capabilities).unwrap();
        let mut requests = Requests::new().unwrap();
        let lo = requests.link_by_name("lo").unwrap().index;
        let error = requests.set_up(lo).unwrap_err();
        assert!(matches!(error, Error::Permission { .. }));
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}

/// A named namespace, deleted at the end of the test.
struct Named(String);

impl Named {
    fn new(suffix: &str) -> Named {
        let name = format!("rtnl-{}-{suffix}", std::process::id());
        run(&format!("ip netns add {name}"));
        Named(name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.0));
    }
}
