//! Streams: in-order queues of batches, each with a timeline semaphore.
//!
//! # How work reaches the device
//!
//! An operation is recorded into the stream's open batch. The batch is submitted
//!
//! - at once, when everything before it has ended: the device would idle otherwise;
//! - when it has [`MOST_OPERATIONS`], or events have cut the work into [`MOST_SEALED`] pieces;
//! - by any wait, read or poll;
//! - by the [feeder](feeder), as soon as what was submitted before has ended.
//!
//! So while the device works, launches gather, and the driver is asked once for all of them.
//!
//! # Values
//!
//! Batches are numbered on from where the semaphore stood, and the semaphore reaches a batch's
//! number when it has ended.
//! `recorded >= submitted >= completed` are such numbers. What must outlive work is kept until
//! `completed` reaches what `recorded` was when it was given up.

mod event;
mod feeder;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use grafos_host_abi::{GpuError, HandleFault, HandleKind, Result, StreamId, TimeoutFault};
use parking_lot::Mutex;
use smallvec::SmallVec;

pub(crate) use event::{Event, Timestamp, Timestamps};
pub(crate) use feeder::Feeder;

use crate::context::{Garbage, Marks, Shared, closed};
use crate::driver::{Device, Semaphore, SubmitBatch, WaitEnd};
use crate::launch::Batch;
use crate::memory::Staging;

/// A batch with as many operations is submitted.
const MOST_OPERATIONS: u32 = 128;
/// As many batches that have ended without being submitted (events end them) are submitted.
const MOST_SEALED: usize = 32;
/// With as many batches on their way, a launch waits for the oldest to end.
const MOST_IN_FLIGHT: usize = 128;
/// Batches that are kept for the next recordings.
const MOST_SPARE: usize = MOST_IN_FLIGHT;
/// Waits look up as often whether the device has been lost meanwhile.
const WAIT_SLICE_NS: u64 = 100_000_000;

/// An in-order queue of work.
pub(crate) struct Stream {
    semaphore: Arc<Semaphore>,
    /// The index of its queue. Streams share queues when there are more of them.
    queue: usize,
    recorded: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Whether the feeder knows that there is something to submit.
    armed: AtomicBool,
    /// Held from taking batches until they are submitted, so that they stay in order. Taken
    /// before `state`.
    order: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Batch>,
    /// Ended, not submitted.
    sealed: VecDeque<Batch>,
    in_flight: VecDeque<Batch>,
    spare: Vec<Batch>,
    last_value: u64,
}

impl Stream {
    /// Creates a stream on a queue.
    pub(crate) fn new(device: &Arc<Device>, queue: usize) -> Result<Self> {
        let semaphore = Semaphore::new(device)?;
        // Not 0 when another stream had it before.
        let start = semaphore.value()?;
        Ok(Self {
            semaphore: Arc::new(semaphore),
            queue,
            recorded: AtomicU64::new(start),
            submitted: AtomicU64::new(start),
            completed: AtomicU64::new(start),
            armed: AtomicBool::new(false),
            order: Mutex::new(()),
            state: Mutex::new(State {
                last_value: start,
                ..State::default()
            }),
        })
    }

    pub(crate) fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    pub(crate) fn queue(&self) -> usize {
        self.queue
    }

    /// The value that everything recorded so far ends with.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Whether `value` is known to have been reached. Asks nobody.
    pub(crate) fn has_reached(&self, value: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= value
    }

    /// Asks the driver what has been reached, unless everything has.
    pub(crate) fn refresh(&self) -> Result<u64> {
        let known = self.completed.load(Ordering::Acquire);
        if known >= self.submitted() {
            return Ok(known);
        }
        let value = self.semaphore.value()?;
        self.note_reached(value);
        Ok(value)
    }

    fn note_reached(&self, value: u64) {
        self.completed.fetch_max(value, Ordering::AcqRel);
    }

