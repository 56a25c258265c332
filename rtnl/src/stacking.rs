//! What is stacked on an interface: whether frames of others than the host itself go through it.

use crate::link::Link;

/// A bond of a bridge of a bond: the kernel's limit of nesting (include/linux/netdevice.h,
/// MAX_NEST_DEV), which also ends a list that changed while it was read and has a loop.
const DEPTH_MAX: usize = 8;

/// What is stacked on an interface, the names being those of the interfaces above it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stacking {
    /// Nothing: all frames are the host's own.
    None,
    /// A bond or team with nothing stacked on it in turn: still one host with one MAC, which moves
    /// between the bond's ports.
    Bond(String),
    /// It is a port of a bridge, or of a bond that is one.
    Bridge(String),
    /// A macvlan or macvtap; there may be more of them.
    Macvlan(String),
    /// Another kind of interface: a VLAN, an ipvlan, a switch of Open vSwitch.
    Other(String),
    /// Somebody wants every frame and does not show: a packet capture, or a macvlan that was moved to
    /// another namespace.
    Promiscuous,
}

impl Stacking {
    /// Whether frames may go through with MACs that are not the interface's own.
    pub fn has_guests(&self) -> bool {
        !matches!(self, Stacking::None | Stacking::Bond(_))
    }
}

/// Reads the stacking on the interface `ifindex` from all interfaces of its namespace; `None` if it
/// is not among them.
pub(crate) fn on(links: &[Link], ifindex: u32) -> Option<Stacking> {
    let link = links.iter().find(|link| link.index == ifindex)?;
    Some(on_link(links, link, 0))
}

fn on_link(links: &[Link], link: &Link, depth: usize) -> Stacking {
    let master = links.iter().find(|above| Some(above.index) == link.master);
    if let Some(master) = master
        && let Some(stacking) = of_master(links, master, depth)
    {
        return stacking;
    }
    let above = links.iter().filter(|above| is_above(above, link));
    // A macvlan says more than a VLAN beside it.
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

/// What being a port of `master` means; `None` if it is no more than a routing domain (VRF).
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

/// Whether an interface is made on top of another one. A veth names its peer as if it were below.
fn is_above(upper: &Link, lower: &Link) -> bool {
    upper.link == Some(lower.index)
        && upper.index != lower.index
        && upper.kind.as_deref() != Some("veth")
}
