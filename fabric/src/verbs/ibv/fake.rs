//! For tests without a device: a library with fake protection domains, memory regions and shared
//! receive queues, which accepts receives.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::verbs::lock;
use crate::verbs::sys::*;
use crate::verbs_functions;

/// The posted work requests of a queue, and its remaining room.
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
pub struct Fake(Mutex<Queue>);

impl Fake {
    /// The queue of all receives.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }

    /// A protection domain of this library.
    pub fn domain(self: &Arc<Self>) -> Arc<super::ProtectionDomain> {
        let library: Arc<dyn Library> = self.clone();
        // SAFETY: all zero is a valid value of the structure: integers and pointers. It is never freed.
        let context = Box::leak(Box::new(unsafe { std::mem::zeroed::<ibv_context>() }));
        let context = super::Context::of(library, NonNull::from(context));
        super::ProtectionDomain::new(&Arc::new(context)).unwrap()
    }
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
    (@one ibv_close_device $($rest:tt)*) => { fake!(@ends ibv_close_device ibv_context); };
    (@one ibv_dealloc_pd $($rest:tt)*) => { fake!(@ends ibv_dealloc_pd ibv_pd); };
    (@one ibv_destroy_srq $($rest:tt)*) => { fake!(@ends ibv_destroy_srq ibv_srq); };
    (@ends $name:ident $object:ty) => {
        unsafe fn $name(&self, _: *mut $object) -> c_int {
            0
        }
    };
    (@one ibv_alloc_pd $($rest:tt)*) => {
        unsafe fn ibv_alloc_pd(&self, _: *mut ibv_context) -> *mut ibv_pd {
            NonNull::dangling().as_ptr()
        }
    };
    (@one ibv_create_srq $($rest:tt)*) => {
        unsafe fn ibv_create_srq(&self, _: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
            NonNull::dangling().as_ptr()
        }
    };
    (@one ibv_reg_mr $($rest:tt)*) => {
        unsafe fn ibv_reg_mr(&self, _: *mut ibv_pd, _: *mut c_void, _: usize, _: c_int) -> *mut ibv_mr {
            // SAFETY: as for the context.
            Box::into_raw(Box::new(unsafe { std::mem::zeroed::<ibv_mr>() }))
        }
    };
    (@one ibv_dereg_mr $($rest:tt)*) => {
        unsafe fn ibv_dereg_mr(&self, mr: *mut ibv_mr) -> c_int {
            // SAFETY: `ibv_reg_mr` above made it; it is freed once.
            drop(unsafe { Box::from_raw(mr) });
            0
        }
    };
    (@one ibv_post_srq_recv $($rest:tt)*) => {
        unsafe fn ibv_post_srq_recv(
            &self, _: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr
        ) -> c_int {
            let mut queue = self.queue();
            let mut next = wr;
            while !next.is_null() {
                // SAFETY: a list as ibv_post_srq_recv(3) requires; its elements are in the list's
                // memory.
                let (wr, element) = unsafe { (&*next, &*(*next).sg_list) };
                assert_eq!(wr.num_sge, 1);
                assert!(element.length > 0 && element.addr != 0);
                if queue.takes == 0 {
                    let full = if queue.lies { ptr::without_provenance_mut(5) } else { next };
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
    };
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
impl<T> Nothing for *const T {
    fn nothing() -> *const T {
        ptr::null()
    }
}
