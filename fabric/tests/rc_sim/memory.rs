//! What the transport holds on to, counted by the allocator while the transport runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of what a thread allocates between two marks.
struct Counting;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static BALANCE: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no such cells any more, and does not run the transport.
    if COUNTS.try_with(Cell::get) == Ok(true) {
        let _ = BALANCE.try_with(|b| b.set(b.get() + bytes));
    }
}

// SAFETY: needed because only the global allocator sees every allocation. Every call is handed to the
// system's allocator unchanged; the count beside it never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above. Large areas are zero already: those that nobody touches take no room.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One node's account. What a consumer hands in is not in it, and leaves it as it came.
#[derive(Debug, Default)]
pub struct Ledger {
    held: isize,
    most: isize,
}

impl Ledger {
    /// Runs the transport.
    pub fn within<R>(&mut self, run: impl FnOnce() -> R) -> R {
        BALANCE.set(0);
        COUNTS.set(true);
        let result = run();
        COUNTS.set(false);
        self.held += BALANCE.get();
        self.most = self.most.max(self.held);
        result
    }

    /// The most bytes that were held at a time.
    pub fn most(&self) -> usize {
        self.most.max(0) as usize
    }
}
