//! Making one change. What was changed is a sentence, and so is why something was not.

use std::net::IpAddr;
use std::time::Duration;

use control::api::{Mode, PkeysRequest};
use control::config::plan::{Change, PortChange, Step, Wanted};
use control::config::{BusyPoll, Config, InterfaceKey, IpoibConfig, PortConfig, PortName};
use control::logging;
use fabric::PKey;

use crate::daemon::{Daemon, Payload};
use crate::datapath::Command;
use crate::port::PortId;
use crate::run;

/// How long a port that is new may take to have a usable GID. Nothing else is answered
/// meanwhile, so it is shorter than at the start; packets go on.
const GID_WAIT: Duration = Duration::from_secs(2);

/// What was done, or why not.
pub(super) type Outcome = Result<String, String>;

impl Daemon {
    /// Makes one change, and notes it in the configuration that is in force. What was to go is not in that
    /// any more, whatever came of it.
    pub(super) fn apply(&mut self, step: &Step, running: &mut Config) -> Outcome {
        let done = self.make(step);
        if done.is_ok() || matches!(step, Step::Remove(_) | Step::RemovePort(_)) {
            running.note(step);
        }
        done
    }

    fn make(&mut self, step: &Step) -> Outcome {
        match step {
            Step::LogLevel(level) => {
                logging::set_level(*level);
                Ok(format!("log_level {level}"))
            }
            Step::Remove(key) => self.remove_interface(key),
            Step::RemovePort(name) => self.remove_port(name),
            Step::AddPort(name, port, interfaces) => self.open_port(name, port, interfaces),
            Step::Add(Wanted::Ipoib(ipoib)) => self.make_ipoib(ipoib),
            Step::Add(Wanted::Vnic(vnic)) => self.make_vnic_of(self.port_at(&vnic.port)?, vnic),
            Step::Port(name, change) => match change {
                PortChange::BusyPoll(busy_poll) => self.set_busy_poll(name, *busy_poll),
                PortChange::Peers(peers) => self.set_peers(name, peers),
                PortChange::Pkeys(pkeys) => self.set_configured_pkeys(name, pkeys.as_deref()),
                PortChange::Management(settings) => {
                    self.set_management(name, settings, self.port_at(name)?)
                }
            },
            Step::Interface(key, change) => self.change(key, change),
        }
    }

    fn change(&mut self, key: &InterfaceKey, change: &Change) -> Outcome {
        match change {
            Change::Mtu(mtu) => match self.configured(key)?.1 {
                Payload::Ip(_) => self.set_configured_mtu(key, *mtu),
                Payload::Ethernet(_) => self.set_configured_vnic_mtu(key, *mtu),
            },
            Change::Up(up) => self.set_up(key, *up),
            Change::Persist(persist) => self.set_persist(key, *persist),
            Change::Mode(mode, mtu) => self.set_configured_mode(key, *mode, *mtu),
            Change::Dhcp(dhcp) => {
                let (interface, ip) = self.configured_ip(key)?;
                let id = interface.id;
                ip.spec.dhcp = *dhcp;
                self.update_lanes(id);
                Ok(format!("{key}: dhcp {dhcp}"))
            }
            Change::Reflect(reflect) => {
                let (interface, ip) = self.configured_ip(key)?;
                let id = interface.id;
                ip.spec.reflect = *reflect;
                self.update_lanes(id);
                Ok(format!("{key}: reflect {reflect}"))
            }
            Change::VlanPkey(vlan_pkey) => {
                let (_, ip) = self.configured_ip(key)?;
                ip.spec.vlan_pkey = *vlan_pkey;
                self.tend_vlans();
                Ok(format!("{key}: vlan_pkey {vlan_pkey}"))
            }
            Change::Learning(learning) => self.set_vnic_learning(key, *learning),
            Change::Switch(switch) => self.set_vnic_switch(key, switch),
        }
    }

    fn port_at(&self, name: &PortName) -> Result<PortId, String> {
        self.ports
            .named(name)
            .ok_or_else(|| format!("{name}: there is no port on it"))
    }

    fn remove_port(&mut self, name: &PortName) -> Outcome {
        let at = self.port_at(name)?;
        self.forget_all_on(at);
        self.streams.managers.port_closed(name);
        if let Some(port) = self.ports.remove(at) {
            port.stop();
        }
        Ok(format!("{name}: port closed"))
    }

