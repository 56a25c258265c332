//! Children: interfaces of other partitions beside an interface (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_vlan.c).

mod adopt;
mod judge;
mod make;

pub(super) use adopt::Strangers;
use control::api::{
    ApiError, ChildAddRequest, ChildDelRequest, ChildInfo, Happening, Reply, Selection,
};
pub(super) use judge::Verdict;

use fabric::PKey;
use rustix::io::Errno;

use super::{Daemon, Names};
use crate::datapath::DeviceId;
use crate::device::Device;
use crate::port::PortId;

impl Daemon {
    /// Makes a child.
    ///
    /// # Errors
    /// [`ApiError::Errno`] with the kernel's number: EINVAL, ENODEV, ENOTUNIQ, EEXIST, EBUSY, EPERM
    /// (`create_child_store`, `ipoib_vlan_add`); [`ApiError::Refused`] for what the kernel has no
    /// number for.
    pub(crate) fn child_add(&mut self, request: &ChildAddRequest) -> Result<Reply, ApiError> {
        let id = self.make_child(request)?;
        let (_, child) = self.devices.get(&id).ok_or(ApiError::Busy)?;
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
        let (id, _, device) = self
            .named(&request.interface)
            .map_err(|e| errno(Errno::NODEV, e.to_string()))?;
        let name = &device.name;
        let child = match request.pkey {
            None if device.parent.is_none() => {
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
            Some(name) => Some(self.named(name)?.0),
            None => None,
        };
        let concerned = |id: &DeviceId, device: &Device| {
            device.parent.is_some() && of.is_none_or(|of| device.parent == Some(of) || *id == of)
        };
        let names = Names::read();
        let children = self.devices.iter();
        let children = children
            .filter(|(id, (_, device))| concerned(id, device))
            .map(|(_, (at, device))| self.child_info(*at, device, &names))
            .chain(self.vlan_children(of, &names))
            .collect();
        Ok(Reply::Children { children })
    }

    fn child_info(&self, at: PortId, device: &Device, names: &Names) -> ChildInfo {
        ChildInfo {
            name: device.name.clone(),
            parent: device.parent_name.clone().unwrap_or_default(),
            pkey: device.spec.pkey,
            entry: device.endpoint.pkey,
            mode: device.mode.into(),
            mtu: device.mtu,
            netns: device.namespace.as_ref().map(|there| names.of(there)),
            carrier: device.carrier,
            reason: self.no_carrier(at, device),
        }
    }

    /// The child of a partition beside an interface.
    pub(super) fn child_of(&self, parent: DeviceId, pkey: PKey) -> Option<DeviceId> {
        self.devices
            .iter()
            .find(|(_, (_, d))| d.parent == Some(parent) && d.spec.pkey.full() == pkey.full())
            .map(|(id, _)| *id)
    }

    fn children_of(&self, parent: DeviceId) -> Vec<DeviceId> {
        let all = self.devices.iter();
        all.filter(|(_, (_, device))| device.parent == Some(parent))
            .map(|(id, _)| *id)
            .collect()
    }

    /// An interface goes, and its children with it. (The kernel's driver keeps a parent that has
    /// children; here the parent is the administrator's to delete.)
    pub(super) fn remove_children(&mut self, parent: DeviceId) {
        for child in self.children_of(parent) {
            self.remove_child(child);
        }
    }

    /// Deletes a child's interface, whoever made it, and forgets the child.
    pub(super) fn remove_child(&mut self, id: DeviceId) {
        let deleted = self.inside(id, |device, netlink| netlink.delete_link(device.ifindex));
        match deleted {
            Some(Err(e)) if !e.is_not_found() => {
                log::warn!("cannot delete the interface of a child: {e}");
            }
            Some(_) => {}
            // It is where the daemon cannot go, or gone: then it goes with its last queue.
            None => {
                let device = self.devices.get(&id).map(|(_, device)| device);
                let _ = device.map(|device| device.tap.set_persist(false));
            }
        }
        self.forget(id);
    }

    /// A parent is called otherwise: its children say so, and its new name may be in the names of
    /// TAPs that wait for a parent.
    pub(super) fn parent_renamed(&mut self, parent: DeviceId, name: &str) {
        for child in self.children_of(parent) {
            if let Some((_, child)) = self.devices.get_mut(&child) {
                child.parent_name = Some(name.to_owned());
            }
            self.renew_alias(child);
        }
        self.look_for_children(parent);
    }

    /// Writes an interface's alias again, where it is ours.
    pub(super) fn renew_alias(&mut self, id: DeviceId) {
        let Some((at, _)) = self.devices.get(&id) else {
            return;
        };
        let port = self.ports[*at].port.attributes().name;
        self.inside(id, |device, netlink| {
            let link = netlink.link_by_index(device.ifindex);
            let set = link.and_then(|link| device.set_alias(netlink, &port, &link));
            if let Err(e) = set {
                log::warn!("{}: cannot set the alias: {e}", device.name);
            }
        });
    }

    /// Tells those who watch a parent.
    fn tell_parent(&mut self, child: DeviceId, what: impl Fn(String, PKey) -> Happening) {
        let Some((_, child)) = self.devices.get(&child) else {
            return;
        };
        if let Some(parent) = child.parent {
            self.tell_device(parent, what(child.name.clone(), child.spec.pkey));
        }
    }

    pub(super) fn tell_child_added(&mut self, id: DeviceId) {
        self.tell_parent(id, |child, pkey| Happening::ChildAdded { child, pkey });
    }

    pub(super) fn tell_child_removed(&mut self, id: DeviceId) {
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