    /// Whether nothing is recorded that has not ended.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        let recorded = self.recorded();
        Ok(self.has_reached(recorded) || self.refresh()? >= recorded)
    }

    fn has_unsubmitted(&self) -> bool {
        self.recorded() > self.submitted()
    }

    /// Submits what is recorded and answers the value that it ends with.
    pub(crate) fn flush(&self, device: &Arc<Device>, staging: &Staging) -> Result<u64> {
        if !self.has_unsubmitted() {
            return Ok(self.recorded());
        }
        let _order = self.order.lock();
        self.flush_in_order(device, staging)
    }

    /// As [`flush`](Self::flush), with `order` held.
    fn flush_in_order(&self, device: &Arc<Device>, staging: &Staging) -> Result<u64> {
        // The lock is taken also when there is nothing to take: see `Shared::record`.
        let batches = {
            let mut state = self.state.lock();
            state.seal()?;
            std::mem::take(&mut state.sealed)
        };
        let Some(last) = batches.back().map(Batch::value) else {
            return Ok(self.recorded());
        };
        let submission: SmallVec<[SubmitBatch<'_>; 4]> = batches
            .iter()
            .map(|batch| SubmitBatch {
                waits: batch.waits(),
                commands: batch.commands(),
                signal: &self.semaphore,
                value: batch.value(),
            })
            .collect();
        let outcome = device.submit(self.queue, &submission);
        drop(submission);
        let mut state = self.state.lock();
        match outcome {
            Ok(()) => {
                state.in_flight.extend(batches);
                self.submitted.store(last, Ordering::Release);
                drop(state);
                self.retire(staging)?;
                Ok(last)
            }
            Err(failure) => {
                // The driver took none of them: they go first the next time.
                let later = std::mem::replace(&mut state.sealed, batches);
                state.sealed.extend(later);
                Err(failure)
            }
        }
    }

    /// Makes batches that have ended usable again.
    pub(crate) fn retire(&self, staging: &Staging) -> Result<()> {
        let reached = self.refresh()?;
        loop {
            let mut state = self.state.lock();
            if state
                .in_flight
                .front()
                .is_none_or(|batch| batch.value() > reached)
            {
                return Ok(());
            }
            let Some(mut batch) = state.in_flight.pop_front() else {
                return Ok(());
            };
            // Resetting frees what the driver keeps for the recording: launches need not wait.
            drop(state);
            batch.reset(staging)?;
            let mut state = self.state.lock();
            if state.spare.len() < MOST_SPARE {
                state.spare.push(batch);
            }
        }
    }

    /// Gives up what is kept for later recordings.
    pub(crate) fn trim(&self) {
        let spare = std::mem::take(&mut self.state.lock().spare);
        drop(spare);
    }

    /// Ends the open batch without submitting it; later work goes into another.
    fn seal(&self) -> Result<()> {
        self.state.lock().seal()
    }

    fn oldest_if_crowded(&self) -> Option<u64> {
        let state = self.state.lock();
        if state.in_flight.len() < MOST_IN_FLIGHT {
            return None;
        }
        state.in_flight.front().map(Batch::value)
    }

    /// For the feeder: submits what is recorded once everything before has ended. True when it
    /// has to come again.
    fn feed(&self, device: &Arc<Device>, staging: &Staging) -> bool {
        match self.refresh() {
            Ok(reached) if reached < self.submitted() => return true,
            Ok(_) => {}
            Err(_) => {
                self.armed.store(false, Ordering::Release);
                return false;
            }
        }
        // Before the flush: what is recorded after it arms the feeder again.
        self.armed.store(false, Ordering::Release);
        // An error is latched or comes again at the next flush, where somebody can hear it.
        let _ = self.flush(device, staging);
        false
    }
}

