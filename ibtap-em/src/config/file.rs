//! TOML format of the configuration.

mod addresses;
mod classes;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use control::api::LogLevel;
use control::config::fault::Fault;
use proto::{Gid, PKey};
use serde::Deserialize;
use toml::Spanned;
use vnic::Lid;
use vnic::agent::LEASES_MS;

use super::values::{Written, number, text};
use super::{Config, ManagerConfig, Pattern, SwitchConfig};

/// Range of multicast LIDs in 16B packets (kernel include/rdma/opa_addr.h).
const MULTICAST_LIDS: RangeInclusive<i64> = 0xf0_0000..=0xf7_ffff;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    em: Em,
    #[serde(default)]
    vesw: Vec<Spanned<Vesw>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Em {
    priority: Option<Written>,
    elevated_priority: Option<Written>,
    poll_interval: Option<Written>,
    lease: Option<Written>,
    grace: Option<Written>,
    state_dir: Option<Written>,
    socket: Option<Written>,
    ibtapd_socket: Option<Written>,
    port: Option<Written>,
    #[serde(default)]
    managers: Vec<Written>,
    log_level: Option<LogLevel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vesw {
    name: Written,
    id: Written,
    fabric_id: Option<Written>,
    pkey: Option<Written>,
    eth_mtu: Option<Written>,
    u_mcast_dlid: Option<Written>,
    #[serde(default)]
    default_ports: Vec<Spanned<DefaultPort>>,
    #[serde(default)]
    rc: Rc,
    #[serde(default)]
    sc: Sc,
    members: Spanned<Vec<Written>>,
    mac: Option<Written>,
    #[serde(default)]
    macs: Vec<Written>,
    #[serde(default)]
    pinned_macs: Vec<Spanned<PortMac>>,
    #[serde(default)]
    static_macs: Vec<Spanned<PortMac>>,
    #[serde(default)]
    groups: Vec<Spanned<Group>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultPort {
    slot: Written,
    port: Written,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortMac {
    mac: Written,
    port: Written,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    mac: Written,
    lid: Written,
}

/// Keys are named after the classes of kernel opa_vnic_encap.h.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Rc {
    default: Option<Written>,
    ipv4: Option<Written>,
    ipv4_udp: Option<Written>,
    ipv4_tcp: Option<Written>,
    ipv6: Option<Written>,
    ipv6_tcp: Option<Written>,
    ipv6_udp: Option<Written>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Sc {
    untagged: Option<Spanned<Vec<Written>>>,
    pcp_unicast: Option<Spanned<Vec<Written>>>,
    pcp_multicast: Option<Spanned<Vec<Written>>>,
}

/// Longest lease, in seconds.
const LEASE_MAX: i64 = (*LEASES_MS.end() / 1000) as i64;

/// Parses and checks the text.
pub(super) fn parse(text: &str) -> Result<Config, Fault> {
    let file: File = toml::from_str(text)?;
    let em = manager(&file.em)?;
    let mut switches: Vec<SwitchConfig> = Vec::new();
    for raw in &file.vesw {
        let raw = raw.get_ref();
        let switch = to_switch(raw)?;
        check_unique(raw, &switch, &switches)?;
        addresses::check_lids(raw, &switch, &switches)?;
        switches.push(switch);
    }
    Ok(Config { em, switches })
}

fn manager(raw: &Em) -> Result<ManagerConfig, Fault> {
    let default = ManagerConfig::default();
    let priority = optional("priority", &raw.priority, 0..=15, default.priority)?;
    let elevated = optional(
        "elevated_priority",
        &raw.elevated_priority,
        0..=15,
        default.elevated_priority.max(priority),
    )?;
    if let Some(written) = raw
        .elevated_priority
        .as_ref()
        .filter(|_| elevated < priority)
    {
        let what = format!(
            "elevated_priority = {elevated} is below priority = {priority}; use {priority} to 15"
        );
        return Err(Fault::at(written, what));
    }
    let seconds_to = |most: i64, key, written: &Option<Written>, default: u64| {
        Ok::<u64, Fault>(optional(key, written, 1..=most, default / 1000)? * 1000)
    };
    let seconds =
        |key, written: &Option<Written>, default: u64| seconds_to(86_400, key, written, default);
    let path = |key, written: &Option<Written>, default: PathBuf| match written {
        Some(written) => text(key, written).map(PathBuf::from),
        None => Ok(default),
    };
    Ok(ManagerConfig {
        priority,
        elevated_priority: elevated,
        poll_interval: seconds("poll_interval", &raw.poll_interval, default.poll_interval)?,
        // Agents accept no longer lease.
        lease: seconds_to(LEASE_MAX, "lease", &raw.lease, default.lease)?,
        grace: seconds("grace", &raw.grace, default.grace)?,
        state_dir: path("state_dir", &raw.state_dir, default.state_dir)?,
        socket: path("socket", &raw.socket, default.socket)?,
        ibtapd_socket: path("ibtapd_socket", &raw.ibtapd_socket, default.ibtapd_socket)?,
        port: raw.port.as_ref().map(|w| text("port", w)).transpose()?,
        managers: raw.managers.iter().map(gid).collect::<Result<_, _>>()?,
        log_level: raw.log_level.unwrap_or_default(),
    })
}

/// Parses the GID of a node, written as an IPv6 address.
fn gid(written: &Written) -> Result<Gid, Fault> {
    let text = text("managers", written)?;
    match text.parse::<Gid>() {
        Ok(gid) if !gid.is_multicast() && gid != Gid::UNSPECIFIED => Ok(gid),
        _ => Err(Fault::at(
            written,
            format!("managers: {text:?} is not the GID of a node, such as \"fe80::1\""),
        )),
    }
}

fn to_switch(raw: &Vesw) -> Result<SwitchConfig, Fault> {
    let id: u16 = narrow(number("id", &raw.id, 1..=4095)?);
    let name = switch_name(&raw.name)?;
    let members = patterns(&raw.members)?;
    let mcast = optional(
        "u_mcast_dlid",
        &raw.u_mcast_dlid,
        MULTICAST_LIDS,
        0xf0_0000 + u32::from(id),
    )?;
    let pkey: u16 = optional("pkey", &raw.pkey, 1..=0xffff, 0xffff)?;
    if let Some(written) = raw.pkey.as_ref().filter(|_| pkey & 0x7fff == 0) {
        let what = format!("pkey = {pkey:#06x} is not a P_Key; its low 15 bits must not be 0");
        return Err(Fault::at(written, what));
    }
    Ok(SwitchConfig {
        name,
        id,
        fabric_id: optional("fabric_id", &raw.fabric_id, 0..=0x3ff, 0)?,
        // Two limited members could not exchange packets.
        pkey: PKey::new(pkey).full(),
        eth_mtu: match &raw.eth_mtu {
            Some(written) => Some(narrow(number("eth_mtu", written, 68..=16_333)?)),
            None => None,
        },
        u_mcast_dlid: Lid::new(mcast),
        default_ports: default_ports(&raw.default_ports)?,
        rc: classes::routing(&raw.rc)?,
        classes: classes::classes(&raw.sc)?,
        members,
        macs: addresses::mac_source(raw)?,
        pinned_macs: addresses::pinned(&raw.pinned_macs)?,
        static_macs: addresses::port_macs("static_macs", &raw.static_macs)?,
        groups: addresses::groups(&raw.groups)?,
    })
}

/// A switch's name must not be a number: commands take a name or an id.
fn switch_name(written: &Written) -> Result<String, Fault> {
    let name = text("name", written)?;
    if name.len() > 64 || name.chars().any(char::is_control) {
        let what = format!("name = {name:?} must be at most 64 bytes of printable text");
        return Err(Fault::at(written, what));
    }
    if name.parse::<u64>().is_ok() {
        let what = format!(
            "name = {name:?} is a number and could be the id of another switch; add a letter"
        );
        return Err(Fault::at(written, what));
    }
    Ok(name)
}

fn patterns(raw: &Spanned<Vec<Written>>) -> Result<Vec<Pattern>, Fault> {
    if raw.get_ref().is_empty() {
        let what = "members is empty; list ports such as \"node*:1:0\", or \"*\" for all";
        return Err(Fault::at(raw, what));
    }
    raw.get_ref()
        .iter()
        .map(|w| pattern("members", w))
        .collect()
}

fn pattern(key: &str, written: &Written) -> Result<Pattern, Fault> {
    let text = text(key, written)?;
    text.parse()
        .map_err(|what| Fault::at(written, format!("{key}: {what}")))
}

fn exact(key: &str, written: &Written) -> Result<Pattern, Fault> {
    let pattern = pattern(key, written)?;
    if pattern.is_exact() {
        return Ok(pattern);
    }
    let what =
        format!("{key} = \"{pattern}\" may match several ports; name one port, without * and ?");
    Err(Fault::at(written, what))
}

fn default_ports(raw: &[Spanned<DefaultPort>]) -> Result<BTreeMap<u8, Pattern>, Fault> {
    let mut ports = BTreeMap::new();
    for written in raw {
        let raw = written.get_ref();
        let slot: u8 = narrow(number("slot", &raw.slot, 0..=15)?);
        if ports.insert(slot, exact("port", &raw.port)?).is_some() {
            let what = format!("slot = {slot} appears twice");
            return Err(Fault::at(&raw.slot, what));
        }
    }
    Ok(ports)
}

fn check_unique(raw: &Vesw, switch: &SwitchConfig, others: &[SwitchConfig]) -> Result<(), Fault> {
    for other in others {
        let name = &other.name;
        if other.id == switch.id {
            let what = format!("id = {} is already used by the switch {name:?}", switch.id);
            return Err(Fault::at(&raw.id, what));
        }
        if other.name == switch.name {
            let what = format!("name = {name:?} is already used by the switch {}", other.id);
            return Err(Fault::at(&raw.name, what));
        }
    }
    Ok(())
}

/// An optional number.
fn optional<T: TryFrom<i64>>(
    key: &str,
    written: &Option<Written>,
    allowed: RangeInclusive<i64>,
    default: T,
) -> Result<T, Fault> {
    match written {
        Some(written) => {
            number(key, written, allowed).map(|number| T::try_from(number).unwrap_or(default))
        }
        None => Ok(default),
    }
}

/// Converts a number whose range was checked.
fn narrow<T: TryFrom<i64> + Default>(number: i64) -> T {
    T::try_from(number).unwrap_or_default()
}
