//! The TOML form of the configuration.

mod children;
mod scalar;
mod vnic;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fabric::{Gid, Lid, PKey, QKey};
use toml::Spanned;

use self::vnic::{Unicast, Vnic};
use super::values::{self, BusyPoll, GidChoice, LinkMtu, QpnChoice};
use super::{Config, IpoibConfig, PortConfig, PortFault, PortName, VnicConfig};
use crate::DEFAULT_SOCKET;
use crate::api::{DhcpMode, LogLevel, Mode};
use children::Child;
use scalar::{Connections, Mtu, Name, Netns, Peer, Queues, RdmaName, Value};

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
    #[serde(default)]
    vnic: Vec<Spanned<Vnic>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    gid: Option<Spanned<Value<GidChoice>>>,
    peers: Option<Spanned<Vec<Value<Peer>>>>,
    link_mtu: Option<Spanned<Value<LinkMtu>>>,
    busy_poll: Option<Value<BusyPoll>>,
    pkeys: Option<Spanned<Vec<Value<PKey>>>>,
    lids: Option<Spanned<BTreeMap<Spanned<String>, Value<Lid>>>>,
    kernel_peers: Option<Spanned<bool>>,
    #[serde(default)]
    managers: Vec<Value<Unicast>>,
    #[serde(default)]
    vnic_create: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: Spanned<Value<Name>>,
    underlay: Option<Spanned<Value<Name>>>,
    rdma: Option<Spanned<Value<RdmaName>>>,
    mode: Option<Mode>,
    connections: Option<Value<Connections>>,
    pkey: Option<Spanned<Value<PKey>>>,
    qkey: Option<Value<QKey>>,
    qpn: Option<Spanned<Value<QpnChoice>>>,
    mtu: Option<Value<Mtu>>,
    queues: Option<Spanned<Value<Queues>>>,
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
    let mut named = Vec::new();
    for (written, port) in &file.port {
        let name = PortName::parse(written.get_ref()).map_err(|what| Fault::at(written, what))?;
        let settings = check_port(written, &name, port)?;
        if ports.insert(name.clone(), settings).is_some() {
            let what = format!("{} is there twice", name.table());
            return Err(Fault::at(written, what));
        }
        named.push((written, name));
    }
    let devices = check_devices(&file.device)?;
    let vnics = vnic::check(&file.vnic, &devices)?;
    let used = || used_ports(&devices, &vnics);
    if let Some((written, name)) = named
        .iter()
        .find(|(_, name)| !ports[name].vnic_create && !used().any(|port| port == name))
    {
        return Err(Fault::at(written, unused(name, used())));
    }
    for port in used() {
        ports.entry(port.clone()).or_default();
    }
    if ports.is_empty() {
        return Err(Fault {
            what:
                "there is neither a [[device]] nor a [[vnic]]; describe at least one with a name \
                   and an underlay"
                    .into(),
            at: None,
        });
    }
    Ok(Config {
        socket: file.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
        log_level: file.log_level.unwrap_or_default(),
        ports,
        ipoib: devices,
        vnics,
    })
}

/// The ports that interfaces are on.
fn used_ports<'c>(
    devices: &'c [IpoibConfig],
    vnics: &'c [VnicConfig],
) -> impl Iterator<Item = &'c PortName> {
    let of_vnics = vnics.iter().map(|vnic| &vnic.port);
    devices.iter().map(|device| &device.port).chain(of_vnics)
}

/// Settings of a port that no device is on.
fn unused<'c>(name: &PortName, mut used: impl Iterator<Item = &'c PortName>) -> String {
    let (key, table) = (name.key(), name.table());
    // `[port.mlx5_0]` is an interface's table.
    let meant = used.find(|port| match (port, name) {
        (PortName::Rdma { device, .. }, PortName::Underlay(name)) => device == name,
        _ => false,
    });
    match meant {
        Some(port) => format!(
            "no device has the {key} \"{name}\"; for the RDMA device of that name write {}",
            port.table()
        ),
        None => format!("no device has the {key} \"{name}\"; add one, or take {table} out"),
    }
}

fn check_port(written: &Spanned<String>, name: &PortName, raw: &Port) -> Result<PortConfig, Fault> {
    let port = PortConfig {
        gid: raw.gid.as_ref().map(|g| g.get_ref().0).unwrap_or_default(),
        peers: raw
            .peers
            .iter()
            .flat_map(|peers| peers.get_ref())
            .map(|peer| peer.0.0)
            .collect(),
        link_mtu: raw
            .link_mtu
            .as_ref()
            .map(|m| m.get_ref().0)
            .unwrap_or_default(),
        busy_poll: raw.busy_poll.as_ref().map(|b| b.0).unwrap_or_default(),
        pkeys: raw
            .pkeys
            .as_ref()
            .map(|keys| keys.get_ref().iter().map(|key| key.0).collect()),
        lids: check_lids(raw)?,
        kernel_peers: raw.kernel_peers.as_ref().is_some_and(|k| *k.get_ref()),
        managers: raw.managers.iter().map(|manager| manager.0.0).collect(),
        vnic_create: raw.vnic_create,
    };
    if let Some(pkeys) = raw.pkeys.as_ref().filter(|p| p.get_ref().is_empty()) {
        let what = "pkeys is empty; list some, or leave it out to have what the devices ask for";
        return Err(Fault::at(pkeys, what));
    }
    port.check(name).map_err(|fault| Fault {
        at: place(raw, &fault).or(Some(written.span().start)),
        what: fault.what,
    })?;
    Ok(port)
}

