//! All settings of a file: when a change takes effect, and whether a child inherits the setting.

use super::plan::{Change, PortChange, Step};
use super::{Config, IpoibConfig, PortConfig, VnicConfig};

/// When a changed setting of a `C` takes effect.
pub enum When<C, X> {
    /// While the daemon runs. The function gives the change, or `None` if it needs a new interface.
    Live(fn(&C, &C) -> Option<X>),
    /// With a new interface.
    Anew,
    /// After a restart of the daemon.
    Restart,
}

/// A setting of a `C`; `X` is the type of a change at run time.
pub struct Setting<C, X> {
    /// Its key in a file.
    pub key: &'static str,
    /// When a change takes effect.
    pub when: When<C, X>,
    /// Whether a child inherits the parent's value by default.
    pub inherited: bool,
    /// Whether two configurations have different values.
    pub differs: fn(&C, &C) -> bool,
}

/// A setting that changes while the daemon runs.
const fn live<C, X>(
    key: &'static str,
    differs: fn(&C, &C) -> bool,
    change: fn(&C, &C) -> Option<X>,
) -> Setting<C, X> {
    Setting {
        key,
        when: When::Live(change),
        inherited: false,
        differs,
    }
}

/// A setting of a new interface.
const fn anew<C, X>(key: &'static str, differs: fn(&C, &C) -> bool) -> Setting<C, X> {
    Setting {
        key,
        when: When::Anew,
        inherited: false,
        differs,
    }
}

/// A setting that changes at a restart of the daemon.
const fn restart<C, X>(key: &'static str, differs: fn(&C, &C) -> bool) -> Setting<C, X> {
    Setting {
        key,
        when: When::Restart,
        inherited: false,
        differs,
    }
}

/// Marks a setting that children inherit.
const fn inherited<C, X>(mut setting: Setting<C, X>) -> Setting<C, X> {
    setting.inherited = true;
    setting
}

/// A setting that changes while the daemon runs, and whose key is the name of the field, or of a field `in` a field.
/// The change is given for the new configuration.
macro_rules! live {
    ($key:ident $(in $of:ident)? => |$to:ident| $change:expr) => {
        live(
            stringify!($key),
            |a, b| a$(.$of)?.$key != b$(.$of)?.$key,
            |_, $to| Some($change),
        )
    };
}

/// A field of a VNIC's switch, which changes with the switch. A change from or to a managed VNIC needs a new VNIC.
macro_rules! of_switch {
    ($key:ident) => {
        live(
            stringify!($key),
            |a, b| a.switch.as_ref().map(|s| &s.$key) != b.switch.as_ref().map(|s| &s.$key),
            |from, to| {
                from.switch.as_ref()?;
                to.switch.clone().map(Change::Switch)
            },
        )
    };
}

/// The top of a file.
pub const DAEMON: &[Setting<Config, Step>] = &[
    restart("socket", |a, b| a.socket != b.socket),
    live!(log_level => |to| Step::LogLevel(to.log_level)),
    restart("sandbox", |a, b| a.sandbox != b.sandbox),
    restart("group_access", |a, b| a.group_access != b.group_access),
    restart("metrics", |a, b| a.metrics != b.metrics),
];

/// `[port.…]`.
pub const PORT: &[Setting<PortConfig, PortChange>] = &[
    live!(busy_poll => |to| PortChange::BusyPoll(to.busy_poll)),
    live!(rx_usecs in moderation => |to| PortChange::Moderation(to.moderation)),
    live!(rx_frames in moderation => |to| PortChange::Moderation(to.moderation)),
    live!(peers => |to| PortChange::Peers(to.peers.clone())),
    live!(pkeys => |to| PortChange::Pkeys(to.pkeys.clone())),
    live!(managers => |to| PortChange::Management(to.management())),
    live!(management_key => |to| PortChange::Management(to.management())),
    live!(vnic_create => |to| PortChange::Management(to.management())),
    live!(allow => |to| PortChange::Allow(to.allow.clone())),
    restart("gid", |a, b| a.gid != b.gid),
    restart("link_mtu", |a, b| a.link_mtu != b.link_mtu),
    restart("sa", |a, b| a.sa != b.sa),
    restart("kernel_peers", |a, b| a.kernel_peers != b.kernel_peers),
    restart("cm", |a, b| a.cm != b.cm),
];

