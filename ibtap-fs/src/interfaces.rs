//! Interfaces known to the kernel (FUSE), and their numbers.
//!
//! The queue pair identifies an interface for life; names change. An open file, or a shell in `ib0/`, stays
//! with its interface after a rename, and does not switch to another interface with its former name. sysfs
//! does the same.

use std::collections::HashMap;

use control::api::InterfaceInfo;
use proto::Qpn;

use crate::remembered::Remembered;

/// Identity of an interface for life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    port: String,
    qpn: Qpn,
}

impl Identity {
    /// The identity of an interface.
    pub fn of(interface: &InterfaceInfo) -> Identity {
        Identity {
            port: interface.port.clone(),
            qpn: interface.qpn,
        }
    }
}

/// A remembered interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Identity.
    pub identity: Identity,
    /// Selector for requests, when the interface was last seen.
    pub selector: String,
    /// Whether it is a child; constant for life.
    pub is_child: bool,
}

/// Interfaces with inodes in the kernel.
#[derive(Debug, Default)]
pub struct Interfaces(Remembered<Identity, Known>);

impl Interfaces {
    /// Counts a lookup by the kernel. Returns the interface's number.
    pub fn looked_up(&mut self, interface: &InterfaceInfo) -> u64 {
        let known = Known {
            identity: Identity::of(interface),
            selector: interface.qualified_name(),
            is_child: interface.parent.is_some(),
        };
        self.0.looked_up(known.identity.clone(), known)
    }

    /// Counts another lookup of an interface that the kernel knows.
    pub fn looked_up_within(&mut self, number: u64) {
        self.0.looked_up_within(number);
    }

    /// The kernel forgets this number of lookups.
    pub fn forgotten(&mut self, number: u64, lookups: u64) {
        self.0.forgotten(number, lookups);
    }

    /// A remembered interface.
    pub fn get(&self, number: u64) -> Option<&Known> {
        self.0.get(number).map(|(_, known)| known)
    }

    /// Updates the selector of an interface.
    pub fn seen(&mut self, number: u64, interface: &InterfaceInfo) {
        if let Some(known) = self.0.get_mut(number) {
            known.selector = interface.qualified_name();
        }
    }
}

/// Names of directories: the name of the interface. If several interfaces have that name, those in other
/// namespaces than the daemon's have the prefix `NETNS:`. (A name of an interface has no colon, see
/// `dev_valid_name` in the kernel's `net/core/dev.c`.)
pub fn directories(interfaces: &[InterfaceInfo]) -> Vec<String> {
    let mut count: HashMap<&str, u32> = HashMap::new();
    for interface in interfaces {
        *count.entry(&interface.name).or_default() += 1;
    }
    interfaces
        .iter()
        .map(|interface| match &interface.netns {
            Some(netns) if count[interface.name.as_str()] > 1 => {
                format!("{netns}:{}", interface.name)
            }
            _ => interface.name.clone(),
        })
        .collect()
}

/// The network namespace and the interface name of a directory's name.
pub fn parts(directory: &str) -> (Option<&str>, &str) {
    match directory.rsplit_once(':') {
        Some((netns, name)) => (Some(netns), name),
        None => (None, directory),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::interface;

    #[test]
    fn a_number_lasts_as_long_as_the_kernel_remembers() {
        let mut interfaces = Interfaces::default();
        let ib0 = interface("ib0", 0x48);
        let number = interfaces.looked_up(&ib0);
        assert_eq!(interfaces.looked_up(&ib0), number);
        interfaces.looked_up_within(number);
        interfaces.forgotten(number, 2);
        assert_eq!(interfaces.get(number).unwrap().selector, "ib0");
        interfaces.forgotten(number, 1);
        assert_eq!(interfaces.get(number), None);
        assert_ne!(
            interfaces.looked_up(&ib0),
            number,
            "numbers are not used again"
        );
        interfaces.forgotten(77, 1);
    }

    #[test]
    fn a_new_name_is_no_new_interface_and_an_old_name_no_old_one() {
        let mut interfaces = Interfaces::default();
        let number = interfaces.looked_up(&interface("ib0", 0x48));
        assert_eq!(interfaces.looked_up(&interface("ib9", 0x48)), number);
        assert_eq!(interfaces.get(number).unwrap().selector, "ib9");
        assert_ne!(interfaces.looked_up(&interface("ib0", 0x49)), number);
    }

    #[test]
    fn names_that_are_not_alone_have_their_namespace_before_them() {
        let mut there = interface("ib0", 2);
        there.netns = Some("blue".into());
        let mut moved = interface("ib0.8001", 3);
        moved.netns = Some("netns:4026532008".into());
        let listed = directories(&[interface("ib0", 1), there.clone(), moved.clone()]);
        assert_eq!(listed, ["ib0", "blue:ib0", "ib0.8001"]);
        assert_eq!(there.qualified_name(), "blue/ib0");
        assert_eq!(moved.qualified_name(), "netns:4026532008/ib0.8001");
        assert_eq!(
            parts("netns:4026532008:ib0"),
            (Some("netns:4026532008"), "ib0")
        );
        assert_eq!(parts("ib0"), (None, "ib0"));
    }

    proptest! {
        #[test]
        fn every_directory_names_its_interface(
            places in prop::collection::hash_set(("[a-c]", prop::option::of("[a-c:]{1,3}")), 0..8)
        ) {
            let interfaces: Vec<_> = places
                .iter()
                .map(|(name, netns)| InterfaceInfo { netns: netns.clone(), ..interface(name, 1) })
                .collect();
            let listed = directories(&interfaces);
            for (directory, interface) in listed.iter().zip(&interfaces) {
                let (netns, name) = parts(directory);
                prop_assert_eq!(name, &interface.name);
                if netns.is_some() {
                    prop_assert_eq!(netns, interface.netns.as_deref());
                }
            }
            // The names are unique.
            let mut seen = listed.clone();
            seen.sort();
            seen.dedup();
            prop_assert_eq!(seen.len(), listed.len());
        }
    }
}
