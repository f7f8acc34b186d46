//! An open simulated device.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use grafos_host_abi::{
    BufferDesc, BufferId, BufferInfo, BufferRange, CloseReport, DeviceInfo, EventId, EventStatus,
    FillPattern, GlobalInfo, GpuContext, GpuError, HandleKind, KernelId, KernelInfo, LaunchDesc,
    LostFault, MemoryInfo, ModuleId, ModuleInfo, NativeHandle, Result, StreamId,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::Shared;
use crate::device::SimulatedDevice;
use crate::error::{invalid_handle, lost, unsupported};
use crate::fault::{Failure, GateState, Operation};
use crate::memory::{AddressSpace, Allocation};
use crate::module::{Module, ResolvedKernel};
use crate::stream::{Mark, Stream};

/// What [`MockBackend::open`](crate::MockBackend) gives out: the owner of a [`Core`].
#[derive(Debug)]
pub(crate) struct MockContext {
    core: Arc<Core>,
}

/// A context, shared by its owner and the threads of its streams.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) backend: Arc<Shared>,
    pub(crate) device: Arc<SimulatedDevice>,
    pub(crate) state: Mutex<State>,
    /// Signals that a stream's thread may have something to do.
    pub(crate) work: Condvar,
    /// Signals that work has ended or the device is lost.
    pub(crate) progress: Condvar,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) closed: bool,
    pub(crate) lost: Option<LostFault>,
    last_id: u64,
    /// The number of the last work or free; it tells what came before what, over all streams.
    pub(crate) sequence: u64,
    pub(crate) space: AddressSpace,
    /// Buffers, and the globals of loaded modules.
    pub(crate) buffers: HashMap<BufferId, Arc<Allocation>>,
    /// What was freed, in that order, and may still be in use.
    pub(crate) retired: VecDeque<(u64, Arc<Allocation>)>,
    pub(crate) live_buffers: u64,
    pub(crate) live_bytes: u64,
    /// What counts against the device: live and retired buffers and globals.
    pub(crate) reserved_bytes: u64,
    pub(crate) modules: HashMap<ModuleId, Module>,
    pub(crate) kernels: HashMap<KernelId, ResolvedKernel>,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    /// Each event's last record.
    pub(crate) events: HashMap<EventId, Option<Arc<Mark>>>,
}

impl State {
    /// Makes an id that is unique over all contexts of the backend and all kinds of handles, so
    /// that a handle never passes for another.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn check_lost(&self) -> Result<()> {
        match &self.lost {
            Some(fault) => Err(lost(fault)),
            None => Ok(()),
        }
    }

    pub(crate) fn check(&self, context: u64) -> Result<()> {
        if self.closed {
            return Err(invalid_handle(HandleKind::Context, context));
        }
        self.check_lost()
    }
}

