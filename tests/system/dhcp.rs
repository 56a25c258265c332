//! DHCP, DHCPv6 and router advertisements between real programs, through the translator.

mod frame;
mod programs;

use std::net::Ipv6Addr;

use crate::lab::packet::frames;
use crate::lab::{Guest, Host, LINK_MTU, Lab, SOON, Station, eventually};
use frame::{ETHERNET, advertisement, discover, mtu_option, signature_option, udp4};
use programs::{Capture, Client, Dnsmasq, InfinibandServer, Server, script};

/// The first and the last address of the servers' leases.
const FIRST: &str = "10.9.0.150";
const LAST: &str = "10.9.0.159";

const DHCP: &str = "udp port 67 or udp port 68";

/// Two hosts with daemons that have these options: the first without an IPv4 address, like a DHCP client at
/// first, the second with its address.
fn client_and_server(options: &[&str]) -> Option<Lab> {
    let mut lab = Lab::pair()?;
    let (client, server) = lab.two();
    client.start(options);
    server.start(options);
    server.configure("ib0");
    client.ok("ip link set ib0 up");
    client.await_carrier("ib0", true);
    Some(lab)
}

/// A station and its interface in the test.
#[derive(Clone, Copy)]
struct At<'a>(&'a Station, &'a str);

/// Starts a client, and checks that it gets a lease, renews it by unicast, and releases it. The server has
/// the address `own` and leases from 10.9.0.150.
fn lease_renewal_release(
    client: At,
    start: impl Fn(&Station, &str) -> Client,
    at: At,
    own: &str,
    server: &dyn Server,
) {
    let seen = Capture::start(at.0, at.1, DHCP);
    let program = start(client.0, client.1);
    let address = program.await_lease();
    assert!(address.starts_with("10.9.0.15"), "{address}");
    eventually(SOON, "the server to answer a ping", || {
        client.0.pings(own).then_some(())
    });
    assert_eq!(program.renews(), address);
    seen.await_fields(
        at.0,
        &format!(
            "dhcp.option.dhcp == 3 && dhcp.ip.client == {address} && dhcp.flags.bc == 0 \
             && ip.src == {address} && ip.dst == {own}"
        ),
        &["frame.number"],
    );
    seen.await_fields(
        at.0,
        &format!("dhcp.option.dhcp == 5 && dhcp.ip.client == {address} && ip.dst == {address}"),
        &["frame.number"],
    );
    program.release(client.0, server, &address);
}

fn udhcpc(station: &Station, interface: &str) -> Client {
    Client::udhcpc(station, interface)
}

fn dhclient(station: &Station, interface: &str) -> Client {
    Client::dhclient(station, interface, "-4")
}

/// A client on `ib0` and dnsmasq on that of the other host.
fn on_ib0_from_dnsmasq(start: impl Fn(&Station, &str) -> Client) {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    let server = Dnsmasq::v4(b, "ib0", FIRST, LAST);
    lease_renewal_release(At(a, "ib0"), start, At(b, "ib0"), &b.v4(), &server);
}

#[test]
fn udhcpc_leases_from_dnsmasq() {
    on_ib0_from_dnsmasq(udhcpc);
}

#[test]
fn dhclient_leases_from_dnsmasq() {
    on_ib0_from_dnsmasq(dhclient);
}

/// A client on `ib0` and a server that ignores Ethernet addresses: it returns none in answers, and answers
/// only requests for a broadcast answer.
fn on_ib0_from_infiniband(start: impl Fn(&Station, &str) -> Client) {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    let server = InfinibandServer::start(b, "ib0", &b.v4(), FIRST);
    let seen = Capture::start(a, "ib0", DHCP);
    lease_renewal_release(At(a, "ib0"), start, At(b, "ib0"), &b.v4(), &server);
    let own = a.link("ib0")["address"].as_str().expect("a MAC").to_owned();
    for answer in ["2", "5"] {
        let found = seen.await_fields(
            a,
            &format!("dhcp.option.dhcp == {answer}"),
            &[
                "dhcp.hw.type",
                "dhcp.hw.len",
                "dhcp.hw.mac_addr",
                "udp.checksum.status",
            ],
        );
        for fields in found {
            // The client identifier may contain the type and the address, too.
            let restored = [0, 1, 2].map(|k| fields[k].split(',').next());
            assert_eq!(restored, ["0x01", "6", &own].map(Some));
            assert_ne!(fields[3], "0", "a wrong checksum");
        }
    }
}

