//! For tests without a device: a library with a device that exists here only.

#[allow(clippy::missing_safety_doc)]
mod device;
#[allow(clippy::missing_safety_doc)]
mod rdma_cm;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

use proto::Qpn;

use super::CompletionQueue;
use crate::verbs::lock;
use crate::verbs::sys::*;
use crate::verbs_functions;
pub use device::Device;

/// The posted work requests of all receive queues, and their remaining room.
#[derive(Debug, Default)]
pub struct Queue {
    /// Identifiers of the work requests, in order.
    pub names: Vec<u64>,
    /// Remaining room of the queue.
    pub takes: usize,
    /// A full queue reports a work request that is not in the list.
    pub lies: bool,
}

/// The library.
#[derive(Default)]
pub struct Fake(Mutex<Queue>, Mutex<Device>);

impl Fake {
    /// The queue of all receives.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }

    /// The device.
    pub fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.1)
    }

    /// Completes a work request of a queue pair. A receive has a GRH and a few bytes.
    pub fn complete(&self, to: &CompletionQueue, wr_id: u64, qpn: Qpn, status: ibv_wc_status) {
        let completion = ibv_wc {
            wr_id,
            status,
            qp_num: qpn.get(),
            byte_len: 44,
            ..super::completion::EMPTY
        };
        let queue = to.as_ptr().addr();
        self.device().completions.push((queue, completion));
    }

    /// A protection domain of this library.
    pub fn domain(self: &Arc<Self>) -> Arc<super::ProtectionDomain> {
        let library: Arc<dyn Library> = self.clone();
        let context = super::Context::open(&library, "fake").unwrap();
        super::ProtectionDomain::new(&context).unwrap()
    }

    /// Posts a list of receives.
    ///
    /// # Safety
    /// As for ibv_post_recv(3).
    unsafe fn receive(&self, list: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        let mut queue = self.queue();
        let mut next = list;
        while !next.is_null() {
            // SAFETY: the elements of the list are in the list's memory.
            let (wr, element) = unsafe { (&*next, &*(*next).sg_list) };
            assert_eq!(wr.num_sge, 1);
            assert!(element.length > 0 && element.addr != 0);
            if queue.takes == 0 {
                let full = match queue.lies {
                    true => ptr::without_provenance_mut(5),
                    false => next,
                };
                // SAFETY: the caller's pointer.
                unsafe { *bad = full };
                return libc::ENOMEM;
            }
            queue.takes -= 1;
            queue.names.push(wr.wr_id);
            next = wr.next;
        }
        0
    }
}

/// A structure of the library, all zero.
fn made<T>() -> *mut T {
    // SAFETY: all zero is a valid value of these structures: integers and pointers.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed() }))
}