    fn open_port(&mut self, name: &PortName, port: &PortConfig, interfaces: &[Wanted]) -> Outcome {
        let (mut devices, mut vnics) = (Vec::new(), Vec::new());
        for wanted in interfaces {
            match wanted {
                Wanted::Ipoib(ipoib) => devices.push(ipoib),
                Wanted::Vnic(vnic) => vnics.push(vnic),
            }
        }
        let mut spec = run::port_spec(name, port, (&devices, &vnics), None);
        spec.fabric.set_gid_wait(GID_WAIT);
        // They are made one by one, so that one that fails does not fail them all.
        spec.devices.clear();
        spec.vnics.clear();
        self.add_port(spec).map_err(|e| format!("{name}: {e}"))?;
        Ok(format!("{name}: port opened"))
    }

    fn make_ipoib(&mut self, device: &IpoibConfig) -> Outcome {
        let name = &device.key();
        let at = self.port_at(&device.port)?;
        if let Some(done) = self.made_by_hand(device) {
            return done;
        }
        let failed = |e: &dyn std::fmt::Display| format!("{name}: {e}");
        self.add_device(at, device).map_err(|e| failed(&e))?;
        let made = self.configured_ip(name)?.0.queues.len();
        Ok(if made < device.queue_count() {
            format!(
                "{name}: created with {} of {} queues, as many as its port has threads; \
                 restart ibtapd for more",
                made,
                device.queue_count()
            )
        } else {
            format!("{name}: created")
        })
    }

    /// What is configured now may have been made by hand before. It stays as it is.
    fn made_by_hand(&mut self, device: &IpoibConfig) -> Option<Outcome> {
        let name = &device.key();
        let parent = device.parent.clone();
        let (_, made) = self.configured_ip(name).ok()?;
        let is_it = made.spec.parent == parent && made.spec.pkey == device.pkey;
        Some(match is_it {
            true => Ok(format!("{name}: was there already, and is configured now")),
            false => Err(format!(
                "{name}: another interface of that name was made by hand; remove that first"
            )),
        })
    }

    fn set_configured_pkeys(&mut self, name: &PortName, pkeys: Option<&[PKey]>) -> Outcome {
        let request = PkeysRequest {
            port: Some(name.to_string()),
            pkeys: Some(pkeys.unwrap_or_default().to_vec()),
        };
        self.pkeys(&request).map_err(|e| format!("{name}: {e}"))?;
        Ok(match pkeys {
            Some(pkeys) => format!("{name}: pkeys, {} of them", pkeys.len()),
            None => format!("{name}: pkeys as the interfaces ask for them"),
        })
    }

    fn set_busy_poll(&mut self, name: &PortName, busy_poll: BusyPoll) -> Outcome {
        let at = self.port_at(name)?;
        self.ports[at].tell(|| Command::SetBusyPoll(busy_poll.duration()));
        Ok(format!("{name}: busy_poll {busy_poll}"))
    }

    fn set_peers(&mut self, name: &PortName, peers: &[IpAddr]) -> Outcome {
        let at = self.port_at(name)?;
        let changed = self.ports[at].port.set_peers(peers.to_vec());
        changed.map_err(|e| format!("{name}: {e}"))?;
        Ok(format!("{name}: peers, {} of them", peers.len()))
    }

    fn set_configured_mtu(&mut self, name: &InterfaceKey, mtu: Option<u32>) -> Outcome {
        let (interface, ip) = self.configured_ip(name)?;
        let (id, mut spec) = (interface.id, ip.spec.clone());
        spec.mtu = mtu;
        let failed = |e: &dyn std::fmt::Display| format!("{name}: {e}");
        let bytes = ip.limits.wanted(&spec, ip.mode);
        let bytes = bytes.map_err(|e| failed(&e))?;
        self.set_mtu(id, bytes)
            .map_err(|e| failed(&format_args!("cannot set the MTU {bytes}: {e}")))?;
        let (_, ip) = self.configured_ip(name)?;
        ip.spec.mtu = mtu;
        Ok(format!("{name}: mtu {bytes}"))
    }

    fn set_configured_mode(
        &mut self,
        name: &InterfaceKey,
        mode: Mode,
        mtu: Option<u32>,
    ) -> Outcome {
        let (interface, ip) = self.configured_ip(name)?;
        let (id, mut spec) = (interface.id, ip.spec.clone());
        (spec.mode, spec.mtu) = (mode, mtu);
        let failed = |e: &dyn std::fmt::Display| format!("{name}: {e}");
        // Else an MTU that the mode does not have would be noticed halfway.
        let possible = ip.limits.wanted(&spec, mode);
        possible.map_err(|e| failed(&e))?;
        let mtu_differs = ip.spec.mtu != mtu;
        self.change_mode(id, mode, &spec).map_err(|e| failed(&e))?;
        let (_, ip) = self.configured_ip(name)?;
        ip.spec.mode = mode;
        if mtu_differs {
            self.set_configured_mtu(name, mtu)?;
        }
        let (interface, _) = self.configured_ip(name)?;
        Ok(format!("{name}: mode {mode}, mtu {}", interface.mtu))
    }
}
