//! Switches are separate, also with equal addresses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::fixed;
use crate::lab::group::{V4, receive, receiver, sender};
use crate::lab::{Lab, SOON, Sniffer, Station, eventually, sent};

const PORT: u16 = 7011;

/// One end of a switch: its place, addresses, and its text.
struct End<'a> {
    station: &'a Station,
    switch: u16,
    v4: String,
    v6: String,
    sockets: [UdpSocket; 2],
}

impl<'a> End<'a> {
    fn new(station: &'a Station, switch: u16, number: usize) -> End<'a> {
        let [v4, v6] = [format!("10.9.0.{number}"), format!("fd09::{number}")];
        station.ok(&format!("ip addr add {v4}/24 dev vnic0"));
        station.ok(&format!("ip addr add {v6}/64 dev vnic0 nodad"));
        station.ok("ip link set vnic0 up");
        station.await_carrier("vnic0", true);
        let bind = |address: &String| {
            let address: IpAddr = address.parse().expect("an address");
            let socket = UdpSocket::bind((address, PORT)).expect("a socket");
            socket.set_broadcast(true).expect("an option");
            socket.set_nonblocking(true).expect("an option");
            socket
        };
        let sockets = station.namespace().within(|| [bind(&v4), bind(&v6)]);
        End {
            station,
            switch,
            v4,
            v6,
            sockets,
        }
    }

    fn name(&self) -> String {
        format!("switch {} {}", self.switch, self.v4)
    }

    /// Sends its name to all possible addresses.
    fn send_name(&self) {
        for number in 1..=3 {
            for (socket, net) in self.sockets.iter().zip(["10.9.0.", "fd09::"]) {
                let to: IpAddr = format!("{net}{number}").parse().expect("an address");
                // No address may be known there yet.
                let _ = socket.send_to(self.name().as_bytes(), (to, PORT));
            }
        }
    }

    /// Texts received from others since.
    fn received(&self) -> Vec<(String, SocketAddr)> {
        let mut all = Vec::new();
        for socket in &self.sockets {
            let mut bytes = [0; 100];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                all.push((String::from_utf8_lossy(&bytes[..length]).into(), from));
            }
        }
        all.retain(|(text, _)| *text != self.name());
        all
    }
}

/// Three hosts are on two switches with the same MACs and addresses, which belong to other hosts on the
/// second than on the first: a packet that crosses finds a receiver.
#[test]
fn ve10_switches_with_the_same_addresses_never_mix() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let places = ["red", "green", "blue"].map(Station::create);
    let (hosts, _) = lab.hosts_and_switch();
    for (i, (host, place)) in hosts.iter_mut().zip(&places).enumerate() {
        let mac = |number: usize| format!("mac = \"02:00:00:00:00:0{number}\"");
        let there = format!(
            "netns = {:?}\n{}",
            place.namespace().name(),
            mac((i + 1) % 3 + 1)
        );
        let text = fixed("vnic0", 1, &mac(i + 1)) + &fixed("vnic0", 2, &there);
        host.start_config(&text);
    }
    let first = hosts.iter().enumerate();
    let first = first.map(|(i, host)| End::new(host, 1, i + 1));
    let second = places.iter().enumerate();
    let second = second.map(|(i, place)| End::new(place, 2, (i + 1) % 3 + 1));
    let ends: Vec<End> = first.chain(second).collect();

    let mut heard = vec![std::collections::BTreeSet::new(); ends.len()];
    eventually(
        SOON,
        "every host to receive all others of the switch",
        || {
            ends.iter().for_each(End::send_name);
            std::thread::sleep(Duration::from_millis(50));
            for (end, heard) in ends.iter().zip(&mut heard) {
                for (text, from) in end.received() {
                    let own = format!("switch {}", end.switch);
                    assert!(text.starts_with(&own), "{} receives {text}", end.name());
                    let named = text.split(' ').next_back().expect("a word");
                    let number = named.split('.').next_back().expect("a number");
                    assert!(
                        from.ip().to_string().ends_with(number),
                        "{text} from {from}"
                    );
                    heard.insert((text, from.ip().is_ipv4()));
                }
            }
            heard.iter().all(|heard| heard.len() == 4).then_some(())
        },
    );

    // Multicast and broadcast do not cross either.
    let (one, two) = (&ends[0], &ends[3]);
    let here = receiver(ends[1].station, "vnic0", &V4);
    let there = receiver(ends[4].station, "vnic0", &V4);
    let (socket, group) = sender(one.station, "vnic0", &V4);
    eventually(SOON, "the group", || {
        socket.send_to(b"switch 1", group).expect("sent");
        receive(&here)
    });
    assert_eq!(receive(&there), None);
    let (socket, group) = sender(two.station, "vnic0", &V4);
    while receive(&here).is_some() {}
    eventually(SOON, "the group", || {
        socket.send_to(b"switch 2", group).expect("sent");
        receive(&there)
    });
    assert_eq!(receive(&here), None);
    for end in &ends {
        end.station
            .ok("sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0");
    }
    let output = one.station.ok("ping -b -c 6 -i 0.3 -w 10 10.9.0.255");
    for address in [&ends[1].v4, &ends[2].v4] {
        assert!(
            output.contains(address.as_str()),
            "{address} is silent: {output}"
        );
    }
    let answers = output.lines().filter(|line| line.contains("bytes from"));
    // Two others, and the host itself, to each request. ping does not wait for all at the last one.
    let range = 8..=3 * sent(&output);
    assert!(range.contains(&answers.count()), "{output}");
    assert!(one.v6 != two.v6);
}

