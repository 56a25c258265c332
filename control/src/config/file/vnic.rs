//! `[[vnic]]`: VNICs.

use proto::{Gid, PKey, Qpn};
use proto::{Mac, OpaLid};
use toml::Spanned;

use super::Fault;
use super::interface::{Common, common};
use super::scalar::{Name, Netns, Queues, RdmaName, Scalar, Value};
use crate::config::values::{self, QpnChoice};
use crate::config::vnic::{
    self as own, ETH_MTU_MAX, ETH_MTU_MIN, Learning, SwitchConfig, VPORTS_MAX, VnicPeer,
};
use crate::config::{IpoibConfig, VnicConfig};

/// A VNIC as in the file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vnic {
    name: Spanned<Value<Name>>,
    underlay: Option<Spanned<Value<Name>>>,
    rdma: Option<Spanned<Value<RdmaName>>>,
    vesw: Option<Value<Vesw>>,
    index: Option<Spanned<Value<Index>>>,
    lid: Option<Spanned<Value<OpaLid>>>,
    pkey: Option<Spanned<Value<PKey>>>,
    fabric_id: Option<Spanned<Value<FabricId>>>,
    mac: Option<Spanned<Value<MacOf>>>,
    mtu: Option<Value<EthMtu>>,
    queues: Option<Spanned<Value<Queues>>>,
    #[serde(default)]
    persist: bool,
    up: Option<bool>,
    netns: Option<Value<Netns>>,
    learning: Option<bool>,
    ageing: Option<Value<Ageing>>,
    mac_limit: Option<Value<MacLimit>>,
    peers: Option<Spanned<Vec<Spanned<Peer>>>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Peer {
    lid: Value<OpaLid>,
    gid: Value<Unicast>,
    qpn: Option<Value<PeerQpn>>,
}

struct Vesw(u16);
struct Index(u8);
struct FabricId(u16);
struct MacOf(Mac);
struct EthMtu(u32);
struct Ageing(u32);
struct MacLimit(usize);
/// A port's GID.
pub(super) struct Unicast(pub(super) Gid);
/// A queue pair of a peer.
pub(super) struct PeerQpn(pub(super) Qpn);

/// Parses a number in text; errors name it by `what`.
fn number(text: &str, what: &str) -> Result<u64, String> {
    values::parse_number(text).ok_or_else(|| format!("{text:?} is not {what}"))
}

impl Scalar for Vesw {
    const EXPECTED: &'static str = "the number of a switch";
    fn from_text(text: &str) -> Result<Vesw, String> {
        own::parse_vesw(text).map(Vesw)
    }
    fn from_number(number: u64) -> Result<Vesw, String> {
        own::vesw_from_number(number).map(Vesw)
    }
}

