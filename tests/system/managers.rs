//! Network managers of Linux distributions configure `ib0`: the commands of `docs/network-managers.md` and
//! `docs/ifupdown.md`, typed as printed, and restarts of the daemon. The managers run on machines of their own
//! (`lab/private_root.sh`), without systemd as process 1.

use std::time::Duration;

use kit::pages::commands_of;
use rustix::process::Signal;

use crate::lab::{Host, Lab, SOON, Service, Shell, Station, eventually};
use crate::pages::both_do;
use crate::takeover::state;

const PAGE: &str = "network-managers.md";
const PAGE_OF_IFUPDOWN: &str = "ifupdown.md";

/// Folders into which `scripts/test` unpacks packages.
const MANAGERS: &[&str] = &["managers"];
const WITH_IFUPDOWN2: &[&str] = &["managers", "ifupdown2"];

/// The pages are for an interface with several queues, on any machine.
const QUEUES: &[&str] = &["--queues", "2"];
const PERSISTENT: &[&str] = &["--queues", "2", "--persist"];

/// Two hosts without daemons, with a shell each.
fn two_machines(folders: &[&str]) -> Option<(Lab, [Shell; 2])> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    let shells = [(&*a, 1), (&*b, 2)];
    let shells = shells.map(|(host, number)| Shell::with_packages(host, number, folders));
    // The network behind the host.
    both_do(
        &shells,
        "ip link add behind type bridge; ip link set behind up; ip addr add 10.77.$N.1/24 dev behind",
    );
    Some((lab, shells))
}

/// Starts the system bus, and udev for network interfaces. NetworkManager compares the owner of a TAP with the profile
/// once, when udev has handled the new interface. Without udev, NetworkManager may be faster than the daemon, which
/// creates the TAP and then sets the owner.
fn start_bus(shell: &Shell) {
    shell.ok("dbus-daemon --system --fork --nopidfile");
    // Only rules for network interfaces: the devices of this machine are in use.
    shell.ok("cd /lib/udev/rules.d && mkdir /run/net && mv *net-setup-link* *nm-unmanaged* 99-systemd* /run/net && rm * && mv /run/net/* .");
    shell.start("/lib/systemd/systemd-udevd");
    eventually(SOON, "udev", || {
        (shell.run("udevadm control --ping").code == Some(0)).then_some(())
    });
    shell.ok("udevadm trigger --subsystem-match=net --action=add && udevadm settle");
}

fn start_networkd(shell: &Shell) {
    start_bus(shell);
    shell.start("/usr/lib/systemd/systemd-networkd");
    eventually(SOON, "systemd-networkd", || {
        (shell.run("test -e /run/systemd/netif/state").code == Some(0)).then_some(())
    });
}

fn start_network_manager(shell: &Shell) {
    start_bus(shell);
    // The lab manages the underlay.
    let lab = "[keyfile]\\nunmanaged-devices=interface-name:eth0\\n";
    shell.ok(&format!(
        "printf '{lab}' >/etc/NetworkManager/conf.d/lab.conf"
    ));
    // --debug: in the foreground, and the log is printed if the test fails.
    shell.start("NetworkManager --debug");
    eventually(SOON, "NetworkManager", || {
        (shell.run("nmcli general status").code == Some(0)).then_some(())
    });
}

/// Whether the interface has the address and the route of the pages, on host `number`.
fn is_configured(host: &Host, number: usize, interface: &str) -> bool {
    let other = 3 - number;
    let addresses = host.run(&format!("ip -4 addr show dev {interface}")).out;
    let routes = host.run(&format!("ip route show dev {interface}")).out;
    addresses.contains(&format!(" 10.0.0.{number}/24 "))
        && routes.contains(&format!("10.77.{other}.0/24 via 10.0.0.{other} "))
}

/// Waits until both hosts are configured and reach the networks behind each other.
fn both_work(lab: &mut Lab, interface: &str) {
    let (a, b) = lab.two();
    for (host, number) in [(&*a, 1), (&*b, 2)] {
        let what = format!("{interface} of host {number} to be configured");
        eventually(SOON, &what, || {
            is_configured(host, number, interface).then_some(())
        });
    }
    a.reaches_all(&["10.77.2.1"]);
    b.reaches_all(&["10.77.1.1"]);
}

