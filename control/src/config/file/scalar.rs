//! Values that are checked while they are read.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::Path;

use proto::{GidChoice, GidPrefix, LinkMtu, MssChoice, PKey, QKey, SaChoice};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::config::values::{self, BusyPoll, QpnChoice};
use crate::config::{ManagementKeys, MetricsAddress, PortName};

/// A value that is checked while it is read, so that errors have its place. A number may be a TOML number
/// or a string such as "0x8001".
pub(super) struct Value<T>(pub(super) T);

pub(super) struct Name(pub(super) String);
pub(super) struct RdmaName(pub(super) PortName);
pub(super) struct Netns(pub(super) String);
pub(super) struct Peer(pub(super) IpAddr);
pub(super) struct Mtu(pub(super) u32);
pub(super) struct Queues(pub(super) usize);
pub(super) struct Connections(pub(super) usize);
pub(super) struct ModerationValue(pub(super) u32);

pub(super) trait Scalar: Sized {
    const EXPECTED: &'static str;
    fn from_text(text: &str) -> Result<Self, String>;
    fn from_number(number: u64) -> Result<Self, String> {
        Err(format!(
            "invalid type: number {number}, expected {}",
            Self::EXPECTED
        ))
    }
}

/// A scalar from a number that may be negative.
pub(super) fn from_signed<T: Scalar, E: Error>(number: i64) -> Result<T, E> {
    match u64::try_from(number) {
        Ok(number) => T::from_number(number).map_err(E::custom),
        Err(_) => Err(E::custom(format!(
            "{number} is negative; expected {}",
            T::EXPECTED
        ))),
    }
}

impl Scalar for Name {
    const EXPECTED: &'static str = "the name of an interface";
    fn from_text(text: &str) -> Result<Name, String> {
        values::parse_interface(text).map(Name)
    }
}

impl Scalar for RdmaName {
    const EXPECTED: &'static str =
        "an RDMA device such as \"mlx5_0\", or a port of one such as \"mlx5_0/1\"";
    fn from_text(text: &str) -> Result<RdmaName, String> {
        PortName::parse_rdma(text).map(RdmaName)
    }
}

impl Scalar for Netns {
    const EXPECTED: &'static str = "the name of a network namespace";
    fn from_text(text: &str) -> Result<Netns, String> {
        values::parse_netns(text).map(Netns)
    }
}

impl Scalar for ManagementKeys {
    const EXPECTED: &'static str = "the path of a file with a key";
    fn from_text(text: &str) -> Result<ManagementKeys, String> {
        ManagementKeys::read(Path::new(text))
    }
}

impl Scalar for MetricsAddress {
    const EXPECTED: &'static str = "an address with a port, or a path";
    fn from_text(text: &str) -> Result<MetricsAddress, String> {
        text.parse()
    }
}

impl Scalar for Peer {
    const EXPECTED: &'static str = "an IPv6 or IPv4 address";
    fn from_text(text: &str) -> Result<Peer, String> {
        values::parse_peer(text).map(Peer)
    }
}

impl Scalar for GidPrefix {
    const EXPECTED: &'static str = "an address or a prefix";
    fn from_text(text: &str) -> Result<GidPrefix, String> {
        values::parse_prefix(text)
    }
}

impl Scalar for GidChoice {
    const EXPECTED: &'static str = "\"auto\", \"ipv4\", an address or an index";
    fn from_text(text: &str) -> Result<GidChoice, String> {
        values::parse_gid(text)
    }
    fn from_number(number: u64) -> Result<GidChoice, String> {
        values::gid_from_index(number)
    }
}

impl Scalar for SaChoice {
    const EXPECTED: &'static str = "\"none\", \"umad\" or an address";
    fn from_text(text: &str) -> Result<SaChoice, String> {
        values::parse_sa(text)
    }
}

impl Scalar for QpnChoice {
    const EXPECTED: &'static str = "\"stable\", \"random\" or a queue pair number";
    fn from_text(text: &str) -> Result<QpnChoice, String> {
        text.parse()
    }
    fn from_number(number: u64) -> Result<QpnChoice, String> {
        QpnChoice::from_number(number)
    }
}

impl Scalar for LinkMtu {
    const EXPECTED: &'static str = "\"auto\", \"exact\" or a number of bytes";
    fn from_text(text: &str) -> Result<LinkMtu, String> {
        values::parse_link_mtu(text)
    }
    fn from_number(number: u64) -> Result<LinkMtu, String> {
        values::link_mtu_from_bytes(number)
    }
}

impl Scalar for MssChoice {
    const EXPECTED: &'static str = "\"train\", \"mtu\" or a number of bytes";
    fn from_text(text: &str) -> Result<MssChoice, String> {
        values::parse_mss(text)
    }
    fn from_number(number: u64) -> Result<MssChoice, String> {
        values::mss_from_bytes(number)
    }
}

impl Scalar for BusyPoll {
    const EXPECTED: &'static str = "a number of microseconds";
    fn from_text(text: &str) -> Result<BusyPoll, String> {
        text.parse()
    }
    fn from_number(number: u64) -> Result<BusyPoll, String> {
        BusyPoll::from_micros(number)
    }
}

impl Scalar for PKey {
    const EXPECTED: &'static str = "a P_Key such as 0xffff";
    fn from_text(text: &str) -> Result<PKey, String> {
        values::parse_pkey(text)
    }
    fn from_number(number: u64) -> Result<PKey, String> {
        values::pkey_from_number(number)
    }
}

impl Scalar for QKey {
    const EXPECTED: &'static str = "a Q_Key such as 0x0b1b";
    fn from_text(text: &str) -> Result<QKey, String> {
        values::parse_qkey(text)
    }
    fn from_number(number: u64) -> Result<QKey, String> {
        values::qkey_from_number(number)
    }
}

impl Scalar for Mtu {
    const EXPECTED: &'static str = "a number of bytes";
    fn from_text(text: &str) -> Result<Mtu, String> {
        values::parse_mtu(text).map(Mtu)
    }
    fn from_number(number: u64) -> Result<Mtu, String> {
        values::mtu_from_number(number).map(Mtu)
    }
}

impl Scalar for Queues {
    const EXPECTED: &'static str = "a number of queues";
    fn from_text(text: &str) -> Result<Queues, String> {
        values::parse_queues(text).map(Queues)
    }
    fn from_number(number: u64) -> Result<Queues, String> {
        values::queues_from_number(number).map(Queues)
    }
}

impl Scalar for Connections {
    const EXPECTED: &'static str = "a number of connections";
    fn from_text(text: &str) -> Result<Connections, String> {
        values::parse_connections(text).map(Connections)
    }
    fn from_number(number: u64) -> Result<Connections, String> {
        values::connections_from_number(number).map(Connections)
    }
}

impl Scalar for ModerationValue {
    const EXPECTED: &'static str = "a number";
    fn from_text(text: &str) -> Result<ModerationValue, String> {
        values::parse_moderation(text).map(ModerationValue)
    }
    fn from_number(number: u64) -> Result<ModerationValue, String> {
        values::moderation_from_number(number).map(ModerationValue)
    }
}

impl<'de, T: Scalar> Deserialize<'de> for Value<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);

        impl<T: Scalar> Visitor<'_> for Read<T> {
            type Value = Value<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Value<T>, E> {
                T::from_text(text).map(Value).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Value<T>, E> {
                T::from_number(number).map(Value).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Value<T>, E> {
                from_signed(number).map(Value)
            }
        }

        deserializer.deserialize_any(Read(PhantomData))
    }
}