#[test]
fn c122_c123_udhcpc_leases_from_a_server_with_infiniband_answers() {
    on_ib0_from_infiniband(udhcpc);
}

#[test]
fn c122_c123_dhclient_leases_from_a_server_with_infiniband_answers() {
    on_ib0_from_infiniband(dhclient);
}

#[test]
fn c122_requests_arrive_asking_for_broadcast_answers() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    let seen = Capture::start(b, "ib0", DHCP);
    let server = InfinibandServer::start(b, "ib0", &b.v4(), FIRST);
    let program = udhcpc(a, "ib0");
    program.await_lease();
    for kind in ["discover", "request"] {
        let requests = server.requests(kind);
        assert!(!requests.is_empty(), "no {kind}");
        for request in requests {
            assert_eq!(request["broadcast"], true, "{request}");
            assert_eq!(request["htype"], 1, "{request}");
            assert_eq!(request["answer"], "255.255.255.255", "{request}");
        }
    }
    // The capture sees unfinished checksums in the server's own answers.
    let requests = seen.await_fields(b, "dhcp.type == 1", &["udp.checksum.status"]);
    assert!(
        requests.iter().all(|fields| fields[0] == "1"),
        "{requests:?}"
    );
}

/// Two hosts with daemons, the first with a bridge over `ib0` and a guest behind it without an address.
fn guest_and_server() -> Option<(Lab, Guest)> {
    let mut lab = Lab::running_pair()?;
    let a = lab.host(0);
    a.bridge();
    let guest = Guest::attach_bare(a, 1);
    Some((lab, guest))
}

fn guest_leases(guest: &Guest, at: At, own: &str) {
    let server = Dnsmasq::v4(at.0, at.1, FIRST, LAST);
    for start in [udhcpc, dhclient] {
        lease_renewal_release(At(guest, "eth0"), start, at, own, &server);
    }
}

#[test]
fn guests_lease_from_dnsmasq_on_ib0() {
    let Some((mut lab, guest)) = guest_and_server() else {
        return;
    };
    let b = lab.host(1);
    guest_leases(&guest, At(b, "ib0"), &b.v4());
}

#[test]
fn guests_lease_from_dnsmasq_in_a_guest() {
    let Some((mut lab, guest)) = guest_and_server() else {
        return;
    };
    let b: &Host = lab.host(1);
    b.bridge();
    let server = Guest::attach(b, 2);
    guest_leases(&guest, At(&server, "eth0"), &server.v4());
}

#[test]
fn guests_lease_from_a_server_with_infiniband_answers() {
    let Some((mut lab, guest)) = guest_and_server() else {
        return;
    };
    let b = lab.host(1);
    let own = b.v4();
    let server = InfinibandServer::start(b, "ib0", &own, FIRST);
    for start in [udhcpc, dhclient] {
        lease_renewal_release(At(&guest, "eth0"), start, At(b, "ib0"), &own, &server);
    }
}

/// A client of a kernel IPoIB host, on the first host's `ib0`, leases from dnsmasq.
fn infiniband_client_leases(client: &Station, at: At) {
    let server = Dnsmasq::v4(at.0, at.1, FIRST, LAST);
    // RFC 4361: type 255, an IAID, a DUID-LL of hardware type 32.
    let id = "ff00000001000300200002c90300e77e12";
    let output = client.ok(&format!("python3 {} ib0 {id}", script("client.py")));
    let answers: Vec<serde_json::Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), 2, "{output}");
    for answer in &answers {
        assert_eq!(answer["htype"], 32, "{output}");
        assert_eq!(answer["hlen"], 0, "{output}");
    }
    let address = answers[1]["yiaddr"].as_str().expect("an address");
    assert!(server.logged(&["DHCPACK", address]), "{output}");
}

#[test]
fn infiniband_clients_lease_from_dnsmasq() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    infiniband_client_leases(a, At(b, "ib0"));
}

#[test]
fn infiniband_clients_lease_from_dnsmasq_in_a_guest() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    b.bridge();
    let server = Guest::attach(b, 2);
    infiniband_client_leases(a, At(&server, "eth0"));
}

/// The MAC of an interface.
fn mac(station: &Station, interface: &str) -> [u8; 6] {
    let shown = station.link(interface)["address"].clone();
    let mut bytes = shown.as_str().expect("a MAC").split(':');
    std::array::from_fn(|_| {
        let byte = bytes.next().expect("six bytes");
        u8::from_str_radix(byte, 16).expect("hexadecimal")
    })
}

