//! Work that keeps a device busy for long enough to look at it.

use core::time::Duration;
use std::format;
use std::prelude::v1::*;
use std::time::Instant;

use super::check::{Checked, Stop, ensure_eq};
use super::gpu::{Arg, Buffer, Gpu, Kernel};
use super::reference::{self, Numbers};
use super::runner::Suite;
use crate::{ErrorKind, StreamId};

/// Steps of each thread; the kernel takes at most 60,000.
const ROUNDS: u32 = 50_000;
/// Threads per block, where the kernel and the device allow as many.
const BLOCK_LEN: u32 = 256;
/// How long the work is to last, measured by a wait of this length that runs out of time.
const LEAST_BUSY: Duration = Duration::from_millis(50);
/// Launches and a wait of `LEAST_BUSY` that succeed after as long as this waited without bound.
/// Wide, so that a loaded machine is not mistaken for a broken backend.
const IGNORED_AFTER: Duration = Duration::from_secs(2);
/// Beyond this many elements more launches are made, not longer ones.
const MOST_ELEMENTS: u32 = 1 << 22;
const MOST_LAUNCHES: u32 = 1 << 14;

/// How much work keeps the device busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BusySize {
    elements: u32,
    launches: u32,
}

impl BusySize {
    fn grown(self, factor: u32) -> Self {
        if self.elements.saturating_mul(factor) <= MOST_ELEMENTS {
            Self {
                elements: self.elements * factor,
                ..self
            }
        } else {
            Self {
                launches: self.launches.saturating_mul(factor),
                ..self
            }
        }
    }
}

/// Work under way on a stream: `buffer` gets known values at its end.
pub(super) struct Busy {
    pub(super) buffer: Buffer,
    pub(super) kernel: Kernel,
    size: BusySize,
}

impl Busy {
    /// The same work, once its result has been copied to another buffer.
    pub(super) fn moved_to(self, buffer: Buffer) -> Self {
        Self { buffer, ..self }
    }

    /// Compares some elements, read on a stream, with what the work must leave there.
    #[track_caller]
    pub(super) fn check_on(&self, gpu: &Gpu<'_>, stream: StreamId) -> Checked {
        let last = self.size.elements - 1;
        let mut numbers = Numbers::new(u64::from(last));
        let mut indices = [0u32, last, last / 2, 0, 0, 0];
        for index in &mut indices[3..] {
            *index = numbers.below(u64::from(self.size.elements)) as u32;
        }
        for index in indices {
            let range = self.buffer.range(u64::from(index) * 4, 4);
            let mut bytes = [0u8; 4];
            gpu.read(stream, range, &mut bytes)?;
            ensure_eq(
                format_args!("element {index} of long_running"),
                u32::from_le_bytes(bytes),
                reference::long_running(index, ROUNDS),
            )?;
        }
        Ok(())
    }

    #[track_caller]
    pub(super) fn check(&self, gpu: &Gpu<'_>) -> Checked {
        self.check_on(gpu, StreamId::DEFAULT)
    }
}

/// Lets a case look at a busy device. `look` gets a factor for [`start`], and gives `None` when
/// the work had ended before it could look; it is then called again with more work.
#[track_caller]
pub(super) fn while_busy<T>(mut look: impl FnMut(u32) -> Checked<Option<T>>) -> Checked<T> {
    for factor in [1, 4, 16] {
        if let Some(seen) = look(factor)? {
            return Ok(seen);
        }
    }
    Err(Stop::failed(
        "work was enqueued three times, ever more of it, and each time it looked complete at once",
    ))
}

/// Enqueues work on a stream that lasts at least some tens of milliseconds, times a factor.
#[track_caller]
pub(super) fn start(gpu: &Gpu<'_>, stream: StreamId, factor: u32) -> Checked<Busy> {
    let kernel = gpu.load("long_running")?;
    let size = match gpu.suite.busy.get() {
        Some(size) => *size,
        None => {
            let measured = measure(gpu.suite)?;
            *gpu.suite.busy.get_or_init(|| measured)
        }
    };
    enqueue(gpu, stream, kernel, size.grown(factor))
}

#[track_caller]
fn enqueue(gpu: &Gpu<'_>, stream: StreamId, kernel: Kernel, size: BusySize) -> Checked<Busy> {
    let buffer = gpu.buffer(u64::from(size.elements) * 4)?;
    // The kernel has no bound: the threads must come out even.
    let block_len = 1 << gpu.block_len(&kernel, BLOCK_LEN).ilog2();
    let args = [Arg::Buffer(buffer), Arg::U32(ROUNDS)];
    for _ in 0..size.launches {
        gpu.launch_linear(stream, &kernel, block_len, size.elements, &args)?;
    }
    Ok(Busy {
        buffer,
        kernel,
        size,
    })
}

/// Finds out how much work outlasts a wait of `LEAST_BUSY`, and takes twice as much.
#[expect(
    clippy::disallowed_methods,
    reason = "the suite checks that waits end in real time, on the machine that runs it"
)]
fn measure(suite: &Suite) -> Checked<BusySize> {
    let gpu = suite.open()?;
    let kernel = gpu.load("long_running")?;
    let mut size = BusySize {
        elements: BLOCK_LEN,
        launches: 1,
    };
    // The first launch can take long for other reasons, such as compilation.
    enqueue(&gpu, StreamId::DEFAULT, kernel.clone(), size)?;
    gpu.sync(None)?;
    while size.launches <= MOST_LAUNCHES {
        let begin = Instant::now();
        let busy = enqueue(&gpu, StreamId::DEFAULT, kernel.clone(), size)?;
        let waited = gpu.sync(Some(LEAST_BUSY));
        let elapsed = begin.elapsed();
        match waited {
            Err(error) if error.kind() == ErrorKind::Timeout => {
                gpu.sync(None)?;
                gpu.close(None)?;
                return Ok(size.grown(2));
            }
            Err(error) => return Err(error.into()),
            Ok(()) if elapsed > IGNORED_AFTER => {
                return Err(Stop::failed(format!(
                    "launches and a sync with a timeout of {LEAST_BUSY:?} succeeded after \
                     {elapsed:?}: the launches or the sync waited for the work"
                )));
            }
            Ok(()) => {}
        }
        gpu.free(busy.buffer.id)?;
        size = size.grown(4);
    }
    Err(Stop::failed(format!(
        "{} launches of {} threads with {ROUNDS} steps each ended within {LEAST_BUSY:?}",
        size.launches, size.elements
    )))
}
