//! Managers that are clients of the control socket.

use control::StreamId;
use control::api::{ApiError, ManageRequest, Reply, SendManagementRequest};
use vnic::agent::Destination;
use vnic::directory::NodeAddress;
use vnic::mad::Mad;

use crate::daemon::Daemon;
use crate::port::PortId;

impl Daemon {
    /// A client wants to manage over a port.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub(crate) fn manage(
        &mut self,
        stream: StreamId,
        request: &ManageRequest,
    ) -> Result<(), ApiError> {
        let at = self.port_to_manage(request.port.as_deref())?;
        self.open_management(at)
            .map_err(|message| ApiError::Refused { message })?;
        self.sync_agent(at);
        let port = &self.ports[at];
        if let Some(management) = &port.management {
            let place = management.place(&*port.port);
            self.streams.managers.add(stream, port.name.clone(), place);
        }
        Ok(())
    }

    /// A client that manages sends something.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`], [`ApiError::Refused`].
    pub(crate) fn send_management(
        &mut self,
        request: &SendManagementRequest,
    ) -> Result<Reply, ApiError> {
        let at = self.port_to_manage(request.port.as_deref())?;
        let bad = |message: String| ApiError::BadArgument { message };
        let to = match (request.gid, request.qpn) {
            (None, None) => Destination::Group,
            (Some(gid), Some(qpn)) if !gid.is_multicast() => {
                Destination::Node(NodeAddress { gid, qpn })
            }
            (Some(gid), Some(_)) => return Err(bad(format!("{gid} is the GID of a group"))),
            _ => return Err(bad("give both gid and qpn, or neither".into())),
        };
        Mad::parse(&request.mad.0).map_err(|e| bad(e.to_string()))?;
        self.open_management(at)
            .map_err(|message| ApiError::Refused { message })?;
        self.send_mad(at, to, request.mad.0.clone());
        self.tend_management(at);
        // Where nobody would hear an answer.
        self.close_unused_management(at);
        Ok(Reply::SendManagement {})
    }

    /// The port that is named, or the only one.
    fn port_to_manage(&self, name: Option<&str>) -> Result<PortId, ApiError> {
        match (name, self.ports.only()) {
            (Some(name), _) => self.port_called(name),
            (None, Some(only)) => Ok(only),
            (None, None) => {
                let names = self.ports.values().map(|p| p.port.attributes().name);
                let names = names.collect::<Vec<_>>().join(", ");
                Err(ApiError::BadArgument {
                    message: format!("which port? ibtapd has {names}; name one"),
                })
            }
        }
    }
}
