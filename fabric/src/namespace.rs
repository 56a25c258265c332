//! A network namespace for the thread of a test.

use std::fs::{File, read_to_string};
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::process::{Command, id};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// See the module. The namespace is removed with this value.
pub struct Namespace(String);

impl Namespace {
    /// Moves this thread into a new namespace, whose name has the name of the case.
    pub fn enter(case: &str) -> Namespace {
        let ns = Namespace(format!("fabric-{}-{case}", id()));
        Namespace::ip(&format!("netns add {}", ns.0));
        let file = File::open(format!("/run/netns/{}", ns.0)).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        ns
    }

    /// With the loopback interface up.
    pub fn loopback(case: &str) -> Namespace {
        let ns = Namespace::enter(case);
        Namespace::ip("link set lo up");
        ns
    }

    /// Runs `ip` in the namespace of this thread.
    pub fn ip(words: &str) {
        let mut command = Command::new("ip");
        let status = command.args(words.split_whitespace()).status();
        assert!(status.unwrap().success(), "ip {words}");
    }

    /// Whether an interface in the namespace of this thread receives packets of a group.
    pub fn has_joined(interface: &str, group: Ipv6Addr) -> bool {
        let group = format!("{:032x}", u128::from(group));
        let listed = read_to_string("/proc/thread-self/net/igmp6").unwrap();
        let mut groups = listed.lines().map(|line| {
            let mut words = line.split_whitespace().skip(1);
            (words.next(), words.next())
        });
        groups.any(|found| found == (Some(interface), Some(&group)))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}
