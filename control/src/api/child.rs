//! Children, partitions, and what sysfs and ethtool set on the kernel's IPoIB.

use proto::{Mode, PKey};
use serde::{Deserialize, Serialize};

/// Parameters of [`super::Request::ChildAdd`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildAddRequest {
    /// The interface beside which it is made; no child itself.
    pub parent: String,
    /// Its partition, with or without bit 15, which is set in either case. A plain number, so that
    /// one that is out of range is refused by a sentence (`create_child_store` in the kernel's
    /// ipoib_main.c).
    pub pkey: i64,
    /// Its name; else the parent's, cut to 10 bytes, a dot, and four hexadecimal digits of the P_Key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its mode; else the parent's configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Its IP MTU in bytes; else the largest of its mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// TAP queues; else one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// The network namespace that it goes to, one of `ip netns`; else the parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
}

/// Parameters of [`super::Request::ChildDel`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildDelRequest {
    /// The child; or with `pkey` its parent.
    pub interface: String,
    /// The child's partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pkey: Option<i64>,
}

/// A child interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildInfo {
    /// Its name now.
    pub name: String,
    /// Its parent's name now.
    pub parent: String,
    /// Its partition, bit 15 set.
    pub pkey: PKey,
    /// The table entry in use; absent while the port's table lacks the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<PKey>,
    /// Its mode.
    pub mode: Mode,
    /// Its IP MTU in bytes.
    pub mtu: u32,
    /// The network namespace, where it is not the daemon's: a name of `ip netns`, or `netns:N` with
    /// the inode number of one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Whether its carrier is on.
    pub carrier: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of [`super::Request::Pkeys`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PkeysRequest {
    /// Only this port: its name (`soft/eth0`, `mlx5_0/1`) or its underlay. Needed to change one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The table that it is to have; empty: what its interfaces ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pkeys: Option<Vec<PKey>>,
}

/// A port's P_Key table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PkeyTable {
    /// The port.
    pub port: String,
    /// The entries by index; bit 15 is full membership.
    pub pkeys: Vec<PKey>,
    /// Whether it follows what the interfaces ask for; else it was given.
    pub automatic: bool,
    /// Whether it can be replaced; else it is the device's, and a subnet manager's.
    #[serde(default = "yes")]
    pub settable: bool,
}

/// All tables could be, once.
fn yes() -> bool {
    true
}

/// Parameters of [`super::Request::Mtu`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MtuRequest {
    /// The interface.
    pub interface: String,
    /// The IP MTU in bytes that it is to have; absent: the one that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// Parameters of [`super::Request::Umcast`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UmcastRequest {
    /// The interface.
    pub interface: String,
    /// What it is to be; absent: what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umcast: Option<bool>,
}

/// Parameters of [`super::Request::Moderation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModerationRequest {
    /// An interface of the port; its port's completion queues are shared by all of them.
    pub interface: String,
    /// Microseconds, 0 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_usecs: Option<u32>,
    /// Packets, 0 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx_frames: Option<u32>,
}

/// Completion moderation of what arrives (kernel ipoib_ethtool.c, `ipoib_set_coalesce`): after
/// fewer than `rx_frames` packets, a data thread does not look for more before `rx_usecs` have
/// passed. 0 of either: it looks at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moderation {
    /// Microseconds.
    pub rx_usecs: u32,
    /// Packets.
    pub rx_frames: u32,
}
