//! The subnet of an InfiniBand port: state, subnet manager, management datagrams, P_Keys, and the kernel's
//! IPoIB on the same port.

use std::io;

use fabric::PKey;
use fabric::umad::{Umad, UmadError};
use fabric::verbs::VerbsConfig;
use fabric::verbs::look::{self, Seen};
use rtnl::Requests;

use crate::doctor::finding::{Finding, Level};
use crate::doctor::target::Target;

const CHECK: &str = "subnet";

/// Facts of this check.
#[derive(Debug)]
pub struct Facts {
    /// Whether the port's management datagrams can be used, or the error.
    pub umad: Result<(), UmadError>,
    /// Interfaces of the kernel's IPoIB on the port, and whether they have an IPv4 address.
    pub kernel: Vec<(String, bool)>,
    /// A running daemon uses the port.
    pub served: bool,
    /// The interfaces that a daemon would create on the port, with their P_Keys.
    pub wanted: Vec<(String, PKey)>,
}

/// Reads the facts of a port.
pub fn gather(
    config: &VerbsConfig,
    seen: &Seen,
    target: &Target,
    requests: &mut Requests,
) -> Facts {
    let first = seen.gids.iter().find(|entry| entry.index == 0);
    let names = first.map_or_else(Vec::new, |entry| look::kernel_interfaces(entry.gid));
    let mut has_ipv4 = |name: &str| {
        let link = requests.link_by_name(name).ok()?;
        let addresses = requests.addresses(link.index).ok()?;
        Some(addresses.iter().any(|a| a.ip.is_ipv4() && a.is_usable()))
    };
    let kernel = names.into_iter().map(|name| {
        let has_ipv4 = has_ipv4(&name).unwrap_or(false);
        (name, has_ipv4)
    });
    Facts {
        umad: Umad::open(&config.device, config.port).map(drop),
        kernel: kernel.collect(),
        served: !target.interfaces.is_empty(),
        wanted: target.wanted.clone(),
    }
}

/// What to do about a port in this state, which is not ACTIVE (IBA vol. 1, 7.2.7).
pub fn what_to_do(state: &str) -> &'static str {
    match state {
        "DOWN" => "the port has no link: check the cable and the port at the other end (ibstat)",
        "INIT" => {
            "the link is up, and no subnet manager has configured the port: start one, on a switch or with \
             opensm on one host"
        }
        "ARMED" => {
            "a subnet manager configures the port: if the state stays ARMED, read the log of the subnet \
             manager"
        }
        "ACTIVE_DEFER" => {
            "the link failed a moment ago: if the state does not return to ACTIVE, check the cable"
        }
        _ => "see the kernel's log for messages of the adapter's driver",
    }
}

impl Facts {
    /// Judges the facts; `name` is the port's name.
    pub fn judge(&self, name: &str, seen: &Seen) -> Vec<Finding> {
        let mut findings = vec![self.datagrams(name)];
        if seen.info.active {
            findings.push(manager(name, seen));
        }
        // A running daemon reports the P_Keys of its interfaces.
        if !self.served && seen.info.active {
            findings.extend(self.partitions(name, &seen.pkeys));
        }
        findings.extend(self.beside_the_kernel(name));
        findings
    }

    /// Judges the way to the subnet administrator.
    fn datagrams(&self, name: &str) -> Finding {
        let failed = |found: String| Finding::new(CHECK, Level::Fail, name, found);
        match &self.umad {
            Ok(()) => {
                let found = "its management datagrams can be used";
                Finding::new(CHECK, Level::Ok, name, found)
            }
            Err(UmadError::Absent { reason }) => {
                failed(format!("libibumad does not load: {reason}"))
                    .advise("apt-get install libibumad3")
            }
            Err(UmadError::NoModule) => {
                failed("the kernel offers no management datagrams to programs".to_owned())
                    .advise("modprobe ib_umad")
            }
            Err(UmadError::Node {
                node,
                reason,
                advice,
                ..
            }) => {
                let found = format!("cannot open {}: {reason}", node.display());
                // A running daemon has opened the node already.
                let ours = reason.kind() == io::ErrorKind::PermissionDenied && self.served;
                let level = if ours { Level::Note } else { Level::Fail };
                Finding::new(CHECK, level, name, found).advise(*advice)
            }
            Err(other) => failed(other.to_string()),
        }
    }

    /// Judges the P_Key table by the interfaces that a daemon would create.
    fn partitions(&self, name: &str, table: &[PKey]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (interface, pkey) in &self.wanted {
            let entries = table.iter().filter(|entry| entry.full() == pkey.full());
            let finding = |level, found| Finding::new("pkey", level, name, found);
            match entries.map(|entry| entry.is_full()).max() {
                Some(true) => {}
                Some(false) => findings.push(
                    finding(
                        Level::Note,
                        format!(
                            "is a limited member of the partition {} of {interface}, and reaches full \
                             members only",
                            pkey.full()
                        ),
                    )
                    .advise(
                        "two limited members exchange no packets, not even ARP: make this host or its peers \
                         full members in the subnet manager",
                    ),
                ),
                None => findings.push(
                    finding(
                        Level::Fail,
                        format!(
                            "its P_Key table lacks {}, which {interface} needs",
                            pkey.full()
                        ),
                    )
                    .advise(
                        "add this host to the partition in the subnet manager (partitions.conf of OpenSM)",
                    ),
                ),
            }
        }
        findings
    }

    /// Judges interfaces of the kernel's IPoIB on the port: the subnet administrator has one membership of the
    /// port in each group, for the kernel and for ibtapd.
    fn beside_the_kernel(&self, name: &str) -> impl Iterator<Item = Finding> {
        self.kernel.iter().map(move |(kernel, has_ipv4)| {
            if *has_ipv4 {
                let found = format!(
                    "the kernel's {kernel} is on this port, too: ibtapd joins the groups of its partition by \
                     rdma_cm, and both keep their groups"
                );
                return Finding::new(CHECK, Level::Note, name, found);
            }
            let found = format!(
                "the kernel's {kernel} is on this port, too, and has no IPv4 address, which rdma_cm needs: \
                 groups that {kernel} leaves are lost for ibtapd"
            );
            Finding::new(CHECK, Level::Warn, name, found).advise(format!(
                "before ibtapd starts: ip address add ADDRESS/LENGTH dev {kernel}; or remove {kernel}"
            ))
        })
    }
}

fn manager(name: &str, seen: &Seen) -> Finding {
    match seen.info.sm_lid {
        Some(lid) => {
            let found = format!("the subnet manager has LID {:#06x}", lid.0);
            Finding::new(CHECK, Level::Ok, name, found)
        }
        None => {
            let found = "the port knows no subnet manager: the LID of the subnet manager is 0";
            Finding::new(CHECK, Level::Fail, name, found)
                .advise("start a subnet manager: on a switch, or opensm on one host")
        }
    }
}
