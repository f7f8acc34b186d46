//! Allocation, writes, reads and memory counts.

use std::collections::BTreeSet;
use std::prelude::v1::*;
use std::vec;

use super::check::{Checked, ensure, ensure_eq, ensure_kind, ensure_same};
use super::gpu::{Buffer, Gpu};
use super::reference::Numbers;
use super::runner::Suite;
use crate::{BufferId, ErrorKind, GpuError, HandleKind, MemoryInfo, StreamId};

cases!("memory":
    addresses_are_aligned_and_apart,
    ids_are_not_reused,
    one_byte_buffers_hold_one_byte,
    writes_and_reads_at_odd_offsets,
    writes_leave_their_neighbors,
    large_buffers_round_trip,
    read_fills_exactly_the_slice,
    write_is_done_with_the_data_when_it_returns,
    content_outlives_other_allocations,
    counts_follow_each_allocation,
    counts_fit_the_device,
    trim_keeps_content_and_counts,
    trim_leaves_nothing_to_trim,
    freeing_an_unknown_buffer_is_refused,
    freeing_twice_is_refused,
);

const MIB: usize = 1 << 20;

fn addresses_are_aligned_and_apart(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut numbers = Numbers::new(10);
    let mut buffers: Vec<Buffer> = Vec::new();
    for round in 0..256u64 {
        let size_bytes = match round % 4 {
            0 => 1 + numbers.below(16),
            1 => 1 + numbers.below(300),
            2 => 1 + numbers.below(70_000),
            _ => 256,
        };
        buffers.push(gpu.buffer(size_bytes)?);
        // Holes, so that some are filled again while others stay.
        if round % 5 == 4 {
            let freed = buffers.swap_remove(numbers.below(buffers.len() as u64) as usize);
            gpu.free(freed.id)?;
        }
    }
    buffers.sort_by_key(|buffer| buffer.address);
    let mut end = 1;
    for buffer in &buffers {
        ensure(
            format_args!("{:#x} is not a multiple of 256", buffer.address),
            buffer.address.is_multiple_of(256),
        )?;
        ensure(
            format_args!(
                "a buffer begins at {:#x}, where nothing or another one lies",
                buffer.address
            ),
            buffer.address >= end,
        )?;
        end = buffer.address + buffer.size_bytes;
    }
    Ok(())
}

fn ids_are_not_reused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut seen = BTreeSet::new();
    for round in 0..200 {
        let first = gpu.buffer(64)?;
        let second = gpu.buffer(64)?;
        for buffer in [first, second] {
            ensure(
                format_args!("round {round}: {:?} was given out before", buffer.id),
                seen.insert(buffer.id),
            )?;
            gpu.free(buffer.id)?;
        }
        if round % 50 == 49 {
            gpu.sync(None)?;
        }
    }
    Ok(())
}

fn one_byte_buffers_hold_one_byte(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let buffers = (0..64u8)
        .map(|byte| gpu.upload(&[byte]))
        .collect::<Checked<Vec<_>>>()?;
    for (byte, buffer) in (0..64u8).zip(buffers) {
        ensure_eq("content", gpu.download(buffer)?, vec![byte])?;
    }
    Ok(())
}

fn writes_and_reads_at_odd_offsets(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut numbers = Numbers::new(20);
    let mut expected = numbers.bytes(70_001);
    let buffer = gpu.upload(&expected)?;
    for round in 0..200u32 {
        let longest = if round % 8 == 0 { 60_000 } else { 300 };
        let len = 1 + numbers.below(longest) as usize;
        let offset = numbers.below((expected.len() - len) as u64 + 1) as usize;
        let data = numbers.bytes(len);
        expected[offset..offset + len].copy_from_slice(&data);
        gpu.write(
            StreamId::DEFAULT,
            buffer.range(offset as u64, len as u64),
            &data,
        )?;

        let len = 1 + numbers.below(longest) as usize;
        let offset = numbers.below((expected.len() - len) as u64 + 1) as usize;
        ensure_same(
            format_args!("round {round}: {len} bytes at {offset}"),
            &gpu.download_range(buffer.range(offset as u64, len as u64))?,
            &expected[offset..offset + len],
        )?;
    }
    ensure_same("the whole buffer", &gpu.download(buffer)?, &expected)
}

