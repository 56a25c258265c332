//! The steps from one configuration to another.

use std::net::IpAddr;

use proto::{ClaimCheck, DhcpMode, GidPrefix, Inspect, Mode, MssChoice, PKey, Pin};

use super::settings::{self, When};
use super::vnic::{Learning, SwitchConfig};
use super::{
    BusyPoll, Config, InterfaceConfig, InterfaceKey, IpoibConfig, ManagementSettings, PortConfig,
    PortName, VnicConfig,
};
use crate::api::{LogLevel, Moderation};

/// An interface of the new configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An IPoIB interface.
    Ipoib(IpoibConfig),
    /// A VNIC.
    Vnic(VnicConfig),
}

impl Wanted {
    /// The settings that both kinds share.
    pub fn interface(&self) -> &InterfaceConfig {
        match self {
            Wanted::Ipoib(ipoib) => &ipoib.interface,
            Wanted::Vnic(vnic) => &vnic.interface,
        }
    }
}

/// One change. Interfaces have their names in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Change the log level.
    LogLevel(LogLevel),
    /// Remove an interface.
    Remove(InterfaceKey),
    /// Remove a port without interfaces.
    RemovePort(PortName),
    /// Change a setting of a port.
    Port(PortName, PortChange),
    /// Change a setting of an interface.
    Interface(InterfaceKey, Change),
    /// Add a port for these interfaces; further steps add them.
    AddPort(PortName, PortConfig, Vec<Wanted>),
    /// Add an interface.
    Add(Wanted),
}

/// A change of a port that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// Time that data threads poll for the next packet.
    BusyPoll(BusyPoll),
    /// Completion moderation of the data threads.
    Moderation(Moderation),
    /// Destinations of multicast copies.
    Peers(Vec<IpAddr>),
    /// The P_Key table; `None`: the P_Keys of the interfaces.
    Pkeys(Option<Vec<PKey>>),
    /// Permissions of Ethernet Managers.
    Management(ManagementSettings),
    /// Who may send datagrams and ask for connections; `None`: all.
    Allow(Option<Vec<GidPrefix>>),
}

/// A change of an interface that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The configured MTU.
    Mtu(Option<u32>),
    /// Whether the daemon sets the interface up.
    Up(bool),
    /// Whether the interface stays when the daemon ends.
    Persist(bool),
    /// The mode, with the configured MTU.
    Mode(Mode, Option<u32>),
    /// The largest segment of TCP in connected mode.
    Mss(MssChoice),
    /// Changes to DHCPv4.
    Dhcp(DhcpMode),
    /// The check of claims against their sender.
    Claims(ClaimCheck),
    /// Whether requests for connections are refused in datagram mode.
    RefuseRequests(bool),
    /// The action for suspicious claims, with the neighbours that have certain IP addresses.
    Inspect(Inspect, Vec<Pin>),
    /// Whether checksums of packets from connections are not verified.
    TrustChecksums(bool),
    /// Whether frames for guests and groups return to the interface.
    Reflect(bool),
    /// Whether 802.1Q tags select partitions.
    VlanPkey(bool),
    /// Learning and ageing of addresses.
    Learning(Learning),
    /// The switch, the VNIC's place on it, the other members.
    Switch(SwitchConfig),
}

/// Changes in their order, and refused changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes.
    pub steps: Vec<Step>,
    /// A sentence for each change that is not possible at run time.
    pub refused: Vec<String>,
}

impl Plan {
    /// Plans the way from `old` to `new`. Removals come first, because new interfaces may use the names or
    /// partitions of removed ones.
    pub fn new(old: &Config, new: &Config) -> Plan {
        let mut plan = Plan::default();
        plan.daemon(old, new);
        let stays = |ipoib: &&IpoibConfig| successor(old, new, ipoib).is_some();
        let kept: Vec<_> = old.ipoib.iter().filter(stays).collect();
        let added = added(old, new);
        // Children go before their parent: removing a parent removes its children.
        let gone = old.ipoib.iter().rev().filter(|ipoib| !stays(ipoib));
        plan.steps.extend(gone.map(|gone| Step::Remove(gone.key())));
        let gone = vnics_without(old, new);
        plan.steps.extend(gone.map(|gone| Step::Remove(gone.key())));
        let is_used = |name: &PortName| {
            let added = added.iter().map(Wanted::interface);
            let vnics = new.vnics.iter().map(|vnic| &vnic.interface);
            let mut all = kept.iter().map(|k| &k.interface).chain(added).chain(vnics);
            all.any(|interface| interface.port == *name)
                || new.ports.get(name).is_some_and(|port| port.vnic_create)
        };
        for (name, port) in &old.ports {
            match new.ports.get(name) {
                _ if !is_used(name) => plan.steps.push(Step::RemovePort(name.clone())),
                Some(wanted) => plan.port(name, port, wanted),
                // Its interfaces should move to another port, which is not possible; they stay here.
                None => {}
            }
        }
        for ipoib in kept {
            if let Some(wanted) = successor(old, new, ipoib) {
                plan.ipoib(ipoib, wanted);
            }
        }
        for vnic in &old.vnics {
            if let Some(wanted) = same_vnic(new, vnic).filter(|wanted| !is_remade(vnic, wanted)) {
                plan.vnic(vnic, wanted);
            }
        }
        for (name, port) in &new.ports {
            let here = added.iter().filter(|a| a.interface().port == *name);
            let here: Vec<_> = here.cloned().collect();
            if !old.ports.contains_key(name) && (!here.is_empty() || port.vnic_create) {
                let step = Step::AddPort(name.clone(), port.clone(), here);
                plan.steps.push(step);
            }
        }
        plan.steps.extend(added.into_iter().map(Step::Add));
        plan
    }

