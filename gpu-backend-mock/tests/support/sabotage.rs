//! A backend that keeps every contract but one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gpu_backend_mock::MockBackend;
use grafos_host_abi::{
    BufferDesc, BufferId, BufferInfo, BufferRange, CloseReport, ContextOptions, DeviceInfo,
    DeviceUuid, DriverFault, EventId, EventStatus, FillPattern, GlobalInfo, GpuBackend, GpuContext,
    GpuError, KernelId, KernelInfo, LaunchArg, LaunchDesc, LostFault, MemoryInfo, ModuleId,
    ModuleInfo, NativeHandle, Probe, Result, StreamId, TimeoutFault,
};
use parking_lot::Mutex;

/// The contract that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// None: the control.
    None,
    AnyDeviceIndexOpens,
    UuidChanges,
    AddressesAreMisaligned,
    BufferIdsAreReused,
    FreedMemoryIsGivenOutAtOnce,
    DoubleFreesSucceed,
    FailedAllocationsCount,
    CapacityIsADriverError,
    TrimOverstates,
    ReadsAreOffByOne,
    ReadsMissTheLastByte,
    EverySecondWriteIsDropped,
    CopiesGoBackwards,
    CopiesLeaveTheirStream,
    FillsSwapBytes,
    FillsRoundUpToWords,
    BadImagesLoad,
    NamesEndAtNul,
    KernelsResolveAnew,
    DoubleUnloadsSucceed,
    OffsetsAreMisreported,
    ArgumentsAreSwapped,
    BoundBuffersBeginAtTheirStart,
    DynamicSharedMemoryIsDropped,
    GridsLoseTheirLastLayer,
    EveryThousandthLaunchIsDropped,
    LaunchesWait,
    DefaultStreamIsDestroyed,
    TimeoutsAreIgnored,
    TimeoutsAreZero,
    PollIsAlwaysTrue,
    EventsCompleteEarly,
    EventsAreNotWaitedFor,
    ElapsedTimeHasNoDirection,
    CloseReportsNothing,
    CloseIgnoresItsTimeout,
    CallsAfterCloseSucceed,
    LaterLossesHideTheFirst,
    SyncHangs,
    SyncPanics,
}

/// The software GPU with one contract broken.
pub(crate) struct SabotagedBackend {
    pub(crate) inner: MockBackend,
    pub(crate) sabotage: Sabotage,
    lists: AtomicU64,
}

impl SabotagedBackend {
    pub(crate) fn new(inner: MockBackend, sabotage: Sabotage) -> Self {
        Self {
            inner,
            sabotage,
            lists: AtomicU64::new(0),
        }
    }
}

impl GpuBackend for SabotagedBackend {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn probe(&self) -> Probe {
        self.inner.probe()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut devices = self.inner.devices()?;
        if self.sabotage == Sabotage::UuidChanges {
            let list = self.lists.fetch_add(1, Ordering::Relaxed);
            for device in &mut devices {
                device.uuid = Some(DeviceUuid([list as u8; 16]));
            }
        }
        Ok(devices)
    }

    fn open(&self, device_index: u32, options: &ContextOptions) -> Result<Box<dyn GpuContext>> {
        let device_index = match self.sabotage {
            Sabotage::AnyDeviceIndexOpens => 0,
            _ => device_index,
        };
        let inner = self.inner.open(device_index, options)?;
        let hidden_stream = match self.sabotage {
            Sabotage::CopiesLeaveTheirStream => Some(inner.create_stream()?),
            _ => None,
        };
        Ok(Box::new(SabotagedContext {
            inner,
            sabotage: self.sabotage,
            hidden_stream,
            calls: AtomicU64::new(0),
            failed_allocations: AtomicU64::new(0),
            live: Mutex::default(),
            freed: Mutex::default(),
            buffers: Mutex::default(),
            kernels: Mutex::default(),
        }))
    }
}

struct SabotagedContext {
    inner: Box<dyn GpuContext>,
    sabotage: Sabotage,
    hidden_stream: Option<StreamId>,
    /// How often the call that the sabotage counts was made.
    calls: AtomicU64,
    failed_allocations: AtomicU64,
    /// Buffers as they were given out.
    live: Mutex<HashMap<BufferId, BufferInfo>>,
    /// Buffers that were freed and can be given out again.
    freed: Mutex<Vec<BufferInfo>>,
    /// The inner ids behind ids that were given out for other buffers before.
    buffers: Mutex<HashMap<BufferId, BufferId>>,
    /// The inner ids behind ids of kernels that were resolved again.
    kernels: Mutex<HashMap<KernelId, KernelId>>,
}

