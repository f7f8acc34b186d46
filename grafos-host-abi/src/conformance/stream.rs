//! Work on streams: in order on one, independent on several.

use std::collections::BTreeSet;
use std::prelude::v1::*;
use std::vec;

use super::busy;
use super::check::{Checked, Stop, ensure, ensure_kind, ensure_same};
use super::gpu::{Arg, word_bytes, words_of};
use super::reference::Numbers;
use super::runner::Suite;
use crate::{ErrorKind, FillPattern, StreamId};

cases!("stream":
    calls_of_every_kind_run_in_order,
    writes_and_launches_alternate_in_order,
    many_writes_run_in_order,
    a_read_sees_all_earlier_work,
    streams_compute_independently,
    sixteen_streams_at_once,
    sync_stream_waits_for_its_work,
    sync_waits_for_every_stream,
    ids_are_not_reused,
    destroying_the_default_stream_is_refused,
    destroying_an_unknown_stream_is_refused,
    a_destroyed_stream_ends_its_work,
    streams_without_the_ability_are_unsupported,
);

const MIB: usize = 1 << 20;

fn calls_of_every_kind_run_in_order(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let increment = gpu.load("increment")?;
    let mut streams = vec![StreamId::DEFAULT];
    if suite.info.capabilities.streams {
        streams.push(gpu.create_stream()?);
    }
    for stream in streams {
        let n = 1000usize;
        let a = gpu.buffer(n as u64 * 4)?;
        let b = gpu.buffer(n as u64 * 4)?;
        let args = [Arg::Buffer(a), Arg::U32(n as u32)];
        let block_len = gpu.block_len(&increment, 64);
        // Nothing between these calls waits, and each changes what the one before left.
        for round in 0..50u32 {
            gpu.write(stream, a.all(), &word_bytes(&vec![round * 100; n]))?;
            gpu.launch_linear(stream, &increment, block_len, n as u32, &args)?;
            gpu.copy(stream, b.all(), a.all())?;
            gpu.fill(stream, a.range(0, 2000), FillPattern::U32(7))?;
            gpu.launch_linear(stream, &increment, block_len, n as u32, &args)?;
            gpu.copy(stream, b.range(0, 400), a.range(0, 400))?;
        }
        let last = 49 * 100;
        let mut expected_a = vec![last + 2; n];
        expected_a[..500].fill(8);
        let mut expected_b = vec![last + 1; n];
        expected_b[..100].fill(8);
        let found_b = words_of(&gpu.download_on(stream, b.all())?);
        ensure_same("the copy", &found_b, &expected_b)?;
        let found_a = words_of(&gpu.download_on(stream, a.all())?);
        ensure_same("the original", &found_a, &expected_a)?;
    }
    Ok(())
}

fn writes_and_launches_alternate_in_order(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("increment")?;
    let rounds = 1000usize;
    let cell = gpu.buffer(4)?;
    let log = gpu.buffer(rounds as u64 * 4)?;
    let args = [Arg::Buffer(cell), Arg::U32(1)];
    let block_len = gpu.block_len(&kernel, 32);
    for round in 0..rounds as u32 {
        gpu.write(StreamId::DEFAULT, cell.all(), &(round * 3).to_le_bytes())?;
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, 1, &args)?;
        let slot = log.range(u64::from(round) * 4, 4);
        gpu.copy(StreamId::DEFAULT, slot, cell.all())?;
    }
    let expected: Vec<u32> = (0..rounds as u32).map(|round| round * 3 + 1).collect();
    ensure_same("the log", &gpu.download_words(log)?, &expected)
}

fn many_writes_run_in_order(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    // More than any staging memory is likely to hold at once.
    let rounds = 96usize;
    let keep = 512usize;
    let target = gpu.buffer(MIB as u64)?;
    let log = gpu.buffer((rounds * keep) as u64)?;
    let pattern = Numbers::new(600).bytes(MIB + rounds);
    let mut expected = Vec::new();
    for round in 0..rounds {
        let data = &pattern[round..round + MIB];
        gpu.write(StreamId::DEFAULT, target.all(), data)?;
        let from = (round * 9973) % (MIB - keep);
        gpu.copy(
            StreamId::DEFAULT,
            log.range((round * keep) as u64, keep as u64),
            target.range(from as u64, keep as u64),
        )?;
        expected.extend_from_slice(&data[from..from + keep]);
    }
    ensure_same("the log", &gpu.download(log)?, &expected)
}

fn a_read_sees_all_earlier_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    work.check(&gpu)
}

