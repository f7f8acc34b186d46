//! Launches: what is recorded of them, and how their blocks run.

mod pool;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use grafos_host_abi::{
    ArgumentFault, ArgumentProblem, Axis, DeviceLimits, GpuError, HandleKind, LaunchDesc,
    LimitFault, LimitKind, LostFault, Result,
};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::context::Core;
use crate::error::{invalid_argument, invalid_handle};
use crate::fault::Operation;
use crate::kernel::{BlockScope, HostKernel, KernelTrap};
use crate::memory::{Allocation, Snapshot};
use crate::module::{Globals, ResolvedKernel};
use crate::stream::Work;

pub(crate) use pool::Pool;

/// How many launches a backend remembers.
const REMEMBERED_LAUNCHES: usize = 4096;
/// How many pieces a grid is cut into per thread: more even out uneven blocks.
const PIECES_PER_THREAD: u64 = 16;
/// The most blocks of one piece, so that a trap is noticed soon.
const MAX_PIECE_BLOCKS: u64 = 1024;

/// A launch that reached the backend. From
/// [`MockBackend::launches`](crate::MockBackend::launches).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedLaunch {
    /// The name that the kernel was resolved by.
    pub kernel: String,
    /// Blocks per axis, x y z.
    pub grid: [u32; 3],
    /// Threads per block and axis, x y z.
    pub block: [u32; 3],
    /// Shared memory that the launch added, in bytes per block.
    pub dynamic_shared_bytes: u32,
    /// The arguments' bytes, in order.
    pub args: Vec<Vec<u8>>,
    /// The index of the device.
    pub device_index: u32,
}

/// The launches that a backend remembers: the last ones.
#[derive(Debug, Default)]
pub(crate) struct LaunchLog(Mutex<VecDeque<Arc<LaunchRecord>>>);

impl LaunchLog {
    pub(crate) fn all(&self) -> Vec<RecordedLaunch> {
        let records: Vec<_> = self.0.lock().iter().cloned().collect();
        records.iter().map(|record| record.describe()).collect()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    fn push(&self, record: Arc<LaunchRecord>) {
        let mut records = self.0.lock();
        if records.len() == REMEMBERED_LAUNCHES {
            records.pop_front();
        }
        records.push_back(record);
    }
}

/// What a caller gave for a launch.
#[derive(Debug)]
pub(crate) struct LaunchRecord {
    kernel: Arc<str>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    device_index: u32,
    arg_bytes: SmallVec<[u8; 96]>,
    /// Where each argument ends in `arg_bytes`.
    arg_ends: SmallVec<[u32; 12]>,
}

impl LaunchRecord {
    fn new(kernel: &Arc<str>, launch: &LaunchDesc<'_>, device_index: u32) -> Self {
        let mut arg_bytes = SmallVec::new();
        let mut arg_ends = SmallVec::new();
        for arg in launch.args {
            arg_bytes.extend_from_slice(arg.bytes);
            arg_ends.push(arg_bytes.len() as u32);
        }
        Self {
            kernel: Arc::clone(kernel),
            grid: launch.grid,
            block: launch.block,
            dynamic_shared_bytes: launch.dynamic_shared_bytes,
            device_index,
            arg_bytes,
            arg_ends,
        }
    }

    pub(crate) fn arg_count(&self) -> usize {
        self.arg_ends.len()
    }

    pub(crate) fn arg(&self, index: usize) -> Option<&[u8]> {
        let end = *self.arg_ends.get(index)? as usize;
        let start = match index.checked_sub(1) {
            Some(previous) => self.arg_ends[previous] as usize,
            None => 0,
        };
        Some(&self.arg_bytes[start..end])
    }

    fn describe(&self) -> RecordedLaunch {
        RecordedLaunch {
            kernel: self.kernel.as_ref().to_owned(),
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            args: (0..self.arg_count())
                .filter_map(|index| self.arg(index).map(<[u8]>::to_vec))
                .collect(),
            device_index: self.device_index,
        }
    }
}

/// A launch in a stream's queue.
#[derive(Debug)]
pub(crate) struct PendingLaunch {
    record: Arc<LaunchRecord>,
    /// `None` for a kernel that does nothing, which is enqueued only to be held back by a gate.
    kernel: Option<Arc<HostKernel>>,
    globals: Globals,
}

/// A running launch.
#[derive(Debug)]
pub(crate) struct Launch {
    record: Arc<LaunchRecord>,
    kernel: Arc<HostKernel>,
    globals: Globals,
    memory: Snapshot,
    sequence: u64,
}

impl Launch {
    pub(crate) fn record(&self) -> &LaunchRecord {
        &self.record
    }