impl SabotagedContext {
    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage
    }

    /// Counts a call, from 1.
    fn count(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn buffer(&self, id: BufferId) -> BufferId {
        *self.buffers.lock().get(&id).unwrap_or(&id)
    }

    fn range(&self, range: BufferRange) -> BufferRange {
        BufferRange {
            buffer: self.buffer(range.buffer),
            ..range
        }
    }

    /// What a wait with a timeout is turned into: a shorter or an endless one.
    fn timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        match self.sabotage {
            Sabotage::TimeoutsAreIgnored => None,
            Sabotage::TimeoutsAreZero => timeout.map(|_| Duration::ZERO),
            _ => timeout,
        }
    }

    /// Words a timeout of zero as the one that was asked for.
    fn word_timeout(&self, waited: Result<()>, asked: Option<Duration>) -> Result<()> {
        match (waited, asked) {
            (Err(GpuError::Timeout(_)), Some(asked)) if self.is(Sabotage::TimeoutsAreZero) => {
                Err(GpuError::Timeout(TimeoutFault {
                    waited_ns: u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX),
                }))
            }
            (waited, _) => waited,
        }
    }
}

impl GpuContext for SabotagedContext {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }

    fn alloc(&self, desc: &BufferDesc) -> Result<BufferInfo> {
        if self.is(Sabotage::FreedMemoryIsGivenOutAtOnce) {
            let mut freed = self.freed.lock();
            let fits = |buffer: &BufferInfo| buffer.size_bytes == desc.size_bytes;
            if let Some(place) = freed.iter().position(fits) {
                let info = freed.swap_remove(place);
                self.live.lock().insert(info.id, info);
                return Ok(info);
            }
        }
        let mut info = self.inner.alloc(desc).map_err(|error| {
            self.failed_allocations.fetch_add(1, Ordering::Relaxed);
            if self.is(Sabotage::CapacityIsADriverError) {
                GpuError::Driver(DriverFault {
                    api: "mock",
                    entry_point: "alloc",
                    code: 2,
                    code_name: "no memory".into(),
                    detail: String::new(),
                })
            } else {
                error
            }
        })?;
        if self.is(Sabotage::AddressesAreMisaligned) {
            info.address += 16;
        }
        if self.is(Sabotage::BufferIdsAreReused)
            && let Some(old) = self.freed.lock().pop()
        {
            self.buffers.lock().insert(old.id, info.id);
            info.id = old.id;
        }
        self.live.lock().insert(info.id, info);
        Ok(info)
    }

    fn free(&self, buffer: BufferId) -> Result<()> {
        let known = self.live.lock().remove(&buffer);
        match (self.sabotage, known) {
            (Sabotage::FreedMemoryIsGivenOutAtOnce, Some(info)) => {
                self.freed.lock().push(info);
                Ok(())
            }
            (Sabotage::BufferIdsAreReused, Some(info)) => {
                self.inner.free(self.buffer(buffer))?;
                self.freed.lock().push(info);
                Ok(())
            }
            (Sabotage::DoubleFreesSucceed, None) => Ok(()),
            _ => self.inner.free(buffer),
        }
    }

    fn write(&self, stream: StreamId, dst: BufferRange, data: &[u8]) -> Result<()> {
        if self.is(Sabotage::EverySecondWriteIsDropped) && self.count().is_multiple_of(2) {
            return Ok(());
        }
        self.inner.write(stream, self.range(dst), data)
    }

    fn read(&self, stream: StreamId, src: BufferRange, out: &mut [u8]) -> Result<()> {
        let mut src = self.range(src);
        let mut out = out;
        let info = self.live.lock().get(&src.buffer).copied();
        let size_bytes = info.map_or(0, |info| info.size_bytes);
        if self.is(Sabotage::ReadsAreOffByOne) && src.offset_bytes + src.len_bytes < size_bytes {
            src.offset_bytes += 1;
        }
        if self.is(Sabotage::ReadsMissTheLastByte) {
            src.len_bytes -= 1;
            out = &mut out[..src.len_bytes as usize];
        }
        self.inner.read(stream, src, out)
    }

    fn copy(&self, stream: StreamId, dst: BufferRange, src: BufferRange) -> Result<()> {
        let (dst, src) = (self.range(dst), self.range(src));
        match self.sabotage {
            Sabotage::CopiesGoBackwards => self.inner.copy(stream, src, dst),
            Sabotage::CopiesLeaveTheirStream => {
                let stream = self.hidden_stream.unwrap_or(stream);
                self.inner.copy(stream, dst, src)
            }
            _ => self.inner.copy(stream, dst, src),
        }
    }

    fn fill(&self, stream: StreamId, dst: BufferRange, pattern: FillPattern) -> Result<()> {
        let mut dst = self.range(dst);
        let mut pattern = pattern;
        if self.is(Sabotage::FillsSwapBytes) {
            pattern = match pattern {
                FillPattern::U16(half) => FillPattern::U16(half.swap_bytes()),
                FillPattern::U32(word) => FillPattern::U32(word.swap_bytes()),
                pattern => pattern,
            };
        }
        if self.is(Sabotage::FillsRoundUpToWords) {
            dst.len_bytes = dst.len_bytes.next_multiple_of(4);
        }
        self.inner.fill(stream, dst, pattern)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let mut info = self.inner.memory_info()?;
        if self.is(Sabotage::FailedAllocationsCount) {
            info.live_buffers += self.failed_allocations.load(Ordering::Relaxed);
        }
        Ok(info)
    }

    fn trim(&self) -> Result<u64> {
        let trimmed = self.inner.trim()?;
        Ok(trimmed + u64::from(self.is(Sabotage::TrimOverstates)))
    }

    fn load_module(&self, image: &[u8]) -> Result<ModuleInfo> {
        let loaded = self.inner.load_module(image);
        if self.is(Sabotage::BadImagesLoad) && loaded.is_err() {
            return self.inner.load_module(b".version 7.0\n");
        }
        loaded
    }

    fn unload_module(&self, module: ModuleId) -> Result<()> {
        match self.inner.unload_module(module) {
            Err(GpuError::InvalidHandle(_)) if self.is(Sabotage::DoubleUnloadsSucceed) => Ok(()),
            unloaded => unloaded,
        }
    }

    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelInfo> {
        let name = match (self.sabotage, name.split_once('\0')) {
            (Sabotage::NamesEndAtNul, Some((head, _))) => head,
            _ => name,
        };
        let mut info = self.inner.kernel(module, name)?;
        if self.is(Sabotage::KernelsResolveAnew) {
            let outer = KernelId(info.id.0 | self.count() << 48);
            self.kernels.lock().insert(outer, info.id);
            info.id = outer;
        }
        if self.is(Sabotage::OffsetsAreMisreported) {
            for param in info.params.iter_mut().flatten() {
                param.offset_bytes *= 2;
            }
        }
        Ok(info)
    }

    fn global(&self, module: ModuleId, name: &str) -> Result<GlobalInfo> {
        self.inner.global(module, name)
    }

    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<()> {
        if self.is(Sabotage::EveryThousandthLaunchIsDropped) && self.count().is_multiple_of(1000) {
            return Ok(());
        }
        let mut args: Vec<LaunchArg<'_>> = launch.args.to_vec();
        let starts: Vec<Option<[u8; 8]>> = args
            .iter()
            .map(|arg| {
                let bound = arg.buffer?;
                let info = *self.live.lock().get(&bound.buffer)?;
                Some(info.address.to_le_bytes())
            })
            .collect();
        if self.is(Sabotage::BoundBuffersBeginAtTheirStart) {
            for (arg, start) in args.iter_mut().zip(&starts) {
                arg.bytes = start.as_ref().map_or(arg.bytes, |start| start);
            }
        }
        let last = args.len() - 1;
        if self.is(Sabotage::ArgumentsAreSwapped)
            && last > 0
            && args[last].bytes.len() == args[last - 1].bytes.len()
        {
            args.swap(last, last - 1);
        }
        for arg in &mut args {
            arg.buffer = arg.buffer.map(|range| self.range(range));
        }
        let mut changed = LaunchDesc {
            kernel: *self
                .kernels
                .lock()
                .get(&launch.kernel)
                .unwrap_or(&launch.kernel),
            args: &args,
            ..*launch
        };
        match self.sabotage {
            Sabotage::DynamicSharedMemoryIsDropped => changed.dynamic_shared_bytes = 0,
            Sabotage::GridsLoseTheirLastLayer => changed.grid[2] = (changed.grid[2] - 1).max(1),
            _ => {}
        }
        self.inner.launch(&changed)?;
        if self.is(Sabotage::LaunchesWait) {
            self.inner.sync_stream(launch.stream, None)?;
        }
        Ok(())
    }

    fn create_stream(&self) -> Result<StreamId> {
        self.inner.create_stream()
    }

    fn destroy_stream(&self, stream: StreamId) -> Result<()> {
        if self.is(Sabotage::DefaultStreamIsDestroyed) && stream == StreamId::DEFAULT {
            return Ok(());
        }
        self.inner.destroy_stream(stream)
    }

    fn sync_stream(&self, stream: StreamId, timeout: Option<Duration>) -> Result<()> {
        let waited = self.inner.sync_stream(stream, self.timeout(timeout));
        self.word_timeout(waited, timeout)
    }

    fn sync(&self, timeout: Option<Duration>) -> Result<()> {
        match self.sabotage {
            Sabotage::SyncHangs => loop {
                std::thread::park();
            },
            Sabotage::SyncPanics => panic!("the driver gave up"),
            _ => {}
        }
        let waited = self.inner.sync(self.timeout(timeout));
        self.word_timeout(waited, timeout)
    }

    fn poll(&self) -> Result<bool> {
        match (self.sabotage, self.inner.poll()) {
            (Sabotage::PollIsAlwaysTrue, Ok(_)) => Ok(true),
            (Sabotage::CallsAfterCloseSucceed, Err(GpuError::InvalidHandle(_))) => Ok(true),
            (Sabotage::LaterLossesHideTheFirst, Err(GpuError::DeviceLost(fault))) => {
                Err(GpuError::DeviceLost(LostFault {
                    reason: format!("loss of call {}", self.count()),
                    ..fault
                }))
            }
            (_, polled) => polled,
        }
    }

    fn create_event(&self) -> Result<EventId> {
        self.inner.create_event()
    }

    fn destroy_event(&self, event: EventId) -> Result<()> {
        self.inner.destroy_event(event)
    }

    fn record_event(&self, event: EventId, stream: StreamId) -> Result<()> {
        self.inner.record_event(event, stream)
    }

    fn wait_event(&self, stream: StreamId, event: EventId) -> Result<()> {
        match self.sabotage {
            Sabotage::EventsAreNotWaitedFor => Ok(()),
            _ => self.inner.wait_event(stream, event),
        }
    }

    fn query_event(&self, event: EventId) -> Result<EventStatus> {
        match (self.sabotage, self.inner.query_event(event)?) {
            (Sabotage::EventsCompleteEarly, EventStatus::Pending) => Ok(EventStatus::Complete),
            (_, status) => Ok(status),
        }
    }

    fn sync_event(&self, event: EventId, timeout: Option<Duration>) -> Result<()> {
        let waited = self.inner.sync_event(event, self.timeout(timeout));
        self.word_timeout(waited, timeout)
    }

    fn elapsed_ns(&self, start: EventId, end: EventId) -> Result<u64> {
        let forward = self.inner.elapsed_ns(start, end)?;
        if self.is(Sabotage::ElapsedTimeHasNoDirection) {
            return Ok(forward.max(self.inner.elapsed_ns(end, start)?));
        }
        Ok(forward)
    }

    fn with_native(
        &self,
        stream: StreamId,
        buffers: &[BufferId],
        use_handle: &mut dyn FnMut(&NativeHandle),
    ) -> Result<()> {
        self.inner.with_native(stream, buffers, use_handle)
    }

    fn close(&self, timeout: Option<Duration>) -> Result<CloseReport> {
        let timeout = match self.sabotage {
            Sabotage::CloseIgnoresItsTimeout => None,
            _ => timeout,
        };
        let report = self.inner.close(timeout)?;
        match self.sabotage {
            Sabotage::CloseReportsNothing => Ok(CloseReport::default()),
            _ => Ok(report),
        }
    }

    fn kernel_names(&self, module: ModuleId) -> Result<Vec<String>> {
        self.inner.kernel_names(module)
    }
}
