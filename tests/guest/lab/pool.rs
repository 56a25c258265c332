//! Resources that tests use in turns. Each is made for the first test that needs it.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module.
pub struct Pool<T> {
    /// What no test uses; `None` before the first test.
    free: Mutex<Option<Vec<Place<T>>>>,
    given_back: Condvar,
    size: usize,
    make: fn(usize) -> Option<T>,
}

/// A resource, if it is made.
struct Place<T> {
    index: usize,
    value: Option<T>,
}

impl<T> Pool<T> {
    /// A pool of `size` resources. `make` gets their indices; `None` if they are impossible.
    pub const fn new(size: usize, make: fn(usize) -> Option<T>) -> Pool<T> {
        Pool {
            free: Mutex::new(None),
            given_back: Condvar::new(),
            size,
            make,
        }
    }

    /// A free resource, made if necessary; waits while all are in use. `None` if they are impossible: each test finds
    /// out by itself, also after a panic.
    pub fn take(&'static self) -> Option<Lent<T>> {
        let none = |free: &mut Option<Vec<_>>| self.places(free).is_empty();
        let waited = self.given_back.wait_while(self.free(), none);
        let mut free = waited.unwrap_or_else(PoisonError::into_inner);
        let place = self.places(&mut free).pop().expect("one is free");
        drop(free);
        let mut lent = Lent {
            index: place.index,
            value: place.value,
            pool: self,
        };
        if lent.value.is_none() {
            lent.value = (self.make)(lent.index);
        }
        lent.value.is_some().then_some(lent)
    }

    fn free(&self) -> MutexGuard<'_, Option<Vec<Place<T>>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places<'f>(&self, free: &'f mut Option<Vec<Place<T>>>) -> &'f mut Vec<Place<T>> {
        let new = |index| Place { index, value: None };
        free.get_or_insert_with(|| (0..self.size).map(new).collect())
    }
}

/// A resource that a test uses; given back even if the test fails.
pub struct Lent<T: 'static> {
    index: usize,
    value: Option<T>,
    pool: &'static Pool<T>,
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is made")
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is made")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let (index, value) = (self.index, self.value.take());
        self.pool
            .places(&mut self.pool.free())
            .push(Place { index, value });
        self.pool.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_could_not_be_made_is_made_for_the_next_test() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        static POOL: Pool<usize> = Pool::new(1, |_| match TRIES.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("the first try"),
            1 => None,
            tries => Some(tries),
        });
        assert!(std::panic::catch_unwind(|| POOL.take().is_some()).is_err());
        assert!(POOL.take().is_none());
        for _ in 0..2 {
            assert_eq!(*POOL.take().expect("the third try"), 2);
        }
    }
}
