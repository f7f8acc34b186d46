//! Streams, events, and the threads that serve them.
//!
//! Each stream is a queue with a thread of its own, started with the first work, so that what a
//! program forgot to order really runs in any order. A thread takes the front of its queue, runs
//! it without any lock, and marks it as ended. Calls that move bytes from or to the caller's own
//! slice do it on the caller's thread, when it is their turn in the queue.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use grafos_host_abi::{
    DriverFault, EventId, EventStatus, GpuError, HandleKind, LostFault, Result, StreamId,
};
use parking_lot::MutexGuard;

use crate::context::{Core, State};
use crate::error::{invalid_argument, invalid_handle, timeout as timeout_error, unsupported};
use crate::fault::{GateState, Operation};
use crate::launch::PendingLaunch;
use crate::memory::Span;

/// Work in a stream.
#[derive(Debug)]
pub(crate) enum Work {
    Write {
        dst: Span,
        data: Vec<u8>,
    },
    Copy {
        dst: Span,
        src: Span,
    },
    Fill {
        dst: Span,
        pattern: [u8; 4],
    },
    Launch(PendingLaunch),
    Record(Arc<Mark>),
    Wait(Arc<Mark>),
    /// A call waits for its turn and does its work itself.
    CallerTurn,
}

#[derive(Debug)]
struct Entry {
    sequence: u64,
    gate: Option<Arc<GateState>>,
    work: Work,
}

/// One record of an event: the device time at which it was reached.
#[derive(Debug, Default)]
pub(crate) struct Mark(OnceLock<u64>);

impl Mark {
    fn is_reached(&self) -> bool {
        self.0.get().is_some()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Stream {
    queue: VecDeque<Entry>,
    /// The sequence number of what runs now, on the stream's thread or a caller's.
    running: Option<u64>,
    has_thread: bool,
    pub(crate) destroyed: bool,
}

impl Stream {
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }

    /// The sequence number of the oldest work that has not ended.
    fn oldest(&self) -> Option<u64> {
        self.running
            .or_else(|| self.queue.front().map(|entry| entry.sequence))
    }

    fn has_work_before(&self, sequence: u64) -> bool {
        self.oldest().is_some_and(|oldest| oldest < sequence)
    }

    /// Whether the thread can take the front of the queue now.
    fn is_ready(&self) -> bool {
        self.running.is_none()
            && self.queue.front().is_some_and(|entry| match &entry.work {
                Work::CallerTurn => false,
                Work::Wait(mark) => mark.is_reached(),
                _ => true,
            })
    }

    /// Whether it is the turn of the call that waits with this sequence number.
    fn is_turn_of(&self, sequence: u64) -> bool {
        self.running.is_none()
            && self
                .queue
                .front()
                .is_some_and(|entry| entry.sequence == sequence)
    }

    /// Forgets what has not begun, because the device is lost.
    pub(crate) fn abandon(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.queue)
    }
}

impl State {
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream> {
        self.streams
            .get_mut(&id)
            .filter(|stream| !stream.destroyed)
            .ok_or_else(|| invalid_handle(HandleKind::Stream, id.0))
    }

    pub(crate) fn stream_is_idle(&mut self, id: StreamId) -> Result<bool> {
        self.stream(id).map(|stream| stream.is_idle())
    }

    pub(crate) fn oldest_outstanding(&self) -> Option<u64> {
        self.streams.values().filter_map(Stream::oldest).min()
    }

    fn mark(&self, id: EventId) -> Result<Option<Arc<Mark>>> {
        self.events
            .get(&id)
            .cloned()
            .ok_or_else(|| invalid_handle(HandleKind::Event, id.0))
    }
}