/// Where a port's setting is written.
fn place(raw: &Port, fault: &PortFault) -> Option<usize> {
    let span = match fault.key {
        "gid" => raw.gid.as_ref().map(Spanned::span),
        "peers" => raw.peers.as_ref().map(Spanned::span),
        "link_mtu" => raw.link_mtu.as_ref().map(Spanned::span),
        "pkeys" => raw.pkeys.as_ref().map(Spanned::span),
        "lids" => raw.lids.as_ref().map(Spanned::span),
        "kernel_peers" => raw.kernel_peers.as_ref().map(Spanned::span),
        _ => None,
    };
    span.map(|span| span.start)
}

/// Where ports and groups are.
fn check_lids(raw: &Port) -> Result<BTreeMap<Gid, Lid>, Fault> {
    let mut lids = BTreeMap::new();
    for (written, lid) in raw.lids.iter().flat_map(|lids| lids.get_ref()) {
        let gid: Gid = written.get_ref().parse().map_err(|_| {
            let what = format!(
                "{:?} is not a GID, as IPv6 addresses are written",
                written.get_ref()
            );
            Fault::at(written, what)
        })?;
        values::check_lid(gid, lid.0).map_err(|what| Fault::at(written, what))?;
        lids.insert(gid, lid.0);
    }
    Ok(lids)
}

fn check_devices(raw: &[Spanned<Device>]) -> Result<Vec<IpoibConfig>, Fault> {
    let mut devices: Vec<IpoibConfig> = Vec::with_capacity(raw.len());
    for place in raw {
        let device = to_device(place.get_ref(), port_of(place)?);
        check_device(place.get_ref(), &device, &devices)?;
        devices.push(device.clone());
        children::check(&place.get_ref().children, &device, &mut devices)?;
    }
    check_parents(raw, &devices)?;
    Ok(devices)
}

/// What a device is on.
fn port_of(place: &Spanned<Device>) -> Result<PortName, Fault> {
    let raw = place.get_ref();
    match (&raw.underlay, &raw.rdma) {
        (Some(underlay), None) => Ok(PortName::Underlay(underlay.get_ref().0.0.clone())),
        (None, Some(rdma)) => Ok(rdma.get_ref().0.0.clone()),
        (Some(_), Some(rdma)) => Err(Fault::at(
            rdma,
            "a device is on an underlay or on an RDMA device, not on both; leave one out",
        )),
        (None, None) => Err(Fault::at(
            place,
            "the device has neither `underlay`, an Ethernet interface, nor `rdma`, an RDMA device \
             such as \"mlx5_0\"; add one of them",
        )),
    }
}

/// What one value of a device alone cannot show.
fn check_device(raw: &Device, device: &IpoibConfig, others: &[IpoibConfig]) -> Result<(), Fault> {
    let at_name = |what| Fault::at(&raw.name, what);
    device.check_name(others).map_err(at_name)?;
    device.check_port().map_err(|what| match &raw.underlay {
        Some(underlay) => Fault::at(underlay, what),
        None => at_name(what),
    })?;
    if let Some(queues) = &raw.queues {
        device
            .check_queues()
            .map_err(|what| Fault::at(queues, what))?;
    }
    if let Some(qpn) = &raw.qpn {
        device.check_qpn().map_err(|what| Fault::at(qpn, what))?;
        check_qpn(qpn, device, others)?;
    }
    Ok(())
}

/// Children find their parent by its name.
fn check_parents(raw: &[Spanned<Device>], devices: &[IpoibConfig]) -> Result<(), Fault> {
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

fn to_device(raw: &Device, port: PortName) -> IpoibConfig {
    let mut device = IpoibConfig::new(&raw.name.get_ref().0.0, port);
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
    device.queues = raw.queues.as_ref().map(|queues| queues.get_ref().0.0);
    device.persist = raw.persist;
    if let Some(up) = raw.up {
        device.up = up;
    }
    device.dhcp = raw.dhcp.unwrap_or_default();
    device.reflect = raw.reflect;
    device.set_netns(raw.netns.as_ref().map(|netns| netns.0.0.clone()));
    device.vlan_pkey = raw.vlan_pkey;
    device
}

/// A queue pair number that the user chose belongs to one device of a port.
fn check_qpn(
    written: &Spanned<Value<QpnChoice>>,
    device: &IpoibConfig,
    others: &[IpoibConfig],
) -> Result<(), Fault> {
    let QpnChoice::Number(qpn) = device.qpn else {
        return Ok(());
    };
    match others
        .iter()
        .find(|o| o.port == device.port && o.qpn == device.qpn)
    {
        Some(other) => Err(Fault::at(
            written,
            format!("{:?} has the queue pair number {qpn} already", other.name),
        )),
        None => Ok(()),
    }
}
