//! The files of a port of the software fabric, in the formats of `/sys/class/infiniband` (kernel
//! drivers/infiniband/core/sysfs.c). Ports of RDMA devices are not here: the kernel has their files.

use std::net::Ipv6Addr;

use control::api::{PortInfo, PortState};
use proto::Gid;

/// A file: its path below `infiniband`, and its contents.
pub type PortFile = (String, String);

/// The communication manager answers at QP1: bit 16 of the capability mask (IBA vol. 1, 14.2.5.6, as
/// `IB_PORT_CM_SUP` of the kernel's rxe).
const CAPABILITIES: u32 = 1 << 16;

/// The counters of IBA vol. 1, 16.1.3.5 and 16.1.4.3: each is the sum of counters of the provider, divided by a unit.
/// The provider has no counters for the others.
const COUNTERS: [(&str, &[&str], u64); 5] = [
    ("multicast_rcv_packets", &["rx_multicast"], 1),
    (
        "port_rcv_errors",
        &[
            "rx_icrc_errors",
            "rx_length_errors",
            "rx_bad_opcode",
            "rx_bad_version",
        ],
        1,
    ),
    ("port_rcv_packets", &["rx_packets", "rcvd_pkts"], 1),
    // In units of four bytes.
    ("port_xmit_data", &["tx_bytes"], 4),
    ("port_xmit_packets", &["tx_packets"], 1),
];

/// The directory of a port: `soft_eth0` for `soft/eth0`. `None` for a port of an RDMA device.
fn directory(port: &str) -> Option<String> {
    Some(format!("soft_{}", port.strip_prefix("soft/")?))
}

/// All files of a port; none for a port of an RDMA device.
pub fn files(port: &PortInfo) -> Vec<PortFile> {
    let Some(directory) = directory(&port.port) else {
        return Vec::new();
    };
    let link = &port.link;
    let mut files = Vec::new();
    let mut add = |path: &str, contents: String| {
        files.push((format!("{directory}/{path}"), format!("{contents}\n")));
    };
    // A port is a device with one port, so all GUIDs are that of the port.
    add("node_guid", link.guid.clone());
    add("sys_image_guid", link.guid.clone());
    add("node_type", "1: CA".into());
    add("node_desc", format!("ibtapd {}", port.port));
    // There is no board. Version 1.5 of node_exporter requires the file.
    add("board_id", String::new());
    add("fw_ver", link.firmware.clone().unwrap_or_default());
    let (state, physical) = match link.state {
        PortState::Active => ("4: ACTIVE", "5: LinkUp"),
        PortState::Down => ("1: DOWN", "2: Polling"),
    };
    add("ports/1/state", state.into());
    add("ports/1/phys_state", physical.into());
    add("ports/1/rate", rate(port.speed).into());
    add("ports/1/link_layer", link.link_layer.to_string());
    add("ports/1/cap_mask", format!("{CAPABILITIES:#010x}"));
    add("ports/1/lid", format!("{:#x}", link.lid.unwrap_or(0)));
    add("ports/1/lid_mask_count", "0".into());
    add("ports/1/sm_lid", format!("{:#x}", link.sm_lid.unwrap_or(0)));
    add("ports/1/sm_sl", link.sm_sl.unwrap_or(0).to_string());
    add("ports/1/gids/0", gid(&link.gid));
    add("ports/1/gid_attrs/types/0", "RoCE v2".into());
    if let Some(netdev) = &link.netdev {
        add("ports/1/gid_attrs/ndevs/0", netdev.clone());
    }
    for (index, pkey) in port.pkeys.iter().enumerate() {
        let path = format!("ports/1/pkeys/{index}");
        add(&path, format!("{:#06x}", pkey.get()));
    }
    for (name, parts, unit) in COUNTERS {
        let found = parts.iter().filter_map(|part| port.counters.get(part));
        let found: Vec<u64> = found.collect();
        if !found.is_empty() {
            let sum = found.into_iter().fold(0, u64::saturating_add);
            add(
                &format!("ports/1/counters/{name}"),
                (sum / unit).to_string(),
            );
        }
    }
    for (name, value) in &port.counters.0 {
        add(&format!("ports/1/hw_counters/{name}"), value.to_string());
    }
    files
}

/// The rate of an Ethernet speed in Mb/s, as of the kernel's RoCE ports (drivers/infiniband/core/verbs.c,
/// `ib_get_eth_speed`: 1 Gb/s if the speed is unknown).
fn rate(speed: Option<u32>) -> &'static str {
    match speed.unwrap_or(1000) {
        0..=1000 => "2.5 Gb/sec (1X SDR)",
        1001..=10_000 => "10 Gb/sec (1X FDR10)",
        10_001..=20_000 => "20 Gb/sec (4X DDR)",
        20_001..=25_000 => "25 Gb/sec (1X EDR)",
        25_001..=40_000 => "40 Gb/sec (4X FDR10)",
        _ => "100 Gb/sec (4X EDR)",
    }
}

/// Eight groups of four hexadecimal digits, not compressed.
fn gid(gid: &Gid) -> String {
    let groups = Ipv6Addr::from(gid.0).segments();
    groups.map(|group| format!("{group:04x}")).join(":")
}