/// `[[ipoib]]`.
pub const IPOIB: &[Setting<IpoibConfig, Change>] = &[
    anew("name", |a, b| a.name != b.name),
    // A plan adds or removes each child as an interface.
    anew("children", |_, _| false),
    inherited(live!(mode => |to| Change::Mode(to.mode, to.mtu))),
    live(
        "mtu",
        // A change of the mode includes the MTU.
        |a, b| a.mtu != b.mtu && a.mode == b.mode,
        |_, to| Some(Change::Mtu(to.mtu)),
    ),
    inherited(live!(up => |to| Change::Up(to.up))),
    inherited(live!(persist => |to| Change::Persist(to.persist))),
    inherited(live!(mss => |to| Change::Mss(to.mss))),
    inherited(live!(trust_checksums => |to| Change::TrustChecksums(to.trust_checksums))),
    inherited(live!(dhcp => |to| Change::Dhcp(to.dhcp))),
    inherited(live!(claims => |to| Change::Claims(to.claims))),
    inherited(live!(refuse_requests => |to| Change::RefuseRequests(to.refuse_requests))),
    inherited(live!(inspect => |to| Change::Inspect(to.inspect, to.neighbours.clone()))),
    live!(neighbours => |to| Change::Inspect(to.inspect, to.neighbours.clone())),
    inherited(live!(reflect => |to| Change::Reflect(to.reflect))),
    live!(vlan_pkey => |to| Change::VlanPkey(to.vlan_pkey)),
    inherited(restart("netns", |a, b| a.netns != b.netns)),
    // A change between underlay and RDMA device counts for the new key.
    inherited(restart("underlay", |a, b| {
        a.port != b.port && b.port.key() == "underlay"
    })),
    inherited(restart("rdma", |a, b| {
        a.port != b.port && b.port.key() == "rdma"
    })),
    inherited(restart("connections", |a, b| {
        a.connections != b.connections
    })),
    restart("pkey", |a, b| a.pkey != b.pkey),
    inherited(restart("qkey", |a, b| a.qkey != b.qkey)),
    inherited(restart("qpn", |a, b| a.qpn != b.qpn)),
    restart("queues", |a, b| a.queue_count() != b.queue_count()),
];

/// `[[vnic]]`.
pub const VNIC: &[Setting<VnicConfig, Change>] = &[
    anew("name", |a, b| a.name != b.name),
    anew("netns", |a, b| a.netns != b.netns),
    anew("underlay", |a, b| {
        a.port != b.port && b.port.key() == "underlay"
    }),
    anew("rdma", |a, b| a.port != b.port && b.port.key() == "rdma"),
    anew("index", |a, b| a.index != b.index),
    anew("queues", |a, b| a.queue_count() != b.queue_count()),
    anew("mac_limit", |a, b| {
        a.learning.mac_limit != b.learning.mac_limit
    }),
    of_switch!(vesw),
    of_switch!(fabric_id),
    of_switch!(pkey),
    of_switch!(lid),
    of_switch!(mac),
    of_switch!(peers),
    live!(mtu => |to| Change::Mtu(to.mtu)),
    live!(up => |to| Change::Up(to.up)),
    live!(persist => |to| Change::Persist(to.persist)),
    live(
        "learning",
        |a, b| a.learning.on != b.learning.on,
        |_, to| Some(Change::Learning(to.learning)),
    ),
    live!(ageing in learning => |to| Change::Learning(to.learning)),
];

#[cfg(test)]
mod tests;