/// The first host's daemon, which runs with [`QUEUES`], ends and starts in each way that the page has in its table.
/// Returns its last daemon.
fn survives_restarts(lab: &mut Lab, interface: &str) -> Service {
    for options in [QUEUES, PERSISTENT] {
        lab.host(0).stop();
        lab.host(0).start(options);
        both_work(lab, interface);
    }
    lab.host(0).stop();
    lab.host(0).await_carrier("ib0", false);
    // The managers react to the lost carrier.
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_configured(lab.host(0), 1, interface));
    let service = lab.host(0).start_service(64, QUEUES);
    both_work(lab, interface);
    // An address that is no longer tentative does not change.
    lab.host(0).await_link_local(interface);
    let before = state(lab.host(0));
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        assert_eq!(state(lab.host(0)), before, "{signal:?}");
        both_work(lab, interface);
    }
    service
}

#[test]
fn systemd_networkd_configures_the_interface() {
    let Some((mut lab, shells)) = two_machines(MANAGERS) else {
        return;
    };
    let [configure, look] = commands_of(PAGE, "systemd-networkd");
    // On one host the daemon is first, on the other the manager.
    lab.host(1).start(QUEUES);
    shells.iter().for_each(start_networkd);
    both_do(&shells, &configure);
    // The unit of the page waits for this program.
    shells[0].start("sh -c '/usr/lib/systemd/systemd-networkd-wait-online --interface=ib0 && touch /run/online'");
    shells[0].ok("test ! -e /run/online");
    lab.host(0).start(QUEUES);
    both_work(&mut lab, "ib0");
    both_do(&shells, &look);
    eventually(SOON, "systemd-networkd-wait-online", || {
        (shells[0].run("test -e /run/online").code == Some(0)).then_some(())
    });
    let _service = survives_restarts(&mut lab, "ib0");
}

#[test]
fn network_manager_configures_the_interface() {
    let Some((mut lab, shells)) = two_machines(MANAGERS) else {
        return;
    };
    let [device, profile, look] = commands_of(PAGE, "NetworkManager");
    lab.host(0).start(QUEUES);
    shells.iter().for_each(start_network_manager);
    both_do(&shells, &device);
    both_do(&shells, &profile);
    // On this host NetworkManager has created the interface.
    assert!(lab.host(1).has_link("ib0"));
    lab.host(1).start(QUEUES);
    both_work(&mut lab, "ib0");
    both_do(&shells, &look);
    let _service = survives_restarts(&mut lab, "ib0");

    shells[1].ok("nmcli connection down ib0");
    eventually(SOON, "NetworkManager to delete the interface", || {
        (!lab.host(1).has_link("ib0")).then_some(())
    });
    shells[1].ok("nmcli connection up ib0");
    lab.host(1).stop();
    lab.host(1).start(QUEUES);
    both_work(&mut lab, "ib0");

    shells[1].ok("nmcli connection modify ib0 tun.vnet-hdr no");
    let refused = shells[1].run("nmcli connection up ib0");
    assert!(
        refused.err.contains("compatible device"),
        "the page says so: {refused:?}"
    );
}

fn ifupdown(folders: &[&str]) {
    let Some((mut lab, shells)) = two_machines(folders) else {
        return;
    };
    let [configure, look] = commands_of(PAGE_OF_IFUPDOWN, "ifupdown and ifupdown2");
    lab.host(1).start(PERSISTENT);
    both_do(&shells, &configure);
    lab.host(0).start(QUEUES);
    both_work(&mut lab, "ib0");
    both_do(&shells, &look);
    let _service = survives_restarts(&mut lab, "ib0");
}

#[test]
fn ifupdown_configures_the_interface() {
    ifupdown(MANAGERS);
}

#[test]
fn ifupdown2_configures_the_interface() {
    ifupdown(WITH_IFUPDOWN2);
}

