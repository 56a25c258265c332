//! Identifiers: connections, and who listens for them.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use proto::{Gid, PKey, Qpn};

use super::address::{self, RawAddress};
use super::channel::EventChannel;
use super::event::CmKey;
use crate::verbs::ibv::call::{check, destroyed, lie, pointer};
use crate::verbs::ibv::state_change::{QueuePairState, StateChange};
use crate::verbs::sys::*;

/// What a request or a reply says about a connection's queue pair (rdma_connect(3)).
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParameters {
    /// Our queue pair.
    pub qpn: Qpn,
    /// It receives from a shared receive queue, and gives no credits.
    pub srq: bool,
    /// Retries after timeouts, up to 7. Of a request only.
    pub retry_count: u8,
    /// Retries while we have no receive posted, up to 6; 7 means for ever.
    pub rnr_retry: u8,
}

/// Between whom a connection is (rdma_cm_id, `route`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPath {
    /// Our GID.
    pub sgid: Gid,
    /// The peer's.
    pub dgid: Gid,
    /// The partition.
    pub pkey: PKey,
}

/// Private data that fits (rdma_connect(3), rdma_accept(3), rdma_reject(3), in RDMA_PS_TCP): the
/// library's own header takes 36 bytes of the 92 of a request.
const PRIVATE_DATA: (usize, usize, usize) = (56, 196, 148);

/// An identifier of communication management, in rdma_cm's port space for connections.
pub struct CmId {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: an identifier is used by its owner alone, in whichever thread that is.
unsafe impl Send for CmId {}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CmId({:#x})", self.raw.as_ptr() as usize)
    }
}

impl CmId {
    /// Makes one whose events come from `channel`.
    ///
    /// # Errors
    /// Those of rdma_create_id(3).
    pub fn new(channel: &Arc<EventChannel>) -> io::Result<CmId> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive; the pointer is to a pointer that lives over the call.
        check(unsafe {
            channel.library().rdma_create_id(
                channel.as_ptr(),
                &mut raw,
                ptr::null_mut(),
                RDMA_PS_TCP,
            )
        })?;
        let raw = pointer(raw)?;
        if channel.ids().contains(&(raw.as_ptr() as usize)) {
            return Err(lie("an identifier of a connection was made twice"));
        }
        Ok(CmId::adopt(channel, raw))
    }

    /// Takes over an identifier that has no owner.
    pub(super) fn adopt(channel: &Arc<EventChannel>, raw: NonNull<rdma_cm_id>) -> CmId {
        channel.ids().insert(raw.as_ptr() as usize);
        CmId {
            raw,
            channel: channel.clone(),
        }
    }

    fn library(&self) -> &dyn Library {
        self.channel.library()
    }

    fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// What events call it.
    pub fn key(&self) -> CmKey {
        CmKey(self.as_ptr() as usize)
    }

    /// Lets another one be bound to the same port while connections of this one are ending.
    ///
    /// # Errors
    /// Those of rdma_set_option(3).
    pub fn reuse_address(&self) -> io::Result<()> {
        self.set_option(RDMA_OPTION_ID_REUSEADDR, 1)
    }

    /// Of an IPv6 wildcard address: IPv4 is for another one.
    ///
    /// # Errors
    /// Those of rdma_set_option(3).
    pub fn ipv6_only(&self) -> io::Result<()> {
        self.set_option(RDMA_OPTION_ID_AFONLY, 1)
    }

    fn set_option(&self, name: u32, mut value: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive, the value is an int and lives over the call.
        check(unsafe {
            self.library().rdma_set_option(
                self.as_ptr(),
                RDMA_OPTION_ID.cast_signed(),
                name.cast_signed(),
                ptr::from_mut(&mut value).cast::<c_void>(),
                size_of::<c_int>(),
            )
        })
    }

