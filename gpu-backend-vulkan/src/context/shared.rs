//! What the parts of an open context share, and when it may be given up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use grafos_host_abi::{CloseReport, DeviceInfo, Result};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use super::Table;
use crate::driver::{Device, DeviceBuffer, PipelineCache};
use crate::memory::Memory;
use crate::module::{Kernel, Module};
use crate::stream::{Event, Feeder, Stream, Timestamp, Timestamps};

/// An open context.
///
/// Locks are taken in this order: a stream's, `kernels`, `buffers`, then those inside `memory`.
pub(crate) struct Shared {
    pub(crate) info: DeviceInfo,
    pub(crate) api_version: u32,
    /// Storage buffers that a kernel can have.
    pub(crate) max_bindings: u32,
    pub(crate) max_push_descriptors: u32,
    pub(crate) storage_align_bytes: u64,
    pub(crate) max_storage_range_bytes: u64,
    pub(crate) timestamp_period_ns: f32,
    pub(crate) next_queue: AtomicUsize,
    pub(crate) feeder: Feeder,
    pub(crate) default_stream: Arc<Stream>,
    pub(crate) streams: RwLock<Table<Arc<Stream>>>,
    pub(crate) events: RwLock<Table<Arc<Event>>>,
    pub(crate) timestamps: Timestamps,
    pub(crate) modules: RwLock<Table<Arc<Module>>>,
    pub(crate) kernels: RwLock<Table<Arc<Kernel>>>,
    pub(crate) pipeline_cache: PipelineCache,
    pub(crate) buffers: RwLock<Table<Arc<DeviceBuffer>>>,
    /// Whether the context is being closed: nothing more is recorded.
    pub(crate) closing: AtomicBool,
    garbage: Mutex<VecDeque<Discarded>>,
    /// Lets the common case look without the lock.
    has_garbage: AtomicBool,
    pub(crate) memory: Arc<Memory>,
    pub(crate) device: Arc<Device>,
}

/// What is given up and may still be in use.
pub(crate) enum Garbage {
    Buffer(#[expect(dead_code, reason = "held for its drop")] Arc<DeviceBuffer>),
    Kernels(#[expect(dead_code, reason = "held for its drop")] Vec<Arc<Kernel>>),
    Timestamp(Timestamp),
    /// The stream is among those that are waited for.
    Stream,
}

/// Streams, and the values that they must reach.
pub(crate) type Marks = SmallVec<[(Arc<Stream>, u64); 4]>;

struct Discarded {
    garbage: Garbage,
    after: Marks,
}

/// The parts of a new context that depend on the device.
pub(crate) struct SharedDesc {
    pub(crate) info: DeviceInfo,
    pub(crate) api_version: u32,
    pub(crate) max_bindings: u32,
    pub(crate) max_push_descriptors: u32,
    pub(crate) storage_align_bytes: u64,
    pub(crate) max_storage_range_bytes: u64,
    pub(crate) timestamp_period_ns: f32,
    pub(crate) memory: Memory,
    pub(crate) device: Arc<Device>,
}

impl Shared {
    pub(crate) fn new(desc: SharedDesc) -> Result<Self> {
        let device = desc.device;
        let memory = Arc::new(desc.memory);
        let default_stream = Arc::new(Stream::new(&device, 0)?);
        let mut streams = Table::default();
        // The first id of a table is 0, as the default stream's is.
        streams.insert(Arc::clone(&default_stream));
        Ok(Self {
            info: desc.info,
            api_version: desc.api_version,
            max_bindings: desc.max_bindings,
            max_push_descriptors: desc.max_push_descriptors,
            storage_align_bytes: desc.storage_align_bytes,
            max_storage_range_bytes: desc.max_storage_range_bytes,
            timestamp_period_ns: desc.timestamp_period_ns,
            next_queue: AtomicUsize::new(1),
            feeder: Feeder::new(&device, &memory),
            default_stream,
            streams: RwLock::new(streams),
            events: RwLock::default(),
            timestamps: Timestamps::default(),
            modules: RwLock::default(),
            kernels: RwLock::default(),
            pipeline_cache: PipelineCache::new(&device)?,
            buffers: RwLock::default(),
            closing: AtomicBool::new(false),
            garbage: Mutex::default(),
            has_garbage: AtomicBool::new(false),
            memory,
            device,
        })
    }

    /// Gives something up once all work that is recorded now has ended.
    pub(crate) fn discard(&self, garbage: Garbage) {
        let after = self
            .streams
            .read()
            .values()
            .map(|stream| (stream, stream.recorded()))
            .filter(|(stream, value)| !stream.has_reached(*value))
            .map(|(stream, value)| (Arc::clone(stream), value))
            .collect();
        self.discard_after(garbage, after);
    }

    /// Gives something up once streams have reached values.
    pub(crate) fn discard_after(&self, garbage: Garbage, after: Marks) {
        let busy = after
            .iter()
            .any(|(stream, value)| !stream.has_reached(*value));
        if !busy && !self.has_garbage() {
            self.give_up(garbage);
            return;
        }
        {
            let mut queue = self.garbage.lock();
            queue.push_back(Discarded { garbage, after });
            self.has_garbage.store(true, Ordering::Release);
        }
        self.collect();
    }

    fn give_up(&self, garbage: Garbage) {
        if let Garbage::Timestamp(timestamp) = garbage {
            self.timestamps.give_back(timestamp);
        }
    }

    pub(crate) fn has_garbage(&self) -> bool {
        self.has_garbage.load(Ordering::Acquire)
    }

    /// Gives up what is not in use any more.
    ///
    /// Whatever is discarded later waits for at least as much, so the first that is still in use
    /// ends the round; only a destroyed stream's and a timestamp's turn can come later than need
    /// be.
    pub(crate) fn collect(&self) {
        if !self.has_garbage() {
            return;
        }
        let mut ended: SmallVec<[Garbage; 8]> = SmallVec::new();
        {
            let mut queue = self.garbage.lock();
            while let Some(first) = queue.front() {
                let in_use = first.after.iter().any(|(stream, value)| {
                    // Work on a lost device has ended.
                    !stream.has_reached(*value)
                        && stream.refresh().is_ok_and(|reached| reached < *value)
                });
                if in_use {
                    break;
                }
                if let Some(first) = queue.pop_front() {
                    ended.push(first.garbage);
                }
            }
            self.has_garbage.store(!queue.is_empty(), Ordering::Release);
        }
        // Outside the lock: destroying takes time.
        for garbage in ended {
            self.give_up(garbage);
        }
    }

    /// What discarded things wait for: the streams among it may be destroyed ones.
    pub(crate) fn garbage_marks(&self) -> Marks {
        if !self.has_garbage() {
            return SmallVec::new();
        }
        let queue = self.garbage.lock();
        queue
            .iter()
            .filter(|discarded| matches!(discarded.garbage, Garbage::Stream))
            .flat_map(|discarded| discarded.after.iter().cloned())
            .filter(|(stream, value)| !stream.has_reached(*value))
            .collect()
    }

    /// Counts what nobody has given back.
    pub(crate) fn report(&self) -> CloseReport {
        CloseReport {
            live_buffers: self.buffers.read().len() as u64,
            live_bytes: self.memory.live_bytes(),
            live_modules: self.modules.read().len() as u64,
            // Not the default one.
            live_streams: (self.streams.read().len() as u64).saturating_sub(1),
            live_events: self.events.read().len() as u64,
        }
    }
}
