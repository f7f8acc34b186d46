//! Copies and fills.

use std::prelude::v1::*;
use std::vec;

use super::check::{Checked, Stop, ensure_same};
use super::gpu::Gpu;
use super::reference::Numbers;
use super::runner::Suite;
use crate::{FillPattern, StreamId};

cases!("copy_fill":
    copies_between_buffers,
    copies_within_a_buffer,
    copies_of_touching_ranges,
    copies_leave_their_neighbors,
    large_copies,
    copies_beyond_4_gib,
    fills_with_bytes,
    fills_with_two_byte_patterns,
    fills_with_four_byte_patterns,
    fills_keep_byte_order,
    large_fills,
    a_fill_then_a_copy_then_a_fill,
);

const MIB: usize = 1 << 20;

fn copies_between_buffers(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut numbers = Numbers::new(200);
    let mut contents = [numbers.bytes(20_011), numbers.bytes(30_013)];
    let buffers = [gpu.upload(&contents[0])?, gpu.upload(&contents[1])?];
    for round in 0..200usize {
        let (from, to) = (round % 2, 1 - round % 2);
        let len = 1 + numbers.below(if round % 9 == 0 { 15_000 } else { 200 }) as usize;
        let src = numbers.below((contents[from].len() - len) as u64 + 1) as usize;
        let dst = numbers.below((contents[to].len() - len) as u64 + 1) as usize;
        gpu.copy(
            StreamId::DEFAULT,
            buffers[to].range(dst as u64, len as u64),
            buffers[from].range(src as u64, len as u64),
        )?;
        let piece = contents[from][src..src + len].to_vec();
        contents[to][dst..dst + len].copy_from_slice(&piece);
    }
    for (buffer, content) in buffers.into_iter().zip(&contents) {
        ensure_same("after 200 copies", &gpu.download(buffer)?, content)?;
    }
    Ok(())
}

/// Copies within one buffer as asked, and compares all of it.
fn copy_within(gpu: &Gpu<'_>, moves: &[(usize, usize, usize)]) -> Checked {
    let mut expected = Numbers::new(210).bytes(10_000);
    let buffer = gpu.upload(&expected)?;
    for &(dst, src, len) in moves {
        gpu.copy(
            StreamId::DEFAULT,
            buffer.range(dst as u64, len as u64),
            buffer.range(src as u64, len as u64),
        )?;
        expected.copy_within(src..src + len, dst);
        ensure_same(
            format_args!("after {len} bytes from {src} to {dst}"),
            &gpu.download(buffer)?,
            &expected,
        )?;
    }
    Ok(())
}

fn copies_within_a_buffer(suite: &Suite) -> Checked {
    let moves = [
        (0, 5000, 5000),
        (7001, 13, 2000),
        (3, 9990, 10),
        (9999, 0, 1),
        (1, 4096, 4000),
    ];
    copy_within(&suite.open()?, &moves)
}

fn copies_of_touching_ranges(suite: &Suite) -> Checked {
    let moves = [(100, 0, 100), (0, 1, 1), (1000, 2000, 1000), (7, 4, 3)];
    copy_within(&suite.open()?, &moves)
}

fn copies_leave_their_neighbors(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let source = Numbers::new(220).bytes(40);
    let src = gpu.upload(&source)?;
    for offset in 0..5usize {
        for len in 1..=17usize {
            let mut expected = vec![0x33u8; 40];
            let dst = gpu.upload(&expected)?;
            let from = (offset * 3) % 7;
            gpu.copy(
                StreamId::DEFAULT,
                dst.range(offset as u64, len as u64),
                src.range(from as u64, len as u64),
            )?;
            expected[offset..offset + len].copy_from_slice(&source[from..from + len]);
            ensure_same(
                format_args!("after {len} bytes from {from} to {offset}"),
                &gpu.download(dst)?,
                &expected,
            )?;
            gpu.free(dst.id)?;
        }
    }
    Ok(())
}

