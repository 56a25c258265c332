//! What sysfs tells about devices (Documentation/ABI/stable/sysfs-class-infiniband).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType, socket};

use super::ibv::GidKind;

/// Where RDMA devices are.
pub const CLASS: &str = "/sys/class/infiniband";

/// Where what programs may open of them is.
pub const UVERBS_CLASS: &str = "/sys/class/infiniband_verbs";

/// Whether the kernel has a device, as far as this network namespace sees it.
pub fn has_device(device: &str) -> bool {
    !device.is_empty() && !device.contains('/') && Path::new(CLASS).join(device).exists()
}

/// The node that programs open for a device: `uverbs0`.
pub fn uverbs(device: &str) -> Option<String> {
    let of_device =
        |dir: &Path| fs::read_to_string(dir.join("ibdev")).is_ok_and(|name| name.trim() == device);
    fs::read_dir(UVERBS_CLASS)
        .ok()?
        .flatten()
        .find(|entry| of_device(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn port(device: &str, port: u8) -> PathBuf {
    Path::new(CLASS)
        .join(device)
        .join("ports")
        .join(port.to_string())
}

/// What packets with a GID of a port's table are like; `None` for an empty place.
pub fn gid_kind(device: &str, port_number: u8, index: u32) -> Option<GidKind> {
    let path = port(device, port_number)
        .join("gid_attrs/types")
        .join(index.to_string());
    parse_gid_kind(&fs::read_to_string(path).ok()?)
}

/// The interface index that a GID of a port's table belongs to.
pub fn gid_netdev(device: &str, port_number: u8, index: u32) -> Option<u32> {
    let path = port(device, port_number)
        .join("gid_attrs/ndevs")
        .join(index.to_string());
    let name = fs::read_to_string(path).ok()?;
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    name_to_index(socket, name.trim()).ok()
}

/// The version of a device's firmware; software has none, or an empty one.
pub fn firmware(device: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(CLASS).join(device).join("fw_ver")).ok()?;
    Some(text.trim().to_owned()).filter(|version| !version.is_empty())
}

/// What an interface of this network namespace is called.
pub fn interface_name(ifindex: u32) -> Option<String> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    index_to_name(socket, ifindex).ok()
}

/// As the kernel writes it (drivers/infiniband/core/cache.c, `gid_type_str`).
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
