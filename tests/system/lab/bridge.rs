//! A Linux bridge over `ib0`, and guests behind it: namespaces with their own Ethernet addresses, connected
//! to the bridge by a veth, like containers and virtual machines.

use std::ops::Deref;

use super::{Host, Lab, Station};

/// The bridge's name on every host.
pub const BRIDGE: &str = "br0";

/// A [`Station`] behind a bridge; its interface there is `eth0`.
pub struct Guest {
    station: Station,
    number: usize,
}

impl Deref for Guest {
    type Target = Station;

    fn deref(&self) -> &Station {
        &self.station
    }
}

impl Guest {
    /// Creates guest `number` (1 to 99) behind the host's bridge, with its addresses, without duplicate
    /// address detection.
    pub fn attach(host: &Host, number: usize) -> Guest {
        let guest = Guest::attach_bare(host, number);
        guest.ok(&format!("ip addr add {}/24 dev eth0", guest.v4()));
        guest.ok(&format!("ip addr add {}/64 dev eth0 nodad", guest.v6()));
        guest
    }

    /// Creates a guest without addresses.
    pub fn attach_bare(host: &Host, number: usize) -> Guest {
        let guest = Guest {
            station: Station::create(&format!("guest {number}")),
            number,
        };
        let mtu = host.mtu(BRIDGE);
        host.ok(&format!(
            "ip link add {} mtu {mtu} type veth peer name eth0 mtu {mtu} address {} netns {}",
            guest.port(),
            guest.mac(),
            guest.namespace().name()
        ));
        guest.plug_into(host);
        guest.ok("ip link set eth0 up");
        guest.await_carrier("eth0", true);
        guest
    }

    /// Name of its bridge port on the host.
    pub fn port(&self) -> String {
        format!("guest{}", self.number)
    }

    /// Ethernet address, from the range of QEMU.
    pub fn mac(&self) -> String {
        format!("52:54:00:09:00:{:02x}", self.number)
    }

    /// IPv4 address.
    pub fn v4(&self) -> String {
        format!("10.9.0.{}", 100 + self.number)
    }

    /// IPv6 address.
    pub fn v6(&self) -> String {
        format!("fd09::{}", 100 + self.number)
    }

    /// Moves its cable from one host to another, like live migration: the guest keeps its addresses, its
    /// neighbours and its connections, and sees the carrier go and return.
    pub fn migrate(&self, from: &Host, to: &Host) {
        from.ok(&format!("ip link set {} nomaster", self.port()));
        from.ok(&format!(
            "ip link set {} netns {}",
            self.port(),
            to.namespace().name()
        ));
        self.plug_into(to);
    }

    fn plug_into(&self, host: &Host) {
        let port = self.port();
        host.ok(&format!("sysctl -qw net.ipv6.conf.{port}.disable_ipv6=1"));
        host.ok(&format!("ip link set {port} master {BRIDGE} up"));
    }
}

impl Host {
    /// Puts `ib0` under a new bridge, which gets this host's addresses.
    pub fn bridge(&self) {
        self.bridge_over("ib0");
    }

    /// The same with another interface.
    pub fn bridge_over(&self, interface: &str) {
        let mtu = self.mtu(interface);
        self.ok(&format!(
            "ip link add {BRIDGE} mtu {mtu} type bridge mcast_snooping 0"
        ));
        self.ok(&format!("ip addr flush dev {interface} scope global"));
        self.ok(&format!("ip link set {interface} up master {BRIDGE}"));
        self.configure_addresses(BRIDGE);
        self.await_carrier(BRIDGE, true);
    }
}

/// Three hosts. The first two have a bridge over `ib0` and two guests each behind it; the third
/// has only `ib0`.
pub struct Bridged {
    /// The hosts.
    pub lab: Lab,
    /// Guests 1 and 2, behind the first host.
    pub left: [Guest; 2],
    /// Guests 3 and 4, behind the second host.
    pub right: [Guest; 2],
}

impl Bridged {
    /// Starts all of it, with further options for the daemons, and waits until every guest has reached every
    /// host.
    pub fn start(options: &[&str]) -> Option<Bridged> {
        let mut lab = Lab::running_segment_with(3, options)?;
        let (a, b, _) = lab.three();
        a.bridge();
        b.bridge();
        let left = [Guest::attach(a, 1), Guest::attach(a, 2)];
        let right = [Guest::attach(b, 3), Guest::attach(b, 4)];
        let addresses = addresses_of(&mut lab);
        for guest in left.iter().chain(&right) {
            guest.reaches_all(&addresses);
        }
        Some(Bridged { lab, left, right })
    }

    /// The four guests.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.left.iter().chain(&self.right)
    }

    /// Checks that every guest and every host reaches all others over both families.
    pub fn all_reach_all(&mut self) {
        let mut addresses = addresses_of(&mut self.lab);
        addresses.extend(self.guests().flat_map(|guest| [guest.v4(), guest.v6()]));
        let (a, b, c) = self.lab.three();
        let stations = [&**a, &**b, &**c];
        let guests = self.left.iter().chain(&self.right);
        for station in stations.into_iter().chain(guests.map(|guest| &**guest)) {
            station.reaches_all(&addresses);
        }
    }
}

fn addresses_of(lab: &mut Lab) -> Vec<String> {
    let (a, b, c) = lab.three();
    [a, b, c]
        .iter()
        .flat_map(|host| [host.v4(), host.v6()])
        .collect()
}
