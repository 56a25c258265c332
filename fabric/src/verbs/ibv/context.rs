//! Device contexts and protection domains.

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
use super::call::{check, destroyed, invalid, pointer, unless_empty};
use super::event::AsyncEvent;
use crate::verbs::sys::*;
use crate::verbs::sysfs;

/// The device list; freed when dropped.
struct Devices<'a> {
    library: &'a dyn Library,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl Devices<'_> {
    fn get(library: &dyn Library) -> io::Result<Devices<'_>> {
        let mut count: c_int = 0;
        // SAFETY: the pointer points to an int that outlives the call.
        let list = pointer(unsafe { library.ibv_get_device_list(&mut count) })?;
        Ok(Devices {
            library,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the list has `count` entries followed by NULL; iteration ends at the first NULL.
        (0..self.count).map_while(|i| NonNull::new(unsafe { self.list.add(i).read() }))
    }

    fn name(&self, device: NonNull<ibv_device>) -> String {
        // SAFETY: the device is in this list, which is not freed yet; its name is a C string in it.
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
        // SAFETY: the library made the list; it is freed once.
        unsafe { self.library.ibv_free_device_list(self.list.as_ptr()) }
    }
}

/// The names of all devices.
///
/// # Errors
/// Errors of ibv_get_device_list(3); ENOSYS if the kernel has no verbs.
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

// SAFETY: libibverbs allows calls from any thread for any object (rdma-core,
// Documentation/libibverbs.md, "Thread safety"). The pointer is used only for such calls and to read
// descriptors that never change.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

impl Context {
    /// Opens a device with nonblocking events.
    ///
    /// # Errors
    /// NotFound if there is no such device; errors of ibv_get_device_list(3) and ibv_open_device(3).
    pub fn open(library: &Arc<dyn Library>, name: &str) -> io::Result<Arc<Context>> {
        let devices = Devices::get(&**library)?;
        let device = devices
            .iter()
            .find(|d| devices.name(*d) == name)
            .ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the device is in a list that is not freed yet.
        let raw = pointer(unsafe { library.ibv_open_device(device.as_ptr()) })?;
        let context = Context {
            library: library.clone(),
            raw,
            name: name.to_owned(),
        };
        set_nonblocking(context.async_fd()?)?;
        Ok(Arc::new(context))
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn library(&self) -> &dyn Library {
        &*self.library
    }

    /// The libraries that opened it.
    pub const fn libraries(&self) -> &Arc<dyn Library> {
        &self.library
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Readable when [`Context::next_event`] has something.
    ///
    /// # Errors
    /// InvalidData if the library gave no descriptor.
    pub fn async_fd(&self) -> io::Result<BorrowedFd<'_>> {
        // SAFETY: the context is open; the field is set at opening and never changes.
        let fd = unsafe { ptr::addr_of!((*self.raw.as_ptr()).async_fd).read() };
        // SAFETY: the descriptor is open as long as the context, which the result borrows.
        unsafe { borrow_fd(fd) }
    }

    /// The next asynchronous event, if any. It is acknowledged already: its object may be destroyed at
    /// any time.
    ///
    /// # Errors
    /// Errors of ibv_get_async_event(3): EIO after the removal of the device.
    pub fn next_event(&self) -> io::Result<Option<AsyncEvent>> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the pointer points to an event that outlives the call.
        let result = unsafe {
            self.library
                .ibv_get_async_event(self.as_ptr(), event.as_mut_ptr())
        };
        let Some(()) = unless_empty(check(result))? else {
            return Ok(None);
        };
        // SAFETY: every bit pattern is valid for the structure, which consists of integers and
        // pointers; the memory was zeroed before the call. The event is acknowledged once, before its
        // object can be destroyed.
        let (code, element, port) = unsafe {
            let mut event = event.assume_init();
            let element = event.element;
            self.library.ibv_ack_async_event(&mut event);
            (event.event_type, element.qp as usize, element.port_num)
        };
        Ok(Some(AsyncEvent::new(code, element, port)))
    }

    /// Attributes of the device.
    ///
    /// # Errors
    /// Errors of ibv_query_device_ex(3).
    pub fn query_device(&self) -> io::Result<DeviceAttributes> {
        let mut raw = MaybeUninit::<ibv_device_attr_ex>::zeroed();
        // SAFETY: the pointer points to a structure that outlives the call; every bit pattern is valid
        // for it.
        let raw = unsafe {
            check(
                self.library
                    .ibv_query_device_ex(self.as_ptr(), raw.as_mut_ptr()),
            )?;
            raw.assume_init()
        };
        Ok(DeviceAttributes::from_raw(&raw))
    }

    /// Current attributes of a port.
    ///
    /// # Errors
    /// Errors of ibv_query_port(3); InvalidData for an invalid answer.
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
            invalid(format!(
                "{}/{port} has the invalid MTU code {}",
                self.name, raw.active_mtu
            ))
        })
    }

    /// An entry of a port's GID table; `None` if it is empty.
    ///
    /// # Errors
    /// Errors of ibv_query_gid_ex(3), or of ibv_query_gid(3) if the library lacks the former.
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
            // SAFETY: as in `query_device`; all members of the GID's union are bytes.
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

    /// Reads the kind of a GID and its interface from sysfs, for libraries without ibv_query_gid_ex(3).
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

    /// An entry of a port's P_Key table.
    ///
    /// # Errors
    /// Errors of ibv_query_pkey(3).
    pub fn query_pkey(&self, port: u8, index: u16) -> io::Result<PKey> {
        let mut pkey: __be16 = 0;
        // SAFETY: the pointer points to an integer that outlives the call.
        check(unsafe {
            self.library
                .ibv_query_pkey(self.as_ptr(), port, index.into(), &mut pkey)
        })?;
        Ok(PKey::new(u16::from_be(pkey)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: all its objects hold it by `Arc`, so they are destroyed. It is closed once.
        let result = unsafe { self.library.ibv_close_device(self.as_ptr()) };
        destroyed(&format!("the context of {}", self.name), result);
    }
}

/// An unused entry is all zero, also from older kernels for an unknown index.
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
/// The descriptor stays open for the lifetime of the result, unless it is negative.
pub(super) unsafe fn borrow_fd<'a>(fd: c_int) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(invalid("the verbs library gave no descriptor for events"));
    }
    // SAFETY: the caller guarantees it; -1 was excluded.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(super) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// A protection domain: queue pairs, address handles and memory that can be used together.
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
    /// Creates a protection domain.
    ///
    /// # Errors
    /// Errors of ibv_alloc_pd(3).
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
        // SAFETY: all its objects hold it by `Arc`, so they are destroyed. It is freed once.
        let result = unsafe { self.context.library().ibv_dealloc_pd(self.as_ptr()) };
        destroyed("a protection domain", result);
    }
}
