//! Where interfaces are: they may move to other network namespaces, and work on there.
//!
//! The daemon's sockets stay in its own namespace. It visits another one for as long as a question
//! takes, through the interface that it serves there, and keeps nothing of it: a socket or a
//! descriptor would keep the namespace alive after `ip netns del`.

mod coalesce;
mod left;
mod moves;
mod names;

use std::io;

use control::config::IpoibConfig;
use netdev::netns::{self, Namespace};
use rtnl::Requests;

use super::Daemon;
use crate::datapath::DeviceId;
use crate::device::{Device, DeviceError};
pub(crate) use left::Left;
pub(in crate::daemon) use moves::{Found, locate};
pub(crate) use names::Names;

/// The network namespace of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// What the daemon's own namespace calls it (RTM_NEWNSID); `None`: it is the daemon's own.
    pub nsid: Option<i32>,
}

impl Place {
    /// The daemon's own namespace.
    pub const HOME: Place = Place { nsid: None };

    /// A namespace that is no more; the kernel gives no such number.
    const NOWHERE: Place = Place { nsid: Some(-1) };
}

impl Daemon {
    /// Asks the kernel in the namespace where a device's interface is; everything about an
    /// interface that goes through rtnetlink, ethtool or `/proc` goes through here. `None` if there
    /// is no such device, or its interface cannot be reached: it is gone or has moved on, and that
    /// will be told, or the daemon may not go there.
    pub(crate) fn inside<T>(
        &mut self,
        id: DeviceId,
        ask: impl FnOnce(&mut Device, &mut Requests) -> T,
    ) -> Option<T> {
        let (_, device) = self.devices.get_mut(&id)?;
        if device.place == Place::HOME {
            return Some(ask(device, &mut self.netlink));
        }
        let there = device.tap.namespace().ok()?;
        if there.id().ok() != device.namespace {
            return None;
        }
        let answer = visit(&there, |netlink| ask(device, netlink));
        answer
            .inspect_err(|e| log::debug!("{}: its network namespace: {e}", device.name))
            .ok()
    }

    /// Asks the kernel in a namespace where interfaces of ours are. `None` if none is there, or it
    /// cannot be reached.
    pub(crate) fn at_place<T>(
        &mut self,
        place: Place,
        ask: impl FnOnce(&mut Requests) -> T,
    ) -> Option<T> {
        if place == Place::HOME {
            return Some(ask(&mut self.netlink));
        }
        // One of them may have moved on.
        let there = self
            .devices_at(place)
            .into_iter()
            .find_map(|id| self.namespace_of(id))?;
        visit(&there, ask).ok()
    }

    /// The devices whose interfaces are there.
    pub(crate) fn devices_at(&self, place: Place) -> Vec<DeviceId> {
        let there = self.devices.iter().filter(|(_, (_, d))| d.place == place);
        there.map(|(id, _)| *id).collect()
    }

    /// The namespace of a device's interface, if it is another one than the daemon's. It must not be
    /// kept.
    pub(crate) fn namespace_of(&self, id: DeviceId) -> Option<Namespace> {
        let (_, device) = self.devices.get(&id)?;
        let there = device.tap.namespace().ok()?;
        (device.place != Place::HOME && there.id().ok() == device.namespace).then_some(there)
    }

    /// What `ip netns` calls that namespace, if it does.
    pub(super) fn netns_of(&self, id: DeviceId) -> Option<String> {
        self.namespace_of(id).as_ref().and_then(netns::name_of)
    }

    /// The network namespace where a device is to be made, if it is another one than the daemon's:
    /// the one that is named, else its parent's.
    ///
    /// # Errors
    /// [`DeviceError::Netns`].
    pub(super) fn namespace_for(
        &self,
        spec: &IpoibConfig,
        parent: Option<DeviceId>,
    ) -> Result<Option<Namespace>, DeviceError> {
        if spec.netns.is_some() {
            return self.namespace_called(spec.netns.as_deref());
        }
        Ok(parent.and_then(|parent| self.namespace_of(parent)))
    }

    /// The network namespace of this name, if it is another one than the daemon's.
    ///
    /// # Errors
    /// [`DeviceError::Netns`].
    pub(super) fn namespace_called(
        &self,
        name: Option<&str>,
    ) -> Result<Option<Namespace>, DeviceError> {
        let Some(name) = name else {
            return Ok(None);
        };
        let there = Namespace::named(name).map_err(|e| no_namespace(name, &e))?;
        let id = there.id().map_err(|e| no_namespace(name, &e))?;
        Ok((id != self.home).then_some(there))
    }
}

fn no_namespace(name: &str, e: &io::Error) -> DeviceError {
    DeviceError::Netns(match e.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no network namespace {name}; make it: ip netns add {name}")
        }
        _ => format!("the network namespace {name} cannot be opened: {e}"),
    })
}

/// Asks the kernel in another namespace.
///
/// # Errors
/// If it cannot be entered (CAP_SYS_ADMIN), or there is no socket.
pub(crate) fn visit<T>(there: &Namespace, ask: impl FnOnce(&mut Requests) -> T) -> io::Result<T> {
    there
        .visit(|| Requests::new().map(|mut netlink| ask(&mut netlink)))?
        .map_err(io::Error::other)
}

/// What [`Daemon::inside`] means by `None`, for callers that tell of netlink errors.
pub(super) fn unreachable(what: &str) -> rtnl::Error {
    rtnl::Error::Refused {
        what: what.to_owned(),
        errno: io::Error::from_raw_os_error(libc::ENODEV),
        reason: "; the interface is gone, or its network namespace cannot be entered".to_owned(),
    }
}
