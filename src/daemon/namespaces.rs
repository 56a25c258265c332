//! Where interfaces are: they may move to other network namespaces, and work on there.

mod coalesce;
mod left;
mod moves;
mod names;

use std::io;

use control::config::IpoibConfig;
use netdev::netns::{self, Namespace};
use rtnl::Requests;

use super::Daemon;
use crate::interface::InterfaceId;
use crate::interface::{Interface, InterfaceError, Place, visit};

impl Daemon {
    /// Asks the kernel in the namespace where an interface is, as [`Interface::inside`] does.
    pub(crate) fn inside<T>(
        &mut self,
        id: InterfaceId,
        ask: impl FnOnce(&mut Interface, &mut Requests) -> T,
    ) -> Option<T> {
        self.interfaces
            .get_mut(id)?
            .inside(&mut self.host.netlink, ask)
    }

    /// Asks the kernel in a namespace where interfaces of ours are. `None` if none is there, or it
    /// cannot be reached.
    pub(crate) fn at_place<T>(
        &mut self,
        place: Place,
        ask: impl FnOnce(&mut Requests) -> T,
    ) -> Option<T> {
        if place == Place::HOME {
            return Some(ask(&mut self.host.netlink));
        }
        // One of them may have moved on.
        let mut all = self.interfaces.iter().filter(|(i, _)| i.place == place);
        let there = all.find_map(|(interface, _)| interface.elsewhere())?;
        visit(&there, ask).ok()
    }

    /// What `ip netns` calls the namespace of an interface, if it does.
    pub(super) fn netns_of(&self, id: InterfaceId) -> Option<String> {
        let there = self.interfaces.get(id)?.elsewhere();
        there.as_ref().and_then(netns::name_of)
    }

    /// The network namespace where a device is to be made, if it is another one than the daemon's:
    /// the one that is named, else its parent's.
    ///
    /// # Errors
    /// [`InterfaceError::Netns`].
    pub(super) fn namespace_for(
        &self,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
    ) -> Result<Option<Namespace>, InterfaceError> {
        if spec.netns.is_some() {
            return self.namespace_called(spec.netns.as_deref());
        }
        let parent = parent.and_then(|parent| self.interfaces.get(parent));
        Ok(parent.and_then(Interface::elsewhere))
    }

    /// The network namespace of this name, if it is another one than the daemon's.
    ///
    /// # Errors
    /// [`InterfaceError::Netns`].
    pub(super) fn namespace_called(
        &self,
        name: Option<&str>,
    ) -> Result<Option<Namespace>, InterfaceError> {
        let Some(name) = name else {
            return Ok(None);
        };
        let there = Namespace::named(name).map_err(|e| no_namespace(name, &e))?;
        let id = there.id().map_err(|e| no_namespace(name, &e))?;
        Ok((id != self.host.home).then_some(there))
    }
}

fn no_namespace(name: &str, e: &io::Error) -> InterfaceError {
    InterfaceError::Netns(match e.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no network namespace {name}; make it: ip netns add {name}")
        }
        _ => format!("the network namespace {name} cannot be opened: {e}"),
    })
}
