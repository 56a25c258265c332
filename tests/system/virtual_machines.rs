//! The commands of the page `docs/virtual-machines.md`, typed as printed, and guests of libvirt with its definitions.

use std::process::Command;
use std::time::Duration;

use kit::pages::{below, commands_of};

use crate::lab::{Done, Host, Lab, Load, SOON, Shell, eventually};

/// The DHCP server of the guests' firmware, in the foreground.
const DNSMASQ: &str = "dnsmasq --no-daemon --port=0 --interface=ib0 --bind-interfaces --user=root --pid-file= \
                       --dhcp-range=10.9.0.100,10.9.0.120 --dhcp-leasefile=";

const PAGE: &str = "virtual-machines.md";

/// `start` starts guests of two hosts, the first with a bridge. Waits until a DHCP server on a third host has given all
/// of them an address.
fn guests_get_addresses(guests: &[&str], start: impl FnOnce(&Host, &Host) -> [Shell; 2]) {
    let Some(mut lab) = Lab::running_segment(3) else {
        return;
    };
    let _turn = Load::begin();
    let (bridged, tapped, server) = lab.three();
    let leases = server.file("leases");
    let _dnsmasq = server.spawn(&format!("{DNSMASQ}{}", leases.display()));
    bridged.bridge();
    let _shells = start(bridged, tapped);
    for mac in guests {
        // The guests are emulated.
        eventually(
            Duration::from_secs(180),
            &format!("a lease for {mac}"),
            || {
                let leases = std::fs::read_to_string(&leases).ok()?;
                leases.contains(mac).then_some(())
            },
        );
    }
}

/// One host has a guest on a bridge, one has a guest on a macvtap.
#[test]
fn the_pages_guests_get_addresses_over_the_fabric() {
    let guests = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
    guests_get_addresses(&guests, |bridged, tapped| {
        let on_bridge = Shell::open(bridged, 1);
        let [start] = commands_of(PAGE, "QEMU with a bridge");
        on_bridge.ok(&start);

        let on_macvtap = Shell::open(tapped, 2);
        let [create, start] = commands_of(PAGE, "QEMU with a macvtap");
        on_macvtap.ok(&create);
        // In /dev, all namespaces share the names of macvtaps.
        on_macvtap.ok("device=$(cat /sys/class/net/vm2/tap*/dev)
                       mknod /run/tap c ${device%:*} ${device#*:}
                       mount --bind /run/tap /dev/tap$(cat /sys/class/net/vm2/ifindex)");
        on_macvtap.ok(&start);
        [on_bridge, on_macvtap]
    });
}

/// Starts libvirt's daemons.
fn start_libvirt(shell: &Shell) {
    // What the package libvirt-daemon-system would do.
    shell.ok("useradd --system libvirt-qemu");
    // As udev does it. Of a device that root can open and QEMU's user cannot, libvirt remembers nothing: it would start
    // QEMU six times for each question of virsh.
    shell.ok(
        "[ ! -e /dev/kvm ] || { mknod -m 666 /run/kvm c 10 232 && mount --bind /run/kvm /dev/kvm; }",
    );
    shell.start("virtlogd");
    shell.start("libvirtd");
    eventually(SOON, "libvirt's answer", || {
        (shell.run("virsh version").code == Some(0)).then_some(())
    });
}

/// Starts a guest of libvirt with one device. Its firmware asks for an address.
fn start_guest(shell: &Shell, name: &str, device: &str) {
    shell.ok(&format!(
        "cat >/run/{name}.xml <<END
{}
END
virsh define /run/{name}.xml
virsh start {name}",
        domain(name, device)
    ));
}

/// One host has two guests on a bridge, one has a guest on a macvtap.
#[test]
fn guests_of_libvirt_get_addresses_over_the_fabric() {
    let guests = [
        "52:54:00:00:00:01",
        "52:54:00:00:00:02",
        "52:54:00:00:00:03",
    ];
    guests_get_addresses(&guests, |bridged, tapped| {
        let [bridge, macvtap, network] = definitions();
        let [start_network] = commands_of(PAGE, "libvirt");

        let on_bridge = Shell::open(bridged, 1);
        start_libvirt(&on_bridge);
        start_guest(&on_bridge, "first", &bridge);
        on_bridge.ok(&format!(
            "cd /run\ncat >fabric.xml <<END\n{network}\nEND\n{start_network}"
        ));
        let of_network = "<interface type='network'><mac address='52:54:00:00:00:03'/>\
                          <source network='fabric'/><model type='virtio'/></interface>";
        start_guest(&on_bridge, "second", of_network);

        let on_macvtap = Shell::open(tapped, 2);
        // In /dev, all namespaces share the names of macvtaps, which contain the interface's index. An index is one more
        // than the last one.
        let before = 50 + std::process::id() % 200;
        on_macvtap.ok(&format!(
            "for number in $(seq {before}); do echo link add before$number group 7 type bridge; done | ip -batch -
            ip link del group 7"
        ));
        start_libvirt(&on_macvtap);
        start_guest(&on_macvtap, "third", &macvtap);
        [on_bridge, on_macvtap]
    });
}

/// The page's definitions for libvirt.
fn definitions() -> [String; 3] {
    let definitions = below(PAGE, "libvirt", "xml");
    definitions.try_into().expect("three definitions")
}

#[test]
fn the_pages_definitions_are_valid() {
    let definitions = definitions();
    for definition in definitions {
        let (schema, document) = match definition.starts_with("<network>") {
            true => ("network", definition),
            false => ("domain", domain("guest", &definition)),
        };
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &document).expect("a file");
        let done = Done::of(
            Command::new("virt-xml-validate")
                .arg(file.path())
                .arg(schema),
        );
        assert_eq!(done.code, Some(0), "{document}{}{}", done.out, done.err);
    }
}

/// A minimal domain with a device, which boots from the network.
fn domain(name: &str, device: &str) -> String {
    format!(
        "<domain type='qemu'><name>{name}</name><memory>524288</memory>\
         <os><type arch='x86_64' machine='q35'>hvm</type><boot dev='network'/></os>\
         <devices>{device}</devices></domain>"
    )
}