    fn daemon(&mut self, old: &Config, new: &Config) {
        for setting in settings::DAEMON.iter().filter(|s| (s.differs)(old, new)) {
            match &setting.when {
                When::Live(step) => self.steps.extend(step(old, new)),
                When::Anew | When::Restart => self.refused.push(format!(
                    "{} cannot change while ibtapd runs; restart ibtapd",
                    setting.key
                )),
            }
        }
    }

    fn port(&mut self, name: &PortName, old: &PortConfig, new: &PortConfig) {
        for setting in settings::PORT.iter().filter(|s| (s.differs)(old, new)) {
            match &setting.when {
                When::Live(change) => {
                    let change = change(old, new);
                    self.step(change.map(|change| Step::Port(name.clone(), change)));
                }
                When::Anew | When::Restart => self.refuse(&name.to_string(), setting.key),
            }
        }
    }

    fn ipoib(&mut self, old: &IpoibConfig, new: &IpoibConfig) {
        let key = old.key();
        let name = &key.to_string();
        if old.parent != new.parent {
            self.refuse(name, "parent");
        }
        for setting in settings::IPOIB.iter().filter(|s| (s.differs)(old, new)) {
            match &setting.when {
                When::Live(change) => {
                    let change = change(old, new);
                    self.step(change.map(|change| Step::Interface(key.clone(), change)));
                }
                When::Restart if setting.key == "netns" => {
                    let interface = &new.name;
                    let advice = match &new.netns {
                        Some(to) => format!("type \"ip link set {interface} netns {to}\""),
                        None => format!("move {interface} to the network namespace of ibtapd"),
                    };
                    self.refused.push(format!(
                        "{name}: netns cannot change at run time; {advice}, or restart ibtapd"
                    ));
                }
                // An interface with another name is a new interface and was not kept.
                When::Anew => {}
                When::Restart => self.refuse(name, setting.key),
            }
        }
    }

    fn vnic(&mut self, old: &VnicConfig, new: &VnicConfig) {
        for setting in settings::VNIC.iter().filter(|s| (s.differs)(old, new)) {
            if let When::Live(change) = &setting.when {
                let change = change(old, new);
                self.step(change.map(|change| Step::Interface(old.key(), change)));
            }
        }
    }

    /// Adds a step. Settings that change together give equal steps; only the first is added.
    fn step(&mut self, step: Option<Step>) {
        if step.as_ref() != self.steps.last() {
            self.steps.extend(step);
        }
    }

    fn refuse(&mut self, name: &str, key: &str) {
        self.refused.push(format!(
            "{name}: {key} cannot change at run time; restart ibtapd"
        ));
    }
}

impl Config {
    /// Applies a step to the configuration.
    pub fn note(&mut self, step: &Step) {
        match step {
            Step::LogLevel(level) => self.log_level = *level,
            Step::Remove(key) => {
                self.ipoib.retain(|ipoib| ipoib.key() != *key);
                self.vnics.retain(|vnic| vnic.key() != *key);
            }
            Step::RemovePort(name) => drop(self.ports.remove(name)),
            Step::Port(name, change) => {
                let port = self.ports.get_mut(name);
                port.into_iter().for_each(|port| change.note(port));
            }
            Step::Interface(key, change) => {
                let ipoib = self.ipoib.iter_mut().find(|ipoib| ipoib.key() == *key);
                ipoib.into_iter().for_each(|ipoib| change.note_ipoib(ipoib));
                let vnic = self.vnics.iter_mut().find(|vnic| vnic.key() == *key);
                vnic.into_iter().for_each(|vnic| change.note_vnic(vnic));
            }
            // Its interfaces have separate steps.
            Step::AddPort(name, port, _) => drop(self.ports.insert(name.clone(), port.clone())),
            Step::Add(Wanted::Ipoib(ipoib)) => self.ipoib.push(ipoib.clone()),
            Step::Add(Wanted::Vnic(vnic)) => self.vnics.push(vnic.clone()),
        }
    }
}

