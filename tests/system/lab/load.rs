//! Scheduling of tests with load.
//!
//! Most tests mostly wait, so many of them run at once. Tests that generate load would disturb each other's
//! rates and deadlines: only as many run at a time as there are processors. Tests whose result must not
//! depend on any other load run alone, after all others: each time that the machine becomes quiet for one of them,
//! processors are idle until the slowest of the others has ended. `scripts/test` has threads for tests that wait.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Running tests.
struct Running {
    /// Turns.
    busy: usize,
    /// Labs of tests that do not run alone.
    labs: usize,
    /// A test runs alone now.
    is_alone: bool,
}

/// Labs of tests that do not run alone, for each processor.
const LABS_MAX: usize = 5;

static RUNNING: Mutex<Running> = Mutex::new(Running {
    busy: 0,
    labs: 0,
    is_alone: false,
});
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread has a turn and need not wait for another.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread's test runs alone.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    /// Labs of this thread's test.
    static LABS: Cell<usize> = const { Cell::new(0) };
}

fn lock() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(
    running: MutexGuard<'static, Running>,
    so: impl Fn(&Running) -> bool,
) -> MutexGuard<'static, Running> {
    CHANGED
        .wait_while(running, |running| so(running))
        .unwrap_or_else(PoisonError::into_inner)
}

/// A turn; dropping it ends the turn. Take it before anything is timed: the wait may be long.
pub struct Load {
    taken: bool,
}

impl Load {
    /// Waits for a processor.
    pub fn begin() -> Load {
        if IS_ALONE.get() || HAS_TURN.replace(true) {
            return Load { taken: false };
        }
        let mut running = wait_while(lock(), |r| r.busy >= processors());
        running.busy += 1;
        Load { taken: true }
    }

    /// Lets this thread, which the test has started, generate load in the test's turn instead of waiting for its own.
    pub fn covers_this_thread(&self) {
        HAS_TURN.set(true);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.taken {
            HAS_TURN.set(false);
            lock().busy -= 1;
            CHANGED.notify_all();
        }
    }
}

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The whole machine, without labs of other tests. Take it before the test has a lab: two tests that wait for
/// each other's labs would deadlock.
pub struct Alone(());

impl Alone {
    /// Waits until the labs of all other tests are gone.
    pub fn begin() -> Alone {
        assert_eq!(LABS.get(), 0, "a lab is made after this");
        let mut running = wait_while(lock(), |r| r.is_alone || r.labs > 0);
        running.is_alone = true;
        IS_ALONE.set(true);
        Alone(())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
        lock().is_alone = false;
        CHANGED.notify_all();
    }
}

/// An existing lab. It may end on another thread than it was created on.
pub struct Presence {
    counted: bool,
}

impl Presence {
    /// Waits while another test runs alone, or many tests have labs. A test that already has a lab need not wait for
    /// another lab.
    pub fn begin() -> Presence {
        let own = LABS.get();
        LABS.set(own + 1);
        if IS_ALONE.get() {
            return Presence { counted: false };
        }
        let most = LABS_MAX * processors();
        let mut running = wait_while(lock(), |r| own == 0 && (r.is_alone || r.labs >= most));
        running.labs += 1;
        Presence { counted: true }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        LABS.set(LABS.get().saturating_sub(1));
        if self.counted {
            lock().labs -= 1;
            CHANGED.notify_all();
        }
    }
}
