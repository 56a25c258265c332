//! The check that a writing process may administer the network.
//!
//! Like the kernel's IPoIB (`ipoib_vlan.c ipoib_vlan_add`), a write needs CAP_NET_ADMIN in addition to the
//! file's permissions: root without capabilities, for example in a container, creates no interfaces. FUSE
//! reports the process id; proc_pid_status(5) has the capabilities.

use std::fs;

/// The bit of CAP_NET_ADMIN (`linux/capability.h`).
const CAP_NET_ADMIN: u32 = 12;

/// Whether a process or thread has CAP_NET_ADMIN in the user namespace of `ibtap-fs`. A process in a foreign
/// pid namespace has number 0 and is refused.
pub fn may_administer(pid: u32) -> bool {
    pid != 0 && has_capability(pid) && is_in_our_user_namespace(pid)
}

fn has_capability(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| effective(&status))
        .is_some_and(|capabilities| capabilities >> CAP_NET_ADMIN & 1 == 1)
}

/// Capabilities in other user namespaces do not count, as with the kernel's `capable()`.
fn is_in_our_user_namespace(pid: u32) -> bool {
    let theirs = fs::read_link(format!("/proc/{pid}/ns/user"));
    let ours = fs::read_link("/proc/self/ns/user");
    matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours)
}

/// The effective set of a `status` file.
fn effective(status: &str) -> Option<u64> {
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_effective_set_is_found() {
        let status = "Name:\tcat\nCapPrm:\tff\nCapEff:\t0000000000001000\nCapBnd:\t0\n";
        assert_eq!(effective(status), Some(1 << CAP_NET_ADMIN));
        assert_eq!(effective("Name:\tcat\n"), None);
        assert_eq!(effective("CapEff:\tno\n"), None);
    }

    #[test]
    fn processes_that_are_missing_or_invisible_may_not() {
        assert!(!may_administer(0));
        assert!(!may_administer(u32::MAX));
    }

    proptest! {
        #[test]
        fn any_set_is_read_as_it_is_printed(set: u64) {
            prop_assert_eq!(effective(&format!("CapEff:\t{set:016x}\n")), Some(set));
        }
    }
}
