//! Dispatches requests of the control socket.

use control::api::{ApiError, Happening, Reloaded, Reply, Request, Selection};
use control::{Handler, StreamId, Streamed};

use super::{Daemon, notify};
use crate::interface::Subject;
use crate::interfaces::{children, management};
use crate::monitor::{Filter, Ping};
use crate::reload::reload;
use crate::status::{set_level, version};

impl Handler for Daemon {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        match request {
            Request::Version => Ok(version()),
            Request::Show(which) => self.view().show(&which),
            Request::Stats(which) => self.view().stats(&which),
            Request::Neighbours(which) => self.view().neighbours(&which.interface),
            Request::Guests(which) => self.view().guests(&which.interface),
            Request::Groups(which) => self.view().groups(&which.interface),
            Request::Paths(which) => self.view().paths(&which.interface),
            Request::Connections(which) => self.view().connections(&which),
            Request::Mode(request) => self.interfaces.mode(&mut self.cx, &request),
            Request::ChildAdd(request) => {
                children::child_add(&mut self.interfaces, &mut self.cx, &request)
            }
            Request::ChildDel(request) => {
                children::child_del(&mut self.interfaces, &mut self.cx, &request)
            }
            Request::Children(which) => self.view().children(&which),
            Request::Pkeys(request) => self.interfaces.pkeys(&mut self.cx, &request),
            Request::Mtu(request) => self.interfaces.mtu(&mut self.cx, &request),
            Request::Umcast(request) => self.interfaces.umcast(&mut self.cx, &request),
            Request::Moderation(request) => self.interfaces.moderation(&mut self.cx, &request),
            Request::Resources => self.view().resources(),
            Request::Ports => self.view().ports(),
            Request::Metrics => self.metrics().map(|text| Reply::Metrics { text }),
            Request::LogLevel(level) => Ok(set_level(level.level)),
            Request::Reload => self.reload().map(Reply::Reload),
            Request::Vnics(which) => self.view().show_vnics(&which),
            Request::VnicStats(which) => self.view().vnic_stats(&which),
            Request::VnicMacs(which) => self.view().vnic_macs(&which.interface),
            Request::VnicMembers(which) => self.view().vnic_members(&which.interface),
            Request::SendManagement(request) => {
                management::send_management(&mut self.interfaces, &mut self.cx, &request)
            }
            Request::Monitor(_) | Request::Ping(_) | Request::Manage(_) => Err(ApiError::Refused {
                message: "this request needs a stream".into(),
            }),
        }
    }

    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError> {
        match request {
            Request::Monitor(which) => self.monitor(stream, &which),
            Request::Ping(request) => {
                let target = self
                    .interfaces
                    .named_ip(self.cx.host.home, &request.interface)?;
                let ping = Ping::new(&request, target, &self.cx.ports)?;
                self.streams.ping(stream, ping, &self.cx.ports);
                Ok(())
            }
            Request::Manage(request) => {
                management::manage(&mut self.interfaces, &mut self.cx, stream, &request)
            }
            _ => Err(ApiError::Refused {
                message: "this request has no stream".into(),
            }),
        }
    }

    fn next(&mut self, stream: StreamId) -> Streamed {
        self.end_pings();
        let found = self.streams.next(stream, &mut self.cx.events);
        found
            .or_else(|| self.cx.managers.next(stream))
            .unwrap_or(Streamed::Nothing)
    }

    fn close(&mut self, stream: StreamId) {
        self.streams.close(stream, &self.cx.ports);
        management::manager_gone(&mut self.interfaces, &mut self.cx, stream);
    }
}

impl Daemon {
    /// Reads the configuration again and applies the changes. The log, monitoring clients and the service
    /// manager are notified.
    ///
    /// # Errors
    /// [`ApiError::Refused`]: no file, or an invalid one. Nothing changes then.
    pub fn reload(&mut self) -> Result<Reloaded, ApiError> {
        let refused = |message| Err(ApiError::Refused { message });
        let Some(running) = &mut self.running else {
            return refused(
                "ibtapd was started without --config and has no file to reload; restart ibtapd \
                 with other options"
                    .to_owned(),
            );
        };
        let new = match running.source.read() {
            Ok(new) => new,
            Err(error) => return refused(error.to_string()),
        };
        notify::reloading();
        let watchdog = &mut self.watchdog;
        let reloaded = reload(
            &mut self.interfaces,
            &mut self.cx,
            &mut running.config,
            &new,
            |cx| watchdog.iter_mut().for_each(|w| w.turn(&cx.ports)),
        );
        self.streams.ports_changed(&self.cx.ports);
        notify::ready(&self.interfaces);
        for sentence in &reloaded.applied {
            log::info!("reloaded: {sentence}");
        }
        for sentence in &reloaded.refused {
            log::warn!("not reloaded: {sentence}");
        }
        if reloaded == Reloaded::default() {
            log::info!("reloaded: nothing has changed");
        }
        let what = Happening::Reloaded {
            applied: reloaded.applied.clone(),
            refused: reloaded.refused.clone(),
        };
        self.cx.events.push(Subject::Daemon, what);
        Ok(reloaded)
    }

    fn monitor(&mut self, stream: StreamId, which: &Selection) -> Result<(), ApiError> {
        self.interfaces.name_places();
        let filter = match &which.interface {
            None => None,
            Some(name) => {
                let (interface, _) = self.interfaces.named(self.cx.host.home, name)?;
                Some(Filter {
                    interface: interface.name.clone(),
                    netns: interface.netns.clone(),
                    port: self.cx.ports[interface.port].port.attributes().name,
                })
            }
        };
        self.streams
            .monitor(stream, filter, &self.cx.ports, &mut self.cx.events);
        Ok(())
    }
}
