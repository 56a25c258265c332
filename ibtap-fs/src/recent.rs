//! Answers of the daemon that several readers may share.
//!
//! Any user may read the files in a loop, and each read is a request to the daemon. The daemon answers
//! requests in the thread that also follows all changes of its interfaces, so the number of requests is bounded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::{TokenBucket, TokenRate};
use rustix::io::Errno;

/// Maximum age of a shared answer.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Rate of requests for a single reader. Further readers share an answer.
const OWN: TokenRate = TokenRate {
    interval: Duration::from_millis(10),
    burst: 200,
};

/// The last answer to a question.
#[derive(Debug)]
pub struct Recent<T>(Mutex<Option<(Instant, Arc<[T]>)>>);

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent(Mutex::new(None))
    }
}

impl<T> Recent<T> {
    /// The last answer, or a new one if the last is too old. One reader asks; the others wait for its answer.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn get(&self, ask: impl FnOnce() -> Result<Vec<T>, Errno>) -> Result<Arc<[T]>, Errno> {
        let mut last = self.last();
        if let Some((since, answer)) = &*last
            && since.elapsed() < AGE_MAX
        {
            return Ok(Arc::clone(answer));
        }
        let answer: Arc<[T]> = ask()?.into();
        *last = Some((Instant::now(), Arc::clone(&answer)));
        Ok(answer)
    }

    /// Forgets the last answer: a write has changed something.
    pub fn forget(&self) {
        *self.last() = None;
    }

    fn last(&self) -> MutexGuard<'_, Option<(Instant, Arc<[T]>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limit of requests that are for one reader.
#[derive(Debug)]
pub struct Limit {
    since: Instant,
    bucket: Mutex<TokenBucket>,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            since: Instant::now(),
            bucket: Mutex::default(),
        }
    }
}

impl Limit {
    /// Whether a reader may have a request of its own now.
    pub fn may_ask(&self) -> bool {
        let nanoseconds = self.since.elapsed().as_nanos();
        let now = proto::Instant(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(now, OWN)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn an_answer_is_shared_until_it_is_old_or_wrong() {
        let recent = Recent::default();
        let asked = Cell::new(0);
        let get = || {
            let ask = || {
                asked.set(asked.get() + 1);
                Ok(vec![asked.get()])
            };
            recent.get(ask).unwrap()[0]
        };
        assert_eq!((get(), get(), get()), (1, 1, 1));
        recent.forget();
        assert_eq!((get(), get()), (2, 2));
        std::thread::sleep(AGE_MAX);
        assert_eq!((get(), get()), (3, 3));
    }

    #[test]
    fn errors_are_not_shared() {
        let recent = Recent::default();
        assert_eq!(
            recent.get(|| Err(Errno::NODEV)),
            Err::<Arc<[u8]>, _>(Errno::NODEV)
        );
        assert_eq!(*recent.get(|| Ok(vec![1])).unwrap(), [1]);
    }

    #[test]
    fn readers_have_a_burst_of_requests() {
        let limit = Limit::default();
        let asked = (0..10_000).filter(|_| limit.may_ask()).count();
        assert!((200..400).contains(&asked), "{asked}");
    }
}
