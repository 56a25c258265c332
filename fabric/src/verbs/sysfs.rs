//! Reads sysfs (Documentation/ABI/stable/sysfs-class-infiniband).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType, socket};

use super::ibv::GidKind;

/// Directory of RDMA devices.
pub const CLASS: &str = "/sys/class/infiniband";

/// Directory of the devices that programs may open.
pub const UVERBS_CLASS: &str = "/sys/class/infiniband_verbs";

/// Directory of the ports that programs may send management datagrams on.
const UMAD_CLASS: &str = "/sys/class/infiniband_mad";

/// Whether the kernel has a device in this network namespace.
pub fn has_device(device: &str) -> bool {
    !device.is_empty() && !device.contains('/') && Path::new(CLASS).join(device).exists()
}

/// The node of a device in /dev/infiniband: `uverbs0`.
pub fn uverbs(device: &str) -> Option<String> {
    let of_device =
        |dir: &Path| fs::read_to_string(dir.join("ibdev")).is_ok_and(|name| name.trim() == device);
    fs::read_dir(UVERBS_CLASS)
        .ok()?
        .flatten()
        .find(|entry| of_device(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Whether the kernel's `ib_umad` is loaded.
pub fn has_umad() -> bool {
    Path::new(UMAD_CLASS).exists()
}

/// Whether the kernel's `ib_cm` is loaded and does not serve a port, because another agent of class 7 was
/// there first. A port that it serves has the directory `cm_rx_msgs` (drivers/infiniband/core/cm.c,
/// `cm_add_one`; before Linux 5.14 in /sys/class/infiniband_cm).
pub fn is_kernel_cm_shut_out(device: &str, number: u8) -> bool {
    let exists = |path: &str| Path::new(path).exists();
    exists("/sys/module/ib_cm")
        && !exists("/sys/class/infiniband_cm")
        && !port(device, number).join("cm_rx_msgs").exists()
}

/// The node of a port's management datagrams in /dev/infiniband: `umad0`.
pub fn umad(device: &str, port: u8) -> Option<String> {
    let is = |dir: &Path, file: &str, value: &str| {
        fs::read_to_string(dir.join(file)).is_ok_and(|text| text.trim() == value)
    };
    let of_port = |dir: &Path| is(dir, "ibdev", device) && is(dir, "port", &port.to_string());
    let mut entries = fs::read_dir(UMAD_CLASS).ok()?.flatten();
    entries.find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name.starts_with("umad") && of_port(&entry.path())).then_some(name)
    })
}

fn port(device: &str, port: u8) -> PathBuf {
    Path::new(CLASS)
        .join(device)
        .join("ports")
        .join(port.to_string())
}

/// The kind of a GID in a port's table; `None` for an empty place.
pub fn gid_kind(device: &str, port_number: u8, index: u32) -> Option<GidKind> {
    let path = port(device, port_number)
        .join("gid_attrs/types")
        .join(index.to_string());
    parse_gid_kind(&fs::read_to_string(path).ok()?)
}

/// The interface index of a GID in a port's table.
pub fn gid_netdev(device: &str, port_number: u8, index: u32) -> Option<u32> {
    let path = port(device, port_number)
        .join("gid_attrs/ndevs")
        .join(index.to_string());
    let name = fs::read_to_string(path).ok()?;
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    name_to_index(socket, name.trim()).ok()
}

/// The firmware version of a device; `None` or empty for software.
pub fn firmware(device: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(CLASS).join(device).join("fw_ver")).ok()?;
    Some(text.trim().to_owned()).filter(|version| !version.is_empty())
}

/// The name of an interface of this network namespace.
pub fn interface_name(ifindex: u32) -> Option<String> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    index_to_name(socket, ifindex).ok()
}

/// Parses the kernel's names (drivers/infiniband/core/cache.c, `gid_type_str`).
fn parse_gid_kind(text: &str) -> Option<GidKind> {
    match text.trim() {
        "IB/RoCE v1" => Some(GidKind::RoceV1),
        "RoCE v2" => Some(GidKind::RoceV2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gid_kinds_are_the_kernels_words() {
        assert_eq!(parse_gid_kind("RoCE v2\n"), Some(GidKind::RoceV2));
        assert_eq!(parse_gid_kind("IB/RoCE v1\n"), Some(GidKind::RoceV1));
        assert_eq!(parse_gid_kind(""), None);
    }
}
