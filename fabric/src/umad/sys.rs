//! libibumad: its types, and its functions behind a safe trait. All unsafe code of [`super`] is here.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::attributes::{LinkState, PortAttributes};
use super::error::UmadError;
use super::message::Buffer;
use crate::verbs::sysfs;
use crate::{Guid, Lid, PKey};

/// `libibumad.so.3`: its functions have kept their signatures since 2008.
const NAME: &str = "libibumad.so.3";

/// `UMAD_CA_NAME_LEN`.
const NAME_LENGTH: usize = 20;
/// `UMAD_MAX_DEVICES`.
const MAX_DEVICES: usize = 32;

/// `struct umad_port` of `infiniband/umad.h`.
#[repr(C)]
pub(super) struct RawPort {
    pub ca_name: [c_char; NAME_LENGTH],
    pub portnum: c_int,
    pub base_lid: c_uint,
    pub lmc: c_uint,
    pub sm_lid: c_uint,
    pub sm_sl: c_uint,
    pub state: c_uint,
    pub phys_state: c_uint,
    pub rate: c_uint,
    /// Big-endian.
    pub capmask: [u8; 4],
    /// Big-endian, as the next one. Their places are multiples of 8, so no alignment is missing.
    pub gid_prefix: [u8; 8],
    pub port_guid: [u8; 8],
    pub pkeys_size: c_uint,
    pub pkeys: *mut u16,
    pub link_layer: [c_char; NAME_LENGTH],
}

/// An open port: the number that `umad_open_port` returned, which is a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortId(pub(super) c_int);

/// The functions of libibumad. Errors are the errno of the call.
pub trait Library: Send + Sync {
    /// umad_init(3): fails without the kernel's `ib_umad`.
    fn init(&self) -> io::Result<()>;
    /// umad_get_cas_names(3): the RDMA devices, at most 32.
    fn devices(&self) -> Vec<String>;
    /// umad_open_port(3). ENODEV: no such device or port.
    fn open_port(&self, device: &CStr, port: u8) -> io::Result<PortId>;
    /// umad_close_port(3).
    fn close_port(&self, id: PortId);
    /// The descriptor to poll; `None` if it exists only inside a simulator's preload.
    fn descriptor(&self, id: PortId) -> Option<RawFd>;
    /// Lets a simulated port receive requests; see [`super`].
    fn take_requests(&self, simulated: PortId) -> io::Result<()>;
    /// umad_get_port(3).
    fn port(&self, device: &CStr, port: u8) -> io::Result<PortAttributes>;
    /// umad_register(3): the agent's number. Bit n of `methods` is method n.
    fn register(
        &self,
        id: PortId,
        class: u8,
        class_version: u8,
        rmpp_version: u8,
        methods: u128,
    ) -> io::Result<u32>;
    /// umad_unregister(3).
    fn unregister(&self, id: PortId, agent: u32);
    /// umad_send(3), without retries. The buffer holds the header and the MAD.
    fn send(
        &self,
        id: PortId,
        agent: u32,
        buffer: &mut Buffer,
        timeout_ms: c_int,
    ) -> io::Result<()>;
    /// umad_recv(3): the agent's number and the MAD's bytes. 0 ms: at once. ENOSPC: the buffer is too
    /// small, the second value has the bytes that the MAD needs.
    fn receive(
        &self,
        id: PortId,
        buffer: &mut Buffer,
        timeout_ms: c_int,
    ) -> Result<(u32, usize), (io::Error, usize)>;
}

macro_rules! functions {
    ($(fn $name:ident($($type:ty),*) -> c_int;)*) => {
        /// The system's libibumad.
        pub struct Real {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
            // Never unloaded: threads may be inside.
            _library: ManuallyDrop<Loaded>,
        }

        impl Real {
            fn find_all(library: Loaded) -> Result<Real, UmadError> {
                // SAFETY: the signatures are those of `infiniband/umad.h`, and the library keeps them
                // (symbol version IBUMAD_1.0).
                unsafe {
                    Ok(Real {
                        $($name: match library.get(stringify!($name)) {
                            Ok(symbol) => *symbol,
                            Err(_) => {
                                return Err(UmadError::Lacking { function: stringify!($name) });
                            }
                        },)*
                        _library: ManuallyDrop::new(library),
                    })
                }
            }
        }
    };
}
functions! {
    fn umad_init() -> c_int;
    fn umad_get_cas_names(*mut [c_char; NAME_LENGTH], c_int) -> c_int;
    fn umad_open_port(*const c_char, c_int) -> c_int;
    fn umad_close_port(c_int) -> c_int;
    fn umad_get_fd(c_int) -> c_int;
    fn umad_get_port(*const c_char, c_int, *mut RawPort) -> c_int;
    fn umad_release_port(*mut RawPort) -> c_int;
    fn umad_register(c_int, c_int, c_int, u8, *mut c_long) -> c_int;
    fn umad_unregister(c_int, c_int) -> c_int;
    fn umad_send(c_int, c_int, *mut c_void, c_int, c_int, c_int) -> c_int;
    fn umad_recv(c_int, *mut c_void, *mut c_int, c_int) -> c_int;
}

