//! The library table: one method for each used function.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::bindings::*;

/// Passes the list of the libraries' functions to another macro, which generates the trait, the table
/// of loaded functions, or a test's shim from it.
///
/// Four groups: functions of libibverbs; functions of either library that an old one may lack (they
/// fail with ENOSYS then); functions of librdmacm; and inline functions of `infiniband/verbs.h`, which
/// call through a context's table and exist in no library.
#[doc(hidden)]
#[macro_export]
macro_rules! verbs_functions {
    ($with:ident) => {
        $with! {
            libibverbs {
                /// ibv_get_device_list(3): NULL and errno.
                fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
                /// ibv_free_device_list(3).
                fn ibv_free_device_list(list: *mut *mut ibv_device) -> ();
                /// ibv_get_device_name(3).
                fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
                /// ibv_open_device(3): NULL and errno.
                fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
                /// ibv_close_device(3): -1 and errno.
                fn ibv_close_device(context: *mut ibv_context) -> c_int;
                /// ibv_query_device(3): errno as value.
                fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
                /// ibv_query_gid(3): -1 and errno.
                fn ibv_query_gid(
                    context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid
                ) -> c_int;
                /// ibv_query_pkey(3): -1 and errno. Big-endian.
                fn ibv_query_pkey(
                    context: *mut ibv_context, port: u8, index: c_int, pkey: *mut __be16
                ) -> c_int;
                /// ibv_get_async_event(3): -1 and errno.
                fn ibv_get_async_event(
                    context: *mut ibv_context, event: *mut ibv_async_event
                ) -> c_int;
                /// ibv_ack_async_event(3).
                fn ibv_ack_async_event(event: *mut ibv_async_event) -> ();
                /// ibv_alloc_pd(3): NULL and errno.
                fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
                /// ibv_dealloc_pd(3): errno as value.
                fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
                /// ibv_reg_mr(3): NULL and errno.
                fn ibv_reg_mr(
                    pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int
                ) -> *mut ibv_mr;
                /// ibv_dereg_mr(3): errno as value.
                fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
                /// ibv_create_comp_channel(3): NULL and errno.
                fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
                /// ibv_destroy_comp_channel(3): errno as value.
                fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
                /// ibv_create_cq(3): NULL and errno.
                fn ibv_create_cq(
                    context: *mut ibv_context,
                    cqe: c_int,
                    cq_context: *mut c_void,
                    channel: *mut ibv_comp_channel,
                    comp_vector: c_int
                ) -> *mut ibv_cq;
                /// ibv_destroy_cq(3): errno as value.
                fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
                /// ibv_get_cq_event(3): -1 and errno.
                fn ibv_get_cq_event(
                    channel: *mut ibv_comp_channel,
                    cq: *mut *mut ibv_cq,
                    cq_context: *mut *mut c_void
                ) -> c_int;
                /// ibv_ack_cq_events(3).
                fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) -> ();
                /// ibv_create_srq(3): NULL and errno.
                fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
                /// ibv_destroy_srq(3): errno as value.
                fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
                /// ibv_create_qp(3): NULL and errno.
                fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
                /// ibv_modify_qp(3): errno as value.
                fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
                /// ibv_query_qp(3): errno as value.
                fn ibv_query_qp(
                    qp: *mut ibv_qp,
                    attr: *mut ibv_qp_attr,
                    mask: c_int,
                    init: *mut ibv_qp_init_attr
                ) -> c_int;
                /// ibv_destroy_qp(3): errno as value.
                fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
                /// ibv_attach_mcast(3): errno as value.
                fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
                /// ibv_detach_mcast(3): errno as value.
                fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
                /// ibv_create_ah(3): NULL and errno.
                fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
                /// ibv_destroy_ah(3): errno as value.
                fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
            }
            optional {
                /// ibv_query_gid_ex(3), from rdma-core 31 on: errno as value.
                fn _ibv_query_gid_ex(
                    context: *mut ibv_context,
                    port: u32,
                    index: u32,
                    entry: *mut ibv_gid_entry,
                    flags: u32,
                    size: usize
                ) -> c_int;
                /// rdma_establish(3), from rdma-core 22 on: -1 and errno.
                fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
            }
            librdmacm {
                /// rdma_create_event_channel(3): NULL and errno.
                fn rdma_create_event_channel() -> *mut rdma_event_channel;
                /// rdma_destroy_event_channel(3).
                fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) -> ();
                /// rdma_create_id(3): -1 and errno.
                fn rdma_create_id(
                    channel: *mut rdma_event_channel,
                    id: *mut *mut rdma_cm_id,
                    context: *mut c_void,
                    space: rdma_port_space
                ) -> c_int;
                /// rdma_destroy_id(3): -1 and errno.
                fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
                /// rdma_set_option(3): -1 and errno.
                fn rdma_set_option(
                    id: *mut rdma_cm_id,
                    level: c_int,
                    name: c_int,
                    value: *mut c_void,
                    length: usize
                ) -> c_int;
                /// rdma_bind_addr(3): -1 and errno.
                fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int;
                /// rdma_resolve_addr(3): -1 and errno.
                fn rdma_resolve_addr(
                    id: *mut rdma_cm_id,
                    from: *mut libc::sockaddr,
                    to: *mut libc::sockaddr,
                    timeout_ms: c_int
                ) -> c_int;
                /// rdma_resolve_route(3): -1 and errno.
                fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
                /// rdma_listen(3): -1 and errno.
                fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
                /// rdma_connect(3): -1 and errno.
                fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
                /// rdma_accept(3): -1 and errno.
                fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
                /// rdma_reject(3): -1 and errno.
                fn rdma_reject(
                    id: *mut rdma_cm_id, private_data: *const c_void, length: u8
                ) -> c_int;
                /// rdma_disconnect(3): -1 and errno.
                fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
                /// rdma_init_qp_attr(3): -1 and errno.
                fn rdma_init_qp_attr(
                    id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int
                ) -> c_int;
                /// rdma_join_multicast(3): -1 and errno.
                fn rdma_join_multicast(
                    id: *mut rdma_cm_id, addr: *mut libc::sockaddr, context: *mut c_void
                ) -> c_int;
                /// rdma_leave_multicast(3): -1 and errno.
                fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int;
                /// rdma_get_cm_event(3): -1 and errno.
                fn rdma_get_cm_event(
                    channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event
                ) -> c_int;
                /// rdma_ack_cm_event(3): -1 and errno.
                fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
            }
            inline {
                /// ibv_query_port(3), all of it on libraries that extend the context: errno as value.
                fn ibv_query_port(
                    context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr
                ) -> c_int;
                /// ibv_query_device_ex(3): errno as value.
                fn ibv_query_device_ex(
                    context: *mut ibv_context, attr: *mut ibv_device_attr_ex
                ) -> c_int;
                /// ibv_modify_cq(3): errno as value.
                fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int;
                /// ibv_poll_cq(3): the number, or negative.
                fn ibv_poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int;
                /// ibv_req_notify_cq(3): errno as value.
                fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int;
                /// ibv_post_srq_recv(3): errno as value.
                fn ibv_post_srq_recv(
                    srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr
                ) -> c_int;
                /// ibv_post_recv(3): errno as value.
                fn ibv_post_recv(
                    qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr
                ) -> c_int;
                /// ibv_post_send(3): errno as value.
                fn ibv_post_send(
                    qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr
                ) -> c_int;
            }
        }
    };
}

macro_rules! declare {
    ($($group:ident { $(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;
    )* })*) => {
        /// The functions of libibverbs and librdmacm with C's conventions; each has its way to fail in
        /// its docstring. [`super::Real`] has the real ones.
        ///
        /// # Safety
        /// For every method: the requirements of its manual page. Pointers are valid for the call and
        /// come from the library where it made them, lengths are right, and nothing is used after its
        /// destruction.
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        pub trait Library: Send + Sync {
            $($(
                $(#[$doc])*
                unsafe fn $name(&self, $($arg: $type),*) -> $result;
            )*)*
        }
    };
}
verbs_functions!(declare);

/// Results of functions that fail.
pub trait Failing {
    /// The value for a failure; sets errno to `errno`.
    fn failing(errno: c_int) -> Self;
}

impl Failing for c_int {
    fn failing(errno: c_int) -> c_int {
        set_errno(errno);
        -1
    }
}

impl<T> Failing for *mut T {
    fn failing(errno: c_int) -> *mut T {
        set_errno(errno);
        std::ptr::null_mut()
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: errno has no safe setter. The pointer is to this thread's errno and always valid.
    unsafe { *libc::__errno_location() = errno }
}
