//! Requests of the control socket: which part of the daemon answers each.

use control::api::{ApiError, Reply, Request, Selection};
use control::{Handler, StreamId, Streamed};

use super::Daemon;
use crate::monitor::{Filter, Ping};
use crate::status::{set_level, version};

impl Handler for Daemon {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        match request {
            Request::Version => Ok(version()),
            Request::Show(which) => self.show(&which),
            Request::Stats(which) => self.stats(&which),
            Request::Neighbours(which) => self.neighbours(&which.interface),
            Request::Guests(which) => self.guests(&which.interface),
            Request::Groups(which) => self.groups(&which.interface),
            Request::Paths(which) => self.paths(&which.interface),
            Request::Connections(which) => self.connections(&which),
            Request::Mode(request) => self.mode(&request),
            Request::ChildAdd(request) => self.child_add(&request),
            Request::ChildDel(request) => self.child_del(&request),
            Request::Children(which) => self.children(&which),
            Request::Pkeys(request) => self.pkeys(&request),
            Request::Mtu(request) => self.mtu(&request),
            Request::Umcast(request) => self.umcast(&request),
            Request::Moderation(request) => self.moderation(&request),
            Request::Resources => Ok(self.resources()),
            Request::LogLevel(level) => Ok(set_level(level.level)),
            Request::Reload => self.reload().map(Reply::Reload),
            Request::Vnics(which) => self.show_vnics(&which),
            Request::VnicStats(which) => self.vnic_stats(&which),
            Request::VnicMacs(which) => self.vnic_macs(&which.interface),
            Request::VnicMembers(which) => self.vnic_members(&which.interface),
            Request::SendManagement(request) => self.send_management(&request),
            Request::Monitor(_) | Request::Ping(_) | Request::Manage(_) => Err(ApiError::Refused {
                message: "this request is answered by a stream only".into(),
            }),
        }
    }

    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError> {
        match request {
            Request::Monitor(which) => self.monitor(stream, &which),
            Request::Ping(request) => {
                let target = self.named_ip(&request.interface)?;
                let ping = Ping::new(&request, target, &self.ports)?;
                self.streams.ping(stream, ping, &self.ports);
                Ok(())
            }
            Request::Manage(request) => self.manage(stream, &request),
            _ => Err(ApiError::Refused {
                message: "this request is not answered by a stream".into(),
            }),
        }
    }

    fn next(&mut self, stream: StreamId) -> Streamed {
        let found = self.streams.next(stream, &mut self.events);
        found.unwrap_or(Streamed::Nothing)
    }

    fn close(&mut self, stream: StreamId) {
        self.streams.close(stream, &self.ports);
        self.manager_gone(stream);
    }
}

impl Daemon {
    fn monitor(&mut self, stream: StreamId, which: &Selection) -> Result<(), ApiError> {
        self.name_places();
        let filter = match &which.interface {
            None => None,
            Some(name) => {
                let (interface, _) = self.named(name)?;
                Some(Filter {
                    interface: interface.name.clone(),
                    netns: interface.netns.clone(),
                    port: self.ports[interface.port].port.attributes().name,
                })
            }
        };
        self.streams
            .monitor(stream, filter, &self.ports, &mut self.events);
        Ok(())
    }
}