impl MockContext {
    pub(crate) fn open(backend: &Arc<Shared>, device: &Arc<SimulatedDevice>, id: u64) -> Self {
        let core = Arc::new(Core {
            id,
            backend: Arc::clone(backend),
            device: Arc::clone(device),
            state: Mutex::new(State {
                closed: false,
                lost: None,
                last_id: id << 32,
                sequence: 0,
                space: AddressSpace::new(id),
                buffers: HashMap::new(),
                retired: VecDeque::new(),
                live_buffers: 0,
                live_bytes: 0,
                reserved_bytes: 0,
                modules: HashMap::new(),
                kernels: HashMap::new(),
                streams: BTreeMap::from([(StreamId::DEFAULT, Stream::default())]),
                events: HashMap::new(),
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        device.register(&core);
        Self { core }
    }
}

impl Core {
    /// Counts a call, applies what is scripted for it, and locks the context.
    pub(crate) fn begin(&self, operation: Operation) -> Result<MutexGuard<'_, State>> {
        self.begin_enqueued(operation).map(|(state, _)| state)
    }

    /// As [`begin`](Self::begin), for an operation whose work a gate can hold back.
    pub(crate) fn begin_enqueued(
        &self,
        operation: Operation,
    ) -> Result<(MutexGuard<'_, State>, Option<Arc<GateState>>)> {
        let gate = self.apply_script(operation)?;
        let state = self.state.lock();
        state.check(self.id)?;
        Ok((state, gate))
    }

    /// As [`begin`](Self::begin), for an operation that a lost device does not fail.
    pub(crate) fn begin_teardown(&self, operation: Operation) -> Result<MutexGuard<'_, State>> {
        match self.apply_script(operation) {
            Ok(_) | Err(GpuError::DeviceLost(_)) => {}
            Err(error) => return Err(error),
        }
        let state = self.state.lock();
        match state.check(self.id) {
            Err(error) if state.lost.is_none() => Err(error),
            _ => Ok(state),
        }
    }

    fn apply_script(&self, operation: Operation) -> Result<Option<Arc<GateState>>> {
        let verdict = self.backend.faults.count(operation);
        let mut gate = verdict.gate;
        if !operation.is_enqueued()
            && let Some(gate) = gate.take()
        {
            gate.pass();
        }
        match verdict.failure {
            None => Ok(gate),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Lost(fault)) => {
                if fault.needs_process_restart {
                    self.device.lose(&fault);
                }
                self.lose(&fault);
                // The first cause counts, should there have been another before.
                self.state.lock().check_lost().map(|()| None)
            }
        }
    }

    /// Latches the loss of the device: no work begins any more and all waiting threads wake.
    pub(crate) fn lose(&self, fault: &LostFault) {
        let abandoned = self.latch_loss(&mut self.state.lock(), fault);
        // Outside the lock, as work can own a kernel whose drop runs code that is not ours.
        drop(abandoned);
    }

    /// As [`lose`](Self::lose), under the caller's lock. What is returned is to be dropped outside
    /// of it.
    pub(crate) fn latch_loss(&self, state: &mut State, fault: &LostFault) -> impl Sized + use<> {
        if state.lost.is_some() {
            return Vec::new();
        }
        state.lost = Some(fault.clone());
        let abandoned: Vec<_> = state.streams.values_mut().map(Stream::abandon).collect();
        self.after_progress(state);
        abandoned
    }

    fn close(&self, timeout: Option<Duration>) -> Result<CloseReport> {
        match self.apply_script(Operation::Close) {
            Ok(_) | Err(GpuError::DeviceLost(_)) => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state.lock();
        if state.closed {
            return Ok(CloseReport::default());
        }
        match self.wait_all(&mut state, timeout) {
            Ok(()) | Err(GpuError::DeviceLost(_)) => {}
            Err(error) => return Err(error),
        }
        let live_streams = state
            .streams
            .iter()
            .filter(|(id, stream)| **id != StreamId::DEFAULT && !stream.destroyed)
            .count();
        let report = CloseReport {
            live_buffers: state.live_buffers,
            live_bytes: state.live_bytes,
            live_modules: state.modules.len() as u64,
            live_streams: live_streams as u64,
            live_events: state.events.len() as u64,
        };
        self.end(&mut state);
        Ok(report)
    }

    /// Ends the context; what still runs keeps its memory until it has ended.
    fn end(&self, state: &mut State) {
        state.closed = true;
        self.after_progress(state);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Drop for MockContext {
    fn drop(&mut self) {
        self.core.end(&mut self.core.state.lock());
    }
}

impl GpuContext for MockContext {
    fn device(&self) -> &DeviceInfo {
        self.core.device.info()
    }

    fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo> {
        self.core.alloc(desc)
    }

    fn free(&self, buffer: BufferId) -> Result<()> {
        self.core.free(buffer)
    }

    fn write(&self, stream: StreamId, dst: BufferRange, data: &[u8]) -> Result<()> {
        self.core.write(stream, dst, data)
    }

    fn read(&self, stream: StreamId, src: BufferRange, out: &mut [u8]) -> Result<()> {
        self.core.read(stream, src, out)
    }

    fn copy(&self, stream: StreamId, dst: BufferRange, src: BufferRange) -> Result<()> {
        self.core.copy(stream, dst, src)
    }

    fn fill(&self, stream: StreamId, dst: BufferRange, pattern: FillPattern) -> Result<()> {
        self.core.fill(stream, dst, pattern)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.core.memory_info()
    }

    fn trim(&self) -> Result<u64> {
        self.core.trim()
    }

    fn load_module(&self, image: &[u8]) -> Result<ModuleInfo> {
        self.core.load_module(image)
    }

    fn unload_module(&self, module: ModuleId) -> Result<()> {
        self.core.unload_module(module)
    }

    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelInfo> {
        self.core.kernel(module, name)
    }

    fn global(&self, module: ModuleId, name: &str) -> Result<GlobalInfo> {
        self.core.global(module, name)
    }

    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<()> {
        self.core.launch(launch)
    }

    fn create_stream(&self) -> Result<StreamId> {
        self.core.create_stream()
    }

    fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        self.core.destroy_stream(stream)
    }

    fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        self.core.sync_stream(stream, timeout)
    }

    fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        self.core.sync(timeout)
    }

    fn poll(&self) -> Result<bool> {
        self.core.poll()
    }

    fn create_event(&self) -> Result<EventId> {
        self.core.create_event()
    }

    fn destroy_event(&self, event: EventId) -> Result<()> {
        self.core.destroy_event(event)
    }

    fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.core.record_event(event, stream)
    }

    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        self.core.wait_event(stream, event)
    }

    fn query_event(&self, event: EventId) -> Result<EventStatus> {
        self.core.query_event(event)
    }

    fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        self.core.sync_event(event, timeout)
    }

    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        self.core.elapsed_ns(start, end)
    }

    fn with_native(
        &self,
        _stream: StreamId,
        _buffers: &[BufferId],
        _use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()> {
        drop(self.core.begin(Operation::WithNative)?);
        Err(unsupported(
            "native handles",
            "there is no driver behind a simulated device",
        ))
    }

    fn close(&self, timeout: Option<Duration>) -> Result<CloseReport> {
        self.core.close(timeout)
    }

    fn kernel_names(&self, module: ModuleId) -> Result<Vec<String>> {
        self.core.kernel_names(module)
    }
}