impl PortChange {
    fn note(&self, port: &mut PortConfig) {
        match self {
            PortChange::BusyPoll(busy_poll) => port.busy_poll = *busy_poll,
            PortChange::Moderation(moderation) => port.moderation = *moderation,
            PortChange::Peers(peers) => port.peers.clone_from(peers),
            PortChange::Pkeys(pkeys) => port.pkeys.clone_from(pkeys),
            PortChange::Allow(allow) => port.allow.clone_from(allow),
            PortChange::Management(settings) => {
                port.managers.clone_from(&settings.managers);
                port.management_key.clone_from(&settings.management_key);
                port.vnic_create = settings.vnic_create;
            }
        }
    }
}

impl Change {
    fn note(&self, interface: &mut InterfaceConfig) {
        match self {
            Change::Mtu(mtu) | Change::Mode(_, mtu) => interface.mtu = *mtu,
            Change::Up(up) => interface.up = *up,
            Change::Persist(persist) => interface.persist = *persist,
            _ => {}
        }
    }

    fn note_ipoib(&self, ipoib: &mut IpoibConfig) {
        self.note(&mut ipoib.interface);
        match self {
            Change::Mode(mode, _) => ipoib.mode = *mode,
            Change::Mss(mss) => ipoib.mss = *mss,
            Change::Dhcp(dhcp) => ipoib.dhcp = *dhcp,
            Change::Claims(claims) => ipoib.claims = *claims,
            Change::RefuseRequests(refuse) => ipoib.refuse_requests = *refuse,
            Change::Inspect(inspect, neighbours) => {
                ipoib.inspect = *inspect;
                ipoib.neighbours.clone_from(neighbours);
            }
            Change::TrustChecksums(trust) => ipoib.trust_checksums = *trust,
            Change::Reflect(reflect) => ipoib.reflect = *reflect,
            Change::VlanPkey(vlan_pkey) => ipoib.vlan_pkey = *vlan_pkey,
            _ => {}
        }
    }

    fn note_vnic(&self, vnic: &mut VnicConfig) {
        self.note(&mut vnic.interface);
        match self {
            Change::Learning(learning) => vnic.learning = *learning,
            Change::Switch(switch) => vnic.switch = Some(switch.clone()),
            _ => {}
        }
    }
}

/// The new interfaces, IPoIB interfaces first.
fn added(old: &Config, new: &Config) -> Vec<Wanted> {
    let ipoib = new.ipoib.iter();
    let stays = |ipoib: &IpoibConfig| {
        same(new, old, ipoib).is_some_and(|was| successor(old, new, was).is_some())
    };
    let ipoib = ipoib.filter(|ipoib| !stays(ipoib));
    let vnics = vnics_without(new, old);
    ipoib
        .cloned()
        .map(Wanted::Ipoib)
        .chain(vnics.cloned().map(Wanted::Vnic))
        .collect()
}

/// What the IPoIB interface `ipoib` of `old` is in `new`, if the interface stays. A child stays only with its
/// parent, because removing the parent removes the child.
fn successor<'c>(old: &Config, new: &'c Config, ipoib: &IpoibConfig) -> Option<&'c IpoibConfig> {
    let is_parent = |other: &&IpoibConfig| {
        other.parent.is_none()
            && ipoib.parent.as_ref() == Some(&other.name)
            && other.port == ipoib.port
    };
    let parent = old.ipoib.iter().find(is_parent);
    let with_parent = parent.is_none_or(|parent| same(old, new, parent).is_some());
    same(old, new, ipoib).filter(|_| with_parent)
}

/// The counterpart in configuration `to` of the IPoIB interface `ipoib` in `from`: the interface of the same
/// name and namespace, else the only interface of that name, if both configurations have only one.
fn same<'c>(from: &Config, to: &'c Config, ipoib: &IpoibConfig) -> Option<&'c IpoibConfig> {
    let by_key = to.ipoib.iter().find(|other| other.key() == ipoib.key());
    by_key.or_else(|| {
        only(from, &ipoib.name)?;
        only(to, &ipoib.name)
    })
}

fn only<'c>(config: &'c Config, name: &str) -> Option<&'c IpoibConfig> {
    let mut named = config.ipoib.iter().filter(|ipoib| ipoib.name == name);
    named.next().filter(|_| named.next().is_none())
}

/// The VNICs of `from` that `to` does not have, or has with changes that need a new VNIC.
fn vnics_without<'c>(from: &'c Config, to: &Config) -> impl Iterator<Item = &'c VnicConfig> {
    from.vnics
        .iter()
        .filter(|vnic| same_vnic(to, vnic).is_none_or(|other| is_remade(vnic, other)))
}

/// The VNIC of the same name and namespace.
fn same_vnic<'c>(config: &'c Config, vnic: &VnicConfig) -> Option<&'c VnicConfig> {
    config.vnics.iter().find(|v| v.key() == vnic.key())
}

/// Whether the changes need a new VNIC.
fn is_remade(old: &VnicConfig, new: &VnicConfig) -> bool {
    settings::VNIC.iter().any(|setting| {
        (setting.differs)(old, new)
            && match &setting.when {
                When::Live(change) => change(old, new).is_none(),
                When::Anew | When::Restart => true,
            }
    })
}

#[cfg(test)]
mod tests;
