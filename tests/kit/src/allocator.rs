//! The system's allocator, with counts beside it: allocations of a thread, bytes in use, and the bytes that
//! one part of a test holds. A test that uses this crate has it as its global allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BALANCE: Cell<Option<isize>> = const { Cell::new(None) };
}

/// Notes that so many bytes more are in use, or fewer.
fn count(bytes: isize) {
    // Below zero it wraps, as subtraction does.
    IN_USE.fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
    // A thread that ends has no such cells any more, and no test asks for its counts.
    let _ = BALANCE.try_with(|b| b.set(b.get().map(|held| held + bytes)));
}

fn allocated(bytes: isize) {
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
    count(bytes);
}

// SAFETY: needed because only the global allocator sees every allocation. Every call is handed to the
// system's allocator unchanged; the counts beside it never allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size().cast_signed());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size().cast_signed());
        // SAFETY: as above. Large areas are zero already: those that nobody touches take no room.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// How often this thread has allocated.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The bytes that all threads have in use.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Waits until no other test counts [`in_use`]; it is this test's turn while the guard lives.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The account of one part of a test.
#[derive(Debug, Default)]
pub struct Ledger {
    held: isize,
    most: isize,
}

impl Ledger {
    /// Runs the part: what this thread allocates and frees meanwhile is on its account.
    pub fn within<R>(&mut self, run: impl FnOnce() -> R) -> R {
        BALANCE.set(Some(0));
        let result = run();
        self.held += BALANCE.take().unwrap_or(0);
        self.most = self.most.max(self.held);
        result
    }

    /// The most bytes that the part held when it came to an end of [`Ledger::within`].
    pub fn most(&self) -> usize {
        self.most.max(0).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted_until_it_is_freed() {
        let _alone = alone();
        let (calls, bytes) = (allocations(), in_use());
        let mut ledger = Ledger::default();
        let kept = ledger.within(|| {
            drop(vec![0u8; 5000]);
            Vec::<u8>::with_capacity(1000)
        });
        assert_eq!(allocations(), calls + 2);
        assert_eq!(ledger.most(), 1000);
        assert!(in_use() >= bytes + 1000);
        ledger.within(|| drop(kept));
        assert_eq!((ledger.held, ledger.most()), (0, 1000));
    }
}