fn large_copies(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let most = suite
        .info
        .limits
        .max_allocation_bytes
        .min(suite.info.memory_bytes / 4);
    let len = (32 * MIB + 4099).min(usize::try_from(most).unwrap_or(usize::MAX));
    let source = Numbers::new(230).bytes(len);
    let src = gpu.upload(&source)?;
    let dst = gpu.buffer(len as u64)?;
    gpu.copy(StreamId::DEFAULT, dst.all(), src.all())?;
    ensure_same("the copy", &gpu.download(dst)?, &source)?;
    ensure_same("the source", &gpu.download(src)?, &source)
}

fn copies_beyond_4_gib(suite: &Suite) -> Checked {
    let size_bytes = (1u64 << 32) + 65_536;
    let limit = suite.info.limits.max_allocation_bytes;
    if limit < size_bytes {
        return Err(Stop::unsupported(format_args!(
            "one buffer can have {limit} bytes, the case needs {size_bytes}"
        )));
    }
    let gpu = suite.open()?;
    let free_bytes = gpu.memory_info()?.free_bytes;
    if free_bytes < size_bytes * 5 / 2 {
        return Err(Stop::unsupported(format_args!(
            "the device has {free_bytes} bytes free, the case needs two buffers of {size_bytes}"
        )));
    }
    if !suite.fixture.heavy() {
        return Err(Stop::unsupported(
            "takes more than 8 GiB: set GRAFOS_HEAVY=1 to run it",
        ));
    }
    let src = gpu.buffer(size_bytes)?;
    let dst = gpu.buffer(size_bytes)?;
    let stream = StreamId::DEFAULT;
    gpu.fill(stream, src.all(), FillPattern::U32(0x5EED_0001))?;
    gpu.fill(stream, dst.all(), FillPattern::U32(0xDEAD_0002))?;
    let edge = 1u64 << 32;
    let mut numbers = Numbers::new(240);
    let places = [0, 4096, edge / 2 - 9, edge - 8, edge, edge + 60_000];
    let marks: Vec<(u64, Vec<u8>)> = places
        .into_iter()
        .map(|offset| (offset, numbers.bytes(8)))
        .collect();
    for (offset, mark) in &marks {
        gpu.write(stream, src.range(*offset, 8), mark)?;
    }
    // One copy of more than 2^32 bytes; the last byte stays, as a neighbor.
    let len = size_bytes - 1;
    gpu.copy(stream, dst.range(0, len), src.range(0, len))?;
    for (offset, mark) in &marks {
        ensure_same(
            format_args!("at byte {offset}"),
            &gpu.download_range(dst.range(*offset, 8))?,
            mark,
        )?;
    }
    let pattern = 0x5EED_0001u32.to_le_bytes();
    for offset in [8, edge - 16, edge + 8, size_bytes - 8] {
        ensure_same(
            format_args!("the pattern at byte {offset}"),
            &gpu.download_range(dst.range(offset, 4))?,
            &pattern,
        )?;
    }
    ensure_same(
        "the end",
        &gpu.download_range(dst.range(size_bytes - 4, 4))?,
        &[pattern[0], pattern[1], pattern[2], 0xDE],
    )
}

/// Fills `repeats` patterns from `offset` on, and compares the whole buffer.
fn fill_and_compare(
    gpu: &Gpu<'_>,
    offset: usize,
    repeats: usize,
    pattern: FillPattern,
    bytes: &[u8],
) -> Checked {
    let background = Numbers::new(250).bytes(128);
    let buffer = gpu.upload(&background)?;
    let len = repeats * bytes.len();
    gpu.fill(
        StreamId::DEFAULT,
        buffer.range(offset as u64, len as u64),
        pattern,
    )?;
    let mut expected = background;
    for place in expected[offset..offset + len].chunks_exact_mut(bytes.len()) {
        place.copy_from_slice(bytes);
    }
    ensure_same(
        format_args!("after {pattern:?} on {len} bytes at {offset}"),
        &gpu.download(buffer)?,
        &expected,
    )?;
    gpu.free(buffer.id)?;
    Ok(())
}

