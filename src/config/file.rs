//! The TOML form of the configuration.

mod children;
mod scalar;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fabric::{PKey, QKey};
use toml::Spanned;

use super::values::{self, BusyPoll, GidChoice, LinkMtu, QpnChoice};
use super::{Config, DeviceConfig, PortConfig, check_underlay};
use crate::api::{DhcpMode, LogLevel, Mode};
use crate::args::DEFAULT_SOCKET;
use children::Child;
use scalar::{Connections, Mtu, Name, Netns, Peer, Queues, Value};

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
    pkeys: Option<Spanned<Vec<Value<PKey>>>>,
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
    netns: Option<Value<Netns>>,
    #[serde(default)]
    vlan_pkey: bool,
    #[serde(default)]
    children: Vec<Spanned<Child>>,
}

/// Reads the text and checks it.
pub(super) fn parse(text: &str) -> Result<Config, Fault> {
    let file: File = toml::from_str(text)?;
    let mut ports = BTreeMap::new();
    for (underlay, port) in &file.port {
        ports.insert(underlay.get_ref().clone(), check_port(underlay, port)?);
    }
    let devices = check_devices(&file.device)?;
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
            .map(|keys| keys.get_ref().iter().map(|key| key.0).collect()),
    };
    if let Some(pkeys) = raw.pkeys.as_ref().filter(|p| p.get_ref().is_empty()) {
        let what = "pkeys is empty; list some, or leave it out to have what the devices ask for";
        return Err(Fault::at(pkeys, what));
    }
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

fn check_devices(raw: &[Spanned<Device>]) -> Result<Vec<DeviceConfig>, Fault> {
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
        let written = &place.get_ref().name;
        device
            .check_name(&devices)
            .map_err(|what| Fault::at(written, what))?;
        check_underlay(&device.name, &device.underlay)
            .map_err(|what| Fault::at(&place.get_ref().underlay, what))?;
        check_qpn(place, &device, &devices)?;
        devices.push(device.clone());
        children::check(&place.get_ref().children, &device, &mut devices)?;
    }
    check_parents(raw, &devices)?;
    Ok(devices)
}

/// Children find their parent by its name.
fn check_parents(raw: &[Spanned<Device>], devices: &[DeviceConfig]) -> Result<(), Fault> {
    for place in raw {
        let raw = place.get_ref();
        let name = &raw.name.get_ref().0.0;
        if let Some(first) = raw.children.first()
            && devices.iter().filter(|d| d.name == *name).count() > 1
        {
            let what = format!(
                "{name:?} has children, and another namespace has a device of that name; \
                 give one of them another name"
            );
            return Err(Fault::at(first, what));
        }
    }
    Ok(())
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
    device.netns = raw.netns.as_ref().map(|netns| netns.0.0.clone());
    device.vlan_pkey = raw.vlan_pkey;
    device
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
