//! What librdmacm keeps of a device, and letting go of it.
//!
//! librdmacm opens a device when the first identifier is bound to it, and closes it when it finds, at
//! some later call, that the device has left ibv_get_device_list(3); as long as that list is empty it
//! takes the call for failed and closes nothing (rdma-core librdmacm/cma.c, `sync_devices_list`). A
//! driver that cannot take a device away under its users, as rdma_rxe and siw cannot, has the removal
//! wait for the last of them (kernel drivers/infiniband/core/uverbs_main.c, `ib_uverbs_remove_one`). So
//! `rdma link del` of a machine's only device would wait for the end of the process.
//!
//! librdmacm has no function to close a device. What holds it are two open files, of the device and of
//! its asynchronous events (ibv_open_device(3)), and these can be exchanged under librdmacm.

use std::fs::read_link;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{DupFlags, dup3};

use super::channel::EventChannel;
use super::id::CmId;
use crate::verbs::sys::*;

/// An identifier that is bound and nothing else. As long as there is one, librdmacm's context of the
/// device cannot end: it can be looked at, and no other file can get the numbers of its descriptors.
#[derive(Debug)]
pub struct Hold(CmId);

impl Hold {
    /// On a device by an address that it has; a port number of 0 is any.
    ///
    /// # Errors
    /// Those of rdma_create_event_channel(3), rdma_create_id(3) and rdma_bind_addr(3); NotFound if
    /// rdma_cm takes the address for another device's.
    pub fn new(library: &Arc<dyn Library>, device: &str, address: SocketAddr) -> io::Result<Hold> {
        let id = CmId::new(&EventChannel::new(library)?)?;
        id.bind(address)?;
        match id.device() {
            Some((name, _)) if name == device => Ok(Hold(id)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Closes the device's files. For a device that is being removed: librdmacm opens it anew
    /// only under another index (ibv_get_device_index(3)), and what it calls meanwhile is for
    /// ending things, which went with the files. What it closes one day is /dev/null.
    ///
    /// # Errors
    /// Those of opening /dev/null and of dup3(2).
    pub fn let_go(self) -> io::Result<()> {
        let Some(context) = self.0.context() else {
            return Ok(());
        };
        // SAFETY: the identifier is alive, and with it the context, whose descriptors never change.
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

/// What an open file is called (proc_pid_fd(5)).
fn file_of(fd: RawFd) -> Option<String> {
    let target = read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(target.to_string_lossy().into_owned())
}

/// The node of a device, which may be gone already: `/dev/infiniband/uverbs0 (deleted)`.
fn is_device(name: &str) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let node = name.rsplit('/').next().unwrap_or_default();
    let number = node.strip_prefix("uverbs").unwrap_or_default();
    name.starts_with("/dev/") && number.parse::<u32>().is_ok()
}

/// Kernel drivers/infiniband/core/uverbs_std_types_async_fd.c; before Linux 5.7, and from old libraries,
/// the name is the same.
fn is_events(name: &str) -> bool {
    name == "anon_inode:[infinibandevent]"
}

/// Lets a descriptor be one of `file`.
fn replace(fd: RawFd, file: &OwnedFd) -> io::Result<()> {
    debug_assert_ne!(fd, file.as_raw_fd());
    // SAFETY: it is open, as its name was read, and librdmacm, whose it is, leaves it alone as long as
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
        // Nobody writes any more.
        assert_eq!(rustix::io::read(&reader, &mut [0; 8]), Ok(0));
        let flags = rustix::io::fcntl_getfd(&writer).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
