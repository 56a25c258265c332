//! Address handles.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use proto::{Gid, Lid};

use super::call::{destroyed, pointer};
use super::context::ProtectionDomain;
use crate::verbs::sys::*;

/// Attributes of an address handle (ibv_create_ah(3)).
#[derive(Clone, Copy, Debug)]
pub struct AhInit {
    /// Number of the sending port.
    pub port: u8,
    /// The destination GID; makes packets carry a GRH. `None` is possible on InfiniBand only.
    pub dgid: Option<Gid>,
    /// Index of the source GID.
    pub sgid_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// The destination's LID, on InfiniBand.
    pub dlid: Lid,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// The low bits of the source LID, on InfiniBand with an LMC.
    pub source_path_bits: u8,
    /// The static rate as `enum ibv_rate`, which has the codes of the IBA's records; 0: the port's rate.
    pub static_rate: u8,
}

impl AhInit {
    pub(super) fn to_raw(self) -> ibv_ah_attr {
        let dgid = self.dgid.unwrap_or(Gid::UNSPECIFIED);
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: dgid.0 },
                flow_label: self.flow_label & 0xf_ffff,
                sgid_index: self.sgid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
            },
            dlid: self.dlid.0,
            sl: self.sl,
            src_path_bits: self.source_path_bits,
            static_rate: self.static_rate,
            is_global: self.dgid.is_some().into(),
            port_num: self.port,
        }
    }
}

/// An address handle.
#[derive(Debug)]
pub struct AddressHandle {
    raw: NonNull<ibv_ah>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for `Context`.
unsafe impl Send for AddressHandle {}
// SAFETY: as for `Context`.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// Creates an address handle. On RoCE the kernel resolves the destination's MAC, which may take
    /// seconds.
    ///
    /// # Errors
    /// Errors of ibv_create_ah(3): ETIMEDOUT or EHOSTUNREACH when no host has the address.
    pub fn new(domain: &Arc<ProtectionDomain>, init: &AhInit) -> io::Result<AddressHandle> {
        let mut raw = MaybeUninit::new(init.to_raw());
        // SAFETY: the protection domain is alive; the attributes outlive the call.
        let raw = pointer(unsafe {
            domain
                .context()
                .library()
                .ibv_create_ah(domain.as_ptr(), raw.as_mut_ptr())
        })?;
        Ok(AddressHandle {
            raw,
            domain: domain.clone(),
        })
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; posting borrows it, so no call uses it now.
        let result = unsafe {
            self.domain
                .context()
                .library()
                .ibv_destroy_ah(self.as_ptr())
        };
        destroyed("an address handle", result);
    }
}