    pub(crate) fn kernel(&self) -> &HostKernel {
        &self.kernel
    }

    pub(crate) fn global(&self, name: &str) -> Option<&Allocation> {
        self.globals.get(name).map(|allocation| &**allocation)
    }

    pub(crate) fn resolve(&self, address: u64) -> Result<(&Allocation, usize), KernelTrap> {
        self.memory.resolve(address, self.sequence)
    }
}

/// A running launch as work for several threads: each takes the next piece of the grid.
#[derive(Debug)]
struct Job {
    launch: Launch,
    blocks: u64,
    piece_blocks: u64,
    next_block: AtomicU64,
    stopped: AtomicBool,
    /// What stopped it: the first trap or panic.
    fault: Mutex<Option<String>>,
}

impl Job {
    fn new(launch: Launch, threads: usize) -> Self {
        // Axes have 31, 16 and 16 bits at most, as the limits say.
        let blocks = launch
            .record
            .grid
            .iter()
            .map(|axis| u64::from(*axis))
            .product();
        let pieces = PIECES_PER_THREAD * threads as u64;
        Self {
            launch,
            blocks,
            piece_blocks: (blocks / pieces).clamp(1, MAX_PIECE_BLOCKS),
            next_block: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            fault: Mutex::new(None),
        }
    }

    fn pieces(&self) -> u64 {
        self.blocks.div_ceil(self.piece_blocks)
    }

    /// Runs pieces of the grid until none is left.
    fn work(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            let first = self
                .next_block
                .fetch_add(self.piece_blocks, Ordering::Relaxed);
            if first >= self.blocks {
                return;
            }
            let end = first.saturating_add(self.piece_blocks).min(self.blocks);
            for block in first..end {
                if let Err(fault) = self.run_block(block) {
                    self.stopped.store(true, Ordering::Relaxed);
                    self.fault.lock().get_or_insert(fault);
                    return;
                }
            }
        }
    }

    fn run_block(&self, number: u64) -> Result<(), String> {
        let [width, height, _] = self.launch.record.grid.map(u64::from);
        // Each part is below its axis, which has 32 bits.
        let index = [
            (number % width) as u32,
            (number / width % height) as u32,
            (number / width / height) as u32,
        ];
        // A panic leaves nothing of ours half done: memory is atomic and the launch is given up.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut scope = BlockScope::new(&self.launch, index);
            self.launch.kernel.run(&mut scope)
        }));
        let reason = match ended {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(trap)) => trap.to_string(),
            Err(panic) => format!("the host kernel panicked: {}", panic_text(&*panic)),
        };
        let [x, y, z] = index;
        let name = &self.launch.record.kernel;
        Err(format!("kernel {name:?}: block ({x}, {y}, {z}): {reason}"))
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "without a message"
    }
}

impl Core {
    pub(crate) fn launch(self: &Arc<Self>, launch: &LaunchDesc<'_>) -> Result<()> {
        let (mut state, gate) = self.begin_enqueued(Operation::Launch)?;
        let unknown = || invalid_handle(HandleKind::Kernel, launch.kernel.0);
        let module = state
            .kernels
            .get(&launch.kernel)
            .ok_or_else(unknown)?
            .module;
        if self.has_new_globals(&state, module) {
            drop(state);
            self.add_new_globals(module)?;
            state = self.state.lock();
            state.check(self.id)?;
        }
        let kernel = state.kernels.get(&launch.kernel).ok_or_else(unknown)?;
        check(kernel, &self.device.info().limits, launch)?;
        let index = self.device.info().index;
        let record = Arc::new(LaunchRecord::new(&kernel.name, launch, index));
        let pending = PendingLaunch {
            record: Arc::clone(&record),
            kernel: kernel.body.clone(),
            globals: state.globals(module),
        };
        state.stream_is_idle(launch.stream)?;
        self.backend.launches.push(record);
        if pending.kernel.is_none() && gate.is_none() {
            // It does nothing, so it has ended when the work before it has.
            return Ok(());
        }
        self.enqueue(&mut state, launch.stream, gate, Work::Launch(pending))
    }

    /// Runs a launch to its end, on this thread and the pool's.
    /// Runs a launch to its end. What it answers loses the device.
    pub(crate) fn run_launch(&self, launch: PendingLaunch, sequence: u64) -> Option<LostFault> {
        let kernel = launch.kernel?;
        let memory = self.state.lock().space.snapshot();
        let pool = &self.backend.pool;
        let job = Arc::new(Job::new(
            Launch {
                record: launch.record,
                kernel,
                globals: launch.globals,
                memory,
                sequence,
            },
            pool.threads(),
        ));
        pool.run(&job);
        let fault = job.fault.lock().take();
        fault.map(|reason| LostFault {
            reason,
            needs_process_restart: false,
        })
    }
}

