//! A counting allocator on top of the system's: allocations of a thread, bytes that a thread holds, bytes held
//! by a part of a test. Each test that uses this crate has it as its global allocator. All counts are of the
//! calling thread: the test runner allocates in threads of its own while a test measures.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Negative in a thread that has freed the memory of others.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static BALANCE: Cell<Option<isize>> = const { Cell::new(None) };
}

/// Adds to the bytes that the thread holds; `bytes` may be negative.
fn count(bytes: isize) {
    // The cells of an ending thread are gone. No test needs its counts.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
    let _ = BALANCE.try_with(|b| b.set(b.get().map(|held| held + bytes)));
}

fn allocated(bytes: isize) {
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
    count(bytes);
}

// SAFETY: needed because only the global allocator sees every allocation. Every call goes to the system's
// allocator unchanged; counting never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size().cast_signed());
        // SAFETY: `System` has the same requirements as this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size().cast_signed());
        // SAFETY: as above. Large areas are zero already and take no memory until they are used.
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

/// Number of allocations of this thread.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// Counts the bytes that this thread allocates and does not free.
#[derive(Debug)]
pub struct Growth {
    before: isize,
}

impl Growth {
    /// Starts to count.
    pub fn start() -> Self {
        let before = HELD.get();
        Self { before }
    }

    /// The bytes held now and not at the start.
    pub fn bytes(&self) -> usize {
        (HELD.get() - self.before).max(0).cast_unsigned()
    }
}

/// The allocations of a part of a test.
#[derive(Debug, Default)]
pub struct Ledger {
    held: isize,
    most: isize,
}

impl Ledger {
    /// Runs the part and counts the bytes that this thread allocates and frees meanwhile.
    pub fn within<R>(&mut self, run: impl FnOnce() -> R) -> R {
        BALANCE.set(Some(0));
        let result = run();
        self.held += BALANCE.take().unwrap_or(0);
        self.most = self.most.max(self.held);
        result
    }

    /// The largest number of bytes held at the end of a [`Ledger::within`].
    pub fn most(&self) -> usize {
        self.most.max(0).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted_until_it_is_freed() {
        let (calls, growth) = (allocations(), Growth::start());
        let mut ledger = Ledger::default();
        let kept = ledger.within(|| {
            drop(vec![0u8; 5000]);
            Vec::<u8>::with_capacity(1000)
        });
        assert_eq!(allocations(), calls + 2);
        assert_eq!(ledger.most(), 1000);
        assert_eq!(growth.bytes(), 1000);
        ledger.within(|| drop(kept));
        assert_eq!((ledger.held, ledger.most()), (0, 1000));
        assert_eq!(growth.bytes(), 0);
    }

    #[test]
    fn other_threads_do_not_count() {
        let growth = Growth::start();
        let kept = std::thread::scope(|s| s.spawn(|| Vec::<u8>::with_capacity(1 << 20)).join());
        let bytes = growth.bytes();
        assert_eq!(kept.map(|k| k.capacity()).ok(), Some(1 << 20));
        assert!(bytes < 1 << 20, "{bytes}");
    }
}
