//! An open device and its protection domains.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use proto::{Gid, PKey};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::attributes::{DeviceAttributes, GidEntry, GidKind, PortInfo};
use super::call::{check, destroyed, lie, pointer, unless_empty};
use super::event::AsyncEvent;
use crate::verbs::sys::*;
use crate::verbs::sysfs;

/// The list of devices, until they are opened or forgotten.
struct Devices<'a> {
    library: &'a dyn Library,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl Devices<'_> {
    fn get(library: &dyn Library) -> io::Result<Devices<'_>> {
        let mut count: c_int = 0;
        // SAFETY: the pointer is to an int that lives over the call.
        let list = pointer(unsafe { library.ibv_get_device_list(&mut count) })?;
        Ok(Devices {
            library,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the list has `count` entries and a NULL behind them; it ends at the first NULL.
        (0..self.count).map_while(|i| NonNull::new(unsafe { self.list.add(i).read() }))
    }

    fn name(&self, device: NonNull<ibv_device>) -> String {
        // SAFETY: the device is of this list, which is not yet freed; its name is a C string in it.
        unsafe {
            let name = self.library.ibv_get_device_name(device.as_ptr());
            if name.is_null() {
                return String::new();
            }
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is the library's and freed once.
        unsafe { self.library.ibv_free_device_list(self.list.as_ptr()) }
    }
}

/// The devices that there are, by name.
///
/// # Errors
/// Those of ibv_get_device_list(3); ENOSYS where the kernel has no verbs.
pub fn device_names(library: &dyn Library) -> io::Result<Vec<String>> {
    let devices = Devices::get(library)?;
    Ok(devices.iter().map(|d| devices.name(d)).collect())
}

/// An open device.
pub struct Context {
    library: Arc<dyn Library>,
    raw: NonNull<ibv_context>,
    name: String,
}

// SAFETY: libibverbs may be called from any thread for any object (rdma-core,
// Documentation/libibverbs.md, "Thread safety"); the pointer is used for such calls alone, and for
// reading descriptors that never change.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

impl Context {
    /// Opens a device. Its events do not block.
    ///
    /// # Errors
    /// NotFound if there is no such device; those of ibv_get_device_list(3) and ibv_open_device(3).
    pub fn open(library: &Arc<dyn Library>, name: &str) -> io::Result<Arc<Context>> {
        let devices = Devices::get(&**library)?;
        let device = devices
            .iter()
            .find(|d| devices.name(*d) == name)
            .ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the device is of a list that is not yet freed.
        let raw = pointer(unsafe { library.ibv_open_device(device.as_ptr()) })?;
        let context = Context {
            library: library.clone(),
            raw,
            name: name.to_owned(),
        };
        set_nonblocking(context.async_fd()?)?;
        Ok(Arc::new(context))
    }

    /// For tests: a context of a library that has no devices.
    #[cfg(test)]
    pub(super) fn of(library: Arc<dyn Library>, raw: NonNull<ibv_context>) -> Context {
        Context {
            library,
            raw,
            name: "fake".to_owned(),
        }
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn library(&self) -> &dyn Library {
        &*self.library
    }

    /// The libraries that it was opened with.
    pub const fn libraries(&self) -> &Arc<dyn Library> {
        &self.library
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Readable when [`Context::next_event`] has something.
    ///
    /// # Errors
    /// InvalidData if the library gave none.
    pub fn async_fd(&self) -> io::Result<BorrowedFd<'_>> {
        // SAFETY: the context is open; the field is set when it is opened and never changes.
        let fd = unsafe { ptr::addr_of!((*self.raw.as_ptr()).async_fd).read() };
        // SAFETY: the descriptor is open as long as the context, which the result borrows.
        unsafe { borrow_fd(fd) }
    }

    /// The next asynchronous event, if there is one. It is acknowledged already: what it names may be
    /// ended at any time.
    ///
    /// # Errors
    /// Those of ibv_get_async_event(3): EIO when the device is gone.
    pub fn next_event(&self) -> io::Result<Option<AsyncEvent>> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the pointer is to an event that lives over the call.
        let result = unsafe {
            self.library
                .ibv_get_async_event(self.as_ptr(), event.as_mut_ptr())
        };
        let Some(()) = unless_empty(check(result))? else {
            return Ok(None);
        };
        // SAFETY: every bit pattern is one of the structure's, which is of integers and pointers; the
        // memory was zeroed before the call. The event is acknowledged once, before what it names can
        // be ended.
        let (code, element, port) = unsafe {
            let mut event = event.assume_init();
            let element = event.element;
            self.library.ibv_ack_async_event(&mut event);
            (event.event_type, element.qp as usize, element.port_num)
        };
        Ok(Some(AsyncEvent::new(code, element, port)))
    }

    /// What the device can do.
    ///
    /// # Errors
    /// Those of ibv_query_device_ex(3).
    pub fn query_device(&self) -> io::Result<DeviceAttributes> {
        let mut raw = MaybeUninit::<ibv_device_attr_ex>::zeroed();
        // SAFETY: the pointer is to a structure that lives over the call; every bit pattern is one of
        // its values.
        let raw = unsafe {
            check(
                self.library
                    .ibv_query_device_ex(self.as_ptr(), raw.as_mut_ptr()),
            )?;
            raw.assume_init()
        };
        Ok(DeviceAttributes::from_raw(&raw))
    }

    /// What a port is like now.
    ///
    /// # Errors
    /// Those of ibv_query_port(3); InvalidData for an answer that cannot be.
    pub fn query_port(&self, port: u8) -> io::Result<PortInfo> {
        let mut raw = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: as in `query_device`.
        let raw = unsafe {
            check(
                self.library
                    .ibv_query_port(self.as_ptr(), port, raw.as_mut_ptr()),
            )?;
            raw.assume_init()
        };
        PortInfo::from_raw(&raw).ok_or_else(|| {
            lie(format!(
                "{}/{port} has an MTU of code {}, which there is not",
                self.name, raw.active_mtu
            ))
        })
    }

    /// A place of a port's GID table; `None` if it is empty.
    ///
    /// # Errors
    /// Those of ibv_query_gid_ex(3), or of ibv_query_gid(3) where the library lacks that.
    pub fn query_gid(&self, port: u8, index: u32) -> io::Result<Option<GidEntry>> {
        let mut raw = MaybeUninit::<ibv_gid_entry>::zeroed();
        // SAFETY: as in `query_device`.
        let result = check(unsafe {
            self.library._ibv_query_gid_ex(
                self.as_ptr(),
                port.into(),
                index,
                raw.as_mut_ptr(),
                0,
                size_of::<ibv_gid_entry>(),
            )
        });
        match result.as_ref().map_err(io::Error::raw_os_error) {
            // SAFETY: as in `query_device`; so is the union of the GID, all whose members are bytes.
            Ok(()) => unsafe {
                let raw = raw.assume_init();
                Ok(entry(
                    index,
                    Gid(raw.gid.raw),
                    gid_kind(raw.gid_type),
                    Some(raw.ndev_ifindex).filter(|i| *i != 0),
                ))
            },
            Err(Some(libc::ENODATA)) => Ok(None),
            Err(Some(libc::ENOSYS | libc::EOPNOTSUPP)) => self.query_gid_plain(port, index),
            Err(_) => result.map(|()| None),
        }
    }

    /// Without the library's help the kind of a GID and its interface are read from sysfs.
    fn query_gid_plain(&self, port: u8, index: u32) -> io::Result<Option<GidEntry>> {
        let mut raw = MaybeUninit::<ibv_gid>::zeroed();
        let place = c_int::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: as in `query_gid`.
        let gid = unsafe {
            check(
                self.library
                    .ibv_query_gid(self.as_ptr(), port, place, raw.as_mut_ptr()),
            )?;
            Gid(raw.assume_init().raw)
        };
        let kind = sysfs::gid_kind(&self.name, port, index);
        Ok(entry(
            index,
            gid,
            kind,
            sysfs::gid_netdev(&self.name, port, index),
        ))
    }

    /// A place of a port's P_Key table.
    ///
    /// # Errors
    /// Those of ibv_query_pkey(3).
    pub fn query_pkey(&self, port: u8, index: u16) -> io::Result<PKey> {
        let mut pkey: __be16 = 0;
        // SAFETY: the pointer is to an integer that lives over the call.
        check(unsafe {
            self.library
                .ibv_query_pkey(self.as_ptr(), port, index.into(), &mut pkey)
        })?;
        Ok(PKey::new(u16::from_be(pkey)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all that was made in the context holds it by `Arc` and is gone. It is closed once.
        let result = unsafe { self.library.ibv_close_device(self.as_ptr()) };
        destroyed(&format!("the context of {}", self.name), result);
    }
}

/// An unused place is all zero; so is what older kernels give for a place they do not know.
fn entry(index: u32, gid: Gid, kind: Option<GidKind>, netdev: Option<u32>) -> Option<GidEntry> {
    (gid != Gid::UNSPECIFIED).then_some(GidEntry {
        index,
        gid,
        kind: kind?,
        netdev,
    })
}

fn gid_kind(code: u32) -> Option<GidKind> {
    match code {
        IBV_GID_TYPE_IB => Some(GidKind::InfiniBand),
        IBV_GID_TYPE_ROCE_V1 => Some(GidKind::RoceV1),
        IBV_GID_TYPE_ROCE_V2 => Some(GidKind::RoceV2),
        _ => None,
    }
}

/// # Safety
/// The descriptor is open as long as the result lives, unless it is negative.
pub(super) unsafe fn borrow_fd<'a>(fd: c_int) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(lie("the verbs library has no descriptor for events"));
    }
    // SAFETY: the caller promises it; -1 was excluded.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(super) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// A protection domain: queue pairs, address handles and memory that may be used together.
#[derive(Debug)]
pub struct ProtectionDomain {
    context: Arc<Context>,
    raw: NonNull<ibv_pd>,
}

// SAFETY: as for `Context`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as for `Context`.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Makes one.
    ///
    /// # Errors
    /// Those of ibv_alloc_pd(3).
    pub fn new(context: &Arc<Context>) -> io::Result<Arc<ProtectionDomain>> {
        // SAFETY: the context is open.
        let raw = pointer(unsafe { context.library().ibv_alloc_pd(context.as_ptr()) })?;
        Ok(Arc::new(ProtectionDomain {
            context: context.clone(),
            raw,
        }))
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: all that was made in it holds it by `Arc` and is gone. It is freed once.
        let result = unsafe { self.context.library().ibv_dealloc_pd(self.as_ptr()) };
        destroyed("a protection domain", result);
    }
}
