//! Interfaces by their names.

use control::api::ApiError;

use crate::daemon::{Daemon, Payload};
use crate::ethernet::Ethernet;
use crate::interface::{Interface, Names};
use crate::ip::Ip;

impl Daemon {
    /// The interface of a kind that is called so now. `NAME` is looked for in the daemon's own network
    /// namespace first; `NETNS/NAME` says which one is meant.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], and [`ApiError::Refused`] where several have that name.
    fn called<'d, T: Copy>(
        &'d self,
        name: &str,
        all: impl Iterator<Item = (&'d Interface, T)>,
    ) -> Result<(&'d Interface, T), ApiError> {
        let (place, wanted) = match name.rsplit_once('/') {
            Some((place, wanted)) => (Some(place), wanted),
            None => (None, name),
        };
        let mut called: Vec<_> = all.filter(|(i, _)| i.name == wanted).collect();
        if let Some(place) = place {
            let names = Names::read();
            called.retain(|(i, _)| names.of(&i.namespace.unwrap_or(self.host.home)) == place);
        } else if called.len() > 1
            && let Some(home) = called.iter().find(|(i, _)| i.namespace.is_none())
        {
            return Ok(*home);
        }
        match called[..] {
            [one] => Ok(one),
            [] => Err(ApiError::NoSuchInterface {
                interface: name.to_owned(),
            }),
            [..] => Err(ApiError::Refused {
                message: several(name, called.iter().map(|(interface, _)| *interface)),
            }),
        }
    }

    /// The interface that is called so, of either kind; as [`Daemon::named_ip`].
    ///
    /// # Errors
    /// As [`Daemon::named_ip`].
    pub(crate) fn named(&self, name: &str) -> Result<(&Interface, &Payload), ApiError> {
        self.called(name, self.interfaces.iter())
    }

    /// The interface with IP that is called so. `NAME` is looked for in the daemon's own network namespace
    /// first; `NETNS/NAME` says which one is meant.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], and [`ApiError::Refused`] where several have that name.
    pub(crate) fn named_ip(&self, name: &str) -> Result<(&Interface, &Ip), ApiError> {
        match self.called(name, self.interfaces.ips()) {
            Err(ApiError::NoSuchInterface { .. }) if self.named_ethernet(name).is_ok() => {
                Err(ApiError::Refused {
                    message: format!(
                        "{name} is a VNIC, and has none of what IPoIB has; \"ibtap vnic\" says what \
                         can be asked of it"
                    ),
                })
            }
            found => found,
        }
    }

    /// The VNIC that is called so; as [`Daemon::named_ip`].
    ///
    /// # Errors
    /// As [`Daemon::named_ip`].
    pub(crate) fn named_ethernet(&self, name: &str) -> Result<(&Interface, &Ethernet), ApiError> {
        self.called(name, self.interfaces.ethernets())
    }
}

fn several<'d>(name: &str, called: impl Iterator<Item = &'d Interface>) -> String {
    let names = Names::read();
    let each = called.filter_map(|interface| {
        let there = interface.namespace.as_ref()?;
        Some(format!("{}/{name}", names.of(there)))
    });
    let each: Vec<String> = each.collect();
    format!(
        "several interfaces are called {name}: say {}",
        each.join(" or ")
    )
}
