//! What is to be done to get from one configuration to another.

mod vnics;

use std::net::IpAddr;

use control::api::{DhcpMode, LogLevel, Mode};
use control::config::{
    BusyPoll, Config, InterfaceKey, IpoibConfig, ManagementSettings, PortConfig, PortName,
    VnicConfig,
};
use fabric::PKey;

pub use vnics::VnicChange;

/// One change. Devices are named as in the configuration, ports by what they are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    LogLevel(LogLevel),
    RemoveDevice(InterfaceKey),
    RemovePort(PortName),
    BusyPoll(PortName, BusyPoll),
    Peers(PortName, Vec<IpAddr>),
    /// The P_Key table; `None`: what the devices ask for.
    Pkeys(PortName, Option<Vec<PKey>>),
    /// With the MTU that is asked for in that mode.
    Mode(InterfaceKey, Mode, Option<u32>),
    Mtu(InterfaceKey, Option<u32>),
    Up(InterfaceKey, bool),
    Persist(InterfaceKey, bool),
    Dhcp(InterfaceKey, DhcpMode),
    Reflect(InterfaceKey, bool),
    VlanPkey(InterfaceKey, bool),
    /// Who may manage the VNICs of a port.
    Management(PortName, ManagementSettings),
    RemoveVnic(InterfaceKey),
    Vnic(InterfaceKey, VnicChange),
    /// A port, and the devices and VNICs that will be made on it.
    AddPort(PortName, PortConfig, Vec<IpoibConfig>, Vec<VnicConfig>),
    AddDevice(IpoibConfig),
    AddVnic(VnicConfig),
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
            .ipoib
            .iter()
            .partition(|device| same(old, new, device).is_some());
        let added: Vec<_> = new
            .ipoib
            .iter()
            .filter(|device| same(new, old, device).is_none())
            .collect();
        // Children go before their parent, which would take them with it.
        let gone = gone.iter().rev().map(|d| Step::RemoveDevice(d.key()));
        plan.steps.extend(gone);
        let gone = vnics::without(old, new).into_iter();
        plan.steps.extend(gone.map(|v| Step::RemoveVnic(v.key())));
        let is_used = |name: &PortName| {
            let mut all = kept.iter().chain(&added);
            all.any(|device| device.port == *name)
                || new.vnics.iter().any(|vnic| vnic.port == *name)
                || new.ports.get(name).is_some_and(|port| port.vnic_create)
        };
        for (name, port) in &old.ports {
            match new.ports.get(name) {
                _ if !is_used(name) => plan.steps.push(Step::RemovePort(name.clone())),
                Some(wanted) => plan.port(name, port, wanted),
                // Devices stay here that were to move, which they cannot.
                None => {}
            }
        }
        for device in kept {
            if let Some(wanted) = same(old, new, device) {
                plan.device(device, wanted);
            }
        }
        plan.vnics(old, new);
        plan.add(old, new, &added);
        plan
    }

    fn add(&mut self, old: &Config, new: &Config, added: &[&IpoibConfig]) {
        let added_vnics = vnics::without(new, old);
        for (name, port) in &new.ports {
            let devices = added.iter().filter(|d| d.port == *name);
            let devices: Vec<_> = devices.map(|d| (*d).clone()).collect();
            let vnics = added_vnics.iter().filter(|v| v.port == *name);
            let vnics: Vec<_> = vnics.map(|v| (*v).clone()).collect();
            let is_wanted = !devices.is_empty() || !vnics.is_empty() || port.vnic_create;
            if !old.ports.contains_key(name) && is_wanted {
                let step = Step::AddPort(name.clone(), port.clone(), devices, vnics);
                self.steps.push(step);
            }
        }
        let devices = added.iter().map(|d| Step::AddDevice((*d).clone()));
        self.steps.extend(devices);
        let vnics = added_vnics.into_iter();
        self.steps.extend(vnics.map(|v| Step::AddVnic(v.clone())));
    }

    fn port(&mut self, name: &PortName, old: &PortConfig, new: &PortConfig) {
        if old.busy_poll != new.busy_poll {
            self.steps.push(Step::BusyPoll(name.clone(), new.busy_poll));
        }
        if old.peers != new.peers {
            self.steps
                .push(Step::Peers(name.clone(), new.peers.clone()));
        }
        if old.pkeys != new.pkeys {
            self.steps
                .push(Step::Pkeys(name.clone(), new.pkeys.clone()));
        }
        if old.management() != new.management() {
            self.steps
                .push(Step::Management(name.clone(), new.management()));
        }
        let name = &name.to_string();
        self.refuse(name, "gid", old.gid != new.gid);
        self.refuse(name, "link_mtu", old.link_mtu != new.link_mtu);
        self.refuse(name, "lids", old.lids != new.lids);
        let kernel_peers = old.kernel_peers != new.kernel_peers;
        self.refuse(name, "kernel_peers", kernel_peers);
    }

    fn device(&mut self, old: &IpoibConfig, new: &IpoibConfig) {
        let key = old.key();
        let mut step = |differs: bool, step: fn(InterfaceKey, &IpoibConfig) -> Step| {
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
        // From an underlay to an RDMA device is a change of the new key, whichever the file had.
        self.refuse(name, new.port.key(), old.port != new.port);
        self.refuse(name, "connections", old.connections != new.connections);
        self.refuse(name, "pkey", old.pkey != new.pkey);
        self.refuse(name, "qkey", old.qkey != new.qkey);
        self.refuse(name, "qpn", old.qpn != new.qpn);
        self.refuse(name, "queues", old.queue_count() != new.queue_count());
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
fn same<'c>(from: &Config, to: &'c Config, device: &IpoibConfig) -> Option<&'c IpoibConfig> {
    let by_key = to.ipoib.iter().find(|d| d.key() == device.key());
    by_key.or_else(|| {
        only(from, &device.name)?;
        only(to, &device.name)
    })
}

fn only<'c>(config: &'c Config, name: &str) -> Option<&'c IpoibConfig> {
    let mut named = config.ipoib.iter().filter(|d| d.name == name);
    named.next().filter(|_| named.next().is_none())
}

#[cfg(test)]
mod tests;
