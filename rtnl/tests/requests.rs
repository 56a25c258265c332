//! Requests against the running kernel, each test in a network namespace of its own.

mod namespace;

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use namespace::{in_namespace, run};
use rtnl::{Address, Error, Requests, Scope};
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
        requests.set_tx_queue_len(a.index, 64).unwrap();
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

        // What another tool sees is what was set.
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

#[test]
fn a_bridge_tells_how_it_handles_multicast() {
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
        assert_eq!(link("above").lower, Some(east.index));
        assert_eq!(west.lower, Some(east.index));
        assert_eq!(link("lo").lower, None);
        let far = format!("far{}", std::process::id());
        run(&format!("ip netns add {far}"));
        run(&format!("ip link set west netns {far}"));
        let lower = requests.link_by_name("east").unwrap().lower;
        run(&format!("ip netns del {far}"));
        assert_eq!(lower, None, "an index of another namespace says nothing");
    });
}

#[test]
fn a_tap_tells_its_mode() {
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
        if !found.is_empty() && found.iter().all(Address::is_usable) {
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
        requests.add_address(a, v4, 24).unwrap();
        requests
            .add_address(a, "2001:db8::1".parse().unwrap(), 64)
            .unwrap();
        let found = settled(&mut requests, a);
        assert_eq!(found.len(), 3);
        let v4_found = found.iter().find(|found| found.ip == v4).unwrap();
        assert_eq!((v4_found.scope, v4_found.prefix_len), (Scope::Global, 24));

        let again = requests.add_address(a, v4, 24).unwrap_err();
        assert!(again.is_exists(), "{again}");
        let long = requests.add_address(a, v4, 33).unwrap_err();
        assert!(matches!(long, Error::Invalid { .. }), "{long}");
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
            "read interface nosuch: it does not exist"
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
            mtu.contains("set the MTU") && mtu.contains("the kernel says:"),
            "{mtu}"
        );
        let netns = requests
            .set_netns_by_name(a, "no-such-namespace")
            .unwrap_err();
        assert!(netns.is_not_found(), "{netns}");
        let netns = requests.set_netns_by_name(a, "../etc").unwrap_err();
        assert!(matches!(netns, Error::Invalid { .. }), "{netns}");
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
        assert!(error.is_permission());
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}

/// Deletes a named namespace whatever becomes of the test.
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

#[test]
fn a_link_moves_to_a_named_namespace() {
    let named = Named::new("move");
    let name = named.0.clone();
    in_namespace(move || {
        run("ip link add moving type veth peer name west");
        let mut requests = Requests::new().unwrap();
        let index = requests.link_by_name("moving").unwrap().index;
        requests.set_netns_by_name(index, &name).unwrap();
        assert!(requests.link_by_index(index).unwrap_err().is_not_found());
        assert!(run(&format!("ip -n {name} link show moving")).contains("moving"));
    });
}