fn writes_leave_their_neighbors(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for offset in 0..9usize {
        for len in 1..=17usize {
            let mut expected = vec![0x11u8; 40];
            let buffer = gpu.upload(&expected)?;
            let data = Numbers::new((offset * 100 + len) as u64).bytes(len);
            expected[offset..offset + len].copy_from_slice(&data);
            gpu.write(
                StreamId::DEFAULT,
                buffer.range(offset as u64, len as u64),
                &data,
            )?;
            ensure_same(
                format_args!("after {len} bytes at {offset}"),
                &gpu.download(buffer)?,
                &expected,
            )?;
            gpu.free(buffer.id)?;
        }
    }
    Ok(())
}

/// As much as the device allows in one buffer, up to `wanted`.
fn large_len(suite: &Suite, wanted: usize) -> usize {
    let most = suite
        .info
        .limits
        .max_allocation_bytes
        .min(suite.info.memory_bytes / 4);
    wanted.min(usize::try_from(most).unwrap_or(wanted))
}

fn large_buffers_round_trip(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    // Not a round number, so that the last piece of a chunked transfer is a short one.
    let len = large_len(suite, 64 * MIB + 12_345);
    let expected = Numbers::new(30).bytes(len);
    let buffer = gpu.upload(&expected)?;
    ensure_same("64 MiB", &gpu.download(buffer)?, &expected)
}

fn read_fills_exactly_the_slice(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let content = Numbers::new(40).bytes(4096);
    let buffer = gpu.upload(&content)?;
    for (offset, len) in [(0, 1), (1, 1), (3, 7), (0, 4096), (4095, 1), (255, 258)] {
        let mut landing = vec![0x5Cu8; len + 64];
        let range = buffer.range(offset as u64, len as u64);
        gpu.read(StreamId::DEFAULT, range, &mut landing[32..32 + len])?;
        let mut expected = vec![0x5Cu8; len + 64];
        expected[32..32 + len].copy_from_slice(&content[offset..offset + len]);
        ensure_same(
            format_args!("{len} bytes from {offset}, with 32 bytes around"),
            &landing,
            &expected,
        )?;
    }
    Ok(())
}

fn write_is_done_with_the_data_when_it_returns(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for len in [1, 4096, large_len(suite, 8 * MIB)] {
        let mut data = Numbers::new(len as u64).bytes(len);
        let expected = data.clone();
        let buffer = gpu.upload(&data)?;
        data.fill(0xEE);
        drop(data);
        ensure_same(
            format_args!("{len} bytes whose source was overwritten"),
            &gpu.download(buffer)?,
            &expected,
        )?;
    }
    Ok(())
}

fn content_outlives_other_allocations(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut numbers = Numbers::new(50);
    let mut live: Vec<(Buffer, Vec<u8>)> = Vec::new();
    for _ in 0..300 {
        if live.len() > 40 {
            let (buffer, expected) = live.swap_remove(numbers.below(40) as usize);
            ensure_same("before the free", &gpu.download(buffer)?, &expected)?;
            gpu.free(buffer.id)?;
        } else {
            let len = 1 + numbers.below(20_000) as usize;
            let content = numbers.bytes(len);
            live.push((gpu.upload(&content)?, content));
        }
    }
    for (buffer, expected) in live {
        ensure_same("at the end", &gpu.download(buffer)?, &expected)?;
    }
    Ok(())
}

/// What a context holds in buffers: how many, and how many bytes.
fn held(gpu: &Gpu<'_>) -> Checked<(u64, u64)> {
    let MemoryInfo {
        live_bytes,
        live_buffers,
        ..
    } = gpu.memory_info()?;
    Ok((live_buffers, live_bytes))
}

