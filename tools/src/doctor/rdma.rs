//! An RDMA device of the kernel: modules, libraries, the device itself, its port and GIDs, and how much
//! memory may be locked for it. What the daemon would say when it opens the device is said here by the
//! same functions.

use std::path::Path;

use fabric::verbs::ibv::{GidEntry, GidKind, LinkLayer, PortInfo};
use fabric::verbs::look::{self, Look};
use ibtap::config::{GidChoice, LinkMtu, PortConfig};
use rtnl::Requests;

use super::finding::{Finding, Level};
use super::rights::Locking;

const CHECK: &str = "rdma";

/// Bytes of IPoIB's encapsulation header (RFC 4391, 6).
const ENCAPSULATION: u32 = 4;

/// What IPv6 needs (RFC 8200, 5), in bytes.
const IPV6_MTU_MIN: u32 = 1280;

/// Locked memory that a port takes, about, in bytes: its buffers, and the rings of its queues.
const LOCKED: u64 = 32 << 20;

/// What is to be judged.
#[derive(Debug)]
pub struct Facts {
    /// Kernel modules that are needed and not there.
    pub missing: Vec<&'static str>,
    /// Whether the libraries are there, or what to install.
    pub libraries: Result<(), String>,
    /// What the port is like, or why it cannot be looked at.
    pub look: Result<Look, String>,
    /// The Ethernet interface below, where there is one.
    pub netdev: Option<String>,
}

/// Looks at a port of a device.
pub fn gather(device: &str, port: u8, requests: &mut Requests) -> Facts {
    let look = look::look(device, port);
    let below = |look: &Look| look.gids.iter().find_map(|gid| gid.netdev);
    let netdev = look.as_ref().ok().and_then(below);
    let is_there = |class: &str| Path::new("/sys/class").join(class).exists();
    let missing = [
        ("ib_uverbs", is_there("infiniband_verbs")),
        ("rdma_ucm", Path::new("/sys/class/misc/rdma_cm").exists()),
    ];
    Facts {
        missing: missing
            .into_iter()
            .filter_map(|(module, there)| (!there).then_some(module))
            .collect(),
        libraries: look::libraries(),
        netdev: netdev
            .and_then(|index| requests.link_by_index(index).ok())
            .map(|link| link.name),
        look,
    }
}

/// Judges. `name` is `mlx5_0/1`.
pub fn judge(name: &str, facts: &Facts, port: &PortConfig, locking: Locking) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.missing.iter().map(|m| module(m)).collect();
    findings.push(match &facts.libraries {
        Ok(()) => Finding::new(
            CHECK,
            Level::Ok,
            "rdma-core",
            "libibverbs and librdmacm load",
        ),
        Err(why) => Finding::new(CHECK, Level::Fail, "rdma-core", why)
            .advise("apt-get install libibverbs1 librdmacm1 ibverbs-providers"),
    });
    findings.extend(locked_memory(locking));
    match &facts.look {
        Ok(look) => {
            findings.push(state(name, &look.port, facts.netdev.as_deref()));
            findings.push(gid(name, look, facts.netdev.as_deref(), port.gid));
            findings.push(mtu(
                name,
                &look.port,
                facts.netdev.as_deref(),
                port.link_mtu,
            ));
            findings.extend(lids(name, &look.port, port));
            findings.extend(groups(name, look));
        }
        // That was said already.
        Err(_) if facts.libraries.is_err() => {}
        Err(why) => findings.push(
            Finding::new(CHECK, Level::Fail, name, why).advise("rdma link show lists the devices"),
        ),
    }
    findings
}

fn module(name: &str) -> Finding {
    let (level, without) = match name {
        "rdma_ucm" => (Level::Warn, "connected mode makes no connections"),
        _ => (Level::Fail, "programs cannot use RDMA devices"),
    };
    let found = format!("is not loaded: {without}");
    Finding::new("kernel", level, name, found).advise(format!("modprobe {name}"))
}