fn send(station: &Station, interface: &str, frames: &[Vec<u8>]) {
    let hex = |frame: &Vec<u8>| -> String { frame.iter().map(|b| format!("{b:02x}")).collect() };
    let words: Vec<String> = frames.iter().map(hex).collect();
    station.ok(&format!(
        "python3 {} {interface} {}",
        script("send.py"),
        words.join(" ")
    ));
}

/// Sends frames on one `ib0` and expects as many on the other; returns the latter.
fn carried(lab: &mut Lab, filter: &str, sent: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (a, b) = lab.two();
    let seen = Capture::start(b, "ib0", filter);
    send(a, "ib0", sent);
    eventually(SOON, "the frames on the other side", || {
        let file = std::fs::read(seen.file()).ok()?;
        let arrived = frames(&file);
        (arrived.len() >= sent.len()).then_some(arrived)
    })
}

/// Frames of two flows may be reordered.
fn assert_untouched(sent: &[Vec<u8>], arrived: &[Vec<u8>]) {
    let packets = |frames: &[Vec<u8>]| {
        let mut packets: Vec<_> = frames.iter().map(|f| f[ETHERNET..].to_vec()).collect();
        packets.sort();
        packets
    };
    assert_eq!(packets(sent), packets(arrived));
}

/// Packets similar to DHCP that must stay unchanged.
fn malformed_and_foreign(mac: [u8; 6]) -> Vec<Vec<u8>> {
    let good = discover(mac);
    let edited = |at: usize, bytes: &[u8]| {
        let mut message = good.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        udp4(mac, 68, 67, &message)
    };
    let mut wrong_sum = udp4(mac, 68, 67, &good);
    wrong_sum[ETHERNET + 26] ^= 0x55;
    let mut long_udp = udp4(mac, 68, 67, &good);
    long_udp[ETHERNET + 24] += 1;
    let mut short_udp = udp4(mac, 68, 67, &good);
    short_udp[ETHERNET + 24..ETHERNET + 26].copy_from_slice(&[0, 7]);
    let mut first_fragment = udp4(mac, 68, 67, &good);
    first_fragment[ETHERNET + 6] = 0x20;
    frame::fix_ipv4_header(&mut first_fragment);
    vec![
        udp4(mac, 68, 67, &[]),
        udp4(mac, 68, 67, &good[..235]),
        udp4(mac, 68, 67, &good[..100]),
        // An answer, another hardware address length, a relayed request.
        edited(0, &[2]),
        edited(2, &[17]),
        edited(24, &[10, 9, 0, 77]),
        // Options longer than the packet, and options without an end.
        edited(240, &[53, 200]),
        udp4(mac, 68, 67, &good[..good.len() - 1]),
        udp4(mac, 68, 67, &good[..241]),
        wrong_sum,
        long_udp,
        short_udp,
        first_fragment,
        // Other ports.
        udp4(mac, 67, 67, &good),
        udp4(mac, 68, 6767, &good),
    ]
}

fn malformed_passes_untouched(options: &[&str]) {
    let Some(mut lab) = client_and_server(options) else {
        return;
    };
    let own = mac(lab.host(0), "ib0");
    let sent = malformed_and_foreign(own);
    let arrived = carried(&mut lab, "udp", &sent);
    assert_untouched(&sent, &arrived);
    assert_eq!(lab.host(0).counter("ib0", "dhcp_translated"), 0);
    // The correct message is changed.
    let good = [udp4(own, 68, 67, &discover(own))];
    let arrived = carried(&mut lab, DHCP, &good);
    assert_ne!(good[0][ETHERNET..], arrived[0][ETHERNET..]);
    assert_eq!(lab.host(0).counter("ib0", "dhcp_translated"), 1);
}

#[test]
fn malformed_dhcp_passes_untouched() {
    malformed_passes_untouched(&[]);
}

#[test]
fn malformed_dhcp_passes_untouched_where_requests_are_rewritten() {
    malformed_passes_untouched(&["--dhcp", "rfc4390"]);
}

#[test]
fn nothing_is_changed_where_dhcp_is_off() {
    let Some(mut lab) = client_and_server(&["--dhcp", "off"]) else {
        return;
    };
    let own = mac(lab.host(0), "ib0");
    let sent = [udp4(own, 68, 67, &discover(own))];
    let arrived = carried(&mut lab, DHCP, &sent);
    assert_untouched(&sent, &arrived);
}

