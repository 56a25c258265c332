//! The TOML form of the configuration.

mod children;
mod interface;
mod ipoib;
mod neighbour;
mod scalar;
mod vnic;

use std::collections::BTreeMap;
use std::path::PathBuf;

use proto::{CmChoice, GidChoice, GidPrefix, LinkMtu, PKey, SaChoice};
use toml::Spanned;

use self::vnic::{Unicast, Vnic};
use super::fault::Fault;
use super::values::{BusyPoll, GroupAccess};
use super::{
    Config, IpoibConfig, KeyFault, ManagementKeys, MetricsAddress, PortConfig, PortName, VnicConfig,
};
use crate::DEFAULT_SOCKET;
use crate::api::{LogLevel, Moderation};
use ipoib::Ipoib;
use scalar::{ModerationValue, Peer, Value};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    socket: Option<PathBuf>,
    log_level: Option<LogLevel>,
    sandbox: Option<bool>,
    #[serde(default)]
    group_access: GroupAccess,
    metrics: Option<Value<MetricsAddress>>,
    #[serde(default)]
    port: BTreeMap<Spanned<String>, Port>,
    #[serde(default)]
    ipoib: Vec<Spanned<Ipoib>>,
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
    rx_usecs: Option<Value<ModerationValue>>,
    rx_frames: Option<Value<ModerationValue>>,
    pkeys: Option<Spanned<Vec<Value<PKey>>>>,
    sa: Option<Spanned<Value<SaChoice>>>,
    kernel_peers: Option<Spanned<bool>>,
    cm: Option<Spanned<CmChoice>>,
    #[serde(default)]
    managers: Vec<Value<Unicast>>,
    management_key: Option<Value<ManagementKeys>>,
    #[serde(default)]
    vnic_create: bool,
    allow: Option<Spanned<Vec<Value<GidPrefix>>>>,
}

/// Parses and checks the text of a file.
pub(super) fn parse(text: &str) -> Result<Config, Fault> {
    let file: File = toml::from_str(text).map_err(unreadable)?;
    let mut ports = BTreeMap::new();
    let mut named = Vec::new();
    for (written, port) in &file.port {
        let name = PortName::parse(written.get_ref()).map_err(|what| Fault::at(written, what))?;
        let settings = check_port(written, &name, port)?;
        if ports.insert(name.clone(), settings).is_some() {
            let what = format!("{} occurs twice; remove one", name.table());
            return Err(Fault::at(written, what));
        }
        named.push((written, name));
    }
    let ipoib = ipoib::check(&file.ipoib)?;
    let vnics = vnic::check(&file.vnic, &ipoib)?;
    let used = || used_ports(&ipoib, &vnics);
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
            what: "the file has no [[ipoib]] and no [[vnic]]; add at least one with a name and an \
                   underlay"
                .into(),
            at: None,
        });
    }
    Ok(Config {
        socket: file.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
        log_level: file.log_level.unwrap_or_default(),
        sandbox: file.sandbox.unwrap_or(true),
        group_access: file.group_access,
        metrics: file.metrics.map(|metrics| metrics.0),
        ports,
        ipoib,
        vnics,
    })
}

fn unreadable(error: toml::de::Error) -> Fault {
    // Earlier versions named the table `[[device]]`.
    let is_former = "unknown field `device`, expected one of `socket`";
    let is_former = error.message().starts_with(is_former);
    let mut fault = Fault::from(error);
    if is_former {
        fault.what = "[[device]] is named [[ipoib]] now; rename the table".into();
    }
    fault
}

/// The ports of the interfaces.
fn used_ports<'c>(
    ipoib: &'c [IpoibConfig],
    vnics: &'c [VnicConfig],
) -> impl Iterator<Item = &'c PortName> {
    let of_vnics = vnics.iter().map(|vnic| &vnic.port);
    ipoib.iter().map(|ipoib| &ipoib.port).chain(of_vnics)
}

/// The error sentence for the table of a port without interfaces.
fn unused<'c>(name: &PortName, mut used: impl Iterator<Item = &'c PortName>) -> String {
    let (key, table) = (name.key(), name.table());
    // `[port.mlx5_0]` is the table of an underlay.
    let meant = used.find(|port| match (port, name) {
        (PortName::Rdma { device, .. }, PortName::Underlay(name)) => device == name,
        _ => false,
    });
    match meant {
        Some(port) => format!(
            "no interface has the {key} \"{name}\"; for the RDMA device of that name use {}",
            port.table()
        ),
        None => format!("no interface has the {key} \"{name}\"; add one, or remove {table}"),
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
        moderation: Moderation {
            rx_usecs: raw.rx_usecs.as_ref().map_or(0, |value| value.0.0),
            rx_frames: raw.rx_frames.as_ref().map_or(0, |value| value.0.0),
        },
        pkeys: raw
            .pkeys
            .as_ref()
            .map(|keys| keys.get_ref().iter().map(|key| key.0).collect()),
        sa: raw.sa.as_ref().map(|sa| sa.get_ref().0),
        kernel_peers: raw.kernel_peers.as_ref().is_some_and(|k| *k.get_ref()),
        cm: raw.cm.as_ref().map(|cm| *cm.get_ref()).unwrap_or_default(),
        managers: raw.managers.iter().map(|manager| manager.0.0).collect(),
        management_key: raw
            .management_key
            .as_ref()
            .map(|keys| keys.0.clone())
            .unwrap_or_default(),
        vnic_create: raw.vnic_create,
        allow: raw
            .allow
            .as_ref()
            .map(|allow| allow.get_ref().iter().map(|prefix| prefix.0).collect()),
    };
    if let Some(allow) = raw.allow.as_ref().filter(|a| a.get_ref().is_empty()) {
        let what =
            "allow is empty; list addresses or prefixes, or leave allow out to allow all hosts";
        return Err(Fault::at(allow, what));
    }
    if let Some(pkeys) = raw.pkeys.as_ref().filter(|p| p.get_ref().is_empty()) {
        let what = "pkeys is empty; list P_Keys, or leave pkeys out to use those of the interfaces";
        return Err(Fault::at(pkeys, what));
    }
    port.check(name).map_err(|fault| Fault {
        at: place(raw, &fault).or(Some(written.span().start)),
        what: fault.what,
    })?;
    Ok(port)
}

/// The byte at which a port's setting starts.
fn place(raw: &Port, fault: &KeyFault) -> Option<usize> {
    let span = match fault.key {
        "gid" => raw.gid.as_ref().map(Spanned::span),
        "peers" => raw.peers.as_ref().map(Spanned::span),
        "link_mtu" => raw.link_mtu.as_ref().map(Spanned::span),
        "pkeys" => raw.pkeys.as_ref().map(Spanned::span),
        "sa" => raw.sa.as_ref().map(Spanned::span),
        "kernel_peers" => raw.kernel_peers.as_ref().map(Spanned::span),
        "cm" => raw.cm.as_ref().map(Spanned::span),
        _ => None,
    };
    span.map(|span| span.start)
}
