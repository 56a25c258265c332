//! Making a child because somebody asks for it.

use control::api::{ApiError, ChildAddRequest};
use control::config::{InterfaceConfig, IpoibConfig, values};
use fabric::PKey;
use netdev::tap::{TapError, is_held};
use rustix::io::Errno;

use super::super::{Daemon, DaemonError};
use super::{errno, not_16_bits};
use crate::interface::InterfaceId;
use crate::interface::{InterfaceError, visit};
use crate::ip::Ip;

impl Daemon {
    /// Makes a child.
    ///
    /// # Errors
    /// As [`Daemon::child_add`]; nothing is left behind.
    pub(super) fn make_child(
        &mut self,
        request: &ChildAddRequest,
    ) -> Result<InterfaceId, ApiError> {
        let (interface, ip) = self
            .named_ip(&request.parent)
            .map_err(|e| errno(Errno::NODEV, e.to_string()))?;
        let (parent, at) = (interface.id, interface.port);
        let pkey = asked_pkey(request.pkey).map_err(|e| errno(Errno::INVAL, e))?;
        self.refuse_child(parent, pkey)
            .map_err(|(number, why)| errno(number, why))?;
        let name = match &request.name {
            Some(name) => name.clone(),
            None => values::child_name(&interface.name, pkey),
        };
        let mut spec = child_spec(ip, &name, pkey);
        spec.mode = request.mode.unwrap_or(spec.mode);
        spec.mtu = request.mtu;
        let queues = values::queues_from_number(request.queues.unwrap_or(1).into());
        spec.queues = Some(queues.map_err(|e| errno(Errno::INVAL, e))?);
        // Beside its parent, wherever that is.
        spec.netns = request.netns.clone().or_else(|| self.netns_of(parent));
        if let Some(fault) = rtnl::name_fault(&name) {
            let why = format!("{name:?} cannot be an interface name: {fault}");
            return Err(errno(Errno::INVAL, why));
        }
        self.refuse_taken(parent, &spec)?;
        self.bring_in(at, &spec, Some(parent), None)
            .map_err(|e| refusal(&name, e))
    }

    /// Why an interface cannot have a child of this partition, with the kernel's number
    /// (`create_child_store`, `ipoib_new_child_link`, `is_child_unique`).
    pub(super) fn refuse_child(
        &self,
        parent: InterfaceId,
        pkey: PKey,
    ) -> Result<(), (Errno, String)> {
        let Some((interface, ip)) = self.interfaces.ip(parent) else {
            return Err((Errno::NODEV, "the parent is gone".into()));
        };
        let name = &interface.name;
        if ip.parent.is_some() {
            let why = format!("{name} is a child itself, and children have none");
            return Err((Errno::INVAL, why));
        }
        if !pkey.is_valid() {
            let why = format!("{pkey} is the P_Key of no partition; give another");
            return Err((Errno::INVAL, why));
        }
        if ip.spec.pkey.full() == pkey.full() {
            let why = format!("the P_Key {} is that of {name} itself", pkey.full());
            return Err((Errno::NOTUNIQ, why));
        }
        let other = self.child_of(parent, pkey);
        let Some(other) = other.and_then(|id| self.interfaces.get(id)) else {
            return Ok(());
        };
        let (pkey, other) = (pkey.full(), &other.name);
        let why = format!("{name} has a child of P_Key {pkey} already: {other}");
        Err((Errno::NOTUNIQ, why))
    }

    /// Whether an interface has the name where the child is to be: in the namespace that was asked
    /// for, else in the parent's. EBUSY for a TAP of another program's, EEXIST for any other.
    fn refuse_taken(&mut self, parent: InterfaceId, child: &IpoibConfig) -> Result<(), ApiError> {
        let name = &child.name;
        let refused = |e: InterfaceError| ApiError::Refused {
            message: format!("cannot make {name}: {e}"),
        };
        let read = |netlink: &mut rtnl::Requests| netlink.link_by_name(name).ok();
        let there = self.namespace_for(child, Some(parent)).map_err(refused)?;
        let found = match &there {
            None => read(&mut self.host.netlink),
            Some(there) => visit(there, read).ok().flatten(),
        };
        let Some(link) = found else {
            return Ok(());
        };
        let place = there.and_then(|there| there.id().ok());
        let mut ours = self.interfaces.ips();
        let ours = ours.any(|(i, _)| i.name == *name && i.namespace == place);
        Err(match is_held(&link) && !ours {
            true => errno(
                Errno::BUSY,
                format!("there is a TAP named {name} already, and another program holds it"),
            ),
            false => errno(
                Errno::EXIST,
                format!("there is an interface named {name} already"),
            ),
        })
    }
}

/// A P_Key as a number that somebody wrote: 1 to 0xffff but not 0x8000.
fn asked_pkey(number: i64) -> Result<PKey, String> {
    let pkey = u16::try_from(number).map(PKey::new);
    pkey.ok()
        .filter(|pkey| pkey.is_valid())
        .ok_or_else(|| match number {
            0x8000 => "0x8000 is the P_Key of no partition; give another".into(),
            _ => not_16_bits(number),
        })
}

/// What a child is like that nobody has said more of.
pub(super) fn child_spec(parent: &Ip, name: &str, pkey: PKey) -> IpoibConfig {
    let child = parent.spec.child(pkey);
    IpoibConfig {
        interface: InterfaceConfig {
            name: name.to_owned(),
            netns: None,
            up: false,
            ..child.interface
        },
        ..child
    }
}

/// Why a child could not be made, with the kernel's number where it has one.
fn refusal(name: &str, error: DaemonError) -> ApiError {
    let DaemonError::Device { source, .. } = &error else {
        return ApiError::Refused {
            message: error.to_string(),
        };
    };
    let message = format!("cannot make {name}: {source}");
    let number = match source {
        InterfaceError::Mtu(_) | InterfaceError::Mode(_) => Errno::INVAL,
        InterfaceError::Tap(TapError::Held { .. }) => Errno::BUSY,
        InterfaceError::Tap(TapError::NameTaken { .. }) => Errno::EXIST,
        InterfaceError::Tap(TapError::Permission(_)) => Errno::PERM,
        _ => return ApiError::Refused { message },
    };
    errno(number, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c83_what_is_no_partition_is_refused() {
        for number in [0, 0x8000, -1, 0x1_0000, i64::MAX, i64::MIN] {
            let why = asked_pkey(number).unwrap_err();
            assert!(why.contains("P_Key"), "{why}");
        }
        assert_eq!(asked_pkey(1), Ok(PKey::new(1)));
        assert_eq!(asked_pkey(0xffff), Ok(PKey::DEFAULT));
    }
}