impl Scalar for Index {
    const EXPECTED: &'static str = "a number of a VNIC on its port";
    fn from_text(text: &str) -> Result<Index, String> {
        Index::from_number(number(text, Index::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<Index, String> {
        u8::try_from(number)
            .ok()
            .filter(|index| usize::from(*index) < VPORTS_MAX)
            .map(Index)
            .ok_or_else(|| {
                let last = VPORTS_MAX - 1;
                format!("the index {number} is out of range; use 0 to {last}")
            })
    }
}

impl Scalar for OpaLid {
    const EXPECTED: &'static str = "a LID such as 0x000007";
    fn from_text(text: &str) -> Result<OpaLid, String> {
        own::lid_from_number(number(text, OpaLid::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<OpaLid, String> {
        own::lid_from_number(number)
    }
}

impl Scalar for FabricId {
    const EXPECTED: &'static str = "the number of a fabric";
    fn from_text(text: &str) -> Result<FabricId, String> {
        FabricId::from_number(number(text, FabricId::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<FabricId, String> {
        match u16::try_from(number) {
            Ok(id @ 0..=1023) => Ok(FabricId(id)),
            _ => Err(format!(
                "the fabric_id {number} is out of range; use 0 to 1023"
            )),
        }
    }
}

impl Scalar for MacOf {
    const EXPECTED: &'static str = "a MAC such as \"02:00:00:00:00:01\"";
    fn from_text(text: &str) -> Result<MacOf, String> {
        own::parse_mac(text).map(MacOf)
    }
}

impl Scalar for EthMtu {
    const EXPECTED: &'static str = "a number of bytes";
    fn from_text(text: &str) -> Result<EthMtu, String> {
        EthMtu::from_number(number(text, EthMtu::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<EthMtu, String> {
        let mtu = u32::try_from(number).ok();
        mtu.filter(|mtu| (ETH_MTU_MIN..=ETH_MTU_MAX).contains(mtu))
            .map(EthMtu)
            .ok_or_else(|| {
                format!(
                    "an MTU of {number} bytes is out of range; use {ETH_MTU_MIN} to {ETH_MTU_MAX}"
                )
            })
    }
}

impl Scalar for Ageing {
    const EXPECTED: &'static str = "a number of seconds";
    fn from_text(text: &str) -> Result<Ageing, String> {
        Ageing::from_number(number(text, Ageing::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<Ageing, String> {
        match u32::try_from(number) {
            Ok(seconds @ 10..=1_000_000) => Ok(Ageing(seconds)),
            _ => Err(format!(
                "an ageing time of {number} seconds is out of range; use 10 to 1000000"
            )),
        }
    }
}

impl Scalar for MacLimit {
    const EXPECTED: &'static str = "a number of addresses";
    fn from_text(text: &str) -> Result<MacLimit, String> {
        MacLimit::from_number(number(text, MacLimit::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<MacLimit, String> {
        match usize::try_from(number) {
            Ok(limit @ 1..=1_048_576) => Ok(MacLimit(limit)),
            _ => Err(format!(
                "a limit of {number} addresses is out of range; use 1 to 1048576"
            )),
        }
    }
}

impl Scalar for Unicast {
    const EXPECTED: &'static str = "a GID, written as an IPv6 address";
    fn from_text(text: &str) -> Result<Unicast, String> {
        match text.parse::<Gid>() {
            Ok(gid) if gid.is_multicast() => Err(format!(
                "{gid} is the GID of a group; use the GID of a port"
            )),
            Ok(gid) => Ok(Unicast(gid)),
            Err(_) => Err(format!(
                "{text:?} is not a GID; write it as an IPv6 address"
            )),
        }
    }
}

impl Scalar for PeerQpn {
    const EXPECTED: &'static str = "a queue pair number";
    fn from_text(text: &str) -> Result<PeerQpn, String> {
        PeerQpn::from_number(number(text, PeerQpn::EXPECTED)?)
    }
    fn from_number(number: u64) -> Result<PeerQpn, String> {
        match QpnChoice::from_number(number)? {
            QpnChoice::Number(qpn) => Ok(PeerQpn(qpn)),
            _ => Err(format!("{number} is not a queue pair number")),
        }
    }
}

/// Checks the VNICs, also against the IPoIB interfaces.
pub(super) fn check(
    raw: &[Spanned<Vnic>],
    ipoib: &[IpoibConfig],
) -> Result<Vec<VnicConfig>, Fault> {
    let mut vnics: Vec<VnicConfig> = Vec::with_capacity(raw.len());
    // VNICs without an index do not get an index that another VNIC has in the file.
    let mut chosen: Vec<VnicConfig> = Vec::new();
    for place in raw {
        if let Some(index) = &place.get_ref().index {
            let vnic = read(place, index.get_ref().0.0)?;
            vnic.check_index(&chosen)
                .map_err(|what| Fault::at(index, what))?;
            chosen.push(vnic);
        }
    }
    for place in raw {
        let raw = place.get_ref();
        let common = common!(raw, place.span().start);
        let index = match &raw.index {
            Some(index) => index.get_ref().0.0,
            None => {
                let taken: Vec<VnicConfig> = vnics.iter().chain(&chosen).cloned().collect();
                VnicConfig::free_index(&common.port()?, &taken)
                    .map_err(|what| Fault::at(place, what))?
            }
        };
        let vnic = read(place, index)?;
        let own = raw.lid.as_ref().map(|lid| lid.span().start);
        let checked = vnic.check(ipoib, &vnics);
        checked.map_err(|fault| common.locate(fault, own))?;
        vnics.push(vnic);
    }
    Ok(vnics)
}

fn read(place: &Spanned<Vnic>, index: u8) -> Result<VnicConfig, Fault> {
    let raw = place.get_ref();
    let defaults = Learning::default();
    Ok(VnicConfig {
        interface: common!(raw, place.span().start).read()?,
        index,
        switch: to_switch(raw)?,
        learning: Learning {
            on: raw.learning.unwrap_or(defaults.on),
            ageing: raw.ageing.as_ref().map_or(defaults.ageing, |a| a.0.0),
            mac_limit: raw.mac_limit.as_ref().map_or(defaults.mac_limit, |l| l.0.0),
        },
    })
}

/// The switch; `None` if an Ethernet Manager assigns it. The manager then also assigns its other settings.
fn to_switch(raw: &Vnic) -> Result<Option<SwitchConfig>, Fault> {
    let Some(vesw) = &raw.vesw else {
        let chosen = [
            ("lid", raw.lid.as_ref().map(Spanned::span)),
            ("pkey", raw.pkey.as_ref().map(Spanned::span)),
            ("fabric_id", raw.fabric_id.as_ref().map(Spanned::span)),
            ("mac", raw.mac.as_ref().map(Spanned::span)),
            ("peers", raw.peers.as_ref().map(Spanned::span)),
        ];
        for (key, span) in chosen {
            if let Some(span) = span {
                return Err(Fault {
                    what: format!(
                        "without vesw, an Ethernet Manager assigns {key}; leave {key} out, or set vesw"
                    ),
                    at: Some(span.start),
                });
            }
        }
        return Ok(None);
    };
    let mut switch = SwitchConfig::new(vesw.0.0);
    if let Some(pkey) = &raw.pkey {
        switch.pkey = pkey.get_ref().0;
    }
    if let Some(fabric_id) = &raw.fabric_id {
        switch.fabric_id = fabric_id.get_ref().0.0;
    }
    switch.lid = raw.lid.as_ref().map(|lid| lid.get_ref().0);
    switch.mac = raw.mac.as_ref().map(|mac| mac.get_ref().0.0);
    if let Some(written) = &raw.peers {
        let mut peers: Vec<VnicPeer> = Vec::new();
        for place in written.get_ref() {
            let raw = place.get_ref();
            let peer = VnicPeer {
                lid: raw.lid.0,
                gid: raw.gid.0.0,
                qpn: raw.qpn.as_ref().map(|qpn| qpn.0.0),
            };
            peer.check(&peers).map_err(|what| Fault::at(place, what))?;
            peers.push(peer);
        }
        switch.peers = Some(peers);
    }
    Ok(Some(switch))
}