impl Real {
    /// Returns the library, loaded at the first call. A missing library is tried again.
    ///
    /// # Errors
    /// [`UmadError::Absent`] or [`UmadError::Lacking`], which say what to install.
    pub fn load() -> Result<Arc<Real>, UmadError> {
        static LOADED: Mutex<Option<Arc<Real>>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = &*loaded {
            return Ok(library.clone());
        }
        // SAFETY: loading runs the library's constructors; libibumad has none.
        let library = unsafe { Loaded::open(Some(NAME), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|e| UmadError::Absent {
            reason: e.to_string(),
        })?;
        let library = Arc::new(Real::find_all(library)?);
        Ok(loaded.insert(library).clone())
    }
}

/// The error of a call that returned `result`: errno if the call set it, else the negated result.
fn failure(result: c_int) -> io::Error {
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(0) => io::Error::from_raw_os_error(result.saturating_neg()),
        e => e,
    }
}

fn clear_errno() {
    // SAFETY: errno has no safe setter. The pointer is to this thread's errno and always valid.
    unsafe { *libc::__errno_location() = 0 }
}

impl Library for Real {
    fn init(&self) -> io::Result<()> {
        clear_errno();
        // SAFETY: umad_init(3) has no requirements.
        match unsafe { (self.umad_init)() } {
            0.. => Ok(()),
            result => Err(failure(result)),
        }
    }

    fn devices(&self) -> Vec<String> {
        let mut names = [[0 as c_char; NAME_LENGTH]; MAX_DEVICES];
        // SAFETY: the library writes at most `MAX_DEVICES` names of `NAME_LENGTH` bytes.
        let count = unsafe { (self.umad_get_cas_names)(names.as_mut_ptr(), MAX_DEVICES as c_int) };
        let count = usize::try_from(count).unwrap_or(0);
        let known = names.iter().take(count).map(text);
        // Without any device, the library returns the name of an adapter of 2004.
        let invented = |name: &str| name == "mthca0" && !sysfs::has_device(name);
        known
            .filter(|name| !name.is_empty() && !invented(name))
            .collect()
    }

    fn open_port(&self, device: &CStr, port: u8) -> io::Result<PortId> {
        clear_errno();
        // SAFETY: `device` is a string with its NUL.
        match unsafe { (self.umad_open_port)(device.as_ptr(), port.into()) } {
            id @ 0.. => Ok(PortId(id)),
            // The library found no umad of that device and port; errno is from its search.
            result if result == -libc::EINVAL || result == -libc::ENODEV => {
                Err(io::Error::from_raw_os_error(libc::ENODEV))
            }
            result => Err(failure(result)),
        }
    }

    fn close_port(&self, id: PortId) {
        // SAFETY: `id` is a number of `umad_open_port`, which `Umad` closes once.
        unsafe { (self.umad_close_port)(id.0) };
    }

    fn descriptor(&self, id: PortId) -> Option<RawFd> {
        // SAFETY: `id` is an open port.
        let fd = unsafe { (self.umad_get_fd)(id.0) };
        // The preload does not answer this question for its descriptors, so the kernel does.
        // SAFETY: F_GETFD changes nothing and may be asked of any number.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        (flags >= 0).then_some(fd)
    }

