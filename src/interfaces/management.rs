//! The management of VNICs. Messages for a port's management endpoint go to the port's agent, which
//! configures the VNICs, and to managers that are clients of the control socket.

mod clients;
mod host;
mod messages;
mod sync;

pub use clients::{manage, send_management};
pub use messages::{next_tick, received, tick};
pub use sync::{pkeys_changed, sync_agent, sync_agent_of};

use control::StreamId;
use fabric::PKey;

use crate::ethernet::Management;
use crate::interfaces::{Context, Interfaces};
use crate::port::PortId;

/// Opens a port's management, if it is not open, and updates the agent's list of VNICs.
pub fn manage_port(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    if let Err(why) = open_management(interfaces, cx, at) {
        log::warn!(
            "{}: VNIC management: {why}",
            cx.ports[at].port.attributes().name
        );
    }
    sync_agent(interfaces, cx, at);
}

fn open_management(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    at: PortId,
) -> Result<(), String> {
    if interfaces.managements.contains_key(&at) {
        return Ok(());
    }
    // An automatic P_Key table needs its partition, too.
    interfaces.follow_pkeys(cx, at, Some(PKey::DEFAULT))?;
    let id = interfaces.new_link_id();
    let port = &mut cx.ports[at];
    let threads = port.mailboxes();
    let settings = &port.management_settings;
    match Management::open(id, port.number, &mut *port.port, &threads, settings) {
        Ok(management) => {
            interfaces.managements.insert(at, management);
            Ok(())
        }
        Err(e) => {
            interfaces.unfollow_pkeys(cx, at);
            Err(e.to_string())
        }
    }
}

/// A VNIC of a port is gone. Management ends with the last managed VNIC.
pub fn vnic_gone(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    sync_agent(interfaces, cx, at);
    close_unused_management(interfaces, cx, at);
}

/// A client has disconnected. If it was the last manager on a port without managed VNICs, management of the
/// port ends.
pub fn manager_gone(interfaces: &mut Interfaces, cx: &mut Context, stream: StreamId) {
    let Some(port) = cx.managers.remove(stream) else {
        return;
    };
    if let Some(at) = cx.ports.named(&port) {
        close_unused_management(interfaces, cx, at);
    }
}

/// Whether the management of a port is in use.
fn is_management_used(interfaces: &Interfaces, cx: &Context, at: PortId) -> bool {
    let mut all = interfaces.ethernets();
    let port = &cx.ports[at];
    port.management_settings.vnic_create
        || cx.managers.are_on(&port.name)
        || all.any(|(i, ethernet)| i.port == at && ethernet.spec.switch.is_none())
}

/// Opens the management of a port, if an earlier try failed.
pub fn open_missing_management(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    if !interfaces.managements.contains_key(&at) && is_management_used(interfaces, cx, at) {
        manage_port(interfaces, cx, at);
    }
}

/// Ends the management of a port that is not in use.
pub fn close_unused_management(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    let is_used = is_management_used(interfaces, cx, at);
    if !is_used && let Some(management) = interfaces.managements.remove(&at) {
        management.close(&mut cx.ports[at]);
        interfaces.unfollow_pkeys(cx, at);
    }
}
