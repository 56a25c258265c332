//! Threads that create and destroy address handles, because this may block: on RoCE the kernel resolves
//! a MAC, which takes as long as the peer's answer (ibv_create_ah(3)).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::lock;
use crate::handles::Wanted;
use crate::mail::Mail;

/// Number of threads, so that a peer that does not answer delays few others.
const THREADS: usize = 4;

/// Maximum number of threads that make handles again. Many may be for peers that are gone, and packets do not wait for
/// them.
const THREADS_AGAIN: usize = 2;

type Make<H> = Box<dyn FnOnce() -> io::Result<H> + Send>;

enum Job<H> {
    Make(Wanted, Make<H>),
    End(Arc<H>),
}

/// An answer.
pub struct Made<H> {
    /// The request.
    pub wanted: Wanted,
    /// The created object, or the error.
    pub object: io::Result<H>,
}

struct Queue<H> {
    jobs: VecDeque<Job<H>>,
    /// Creations of handles that have an object, after all others.
    again: VecDeque<Job<H>>,
    /// Number of such creations that have begun.
    begun_again: usize,
    stop: bool,
}

struct Shared<H> {
    queue: Mutex<Queue<H>>,
    bell: Condvar,
    made: Mail<Made<H>>,
}

/// The threads. Dropping this ends them, each after its current job.
pub struct Maker<H>(Arc<Shared<H>>);

impl<H: Send + Sync + 'static> Maker<H> {
    /// Starts the threads, which write to the eventfd `wake` after each answer.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn start(wake: Arc<OwnedFd>) -> io::Result<Maker<H>> {
        let maker = Maker(Arc::new(Shared {
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                again: VecDeque::new(),
                begun_again: 0,
                stop: false,
            }),
            bell: Condvar::new(),
            made: Mail::new(wake),
        }));
        for _ in 0..THREADS {
            let shared = Arc::clone(&maker.0);
            let named = thread::Builder::new().name("ibtap-ah".to_owned());
            named.spawn(move || shared.serve())?;
        }
        Ok(maker)
    }

    /// Queues the creation of an object.
    pub fn make(&self, wanted: Wanted, make: impl FnOnce() -> io::Result<H> + Send + 'static) {
        let mut queue = lock(&self.0.queue);
        let jobs = match wanted.again {
            true => &mut queue.again,
            false => &mut queue.jobs,
        };
        jobs.push_back(Job::Make(wanted, Box::new(make)));
        drop(queue);
        self.0.bell.notify_one();
    }

    /// Queues the destruction of an object, before all creations: a device is closed after its last object.
    pub fn end(&self, object: Arc<H>) {
        lock(&self.0.queue).jobs.push_front(Job::End(object));
        self.0.bell.notify_one();
    }

    /// Forgets the creations that have not begun: they are for another device or another GID.
    pub fn forget(&self) {
        let mut queue = lock(&self.0.queue);
        let jobs = std::mem::take(&mut queue.jobs).into_iter();
        let (ends, makes): (_, VecDeque<_>) = jobs.partition(|job| matches!(job, Job::End(_)));
        queue.jobs = ends;
        let again = std::mem::take(&mut queue.again);
        drop(queue);
        // Without the lock, because they own parts of the device.
        drop((makes, again));
    }

    /// Takes the answers.
    pub fn take_made(&self) -> Vec<Made<H>> {
        self.0.made.take()
    }
}

impl<H> Drop for Maker<H> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.stop = true;
        queue.jobs.clear();
        queue.again.clear();
        self.0.bell.notify_all();
    }
}

