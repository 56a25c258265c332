//! The TOML form of the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;

use fabric::{PKey, QKey};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use toml::Spanned;

use super::values::{self, BusyPoll, GidChoice, LinkMtu, QpnChoice};
use super::{Config, DeviceConfig, PortConfig, check_underlay};
use crate::api::{DhcpMode, LogLevel, Mode};
use crate::args::DEFAULT_SOCKET;

/// What is wrong, and at which byte of the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub what: String,
    pub at: Option<usize>,
}

impl Fault {
    fn at<T>(place: &Spanned<T>, what: impl Into<String>) -> Fault {
        Fault {
            what: what.into(),
            at: Some(place.span().start),
        }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(error: toml::de::Error) -> Fault {
        // serde calls a struct's members fields; TOML calls them keys.
        let what = error
            .message()
            .replace("unknown field", "unknown key")
            .replace("missing field", "missing key")
            .replace('\n', ", ");
        Fault {
            what,
            at: error.span().map(|span| span.start),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    socket: Option<PathBuf>,
    log_level: Option<LogLevel>,
    #[serde(default)]
    port: BTreeMap<Spanned<String>, Port>,
    #[serde(default)]
    device: Vec<Spanned<Device>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    gid: Option<Spanned<Value<GidChoice>>>,
    peers: Option<Spanned<Vec<Value<Peer>>>>,
    link_mtu: Option<Value<LinkMtu>>,
    busy_poll: Option<Value<BusyPoll>>,
    pkeys: Option<Vec<Value<PKey>>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: Spanned<Value<Name>>,
    underlay: Spanned<Value<Name>>,
    mode: Option<Mode>,
    connections: Option<Value<Connections>>,
    pkey: Option<Spanned<Value<PKey>>>,
    qkey: Option<Value<QKey>>,
    qpn: Option<Spanned<Value<QpnChoice>>>,
    mtu: Option<Value<Mtu>>,
    queues: Option<Value<Queues>>,
    #[serde(default)]
    persist: bool,
    up: Option<bool>,
    dhcp: Option<DhcpMode>,
    #[serde(default)]
    reflect: bool,
}

/// Reads the text and checks it.
pub(super) fn parse(text: &str) -> Result<Config, Fault> {
    let file: File = toml::from_str(text)?;
    let mut ports = BTreeMap::new();
    for (underlay, port) in &file.port {
        ports.insert(underlay.get_ref().clone(), check_port(underlay, port)?);
    }
    let devices = check_devices(&file.device, &ports)?;
    if let Some(unused) = file
        .port
        .keys()
        .find(|p| !devices.iter().any(|d| d.underlay == *p.get_ref()))
    {
        let what = format!(
            "no device has the underlay {0:?}; add one, or take [port.{0}] out",
            unused.get_ref()
        );
        return Err(Fault::at(unused, what));
    }
    for device in &devices {
        ports.entry(device.underlay.clone()).or_default();
    }
    Ok(Config {
        socket: file.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
        log_level: file.log_level.unwrap_or_default(),
        ports,
        devices,
    })
}

fn check_port(underlay: &Spanned<String>, raw: &Port) -> Result<PortConfig, Fault> {
    values::parse_interface(underlay.get_ref()).map_err(|what| Fault::at(underlay, what))?;
    let port = PortConfig {
        gid: raw.gid.as_ref().map(|g| g.get_ref().0).unwrap_or_default(),
        peers: raw
            .peers
            .iter()
            .flat_map(|peers| peers.get_ref())
            .map(|peer| peer.0.0)
            .collect(),
        link_mtu: raw.link_mtu.as_ref().map(|m| m.0).unwrap_or_default(),
        busy_poll: raw.busy_poll.as_ref().map(|b| b.0).unwrap_or_default(),
        pkeys: raw
            .pkeys
            .as_ref()
            .map(|keys| keys.iter().map(|key| key.0).collect()),
    };
    port.check().map_err(|what| {
        // A bad mix of families is the list's fault, a missing list is the GID's.
        match (&raw.peers, &raw.gid) {
            (Some(peers), _) if !port.peers.is_empty() => Fault::at(peers, what),
            (_, Some(gid)) => Fault::at(gid, what),
            _ => Fault::at(underlay, what),
        }
    })?;
    Ok(port)
}

fn check_devices(
    raw: &[Spanned<Device>],
    ports: &BTreeMap<String, PortConfig>,
) -> Result<Vec<DeviceConfig>, Fault> {
    if raw.is_empty() {
        return Err(Fault {
            what: "there is no [[device]]; describe at least one with a name and an underlay"
                .into(),
            at: None,
        });
    }
    let mut devices: Vec<DeviceConfig> = Vec::with_capacity(raw.len());
    for place in raw {
        let device = to_device(place.get_ref());
        check_unique(place, &device, &devices)?;
        check_qpn(place, &device, &devices)?;
        check_table(place, &device, ports)?;
        devices.push(device);
    }
    Ok(devices)
}

fn to_device(raw: &Device) -> DeviceConfig {
    let mut device = DeviceConfig::new(&raw.name.get_ref().0.0, &raw.underlay.get_ref().0.0);
    device.mode = raw.mode.unwrap_or_default();
    if let Some(connections) = &raw.connections {
        device.connections = connections.0.0;
    }
    if let Some(pkey) = &raw.pkey {
        device.pkey = pkey.get_ref().0;
    }
    if let Some(qkey) = &raw.qkey {
        device.qkey = qkey.0;
    }
    if let Some(qpn) = &raw.qpn {
        device.qpn = qpn.get_ref().0;
    }
    device.mtu = raw.mtu.as_ref().map(|mtu| mtu.0.0);
    device.queues = raw.queues.as_ref().map(|queues| queues.0.0);
    device.persist = raw.persist;
    if let Some(up) = raw.up {
        device.up = up;
    }
    device.dhcp = raw.dhcp.unwrap_or_default();
    device.reflect = raw.reflect;
    device
}

/// Where a device's P_Key is written, or else the device.
fn pkey_fault(place: &Spanned<Device>, what: String) -> Fault {
    match &place.get_ref().pkey {
        Some(pkey) => Fault::at(pkey, what),
        None => Fault::at(place, what),
    }
}

/// No two devices may have one name, nor one partition of one port: both would have the same
/// groups and would hear each other's broadcasts as their own.
fn check_unique(
    place: &Spanned<Device>,
    device: &DeviceConfig,
    others: &[DeviceConfig],
) -> Result<(), Fault> {
    let name = &place.get_ref().name;
    if others.iter().any(|other| other.name == device.name) {
        let what = format!("another device is named {:?} already", device.name);
        return Err(Fault::at(name, what));
    }
    check_underlay(&device.name, &device.underlay)
        .map_err(|what| Fault::at(&place.get_ref().underlay, what))?;
    match others
        .iter()
        .find(|o| o.underlay == device.underlay && o.pkey.full() == device.pkey.full())
    {
        Some(other) => Err(pkey_fault(
            place,
            format!(
                "{:?} and {:?} share the partition {} of {:?}; give one of them another pkey",
                other.name, device.name, device.pkey, device.underlay
            ),
        )),
        None => Ok(()),
    }
}

/// A queue pair number that the user chose belongs to one device of a port.
fn check_qpn(
    place: &Spanned<Device>,
    device: &DeviceConfig,
    others: &[DeviceConfig],
) -> Result<(), Fault> {
    let (QpnChoice::Number(qpn), Some(written)) = (device.qpn, &place.get_ref().qpn) else {
        return Ok(());
    };
    match others
        .iter()
        .find(|o| o.underlay == device.underlay && o.qpn == device.qpn)
    {
        Some(other) => Err(Fault::at(
            written,
            format!("{:?} has the queue pair number {qpn} already", other.name),
        )),
        None => Ok(()),
    }
}

/// Where the port's P_Key table is given, it must hold the device's partition.
fn check_table(
    place: &Spanned<Device>,
    device: &DeviceConfig,
    ports: &BTreeMap<String, PortConfig>,
) -> Result<(), Fault> {
    let Some(table) = ports.get(&device.underlay).and_then(|p| p.pkeys.as_ref()) else {
        return Ok(());
    };
    if table.iter().any(|key| key.full() == device.pkey.full()) {
        return Ok(());
    }
    Err(pkey_fault(
        place,
        format!(
            "P_Key {} of {:?} is not in pkeys of [port.{}]",
            device.pkey, device.name, device.underlay
        ),
    ))
}

/// A value that checks itself while it is read, so that errors carry its place. A number may be
/// written as one or as a string, for the sake of hexadecimal habits.
struct Value<T>(T);

struct Name(String);
struct Peer(IpAddr);
struct Mtu(u32);
struct Queues(usize);
struct Connections(usize);

trait Scalar: Sized {
    const EXPECTED: &'static str;
    fn from_text(text: &str) -> Result<Self, String>;
    fn from_number(number: u64) -> Result<Self, String> {
        Err(format!(
            "invalid type: number {number}, expected {}",
            Self::EXPECTED
        ))
    }
}

impl Scalar for Name {
    const EXPECTED: &'static str = "the name of an interface";
    fn from_text(text: &str) -> Result<Name, String> {
        values::parse_interface(text).map(Name)
    }
}

impl Scalar for Peer {
    const EXPECTED: &'static str = "an IPv6 or IPv4 address";
    fn from_text(text: &str) -> Result<Peer, String> {
        values::parse_peer(text).map(Peer)
    }
}

impl Scalar for GidChoice {
    const EXPECTED: &'static str = "\"auto\", \"ipv4\" or an address";
    fn from_text(text: &str) -> Result<GidChoice, String> {
        text.parse()
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
        text.parse()
    }
    fn from_number(number: u64) -> Result<LinkMtu, String> {
        LinkMtu::from_bytes(number)
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
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::custom(format!(
                        "{number} is negative; expected {}",
                        T::EXPECTED
                    ))),
                }
            }
        }

        deserializer.deserialize_any(Read(PhantomData))
    }
}
