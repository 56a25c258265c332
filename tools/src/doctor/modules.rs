//! Drivers of the kernel that do what ibtap does.

use std::path::Path;

use super::finding::{Finding, Level};

/// Kernel modules that matter, and whether they are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Software RoCEv2, which takes UDP port 4791 while it has a device.
    pub rdma_rxe: bool,
    /// IPoIB, whose interfaces are called ib0, ib1, ... too.
    pub ib_ipoib: bool,
}

/// Looks. A driver that is built in shows as a loaded one where it has parameters, as these have.
pub fn gather() -> Facts {
    let is_there = |name: &str| Path::new("/sys/module").join(name).exists();
    Facts {
        rdma_rxe: is_there("rdma_rxe"),
        ib_ipoib: is_there("ib_ipoib"),
    }
}

/// Judges; silent where there is nothing.
pub fn judge(facts: Facts) -> Vec<Finding> {
    let note = |name: &str, found: &str| Finding::new("kernel", Level::Note, name, found);
    let mut findings = Vec::new();
    if facts.rdma_rxe {
        findings.push(
            note(
                "rdma_rxe",
                "is loaded: it takes UDP port 4791 of every interface from the software fabric",
            )
            .advise("if the port is taken: rdma link show; rdma link delete NAME; modprobe -r rdma_rxe, or use the device: --provider verbs"),
        );
    }
    if facts.ib_ipoib {
        findings.push(
            note(
                "ib_ipoib",
                "is loaded: its interfaces may be called ib0, too",
            )
            .advise("call ibtap's by another name: --name NAME"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_loaded_is_not_mentioned() {
        assert_eq!(judge(Facts::default()), []);
        let rxe = judge(Facts {
            rdma_rxe: true,
            ib_ipoib: false,
        });
        assert_eq!((rxe.len(), rxe[0].level), (1, Level::Note));
        assert_eq!(rxe[0].subject, "rdma_rxe");
        let both = judge(Facts {
            rdma_rxe: true,
            ib_ipoib: true,
        });
        assert_eq!(both.len(), 2);
    }
}
