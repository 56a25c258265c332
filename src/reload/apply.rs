//! Making one change. What was changed is a sentence, and so is why something was not.

use std::net::IpAddr;
use std::time::Duration;

use control::api::{Mode, PkeysRequest};
use control::config::{
    BusyPoll, Config, InterfaceKey, IpoibConfig, PortConfig, PortName, VnicConfig,
};
use control::logging;
use fabric::PKey;

use super::plan::Step;
use crate::daemon::Daemon;
use crate::datapath::Command;
use crate::port::PortId;
use crate::run;

/// How long a port that is new may take to have a usable GID. Nothing else is answered
/// meanwhile, so it is shorter than at the start; packets go on.
const GID_WAIT: Duration = Duration::from_secs(2);

/// What was done, or why not.
pub(super) type Outcome = Result<String, String>;

impl Daemon {
    /// Makes one change, and notes it in the configuration that is in force.
    pub(super) fn apply(&mut self, step: &Step, running: &mut Config) -> Outcome {
        match step {
            Step::LogLevel(level) => {
                logging::set_level(*level);
                running.log_level = *level;
                Ok(format!("log_level {level}"))
            }
            Step::RemoveDevice(name) => {
                running.ipoib.retain(|d| d.key() != *name);
                self.remove_interface(name)
            }
            Step::RemovePort(name) => {
                running.ports.remove(name);
                self.remove_port(name)
            }
            Step::AddPort(name, port, devices, vnics) => {
                let done = self.open_port(name, port, devices, vnics)?;
                running.ports.insert(name.clone(), port.clone());
                Ok(done)
            }
            Step::AddDevice(device) => {
                let done = self.make_device(device)?;
                running.ipoib.push(device.clone());
                Ok(done)
            }
            Step::RemoveVnic(key) => {
                running.vnics.retain(|v| v.key() != *key);
                self.remove_interface(key)
            }
            Step::AddVnic(vnic) => {
                let done = self.make_vnic_of(self.port_at(&vnic.port)?, vnic)?;
                running.vnics.push(vnic.clone());
                Ok(done)
            }
            Step::Vnic(key, change) => self.apply_to_vnic(key, change, running),
            Step::Management(name, settings) => {
                let done = self.set_management(name, settings, self.port_at(name)?)?;
                note_port(running, name, |p| {
                    p.managers.clone_from(&settings.managers);
                    p.vnic_create = settings.vnic_create;
                });
                Ok(done)
            }
            Step::BusyPoll(name, busy_poll) => {
                let done = self.set_busy_poll(name, *busy_poll)?;
                note_port(running, name, |p| p.busy_poll = *busy_poll);
                Ok(done)
            }
            Step::Peers(name, peers) => {
                let done = self.set_peers(name, peers)?;
                note_port(running, name, |p| p.peers.clone_from(peers));
                Ok(done)
            }
            Step::Pkeys(name, pkeys) => {
                let done = self.set_configured_pkeys(name, pkeys.as_deref())?;
                note_port(running, name, |p| p.pkeys.clone_from(pkeys));
                Ok(done)
            }
            Step::Mode(name, mode, mtu) => {
                let done = self.set_configured_mode(name, *mode, *mtu)?;
                note_device(running, name, |d| (d.mode, d.mtu) = (*mode, *mtu));
                Ok(done)
            }
            Step::Mtu(name, mtu) => {
                let done = self.set_configured_mtu(name, *mtu)?;
                note_device(running, name, |d| d.mtu = *mtu);
                Ok(done)
            }
            Step::Up(name, up) => {
                let done = self.set_up(name, *up)?;
                note_device(running, name, |d| d.up = *up);
                Ok(done)
            }
            Step::Persist(name, persist) => {
                let done = self.set_persist(name, *persist)?;
                note_device(running, name, |d| d.persist = *persist);
                Ok(done)
            }
            Step::Dhcp(name, dhcp) => {
                let (interface, ip) = self.configured_ip(name)?;
                let (id, at) = (interface.id, interface.port);
                ip.spec.dhcp = *dhcp;
                self.ports[at].tell(|| Command::SetDhcp(id, (*dhcp).into()));
                note_device(running, name, |d| d.dhcp = *dhcp);
                Ok(format!("{name}: dhcp {dhcp}"))
            }
            Step::Reflect(name, reflect) => {
                let (interface, ip) = self.configured_ip(name)?;
                let (id, at) = (interface.id, interface.port);
                ip.spec.reflect = *reflect;
                self.ports[at].tell(|| Command::SetReflect(id, *reflect));
                note_device(running, name, |d| d.reflect = *reflect);
                Ok(format!("{name}: reflect {reflect}"))
            }
            Step::VlanPkey(name, vlan_pkey) => {
                let (_, ip) = self.configured_ip(name)?;
                ip.spec.vlan_pkey = *vlan_pkey;
                self.tend_vlans();
                note_device(running, name, |d| d.vlan_pkey = *vlan_pkey);
                Ok(format!("{name}: vlan_pkey {vlan_pkey}"))
            }
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

    fn open_port(
        &mut self,
        name: &PortName,
        port: &PortConfig,
        devices: &[IpoibConfig],
        vnics: &[VnicConfig],
    ) -> Outcome {
        let devices: Vec<&IpoibConfig> = devices.iter().collect();
        let vnics: Vec<&VnicConfig> = vnics.iter().collect();
        let mut spec = run::port_spec(name, port, (&devices, &vnics), None);
        spec.fabric.set_gid_wait(GID_WAIT);
        // They are made one by one, so that one that fails does not fail them all.
        spec.devices.clear();
        spec.vnics.clear();
        self.add_port(spec).map_err(|e| format!("{name}: {e}"))?;
        Ok(format!("{name}: port opened"))
    }

    fn make_device(&mut self, device: &IpoibConfig) -> Outcome {
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
        let possible = ip.limits.wanted(&spec, mode.into());
        possible.map_err(|e| failed(&e))?;
        let mtu_differs = ip.spec.mtu != mtu;
        self.change_mode(id, mode.into(), &spec)
            .map_err(|e| failed(&e))?;
        let (_, ip) = self.configured_ip(name)?;
        ip.spec.mode = mode;
        if mtu_differs {
            self.set_configured_mtu(name, mtu)?;
        }
        let (interface, _) = self.configured_ip(name)?;
        Ok(format!("{name}: mode {mode}, mtu {}", interface.mtu))
    }
}

fn note_device(running: &mut Config, name: &InterfaceKey, change: impl FnOnce(&mut IpoibConfig)) {
    if let Some(device) = running.ipoib.iter_mut().find(|d| d.key() == *name) {
        change(device);
    }
}

fn note_port(running: &mut Config, name: &PortName, change: impl FnOnce(&mut PortConfig)) {
    if let Some(port) = running.ports.get_mut(name) {
        change(port);
    }
}
