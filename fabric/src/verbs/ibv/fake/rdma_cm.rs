//! rdma_cm of the library: its peers accept every request at once, and joins succeed.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::{Fake, made};
use crate::verbs::sys::*;

/// An event of rdma_cm.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    /// The address of its id.
    id: usize,
    kind: rdma_cm_event_type,
    /// 0, or a negative errno.
    status: c_int,
    /// The context of a join.
    context: usize,
}

impl Happened {
    fn to(id: *mut rdma_cm_id, kind: rdma_cm_event_type, context: *mut c_void) -> Happened {
        Happened {
            id: id.addr(),
            kind,
            status: 0,
            context: context.addr(),
        }
    }

    /// The error of a join, or of a joined group.
    pub fn failed(self, errno: c_int) -> Happened {
        Happened {
            kind: RDMA_CM_EVENT_MULTICAST_ERROR,
            status: -errno,
            ..self
        }
    }
}

/// Something has happened to an id.
fn happened(fake: &Fake, id: *mut rdma_cm_id, kind: rdma_cm_event_type) -> c_int {
    let event = Happened::to(id, kind, ptr::null_mut());
    fake.device().cm_events.push_back(event);
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

pub unsafe fn rdma_join_multicast(
    fake: &Fake,
    id: *mut rdma_cm_id,
    _: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    let event = Happened::to(id, RDMA_CM_EVENT_MULTICAST_JOIN, context);
    let mut device = fake.device();
    if device.refuses_cm_groups {
        return Failing::failing(libc::EADDRNOTAVAIL);
    }
    device.cm_events.push_back(event);
    device.cm_joins.push(event);
    0
}

/// Ends the first join: tests have one group.
pub unsafe fn rdma_leave_multicast(
    fake: &Fake,
    _: *mut rdma_cm_id,
    _: *mut libc::sockaddr,
) -> c_int {
    let mut device = fake.device();
    assert!(!device.cm_joins.is_empty(), "a group that was not joined");
    device.cm_joins.remove(0);
    0
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
    let Some(happened) = fake.device().cm_events.pop_front() else {
        return Failing::failing(libc::EAGAIN);
    };
    let next: *mut rdma_cm_event = made();
    // SAFETY: it was made just now; the caller's pointer.
    unsafe {
        (*next).id = ptr::without_provenance_mut(happened.id);
        (*next).event = happened.kind;
        (*next).status = happened.status;
        (*next).param.conn.private_data = ptr::without_provenance(happened.context);
        *event = next;
    }
    0
}
