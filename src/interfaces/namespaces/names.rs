//! Interfaces by their names.

use control::api::ApiError;
use netdev::netns::NamespaceId;

use crate::ethernet::Ethernet;
use crate::interface::{Interface, Names};
use crate::interfaces::{Interfaces, Payload};
use crate::ip::Ip;

impl Interfaces {
    /// The interface of this name among `all`. `NAME` prefers the daemon's own network namespace;
    /// `NETNS/NAME` names the namespace.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`]; [`ApiError::Refused`] if several interfaces have the name.
    fn called<'d, T: Copy>(
        home: NamespaceId,
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
            called.retain(|(i, _)| names.of(&i.namespace.unwrap_or(home)) == place);
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

    /// The interface of this name, of either kind; as [`Interfaces::named_ip`].
    ///
    /// # Errors
    /// As [`Interfaces::named_ip`].
    pub fn named(&self, home: NamespaceId, name: &str) -> Result<(&Interface, &Payload), ApiError> {
        Self::called(home, name, self.iter())
    }

    /// The IPoIB interface of this name. `NAME` prefers the daemon's own network namespace; `NETNS/NAME`
    /// names the namespace.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`]; [`ApiError::Refused`] if several interfaces have the name.
    pub fn named_ip(&self, home: NamespaceId, name: &str) -> Result<(&Interface, &Ip), ApiError> {
        match Self::called(home, name, self.ips()) {
            Err(ApiError::NoSuchInterface { .. }) if self.named_ethernet(home, name).is_ok() => {
                Err(ApiError::Refused {
                    message: format!(
                        "{name} is a VNIC, and this request needs an IPoIB interface; \"ibtap vnic\" \
                         shows VNICs"
                    ),
                })
            }
            found => found,
        }
    }

    /// The VNIC of this name; as [`Interfaces::named_ip`].
    ///
    /// # Errors
    /// As [`Interfaces::named_ip`].
    pub fn named_ethernet(
        &self,
        home: NamespaceId,
        name: &str,
    ) -> Result<(&Interface, &Ethernet), ApiError> {
        Self::called(home, name, self.ethernets())
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
        "several interfaces have the name {name}; use {}",
        each.join(" or ")
    )
}