macro_rules! fake {
    ($($group:ident { $(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;
    )* })*) => {
        impl Library for Fake {
            $($(fake!(@one $name ($($arg: $type),*) -> $result);)*)*
        }
    };
    (@one ibv_alloc_pd $($rest:tt)*) => { fake!(@makes ibv_alloc_pd $($rest)*); };
    (@one ibv_dealloc_pd $($rest:tt)*) => { fake!(@ends ibv_dealloc_pd $($rest)*); };
    (@one ibv_create_srq $($rest:tt)*) => { fake!(@makes ibv_create_srq $($rest)*); };
    (@one ibv_destroy_srq $($rest:tt)*) => { fake!(@ends ibv_destroy_srq $($rest)*); };
    (@one ibv_reg_mr $($rest:tt)*) => { fake!(@makes ibv_reg_mr $($rest)*); };
    (@one ibv_dereg_mr $($rest:tt)*) => { fake!(@ends ibv_dereg_mr $($rest)*); };
    (@one ibv_create_ah $($rest:tt)*) => { fake!(@makes ibv_create_ah $($rest)*); };
    (@one ibv_destroy_ah $($rest:tt)*) => { fake!(@ends ibv_destroy_ah $($rest)*); };
    (@one ibv_close_device $($rest:tt)*) => { fake!(@ends ibv_close_device $($rest)*); };
    (@one ibv_destroy_comp_channel $($rest:tt)*) => { fake!(@ends ibv_destroy_comp_channel $($rest)*); };
    (@one ibv_destroy_cq $($rest:tt)*) => { fake!(@ends ibv_destroy_cq $($rest)*); };
    (@one ibv_destroy_qp $($rest:tt)*) => { fake!(@device ibv_destroy_qp $($rest)*); };
    (@one ibv_req_notify_cq $($rest:tt)*) => { fake!(@succeeds ibv_req_notify_cq $($rest)*); };
    (@one ibv_modify_qp $($rest:tt)*) => { fake!(@device ibv_modify_qp $($rest)*); };
    (@one ibv_attach_mcast $($rest:tt)*) => { fake!(@device ibv_attach_mcast $($rest)*); };
    (@one ibv_detach_mcast $($rest:tt)*) => { fake!(@succeeds ibv_detach_mcast $($rest)*); };
    (@one ibv_get_device_list $($rest:tt)*) => { fake!(@device ibv_get_device_list $($rest)*); };
    (@one ibv_free_device_list $($rest:tt)*) => { fake!(@device ibv_free_device_list $($rest)*); };
    (@one ibv_get_device_name $($rest:tt)*) => { fake!(@device ibv_get_device_name $($rest)*); };
    (@one ibv_open_device $($rest:tt)*) => { fake!(@device ibv_open_device $($rest)*); };
    (@one ibv_query_device_ex $($rest:tt)*) => { fake!(@device ibv_query_device_ex $($rest)*); };
    (@one ibv_query_port $($rest:tt)*) => { fake!(@device ibv_query_port $($rest)*); };
    (@one _ibv_query_gid_ex $($rest:tt)*) => { fake!(@device _ibv_query_gid_ex $($rest)*); };
    (@one ibv_query_pkey $($rest:tt)*) => { fake!(@device ibv_query_pkey $($rest)*); };
    (@one ibv_get_async_event $($rest:tt)*) => { fake!(@device ibv_get_async_event $($rest)*); };
    (@one ibv_create_comp_channel $($rest:tt)*) => { fake!(@device ibv_create_comp_channel $($rest)*); };
    (@one ibv_get_cq_event $($rest:tt)*) => { fake!(@device ibv_get_cq_event $($rest)*); };
    (@one ibv_create_cq $($rest:tt)*) => { fake!(@device ibv_create_cq $($rest)*); };
    (@one ibv_poll_cq $($rest:tt)*) => { fake!(@device ibv_poll_cq $($rest)*); };
    (@one ibv_create_qp $($rest:tt)*) => { fake!(@device ibv_create_qp $($rest)*); };
    (@one ibv_query_qp $($rest:tt)*) => { fake!(@device ibv_query_qp $($rest)*); };
    (@one ibv_post_send $($rest:tt)*) => { fake!(@device ibv_post_send $($rest)*); };
    (@one rdma_create_event_channel $($rest:tt)*) => { fake!(@rdma_cm rdma_create_event_channel $($rest)*); };
    (@one rdma_create_id $($rest:tt)*) => { fake!(@rdma_cm rdma_create_id $($rest)*); };
    (@one rdma_resolve_addr $($rest:tt)*) => { fake!(@rdma_cm rdma_resolve_addr $($rest)*); };
    (@one rdma_resolve_route $($rest:tt)*) => { fake!(@rdma_cm rdma_resolve_route $($rest)*); };
    (@one rdma_connect $($rest:tt)*) => { fake!(@rdma_cm rdma_connect $($rest)*); };
    (@one rdma_join_multicast $($rest:tt)*) => { fake!(@rdma_cm rdma_join_multicast $($rest)*); };
    (@one rdma_leave_multicast $($rest:tt)*) => { fake!(@rdma_cm rdma_leave_multicast $($rest)*); };
    (@one rdma_init_qp_attr $($rest:tt)*) => { fake!(@rdma_cm rdma_init_qp_attr $($rest)*); };
    (@one rdma_get_cm_event $($rest:tt)*) => { fake!(@rdma_cm rdma_get_cm_event $($rest)*); };
    (@one rdma_establish $($rest:tt)*) => { fake!(@succeeds rdma_establish $($rest)*); };
    (@one rdma_disconnect $($rest:tt)*) => { fake!(@succeeds rdma_disconnect $($rest)*); };
    (@one rdma_destroy_id $($rest:tt)*) => { fake!(@ends rdma_destroy_id $($rest)*); };
    (@one rdma_ack_cm_event $($rest:tt)*) => { fake!(@ends rdma_ack_cm_event $($rest)*); };
    (@one rdma_destroy_event_channel $($rest:tt)*) => { fake!(@frees rdma_destroy_event_channel $($rest)*); };
    (@one ibv_post_recv ($_qp:ident: $qp:ty, $($rest:tt)*) -> $result:ty) => {
        fake!(@receives ibv_post_recv $qp);
    };
    (@one ibv_post_srq_recv ($_srq:ident: $srq:ty, $($rest:tt)*) -> $result:ty) => {
        fake!(@receives ibv_post_srq_recv $srq);
    };
    (@makes $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        unsafe fn $name(&self, $(_: $type),*) -> $result {
            made()
        }
    };
    (@ends $name:ident ($arg:ident: $type:ty) -> $result:ty) => {
        unsafe fn $name(&self, object: $type) -> $result {
            // SAFETY: `made` made it; it is freed once.
            drop(unsafe { Box::from_raw(object) });
            0
        }
    };
    (@frees $name:ident ($arg:ident: $type:ty) -> $result:ty) => {
        unsafe fn $name(&self, object: $type) -> $result {
            // SAFETY: `made` made it; it is freed once.
            drop(unsafe { Box::from_raw(object) });
        }
    };
    (@succeeds $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        unsafe fn $name(&self, $(_: $type),*) -> $result {
            0
        }
    };
    (@receives $name:ident $queue:ty) => {
        unsafe fn $name(
            &self, _: $queue, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr
        ) -> c_int {
            // SAFETY: the caller follows the manual page.
            unsafe { self.receive(wr, bad) }
        }
    };
    (@device $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        unsafe fn $name(&self, $($arg: $type),*) -> $result {
            // SAFETY: the caller follows the manual page.
            unsafe { device::$name(self, $($arg),*) }
        }
    };
    (@rdma_cm $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        unsafe fn $name(&self, $($arg: $type),*) -> $result {
            // SAFETY: the caller follows the manual page.
            unsafe { rdma_cm::$name(self, $($arg),*) }
        }
    };
    // All others fail.
    (@one $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        unsafe fn $name(&self, $(_: $type),*) -> $result {
            Nothing::nothing()
        }
    };
}
verbs_functions!(fake);

/// Results of functions that are not implemented.
trait Nothing {
    fn nothing() -> Self;
}
impl Nothing for () {
    fn nothing() {}
}
impl Nothing for c_int {
    fn nothing() -> c_int {
        Failing::failing(libc::ENOSYS)
    }
}
impl Nothing for __be16 {
    fn nothing() -> __be16 {
        0
    }
}
impl<T> Nothing for *mut T {
    fn nothing() -> *mut T {
        Failing::failing(libc::ENOSYS)
    }
}
