//! Drivers of the kernel that do the same as ibtap.

use std::path::Path;

use super::finding::{Finding, Level};

/// Kernel modules: whether they are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Software RoCEv2: it uses UDP port 4791 while it has a device.
    pub rdma_rxe: bool,
    /// IPoIB: it also names its interfaces ib0, ib1, ...
    pub ib_ipoib: bool,
}

/// Reads the facts. /sys/module also lists built-in drivers with parameters, such as these.
pub fn gather() -> Facts {
    let is_there = |name: &str| Path::new("/sys/module").join(name).exists();
    Facts {
        rdma_rxe: is_there("rdma_rxe"),
        ib_ipoib: is_there("ib_ipoib"),
    }
}

/// Judges the facts; no finding without these modules.
pub fn judge(facts: Facts) -> Vec<Finding> {
    let note = |name: &str, found: &str| Finding::new("kernel", Level::Note, name, found);
    let mut findings = Vec::new();
    if facts.rdma_rxe {
        findings.push(
            note(
                "rdma_rxe",
                "is loaded: with a device, it uses UDP port 4791 on every interface",
            )
            .advise(
                "if the port is in use: use the device with --provider verbs, or remove it: rdma link show; \
                 rdma link delete NAME; modprobe -r rdma_rxe",
            ),
        );
    }
    if facts.ib_ipoib {
        findings.push(
            note("ib_ipoib", "is loaded: it may also name an interface ib0")
                .advise("use another name for the interface of ibtapd: --name NAME"),
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
