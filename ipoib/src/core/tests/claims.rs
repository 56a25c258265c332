//! ARP and neighbour discovery whose hardware address is not their sender's.

use super::*;

const VICTIM: [u8; 4] = [10, 0, 0, 2];
const VICTIM_V6: &str = "fe80::b";

fn victim() -> HardwareAddress {
    address(0xb, 0x4b)
}

fn attacker() -> HardwareAddress {
    address(0xe, 0x4e)
}

/// The owner of an IP address in the neighbour table.
fn owner(c: &Ipoib, ip: &str) -> Option<HardwareAddress> {
    let ip: IpAddr = ip.parse().unwrap();
    let mut owners = c.neighbours().filter(|n| n.ips.contains(&ip));
    owners.next().map(|n| n.address)
}

/// An ARP reply for the victim's address.
fn reply(claimed: HardwareAddress) -> Vec<u8> {
    let asker = address(0xa, 0x4a);
    payload(0x0806, &arp(2, &claimed.0, VICTIM, &asker.0, [10, 0, 0, 1]))
}

/// Neighbour discovery of `kind` with an address option.
fn discovery(kind: u8, option: u8, claimed: HardwareAddress) -> Vec<u8> {
    let message = nd(kind, VICTIM_V6, &ib_option(option, claimed));
    payload(0x86dd, &icmpv6(VICTIM_V6, "fe80::a", &message))
}

/// Each message that claims the victim's address for `claimed`.
fn claims(claimed: HardwareAddress) -> [Vec<u8>; 4] {
    let request = arp(1, &claimed.0, VICTIM, &[0; 20], [10, 0, 0, 1]);
    [
        reply(claimed),
        payload(0x0806, &request),
        discovery(135, 1, claimed),
        discovery(136, 2, claimed),
    ]
}

#[test]
fn an_attacker_cannot_move_an_address_to_a_port_that_is_not_its_own() {
    let made_up = address(0xdead, 0x99);
    for claimed in [made_up, address(0xdead, 0x4e)] {
        let mut c = a();
        let unicast = c.local().gid();
        for claim in claims(victim()) {
            receive(&mut c, &meta(victim(), unicast), &claim).unwrap();
        }
        for to in [unicast, c.broadcast_mgid()] {
            for claim in claims(claimed) {
                let refused = receive(&mut c, &meta(attacker(), to), &claim);
                assert_eq!(refused, Err(DropReason::ForgedClaim));
            }
        }
        assert_eq!(owner(&c, "10.0.0.2"), Some(victim()));
        assert_eq!(owner(&c, VICTIM_V6), Some(victim()));
        assert_eq!(c.neighbours().count(), 1, "nothing was learned");
        assert_eq!(c.counters().rx_dropped(DropReason::ForgedClaim), 8);
        assert!(
            c.drain_updates()
                .all(|u| !matches!(u, Update::Learned { address, .. }
            if address == claimed))
        );
    }
}

/// A router names the next hop. The address is removed, and the host resolves it.
#[test]
fn a_redirect_to_another_host_arrives_without_its_address() {
    let mut c = a();
    let router = address(0xc, 0x4c);
    let mut message = vec![137, 0, 0, 0, 0, 0, 0, 0];
    for ip in [VICTIM_V6, "2001:db8::1"] {
        message.extend(ip.parse::<Ipv6Addr>().unwrap().octets());
    }
    message.extend(ib_option(2, victim()));
    let packet = payload(0x86dd, &icmpv6("fe80::c", "fe80::a", &message));
    let l = c.local();
    let frame = receive(&mut c, &meta(router, l.gid()), &packet).unwrap();
    assert_eq!(frame.len(), 14 + 40 + 40);
    assert_eq!(icmpv6_checksum(&frame[14..]), 0);
    assert_eq!(owner(&c, VICTIM_V6), None);
    assert_eq!(c.counters().nd_options_stripped, 1);
    // To itself, as on a link with two prefixes.
    let own = [&message[..44], &router.0].concat();
    let own = payload(0x86dd, &icmpv6("fe80::c", "fe80::a", &own));
    let frame = receive(&mut c, &meta(router, l.gid()), &own).unwrap();
    assert_eq!(frame.len(), 14 + 40 + 40 + 8);
    assert_eq!(owner(&c, VICTIM_V6), Some(router));
}

