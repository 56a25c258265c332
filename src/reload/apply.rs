//! Makes one change. A sentence describes the change or its refusal.

use std::net::IpAddr;
use std::time::Duration;

use control::api::{Mode, Moderation};
use control::config::plan::{Change, PortChange, Step, Wanted};
use control::config::{BusyPoll, Config, InterfaceKey, IpoibConfig, PortConfig, PortName};
use control::logging;
use fabric::PKey;
use proto::GidPrefix;

use super::Apply;
use crate::datapath::Command;
use crate::interfaces::vlans;
use crate::ip::pins;
use crate::port::{PortId, PortSpec};

/// How long a new port may take until it has a usable GID. The control thread waits, so this is shorter
/// than at the start; packets continue.
const GID_WAIT: Duration = Duration::from_secs(2);

/// The change that was made, or why it was refused.
pub(super) type Outcome = Result<String, String>;

impl Apply<'_> {
    /// Makes one change, and notes it in the configuration in force. Removed interfaces and ports leave
    /// that configuration even after an error.
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
                PortChange::Moderation(moderation) => self.set_moderation(name, *moderation),
                PortChange::Peers(peers) => self.set_peers(name, peers),
                PortChange::Pkeys(pkeys) => self.set_configured_pkeys(name, pkeys.as_deref()),
                PortChange::Allow(allow) => self.set_allow(name, allow.as_deref()),
                PortChange::Management(settings) => {
                    self.set_management(name, settings, self.port_at(name)?)
                }
            },
            Step::Interface(key, change) => self.change(key, change),
        }
    }

    fn change(&mut self, key: &InterfaceKey, change: &Change) -> Outcome {
        match change {
            Change::Mtu(mtu) => self.set_configured_mtu(key, *mtu),
            Change::Up(up) => self.set_up(key, *up),
            Change::Persist(persist) => self.set_persist(key, *persist),
            Change::Mode(mode, mtu) => self.set_configured_mode(key, *mode, *mtu),
            Change::Mss(mss) => {
                self.respecify(key, |spec| spec.mss = *mss)?;
                Ok(format!("{key}: mss {mss}, for new TCP connections"))
            }
            Change::Dhcp(dhcp) => {
                self.respecify(key, |spec| spec.dhcp = *dhcp)?;
                Ok(format!("{key}: dhcp {dhcp}"))
            }
            Change::Claims(claims) => {
                self.respecify(key, |spec| spec.claims = *claims)?;
                Ok(format!("{key}: claims {claims}"))
            }
            Change::RefuseRequests(refuse) => {
                self.respecify(key, |spec| spec.refuse_requests = *refuse)?;
                Ok(format!("{key}: refuse_requests {refuse}"))
            }
            Change::Inspect(inspect, neighbours) => {
                let (_, ip) = self.configured_ip(key)?;
                ip.pins = pins(neighbours);
                self.respecify(key, |spec| {
                    spec.inspect = *inspect;
                    spec.neighbours.clone_from(neighbours);
                })?;
                Ok(format!(
                    "{key}: inspect {inspect}, {} neighbours",
                    neighbours.len()
                ))
            }
            Change::TrustChecksums(trust) => {
                self.respecify(key, |spec| spec.trust_checksums = *trust)?;
                Ok(format!("{key}: trust_checksums {trust}"))
            }
            Change::Reflect(reflect) => {
                self.respecify(key, |spec| spec.reflect = *reflect)?;
                Ok(format!("{key}: reflect {reflect}"))
            }
            Change::VlanPkey(vlan_pkey) => {
                let (_, ip) = self.configured_ip(key)?;
                ip.spec.vlan_pkey = *vlan_pkey;
                vlans::sync(self.interfaces, self.cx);
                Ok(format!("{key}: vlan_pkey {vlan_pkey}"))
            }
            Change::Learning(learning) => self.set_vnic_learning(key, *learning),
            Change::Switch(switch) => self.set_vnic_switch(key, switch),
        }
    }

    /// Changes the configuration of an IPoIB interface, and the settings of its lanes with it.
    fn respecify(
        &mut self,
        key: &InterfaceKey,
        change: impl FnOnce(&mut IpoibConfig),
    ) -> Result<(), String> {
        let (interface, ip) = self.configured_ip(key)?;
        change(&mut ip.spec);
        let id = interface.id;
        self.interfaces.update_lanes(&self.cx.ports, id);
        Ok(())
    }

    fn port_at(&self, name: &PortName) -> Result<PortId, String> {
        self.cx
            .ports
            .named(name)
            .ok_or_else(|| format!("{name}: no port in service"))
    }

    fn remove_port(&mut self, name: &PortName) -> Outcome {
        let at = self.port_at(name)?;
        self.interfaces.remove_port(self.cx, at);
        Ok(format!("{name}: port closed"))
    }

    fn open_port(&mut self, name: &PortName, port: &PortConfig, interfaces: &[Wanted]) -> Outcome {
        let (mut ipoibs, mut vnics) = (Vec::new(), Vec::new());
        for wanted in interfaces {
            match wanted {
                Wanted::Ipoib(ipoib) => ipoibs.push(ipoib),
                Wanted::Vnic(vnic) => vnics.push(vnic),
            }
        }
        // Later steps create the interfaces one by one, so that an error of one does not affect the others.
        let spec = PortSpec::of(name, port, (&ipoibs, &vnics), GID_WAIT, None);
        self.interfaces
            .add_port(self.cx, spec)
            .map_err(|e| format!("{name}: {e}"))?;
        Ok(format!("{name}: port opened"))
    }

    fn make_ipoib(&mut self, ipoib: &IpoibConfig) -> Outcome {
        let name = &ipoib.key();
        let at = self.port_at(&ipoib.port)?;
        if self.configured_ip(name).is_ok() {
            return Err(format!(
                "{name}: an interface of that name exists with another parent or P_Key; remove it first"
            ));
        }
        self.interfaces
            .add_ipoib(self.cx, at, ipoib)
            .map_err(|e| format!("{name}: {e}"))?;
        let made = self.configured_ip(name)?.0.queues.len();
        Ok(created(name, made, ipoib.queue_count()))
    }

    fn set_configured_pkeys(&mut self, name: &PortName, pkeys: Option<&[PKey]>) -> Outcome {
        let at = self.port_at(name)?;
        let done = self
            .interfaces
            .give_pkeys(self.cx, at, pkeys.unwrap_or_default());
        done.map_err(|e| format!("{name}: {e}"))?;
        Ok(match pkeys {
            Some(pkeys) => format!("{name}: {} pkeys", pkeys.len()),
            None => format!("{name}: pkeys automatic"),
        })
    }

    fn set_busy_poll(&mut self, name: &PortName, busy_poll: BusyPoll) -> Outcome {
        let at = self.port_at(name)?;
        self.cx.ports[at].send(|| Command::SetBusyPoll(busy_poll.duration()));
        Ok(format!("{name}: busy_poll {busy_poll}"))
    }

    fn set_moderation(&mut self, name: &PortName, moderation: Moderation) -> Outcome {
        let at = self.port_at(name)?;
        self.cx.ports[at].set_moderation(moderation);
        let Moderation {
            rx_usecs,
            rx_frames,
        } = moderation;
        Ok(format!(
            "{name}: rx_usecs {rx_usecs}, rx_frames {rx_frames}"
        ))
    }

    fn set_allow(&mut self, name: &PortName, allow: Option<&[GidPrefix]>) -> Outcome {
        let at = self.port_at(name)?;
        let port = &mut self.cx.ports[at];
        port.allow = allow.map(<[GidPrefix]>::to_vec);
        self.interfaces.send_allowed(self.cx, at);
        Ok(match allow {
            Some(allow) => format!("{name}: entries of allow: {}", allow.len()),
            None => format!("{name}: allow has no entries, all hosts may send"),
        })
    }

    fn set_peers(&mut self, name: &PortName, peers: &[IpAddr]) -> Outcome {
        let at = self.port_at(name)?;
        let changed = self.cx.ports[at].port.set_peers(peers.to_vec());
        changed.map_err(|e| format!("{name}: {e}"))?;
        Ok(format!("{name}: {} peers", peers.len()))
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
        // Checked first: after the change of mode, an error of the MTU would leave half of the change.
        let possible = ip.limits.wanted(&spec, mode);
        possible.map_err(|e| failed(&e))?;
        let mtu_differs = ip.spec.mtu != mtu;
        self.interfaces
            .change_mode(self.cx, id, mode, &spec)
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

/// The outcome of a new interface that has `made` queues; the configuration asks for `wanted`.
pub(super) fn created(key: &InterfaceKey, made: usize, wanted: usize) -> String {
    match made < wanted {
        true => format!(
            "{key}: created with {made} of {wanted} queues, one for each data thread of the port; restart \
             ibtapd for more"
        ),
        false => format!("{key}: created"),
    }
}