#[test]
fn c123_requests_leave_in_infiniband_form_and_answers_come_back_in_ethernets() {
    let Some(mut lab) = client_and_server(&["--dhcp", "rfc4390"]) else {
        return;
    };
    let (a, b) = lab.two();
    let server = InfinibandServer::start(b, "ib0", &b.v4(), FIRST);
    for start in [udhcpc, dhclient] {
        let wire = Capture::start(b, "eth0", "udp port 4791");
        let seen = Capture::start(b, "ib0", DHCP);
        lease_renewal_release(At(a, "ib0"), start, At(b, "ib0"), &b.v4(), &server);
        drop(seen);
        let fields = ["dhcp.hw.type", "dhcp.hw.len", "udp.checksum.status"];
        let (inner, all) = eventually(SOON, "discover, request, renewal and release", || {
            let inner = wire.inner();
            let all = inner.fields(b, "dhcp.type == 1", &fields);
            (all.len() >= 4).then_some((inner, all))
        });
        for fields in &all {
            // The client identifier may have a hardware type, too.
            assert_eq!(fields[0].split(',').next(), Some("0x20"), "{all:?}");
            assert_eq!(fields[1], "0", "{all:?}");
            assert_eq!(fields[2], "1", "a wrong checksum: {all:?}");
        }
        // RFC 4390, section 2.1: chaddr is zero and option 61 appears once.
        let strict = "dhcp.type == 1 && dhcp[28:16] == 00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00 \
                      && dhcp.option.type == 61";
        assert_eq!(inner.fields(b, strict, &["frame.number"]).len(), all.len());
    }
    for request in server.requests("request") {
        assert_eq!(request["htype"], 32, "{request}");
        assert_eq!(request["hlen"], 0, "{request}");
        assert_ne!(request["client_id"], "", "{request}");
    }
}

const ADVERTISED: &str = "icmpv6.type == 134";

/// A valid address of `ib0` that `keep` accepts.
fn await_v6(station: &Station, interface: &str, keep: impl Fn(&Ipv6Addr) -> bool) -> String {
    eventually(SOON, "an IPv6 address", || {
        let shown = station.json(&format!("ip -6 -j addr show dev {interface} -tentative"));
        shown[0]["addr_info"].as_array()?.iter().find_map(|entry| {
            let text = entry["local"].as_str()?;
            keep(&text.parse().ok()?).then(|| text.to_owned())
        })
    })
}

/// Formed from an advertised prefix, fd09::/64, not assigned by DHCPv6.
fn is_autoconfigured(address: &Ipv6Addr) -> bool {
    address.segments()[..4] == [0xfd09, 0, 0, 0] && address.segments()[4..7] != [0, 0, 0]
}

/// An address of dnsmasq's leases.
fn is_leased(address: &Ipv6Addr) -> bool {
    address.segments()[..7] == [0xfd09, 0, 0, 0, 0, 0, 0]
        && (0x100..=0x1ff).contains(&address.segments()[7])
}

/// Checks that a station forms an address from router advertisements, and gets, renews and releases a DHCPv6
/// lease.
fn autoconfiguration_and_dhcpv6(client: At, server: &Station, dnsmasq: &Dnsmasq) {
    let own = await_v6(client.0, client.1, is_autoconfigured);
    eventually(SOON, "an answer to the advertised address", || {
        server.pings(&own).then_some(())
    });
    client.0.await_link_local(client.1);
    let program = Client::dhclient(client.0, client.1, "-6");
    let leased = program.await_lease();
    assert!(is_leased(&leased.parse().expect("an address")), "{leased}");
    eventually(SOON, "an answer to the leased address", || {
        server.pings(&leased).then_some(())
    });
    let program = program.back_when_it_is_time_to_renew(client.0, client.1, "-6");
    assert_eq!(program.renews(), leased);
    assert!(dnsmasq.logged(&["DHCPRENEW"]));
    program.release(client.0, dnsmasq, &leased);
}

