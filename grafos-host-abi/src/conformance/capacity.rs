//! Memory that does not suffice.

use std::prelude::v1::*;

use super::check::{Checked, Stop, ensure, ensure_eq, ensure_kind, ensure_same};
use super::gpu::{Buffer, Gpu};
use super::reference::Numbers;
use super::runner::Suite;
use crate::{BufferDesc, ErrorKind, GpuError, StreamId};

cases!("capacity":
    impossible_sizes_are_refused,
    refusals_leave_the_counts,
    exhausted_memory_can_be_used_again,
);

/// Sizes that no memory has, and one that this device's has not.
fn impossible_sizes(suite: &Suite) -> [u64; 6] {
    let memory_bytes = suite.info.memory_bytes;
    [
        u64::MAX,
        u64::MAX - 3,
        u64::MAX / 2,
        1 << 62,
        1 << 48,
        memory_bytes.saturating_mul(4),
    ]
}

fn refuse(gpu: &Gpu<'_>, size_bytes: u64) -> Checked {
    let error = ensure_kind(
        format_args!("allocation of {size_bytes} bytes"),
        gpu.alloc(&BufferDesc::new(size_bytes)),
        ErrorKind::CapacityExceeded,
    )?;
    let GpuError::OutOfMemory(fault) = error else {
        return Err(Stop::failed(format_args!("{error} has no numbers")));
    };
    ensure_eq("requested in the error", fault.requested, size_bytes)?;
    ensure_eq("unit of the error", fault.unit, "bytes")
}

fn impossible_sizes_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for size_bytes in impossible_sizes(suite) {
        refuse(&gpu, size_bytes)?;
    }
    Ok(())
}

fn refusals_leave_the_counts(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let content = Numbers::new(100).bytes(5000);
    let kept = gpu.upload(&content)?;
    for size_bytes in impossible_sizes(suite) {
        refuse(&gpu, size_bytes)?;
        let info = gpu.memory_info()?;
        ensure_eq("live bytes", info.live_bytes, 5000)?;
        ensure_eq("live buffers", info.live_buffers, 1)?;
    }
    ensure_same("the earlier buffer", &gpu.download(kept)?, &content)?;
    let next = gpu.upload(&content)?;
    ensure_same("a later buffer", &gpu.download(next)?, &content)?;
    let report = gpu.close(None)?;
    ensure_eq("buffers left at close", report.live_buffers, 2)
}

fn exhausted_memory_can_be_used_again(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let memory_bytes = suite.info.memory_bytes;
    let block_bytes = (memory_bytes / 8)
        .min(suite.info.limits.max_allocation_bytes)
        .next_multiple_of(4096)
        .max(4096);
    let block_bytes = if block_bytes > suite.info.limits.max_allocation_bytes {
        suite.info.limits.max_allocation_bytes
    } else {
        block_bytes
    };
    for round in 0..2 {
        let mut blocks: Vec<Buffer> = Vec::new();
        loop {
            match gpu.alloc(&BufferDesc::new(block_bytes)) {
                Ok(info) => {
                    let block = Buffer {
                        id: info.id,
                        address: info.address,
                        size_bytes: block_bytes,
                    };
                    mark(&gpu, block, blocks.len())?;
                    blocks.push(block);
                }
                Err(error) if error.kind() == ErrorKind::CapacityExceeded => break,
                Err(error) => return Err(error.into()),
            }
            ensure(
                format_args!(
                    "round {round}: {} blocks of {block_bytes} bytes were granted on a device \
                     of {memory_bytes} bytes",
                    blocks.len()
                ),
                (blocks.len() as u64).saturating_mul(block_bytes) <= memory_bytes.saturating_mul(2),
            )?;
        }
        ensure(
            format_args!("round {round}: not one block of {block_bytes} bytes was granted"),
            !blocks.is_empty(),
        )?;
        for (index, block) in blocks.iter().enumerate() {
            check_mark(&gpu, *block, index)?;
        }
        for block in &blocks {
            gpu.free(block.id)?;
        }
        gpu.sync(None)?;
        ensure_eq("live bytes", gpu.memory_info()?.live_bytes, 0)?;
        // Blocks of another size must find room too, so caches must not hold on to memory.
        let other = gpu.buffer(block_bytes / 2)?;
        mark(&gpu, other, round)?;
        check_mark(&gpu, other, round)?;
        gpu.free(other.id)?;
    }
    Ok(())
}

/// Writes to both ends of a block.
fn mark(gpu: &Gpu<'_>, block: Buffer, index: usize) -> Checked {
    let index = index as u64;
    for (offset, value) in [(0, index), (block.size_bytes - 8, !index)] {
        gpu.write(
            StreamId::DEFAULT,
            block.range(offset, 8),
            &value.to_le_bytes(),
        )?;
    }
    Ok(())
}

fn check_mark(gpu: &Gpu<'_>, block: Buffer, index: usize) -> Checked {
    let expected = index as u64;
    for (offset, value) in [(0, expected), (block.size_bytes - 8, !expected)] {
        ensure_same(
            format_args!("block {index} at byte {offset}"),
            &gpu.download_range(block.range(offset, 8))?,
            &value.to_le_bytes(),
        )?;
    }
    Ok(())
}