/// Checks what the host should have checked: a slip there must show here, not pass by luck.
fn check(kernel: &ResolvedKernel, limits: &DeviceLimits, launch: &LaunchDesc<'_>) -> Result<()> {
    let name = || kernel.name.as_ref().to_owned();
    let within = |what, axis, requested: u64, limit: u64| {
        if requested <= limit {
            return Ok(());
        }
        Err(GpuError::LaunchLimits(LimitFault {
            kernel: name(),
            what,
            axis,
            requested,
            limit,
        }))
    };
    let mut threads = 1;
    for (index, axis) in Axis::ALL.into_iter().enumerate() {
        let (blocks, width) = (launch.grid[index], launch.block[index]);
        if blocks == 0 || width == 0 {
            return Err(invalid_argument(format!(
                "kernel {:?}: grid {:?}, block {:?}: axis {axis} is 0",
                kernel.name, launch.grid, launch.block
            )));
        }
        let most = (limits.max_grid[index], limits.max_block[index]);
        within(
            LimitKind::GridBlocks,
            Some(axis),
            blocks.into(),
            most.0.into(),
        )?;
        within(
            LimitKind::BlockThreads,
            Some(axis),
            width.into(),
            most.1.into(),
        )?;
        threads *= u64::from(width);
    }
    let most = limits.max_threads_per_block.into();
    within(LimitKind::ThreadsPerBlock, None, threads, most)?;
    let arg_bytes = launch.args.iter().map(|arg| arg.bytes.len() as u64).sum();
    let most = limits.max_argument_bytes.into();
    within(LimitKind::ArgumentBytes, None, arg_bytes, most)?;
    let dynamic = u64::from(launch.dynamic_shared_bytes);
    let most = kernel.max_dynamic_shared_bytes.into();
    within(LimitKind::DynamicSharedMemory, None, dynamic, most)?;

    let Some(body) = &kernel.body else {
        return Ok(());
    };
    if let Some(required) = body.only_block() {
        for (index, axis) in Axis::ALL.into_iter().enumerate() {
            if launch.block[index] != required[index] {
                return Err(GpuError::LaunchLimits(LimitFault {
                    kernel: name(),
                    what: LimitKind::RequiredBlock,
                    axis: Some(axis),
                    requested: launch.block[index].into(),
                    limit: required[index].into(),
                }));
            }
        }
    }
    let Some(params) = body.params() else {
        return Ok(());
    };
    let mismatch = |problem| {
        GpuError::ArgumentMismatch(ArgumentFault {
            kernel: name(),
            problem,
        })
    };
    if params.len() != launch.args.len() {
        return Err(mismatch(ArgumentProblem::Count {
            expected: params.len() as u64,
            given: launch.args.len() as u64,
        }));
    }
    for (index, (param, arg)) in params.iter().zip(launch.args).enumerate() {
        if param.size_bytes as usize != arg.bytes.len() {
            return Err(mismatch(ArgumentProblem::Size {
                index: index as u32,
                expected: param.size_bytes.into(),
                given: arg.bytes.len() as u64,
            }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use grafos_host_abi::{KernelId, LaunchArg, StreamId};

    use super::*;

    fn record(args: &[&[u8]]) -> LaunchRecord {
        let args: Vec<_> = args
            .iter()
            .map(|bytes| LaunchArg {
                bytes,
                buffer: None,
            })
            .collect();
        let launch = LaunchDesc {
            kernel: KernelId(1),
            grid: [1; 3],
            block: [1; 3],
            dynamic_shared_bytes: 0,
            args: &args,
            stream: StreamId::DEFAULT,
        };
        LaunchRecord::new(&"k".into(), &launch, 0)
    }

    #[test]
    fn arguments_keep_their_borders() {
        let record = record(&[&[1, 2], &[], &[3; 200]]);
        assert_eq!(record.arg_count(), 3);
        assert_eq!(record.arg(0), Some(&[1, 2][..]));
        assert_eq!(record.arg(1), Some(&[][..]));
        assert_eq!(record.arg(2), Some(&[3; 200][..]));
        assert_eq!(record.arg(3), None);
    }

    #[test]
    fn the_log_keeps_the_last_launches() {
        let log = LaunchLog::default();
        for number in 0..REMEMBERED_LAUNCHES as u32 + 3 {
            log.push(Arc::new(record(&[&number.to_le_bytes()])));
        }
        let all = log.all();
        assert_eq!(all.len(), REMEMBERED_LAUNCHES);
        assert_eq!(all[0].args, [3u32.to_le_bytes()]);
        log.clear();
        assert_eq!(log.all(), []);
    }
}