impl<H> Shared<H> {
    fn next(&self) -> Option<Job<H>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.stop {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.begun_again < THREADS_AGAIN
                && let Some(job) = queue.again.pop_front()
            {
                queue.begun_again += 1;
                return Some(job);
            }
            queue = self
                .bell
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn serve(&self) {
        while let Some(job) = self.next() {
            match job {
                Job::Make(wanted, make) => {
                    let object = make();
                    self.made.send([Made { wanted, object }]);
                    if wanted.again {
                        // The thread itself takes the next one.
                        lock(&self.queue).begun_again -= 1;
                    }
                }
                Job::End(object) => drop(object),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::worker::AhAttributes;
    use proto::{AddressHandle, Gid};

    fn wanted(n: u32) -> Wanted {
        Wanted {
            handle: AddressHandle(n),
            epoch: 0,
            attributes: AhAttributes::to(Gid::UNSPECIFIED, proto::PKey::DEFAULT),
            again: false,
        }
    }

    fn answers(maker: &Maker<u32>, count: usize) -> Vec<Made<u32>> {
        let (mut all, begun) = (Vec::new(), Instant::now());
        while all.len() < count && begun.elapsed() < Duration::from_secs(60) {
            all.extend(maker.take_made());
            thread::yield_now();
        }
        all
    }

    #[test]
    fn one_that_takes_long_holds_up_nobody_and_answers_wake() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let maker = Maker::start(Arc::clone(&wake)).unwrap();
        let (go, waits) = mpsc::channel::<()>();
        maker.make(wanted(0), move || {
            waits.recv().unwrap();
            Err(io::ErrorKind::HostUnreachable.into())
        });
        for n in 1..50 {
            maker.make(wanted(n), move || Ok(n));
        }
        let mut made = answers(&maker, 49);
        assert!(made.iter().all(|m| m.wanted.handle.0 > 0));
        go.send(()).unwrap();
        made.extend(answers(&maker, 1));
        assert_eq!(made.len(), 50);
        for m in &made {
            assert_eq!(
                m.object.as_ref().ok(),
                (m.wanted.handle.0 > 0).then_some(&m.wanted.handle.0)
            );
        }
        let mut count = [0; 8];
        rustix::io::read(&*wake, &mut count).unwrap();
    }

    #[test]
    fn handles_that_are_made_again_do_not_hold_up_new_ones() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let maker = Maker::start(wake).unwrap();
        let (go, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for n in 0..10 {
            let waits = Arc::clone(&waits);
            let again = Wanted {
                again: true,
                ..wanted(n)
            };
            maker.make(again, move || {
                let _ = lock(&waits).recv();
                Ok(n)
            });
        }
        maker.make(wanted(10), || Ok(10));
        let made = answers(&maker, 1);
        assert_eq!(made[0].wanted.handle.0, 10);
        drop(go);
        assert_eq!(answers(&maker, 10).len(), 10);
    }

    #[test]
    fn objects_end_elsewhere() {
        struct Ends(mpsc::Sender<thread::ThreadId>);
        impl Drop for Ends {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let maker = Maker::start(wake).unwrap();
        let (sender, receiver) = mpsc::channel();
        maker.end(Arc::new(Ends(sender)));
        let by = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_ne!(by, thread::current().id());
    }

    /// The device that a creation is for stays open until the creation has ended.
    #[test]
    fn creations_for_a_former_device_do_not_begin() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let maker = Maker::start(wake).unwrap();
        let (go, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for n in 0..THREADS as u32 {
            let waits = Arc::clone(&waits);
            maker.make(wanted(n), move || {
                let _ = lock(&waits).recv();
                Ok(n)
            });
        }
        // No thread is free.
        while !lock(&maker.0.queue).jobs.is_empty() {
            thread::yield_now();
        }
        let device = Arc::new(());
        let former = Arc::clone(&device);
        maker.make(wanted(10), move || {
            drop(former);
            Ok(10)
        });
        maker.forget();
        assert_eq!(Arc::strong_count(&device), 1);
        maker.make(wanted(11), || Ok(11));
        maker.end(Arc::new(0));
        let next = matches!(lock(&maker.0.queue).jobs.front(), Some(Job::End(_)));
        assert!(next, "no creation delays the end of an object");
        drop(go);
        let mut made: Vec<u32> = answers(&maker, THREADS + 1)
            .iter()
            .map(|m| m.wanted.handle.0)
            .collect();
        made.sort_unstable();
        assert_eq!(made, [0, 1, 2, 3, 11]);
    }
}