impl Core {
    /// Appends work to a stream.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        id: StreamId,
        gate: Option<Arc<GateState>>,
        work: Work,
    ) -> Result<()> {
        let needs_thread = !matches!(work, Work::CallerTurn);
        let sequence = state.next_sequence();
        let stream = state.stream(id)?;
        if needs_thread && !stream.has_thread {
            let core = Arc::clone(self);
            std::thread::Builder::new()
                .name(format!("mock-stream-{}", id.0))
                .spawn(move || core.serve(id))
                .map_err(|error| {
                    GpuError::Driver(DriverFault {
                        api: "mock",
                        entry_point: "thread::spawn",
                        code: i64::from(error.raw_os_error().unwrap_or(-1)),
                        code_name: "the stream's thread does not start".into(),
                        detail: error.to_string(),
                    })
                })?;
            stream.has_thread = true;
        }
        stream.queue.push_back(Entry {
            sequence,
            gate,
            work,
        });
        self.work.notify_all();
        Ok(())
    }

    /// Waits until all earlier work of a stream has ended; gives the sequence number to run as.
    pub(crate) fn wait_for_turn(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        id: StreamId,
    ) -> Result<u64> {
        self.enqueue(state, id, None, Work::CallerTurn)?;
        let ticket = state.sequence;
        self.wait_while(state, None, |state| {
            let stream = state.streams.get(&id);
            stream.is_some_and(|stream| !stream.is_turn_of(ticket))
        })?;
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.queue.pop_front();
        }
        Ok(ticket)
    }

    /// Runs work of a stream on the caller's thread. The stream is idle, or it is the call's turn.
    pub(crate) fn run_in_call(
        &self,
        mut state: MutexGuard<'_, State>,
        id: StreamId,
        sequence: u64,
        work: impl FnOnce(),
    ) -> Result<()> {
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.running = Some(sequence);
        }
        MutexGuard::unlocked(&mut state, work);
        self.end_work(&mut state, id);
        state.check(self.id)
    }

    /// Notes that what runs in a stream has ended.
    fn end_work(&self, state: &mut State, id: StreamId) {
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.running = None;
        }
        self.after_progress(state);
    }

    /// Releases what has waited for work to end, and wakes whoever waits for that.
    pub(crate) fn after_progress(&self, state: &mut State) {
        self.release_retired(state);
        state
            .streams
            .retain(|_, stream| !(stream.destroyed && stream.is_idle() && !stream.has_thread));
        if state.closed && state.oldest_outstanding().is_none() {
            self.release_all(state);
        }
        self.progress.notify_all();
        self.work.notify_all();
    }

    /// The life of a stream's thread.
    fn serve(self: Arc<Self>, id: StreamId) {
        let mut state = self.state.lock();
        loop {
            let Some(stream) = state.streams.get_mut(&id) else {
                return;
            };
            let is_ready = stream.is_ready();
            if let Some(entry) = stream.queue.pop_front_if(|_| is_ready) {
                match entry.work {
                    // At once and under the lock: who has waited for the event finds the stream
                    // past it.
                    Work::Record(mark) => self.reach(&mark),
                    Work::Wait(_) | Work::CallerTurn => {}
                    work => {
                        stream.running = Some(entry.sequence);
                        let fault = MutexGuard::unlocked(&mut state, || {
                            self.run(work, entry.gate, entry.sequence)
                        });
                        if let Some(fault) = fault {
                            // The launch has ended by now: who learns of the loss can close the
                            // context and have its memory back.
                            if let Some(stream) = state.streams.get_mut(&id) {
                                stream.running = None;
                            }
                            let abandoned = self.latch_loss(&mut state, &fault);
                            MutexGuard::unlocked(&mut state, || drop(abandoned));
                        }
                    }
                }
                self.end_work(&mut state, id);
            } else if stream.is_idle() && (stream.destroyed || state.closed) {
                if let Some(stream) = state.streams.get_mut(&id) {
                    stream.has_thread = false;
                }
                self.after_progress(&mut state);
                return;
            } else {
                self.work.wait(&mut state);
            }
        }
    }

    /// Runs one piece of work. What it answers loses the device.
    fn run(&self, work: Work, gate: Option<Arc<GateState>>, sequence: u64) -> Option<LostFault> {
        if let Some(gate) = gate {
            gate.pass();
        }
        match work {
            Work::Write { dst, data } => dst.allocation.write(dst.offset, &data),
            Work::Copy { dst, src } => dst.copy_from(&src),
            Work::Fill { dst, pattern } => dst.fill(pattern),
            Work::Launch(launch) => return self.run_launch(launch, sequence),
            Work::Record(mark) => self.reach(&mark),
            Work::Wait(_) | Work::CallerTurn => {}
        }
        None
    }

    fn reach(&self, mark: &Mark) {
        // Each record makes a mark of its own, so it is set once.
        let _ = mark.0.set(self.device.timestamp_ns());
    }

    /// Waits while something is so, unless the device is lost or the time is over.
    fn wait_while(
        &self,
        state: &mut MutexGuard<'_, State>,
        timeout: Option<Duration>,
        condition: impl Fn(&State) -> bool,
    ) -> Result<()> {
        let waiting = |state: &mut State| state.lost.is_none() && condition(state);
        match timeout {
            None => self.progress.wait_while(state, waiting),
            Some(timeout) => {
                self.progress.wait_while_for(state, waiting, timeout);
            }
        }
        state.check_lost()?;
        if condition(state) {
            return Err(timeout_error(timeout));
        }
        Ok(())
    }

    /// Waits until all work of all streams that is enqueued by now has ended.
    pub(crate) fn wait_all(
        &self,
        state: &mut MutexGuard<'_, State>,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let end = state.sequence + 1;
        self.wait_while(state, timeout, |state| {
            state
                .oldest_outstanding()
                .is_some_and(|oldest| oldest < end)
        })
    }

    pub(crate) fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        let mut state = self.begin(Operation::Sync)?;
        self.wait_all(&mut state, timeout)
    }

    pub(crate) fn sync_stream(&self, id: StreamId, timeout: Option<Duration>) -> Result<()> {
        let mut state = self.begin(Operation::SyncStream)?;
        state.stream(id)?;
        let end = state.sequence + 1;
        self.wait_while(&mut state, timeout, |state| {
            let stream = state.streams.get(&id);
            stream.is_some_and(|stream| stream.has_work_before(end))
        })
    }

    pub(crate) fn poll(&self) -> Result<bool> {
        let state = self.begin(Operation::Poll)?;
        Ok(state.oldest_outstanding().is_none())
    }

    pub(crate) fn create_stream(&self) -> Result<StreamId> {
        let mut state = self.begin(Operation::CreateStream)?;
        if !self.device.info().capabilities.streams {
            return Err(unsupported(
                "streams",
                "the simulated device has the default stream only",
            ));
        }
        let id = StreamId(state.next_id());
        state.streams.insert(id, Stream::default());
        Ok(id)
    }

    pub(crate) fn destroy_stream(&self, id: StreamId) -> Result<()> {
        let mut state = self.begin_teardown(Operation::DestroyStream)?;
        if id == StreamId::DEFAULT {
            return Err(invalid_argument("the default stream cannot be destroyed"));
        }
        let is_lost = state.lost.is_some();
        match state.stream(id) {
            Ok(stream) => stream.destroyed = true,
            Err(error) if !is_lost => return Err(error),
            Err(_) => {}
        }
        self.after_progress(&mut state);
        Ok(())
    }

    pub(crate) fn create_event(&self) -> Result<EventId> {
        let mut state = self.begin(Operation::CreateEvent)?;
        let id = EventId(state.next_id());
        state.events.insert(id, None);
        Ok(id)
    }

    pub(crate) fn destroy_event(&self, id: EventId) -> Result<()> {
        let mut state = self.begin_teardown(Operation::DestroyEvent)?;
        // Marks in the streams live on by themselves.
        if state.events.remove(&id).is_none() && state.lost.is_none() {
            return Err(invalid_handle(HandleKind::Event, id.0));
        }
        Ok(())
    }

    pub(crate) fn record_event(self: &Arc<Self>, event: EventId, id: StreamId) -> Result<()> {
        let mut state = self.begin(Operation::RecordEvent)?;
        state.mark(event)?;
        let mark = Arc::new(Mark::default());
        if state.stream_is_idle(id)? {
            self.reach(&mark);
        } else {
            let work = Work::Record(Arc::clone(&mark));
            self.enqueue(&mut state, id, None, work)?;
        }
        state.events.insert(event, Some(mark));
        Ok(())
    }

    pub(crate) fn wait_event(self: &Arc<Self>, id: StreamId, event: EventId) -> Result<()> {
        let mut state = self.begin(Operation::WaitEvent)?;
        let mark = state.mark(event)?.filter(|mark| !mark.is_reached());
        state.stream(id)?;
        match mark {
            Some(mark) => self.enqueue(&mut state, id, None, Work::Wait(mark)),
            None => Ok(()),
        }
    }

    pub(crate) fn query_event(&self, event: EventId) -> Result<EventStatus> {
        let state = self.begin(Operation::QueryEvent)?;
        Ok(match state.mark(event)? {
            None => EventStatus::NotRecorded,
            Some(mark) if mark.is_reached() => EventStatus::Complete,
            Some(_) => EventStatus::Pending,
        })
    }

    pub(crate) fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        let mut state = self.begin(Operation::SyncEvent)?;
        let Some(mark) = state.mark(event)? else {
            return Ok(());
        };
        self.wait_while(&mut state, timeout, |_| !mark.is_reached())
    }

    pub(crate) fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        let state = self.begin(Operation::ElapsedTime)?;
        if !self.device.info().capabilities.event_timing {
            return Err(unsupported(
                "event timing",
                "the simulated device measures no times",
            ));
        }
        let reached_at = |event: EventId| {
            let mark = state.mark(event)?.ok_or_else(|| {
                invalid_argument(format!("event {:#x} was never recorded", event.0))
            })?;
            mark.0.get().copied().ok_or_else(|| GpuError::NotReady {
                what: format!("event {:#x}", event.0),
            })
        };
        let (start, end) = (reached_at(start)?, reached_at(end)?);
        Ok(end.saturating_sub(start))
    }
}