fn fills_with_bytes(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for offset in [0, 1, 2, 3, 5, 31] {
        for repeats in 1..=17 {
            fill_and_compare(&gpu, offset, repeats, FillPattern::U8(0xC4), &[0xC4])?;
        }
    }
    Ok(())
}

fn fills_with_two_byte_patterns(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for offset in [0, 2, 4, 6, 34] {
        for repeats in 1..=9 {
            let pattern = FillPattern::U16(0xA1B2);
            fill_and_compare(&gpu, offset, repeats, pattern, &[0xB2, 0xA1])?;
        }
    }
    Ok(())
}

fn fills_with_four_byte_patterns(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for offset in [0, 4, 8, 12, 36] {
        for repeats in 1..=9 {
            let pattern = FillPattern::U32(0x0102_0304);
            fill_and_compare(&gpu, offset, repeats, pattern, &[4, 3, 2, 1])?;
        }
    }
    Ok(())
}

fn fills_keep_byte_order(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let cases: [(FillPattern, &[u8]); 5] = [
        (FillPattern::U8(0x80), &[0x80; 8]),
        (
            FillPattern::U16(0x1234),
            &[0x34, 0x12, 0x34, 0x12, 0x34, 0x12, 0x34, 0x12],
        ),
        (
            FillPattern::U16(0x00FF),
            &[0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0],
        ),
        (
            FillPattern::U32(0x1122_3344),
            &[0x44, 0x33, 0x22, 0x11, 0x44, 0x33, 0x22, 0x11],
        ),
        (
            FillPattern::U32(0xFF00_0000),
            &[0, 0, 0, 0xFF, 0, 0, 0, 0xFF],
        ),
    ];
    for (pattern, expected) in cases {
        let buffer = gpu.upload(&[0x77; 8])?;
        gpu.fill(StreamId::DEFAULT, buffer.all(), pattern)?;
        ensure_same(
            format_args!("{pattern:?}"),
            &gpu.download(buffer)?,
            expected,
        )?;
    }
    Ok(())
}

fn large_fills(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let len = 4 * MIB + 7;
    let buffer = gpu.upload(&vec![0x10; len])?;
    let range = buffer.range(3, (len - 4) as u64);
    gpu.fill(StreamId::DEFAULT, range, FillPattern::U8(0x9D))?;
    let mut expected = vec![0x9D; len];
    expected[..3].fill(0x10);
    expected[len - 1] = 0x10;
    ensure_same("bytes", &gpu.download(buffer)?, &expected)?;

    let range = buffer.range(4, (4 * MIB) as u64);
    gpu.fill(StreamId::DEFAULT, range, FillPattern::U32(0x0BAD_CAFE))?;
    for word in expected[4..4 + 4 * MIB].chunks_exact_mut(4) {
        word.copy_from_slice(&[0xFE, 0xCA, 0xAD, 0x0B]);
    }
    ensure_same("words", &gpu.download(buffer)?, &expected)
}

fn a_fill_then_a_copy_then_a_fill(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let a = gpu.buffer(64)?;
    let b = gpu.buffer(64)?;
    let stream = StreamId::DEFAULT;
    // Each call depends on the one before, by what it writes over.
    gpu.fill(stream, a.all(), FillPattern::U8(1))?;
    gpu.fill(stream, b.all(), FillPattern::U8(2))?;
    gpu.copy(stream, b.range(8, 16), a.range(0, 16))?;
    gpu.fill(stream, a.range(0, 8), FillPattern::U8(3))?;
    gpu.copy(stream, a.range(32, 24), b.range(0, 24))?;
    gpu.fill(stream, b.range(12, 4), FillPattern::U32(0x0404_0404))?;

    let mut expected_a = vec![1u8; 64];
    expected_a[..8].fill(3);
    expected_a[32..40].fill(2);
    let mut expected_b = vec![2u8; 64];
    expected_b[8..24].fill(1);
    expected_b[12..16].fill(4);
    ensure_same("the first buffer", &gpu.download(a)?, &expected_a)?;
    ensure_same("the second buffer", &gpu.download(b)?, &expected_b)
}
