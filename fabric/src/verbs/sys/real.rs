//! The libraries of the system, loaded at run time.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::ptr;
use std::sync::{Arc, Mutex};

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use super::bindings::*;
use super::library::{Failing, Library};
use crate::verbs::lock;
use crate::verbs_functions;

/// `infiniband/verbs_api.h`, `__VERBS_ABI_IS_EXTENDED`: the context is part of a `verbs_context`.
const ABI_IS_EXTENDED: usize = usize::MAX;

/// Why a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is not installed.
    #[error(
        "cannot load {library} ({reason}): install rdma-core's libraries, on Debian: apt-get install \
         libibverbs1 librdmacm1 ibverbs-providers"
    )]
    Absent {
        /// `libibverbs.so.1`.
        library: &'static str,
        /// The loader's error.
        reason: String,
    },
    /// The library is too old.
    #[error("{library} has no function {function}: install rdma-core 22 or later")]
    Lacking {
        /// `libibverbs.so.1`.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
}

/// A shared library and its name.
struct Shared {
    name: &'static str,
    handle: Loaded,
}

impl Shared {
    fn open(name: &'static str) -> Result<Shared, LoadError> {
        // SAFETY: loading runs the library's constructors. Those of rdma-core's libraries, with these
        // names since 2005, have no requirements.
        match unsafe { Loaded::open(Some(name), RTLD_NOW | RTLD_LOCAL) } {
            Ok(handle) => Ok(Shared { name, handle }),
            Err(error) => Err(LoadError::Absent {
                library: name,
                reason: error.to_string(),
            }),
        }
    }

    /// Finds the default version of a function, as for a program linked to the library.
    ///
    /// # Safety
    /// `T` is a function pointer type with the function's signature.
    unsafe fn find<T: Copy>(&self, function: &'static str) -> Result<T, LoadError> {
        // SAFETY: the caller guarantees the type.
        match unsafe { self.handle.get::<T>(function) } {
            Ok(symbol) => Ok(*symbol),
            Err(_) => Err(LoadError::Lacking {
                library: self.name,
                function,
            }),
        }
    }
}

