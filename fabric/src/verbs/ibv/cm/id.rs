//! Identifiers: connections and listeners.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use proto::{Gid, PKey, Qpn};

use super::address::{self, CmAddress, IbAddress, RawAddress};
use super::channel::EventChannel;
use super::event::CmKey;
use crate::verbs::ibv::call::{check, destroyed, invalid, pointer};
use crate::verbs::ibv::state_change::{QueuePairState, StateChange};
use crate::verbs::sys::*;

/// Parameters of the queue pair in a request or reply (rdma_connect(3)).
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParameters {
    /// Local queue pair.
    pub qpn: Qpn,
    /// The queue pair has a shared receive queue, and gives no credits.
    pub srq: bool,
    /// Retries after timeouts, up to 7. In requests only.
    pub retry_count: u8,
    /// Retries while this side has no receive posted, up to 6; 7: unlimited.
    pub rnr_retry: u8,
}

/// Addresses of a connection (rdma_cm_id, `route`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPath {
    /// Local GID.
    pub sgid: Gid,
    /// The peer's GID.
    pub dgid: Gid,
    /// The partition.
    pub pkey: PKey,
}

/// Maximum private data of rdma_accept(3) and rdma_reject(3).
const REPLY_DATA: usize = 196;
const REJECT_DATA: usize = 148;

/// The port space of an identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortSpace {
    /// RDMA_PS_TCP: IP addresses.
    Tcp,
    /// RDMA_PS_IB: GIDs and service ids.
    Ib,
    /// RDMA_PS_IPOIB: groups of the kernel's IPoIB.
    Ipoib,
}

impl PortSpace {
    /// The port space of an address.
    pub const fn of(address: &CmAddress) -> PortSpace {
        match address {
            CmAddress::Ip(_) => PortSpace::Tcp,
            CmAddress::Ib(_) => PortSpace::Ib,
        }
    }

    const fn to_raw(self) -> rdma_port_space {
        match self {
            PortSpace::Tcp => RDMA_PS_TCP,
            PortSpace::Ib => RDMA_PS_IB,
            PortSpace::Ipoib => RDMA_PS_IPOIB,
        }
    }

    /// Maximum private data of rdma_connect(3): in RDMA_PS_TCP the library's header takes 36 bytes.
    const fn request_data(self) -> usize {
        match self {
            PortSpace::Tcp => 56,
            PortSpace::Ib => 92,
            PortSpace::Ipoib => 0,
        }
    }
}

/// An rdma_cm identifier in a port space of connections.
pub struct CmId {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
    space: PortSpace,
}

// SAFETY: only its owner uses an identifier, in whichever thread that is.
unsafe impl Send for CmId {}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CmId({:#x})", self.raw.as_ptr() as usize)
    }
}

impl CmId {
    /// Creates an identifier with events on `channel`.
    ///
    /// # Errors
    /// Errors of rdma_create_id(3).
    pub fn new(channel: &Arc<EventChannel>) -> io::Result<CmId> {
        let space = channel.space();
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive; the pointer points to a pointer that outlives the call.
        check(unsafe {
            channel.library().rdma_create_id(
                channel.as_ptr(),
                &mut raw,
                ptr::null_mut(),
                space.to_raw(),
            )
        })?;
        let raw = pointer(raw)?;
        if channel.ids().contains(&(raw.as_ptr() as usize)) {
            return Err(invalid(
                "rdma_create_id returned an identifier that is in use",
            ));
        }
        Ok(CmId::adopt(channel, raw, space))
    }

    /// Takes ownership of an identifier without an owner.
    pub(super) fn adopt(
        channel: &Arc<EventChannel>,
        raw: NonNull<rdma_cm_id>,
        space: PortSpace,
    ) -> CmId {
        channel.ids().insert(raw.as_ptr() as usize);
        CmId {
            raw,
            channel: channel.clone(),
            space,
        }
    }