#[test]
fn hosts_configure_themselves_by_advertisements_and_dhcpv6() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    let seen = Capture::start(a, "ib0", "icmp6");
    // A smaller MTU is the router's decision.
    let dnsmasq = Dnsmasq::v6(b, "ib0", "fd09::", 2000);
    autoconfiguration_and_dhcpv6(At(a, "ib0"), b, &dnsmasq);
    let mtu = a.ok("sysctl -n net.ipv6.conf.ib0.mtu");
    assert_eq!(mtu.trim(), "2000");
    let advertised = seen.await_fields(a, ADVERTISED, &["icmpv6.opt.mtu"]);
    assert!(advertised.iter().all(|f| f[0] == "2000"), "{advertised:?}");
}

#[test]
fn advertised_mtus_above_the_links_are_lowered_to_it() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    let seen = Capture::start(a, "ib0", "icmp6");
    let _dnsmasq = Dnsmasq::v6(b, "ib0", "fd09::", 9000);
    await_v6(a, "ib0", is_autoconfigured);
    let fields = ["icmpv6.opt.mtu", "icmpv6.checksum.status"];
    let advertised = seen.await_fields(a, ADVERTISED, &fields);
    let link = LINK_MTU.to_string();
    for advertisement in &advertised {
        assert_eq!(*advertisement, [&link, "1"], "{advertised:?}");
    }
    assert!(b.counter("ib0", "ra_mtu_clamped") > 0);
}

#[test]
fn signed_advertisements_keep_their_mtu() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let own = mac(lab.host(0), "ib0");
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    let signed = [mtu_option(9000), signature_option()].concat();
    let sent = [
        advertisement(own, source, &signed),
        advertisement(own, source, &mtu_option(9000)),
    ];
    let arrived = carried(&mut lab, "src fe80::77 and icmp6", &sent);
    assert_untouched(&sent[..1], &arrived[..1]);
    assert_eq!(
        arrived[1][ETHERNET..],
        advertisement(own, source, &mtu_option(LINK_MTU))[ETHERNET..]
    );
}

#[test]
fn guests_configure_themselves_by_advertisements_and_dhcpv6() {
    let Some((mut lab, guest)) = guest_and_server() else {
        return;
    };
    let b = lab.host(1);
    // The guest's own link could carry the advertised MTU.
    guest.ok("ip link set eth0 mtu 9000");
    let dnsmasq = Dnsmasq::v6(b, "ib0", "fd09::", 9000);
    autoconfiguration_and_dhcpv6(At(&guest, "eth0"), b, &dnsmasq);
    let mtu = guest.ok("sysctl -n net.ipv6.conf.eth0.mtu");
    assert_eq!(mtu.trim(), LINK_MTU.to_string());
}

/// The router flags of all advertisements that a station's `ib0` receives from this address while something changes
/// there; waits for the first. Programs do not send advertisements to all nodes unasked.
fn announced_while(station: &Station, router: &str, change: impl FnOnce()) -> Vec<String> {
    let seen = Capture::start(station, "ib0", "icmp6");
    change();
    let announced = format!("icmpv6.type == 136 && ipv6.src == {router} && ipv6.dst == ff02::1");
    let flags = seen.await_fields(station, &announced, &["icmpv6.nd.na.flag.r"]);
    flags.into_iter().flatten().collect()
}

#[test]
fn c125_hosts_keep_their_default_route_when_the_address_of_its_router_changes() {
    let Some(mut lab) = client_and_server(&[]) else {
        return;
    };
    let (a, b) = lab.two();
    b.ok("sysctl -qw net.ipv6.conf.ib0.forwarding=1");
    let default = || a.ok("ip -6 route show default dev ib0 proto ra");
    let dnsmasq = Dnsmasq::v6(b, "ib0", "fd09::", 2000);
    eventually(SOON, "a default route", || {
        (!default().is_empty()).then_some(())
    });
    // No later advertisement restores the route.
    drop(dnsmasq);
    let router = b.await_link_local("ib0");
    let connected = || assert_eq!(b.ibtap("mode ib0 connected").code, Some(0));
    let other_gid = || {
        b.ok("ip link set eth0 down");
        b.ok("ip link set eth0 address 02:00:00:00:77:01");
        b.ok("ip link set eth0 up");
    };
    let up_again = || {
        b.ok("ip link set ib0 down");
        b.ok("ip link set ib0 up");
    };
    let changes: [(&str, &dyn Fn()); 3] = [
        ("mode", &connected),
        ("GID", &other_gid),
        ("state", &up_again),
    ];
    for (what, change) in changes {
        let flags = announced_while(a, &router, change);
        assert!(flags.iter().all(|flag| flag == "1"), "{what}: {flags:?}");
        assert!(default().contains(&router), "{what}");
    }
}
