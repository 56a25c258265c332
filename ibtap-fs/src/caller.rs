//! Whether who writes may administer the network.
//!
//! The kernel's IPoIB asks for CAP_NET_ADMIN beyond the file's permissions
//! (`ipoib_vlan.c ipoib_vlan_add`), so that a root without capabilities, in a container for instance,
//! makes no interfaces. FUSE tells which process writes; what that may do is in proc_pid_status(5).

use std::fs;

/// The bit of CAP_NET_ADMIN (`linux/capability.h`).
const CAP_NET_ADMIN: u32 = 12;

/// Whether a process (or a thread of one) has CAP_NET_ADMIN in our user namespace. One that cannot
/// be seen, in a foreign pid namespace, has number 0 and is not trusted.
pub fn may_administer(pid: u32) -> bool {
    pid != 0 && has_capability(pid) && is_in_our_user_namespace(pid)
}

fn has_capability(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| effective(&status))
        .is_some_and(|capabilities| capabilities >> CAP_NET_ADMIN & 1 == 1)
}

/// In another one capabilities are worth nothing here, as `capable()` has it.
fn is_in_our_user_namespace(pid: u32) -> bool {
    let theirs = fs::read_link(format!("/proc/{pid}/ns/user"));
    let ours = fs::read_link("/proc/self/ns/user");
    matches!((theirs, ours), (Ok(theirs), Ok(ours)) if theirs == ours)
}

/// The effective set that a `status` file tells.
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
    fn nobody_and_the_invisible_may_not() {
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