/// A host without a switch receives nothing of one, though it is on the same Ethernet.
#[test]
fn a_host_on_another_switch_receives_nothing() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    a.start_config(&fixed("vnic0", 1, ""));
    b.start_config(&fixed("vnic0", 1, ""));
    // The same lower eight bits; the kernel's driver compares only these.
    c.start_config(&fixed("vnic0", 257, ""));
    for host in [&*a, &*b, &*c] {
        host.configure("vnic0");
    }
    a.reaches(b);
    let heard = Sniffer::start(c, "vnic0", "ether broadcast or host 10.9.0.1");
    a.ok("ip neigh flush dev vnic0");
    a.ok(&format!("ping -c 3 -i 0.1 -W 5 {}", b.v4()));
    a.run("arping -c 2 -w 2 -I vnic0 10.9.0.3");
    assert!(heard.is_empty());
    assert!(!a.pings(&c.v4()) && !c.pings(&a.v4()));
    // It receives its own switch's packets, so the sniffer works.
    c.run("arping -c 1 -w 1 -I vnic0 10.9.0.99");
    eventually(SOON, "its own question", || {
        (!heard.is_empty()).then_some(())
    });
}

/// One switch number in two partitions means two switches; limited members reach full members only.
#[test]
fn partitions_part_switches_too() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    let table = |keys: &str| format!("[port.eth0]\npkeys = [{keys}]\n");
    let text = |keys: &str, more: &str| table(keys) + &fixed("vnic0", 1, "pkey = 0x8005") + more;
    let other = "[[vnic]]\nname = \"vnic1\"\nunderlay = \"eth0\"\nvesw = 1\npkey = 0x8006\n";
    a.start_config(&text("0xffff, 0x8005, 0x8006", other));
    b.start_config(&text("0xffff, 0x0005", ""));
    c.start_config(&text("0xffff, 0x0005, 0x8006", other));
    for (host, number) in [(&*a, 1), (&*b, 2), (&*c, 3)] {
        host.configure("vnic0");
        if host.has_link("vnic1") {
            host.ok(&format!("ip addr add 10.6.0.{number}/24 dev vnic1"));
            host.ok("ip link set vnic1 up");
            host.await_carrier("vnic1", true);
        }
    }
    b.reaches(a);
    c.reaches(a);
    a.reaches_all(&["10.6.0.3", &b.v4(), &c.v4()]);
    assert!(
        !b.pings(&c.v4()) && !c.pings(&b.v4()),
        "two limited members"
    );
}