/// With several queue pairs, a port may send from others than the one that its address names.
#[test]
fn another_queue_pair_of_the_port_is_refused_only_on_request() {
    let sender = address(0xb, 0x77);
    for (check, expected) in [
        (ClaimCheck::Off, None),
        (ClaimCheck::Gid, None),
        (ClaimCheck::Qpn, Some(DropReason::ForgedClaim)),
    ] {
        let mut c = a();
        c.set_claims(check);
        let to = c.local().gid();
        for claim in claims(victim()) {
            let result = receive(&mut c, &meta(sender, to), &claim).err();
            assert_eq!(result, expected, "{check}");
        }
        let found = owner(&c, "10.0.0.2");
        assert_eq!(found, expected.is_none().then(victim), "{check}");
    }
}

#[test]
fn the_check_can_be_disabled() {
    let mut c = a();
    c.set_claims(ClaimCheck::Off);
    let to = c.local().gid();
    receive(&mut c, &meta(attacker(), to), &reply(victim())).unwrap();
    assert_eq!(owner(&c, "10.0.0.2"), Some(victim()));
}

/// InfiniBand unicast may have no GRH: the GID of its sender is unknown, or that of the port which had the LID
/// before.
#[test]
fn without_a_source_gid_in_the_packet_a_claim_is_believed() {
    for gid in [Gid::UNSPECIFIED, address(0xf, 0).gid()] {
        let mut c = a();
        let to = c.local().gid();
        let m = Meta {
            src_gid: gid,
            has_src_gid: false,
            ..meta(victim(), to)
        };
        receive(&mut c, &m, &reply(victim())).unwrap();
        assert_eq!(owner(&c, "10.0.0.2"), Some(victim()));
        // The queue pair is known.
        c.set_claims(ClaimCheck::Qpn);
        let other = address(0xb, 0x99);
        let refused = receive(&mut c, &m, &reply(other));
        assert_eq!(refused, Err(DropReason::ForgedClaim));
    }
}

/// A bridge, a macvlan's host and a router with proxy ARP answer for others with their own hardware address.
#[test]
fn a_proxy_claims_addresses_of_others_for_itself() {
    let mut proxy = core(address(0xb, 0x4b), [6, 0, 0, 0, 0, 0xb]);
    proxy.set_stacked(true);
    let mut c = a();
    c.set_claims(ClaimCheck::Qpn);
    let guest = [6, 0, 0, 0, 0, 0x33];
    let behind = arp(1, &guest, [10, 0, 0, 33], &[0; 6], [10, 0, 0, 1]);
    let sent = send(
        &mut proxy,
        T0,
        &frame(MAC_BROADCAST, guest, 0x0806, &behind),
    );
    let Sent::Rewritten(to, _, packet) = sent else {
        panic!("{sent:?}")
    };
    receive(&mut c, &meta(proxy.local(), to), &packet).unwrap();
    assert_eq!(owner(&c, "10.0.0.33"), Some(proxy.local()));
}

/// A port with invented queue pairs cannot push the others out of the neighbour table.
#[test]
fn a_flood_of_claims_is_limited_and_leaves_other_neighbours_alone() {
    let mut c = Ipoib::new(Config {
        limits: Limits::default(),
        ..a().config
    });
    let to = c.local().gid();
    for claim in claims(victim()) {
        receive(&mut c, &meta(victim(), to), &claim).unwrap();
    }
    let mut last = Ok(Vec::new());
    for qpn in 0x100..0x100 + 40_000 {
        let flooder = address(0xe, qpn);
        let claim = arp(1, &flooder.0, [10, 9, 9, 9], &[0; 20], [10, 0, 0, 1]);
        last = receive(&mut c, &meta(flooder, to), &payload(0x0806, &claim));
    }
    assert_eq!(last, Err(DropReason::OverLimit));
    assert_eq!(owner(&c, "10.0.0.2"), Some(victim()), "it was not evicted");
    let limited = c.counters().rx_dropped(DropReason::OverLimit);
    assert_eq!(limited, 40_000 - 8192);
    // Neighbour discovery shares the limit.
    let flooder = address(0xe, 0x4e);
    let solicitation = discovery(135, 1, flooder);
    let refused = receive(&mut c, &meta(flooder, to), &solicitation);
    assert_eq!(refused, Err(DropReason::OverLimit));
    // The flooder's other packets, and the claims of others, pass.
    let data = payload(0x0800, &ipv4([10, 9, 9, 9], [10, 0, 0, 1], b"data"));
    receive(&mut c, &meta(flooder, to), &data).unwrap();
    for claim in claims(victim()) {
        receive(&mut c, &meta(victim(), to), &claim).unwrap();
    }
}
