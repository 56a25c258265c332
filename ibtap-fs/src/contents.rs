//! Contents of the files in the kernel's formats (`ipoib_main.c`, `ipoib_vlan.c`, `net/core/net-sysfs.c`).

use control::api::{HardwareAddress, InterfaceInfo, LinkAddress};
use control::config::PortName;
use proto::{Gid, Qpn};

use crate::tree::Attribute;

/// The hardware type of InfiniBand (`linux/if_arp.h ARPHRD_INFINIBAND`).
const ARPHRD_INFINIBAND: u32 = 32;
/// Length of a hardware address in bytes (`INFINIBAND_ALEN`).
const INFINIBAND_ALEN: u32 = 20;

/// Contents of a file; `None` for a write-only file.
pub fn of(attribute: Attribute, of: &InterfaceInfo) -> Option<String> {
    Some(match attribute {
        Attribute::Address => format!("{}\n", of.address),
        Attribute::AddrLen => format!("{INFINIBAND_ALEN}\n"),
        Attribute::Broadcast => format!("{}\n", broadcast(&of.broadcast)),
        Attribute::Carrier => format!("{}\n", u8::from(of.carrier)),
        Attribute::CreateChild | Attribute::DeleteChild => return None,
        Attribute::DevId => format!("{:#x}\n", port_index(of)),
        Attribute::DevPort => format!("{}\n", port_index(of)),
        Attribute::Ifindex => format!("{}\n", of.ifindex),
        Attribute::Mode => format!("{}\n", of.mode),
        Attribute::Mtu => format!("{}\n", of.mtu),
        Attribute::Parent => format!("{}\n", of.parent.as_deref()?),
        Attribute::Pkey => format!("{:#06x}\n", of.pkey.full().get()),
        Attribute::Type => format!("{ARPHRD_INFINIBAND}\n"),
        Attribute::Umcast => format!("{}\n", u8::from(of.umcast)),
    })
}

/// Number of the port minus one; 0 for a child, as in the kernel (`ipoib_child_init` does not set it). A port of the
/// software fabric has number 1.
fn port_index(of: &InterfaceInfo) -> u8 {
    match PortName::of_running(&of.port) {
        Some(PortName::Rdma { port, .. }) if of.parent.is_none() => port.saturating_sub(1),
        _ => 0,
    }
}

/// The broadcast address: the queue pair number of multicast, and the group (RFC 4391, sections 4 and 9.1.1).
fn broadcast(group: &Gid) -> HardwareAddress {
    let mut bytes = [0; 20];
    bytes[1..4].copy_from_slice(&Qpn::MULTICAST.to_bytes());
    bytes[4..].copy_from_slice(&group.0);
    LinkAddress(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{child, interface};

    #[test]
    fn attributes_read_as_sysfs_has_them() {
        let ib0 = interface("ib0", 0x48);
        for (attribute, contents) in [
            (Attribute::AddrLen, "20\n"),
            (
                Attribute::Address,
                "00:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:e7:7e:12\n",
            ),
            (
                Attribute::Broadcast,
                "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff\n",
            ),
            (Attribute::Carrier, "1\n"),
            (Attribute::DevId, "0x0\n"),
            (Attribute::DevPort, "0\n"),
            (Attribute::Ifindex, "7\n"),
            (Attribute::Mode, "datagram\n"),
            (Attribute::Mtu, "2044\n"),
            (Attribute::Pkey, "0xffff\n"),
            (Attribute::Type, "32\n"),
            (Attribute::Umcast, "0\n"),
        ] {
            assert_eq!(
                of(attribute, &ib0).as_deref(),
                Some(contents),
                "{attribute:?}"
            );
        }
        for unreadable in [
            Attribute::CreateChild,
            Attribute::DeleteChild,
            Attribute::Parent,
        ] {
            assert_eq!(of(unreadable, &ib0), None);
        }
    }

    #[test]
    fn the_second_port_of_a_device_has_index_1_on_parents() {
        let parent = interface("ib1", 0x48);
        let child = child("ib1.8001", 0x49, "ib1", 0x8001);
        for (mut interface, id, port) in [(parent, "0x1\n", "1\n"), (child, "0x0\n", "0\n")] {
            interface.port = "mlx5_0/2".to_owned();
            assert_eq!(of(Attribute::DevId, &interface).as_deref(), Some(id));
            assert_eq!(of(Attribute::DevPort, &interface).as_deref(), Some(port));
        }
    }

    #[test]
    fn a_child_names_its_parent_and_its_partition_in_full() {
        // Limited membership; the kernel does not show it either.
        let child = child("ib0.8001", 0x49, "ib0", 0x0001);
        assert_eq!(of(Attribute::Parent, &child).as_deref(), Some("ib0\n"));
        assert_eq!(of(Attribute::Pkey, &child).as_deref(), Some("0x8001\n"));
    }
}
