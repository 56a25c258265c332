//! Children: IPoIB interfaces in other partitions than their parent (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_vlan.c).

mod adopt;
mod judge;
mod left;
mod make;

pub use adopt::{ChildCandidates, adopt_due, links_listed};
pub use judge::Verdict;
pub use left::{adopt_left, look_for_left, take_left};

use control::api::{ApiError, ChildAddRequest, ChildDelRequest, Happening, Reply};
use fabric::PKey;
use rustix::io::Errno;

use make::make_child;

use crate::interface::InterfaceId;
use crate::interfaces::{Context, Interfaces};
use crate::ip::Ip;

/// Creates a child.
///
/// # Errors
/// [`ApiError::Errno`] with the kernel's number: EINVAL, ENODEV, ENOTUNIQ, EEXIST, EBUSY, EPERM
/// (`create_child_store`, `ipoib_vlan_add`); [`ApiError::Refused`] for errors without a kernel number.
pub fn child_add(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    request: &ChildAddRequest,
) -> Result<Reply, ApiError> {
    let id = make_child(interfaces, cx, request)?;
    let child = interfaces.get(id).ok_or(ApiError::Busy)?;
    Ok(Reply::ChildAdd {
        interface: child.name.clone(),
    })
}

/// Removes a child and its TAP.
///
/// # Errors
/// [`ApiError::Errno`] with the kernel's number: ENODEV, EINVAL (`delete_child_store`,
/// `ipoib_vlan_delete`).
pub fn child_del(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    request: &ChildDelRequest,
) -> Result<Reply, ApiError> {
    let (interface, ip) = interfaces
        .named_ip(cx.host.home, &request.interface)
        .map_err(|e| errno(Errno::NODEV, e.to_string()))?;
    let (id, name) = (interface.id, &interface.name);
    let child = match request.pkey {
        None if ip.parent.is_none() => {
            return Err(errno(
                Errno::INVAL,
                format!("{name} is not a child; give the P_Key of the child to remove"),
            ));
        }
        None => id,
        Some(number) if !(0..=0xffff).contains(&number) => {
            return Err(errno(Errno::INVAL, not_16_bits(number)));
        }
        Some(number) => {
            let pkey = PKey::new(number as u16).full();
            child_of(interfaces, id, pkey).ok_or_else(|| {
                errno(Errno::NODEV, format!("{name} has no child of P_Key {pkey}"))
            })?
        }
    };
    remove_child(interfaces, cx, child);
    Ok(Reply::ChildDel {})
}

/// The child of an interface in a partition.
pub fn child_of(interfaces: &Interfaces, parent: InterfaceId, pkey: PKey) -> Option<InterfaceId> {
    let is_it = |ip: &Ip| ip.parent == Some(parent) && ip.spec.pkey.full() == pkey.full();
    let mut all = interfaces.ips();
    all.find(|(_, ip)| is_it(ip)).map(|(i, _)| i.id)
}

fn children_of(interfaces: &Interfaces, parent: InterfaceId) -> Vec<InterfaceId> {
    interfaces.ip_ids(|_, ip| ip.parent == Some(parent))
}

/// Removes the children of an interface that is being removed. (The kernel's driver keeps a parent that has
/// children; here the administrator may delete the parent.)
pub fn remove_children(interfaces: &mut Interfaces, cx: &mut Context, parent: InterfaceId) {
    for child in children_of(interfaces, parent) {
        remove_child(interfaces, cx, child);
    }
}

/// Deletes a child's TAP, even if the user created it, and closes the child.
pub fn remove_child(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    let deleted = interfaces.inside(cx, id, |i, netlink| netlink.delete_link(i.ifindex));
    match deleted {
        Some(Err(e)) if !e.is_not_found() => {
            log::warn!("cannot delete a child's interface: {e}");
        }
        Some(_) => {}
        // Gone, or in a namespace that the daemon cannot enter: the kernel removes it with the last queue.
        None => {
            let interface = interfaces.get(id);
            let _ = interface.map(|interface| interface.tap.set_persist(false));
        }
    }
    interfaces.forget(cx, id);
}

/// A parent was renamed. Its children's aliases contain the name, and TAPs that wait for a parent may match
/// the new name.
pub fn parent_renamed(interfaces: &mut Interfaces, cx: &mut Context, parent: InterfaceId) {
    let Some((interface, ip)) = interfaces.ip(parent) else {
        return;
    };
    if ip.parent.is_some() {
        return;
    }
    let name = interface.name.clone();
    for child in children_of(interfaces, parent) {
        if let Some((_, child)) = interfaces.ip_mut(child) {
            child.parent_name = Some(name.clone());
        }
        interfaces.renew_alias(cx, child);
    }
    interfaces.look_around(cx, |interface, _| interface.id == parent);
}

/// Adds an event about the parent of a child.
fn notify_parent(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    child: InterfaceId,
    what: impl Fn(String, PKey) -> Happening,
) {
    if let Some((interface, child)) = interfaces.ip(child)
        && let Some(parent) = child.parent
    {
        interfaces.notify(cx, parent, what(interface.name.clone(), child.spec.pkey));
    }
}

/// Adds the event that a child was created, about its parent.
pub fn notify_added(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    notify_parent(interfaces, cx, id, |child, pkey| Happening::ChildAdded {
        child,
        pkey,
    });
}

/// Adds the event that a child was removed, about its parent.
pub fn notify_removed(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    notify_parent(interfaces, cx, id, |child, pkey| Happening::ChildRemoved {
        child,
        pkey,
    });
}

/// Makes an error with the kernel's number.
fn errno(errno: Errno, message: String) -> ApiError {
    ApiError::Errno {
        errno: errno.raw_os_error(),
        message,
    }
}

fn not_16_bits(number: i64) -> String {
    format!("{number} is not a P_Key; give one from 0x0001 to 0xffff")
}
