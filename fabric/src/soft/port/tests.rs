use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;

use super::*;
use crate::namespace::Namespace;

/// Processes the port until its events, or the state after them, are as expected.
fn process_until(port: &mut SoftPort, expected: impl Fn(&[PortEvent]) -> bool) {
    for _ in 0..500 {
        let events = port.process();
        if expected(&events) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("in vain: {:?}", port.attributes());
}

fn an_mtu_too_small_for_ipv6() {
    let _ns = Namespace::enter("small-mtu");
    Namespace::ip("link add u0 mtu 9000 type veth peer name u1");
    Namespace::ip("link set u1 up");
    Namespace::ip("link set u0 up");
    let mut port = SoftPort::open(SoftConfig::new("u0")).unwrap();
    let (pkey, qkey) = (PKey::DEFAULT, QKey::IPOIB_DEFAULT);
    let qpn = None;
    let id = port.create_ud(UdInit { pkey, qkey, qpn }).unwrap().id;
    let joined = [Joined::Now(GroupParameters::unadministered(qkey))];
    let groups = ["ff12:401b:ffff::1", "ff12:401b:ffff::2"].map(|group| group.parse().unwrap());
    let [first, second] = groups.map(|group: Ipv6Addr| Gid::from(IpAddr::from(group)));
    assert_eq!(port.change_groups(id, &[first], &[]).unwrap(), joined);
    assert!(Namespace::has_joined("u0", groups[0]));
    Namespace::ip("link set u0 mtu 1200");
    process_until(&mut port, |events| matches!(events, [PortEvent::Down(_)]));
    assert!(!Namespace::has_joined("u0", groups[0]));
    // A join in between waits for the underlay.
    assert_eq!(port.change_groups(id, &[second], &[]).unwrap(), joined);
    Namespace::ip("link set u0 mtu 9000");
    process_until(&mut port, |events| events.contains(&PortEvent::Active));
    let both_joined = || groups.iter().all(|g| Namespace::has_joined("u0", *g));
    assert!(both_joined());
    // The port may find the address present again, and see no time without it.
    std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap();
    Namespace::ip("link set u0 mtu 1200");
    Namespace::ip("link set u0 mtu 9000");
    assert!(!both_joined());
    process_until(&mut port, |_| both_joined());
}

#[test]
fn the_port_joins_its_groups_again_after_an_mtu_too_small_for_ipv6() {
    thread::spawn(an_mtu_too_small_for_ipv6).join().unwrap();
}