fn streams_compute_independently(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let other = gpu.stream()?;
    let kernel = gpu.load("increment")?;
    let n = 500u32;
    let block_len = gpu.block_len(&kernel, 64);
    let mut buffers = Vec::new();
    for (stream, start) in [(StreamId::DEFAULT, 10), (other, 20_000)] {
        let data = gpu.buffer(u64::from(n) * 4)?;
        gpu.write(stream, data.all(), &word_bytes(&vec![start; n as usize]))?;
        buffers.push((stream, data, start));
    }
    for _ in 0..100 {
        for (stream, data, _) in &buffers {
            let args = [Arg::Buffer(*data), Arg::U32(n)];
            gpu.launch_linear(*stream, &kernel, block_len, n, &args)?;
        }
    }
    for (stream, data, start) in buffers {
        ensure_same(
            format_args!("on {stream:?}"),
            &words_of(&gpu.download_on(stream, data.all())?),
            &vec![start + 100; n as usize],
        )?;
    }
    Ok(())
}

fn sixteen_streams_at_once(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.streams, "streams")?;
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let block_len = gpu.block_len(&kernel, 64);
    let mut work = Vec::new();
    for index in 0..16u32 {
        let stream = gpu.create_stream()?;
        let data = gpu.buffer(4000)?;
        for round in 0..20 {
            let args = [
                Arg::Buffer(data),
                Arg::U32(index * 100 + round),
                Arg::U32(1000),
            ];
            gpu.launch_linear(stream, &kernel, block_len, 1000, &args)?;
        }
        work.push((stream, data));
    }
    gpu.sync(None)?;
    for (index, (stream, data)) in work.into_iter().enumerate() {
        // Read on another stream: the wait was for all of them.
        ensure_same(
            format_args!("stream {index}"),
            &gpu.download_words(data)?,
            &vec![index as u32 * 100 + 19; 1000],
        )?;
        gpu.destroy_stream(stream)?;
    }
    Ok(())
}

fn sync_stream_waits_for_its_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let stream = gpu.stream()?;
    let work = busy::start(&gpu, stream, 1)?;
    gpu.sync_stream(stream, None)?;
    work.check_on(&gpu, StreamId::DEFAULT)?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    gpu.sync_stream(StreamId::DEFAULT, None)?;
    work.check_on(&gpu, stream)
}

fn sync_waits_for_every_stream(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let first = gpu.stream()?;
    let second = gpu.stream()?;
    let on_first = busy::start(&gpu, first, 1)?;
    let on_second = busy::start(&gpu, second, 1)?;
    gpu.sync(None)?;
    on_first.check_on(&gpu, StreamId::DEFAULT)?;
    on_second.check_on(&gpu, StreamId::DEFAULT)
}

fn ids_are_not_reused(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.streams, "streams")?;
    let gpu = suite.open()?;
    let mut seen = BTreeSet::from([StreamId::DEFAULT]);
    for round in 0..50 {
        let stream = gpu.create_stream()?;
        ensure(
            format_args!("round {round}: {stream:?} was given out before"),
            seen.insert(stream),
        )?;
        gpu.destroy_stream(stream)?;
    }
    Ok(())
}

fn destroying_the_default_stream_is_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    ensure_kind(
        "destroy of the default stream",
        gpu.destroy_stream(StreamId::DEFAULT),
        ErrorKind::InvalidArgument,
    )?;
    let buffer = gpu.upload(&[1, 2, 3, 4])?;
    ensure_same("bytes", &gpu.download(buffer)?, &[1, 2, 3, 4])
}

fn destroying_an_unknown_stream_is_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut unknown = vec![StreamId(1 << 40), StreamId(u64::MAX)];
    if suite.info.capabilities.streams {
        let stream = gpu.create_stream()?;
        gpu.destroy_stream(stream)?;
        unknown.push(stream);
    }
    for stream in unknown {
        ensure_kind(
            format_args!("destroy of {stream:?}"),
            gpu.destroy_stream(stream),
            ErrorKind::InvalidHandle,
        )?;
    }
    Ok(())
}

fn a_destroyed_stream_ends_its_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let stream = gpu.stream()?;
    let work = busy::start(&gpu, stream, 1)?;
    gpu.destroy_stream(stream)?;
    gpu.sync(None)?;
    work.check(&gpu)
}

fn streams_without_the_ability_are_unsupported(suite: &Suite) -> Checked {
    if suite.info.capabilities.streams {
        return Err(Stop::unsupported("the device has the ability"));
    }
    let gpu = suite.open()?;
    ensure_kind("a stream", gpu.create_stream(), ErrorKind::Unsupported)?;
    Ok(())
}
