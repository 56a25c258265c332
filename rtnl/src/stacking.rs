//! Interfaces stacked on an interface: do frames of other hosts pass through it?

use std::collections::BTreeSet;

use crate::link::Link;

/// The kernel's limit of nesting (include/linux/netdevice.h, MAX_NEST_DEV), such as a bond of a bridge of a
/// bond. It also ends loops in a list that changed while it was read.
const DEPTH_MAX: usize = 8;

/// The kind of stacking on an interface, with the name of the upper interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stacking {
    /// None: all frames are the host's own.
    None,
    /// A bond or team with nothing on top: still one host with one MAC, which moves between the bond's
    /// ports.
    Bond(String),
    /// A bridge; the interface, or its bond, is a port of it.
    Bridge(String),
    /// A macvlan or macvtap; there may be several.
    Macvlan(String),
    /// Another kind of interface: a VLAN, an ipvlan, an Open vSwitch.
    Other(String),
    /// The interface is promiscuous for an unknown user: a packet capture, or a macvlan that was moved to
    /// another namespace.
    Promiscuous,
}

impl Stacking {
    /// The stacking on the interface `link`; `links` has all interfaces of its namespace.
    pub fn on(links: &[Link], link: &Link) -> Stacking {
        on_link(links, link, 0)
    }

    /// Whether frames of other MACs may pass through the interface.
    pub fn has_guests(&self) -> bool {
        !matches!(self, Stacking::None | Stacking::Bond(_))
    }
}

/// The interfaces with these indexes and all interfaces stacked on them; `links` has all interfaces of their namespace.
pub fn with_stacked(links: &[Link], mut indexes: BTreeSet<u32>) -> BTreeSet<u32> {
    loop {
        let before = indexes.len();
        for link in links {
            if indexes.contains(&link.index) {
                indexes.extend(link.master);
            }
            if below(link).is_some_and(|lower| indexes.contains(&lower)) {
                indexes.insert(link.index);
            }
        }
        if indexes.len() == before {
            return indexes;
        }
    }
}

fn on_link(links: &[Link], link: &Link, depth: usize) -> Stacking {
    let master = links.iter().find(|above| Some(above.index) == link.master);
    if let Some(master) = master
        && let Some(stacking) = of_master(links, master, depth)
    {
        return stacking;
    }
    let above = links.iter().filter(|above| is_above(above, link));
    // A macvlan has precedence over a VLAN.
    if let Some(upper) = above.min_by_key(|upper| upper.macvlan.is_none()) {
        let name = upper.name.clone();
        return match upper.macvlan {
            Some(_) => Stacking::Macvlan(name),
            None => Stacking::Other(name),
        };
    }
    if link.promiscuity > 0 {
        return Stacking::Promiscuous;
    }
    Stacking::None
}

/// The stacking by the master `master`; `None` for a mere routing domain (VRF).
fn of_master(links: &[Link], master: &Link, depth: usize) -> Option<Stacking> {
    let name = master.name.clone();
    match master.kind.as_deref() {
        Some("bridge") => Some(Stacking::Bridge(name)),
        Some("bond" | "team") if depth < DEPTH_MAX => match on_link(links, master, depth + 1) {
            Stacking::None => Some(Stacking::Bond(name)),
            above => Some(above),
        },
        Some("vrf") => None,
        _ => Some(Stacking::Other(name)),
    }
}

/// Whether `upper` is made on top of `lower`.
fn is_above(upper: &Link, lower: &Link) -> bool {
    below(upper) == Some(lower.index)
}

/// The interface on which `link` is made. A veth reports its peer as its lower interface.
fn below(link: &Link) -> Option<u32> {
    let is_veth = link.kind.as_deref() == Some("veth");
    link.link.filter(|lower| *lower != link.index && !is_veth)
}
