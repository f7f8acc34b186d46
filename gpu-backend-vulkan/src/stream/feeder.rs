//! A thread that submits what has gathered as soon as the device has nothing else to do.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::Stream;
use crate::driver::{Device, ExitGuard};
use crate::memory::Memory;

/// How long one stream is waited for while others may need the feeder as well.
const SLICE_NS: u64 = 1_000_000;

/// Feeds the streams of a context.
///
/// The thread is started when it is first needed: programs that wait after each launch never
/// need it.
pub(crate) struct Feeder {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    queue: Mutex<Queue>,
    wake: Condvar,
    device: Arc<Device>,
    memory: Arc<Memory>,
}

#[derive(Default)]
struct Queue {
    streams: Vec<Arc<Stream>>,
    stop: bool,
}

impl Feeder {
    pub(crate) fn new(device: &Arc<Device>, memory: &Arc<Memory>) -> Self {
        Self {
            inner: Arc::new(Inner {
                queue: Mutex::new(Queue::default()),
                wake: Condvar::new(),
                device: Arc::clone(device),
                memory: Arc::clone(memory),
            }),
            thread: Mutex::new(None),
        }
    }

    /// Has a stream fed. Called once for each time that the stream is armed.
    pub(super) fn add(&self, stream: &Arc<Stream>) {
        {
            let mut queue = self.inner.queue.lock();
            if queue.stop {
                return;
            }
            queue.streams.push(Arc::clone(stream));
        }
        self.inner.wake.notify_one();
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let inner = Arc::clone(&self.inner);
            // Without a thread, what is recorded waits for the next wait, read or poll.
            *thread = std::thread::Builder::new()
                .name("grafos-vulkan-feeder".into())
                .spawn(move || inner.run())
                .ok();
        }
    }

    /// Ends the thread, and waits for that: it takes a slice at most.
    pub(crate) fn stop(&self) {
        {
            let mut queue = self.inner.queue.lock();
            queue.stop = true;
            queue.streams.clear();
        }
        self.inner.wake.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn run(&self) {
        let mut streams = Vec::new();
        loop {
            {
                let mut queue = self.queue.lock();
                while queue.streams.is_empty() && streams.is_empty() && !queue.stop {
                    self.wake.wait(&mut queue);
                }
                if queue.stop {
                    return;
                }
                streams.append(&mut queue.streams);
            }
            let Some(_exit_waits) = ExitGuard::new() else {
                // The process is ending: the driver's libraries may be gone.
                return;
            };
            streams.retain(|stream| stream.feed(&self.device, &self.memory.staging));
            if let Some(first) = streams.first() {
                let target = [(Arc::clone(first.semaphore()), first.submitted())];
                // The end of the slice, the end of the work and a failure are all reasons to look
                // again; `feed` lets go of a stream whose device is lost.
                let _ = self.device.wait(&target, SLICE_NS);
            }
        }
    }
}
