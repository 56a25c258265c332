//! librdmacm's open files of a device, and how to close them.
//!
//! librdmacm opens a device when the first identifier is bound to it. It closes the device when a later
//! call finds it missing in ibv_get_device_list(3); if that list is empty, it takes the call as failed
//! and closes nothing (rdma-core librdmacm/cma.c, `sync_devices_list`). If a driver cannot remove a
//! device in use, as rdma_rxe's and siw's cannot, the removal waits for the last user (kernel
//! drivers/infiniband/core/uverbs_main.c, `ib_uverbs_remove_one`). So `rdma link del` of a host's only
//! device would wait for the end of the process.
//!
//! librdmacm has no function to close a device. Two open files keep it: the device and its asynchronous
//! events (ibv_open_device(3)). This module replaces these files under librdmacm.

use std::fs::read_link;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{DupFlags, dup3};

use super::address::CmAddress;
use super::channel::EventChannel;
use super::id::{CmId, PortSpace};
use crate::verbs::sys::*;

/// A bound identifier without any other use. While it exists, librdmacm's context of the device stays
/// valid: its descriptors can be read, and no other file gets their numbers.
#[derive(Debug)]
pub struct Hold(CmId);

impl Hold {
    /// For a device, by one of its addresses; port number 0 means any.
    ///
    /// # Errors
    /// Errors of rdma_create_event_channel(3), rdma_create_id(3) and rdma_bind_addr(3); NotFound if
    /// rdma_cm assigns the address to another device.
    pub fn new(library: &Arc<dyn Library>, device: &str, address: CmAddress) -> io::Result<Hold> {
        let id = CmId::new(&EventChannel::new(library, PortSpace::of(&address))?)?;
        id.bind(address)?;
        match id.device() {
            Some((name, _)) if name == device => Ok(Hold(id)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Closes the files of a device that is being removed. librdmacm opens the device again only under
    /// another index (ibv_get_device_index(3)). Its later calls only destroy objects, which ended with
    /// the files. It will finally close /dev/null instead.
    ///
    /// # Errors
    /// Errors of opening /dev/null and of dup3(2).
    pub fn let_go(self) -> io::Result<()> {
        let Some(context) = self.0.context() else {
            return Ok(());
        };
        // SAFETY: the identifier is alive, and so is its context, whose descriptors never change.
        let (device, events) = unsafe {
            let context = context.as_ptr();
            (
                ptr::addr_of!((*context).cmd_fd).read(),
                ptr::addr_of!((*context).async_fd).read(),
            )
        };
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        for (fd, of_device) in [(device, is_device as fn(&str) -> bool), (events, is_events)] {
            if file_of(fd).is_some_and(|name| of_device(&name)) {
                replace(fd, &null)?;
            }
        }
        Ok(())
    }
}

/// The name of an open file (proc_pid_fd(5)).
fn file_of(fd: RawFd) -> Option<String> {
    let target = read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(target.to_string_lossy().into_owned())
}

/// Whether this is the node of a device, possibly removed: `/dev/infiniband/uverbs0 (deleted)`.
fn is_device(name: &str) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let node = name.rsplit('/').next().unwrap_or_default();
    let number = node.strip_prefix("uverbs").unwrap_or_default();
    name.starts_with("/dev/") && number.parse::<u32>().is_ok()
}

/// Whether this is the file of asynchronous events (kernel
/// drivers/infiniband/core/uverbs_std_types_async_fd.c). The name is the same before Linux 5.7 and with
/// old libraries.
fn is_events(name: &str) -> bool {
    name == "anon_inode:[infinibandevent]"
}

/// Replaces the file of a descriptor.
fn replace(fd: RawFd, file: &OwnedFd) -> io::Result<()> {
    debug_assert_ne!(fd, file.as_raw_fd());
    // SAFETY: it is open, because its name was read, and its owner librdmacm does not close it while
    // the caller has an identifier. It is not closed here.
    let mut fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(dup3(file, &mut fd, DupFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_devices_are_taken_for_such() {
        for name in [
            "/dev/infiniband/uverbs0",
            "/dev/infiniband/uverbs12 (deleted)",
        ] {
            assert!(is_device(name) && !is_events(name), "{name}");
        }
        for name in [
            "/dev/null",
            "/dev/infiniband/rdma_cm",
            "/dev/infiniband/uverbs",
            "/home/uverbs0",
            "uverbs0",
            "anon_inode:[infinibandevent]",
            "",
        ] {
            assert!(!is_device(name), "{name}");
        }
        assert!(is_events("anon_inode:[infinibandevent]"));
        assert!(!is_events("anon_inode:[eventfd]"));
    }

    #[test]
    fn a_replaced_file_is_closed_and_its_descriptor_stays() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(file_of(writer.as_raw_fd()).unwrap().starts_with("pipe:"));
        replace(writer.as_raw_fd(), &null).unwrap();
        assert_eq!(file_of(writer.as_raw_fd()).unwrap(), "/dev/null");
        // No writer is left.
        assert_eq!(rustix::io::read(&reader, &mut [0; 8]), Ok(0));
        let flags = rustix::io::fcntl_getfd(&writer).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
