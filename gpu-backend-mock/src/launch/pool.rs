//! The threads that help streams to run blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::Job;

/// Threads that every context of a backend shares. They start with the first large launch and end
/// with the backend.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: usize,
    shared: Arc<PoolShared>,
}

#[derive(Debug, Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    invited: Condvar,
    left: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    started: bool,
    ended: bool,
    invitations: VecDeque<Invitation>,
}

/// A call for one more thread to join a job.
#[derive(Debug)]
struct Invitation {
    job: Arc<Job>,
    helpers: Arc<Helpers>,
}

/// How many pool threads are at a job. Changed under the pool's lock only.
#[derive(Debug, Default)]
struct Helpers(std::sync::atomic::AtomicUsize);

impl Helpers {
    fn change(&self, by: isize) {
        self.0
            .fetch_add(by as usize, std::sync::atomic::Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Pool {
    /// Makes a pool for launches on so many threads, the stream's own included.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            shared: Arc::default(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs a job to its end.
    pub(super) fn run(&self, job: &Arc<Job>) {
        let wanted = usize::try_from(job.pieces() - 1).unwrap_or(usize::MAX);
        let wanted = wanted.min(self.threads - 1);
        if wanted == 0 {
            job.work();
            return;
        }
        let helpers = Arc::new(Helpers::default());
        let mut state = self.shared.state.lock();
        if !state.started {
            state.started = true;
            self.start_threads();
        }
        for _ in 0..wanted {
            state.invitations.push_back(Invitation {
                job: Arc::clone(job),
                helpers: Arc::clone(&helpers),
            });
            self.shared.invited.notify_one();
        }
        drop(state);

        job.work();

        let mut state = self.shared.state.lock();
        state
            .invitations
            .retain(|invitation| !Arc::ptr_eq(&invitation.job, job));
        self.shared
            .left
            .wait_while(&mut state, |_| helpers.count() > 0);
    }

    /// A thread that does not start is missed only in speed: the stream's own runs the launch.
    fn start_threads(&self) {
        for number in 1..self.threads {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("mock-worker-{number}"));
            if thread.spawn(move || shared.serve()).is_err() {
                return;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.invited.notify_all();
    }
}

impl PoolShared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(Invitation { job, helpers }) = state.invitations.pop_front() {
                helpers.change(1);
                drop(state);
                job.work();
                drop(job);
                state = self.state.lock();
                helpers.change(-1);
                self.left.notify_all();
            } else if state.ended {
                return;
            } else {
                self.invited.wait(&mut state);
            }
        }
    }
}
