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

/// The top of a file.
pub const DAEMON: &[Setting<Config, Step>] = &[
    restart("socket", |a, b| a.socket != b.socket),
    live(
        "log_level",
        |a, b| a.log_level != b.log_level,
        |_, to| Some(Step::LogLevel(to.log_level)),
    ),
    restart("sandbox", |a, b| a.sandbox != b.sandbox),
    restart("group_access", |a, b| a.group_access != b.group_access),
    restart("metrics", |a, b| a.metrics != b.metrics),
];

/// `[port.…]`.
pub const PORT: &[Setting<PortConfig, PortChange>] = &[
    live(
        "busy_poll",
        |a, b| a.busy_poll != b.busy_poll,
        |_, to| Some(PortChange::BusyPoll(to.busy_poll)),
    ),
    live(
        "rx_usecs",
        |a, b| a.moderation.rx_usecs != b.moderation.rx_usecs,
        |_, to| Some(PortChange::Moderation(to.moderation)),
    ),
    live(
        "rx_frames",
        |a, b| a.moderation.rx_frames != b.moderation.rx_frames,
        |_, to| Some(PortChange::Moderation(to.moderation)),
    ),
    live(
        "peers",
        |a, b| a.peers != b.peers,
        |_, to| Some(PortChange::Peers(to.peers.clone())),
    ),
    live(
        "pkeys",
        |a, b| a.pkeys != b.pkeys,
        |_, to| Some(PortChange::Pkeys(to.pkeys.clone())),
    ),
    live(
        "managers",
        |a, b| a.managers != b.managers,
        |_, to| Some(PortChange::Management(to.management())),
    ),
    live(
        "management_key",
        |a, b| a.management_key != b.management_key,
        |_, to| Some(PortChange::Management(to.management())),
    ),
    live(
        "vnic_create",
        |a, b| a.vnic_create != b.vnic_create,
        |_, to| Some(PortChange::Management(to.management())),
    ),
    live(
        "allow",
        |a, b| a.allow != b.allow,
        |_, to| Some(PortChange::Allow(to.allow.clone())),
    ),
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
    inherited(live(
        "mode",
        |a, b| a.mode != b.mode,
        |_, to| Some(Change::Mode(to.mode, to.mtu)),
    )),
    live(
        "mtu",
        // A change of the mode includes the MTU.
        |a, b| a.mtu != b.mtu && a.mode == b.mode,
        |_, to| Some(Change::Mtu(to.mtu)),
    ),
    inherited(live(
        "up",
        |a, b| a.up != b.up,
        |_, to| Some(Change::Up(to.up)),
    )),
    inherited(live(
        "persist",
        |a, b| a.persist != b.persist,
        |_, to| Some(Change::Persist(to.persist)),
    )),
    inherited(live(
        "mss",
        |a, b| a.mss != b.mss,
        |_, to| Some(Change::Mss(to.mss)),
    )),
    inherited(live(
        "trust_checksums",
        |a, b| a.trust_checksums != b.trust_checksums,
        |_, to| Some(Change::TrustChecksums(to.trust_checksums)),
    )),
    inherited(live(
        "dhcp",
        |a, b| a.dhcp != b.dhcp,
        |_, to| Some(Change::Dhcp(to.dhcp)),
    )),
    inherited(live(
        "claims",
        |a, b| a.claims != b.claims,
        |_, to| Some(Change::Claims(to.claims)),
    )),
    inherited(live(
        "refuse_requests",
        |a, b| a.refuse_requests != b.refuse_requests,
        |_, to| Some(Change::RefuseRequests(to.refuse_requests)),
    )),
    inherited(live(
        "inspect",
        |a, b| a.inspect != b.inspect,
        |_, to| Some(Change::Inspect(to.inspect, to.neighbours.clone())),
    )),
    live(
        "neighbours",
        |a, b| a.neighbours != b.neighbours,
        |_, to| Some(Change::Inspect(to.inspect, to.neighbours.clone())),
    ),
    inherited(live(
        "reflect",
        |a, b| a.reflect != b.reflect,
        |_, to| Some(Change::Reflect(to.reflect)),
    )),
    live(
        "vlan_pkey",
        |a, b| a.vlan_pkey != b.vlan_pkey,
        |_, to| Some(Change::VlanPkey(to.vlan_pkey)),
    ),
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
    of_switch("vesw", |a, b| {
        a.switch.as_ref().map(|s| s.vesw) != b.switch.as_ref().map(|s| s.vesw)
    }),
    of_switch("fabric_id", |a, b| {
        a.switch.as_ref().map(|s| s.fabric_id) != b.switch.as_ref().map(|s| s.fabric_id)
    }),
    of_switch("pkey", |a, b| {
        a.switch.as_ref().map(|s| s.pkey) != b.switch.as_ref().map(|s| s.pkey)
    }),
    of_switch("lid", |a, b| {
        a.switch.as_ref().map(|s| s.lid) != b.switch.as_ref().map(|s| s.lid)
    }),
    of_switch("mac", |a, b| {
        a.switch.as_ref().map(|s| s.mac) != b.switch.as_ref().map(|s| s.mac)
    }),
    of_switch("peers", |a, b| {
        a.switch.as_ref().map(|s| &s.peers) != b.switch.as_ref().map(|s| &s.peers)
    }),
    live(
        "mtu",
        |a, b| a.mtu != b.mtu,
        |_, to| Some(Change::Mtu(to.mtu)),
    ),
    live("up", |a, b| a.up != b.up, |_, to| Some(Change::Up(to.up))),
    live(
        "persist",
        |a, b| a.persist != b.persist,
        |_, to| Some(Change::Persist(to.persist)),
    ),
    live(
        "learning",
        |a, b| a.learning.on != b.learning.on,
        |_, to| Some(Change::Learning(to.learning)),
    ),
    live(
        "ageing",
        |a, b| a.learning.ageing != b.learning.ageing,
        |_, to| Some(Change::Learning(to.learning)),
    ),
];

/// A setting of a VNIC's switch, which changes with the switch. A change from or to a managed VNIC needs a
/// new VNIC.
const fn of_switch(
    key: &'static str,
    differs: fn(&VnicConfig, &VnicConfig) -> bool,
) -> Setting<VnicConfig, Change> {
    live(key, differs, |from, to| {
        from.switch.as_ref()?;
        to.switch.clone().map(Change::Switch)
    })
}

#[cfg(test)]
mod tests;
