//! Managers that are clients of the control socket.

use control::StreamId;
use control::api::{ApiError, ManageRequest, Reply, SendManagementRequest};
use vnic::agent::Destination;
use vnic::directory::NodeAddress;
use vnic::mad::Mad;

use crate::interfaces::management::messages::{process_management, send_mad};
use crate::interfaces::management::sync::sync_agent;
use crate::interfaces::management::{close_unused_management, open_management};
use crate::interfaces::{Context, Interfaces};
use crate::port::{PortId, Ports};

/// A client starts to manage over a port.
///
/// # Errors
/// [`ApiError::BadArgument`], [`ApiError::Refused`].
pub fn manage(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    stream: StreamId,
    request: &ManageRequest,
) -> Result<(), ApiError> {
    let at = port_to_manage(&cx.ports, request.port.as_deref())?;
    open_management(interfaces, cx, at).map_err(|message| ApiError::Refused { message })?;
    sync_agent(interfaces, cx, at);
    let port = &cx.ports[at];
    if let Some(management) = interfaces.managements.get(&at) {
        let place = management.place(&*port.port);
        cx.managers.add(stream, port.name.clone(), place);
    }
    Ok(())
}

/// A client that manages sends a message.
///
/// # Errors
/// [`ApiError::BadArgument`], [`ApiError::Refused`].
pub fn send_management(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    request: &SendManagementRequest,
) -> Result<Reply, ApiError> {
    let at = port_to_manage(&cx.ports, request.port.as_deref())?;
    let bad = |message: String| ApiError::BadArgument { message };
    let to = match (request.gid, request.qpn) {
        (None, None) => Destination::Group,
        (Some(gid), Some(qpn)) if !gid.is_multicast() => {
            Destination::Node(NodeAddress { gid, qpn })
        }
        (Some(gid), Some(_)) => return Err(bad(format!("{gid} is the GID of a group"))),
        _ => return Err(bad("give both gid and qpn, or none of them".into())),
    };
    Mad::parse(&request.mad.0).map_err(|e| bad(e.to_string()))?;
    open_management(interfaces, cx, at).map_err(|message| ApiError::Refused { message })?;
    send_mad(interfaces, cx, at, to, request.mad.0.clone());
    process_management(interfaces, cx, at);
    // Without a manager, no one waits for an answer.
    close_unused_management(interfaces, cx, at);
    Ok(Reply::SendManagement {})
}

/// The named port, or the only one.
fn port_to_manage(ports: &Ports, name: Option<&str>) -> Result<PortId, ApiError> {
    match (name, ports.only()) {
        (Some(name), _) => ports.called(name),
        (None, Some(only)) => Ok(only),
        (None, None) => {
            let names = ports.values().map(|p| p.port.attributes().name);
            let names = names.collect::<Vec<_>>().join(", ");
            Err(ApiError::BadArgument {
                message: format!("ibtapd has several ports; name one: {names}"),
            })
        }
    }
}