/// Memory of a device is pinned, which is limited for all but who has CAP_IPC_LOCK (kernel
/// drivers/infiniband/core/umem.c, `ib_umem_get`).
fn locked_memory(locking: Locking) -> Option<Finding> {
    let limit = locking.limit.filter(|_| !locking.unlimited)?;
    (limit < LOCKED).then(|| {
        let found = format!(
            "{} KiB may be locked, and a port of an RDMA device takes about {}",
            limit >> 10,
            LOCKED >> 10
        );
        Finding::new("rights", Level::Fail, "memlock", found)
            .advise("LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited")
    })
}

fn state(name: &str, port: &PortInfo, netdev: Option<&str>) -> Finding {
    let mut found = format!("{}, {}", port.state, port.link_layer);
    if let Some(lid) = port.lid {
        found += &format!(", LID {:#06x}", lid.0);
    }
    if let Some(netdev) = netdev {
        found += &format!(", on {netdev}");
    }
    match port.active {
        true => Finding::new(CHECK, Level::Ok, name, found),
        false => Finding::new(CHECK, Level::Fail, name, found)
            .advise(look::port_down(name, port.state, netdev)),
    }
}

/// The entry that would be the port's GID.
fn gid(name: &str, look: &Look, netdev: Option<&str>, choice: GidChoice) -> Finding {
    let ethernet = look.port.link_layer == LinkLayer::Ethernet;
    let can_be = |g: &&GidEntry| !ethernet || (g.kind == GidKind::RoceV2 && g.gid.ipv4().is_none());
    let mut usable = look.gids.iter().filter(can_be);
    let meant = |g: &&GidEntry| match choice {
        GidChoice::Auto => true,
        GidChoice::Ipv4 => g.gid.ipv4().is_some(),
        GidChoice::Address(address) => g.gid == address.into(),
        GidChoice::Index(index) => g.index == index,
    };
    match usable.find(meant) {
        Some(found) => Finding::new(
            "gid",
            Level::Ok,
            name,
            format!("index {} is {} ({})", found.index, found.gid, kind(found)),
        ),
        None => {
            let listed: Vec<String> = look
                .gids
                .iter()
                .map(|g| format!("{} {} ({})", g.index, g.gid, kind(g)))
                .collect();
            let table = match listed.is_empty() {
                true => "its GID table is empty".to_owned(),
                false => format!("its GID table has {}", listed.join(", ")),
            };
            let found = format!("no usable GID is {choice}: {table}");
            Finding::new("gid", Level::Fail, name, found).advise(look::no_gid(name, netdev))
        }
    }
}

fn kind(gid: &GidEntry) -> &'static str {
    match gid.kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    }
}

fn mtu(name: &str, port: &PortInfo, netdev: Option<&str>, wanted: LinkMtu) -> Finding {
    let active = port.active_mtu.bytes();
    let link = match wanted {
        LinkMtu::Bytes(bytes) => bytes.min(active),
        LinkMtu::Auto | LinkMtu::Exact => active,
    };
    let ip = link.saturating_sub(ENCAPSULATION);
    let found = format!("an active MTU of {active} leaves {ip} to IP");
    if ip >= IPV6_MTU_MIN {
        return Finding::new("mtu", Level::Ok, name, found);
    }
    let advice = match netdev {
        Some(netdev) => format!("ip link set {netdev} mtu 4200, on every host and switch"),
        None => "raise it in the subnet manager".to_owned(),
    };
    let found = found + ", too few for IPv6, which needs 1280";
    Finding::new("mtu", Level::Warn, name, found).advise(advice)
}

/// On InfiniBand nobody but the configuration says where others are.
fn lids(name: &str, port: &PortInfo, settings: &PortConfig) -> Option<Finding> {
    let infiniband = port.link_layer == LinkLayer::InfiniBand;
    (infiniband && settings.lids.is_empty()).then(|| {
        Finding::new(CHECK, Level::Warn, name, look::no_lids(name))
            .advise("list ports and groups, as docs/operations.md says under \"RDMA hardware\"")
    })
}

fn groups(name: &str, look: &Look) -> Option<Finding> {
    (look.device.max_mcast_grp == 0).then(|| {
        let found = "its device has no multicast, without which there is no ARP";
        Finding::new(CHECK, Level::Fail, name, found)
            .advise("use the software fabric on its interface: --underlay IF")
    })
}

#[cfg(test)]
mod tests;
