//! `[[ipoib]]`: IPoIB interfaces.

use proto::{ClaimCheck, DhcpMode, Inspect, Mode, MssChoice, PKey, QKey};
use toml::Spanned;

use super::Fault;
use super::children::{self, Child};
use super::interface::{Common, common};
use super::neighbour::{self, Neighbour};
use super::scalar::{Connections, Mtu, Name, Netns, Queues, RdmaName, Value};
use crate::config::{IpoibConfig, QpnChoice};

/// An IPoIB interface as in the file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ipoib {
    name: Spanned<Value<Name>>,
    underlay: Option<Spanned<Value<Name>>>,
    rdma: Option<Spanned<Value<RdmaName>>>,
    mode: Option<Mode>,
    connections: Option<Value<Connections>>,
    pkey: Option<Value<PKey>>,
    qkey: Option<Value<QKey>>,
    qpn: Option<Spanned<Value<QpnChoice>>>,
    mtu: Option<Value<Mtu>>,
    mss: Option<Value<MssChoice>>,
    #[serde(default)]
    trust_checksums: bool,
    queues: Option<Spanned<Value<Queues>>>,
    #[serde(default)]
    persist: bool,
    up: Option<bool>,
    dhcp: Option<DhcpMode>,
    claims: Option<ClaimCheck>,
    #[serde(default)]
    refuse_requests: bool,
    #[serde(default)]
    inspect: Inspect,
    #[serde(default)]
    neighbours: Vec<Spanned<Neighbour>>,
    #[serde(default)]
    reflect: bool,
    netns: Option<Value<Netns>>,
    #[serde(default)]
    vlan_pkey: bool,
    #[serde(default)]
    children: Vec<Spanned<Child>>,
}

/// Checks the IPoIB interfaces; each is followed by its children.
pub(super) fn check(raw: &[Spanned<Ipoib>]) -> Result<Vec<IpoibConfig>, Fault> {
    let mut all: Vec<IpoibConfig> = Vec::with_capacity(raw.len());
    for place in raw {
        let raw = place.get_ref();
        let common = common!(raw, place.span().start);
        let ipoib = read(raw, &common)?;
        let own = raw.qpn.as_ref().map(|qpn| qpn.span().start);
        let checked = ipoib.check(&all);
        checked.map_err(|fault| common.locate(fault, own))?;
        all.push(ipoib.clone());
        children::check(&raw.children, &ipoib, &mut all)?;
    }
    check_parents(raw, &all)?;
    Ok(all)
}

fn read(raw: &Ipoib, common: &Common<'_>) -> Result<IpoibConfig, Fault> {
    let interface = common.read()?;
    let defaults = IpoibConfig::new(&interface.name, interface.port.clone());
    Ok(IpoibConfig {
        origin: interface.netns.clone(),
        interface,
        vlan_pkey: raw.vlan_pkey,
        mode: raw.mode.unwrap_or(defaults.mode),
        connections: raw
            .connections
            .as_ref()
            .map_or(defaults.connections, |c| c.0.0),
        pkey: raw.pkey.as_ref().map_or(defaults.pkey, |pkey| pkey.0),
        qkey: raw.qkey.as_ref().map_or(defaults.qkey, |qkey| qkey.0),
        qpn: raw.qpn.as_ref().map_or(defaults.qpn, |qpn| qpn.get_ref().0),
        mss: raw.mss.as_ref().map_or(defaults.mss, |mss| mss.0),
        dhcp: raw.dhcp.unwrap_or(defaults.dhcp),
        claims: raw.claims.unwrap_or(defaults.claims),
        refuse_requests: raw.refuse_requests,
        inspect: raw.inspect,
        neighbours: neighbour::check(&raw.neighbours)?,
        trust_checksums: raw.trust_checksums,
        reflect: raw.reflect,
        parent: None,
    })
}

/// Checks that no two interfaces share a name if one of them has children: children name their parent.
fn check_parents(raw: &[Spanned<Ipoib>], all: &[IpoibConfig]) -> Result<(), Fault> {
    for place in raw {
        let raw = place.get_ref();
        let name = &raw.name.get_ref().0.0;
        if let Some(first) = raw.children.first()
            && all.iter().filter(|other| other.name == *name).count() > 1
        {
            let what = format!(
                "{name:?} has children, but another namespace has an interface of the same name; \
                 rename one of them"
            );
            return Err(Fault::at(first, what));
        }
    }
    Ok(())
}