    /// Binds it to a local address, and so to a device.
    ///
    /// # Errors
    /// Those of rdma_bind_addr(3): EADDRINUSE, EADDRNOTAVAIL, ENODEV.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = RawAddress::new(address);
        // SAFETY: the identifier is alive, the address lives over the call.
        check(unsafe {
            self.library()
                .rdma_bind_addr(self.as_ptr(), address.as_mut_ptr())
        })
    }

    /// Looks for the way to an address: `AddressResolved` or `AddressError` follows.
    ///
    /// # Errors
    /// Those of rdma_resolve_addr(3).
    pub fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<()> {
        let mut from = from.map(RawAddress::new);
        let mut to = RawAddress::new(to);
        let from = from
            .as_mut()
            .map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        // SAFETY: the identifier is alive, the addresses live over the call.
        check(unsafe {
            self.library().rdma_resolve_addr(
                self.as_ptr(),
                from,
                to.as_mut_ptr(),
                milliseconds(timeout),
            )
        })
    }

    /// Looks for the path: `RouteResolved` or `RouteError` follows.
    ///
    /// # Errors
    /// Those of rdma_resolve_route(3).
    pub fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe {
            self.library()
                .rdma_resolve_route(self.as_ptr(), milliseconds(timeout))
        })
    }

    /// Takes requests: `ConnectRequest` events follow.
    ///
    /// # Errors
    /// Those of rdma_listen(3).
    pub fn listen(&self, backlog: u16) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { self.library().rdma_listen(self.as_ptr(), backlog.into()) })
    }

    /// Asks for a connection, with at most 56 bytes of private data: `ConnectResponse`, `Rejected`,
    /// `Unreachable` or `ConnectError` follows.
    ///
    /// # Errors
    /// Those of rdma_connect(3); InvalidInput for more private data.
    pub fn connect(
        &self,
        parameters: &ConnectionParameters,
        private_data: &[u8],
    ) -> io::Result<()> {
        let mut raw = raw_parameters(parameters, private_data, PRIVATE_DATA.0)?;
        // SAFETY: the identifier is alive; parameters and private data live over the call.
        check(unsafe { self.library().rdma_connect(self.as_ptr(), &mut raw) })
    }

    /// Consents to a request, with at most 196 bytes of private data: `Established` follows.
    ///
    /// # Errors
    /// Those of rdma_accept(3); InvalidInput for more private data.
    pub fn accept(&self, parameters: &ConnectionParameters, private_data: &[u8]) -> io::Result<()> {
        let mut raw = raw_parameters(parameters, private_data, PRIVATE_DATA.1)?;
        // SAFETY: as in `connect`.
        check(unsafe { self.library().rdma_accept(self.as_ptr(), &mut raw) })
    }

    /// Rejects a request or a response, with at most 148 bytes of private data.
    ///
    /// # Errors
    /// Those of rdma_reject(3); InvalidInput for more private data.
    pub fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = private_length(private_data, PRIVATE_DATA.2)?;
        // SAFETY: the identifier is alive, the data lives over the call.
        check(unsafe {
            self.library()
                .rdma_reject(self.as_ptr(), private_data.as_ptr().cast(), length)
        })
    }

    /// Confirms a response.
    ///
    /// # Errors
    /// Those of rdma_establish(3); ENOSYS where the library lacks it.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { self.library().rdma_establish(self.as_ptr()) })
    }

    /// Tells the peer that it is over: `Disconnected` follows.
    ///
    /// # Errors
    /// Those of rdma_disconnect(3).
    pub fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { self.library().rdma_disconnect(self.as_ptr()) })
    }

    /// What gets our queue pair into a state, as the two sides have agreed.
    ///
    /// # Errors
    /// Those of rdma_init_qp_attr(3).
    pub fn state_change(&self, state: QueuePairState) -> io::Result<StateChange> {
        let mut change = StateChange::to(state);
        let mut mask: c_int = 0;
        // SAFETY: the identifier is alive, attributes and mask live over the call.
        check(unsafe {
            self.library()
                .rdma_init_qp_attr(self.as_ptr(), &mut change.attr, &mut mask)
        })?;
        change.mask = mask.cast_unsigned();
        // The library may say anything; the state is the one that was asked for.
        change.attr.qp_state = state.to_raw();
        change.mask |= IBV_QP_STATE;
        Ok(change)
    }

    /// Between whom the connection is; once the route is resolved, or of a request.
    pub fn path(&self) -> CmPath {
        // SAFETY: the identifier is alive. The union has one variant; all its members are integers.
        unsafe {
            let addr =
                ptr::addr_of!((*self.as_ptr()).route.addr.addr.ibaddr).cast::<rdma_ib_addr>();
            let addr = addr.read();
            CmPath {
                sgid: Gid(addr.sgid.raw),
                dgid: Gid(addr.dgid.raw),
                pkey: PKey::new(u16::from_be(addr.pkey)),
            }
        }
    }

    /// Our address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive; the union is as large as its largest variant.
        unsafe { address::read(ptr::addr_of!((*self.as_ptr()).route.addr.__bindgen_anon_1).cast()) }
    }

    /// The peer's address.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        unsafe { address::read(ptr::addr_of!((*self.as_ptr()).route.addr.__bindgen_anon_2).cast()) }
    }

    /// librdmacm's context of the device that it is bound to.
    pub(super) fn context(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: the identifier is alive.
        NonNull::new(unsafe { ptr::addr_of!((*self.as_ptr()).verbs).read() })
    }

    /// The device and port that it is bound to: the name, and the port from 1 on.
    pub fn device(&self) -> Option<(String, u8)> {
        let context = self.context()?;
        // SAFETY: the identifier is alive. Its context is librdmacm's own and lives as long as any
        // identifier that is bound to it; so does its device, whose name is a C string.
        unsafe {
            let device = NonNull::new(ptr::addr_of!((*context.as_ptr()).device).read())?;
            let name = self.library().ibv_get_device_name(device.as_ptr());
            if name.is_null() {
                return None;
            }
            let name = CStr::from_ptr(name).to_string_lossy().into_owned();
            Some((name, ptr::addr_of!((*self.as_ptr()).port_num).read()))
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // Its events are all acknowledged, or the call would wait for that. Nobody must find it among
        // the known ones when the library gives its memory to the next.
        self.channel.ids().remove(&(self.as_ptr() as usize));
        // SAFETY: it is destroyed once.
        let result = unsafe { self.library().rdma_destroy_id(self.as_ptr()) };
        destroyed("an identifier of a connection", result);
    }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

fn private_length(data: &[u8], max: usize) -> io::Result<u8> {
    u8::try_from(data.len())
        .ok()
        .filter(|_| data.len() <= max)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The result points to the private data.
fn raw_parameters(
    parameters: &ConnectionParameters,
    private_data: &[u8],
    max: usize,
) -> io::Result<rdma_conn_param> {
    Ok(rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_length(private_data, max)?,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry,
        srq: parameters.srq.into(),
        qp_num: parameters.qpn.get(),
    })
}
