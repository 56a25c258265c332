//! Registered memory, cut into places with one owner each.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::call::{destroyed, pointer};
use super::context::ProtectionDomain;
use crate::verbs::sys::*;

/// Anonymous memory, page aligned and zero.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses the address; no existing mapping is replaced.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start, len };
        // SAFETY: the range was mapped above. A child of fork(2) does not need it; after copy-on-write
        // the parent would have other pages than the device (ibv_fork_init(3)).
        unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontFork)? };
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the range; all users of a part held its region.
        if let Err(e) = unsafe { munmap(self.start.as_ptr().cast(), self.len) } {
            log::warn!("verbs: cannot unmap {} bytes: {e}", self.len);
        }
    }
}

/// Memory for receives and sends of the queue pairs of a protection domain.
pub struct MemoryRegion {
    mapping: Option<Mapping>,
    raw: NonNull<ibv_mr>,
    lkey: u32,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for `Context`; the memory itself is accessed through `Place`s only, which do not overlap.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Maps and registers `len` bytes. They stay in memory (mlock(2)) for the lifetime of the region.
    ///
    /// # Errors
    /// Errors of mmap(2) and ibv_reg_mr(3): ENOMEM also if RLIMIT_MEMLOCK is too small.
    pub fn new(domain: &Arc<ProtectionDomain>, len: usize) -> io::Result<MemoryRegion> {
        let mapping = Mapping::new(len.max(1))?;
        // SAFETY: the range stays mapped until the region is deregistered.
        let raw = pointer(unsafe {
            domain.context().library().ibv_reg_mr(
                domain.as_ptr(),
                mapping.start.as_ptr().cast(),
                mapping.len,
                IBV_ACCESS_LOCAL_WRITE.cast_signed(),
            )
        })?;
        // SAFETY: the library made the region just now; its key never changes.
        let lkey = unsafe { ptr::addr_of!((*raw.as_ptr()).lkey).read() };
        Ok(MemoryRegion {
            mapping: Some(mapping),
            raw,
            lkey,
            domain: domain.clone(),
        })
    }

    /// Cuts the region into places of `len` bytes. Returns them with the number of their pool, which is
    /// different for each call.
    pub(super) fn cut(self, len: usize) -> (u32, Vec<Place>) {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let pool = POOLS.fetch_add(1, Ordering::Relaxed);
        let (start, total) = match &self.mapping {
            Some(mapping) => (mapping.start, mapping.len),
            None => (NonNull::dangling(), 0),
        };
        let len = len.max(1);
        let count = (total / len).min(Place::INDEX_MAX as usize + 1);
        let region = Arc::new(self);
        let places = (0..count)
            .map(|index| Place {
                // SAFETY: `index < total / len`, so the place is in the mapping.
                start: unsafe { start.add(index * len) },
                len,
                index: index as u32,
                generation: 0,
                pool,
                region: region.clone(),
            })
            .collect();
        (pool, places)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: it is deregistered once. Work requests with its key fail from then on.
        let result = unsafe {
            self.domain
                .context()
                .library()
                .ibv_dereg_mr(self.raw.as_ptr())
        };
        if !destroyed("a memory region", result) {
            // The device may still write to it.
            std::mem::forget(self.mapping.take());
        }
    }
}

/// A piece of registered memory that no work request uses: its owner may access it.
///
/// Posting takes the place ([`super::QueuePair::send`], [`super::SharedReceiveQueue::receive`]), and
/// the completion returns it ([`super::Pool::completed`]). Each posting has a different identifier, so
/// that a repeated or late completion returns nothing.
pub struct Place {
    start: NonNull<u8>,
    len: usize,
    index: u32,
    generation: u32,
    pool: u32,
    region: Arc<MemoryRegion>,
}

// SAFETY: a place has one owner, like a box of bytes; the region it keeps alive may be held anywhere.
unsafe impl Send for Place {}
// SAFETY: as above; a shared place is only read.
unsafe impl Sync for Place {}

impl Place {
    /// Maximum index: work request identifiers have 24 bits for it.
    pub(super) const INDEX_MAX: u32 = 0xff_ffff;
    /// Set in an identifier if more work requests of the same place follow.
    const MORE: u64 = 1 << 31;
    /// Mask of the seven bits of the pool's number.
    const POOL_MASK: u32 = 0x7f;

    /// The key of local accesses to its region.
    pub fn lkey(&self) -> u32 {
        self.region.lkey
    }

    /// Index in its pool, from 0.
    pub const fn index(&self) -> u32 {
        self.index
    }

    pub(super) const fn pool(&self) -> u32 {
        self.pool
    }

    /// A new identifier for the next work requests.
    pub(super) fn rename(&mut self) -> u64 {
        self.generation = self.generation.wrapping_add(1);
        self.wr_id()
    }

    /// The identifier of its last work request.
    pub(super) const fn wr_id(&self) -> u64 {
        (self.generation as u64) << 32
            | ((self.pool & Place::POOL_MASK) as u64) << 24
            | self.index as u64
    }

    /// Splits an identifier into the place's index, the pool's bits, and whether more follow.
    pub(super) const fn parse(wr_id: u64) -> (u32, u32, bool) {
        let low = wr_id as u32;
        (
            low & Place::INDEX_MAX,
            low >> 24 & Place::POOL_MASK,
            wr_id & Place::MORE != 0,
        )
    }

    /// Whether an identifier can belong to a pool.
    pub(super) const fn names_pool(wr_id: u64, pool: u32) -> bool {
        Place::parse(wr_id).1 == pool & Place::POOL_MASK
    }

    /// The identifier `wr_id` for a work request before the last one.
    pub(super) const fn with_more(wr_id: u64) -> u64 {
        wr_id | Place::MORE
    }

    /// The identifier without that mark.
    pub(super) const fn without_more(wr_id: u64) -> u64 {
        wr_id & !Place::MORE
    }

    /// A part of the place for a work request; `None` if the part exceeds the place.
    pub(super) fn element(&self, part: Range<usize>) -> Option<ibv_sge> {
        let length = part.end.checked_sub(part.start)?;
        (part.end <= self.len).then_some(ibv_sge {
            addr: self.start.as_ptr() as u64 + part.start as u64,
            length: u32::try_from(length).ok()?,
            lkey: self.region.lkey,
        })
    }
}

impl Deref for Place {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is in the mapping, which the region keeps alive; it was zeroed at first, so
        // every byte is initialized. Places do not overlap, and no work request uses this one: only the
        // owner writes to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the owner lends it exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}, {} bytes)", self.index, self.len)
    }
}