    fn library(&self) -> &dyn Library {
        self.channel.library()
    }

    fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Identifier in events.
    pub fn key(&self) -> CmKey {
        CmKey(self.as_ptr() as usize)
    }

    /// Allows another identifier to bind the same port number while connections of this one are ending.
    ///
    /// # Errors
    /// Errors of rdma_set_option(3).
    pub fn reuse_address(&self) -> io::Result<()> {
        self.set_option(RDMA_OPTION_ID_REUSEADDR, 1)
    }

    /// Excludes IPv4 from an IPv6 wildcard address.
    ///
    /// # Errors
    /// Errors of rdma_set_option(3).
    pub fn ipv6_only(&self) -> io::Result<()> {
        self.set_option(RDMA_OPTION_ID_AFONLY, 1)
    }

    fn set_option(&self, name: u32, mut value: c_int) -> io::Result<()> {
        // SAFETY: the identifier is alive, the value is an int and outlives the call.
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

    /// Binds it to a local address and so to a device.
    ///
    /// # Errors
    /// Errors of rdma_bind_addr(3): EADDRINUSE, EADDRNOTAVAIL, ENODEV.
    pub fn bind(&self, address: CmAddress) -> io::Result<()> {
        let mut address = RawAddress::new(address);
        // SAFETY: the identifier is alive, the address outlives the call.
        check(unsafe {
            self.library()
                .rdma_bind_addr(self.as_ptr(), address.as_mut_ptr())
        })
    }

    /// Joins a group: `MulticastJoin` or `MulticastError` follows with `context`.
    ///
    /// # Errors
    /// Errors of rdma_join_multicast(3).
    pub fn join_multicast(&self, group: IbAddress, context: usize) -> io::Result<()> {
        let mut address = RawAddress::new(CmAddress::Ib(group));
        // SAFETY: the identifier is alive, the address outlives the call; the context is a number, which
        // the library only passes on.
        check(unsafe {
            self.library().rdma_join_multicast(
                self.as_ptr(),
                address.as_mut_ptr(),
                ptr::without_provenance_mut(context),
            )
        })
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// Errors of rdma_leave_multicast(3).
    pub fn leave_multicast(&self, group: IbAddress) -> io::Result<()> {
        let mut address = RawAddress::new(CmAddress::Ib(group));
        // SAFETY: the identifier is alive, the address outlives the call.
        check(unsafe {
            self.library()
                .rdma_leave_multicast(self.as_ptr(), address.as_mut_ptr())
        })
    }

    /// Resolves an address: `AddressResolved` or `AddressError` follows.
    ///
    /// # Errors
    /// Errors of rdma_resolve_addr(3).
    pub fn resolve_address(
        &self,
        from: Option<CmAddress>,
        to: CmAddress,
        timeout: Duration,
    ) -> io::Result<()> {
        let mut from = from.map(RawAddress::new);
        let mut to = RawAddress::new(to);
        let from = from
            .as_mut()
            .map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        // SAFETY: the identifier is alive, the addresses outlive the call.
        check(unsafe {
            self.library().rdma_resolve_addr(
                self.as_ptr(),
                from,
                to.as_mut_ptr(),
                milliseconds(timeout),
            )
        })
    }

    /// Resolves the route: `RouteResolved` or `RouteError` follows.
    ///
    /// # Errors
    /// Errors of rdma_resolve_route(3).
    pub fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe {
            self.library()
                .rdma_resolve_route(self.as_ptr(), milliseconds(timeout))
        })
    }

