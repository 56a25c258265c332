//! Capabilities (capabilities(7)), `no_new_privs` and tracing.

use rustix::io;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::Thread;

/// Used as long as the process runs: interfaces and sockets, other network namespaces, memory of RDMA devices.
const USED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_BROADCAST)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::IPC_LOCK);

/// Used in addition by a daemon with RDMA devices: a queue pair with a controlled Q_Key (kernel
/// drivers/infiniband/core/uverbs_cmd.c, modify_qp). The filter refuses packet and raw sockets.
const OF_DEVICES: CapabilitySet = CapabilitySet::NET_RAW;

/// Used until the end of the start, to name the process that has a port or an interface: the files of other users'
/// processes in /proc.
const USED_AT_START: CapabilitySet =
    CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// Capabilities of the kernel: 0 to 63 (linux/capability.h: 41 of them).
const NUMBERS: u32 = 64;

/// The capabilities that the process uses from its start.
fn of_process(devices: bool) -> CapabilitySet {
    let used = USED.union(USED_AT_START);
    if devices {
        used.union(OF_DEVICES)
    } else {
        used
    }
}

/// Keeps the used ones of the process's capabilities, and forbids to gain others. `devices`: the process uses RDMA
/// devices.
pub(crate) fn begin(devices: bool) {
    let kept = of_process(devices);
    // A program with file capabilities or set-user-ID gives none of them.
    if let Err(error) = set_no_new_privs(true) {
        log::warn!("cannot set no_new_privs: {error}");
    }
    for number in 0..NUMBERS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        // Refused without CAP_SETPCAP, as in the packaged unit, which limits the set itself.
        if !kept.contains(one) && remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    // No program is executed.
    if let Err(error) = clear_ambient_capability_set() {
        log::warn!("cannot clear the ambient capabilities: {error}");
    }
    keep(kept);
}

/// Nobody but root with CAP_SYS_PTRACE may read the memory of the process; it writes no core dump.
pub(crate) fn forbid_tracing() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("cannot forbid tracing of the process: {error}");
    }
}

/// Keeps the capabilities that the calling thread uses from now on.
pub(crate) fn enter(thread: Thread) {
    keep(match thread {
        // Without devices, `begin` has dropped the rest.
        Thread::Control => USED.union(OF_DEVICES),
        Thread::Data => CapabilitySet::empty(),
    });
}

/// Drops all capabilities of the calling thread except these.
fn keep(kept: CapabilitySet) {
    let drop_others = || -> io::Result<()> {
        let now = capabilities(None)?.permitted;
        let kept = now.intersection(kept);
        set_capabilities(
            None,
            CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            },
        )
    };
    if let Err(error) = drop_others() {
        log::warn!("cannot drop capabilities: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data thread that is taken over cannot change the network of the host.
    #[test]
    fn a_data_thread_keeps_no_capability_and_others_keep_theirs() {
        let of_thread = |thread| {
            std::thread::spawn(move || {
                let before = capabilities(None).unwrap().permitted;
                enter(thread);
                let after = capabilities(None).unwrap();
                assert_eq!(after.effective, after.permitted);
                assert!(after.inheritable.is_empty());
                assert!(before.contains(after.permitted));
                (before, after.permitted)
            })
            .join()
            .unwrap()
        };
        assert!(of_thread(Thread::Data).1.is_empty());
        let (before, control) = of_thread(Thread::Control);
        assert_eq!(control, before.intersection(USED.union(OF_DEVICES)));
    }

    #[test]
    fn only_a_process_with_devices_has_their_capabilities() {
        assert!(of_process(true).contains(OF_DEVICES));
        assert!(!of_process(false).intersects(OF_DEVICES));
    }
}
