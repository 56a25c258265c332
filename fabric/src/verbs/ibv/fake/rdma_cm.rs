//! rdma_cm of the library: its peers accept every request at once.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::{Fake, made};
use crate::verbs::sys::*;

/// Something has happened to an id.
fn happened(fake: &Fake, id: *mut rdma_cm_id, event: rdma_cm_event_type) -> c_int {
    fake.device().cm_events.push_back((id.addr(), event));
    0
}

pub unsafe fn rdma_create_event_channel(fake: &Fake) -> *mut rdma_event_channel {
    let called = fake.device().at_rdma_cm.take();
    if let Some(called) = called {
        called();
    }
    let channel: *mut rdma_event_channel = made();
    // SAFETY: it was made just now.
    unsafe { (*channel).fd = fake.device().descriptor() };
    channel
}

pub unsafe fn rdma_create_id(
    _: &Fake,
    _: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    _: *mut c_void,
    _: rdma_port_space,
) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { *id = made() };
    0
}

pub unsafe fn rdma_resolve_addr(
    fake: &Fake,
    id: *mut rdma_cm_id,
    _: *mut libc::sockaddr,
    _: *mut libc::sockaddr,
    _: c_int,
) -> c_int {
    happened(fake, id, RDMA_CM_EVENT_ADDR_RESOLVED)
}

pub unsafe fn rdma_resolve_route(fake: &Fake, id: *mut rdma_cm_id, _: c_int) -> c_int {
    happened(fake, id, RDMA_CM_EVENT_ROUTE_RESOLVED)
}

pub unsafe fn rdma_connect(fake: &Fake, id: *mut rdma_cm_id, _: *mut rdma_conn_param) -> c_int {
    happened(fake, id, RDMA_CM_EVENT_CONNECT_RESPONSE)
}

pub unsafe fn rdma_init_qp_attr(
    _: &Fake,
    _: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's pointers.
    let (attr, mask) = unsafe { (&mut *attr, &mut *mask) };
    attr.ah_attr.is_global = 1;
    attr.path_mtu = IBV_MTU_2048;
    attr.dest_qp_num = 7;
    *mask = (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN).cast_signed();
    0
}

pub unsafe fn rdma_get_cm_event(
    fake: &Fake,
    _: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let Some((id, kind)) = fake.device().cm_events.pop_front() else {
        return Failing::failing(libc::EAGAIN);
    };
    let next: *mut rdma_cm_event = made();
    // SAFETY: it was made just now; the caller's pointer.
    unsafe {
        (*next).id = ptr::without_provenance_mut(id);
        (*next).event = kind;
        *event = next;
    }
    0
}
