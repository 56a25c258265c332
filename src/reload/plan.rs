//! What is to be done to get from one configuration to another.

use std::net::IpAddr;

use fabric::PKey;

use crate::api::{DhcpMode, LogLevel, Mode};
use crate::config::{BusyPoll, Config, DeviceConfig, DeviceKey, PortConfig, default_queues};

/// One change. Devices are named as in the configuration, ports by their underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    LogLevel(LogLevel),
    RemoveDevice(DeviceKey),
    RemovePort(String),
    BusyPoll(String, BusyPoll),
    Peers(String, Vec<IpAddr>),
    /// The P_Key table; `None`: what the devices ask for.
    Pkeys(String, Option<Vec<PKey>>),
    /// With the MTU that is asked for in that mode.
    Mode(DeviceKey, Mode, Option<u32>),
    Mtu(DeviceKey, Option<u32>),
    Up(DeviceKey, bool),
    Persist(DeviceKey, bool),
    Dhcp(DeviceKey, DhcpMode),
    Reflect(DeviceKey, bool),
    VlanPkey(DeviceKey, bool),
    /// A port, and the devices that will be made on it.
    AddPort(String, PortConfig, Vec<DeviceConfig>),
    AddDevice(DeviceConfig),
}

/// The changes in the order in which they are to be made, and what cannot be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub refused: Vec<String>,
}

impl Plan {
    /// What leads from `old` to `new`. First goes what is no longer wanted, since its name or its
    /// partition may be wanted by what comes.
    pub fn new(old: &Config, new: &Config) -> Plan {
        let mut plan = Plan::default();
        if old.socket != new.socket {
            plan.refused
                .push("socket cannot change while ibtapd runs; restart it".into());
        }
        if old.log_level != new.log_level {
            plan.steps.push(Step::LogLevel(new.log_level));
        }
        let (kept, gone): (Vec<_>, Vec<_>) = old
            .devices
            .iter()
            .partition(|device| same(old, new, device).is_some());
        let added: Vec<_> = new
            .devices
            .iter()
            .filter(|device| same(new, old, device).is_none())
            .collect();
        // Children go before their parent, which would take them with it.
        let gone = gone.iter().rev().map(|d| Step::RemoveDevice(d.key()));
        plan.steps.extend(gone);
        let is_used = |underlay: &String| {
            let mut all = kept.iter().chain(&added);
            all.any(|device| device.underlay == *underlay)
        };
        for (underlay, port) in &old.ports {
            match new.ports.get(underlay) {
                _ if !is_used(underlay) => plan.steps.push(Step::RemovePort(underlay.clone())),
                Some(wanted) => plan.port(underlay, port, wanted),
                // Devices stay here that were to move, which they cannot.
                None => {}
            }
        }
        for device in kept {
            if let Some(wanted) = same(old, new, device) {
                plan.device(device, wanted);
            }
        }
        plan.add(old, new, &added);
        plan
    }

    fn add(&mut self, old: &Config, new: &Config, added: &[&DeviceConfig]) {
        for (underlay, port) in &new.ports {
            let here = || added.iter().filter(|d| d.underlay == *underlay);
            if !old.ports.contains_key(underlay) && here().next().is_some() {
                let devices = here().map(|d| (*d).clone()).collect();
                self.steps
                    .push(Step::AddPort(underlay.clone(), port.clone(), devices));
            }
        }
        let devices = added.iter().map(|d| Step::AddDevice((*d).clone()));
        self.steps.extend(devices);
    }

    fn port(&mut self, name: &str, old: &PortConfig, new: &PortConfig) {
        if old.busy_poll != new.busy_poll {
            self.steps
                .push(Step::BusyPoll(name.to_owned(), new.busy_poll));
        }
        if old.peers != new.peers {
            self.steps
                .push(Step::Peers(name.to_owned(), new.peers.clone()));
        }
        if old.pkeys != new.pkeys {
            self.steps
                .push(Step::Pkeys(name.to_owned(), new.pkeys.clone()));
        }
        self.refuse(name, "gid", old.gid != new.gid);
        self.refuse(name, "link_mtu", old.link_mtu != new.link_mtu);
    }

    fn device(&mut self, old: &DeviceConfig, new: &DeviceConfig) {
        let key = old.key();
        let mut step = |differs: bool, step: fn(DeviceKey, &DeviceConfig) -> Step| {
            if differs {
                self.steps.push(step(key.clone(), new));
            }
        };
        let mode_differs = old.mode != new.mode;
        step(mode_differs, |n, d| Step::Mode(n, d.mode, d.mtu));
        step(old.mtu != new.mtu && !mode_differs, |n, d| {
            Step::Mtu(n, d.mtu)
        });
        step(old.up != new.up, |n, d| Step::Up(n, d.up));
        step(old.persist != new.persist, |n, d| {
            Step::Persist(n, d.persist)
        });
        step(old.dhcp != new.dhcp, |n, d| Step::Dhcp(n, d.dhcp));
        step(old.reflect != new.reflect, |n, d| {
            Step::Reflect(n, d.reflect)
        });
        step(old.vlan_pkey != new.vlan_pkey, |n, d| {
            Step::VlanPkey(n, d.vlan_pkey)
        });
        let queues = |d: &DeviceConfig| d.queues.unwrap_or_else(default_queues);
        let name = &key.to_string();
        if old.netns != new.netns {
            let to = new.netns.as_deref().unwrap_or("the daemon's");
            self.refused.push(format!(
                "{name}: netns cannot change while it runs; move it by \"ip link set {} netns\" to {to}, \
                 or restart ibtapd",
                new.name
            ));
        }
        self.refuse(name, "parent", old.parent != new.parent);
        self.refuse(name, "underlay", old.underlay != new.underlay);
        self.refuse(name, "connections", old.connections != new.connections);
        self.refuse(name, "pkey", old.pkey != new.pkey);
        self.refuse(name, "qkey", old.qkey != new.qkey);
        self.refuse(name, "qpn", old.qpn != new.qpn);
        self.refuse(name, "queues", queues(old) != queues(new));
    }

    fn refuse(&mut self, name: &str, key: &str, differs: bool) {
        if differs {
            self.refused.push(format!(
                "{name}: {key} cannot change while it runs; restart ibtapd"
            ));
        }
    }
}

/// The device of configuration `to` that `device` of configuration `from` is: the one of the same
/// name and namespace, else the only one of that name, if it is so in both.
fn same<'c>(from: &Config, to: &'c Config, device: &DeviceConfig) -> Option<&'c DeviceConfig> {
    let by_key = to.devices.iter().find(|d| d.key() == device.key());
    by_key.or_else(|| {
        only(from, &device.name)?;
        only(to, &device.name)
    })
}

fn only<'c>(config: &'c Config, name: &str) -> Option<&'c DeviceConfig> {
    let mut named = config.devices.iter().filter(|d| d.name == name);
    named.next().filter(|_| named.next().is_none())
}

#[cfg(test)]
mod tests;
