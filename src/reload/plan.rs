//! What is to be done to get from one configuration to another.

use std::net::IpAddr;

use crate::api::{DhcpMode, LogLevel, Mode};
use crate::config::{BusyPoll, Config, DeviceConfig, PortConfig, default_queues};

/// One change. Devices are named as in the configuration, ports by their underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    LogLevel(LogLevel),
    RemoveDevice(String),
    RemovePort(String),
    BusyPoll(String, BusyPoll),
    Peers(String, Vec<IpAddr>),
    /// With the MTU that is asked for in that mode.
    Mode(String, Mode, Option<u32>),
    Mtu(String, Option<u32>),
    Up(String, bool),
    Persist(String, bool),
    Dhcp(String, DhcpMode),
    Reflect(String, bool),
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
            .partition(|device| named(new, &device.name).is_some());
        let added: Vec<_> = new
            .devices
            .iter()
            .filter(|device| named(old, &device.name).is_none())
            .collect();
        let gone = gone.iter().map(|d| Step::RemoveDevice(d.name.clone()));
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
            if let Some(wanted) = named(new, &device.name) {
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
        self.refuse(name, "gid", old.gid != new.gid);
        self.refuse(name, "link_mtu", old.link_mtu != new.link_mtu);
        self.refuse(name, "pkeys", old.pkeys != new.pkeys);
    }

    fn device(&mut self, old: &DeviceConfig, new: &DeviceConfig) {
        let name = &new.name;
        let mut step = |differs: bool, step: fn(String, &DeviceConfig) -> Step| {
            if differs {
                self.steps.push(step(name.clone(), new));
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
        let queues = |d: &DeviceConfig| d.queues.unwrap_or_else(default_queues);
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

fn named<'c>(config: &'c Config, name: &str) -> Option<&'c DeviceConfig> {
    config.devices.iter().find(|device| device.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "t.toml").unwrap()
    }

    fn plan(old: &str, new: &str) -> Plan {
        Plan::new(&config(old), &config(new))
    }

    const ONE: &str = "[[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    const TWO: &str = "[[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
                       [[device]]\nname = \"ib1\"\nunderlay = \"eth1\"\n";

    #[test]
    fn nothing_new_is_nothing_to_do() {
        assert_eq!(plan(TWO, TWO), Plan::default());
        let queues = format!("{ONE}queues = {}\n", default_queues());
        assert_eq!(plan(ONE, &queues), Plan::default());
        let port = format!("[port.eth0]\nbusy_poll = 100\n{ONE}");
        assert_eq!(plan(ONE, &port), Plan::default());
    }

    #[test]
    fn what_a_device_can_change_while_it_runs() {
        let new = format!(
            "log_level = \"debug\"\n{ONE}mtu = 2044\nup = false\npersist = true\n\
             dhcp = \"off\"\nreflect = true\n"
        );
        let ib0 = || "ib0".to_owned();
        assert_eq!(
            plan(ONE, &new).steps,
            [
                Step::LogLevel(LogLevel::Debug),
                Step::Mtu(ib0(), Some(2044)),
                Step::Up(ib0(), false),
                Step::Persist(ib0(), true),
                Step::Dhcp(ib0(), DhcpMode::Off),
                Step::Reflect(ib0(), true),
            ]
        );
        assert_eq!(plan(ONE, &new).refused, [""; 0]);
        let back = plan(&new, ONE).steps;
        assert_eq!(back[1], Step::Mtu(ib0(), None));
    }

    #[test]
    fn what_it_cannot_is_named() {
        let new = "socket = \"/tmp/s\"\n[port.eth0]\ngid = \"fe80::1\"\nlink_mtu = 2048\n\
                   pkeys = [0x8001]\n[[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
                   connections = 7\npkey = 0x8001\nqkey = 1\nqpn = 0x1234\nqueues = 200\n";
        let plan = plan(ONE, new);
        assert_eq!(plan.steps, []);
        let restart = "cannot change while it runs; restart ibtapd";
        let mut expected = vec!["socket cannot change while ibtapd runs; restart it".to_owned()];
        for key in ["gid", "link_mtu", "pkeys"] {
            expected.push(format!("eth0: {key} {restart}"));
        }
        for key in ["connections", "pkey", "qkey", "qpn", "queues"] {
            expected.push(format!("ib0: {key} {restart}"));
        }
        assert_eq!(plan.refused, expected);
    }

    #[test]
    fn the_mode_changes_with_its_mtu() {
        let connected = format!("{ONE}mode = \"connected\"\n");
        let ib0 = || "ib0".to_owned();
        let to = Step::Mode(ib0(), Mode::Connected, None);
        assert_eq!(plan(ONE, &connected).steps, [to]);
        let small = format!("{connected}mtu = 9000\n");
        let both = Step::Mode(ib0(), Mode::Connected, Some(9000));
        assert_eq!(plan(ONE, &small).steps, [both]);
        let back = Step::Mode(ib0(), Mode::Datagram, None);
        assert_eq!(plan(&small, ONE).steps, [back]);
        let mtu = Step::Mtu(ib0(), Some(9000));
        assert_eq!(plan(&connected, &small).steps, [mtu]);
    }

    #[test]
    fn ports_change_with_their_devices() {
        let added = plan(ONE, TWO);
        let ib1 = DeviceConfig::new("ib1", "eth1");
        assert_eq!(
            added.steps,
            [
                Step::AddPort("eth1".into(), PortConfig::default(), vec![ib1.clone()]),
                Step::AddDevice(ib1),
            ]
        );
        assert_eq!(
            plan(TWO, ONE).steps,
            [
                Step::RemoveDevice("ib1".into()),
                Step::RemovePort("eth1".into())
            ]
        );
        let peers = |list: &str| {
            format!("[port.eth0]\ngid = \"ipv4\"\npeers = [{list}]\nbusy_poll = 5\n{ONE}")
        };
        assert_eq!(
            plan(&peers("\"192.0.2.2\""), &peers("\"192.0.2.3\"")).steps,
            [Step::Peers(
                "eth0".into(),
                vec!["192.0.2.3".parse().unwrap()]
            )]
        );
        let busy = format!("[port.eth0]\nbusy_poll = 5\n{ONE}");
        let five = BusyPoll::from_micros(5).unwrap();
        assert_eq!(
            plan(ONE, &busy).steps,
            [Step::BusyPoll("eth0".into(), five)]
        );
    }

    #[test]
    fn a_device_that_cannot_move_keeps_its_port() {
        let moved = "[[device]]\nname = \"ib0\"\nunderlay = \"eth1\"\n";
        let plan = plan(ONE, moved);
        assert_eq!(plan.steps, []);
        assert_eq!(
            plan.refused,
            ["ib0: underlay cannot change while it runs; restart ibtapd"]
        );
    }

    #[test]
    fn a_partition_goes_before_another_device_takes_it() {
        let other = ONE.replace("ib0", "st0");
        assert_eq!(
            plan(ONE, &other).steps,
            [
                Step::RemoveDevice("ib0".into()),
                Step::AddDevice(DeviceConfig::new("st0", "eth0"))
            ]
        );
    }
}
