//! Children, partitions, and the settings of the kernel's IPoIB in sysfs and ethtool.

use proto::{Mode, PKey};
use serde::{Deserialize, Serialize};

/// Parameters of [`super::Request::ChildAdd`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildAddRequest {
    /// The parent, which cannot be a child.
    pub parent: String,
    /// The partition; the daemon sets bit 15. A plain number, so that the daemon can refuse a number out of
    /// range with a sentence (`create_child_store` in the kernel's ipoib_main.c).
    pub pkey: i64,
    /// Interface name; default: the first 10 bytes of the parent's name, a dot, and four hexadecimal digits
    /// of the P_Key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Mode; default: the configured mode of the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// IP MTU in bytes; default: the largest of the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// TAP queues; default: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Network namespace, a name of `ip netns`; default: the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}

/// Parameters of [`super::Request::ChildDel`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildDelRequest {
    /// The child; with `pkey`, its parent.
    pub interface: String,
    /// The child's partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pkey: Option<i64>,
}

/// A child interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildInfo {
    /// Current name.
    pub name: String,
    /// Current name of the parent.
    pub parent: String,
    /// Partition, with bit 15 set.
    pub pkey: PKey,
    /// The table entry in use; absent while the port's table lacks the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<PKey>,
    /// Mode.
    pub mode: Mode,
    /// IP MTU in bytes.
    pub mtu: u32,
    /// Network namespace, unless it is the daemon's: a name of `ip netns`, or `netns:N` with the inode number
    /// of a namespace without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Whether the carrier is on.
    pub carrier: bool,
    /// Reason if the carrier is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of [`super::Request::Pkeys`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PkeysRequest {
    /// Only this port: its name (`soft/eth0`, `mlx5_0/1`) or its underlay. A change needs a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The new table; empty: the P_Keys of the port's interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pkeys: Option<Vec<PKey>>,
}

/// A port's P_Key table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PkeyTable {
    /// The port.
    pub port: String,
    /// The entries by index; bit 15 marks full membership.
    pub pkeys: Vec<PKey>,
    /// Whether the table follows the P_Keys of the interfaces.
    pub automatic: bool,
    /// Whether the daemon can set the table; otherwise the device or a subnet manager sets it.
    #[serde(default = "yes")]
    pub settable: bool,
}

/// Default for daemons of older versions, which have only settable tables.
fn yes() -> bool {
    true
}

/// Parameters of [`super::Request::Mtu`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MtuRequest {
    /// The interface.
    pub interface: String,
    /// The new IP MTU in bytes; absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// Parameters of [`super::Request::Umcast`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UmcastRequest {
    /// The interface.
    pub interface: String,
    /// The new value; absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umcast: Option<bool>,
}

/// Parameters of [`super::Request::Moderation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModerationRequest {
    /// An interface of the port. All interfaces of a port share its completion queues.
    pub interface: String,
    /// Microseconds, 0 to 65535; absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_usecs: Option<u32>,
    /// Packets, 0 to 65535; absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_frames: Option<u32>,
}

/// Completion moderation of received packets (kernel ipoib_ethtool.c, `ipoib_set_coalesce`): a data thread
/// that received fewer than `rx_frames` packets waits `rx_usecs` before it polls again. With either at 0 it
/// polls at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moderation {
    /// Microseconds.
    pub rx_usecs: u32,
    /// Packets.
    pub rx_frames: u32,
}

impl Moderation {
    /// The maximum of both values (kernel ipoib_ethtool.c, `ipoib_set_coalesce`: 16 bits each).
    pub const MAX: u32 = 0xffff;
}