#[test]
fn ifupdown2_makes_a_bridge_for_guests_as_on_proxmox() {
    let Some((mut lab, shells)) = two_machines(WITH_IFUPDOWN2) else {
        return;
    };
    let title = "Proxmox, and other bridges of ifupdown2";
    let [configure, look] = commands_of(PAGE_OF_IFUPDOWN, title);
    lab.host(1).start(PERSISTENT);
    both_do(&shells, &configure);
    lab.host(0).start(QUEUES);
    both_work(&mut lab, "vmbr1");
    both_do(&shells, &look);
    let _service = survives_restarts(&mut lab, "vmbr1");

    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        assert_eq!(host.mtu("vmbr1"), 4092);
    }
    let guest = Station::create("a guest");
    a.ok(&format!(
        "ip link add tap100 mtu 4092 type veth peer name eth0 mtu 4092 netns {}",
        guest.namespace().name()
    ));
    a.ok("ip link set tap100 up master vmbr1");
    guest.ok("ip addr add 10.0.0.11/24 dev eth0");
    guest.ok("ip link set eth0 up");
    guest.reaches_all(&["10.0.0.2"]);
    // The largest packet: 28 bytes are headers.
    guest.ok("ping -c 3 -M do -s 4064 10.0.0.2");
}

#[test]
fn keepalived_moves_an_address_when_a_daemon_or_keepalived_ends() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let [configure] = commands_of(PAGE, "keepalived");
    let (a, b, c) = lab.three();
    let service = a.start_service(64, QUEUES);
    b.start(QUEUES);
    c.start(QUEUES);
    let give_address = |host: &Host, number| {
        host.ok(&format!("ip addr add 10.0.0.{number}/24 dev ib0"));
    };
    for (host, number) in [(&*a, 1), (&*b, 2), (&*c, 3)] {
        give_address(host, number);
    }
    let shells = [(&*a, 1), (&*b, 2)];
    let shells = shells.map(|(host, number)| Shell::with_packages(host, number, MANAGERS));
    both_do(&shells, &configure);
    for shell in &shells {
        shell.start("keepalived --dont-fork --log-console");
    }
    let has = |host: &Host| {
        let addresses = host.run("ip -4 addr show dev ib0").out;
        addresses.contains(" 10.0.0.100/24 ")
    };
    let is_at = |owner: &Host, other: &Host| {
        let what = format!("10.0.0.100 to be at {} only", owner.name());
        eventually(SOON, &what, || (has(owner) && !has(other)).then_some(()));
        c.reaches_all(&["10.0.0.100"]);
    };
    is_at(a, b);
    service.restart_by(Signal::TERM);
    is_at(a, b);
    drop(service);
    is_at(b, a);
    a.start(PERSISTENT);
    give_address(a, 1);
    is_at(a, b);
    a.stop();
    is_at(b, a);
    a.start(PERSISTENT);
    is_at(a, b);
    shells[0].ok("kill $(cat /run/keepalived.pid)");
    is_at(b, a);
}

#[test]
fn netplan_writes_what_both_renderers_need() {
    let Some((mut lab, shells)) = two_machines(MANAGERS) else {
        return;
    };
    let [for_networkd, for_network_manager] = commands_of(PAGE, "netplan");
    let [device, _, _] = commands_of(PAGE, "NetworkManager");
    shells[0].ok(&for_networkd);
    let file = shells[0].ok("cat /run/systemd/network/10-netplan-ib0.network");
    assert!(file.contains("ConfigureWithoutCarrier=yes"), "{file}");
    shells[1].ok(&device);
    shells[1].ok(&for_network_manager);
    let file = shells[1].ok("cat /run/NetworkManager/system-connections/netplan-ib0.nmconnection");
    assert!(
        file.contains("type=tun") && file.contains("vnet-hdr=true"),
        "{file}"
    );

    for number in 0..2 {
        lab.host(number).start(QUEUES);
    }
    start_networkd(&shells[0]);
    start_network_manager(&shells[1]);
    both_work(&mut lab, "ib0");
}
