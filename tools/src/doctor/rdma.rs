//! An RDMA device of the kernel: modules, libraries, the device itself, its port and GIDs, and how much
//! memory may be locked for it. What the daemon would say when it opens the device is said here by the
//! same functions.

use std::path::Path;

use fabric::LinkLayer;
use fabric::verbs::VerbsConfig;
use fabric::verbs::ibv::{GidEntry, GidKind};
use fabric::verbs::look::{self, Look, Seen, Unusable, Usable};
use rtnl::Requests;

use super::finding::{Finding, Level};
use super::rights::Locking;

const CHECK: &str = "rdma";

/// Bytes of IPoIB's encapsulation header (RFC 4391, 6).
const ENCAPSULATION: u32 = 4;

/// Memory that a port locks, about, in bytes: its buffers, and as much for the rings of its queues.
const LOCKED: u64 = 2 * look::BUFFERS;

/// What is to be judged.
#[derive(Debug)]
pub struct Facts {
    /// Kernel modules that are needed and not there.
    pub missing: Vec<&'static str>,
    /// Whether the libraries are there, or what to install.
    pub libraries: Result<(), String>,
    /// What the port is like, or why it cannot be looked at.
    pub look: Result<Look, String>,
}

/// Looks at a port of a device.
pub fn gather(config: &VerbsConfig, requests: &mut Requests) -> Facts {
    let needed = [
        ("ib_uverbs", "/sys/class/infiniband_verbs"),
        ("rdma_ucm", "/sys/class/misc/rdma_cm"),
    ];
    let is_missing = |(_, path): &(&str, &str)| !Path::new(path).exists();
    Facts {
        missing: needed
            .into_iter()
            .filter(is_missing)
            .map(|(module, _)| module)
            .collect(),
        libraries: look::libraries(),
        look: look::look(config, requests),
    }
}

/// Judges.
pub fn judge(facts: &Facts, config: &VerbsConfig, locking: Locking) -> Vec<Finding> {
    let name = &config.name();
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
        Ok(look) => findings.extend(port(name, look, config)),
        // That was said already.
        Err(_) if facts.libraries.is_err() => {}
        Err(why) => findings.push(
            Finding::new(CHECK, Level::Fail, name, why).advise(
                "rdma link show lists the devices; rdma link add rxe0 type rxe netdev IF makes one of an \
                 Ethernet interface",
            ),
        ),
    }
    findings
}

fn port(name: &str, look: &Look, config: &VerbsConfig) -> Vec<Finding> {
    let mut findings = vec![state(name, &look.seen)];
    match look::evaluate(config, &look.seen, None) {
        Ok(usable) => {
            let found = format!("{} is used", described(&usable.gid));
            findings.push(Finding::new("gid", Level::Ok, name, found));
            findings.push(mtu(name, &usable));
            let infiniband = usable.link_layer == LinkLayer::InfiniBand;
            findings.extend((infiniband && config.lids.is_empty()).then(|| lids(name)));
        }
        Err(why) if look.seen.info.active => findings.push(no_gid(name, &look.seen, &why)),
        // There is no more to it than that.
        Err(why) => findings[0].advice = Some(why.reason().to_owned()),
    }
    findings.extend(groups(name, look));
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

fn state(name: &str, seen: &Seen) -> Finding {
    let mut found = format!("{}, {}", seen.info.state, seen.info.link_layer);
    if let Some(lid) = seen.info.lid {
        found += &format!(", LID {:#06x}", lid.0);
    }
    let level = match seen.info.active {
        true => Level::Ok,
        false => Level::Fail,
    };
    Finding::new(CHECK, level, name, found)
}

fn no_gid(name: &str, seen: &Seen, why: &Unusable) -> Finding {
    let listed: Vec<String> = seen.gids.iter().map(described).collect();
    let found = match listed.is_empty() {
        true => "its GID table is empty".to_owned(),
        false => format!("none of its GIDs can be used: {}", listed.join(", ")),
    };
    Finding::new("gid", Level::Fail, name, found).advise(why.reason())
}

fn described(gid: &GidEntry) -> String {
    let kind = match gid.kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    };
    format!("{} {} ({kind})", gid.index, gid.gid)
}

fn mtu(name: &str, usable: &Usable) -> Finding {
    let ip = usable.ud_payload_max.saturating_sub(ENCAPSULATION);
    let found = format!(
        "{} bytes of payload leave {ip} to IP",
        usable.ud_payload_max
    );
    match usable.mtu_warning(name) {
        None => Finding::new("mtu", Level::Ok, name, found),
        Some(why) => Finding::new("mtu", Level::Warn, name, found).advise(why),
    }
}

/// On InfiniBand nobody but the configuration says where others are.
fn lids(name: &str) -> Finding {
    Finding::new(CHECK, Level::Warn, name, look::no_lids(name))
        .advise("list ports and groups; docs/rdma.md, \"InfiniBand\", shows how")
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