macro_rules! table {
    (
        libibverbs { $($(#[$vdoc:meta])* fn $v:ident($($va:ident: $vt:ty),*) -> $vr:ty;)* }
        optional { $($(#[$odoc:meta])* fn $o:ident($($oa:ident: $ot:ty),*) -> $or:ty;)* }
        librdmacm { $($(#[$cdoc:meta])* fn $c:ident($($ca:ident: $ct:ty),*) -> $cr:ty;)* }
        inline { $($(#[$idoc:meta])* fn $i:ident($($ia:ident: $it:ty),*) -> $ir:ty;)* }
    ) => {
        /// The system's libibverbs and librdmacm.
        pub struct Real {
            $($v: unsafe extern "C" fn($($vt),*) -> $vr,)*
            $($o: Option<unsafe extern "C" fn($($ot),*) -> $or>,)*
            $($c: unsafe extern "C" fn($($ct),*) -> $cr,)*
            // The fallback of the inline function, like `_compat_query_port`.
            compat_query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
            // Never unloaded: the providers loaded by libibverbs do not support it.
            _libraries: [ManuallyDrop<Loaded>; 2],
        }

        impl Real {
            fn find_all(verbs: Shared, cm: Shared) -> Result<Real, LoadError> {
                // SAFETY: the signatures come from rdma-core's headers, with functions and types of the
                // same release; the libraries keep them (symbol versions).
                unsafe {
                    Ok(Real {
                        $($v: verbs.find(stringify!($v))?,)*
                        $($o: verbs.find(stringify!($o)).or_else(|_| cm.find(stringify!($o))).ok(),)*
                        $($c: cm.find(stringify!($c))?,)*
                        compat_query_port: verbs.find("ibv_query_port")?,
                        _libraries: [ManuallyDrop::new(verbs.handle), ManuallyDrop::new(cm.handle)],
                    })
                }
            }
        }

        impl Library for Real {
            $(unsafe fn $v(&self, $($va: $vt),*) -> $vr {
                // SAFETY: the caller follows the manual page.
                unsafe { (self.$v)($($va),*) }
            })*
            $(unsafe fn $o(&self, $($oa: $ot),*) -> $or {
                match self.$o {
                    // SAFETY: the caller follows the manual page.
                    Some(function) => unsafe { function($($oa),*) },
                    None => Failing::failing(libc::ENOSYS),
                }
            })*
            $(unsafe fn $c(&self, $($ca: $ct),*) -> $cr {
                // SAFETY: the caller follows the manual page.
                unsafe { (self.$c)($($ca),*) }
            })*
            $(unsafe fn $i(&self, $($ia: $it),*) -> $ir {
                // SAFETY: the caller follows the manual page.
                unsafe { inline::$i(self, $($ia),*) }
            })*
        }
    };
}
verbs_functions!(table);

impl Real {
    /// Returns the libraries, loaded at the first call. A missing library is tried again.
    ///
    /// # Errors
    /// [`LoadError`] that says what to install.
    pub fn load() -> Result<Arc<Real>, LoadError> {
        static LOADED: Mutex<Option<Arc<Real>>> = Mutex::new(None);
        let mut loaded = lock(&LOADED);
        if let Some(library) = &*loaded {
            return Ok(library.clone());
        }
        let verbs = Shared::open("libibverbs.so.1")?;
        let cm = Shared::open("librdmacm.so.1")?;
        let library = Arc::new(Real::find_all(verbs, cm)?);
        Ok(loaded.insert(library).clone())
    }
}

/// The inline functions of `infiniband/verbs.h`.
mod inline {
    use super::*;

    /// The extended context around `context` if it has the member at `offset`. The structure grows at
    /// its beginning, so members are counted from its end.
    unsafe fn extended(context: *mut ibv_context, offset: usize) -> Option<*mut verbs_context> {
        // SAFETY: the library made the caller's context. `abi_compat` says whether it is the last
        // member of a `verbs_context`, and `sz` how much of that exists.
        unsafe {
            if (*context).abi_compat as usize != ABI_IS_EXTENDED {
                return None;
            }
            let around = context
                .byte_sub(offset_of!(verbs_context, context))
                .cast::<verbs_context>();
            let there = ptr::addr_of!((*around).sz).read();
            (there >= size_of::<verbs_context>() - offset).then_some(around)
        }
    }

    pub unsafe fn ibv_query_port(
        real: &Real,
        context: *mut ibv_context,
        port: u8,
        attr: *mut ibv_port_attr,
    ) -> c_int {
        // SAFETY: the caller follows the manual page; the member is read only if it exists.
        unsafe {
            let extended = extended(context, offset_of!(verbs_context, query_port));
            match extended.and_then(|e| ptr::addr_of!((*e).query_port).read()) {
                Some(query) => query(context, port, attr, size_of::<ibv_port_attr>()),
                None => {
                    // The old function fills only the first part.
                    attr.write_bytes(0, 1);
                    (real.compat_query_port)(context, port, attr)
                }
            }
        }
    }

    pub unsafe fn ibv_query_device_ex(
        real: &Real,
        context: *mut ibv_context,
        attr: *mut ibv_device_attr_ex,
    ) -> c_int {
        // SAFETY: as above.
        unsafe {
            let extended = extended(context, offset_of!(verbs_context, query_device_ex));
            attr.write_bytes(0, 1);
            if let Some(query) = extended.and_then(|e| ptr::addr_of!((*e).query_device_ex).read()) {
                let result = query(context, ptr::null(), attr, size_of::<ibv_device_attr_ex>());
                if result != libc::EOPNOTSUPP && result != libc::ENOSYS {
                    return result;
                }
            }
            (real.ibv_query_device)(context, ptr::addr_of_mut!((*attr).orig_attr))
        }
    }

    pub unsafe fn ibv_modify_cq(_: &Real, cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
        // SAFETY: as above.
        unsafe {
            let extended = extended((*cq).context, offset_of!(verbs_context, modify_cq));
            match extended.and_then(|e| ptr::addr_of!((*e).modify_cq).read()) {
                Some(modify) => modify(cq, attr),
                None => libc::EOPNOTSUPP,
            }
        }
    }

    macro_rules! through_ops {
        ($name:ident, $op:ident, $object:ty $(, $arg:ident: $type:ty)*) => {
            pub unsafe fn $name(_: &Real, object: *mut $object $(, $arg: $type)*) -> c_int {
                // SAFETY: the library made the caller's object; its context's table holds the functions
                // of the device's driver.
                unsafe {
                    match (*(*object).context).ops.$op {
                        Some(function) => function(object $(, $arg)*),
                        None => libc::EOPNOTSUPP,
                    }
                }
            }
        };
    }
    through_ops!(ibv_req_notify_cq, req_notify_cq, ibv_cq, solicited_only: c_int);
    through_ops!(ibv_post_srq_recv, post_srq_recv, ibv_srq, wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr);
    through_ops!(ibv_post_recv, post_recv, ibv_qp, wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr);
    through_ops!(ibv_post_send, post_send, ibv_qp, wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr);

    pub unsafe fn ibv_poll_cq(_: &Real, cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: as above.
        unsafe {
            match (*(*cq).context).ops.poll_cq {
                Some(function) => function(cq, count, wc),
                None => -1,
            }
        }
    }
}