    fn take_requests(&self, _: PortId) -> io::Result<()> {
        // The preload has one device, and handles libc's function only. The descriptor, which exists
        // only inside the preload, stays open until the program ends.
        // SAFETY: the path is a string with its NUL.
        match unsafe { libc::open(c"/dev/infiniband/issm0".as_ptr(), libc::O_RDONLY) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn port(&self, device: &CStr, port: u8) -> io::Result<PortAttributes> {
        // SAFETY: all zero is a valid value of the structure: integers and a pointer.
        let mut raw = unsafe { std::mem::zeroed::<RawPort>() };
        clear_errno();
        // SAFETY: `device` is a string with its NUL; the library fills the structure.
        match unsafe { (self.umad_get_port)(device.as_ptr(), port.into(), &mut raw) } {
            0.. => {}
            result => return Err(failure(result)),
        }
        let pkeys = match usize::try_from(raw.pkeys_size) {
            Ok(count) if !raw.pkeys.is_null() && count <= usize::from(u16::MAX) => {
                // SAFETY: the library allocated `pkeys_size` keys.
                let keys = unsafe { std::slice::from_raw_parts(raw.pkeys, count) };
                keys.iter().map(|&key| PKey::new(key)).collect()
            }
            _ => Vec::new(),
        };
        let attributes = PortAttributes {
            lid: Lid(raw.base_lid as u16),
            lmc: raw.lmc as u8,
            sm_lid: Lid(raw.sm_lid as u16),
            sm_sl: raw.sm_sl as u8,
            state: LinkState::from_number(raw.state),
            gid_prefix: raw.gid_prefix,
            guid: Guid(raw.port_guid),
            rate: raw.rate,
            capability_mask: u32::from_be_bytes(raw.capmask),
            infiniband: matches!(text(&raw.link_layer).as_str(), "InfiniBand" | "IB"),
            pkeys,
        };
        // SAFETY: umad_get_port(3) filled the structure; its table of keys is freed once.
        unsafe { (self.umad_release_port)(&mut raw) };
        Ok(attributes)
    }

    fn register(
        &self,
        id: PortId,
        class: u8,
        class_version: u8,
        rmpp_version: u8,
        methods: u128,
    ) -> io::Result<u32> {
        // The kernel reads four words of 32 bits, the lowest methods first (`ib_umad_reg_agent`).
        let mut mask: [u32; 4] = std::array::from_fn(|word| (methods >> (32 * word)) as u32);
        clear_errno();
        // SAFETY: `id` is an open port. The library copies 16 bytes of the mask as bytes, so their
        // alignment does not matter.
        let agent = unsafe {
            (self.umad_register)(
                id.0,
                class.into(),
                class_version.into(),
                rmpp_version,
                mask.as_mut_ptr().cast(),
            )
        };
        u32::try_from(agent).map_err(|_| failure(agent))
    }

    fn unregister(&self, id: PortId, agent: u32) {
        // SAFETY: `id` is an open port.
        unsafe { (self.umad_unregister)(id.0, agent as c_int) };
    }

    fn send(
        &self,
        id: PortId,
        agent: u32,
        buffer: &mut Buffer,
        timeout_ms: c_int,
    ) -> io::Result<()> {
        let length = c_int::try_from(buffer.mad_length())
            .map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        clear_errno();
        // SAFETY: `id` is an open port. The buffer has a header and `length` bytes, and the header's
        // alignment.
        let result = unsafe {
            (self.umad_send)(
                id.0,
                agent as c_int,
                buffer.as_mut_ptr(),
                length,
                timeout_ms,
                0,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(failure(result))
        }
    }

    fn receive(
        &self,
        id: PortId,
        buffer: &mut Buffer,
        timeout_ms: c_int,
    ) -> Result<(u32, usize), (io::Error, usize)> {
        let mut length = c_int::try_from(buffer.mad_length()).unwrap_or(c_int::MAX);
        clear_errno();
        // SAFETY: `id` is an open port. The library writes at most a header and `length` bytes, which
        // the buffer has.
        let agent = unsafe { (self.umad_recv)(id.0, buffer.as_mut_ptr(), &mut length, timeout_ms) };
        let length = usize::try_from(length).unwrap_or(0);
        match u32::try_from(agent) {
            Ok(agent) => Ok((agent, length.min(buffer.mad_length()))),
            Err(_) => Err((failure(agent), length)),
        }
    }
}

/// Waits until the port's descriptor or `stop` is readable; `true` for the port's.
///
/// # Errors
/// Those of poll(2).
pub fn wait_readable(port: RawFd, stop: BorrowedFd<'_>) -> Result<bool, Errno> {
    // SAFETY: the caller's thread ends before the port is closed.
    let port = unsafe { BorrowedFd::borrow_raw(port) };
    let mut both = [
        PollFd::from_borrowed_fd(port, PollFlags::IN),
        PollFd::from_borrowed_fd(stop, PollFlags::IN),
    ];
    poll(&mut both, None)?;
    Ok(!both[0].revents().is_empty())
}

/// The text of a field that ends at its first NUL, or at its end.
fn text(field: &[c_char; NAME_LENGTH]) -> String {
    let bytes = field.iter().map(|&c| c.cast_unsigned());
    let bytes: Vec<u8> = bytes.take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The name of a device for C; `None` if it has a NUL or is no device's name.
pub fn device_name(device: &str) -> Option<CString> {
    let fits = !device.is_empty() && device.len() < NAME_LENGTH && !device.contains('/');
    CString::new(device).ok().filter(|_| fits)
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::umad::message::Header;

    /// Sizes and places as a C compiler has them for rdma-core 44's `infiniband/umad.h`.
    #[test]
    fn structures_have_the_layout_of_umad_h() {
        assert_eq!(size_of::<RawPort>(), 112);
        let places = [
            (offset_of!(RawPort, portnum), 20),
            (offset_of!(RawPort, base_lid), 24),
            (offset_of!(RawPort, lmc), 28),
            (offset_of!(RawPort, sm_lid), 32),
            (offset_of!(RawPort, sm_sl), 36),
            (offset_of!(RawPort, state), 40),
            (offset_of!(RawPort, phys_state), 44),
            (offset_of!(RawPort, rate), 48),
            (offset_of!(RawPort, capmask), 52),
            (offset_of!(RawPort, gid_prefix), 56),
            (offset_of!(RawPort, port_guid), 64),
            (offset_of!(RawPort, pkeys_size), 72),
            (offset_of!(RawPort, pkeys), 80),
            (offset_of!(RawPort, link_layer), 88),
            (size_of::<Header>(), 64),
            (offset_of!(Header, qpn), 20),
            (offset_of!(Header, lid), 28),
            (offset_of!(Header, grh_present), 32),
            (offset_of!(Header, gid), 36),
            (offset_of!(Header, flow_label), 52),
            (offset_of!(Header, pkey_index), 56),
        ];
        for (place, expected) in places {
            assert_eq!(place, expected);
        }
    }
}