impl State {
    fn seal(&mut self) -> Result<()> {
        if let Some(mut batch) = self.open.take() {
            match batch.end() {
                Ok(()) => self.sealed.push_back(batch),
                Err(failure) => {
                    self.open = Some(batch);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, device: &Arc<Device>) -> Result<&mut Batch> {
        if self.open.is_none() {
            let mut batch = match self.spare.pop() {
                Some(batch) => batch,
                None => Batch::new(device)?,
            };
            batch.begin(self.last_value + 1)?;
            self.last_value += 1;
            self.open = Some(batch);
        }
        // It was put there above.
        self.open.as_mut().ok_or_else(|| GpuError::InvalidArgument {
            reason: "no batch is open".into(),
        })
    }
}

impl Shared {
    /// Finds a live stream.
    pub(crate) fn stream(&self, stream: StreamId) -> Result<Arc<Stream>> {
        if stream == StreamId::DEFAULT {
            return Ok(Arc::clone(&self.default_stream));
        }
        let streams = self.streams.read();
        streams.get(stream.0).cloned().ok_or(unknown(stream))
    }

    /// All live streams, the default one first.
    pub(crate) fn all_streams(&self) -> SmallVec<[Arc<Stream>; 4]> {
        self.streams.read().values().cloned().collect()
    }

    /// Records an operation at a stream's end, and submits it when that is due.
    pub(crate) fn record(
        &self,
        stream: &Arc<Stream>,
        operation: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<()> {
        let due = {
            let mut state = stream.state.lock();
            // Under the lock that closing takes next to submit the rest.
            if self.closing.load(Ordering::Acquire) {
                return Err(closed());
            }
            let batch = state.open(&self.device)?;
            let value = batch.value();
            // Before the operation looks anything up: whoever gives up a thing that it found
            // then knows that this batch may use it.
            stream.recorded.store(value, Ordering::Release);
            operation(batch)?;
            let operations = batch.operations();
            let device_is_idle = state.sealed.is_empty() && stream.has_reached(value - 1);
            device_is_idle && operations == 1
                || operations >= MOST_OPERATIONS
                || state.sealed.len() >= MOST_SEALED
        };
        if due {
            stream.flush(&self.device, &self.memory.staging)?;
            self.wait_if_crowded(stream)?;
        } else {
            self.arm(stream);
        }
        Ok(())
    }

    fn arm(&self, stream: &Arc<Stream>) {
        if !stream.armed.swap(true, Ordering::AcqRel) {
            self.feeder.add(stream);
        }
    }

    /// Bounds the memory that enqueued work takes.
    fn wait_if_crowded(&self, stream: &Arc<Stream>) -> Result<()> {
        while let Some(oldest) = stream.oldest_if_crowded() {
            self.wait_for_value(stream, oldest, None)?;
            stream.retire(&self.memory.staging)?;
        }
        Ok(())
    }

    /// Submits what a stream has recorded, and waits until it has ended.
    pub(crate) fn wait_for_stream(
        &self,
        stream: &Arc<Stream>,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let value = stream.flush(&self.device, &self.memory.staging)?;
        self.wait_for_value(stream, value, timeout)?;
        stream.retire(&self.memory.staging)
    }

    /// Waits until a stream has reached a value that is submitted.
    pub(crate) fn wait_for_value(
        &self,
        stream: &Stream,
        value: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        if stream.has_reached(value) {
            return self.device.ensure_alive();
        }
        let target = [(Arc::clone(&stream.semaphore), value)];
        wait(&self.device, &target, timeout)?;
        stream.note_reached(value);
        Ok(())
    }

    pub(crate) fn create_stream(&self) -> Result<StreamId> {
        self.device.ensure_alive()?;
        let turn = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let stream = Stream::new(&self.device, turn % self.device.queue_count())?;
        Ok(StreamId(self.streams.write().insert(Arc::new(stream))))
    }

    pub(crate) fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        if stream == StreamId::DEFAULT {
            return Err(GpuError::InvalidArgument {
                reason: "the default stream cannot be destroyed".into(),
            });
        }
        let removed = self.streams.write().remove(stream.0);
        let Some(removed) = removed else {
            return Err(unknown(stream));
        };
        // What it has recorded still runs. A failure is latched or concerns memory that nobody
        // can be told about here.
        let _ = removed.flush(&self.device, &self.memory.staging);
        let value = removed.recorded();
        self.discard_after(Garbage::Stream, [(removed, value)].into_iter().collect());
        Ok(())
    }

    pub(crate) fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        self.wait_for_stream(&stream, timeout)?;
        self.collect();
        Ok(())
    }

    pub(crate) fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        self.device.ensure_alive()?;
        let targets = self.flush_all()?;
        if !targets.is_empty() {
            let waits: SmallVec<[(Arc<Semaphore>, u64); 4]> = targets
                .iter()
                .map(|(stream, value)| (Arc::clone(&stream.semaphore), *value))
                .collect();
            wait(&self.device, &waits, timeout)?;
            for (stream, value) in &targets {
                stream.note_reached(*value);
                stream.retire(&self.memory.staging)?;
            }
        }
        self.collect();
        Ok(())
    }

    /// Submits everything, and answers the streams that are busy with what they end with;
    /// destroyed streams whose work has not ended are among them.
    fn flush_all(&self) -> Result<Marks> {
        let mut busy = self.garbage_marks();
        for stream in self.all_streams() {
            let value = stream.flush(&self.device, &self.memory.staging)?;
            if !stream.has_reached(value) {
                busy.push((stream, value));
            }
        }
        Ok(busy)
    }

    /// Lends a stream's queue, as a number, ordered between what is recorded before and after.
    pub(crate) fn with_queue(
        &self,
        stream: StreamId,
        use_queue: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.device.ensure_alive()?;
        let stream = self.stream(stream)?;
        // What is submitted now is seen by whatever the caller submits.
        self.record(&stream, |batch| {
            batch.order_everything();
            Ok(())
        })?;
        {
            let staging = &self.memory.staging;
            let _order = stream.order.lock();
            stream.flush_in_order(&self.device, staging)?;
            self.device.with_queue(stream.queue(), use_queue);
        }
        // Ends when all before it on the queue has ended, the caller's work included.
        self.record(&stream, |batch| {
            batch.order_everything();
            Ok(())
        })?;
        stream.flush(&self.device, &self.memory.staging)?;
        Ok(())
    }

    pub(crate) fn poll(&self) -> Result<bool> {
        self.device.ensure_alive()?;
        let mut idle = true;
        for (stream, value) in self.flush_all()? {
            stream.retire(&self.memory.staging)?;
            idle &= stream.has_reached(value);
        }
        self.collect();
        Ok(idle)
    }
}

/// Waits until every semaphore has reached its value, the time is over or the device is lost.
fn wait(
    device: &Device,
    targets: &[(Arc<Semaphore>, u64)],
    timeout: Option<Duration>,
) -> Result<()> {
    let limit_ns = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    let mut left_ns = limit_ns.unwrap_or(u64::MAX);
    loop {
        let slice = left_ns.min(WAIT_SLICE_NS);
        match device.wait(targets, slice)? {
            WaitEnd::Reached => return Ok(()),
            WaitEnd::TimedOut => {}
        }
        // The driver waited for at least the slice, so no clock is needed.
        if limit_ns.is_some() {
            left_ns -= slice;
        }
        if left_ns == 0 {
            return Err(GpuError::Timeout(TimeoutFault {
                waited_ns: limit_ns.unwrap_or(u64::MAX),
            }));
        }
    }
}

pub(crate) fn unknown(stream: StreamId) -> GpuError {
    GpuError::InvalidHandle(HandleFault {
        kind: HandleKind::Stream,
        id: stream.0,
    })
}
