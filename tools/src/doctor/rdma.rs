//! An RDMA device of the kernel: modules, libraries, device, port, GIDs, and the limit of locked memory. The
//! daemon uses the same functions when it opens the device.

mod subnet;

use std::path::Path;

use fabric::verbs::VerbsConfig;
use fabric::verbs::ibv::{GidEntry, GidKind, LinkLayer};
use fabric::verbs::look::{self, Look, Seen, Unusable, Usable};
use rtnl::Requests;

use super::finding::{Finding, Level};
use super::rights::Locking;
use super::target::Target;
use super::underlay::ENCAPSULATION;

const CHECK: &str = "rdma";

/// Locked memory of a data thread on a port, about, in bytes: its buffers, and the same for the rings of its queues.
const LOCKED: u64 = 2 * look::BUFFERS;

/// Facts of this check.
#[derive(Debug)]
pub struct Facts {
    /// Missing kernel modules.
    pub missing: Vec<&'static str>,
    /// Whether the libraries load, or the error.
    pub libraries: Result<(), String>,
    /// The port, or the error.
    pub look: Result<Look, String>,
    /// The subnet of a port on InfiniBand.
    pub subnet: Option<subnet::Facts>,
    /// The module `ib_cm` is loaded.
    pub kernel_cm: bool,
    /// `ib_cm` is loaded, and another program has the port's connection requests.
    pub kernel_cm_shut_out: bool,
}

/// Reads the facts of a port of a device; `target` is the port.
pub fn gather(config: &VerbsConfig, target: &Target, requests: &mut Requests) -> Facts {
    let needed = [
        ("ib_uverbs", "/sys/class/infiniband_verbs"),
        ("rdma_ucm", "/sys/class/misc/rdma_cm"),
    ];
    let is_missing = |(_, path): &(&str, &str)| !Path::new(path).exists();
    let look = look::look(config, requests);
    let subnet = look
        .as_ref()
        .ok()
        .filter(|look| look.seen.info.link_layer == LinkLayer::InfiniBand)
        .map(|look| subnet::gather(config, &look.seen, target, requests));
    Facts {
        missing: needed
            .into_iter()
            .filter(is_missing)
            .map(|(module, _)| module)
            .collect(),
        libraries: look::libraries(),
        look,
        subnet,
        kernel_cm: Path::new("/sys/module/ib_cm").exists(),
        kernel_cm_shut_out: look::is_kernel_cm_shut_out(config),
    }
}

/// Judges the facts.
pub fn judge(facts: &Facts, config: &VerbsConfig, locking: Locking) -> Vec<Finding> {
    let name = &config.name();
    let link_layer = facts.look.as_ref().map(|look| look.seen.info.link_layer);
    let is_infiniband = link_layer == Ok(LinkLayer::InfiniBand);
    // Without ib_cm, which rdma_ucm would load, ibtapd manages the connections of an InfiniBand port.
    let by_umad = is_infiniband && !facts.kernel_cm;
    let missing = facts.missing.iter();
    let missing = missing.filter(|name| **name != "rdma_ucm" || !by_umad);
    let mut findings: Vec<Finding> = missing.map(|m| module(m)).collect();
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
    findings.extend(locked_memory(locking, config.workers));
    match &facts.look {
        Ok(look) => {
            findings.extend(port(name, look, config));
            let subnet = facts.subnet.iter();
            findings.extend(subnet.flat_map(|subnet| subnet.judge(name, &look.seen)));
            if is_infiniband && facts.kernel_cm_shut_out {
                findings.push(shut_out(name));
            }
        }
        // The libraries' finding has the reason.
        Err(_) if facts.libraries.is_err() => {}
        // The error has the remedy.
        Err(why) => findings.push(Finding::new(CHECK, Level::Fail, name, why)),
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
        }
        Err(why) if look.seen.info.active => findings.push(no_gid(name, &look.seen, &why)),
        Err(_) if look.seen.info.link_layer == LinkLayer::InfiniBand => {
            findings[0].advice = Some(subnet::what_to_do(look.seen.info.state).to_owned());
        }
        // The finding of the state gets the reason as advice.
        Err(why) => findings[0].advice = Some(why.reason().to_owned()),
    }
    findings.extend(groups(name, look));
    findings
}

fn module(name: &str) -> Finding {
    let (level, without) = match name {
        "rdma_ucm" => (Level::Warn, "connected mode creates no connections"),
        _ => (Level::Fail, "programs cannot use RDMA devices"),
    };
    let found = format!("is not loaded: {without}");
    Finding::new("kernel", level, name, found).advise(format!("modprobe {name}"))
}

/// Judges the limit of locked memory for a port with this number of data threads. A device pins its memory; only CAP_IPC_LOCK disables the limit (kernel
/// drivers/infiniband/core/umem.c, `ib_umem_get`).
fn locked_memory(locking: Locking, data_threads: usize) -> Option<Finding> {
    let limit = locking.limit.filter(|_| !locking.unlimited)?;
    let needed = LOCKED.saturating_mul(data_threads as u64);
    (limit < needed).then(|| {
        let found = format!(
            "{} KiB may be locked, but a port of an RDMA device with {data_threads} data thread(s) needs about {} KiB",
            limit >> 10,
            needed >> 10
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
        false => format!("none of its GIDs is usable: {}", listed.join(", ")),
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

/// `ib_cm` was loaded after `ibtapd` took over communication management.
fn shut_out(name: &str) -> Finding {
    let found = "ib_cm is loaded, but another program (ibtapd with cm = \"umad\") manages the connections of the \
                 port: ib_ipoib in connected mode and rdma_cm cannot connect";
    Finding::new("connections", Level::Warn, name, found)
        .advise("set cm = \"rdma_cm\", restart ibtapd, and load ib_cm again; or unload ib_cm")
}

fn groups(name: &str, look: &Look) -> Option<Finding> {
    (look.device.max_mcast_grp == 0).then(|| {
        let found = "the device has no multicast, which ARP needs";
        Finding::new(CHECK, Level::Fail, name, found)
            .advise("use the software fabric on its interface: --underlay IF")
    })
}

#[cfg(test)]
mod tests;