    /// Accepts requests: `ConnectRequest` events follow.
    ///
    /// # Errors
    /// Errors of rdma_listen(3).
    pub fn listen(&self, backlog: u16) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { self.library().rdma_listen(self.as_ptr(), backlog.into()) })
    }

    /// Requests a connection with private data of at most 92 bytes, or 56 in RDMA_PS_TCP: `ConnectResponse`, `Rejected`,
    /// `Unreachable` or `ConnectError` follows.
    ///
    /// # Errors
    /// Errors of rdma_connect(3); InvalidInput for more private data.
    pub fn connect(
        &self,
        parameters: &ConnectionParameters,
        private_data: &[u8],
    ) -> io::Result<()> {
        let mut raw = raw_parameters(parameters, private_data, self.space.request_data())?;
        // SAFETY: the identifier is alive; parameters and private data outlive the call.
        check(unsafe { self.library().rdma_connect(self.as_ptr(), &mut raw) })
    }

    /// Accepts a request with at most 196 bytes of private data: `Established` follows.
    ///
    /// # Errors
    /// Errors of rdma_accept(3); InvalidInput for more private data.
    pub fn accept(&self, parameters: &ConnectionParameters, private_data: &[u8]) -> io::Result<()> {
        let mut raw = raw_parameters(parameters, private_data, REPLY_DATA)?;
        // SAFETY: as in `connect`.
        check(unsafe { self.library().rdma_accept(self.as_ptr(), &mut raw) })
    }

    /// Rejects a request or a response, with at most 148 bytes of private data.
    ///
    /// # Errors
    /// Errors of rdma_reject(3); InvalidInput for more private data.
    pub fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = private_length(private_data, REJECT_DATA)?;
        // SAFETY: the identifier is alive, the data outlives the call.
        check(unsafe {
            self.library()
                .rdma_reject(self.as_ptr(), private_data.as_ptr().cast(), length)
        })
    }

    /// Confirms a response.
    ///
    /// # Errors
    /// Errors of rdma_establish(3); ENOSYS if the library lacks it.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { self.library().rdma_establish(self.as_ptr()) })
    }

    /// Disconnects: `Disconnected` follows.
    ///
    /// # Errors
    /// Errors of rdma_disconnect(3).
    pub fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { self.library().rdma_disconnect(self.as_ptr()) })
    }

    /// The change of the local queue pair to a state, as both sides have agreed.
    ///
    /// # Errors
    /// Errors of rdma_init_qp_attr(3).
    pub fn state_change(&self, state: QueuePairState) -> io::Result<StateChange> {
        let mut change = StateChange::to(state);
        let mut mask: c_int = 0;
        // SAFETY: the identifier is alive, attributes and mask outlive the call.
        check(unsafe {
            self.library()
                .rdma_init_qp_attr(self.as_ptr(), &mut change.attr, &mut mask)
        })?;
        change.mask = mask.cast_unsigned();
        // The library's state is not trusted; the requested one is used.
        change.attr.qp_state = state.to_raw();
        change.mask |= IBV_QP_STATE;
        Ok(change)
    }

    /// Addresses of the connection; valid in requests, or after the route is resolved.
    pub fn path(&self) -> CmPath {
        // SAFETY: the identifier is alive. The union has one variant, whose members are integers.
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

    /// The local address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive; the union is as large as its largest variant.
        unsafe { address::read(ptr::addr_of!((*self.as_ptr()).route.addr.__bindgen_anon_1).cast()) }
    }

    /// librdmacm's context of the bound device.
    pub(super) fn context(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: the identifier is alive.
        NonNull::new(unsafe { ptr::addr_of!((*self.as_ptr()).verbs).read() })
    }

    /// Name of the bound device, and port number from 1.
    pub fn device(&self) -> Option<(String, u8)> {
        let context = self.context()?;
        // SAFETY: the identifier is alive. librdmacm owns its context, which lives as long as any
        // identifier bound to it; so does its device, whose name is a C string.
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
        // All its events are acknowledged, otherwise the call would wait. Remove it from the known
        // identifiers first: the library may reuse its memory for the next.
        self.channel.ids().remove(&(self.as_ptr() as usize));
        // SAFETY: it is destroyed once.
        let result = unsafe { self.library().rdma_destroy_id(self.as_ptr()) };
        destroyed("an rdma_cm identifier", result);
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

/// The result points into the private data.
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