fn counts_follow_each_allocation(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    ensure_eq("buffers and bytes at first", held(&gpu)?, (0, 0))?;
    let mut buffers = Vec::new();
    let mut bytes = 0;
    for size_bytes in [1, 255, 256, 257, 4096, 1 << 20, 3, 1_234_567] {
        buffers.push(gpu.buffer(size_bytes)?);
        bytes += size_bytes;
        ensure_eq(
            format_args!("buffers and bytes after {size_bytes} more"),
            held(&gpu)?,
            (buffers.len() as u64, bytes),
        )?;
    }
    // Use changes nothing.
    gpu.write(StreamId::DEFAULT, buffers[4].all(), &[7; 4096])?;
    gpu.download(buffers[4])?;
    ensure_eq("after use", held(&gpu)?, (buffers.len() as u64, bytes))?;
    while let Some(buffer) = buffers.pop() {
        gpu.free(buffer.id)?;
        bytes -= buffer.size_bytes;
        ensure_eq(
            format_args!("buffers and bytes after {} fewer", buffer.size_bytes),
            held(&gpu)?,
            (buffers.len() as u64, bytes),
        )?;
    }
    Ok(())
}

fn counts_fit_the_device(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let buffer = gpu.upload(&vec![1; MIB])?;
    let info = gpu.memory_info()?;
    ensure(
        format_args!("no memory at all: {info:?}"),
        info.total_bytes > 0,
    )?;
    ensure(
        format_args!("more is free than there is: {info:?}"),
        info.free_bytes <= info.total_bytes,
    )?;
    ensure(
        format_args!("less is reserved than is live: {info:?}"),
        info.reserved_bytes >= info.live_bytes,
    )?;
    gpu.free(buffer.id)?;
    Ok(())
}

fn trim_keeps_content_and_counts(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let content = Numbers::new(60).bytes(100_000);
    let kept = gpu.upload(&content)?;
    let passing = (0..16)
        .map(|_| gpu.buffer(1 << 20))
        .collect::<Checked<Vec<_>>>()?;
    for buffer in passing {
        gpu.free(buffer.id)?;
    }
    gpu.sync(None)?;
    let before = gpu.memory_info()?;
    let trimmed = gpu.trim()?;
    let after = gpu.memory_info()?;
    ensure_eq("live bytes after trim", after.live_bytes, 100_000)?;
    ensure_eq("live buffers after trim", after.live_buffers, 1)?;
    ensure_eq(
        "reserved bytes given up by trim",
        before.reserved_bytes.saturating_sub(after.reserved_bytes),
        trimmed,
    )?;
    ensure_same("content after trim", &gpu.download(kept)?, &content)?;
    let new = gpu.upload(&content)?;
    ensure_same("a buffer made after trim", &gpu.download(new)?, &content)
}

fn trim_leaves_nothing_to_trim(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let buffer = gpu.upload(&vec![3; 4 * MIB])?;
    gpu.free(buffer.id)?;
    gpu.sync(None)?;
    gpu.trim()?;
    ensure_eq("bytes of a second trim", gpu.trim()?, 0)
}

fn freeing_an_unknown_buffer_is_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let known = gpu.upload(&[1, 2, 3])?;
    for id in [known.id.0 + 1, known.id.0 + 1000, u64::MAX, known.address] {
        let error = ensure_kind(
            format_args!("free of unknown buffer {id:#x}"),
            gpu.free(BufferId(id)),
            ErrorKind::InvalidHandle,
        )?;
        if let GpuError::InvalidHandle(fault) = error {
            ensure_eq("kind of the handle", fault.kind, HandleKind::Buffer)?;
            ensure_eq("id of the handle", fault.id, id)?;
        }
    }
    ensure_eq("the known buffer", gpu.download(known)?, vec![1, 2, 3])
}

fn freeing_twice_is_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let freed = gpu.buffer(4096)?;
    gpu.free(freed.id)?;
    for _ in 0..2 {
        ensure_kind(
            "a second free",
            gpu.free(freed.id),
            ErrorKind::InvalidHandle,
        )?;
    }
    // A buffer in the same place is not reached through the old id.
    let content = Numbers::new(70).bytes(4096);
    let next = gpu.upload(&content)?;
    ensure_kind(
        "a free after the next allocation",
        gpu.free(freed.id),
        ErrorKind::InvalidHandle,
    )?;
    ensure_same("the next buffer", &gpu.download(next)?, &content)?;
    ensure_eq("buffers and bytes", held(&gpu)?, (1, 4096))
}
