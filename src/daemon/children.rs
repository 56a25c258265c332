//! Children: interfaces of other partitions beside an interface (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_vlan.c).

mod adopt;
mod judge;
mod make;

pub(super) use adopt::ChildCandidates;
pub(super) use judge::Verdict;

use control::api::{
    ApiError, ChildAddRequest, ChildDelRequest, ChildInfo, Happening, Reply, Selection,
};
use fabric::PKey;
use rustix::io::Errno;

use super::Daemon;
use crate::interface::InterfaceId;
use crate::interface::{Interface, Names};
use crate::ip::Ip;

impl Daemon {
    /// Makes a child.
    ///
    /// # Errors
    /// [`ApiError::Errno`] with the kernel's number: EINVAL, ENODEV, ENOTUNIQ, EEXIST, EBUSY, EPERM
    /// (`create_child_store`, `ipoib_vlan_add`); [`ApiError::Refused`] for what the kernel has no
    /// number for.
    pub(crate) fn child_add(&mut self, request: &ChildAddRequest) -> Result<Reply, ApiError> {
        let id = self.make_child(request)?;
        let child = self.interfaces.get(id).ok_or(ApiError::Busy)?;
        Ok(Reply::ChildAdd {
            interface: child.name.clone(),
        })
    }

    /// Removes a child and its interface.
    ///
    /// # Errors
    /// [`ApiError::Errno`] with the kernel's number: ENODEV, EINVAL (`delete_child_store`,
    /// `ipoib_vlan_delete`).
    pub(crate) fn child_del(&mut self, request: &ChildDelRequest) -> Result<Reply, ApiError> {
        let (interface, ip) = self
            .named_ip(&request.interface)
            .map_err(|e| errno(Errno::NODEV, e.to_string()))?;
        let (id, name) = (interface.id, &interface.name);
        let child = match request.pkey {
            None if ip.parent.is_none() => {
                return Err(errno(
                    Errno::INVAL,
                    format!("{name} is no child; say which of its children is to go"),
                ));
            }
            None => id,
            Some(number) if !(0..=0xffff).contains(&number) => {
                return Err(errno(Errno::INVAL, not_16_bits(number)));
            }
            Some(number) => {
                let pkey = PKey::new(number as u16).full();
                self.child_of(id, pkey).ok_or_else(|| {
                    errno(Errno::NODEV, format!("{name} has no child of P_Key {pkey}"))
                })?
            }
        };
        self.remove_child(child);
        Ok(Reply::ChildDel {})
    }

    /// Lists children.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`].
    pub(crate) fn children(&mut self, selection: &Selection) -> Result<Reply, ApiError> {
        let of = match &selection.interface {
            Some(name) => Some(self.named_ip(name)?.0.id),
            None => None,
        };
        let concerned = |id: InterfaceId, ip: &Ip| {
            ip.parent.is_some() && of.is_none_or(|of| ip.parent == Some(of) || id == of)
        };
        let names = Names::read();
        let children = self.interfaces.ips();
        let children = children
            .filter(|(interface, ip)| concerned(interface.id, ip))
            .map(|(interface, ip)| self.child_info(interface, ip, &names))
            .chain(self.vlan_children(of, &names))
            .collect();
        Ok(Reply::Children { children })
    }

    fn child_info(&self, interface: &Interface, ip: &Ip, names: &Names) -> ChildInfo {
        ChildInfo {
            name: interface.name.clone(),
            parent: ip.parent_name.clone().unwrap_or_default(),
            pkey: ip.spec.pkey,
            entry: ip.link.fabric.endpoint.pkey,
            mode: ip.mode,
            mtu: interface.mtu,
            netns: interface.namespace.as_ref().map(|there| names.of(there)),
            carrier: interface.carrier,
            reason: self.ip_misses(interface, ip),
        }
    }

    /// The child of a partition beside an interface.
    pub(super) fn child_of(&self, parent: InterfaceId, pkey: PKey) -> Option<InterfaceId> {
        let is_it = |ip: &Ip| ip.parent == Some(parent) && ip.spec.pkey.full() == pkey.full();
        let mut all = self.interfaces.ips();
        all.find(|(_, ip)| is_it(ip)).map(|(i, _)| i.id)
    }

    fn children_of(&self, parent: InterfaceId) -> Vec<InterfaceId> {
        self.interfaces.ip_ids(|_, ip| ip.parent == Some(parent))
    }

    /// An interface goes, and its children with it. (The kernel's driver keeps a parent that has
    /// children; here the parent is the administrator's to delete.)
    pub(super) fn remove_children(&mut self, parent: InterfaceId) {
        for child in self.children_of(parent) {
            self.remove_child(child);
        }
    }

    /// Deletes a child's interface, whoever made it, and forgets the child.
    pub(super) fn remove_child(&mut self, id: InterfaceId) {
        let deleted = self.inside(id, |i, netlink| netlink.delete_link(i.ifindex));
        match deleted {
            Some(Err(e)) if !e.is_not_found() => {
                log::warn!("cannot delete the interface of a child: {e}");
            }
            Some(_) => {}
            // It is where the daemon cannot go, or gone: then it goes with its last queue.
            None => {
                let interface = self.interfaces.get(id);
                let _ = interface.map(|interface| interface.tap.set_persist(false));
            }
        }
        self.forget(id);
    }

    /// A parent is called otherwise: its children say so, and its new name may be in the names of
    /// TAPs that wait for a parent.
    pub(super) fn parent_renamed(&mut self, parent: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip(parent) else {
            return;
        };
        if ip.parent.is_some() {
            return;
        }
        let name = interface.name.clone();
        for child in self.children_of(parent) {
            if let Some((_, child)) = self.interfaces.ip_mut(child) {
                child.parent_name = Some(name.clone());
            }
            self.renew_alias(child);
        }
        self.look_for_children(parent);
    }

    /// Adds an event about the parent of a child.
    fn tell_parent(&mut self, child: InterfaceId, what: impl Fn(String, PKey) -> Happening) {
        if let Some((interface, child)) = self.interfaces.ip(child)
            && let Some(parent) = child.parent
        {
            self.tell(parent, what(interface.name.clone(), child.spec.pkey));
        }
    }

    pub(super) fn tell_child_added(&mut self, id: InterfaceId) {
        self.tell_parent(id, |child, pkey| Happening::ChildAdded { child, pkey });
    }

    pub(super) fn tell_child_removed(&mut self, id: InterfaceId) {
        self.tell_parent(id, |child, pkey| Happening::ChildRemoved { child, pkey });
    }
}

/// An error with the kernel's number.
fn errno(errno: Errno, message: String) -> ApiError {
    ApiError::Errno {
        errno: errno.raw_os_error(),
        message,
    }
}

fn not_16_bits(number: i64) -> String {
    format!("{number} is no P_Key; give one from 0x0001 to 0xffff")
}