/// Whether the path is a directory; `None` if it does not exist. The root is the empty path.
pub fn is_directory(files: &[PortFile], path: &str) -> Option<bool> {
    if files.iter().any(|(file, _)| file == path) {
        return Some(false);
    }
    let has_entries = path.is_empty() || files.iter().any(|(file, _)| below(file, path).is_some());
    has_entries.then_some(true)
}

/// The names in a directory, each with whether it is a directory.
pub fn entries(files: &[PortFile], directory: &str) -> Vec<(String, bool)> {
    let mut entries: Vec<(String, bool)> = Vec::new();
    for (file, _) in files {
        let Some(rest) = below(file, directory) else {
            continue;
        };
        let (name, is_directory) = match rest.split_once('/') {
            Some((name, _)) => (name, true),
            None => (rest, false),
        };
        if !entries.iter().any(|(known, _)| known == name) {
            entries.push((name.to_owned(), is_directory));
        }
    }
    entries
}

/// The part of a file's path below a directory.
fn below<'f>(file: &'f str, directory: &str) -> Option<&'f str> {
    match directory {
        "" => Some(file),
        _ => file.strip_prefix(directory)?.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::port;

    fn read(port: &PortInfo, path: &str) -> Option<String> {
        let path = format!("soft_eth0/{path}");
        let mut files = files(port).into_iter();
        files.find(|(file, _)| *file == path).map(|file| file.1)
    }

    #[test]
    fn files_of_a_port_read_as_sysfs_has_them() {
        let port = port("eth0");
        for (path, contents) in [
            ("node_guid", "0002:c903:00e7:7e12\n"),
            ("sys_image_guid", "0002:c903:00e7:7e12\n"),
            ("node_type", "1: CA\n"),
            ("node_desc", "ibtapd soft/eth0\n"),
            // As of a device without firmware.
            ("fw_ver", "\n"),
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/phys_state", "5: LinkUp\n"),
            ("ports/1/rate", "10 Gb/sec (1X FDR10)\n"),
            ("ports/1/lid", "0x0\n"),
            ("ports/1/lid_mask_count", "0\n"),
            ("ports/1/sm_lid", "0x0\n"),
            ("ports/1/sm_sl", "0\n"),
            ("ports/1/cap_mask", "0x00010000\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            (
                "ports/1/gids/0",
                "fe80:0000:0000:0000:0002:c903:00e7:7e12\n",
            ),
            ("ports/1/gid_attrs/ndevs/0", "eth0\n"),
            ("ports/1/gid_attrs/types/0", "RoCE v2\n"),
            ("ports/1/pkeys/0", "0xffff\n"),
            ("ports/1/pkeys/1", "0x0000\n"),
            ("ports/1/counters/port_rcv_packets", "12\n"),
            ("ports/1/counters/port_xmit_data", "25\n"),
            ("ports/1/counters/port_xmit_packets", "9\n"),
            ("ports/1/hw_counters/rcvd_pkts", "5\n"),
        ] {
            assert_eq!(read(&port, path).as_deref(), Some(contents), "{path}");
        }
        // The port does not count these.
        for absent in ["port_rcv_data", "multicast_rcv_packets", "port_xmit_wait"] {
            assert_eq!(read(&port, &format!("ports/1/counters/{absent}")), None);
        }
    }

    #[test]
    fn a_port_that_is_down_or_on_a_subnet_says_so() {
        let mut port = port("eth0");
        port.link.state = PortState::Down;
        (port.link.lid, port.link.sm_lid) = (Some(0x12), Some(1));
        port.speed = None;
        for (path, contents) in [
            ("state", "1: DOWN\n"),
            ("phys_state", "2: Polling\n"),
            ("lid", "0x12\n"),
            ("sm_lid", "0x1\n"),
            ("rate", "2.5 Gb/sec (1X SDR)\n"),
        ] {
            assert_eq!(
                read(&port, &format!("ports/1/{path}")).as_deref(),
                Some(contents)
            );
        }
        // The kernel has the files of RDMA devices.
        port.port = "mlx5_0/1".into();
        assert_eq!(files(&port), []);
    }

    #[test]
    fn every_file_is_found_through_its_directories() {
        let files = files(&port("eth0"));
        let mut found = Vec::new();
        let mut left = vec![String::new()];
        while let Some(directory) = left.pop() {
            assert_eq!(is_directory(&files, &directory), Some(true), "{directory}");
            for (name, is_dir) in entries(&files, &directory) {
                let path = match directory.as_str() {
                    "" => name,
                    _ => format!("{directory}/{name}"),
                };
                assert_eq!(is_directory(&files, &path), Some(is_dir), "{path}");
                match is_dir {
                    true => left.push(path),
                    false => found.push(path),
                }
            }
        }
        let mut all: Vec<_> = files.iter().map(|(file, _)| file.clone()).collect();
        all.sort();
        found.sort();
        assert_eq!(found, all);
        for nothing in ["soft_eth", "soft_eth0/port", "soft_eth0/fw_ver/x", "eth0"] {
            assert_eq!(is_directory(&files, nothing), None, "{nothing}");
        }
    }
}
