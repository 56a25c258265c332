//! The management of VNICs: what comes to a port's endpoint of it goes to the port's agent, which has the
//! VNICs here do what their manager wants, and to managers that are clients of the control socket.

mod clients;
mod host;
mod messages;
mod sync;

use control::StreamId;
use fabric::PKey;

use crate::daemon::Daemon;
use crate::ethernet::Management;
use crate::port::PortId;

/// The endpoint and the agent.
impl Daemon {
    /// Has a port's management be there, and know of its VNICs.
    pub(crate) fn manage_port(&mut self, at: PortId) {
        if let Err(why) = self.open_management(at) {
            log::warn!(
                "{}: VNIC management: {why}",
                self.ports[at].port.attributes().name
            );
        }
        self.sync_agent(at);
    }

    fn open_management(&mut self, at: PortId) -> Result<(), String> {
        if self.ports[at].management.is_some() {
            return Ok(());
        }
        // An automatic table holds its partition, too.
        self.follow_pkeys(at, Some(PKey::DEFAULT))?;
        let id = self.interfaces.new_link_id();
        let port = &mut self.ports[at];
        let threads = port.mailboxes();
        let settings = &port.management_settings;
        match Management::open(id, at.number(), &mut *port.port, &threads, settings) {
            Ok(management) => {
                port.management = Some(management);
                Ok(())
            }
            Err(e) => {
                self.unfollow_pkeys(at);
                Err(e.to_string())
            }
        }
    }

    /// A VNIC of a port is gone: with the last that is managed goes the management.
    pub(in crate::daemon) fn vnic_gone(&mut self, at: PortId) {
        self.sync_agent(at);
        self.close_unused_management(at);
    }

    /// A client is gone, which perhaps managed: with the last one goes the management of a port without
    /// managed VNICs.
    pub(crate) fn manager_gone(&mut self, stream: StreamId) {
        let Some(port) = self.streams.managers.remove(stream) else {
            return;
        };
        if let Some(at) = self.ports.named(&port) {
            self.close_unused_management(at);
        }
    }

    /// Whether somebody needs the management of a port.
    fn is_management_used(&self, at: PortId) -> bool {
        let mut all = self.interfaces.ethernets();
        let port = &self.ports[at];
        port.management_settings.vnic_create
            || self.streams.managers.are_on(&port.name)
            || all.any(|(i, ethernet)| i.port == at && ethernet.spec.switch.is_none())
    }

    /// Opens the management of a port that could not be opened before.
    pub(in crate::daemon) fn open_missing_management(&mut self, at: PortId) {
        if self.ports[at].management.is_none() && self.is_management_used(at) {
            self.manage_port(at);
        }
    }

    /// Ends the management of a port that nobody uses.
    pub(crate) fn close_unused_management(&mut self, at: PortId) {
        let is_used = self.is_management_used(at);
        let port = &mut self.ports[at];
        if !is_used && let Some(management) = port.management.take() {
            management.close(port);
            self.unfollow_pkeys(at);
        }
    }
}
