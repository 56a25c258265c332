//! The commands of the page `docs/virtual-machines.md`, typed as printed, and its definitions for libvirt.

use std::process::Command;
use std::time::Duration;

use kit::pages::{below, commands_of};

use crate::lab::{Done, Lab, Load, Shell, eventually};

/// The DHCP server of the guests' firmware, in the foreground.
const DNSMASQ: &str = "dnsmasq --no-daemon --port=0 --interface=ib0 --bind-interfaces --user=root --pid-file= \
                       --dhcp-range=10.9.0.100,10.9.0.120 --dhcp-leasefile=";

/// One host has a guest on a bridge, one has a guest on a macvtap, and one has the guests' DHCP server.
#[test]
fn the_pages_guests_get_addresses_over_the_fabric() {
    let Some(mut lab) = Lab::running_segment(3) else {
        return;
    };
    let _turn = Load::begin();
    let (bridged, tapped, server) = lab.three();
    let leases = server.file("leases");
    let _dnsmasq = server.spawn(&format!("{DNSMASQ}{}", leases.display()));

    bridged.bridge();
    let on_bridge = Shell::open(bridged, 1);
    let [start] = commands_of("virtual-machines.md", "QEMU with a bridge");
    on_bridge.ok(&start);

    let on_macvtap = Shell::open(tapped, 2);
    let [create, start] = commands_of("virtual-machines.md", "QEMU with a macvtap");
    on_macvtap.ok(&create);
    // In /dev, all namespaces share the names of macvtaps.
    on_macvtap.ok("device=$(cat /sys/class/net/vm2/tap*/dev)
                   mknod /run/tap c ${device%:*} ${device#*:}
                   mount --bind /run/tap /dev/tap$(cat /sys/class/net/vm2/ifindex)");
    on_macvtap.ok(&start);

    for mac in ["52:54:00:00:00:01", "52:54:00:00:00:02"] {
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

#[test]
fn the_pages_definitions_are_valid() {
    let definitions = below("virtual-machines.md", "libvirt", "xml");
    assert_eq!(definitions.len(), 3);
    for definition in definitions {
        let (schema, document) = match definition.starts_with("<network>") {
            true => ("network", definition),
            false => ("domain", domain_with(&definition)),
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

/// A minimal domain with a device.
fn domain_with(device: &str) -> String {
    format!(
        "<domain type='qemu'><name>guest</name><memory>65536</memory>\
         <os><type arch='x86_64'>hvm</type></os><devices>{device}</devices></domain>"
    )
}
