//! Creates children on request.

use control::api::{ApiError, ChildAddRequest};
use control::config::{InterfaceConfig, IpoibConfig, values};
use fabric::PKey;
use netdev::tap::{TapError, is_held};
use rustix::io::Errno;

use super::{errno, not_16_bits};
use crate::interface::{InterfaceError, InterfaceId, visit};
use crate::interfaces::children::child_of;
use crate::interfaces::{Context, DaemonError, Interfaces};
use crate::ip::Ip;

/// Creates a child.
///
/// # Errors
/// As [`super::child_add`]. Nothing stays behind after an error.
pub fn make_child(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    request: &ChildAddRequest,
) -> Result<InterfaceId, ApiError> {
    let (interface, ip) = interfaces
        .named_ip(cx.host.home, &request.parent)
        .map_err(|e| errno(Errno::NODEV, e.to_string()))?;
    let (parent, at) = (interface.id, interface.port);
    let pkey = asked_pkey(request.pkey).map_err(|e| errno(Errno::INVAL, e))?;
    refuse_child(interfaces, parent, pkey).map_err(|(number, why)| errno(number, why))?;
    let name = match &request.name {
        Some(name) => name.clone(),
        None => values::child_name(&interface.name, pkey),
    };
    let mut spec = child_spec(ip, &name, pkey);
    spec.mode = request.mode.unwrap_or(spec.mode);
    spec.mtu = request.mtu;
    let queues = values::queues_from_number(request.queues.unwrap_or(1).into());
    spec.queues = Some(queues.map_err(|e| errno(Errno::INVAL, e))?);
    // By default in the namespace of its parent.
    let asked = request.netns.clone();
    spec.netns = asked.or_else(|| netns_beside(interfaces, parent, ip));
    if let Some(fault) = rtnl::name_fault(&name) {
        let why = format!("{name:?} cannot be an interface name: {fault}");
        return Err(errno(Errno::INVAL, why));
    }
    refuse_taken(interfaces, cx, parent, &spec)?;
    interfaces
        .serve_ipoib(cx, at, &spec, Some(parent), None)
        .map_err(|e| refusal(&name, e))
}

/// Checks that an interface can have a child of this partition. Errors have the kernel's number
/// (`create_child_store`, `ipoib_new_child_link`, `is_child_unique`).
pub fn refuse_child(
    interfaces: &Interfaces,
    parent: InterfaceId,
    pkey: PKey,
) -> Result<(), (Errno, String)> {
    let Some((interface, ip)) = interfaces.ip(parent) else {
        return Err((Errno::NODEV, "the parent no longer exists".into()));
    };
    let name = &interface.name;
    if ip.parent.is_some() {
        let why = format!("{name} is a child, and children cannot have children");
        return Err((Errno::INVAL, why));
    }
    if !pkey.is_valid() {
        let why = format!("{pkey} is not a valid P_Key; give another one");
        return Err((Errno::INVAL, why));
    }
    if ip.spec.pkey.full() == pkey.full() {
        let why = format!(
            "{name} itself has the P_Key {}; give another one",
            pkey.full()
        );
        return Err((Errno::NOTUNIQ, why));
    }
    let other = child_of(interfaces, parent, pkey);
    let Some(other) = other.and_then(|id| interfaces.get(id)) else {
        return Ok(());
    };
    let (pkey, other) = (pkey.full(), &other.name);
    let why = format!("{name} has a child of P_Key {pkey} already: {other}");
    Err((Errno::NOTUNIQ, why))
}

/// Checks that the name is free in the child's namespace: the requested one, else the parent's. EBUSY for a
/// TAP that another program holds, EEXIST for other interfaces.
fn refuse_taken(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    parent: InterfaceId,
    child: &IpoibConfig,
) -> Result<(), ApiError> {
    let name = &child.name;
    let refused = |e: InterfaceError| ApiError::Refused {
        message: format!("cannot create {name}: {e}"),
    };
    let read = |netlink: &mut rtnl::Requests| netlink.link_by_name(name).ok();
    let there = interfaces
        .namespace_for(cx, child, Some(parent))
        .map_err(refused)?;
    let found = match &there {
        None => read(&mut cx.host.netlink),
        Some(there) => visit(there, read).ok().flatten(),
    };
    let Some(link) = found else {
        return Ok(());
    };
    let place = there.and_then(|there| there.id().ok());
    let mut ours = interfaces.ips();
    let ours = ours.any(|(i, _)| i.name == *name && i.namespace == place);
    Err(match is_held(&link) && !ours {
        true => errno(
            Errno::BUSY,
            format!("a TAP named {name} exists already, and another program holds it"),
        ),
        false => errno(
            Errno::EXIST,
            format!("an interface named {name} exists already"),
        ),
    })
}

/// Checks a P_Key from a user: 1 to 0xffff, but not 0x8000.
fn asked_pkey(number: i64) -> Result<PKey, String> {
    let pkey = u16::try_from(number).map(PKey::new);
    pkey.ok()
        .filter(|pkey| pkey.is_valid())
        .ok_or_else(|| match number {
            0x8000 => "0x8000 is not a valid P_Key; give another one".into(),
            _ => not_16_bits(number),
        })
}

/// The default configuration of a child.
pub fn child_spec(parent: &Ip, name: &str, pkey: PKey) -> IpoibConfig {
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

/// The name of the network namespace of a child beside its parent, for the child's configuration: `None` if the
/// parent is configured without a name, as in the file.
pub fn netns_beside(interfaces: &Interfaces, id: InterfaceId, parent: &Ip) -> Option<String> {
    parent.spec.netns.as_ref()?;
    interfaces.netns_of(id)
}

/// The error of a child that could not be created, with the kernel's number if there is one.
fn refusal(name: &str, error: DaemonError) -> ApiError {
    let DaemonError::Interface { source, .. } = &error else {
        return ApiError::Refused {
            message: error.to_string(),
        };
    };
    let message = format!("cannot create {name}: {source}");
    let number = match source.cause() {
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
