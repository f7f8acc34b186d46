//! Objects that are given back while work uses them.

use std::prelude::v1::*;
use std::vec;

use super::busy;
use super::check::{Checked, ensure, ensure_eq, ensure_same};
use super::gpu::{Arg, Buffer};
use super::module::computes;
use super::reference::Numbers;
use super::runner::Suite;
use crate::{FillPattern, StreamId};

cases!("lifetime":
    a_buffer_freed_under_work_holds_until_it_ends,
    memory_freed_under_work_is_not_given_out_early,
    memory_freed_under_work_comes_back,
    a_source_freed_after_a_copy_was_copied,
    a_module_unloaded_under_work_runs_to_its_end,
    a_module_can_be_loaded_again_under_work,
    buffers_freed_at_once_under_many_launches,
    objects_go_in_any_order,
    a_context_can_be_dropped_with_live_objects,
    a_context_can_be_dropped_under_work,
    a_context_can_be_dropped_on_another_thread,
);

fn a_buffer_freed_under_work_holds_until_it_ends(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("stream_copy")?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    let kept = gpu.buffer(work.buffer.size_bytes)?;
    gpu.copy(StreamId::DEFAULT, kept.all(), work.buffer.all())?;
    gpu.free(work.buffer.id)?;
    let floats = Numbers::new(700).floats(1000);
    let source = gpu.upload_floats(&floats)?;
    let target = gpu.buffer(4000)?;
    let args = [Arg::Buffer(source), Arg::Buffer(target), Arg::U32(1000)];
    let block_len = gpu.block_len(&kernel, 64);
    gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, 1000, &args)?;
    gpu.free(source.id)?;
    let expected: Vec<u32> = floats.iter().map(|float| float.to_bits()).collect();
    ensure_same(
        "what a launch copied from a freed buffer",
        &gpu.download_words(target)?,
        &expected,
    )?;
    work.moved_to(kept).check(&gpu)
}

fn memory_freed_under_work_is_not_given_out_early(suite: &Suite) -> Checked {
    for factor in [1, 4] {
        let gpu = suite.open()?;
        let stream = if suite.info.capabilities.streams {
            gpu.create_stream()?
        } else {
            StreamId::DEFAULT
        };
        let work = busy::start(&gpu, stream, factor)?;
        gpu.free(work.buffer.id)?;
        // If these get the freed memory, the work still writes to it.
        let content = Numbers::new(710).bytes(work.buffer.size_bytes as usize);
        let news = (0..3)
            .map(|_| gpu.upload(&content))
            .collect::<Checked<Vec<Buffer>>>()?;
        gpu.sync(None)?;
        for new in news {
            ensure_same(
                "a buffer made after the free",
                &gpu.download(new)?,
                &content,
            )?;
        }
    }
    Ok(())
}

fn memory_freed_under_work_comes_back(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    gpu.sync(None)?;
    let before = gpu.memory_info()?;
    for _ in 0..3 {
        let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
        let other = gpu.buffer(16 << 20)?;
        gpu.fill(StreamId::DEFAULT, other.all(), FillPattern::U8(1))?;
        gpu.free(work.buffer.id)?;
        gpu.free(other.id)?;
        let during = gpu.memory_info()?;
        ensure_eq(
            "live bytes right after",
            during.live_bytes,
            before.live_bytes,
        )?;
        ensure_eq(
            "live buffers right after",
            during.live_buffers,
            before.live_buffers,
        )?;
    }
    gpu.sync(None)?;
    gpu.trim()?;
    let after = gpu.memory_info()?;
    // What stays is caches and staging memory that trim may keep, not three times the buffers.
    let grown = after.reserved_bytes.saturating_sub(before.reserved_bytes);
    ensure(
        format_args!("{grown} bytes are still reserved after everything was freed and trimmed"),
        grown < 16 << 20,
    )
}

fn a_source_freed_after_a_copy_was_copied(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut targets = Vec::new();
    for round in 0..50u64 {
        let content = Numbers::new(720 + round).bytes(50_000);
        let source = gpu.upload(&content)?;
        let target = gpu.buffer(50_000)?;
        gpu.copy(StreamId::DEFAULT, target.all(), source.all())?;
        gpu.free(source.id)?;
        targets.push((target, content));
    }
    for (target, content) in targets {
        ensure_same("the copy", &gpu.download(target)?, &content)?;
    }
    Ok(())
}

fn a_module_unloaded_under_work_runs_to_its_end(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    let increment = gpu.load("increment")?;
    let data = gpu.upload_words(&[100; 64])?;
    let args = [Arg::Buffer(data), Arg::U32(64)];
    let block_len = gpu.block_len(&increment, 64);
    // Not yet begun when its module goes.
    gpu.launch_linear(StreamId::DEFAULT, &increment, block_len, 64, &args)?;
    gpu.unload_module(work.kernel.module)?;
    gpu.unload_module(increment.module)?;
    ensure_same("words", &gpu.download_words(data)?, &[101; 64])?;
    work.check(&gpu)?;
    computes(&gpu)
}

fn a_module_can_be_loaded_again_under_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let data = gpu.upload_words(&[0; 64])?;
    let args = [Arg::Buffer(data), Arg::U32(64)];
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    for _ in 0..20 {
        let kernel = gpu.load("increment")?;
        let block_len = gpu.block_len(&kernel, 64);
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, 64, &args)?;
        gpu.unload_module(kernel.module)?;
    }
    ensure_same("words", &gpu.download_words(data)?, &[20; 64])?;
    work.check(&gpu)
}

fn buffers_freed_at_once_under_many_launches(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("vector_add")?;
    let block_len = gpu.block_len(&kernel, 128);
    let n = 3000u32;
    let sum = gpu.upload_floats(&vec![0.0; n as usize])?;
    for round in 1..=100u16 {
        // A buffer for each launch, given back before the launch can have ended.
        let step = gpu.upload_floats(&vec![f32::from(round); n as usize])?;
        let args = [
            Arg::Buffer(sum),
            Arg::Buffer(step),
            Arg::Buffer(sum),
            Arg::U32(n),
        ];
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, n, &args)?;
        gpu.free(step.id)?;
    }
    let expected = vec![5050.0f32.to_bits(); n as usize];
    ensure_same("sums", &gpu.download_words(sum)?, &expected)
}

fn objects_go_in_any_order(suite: &Suite) -> Checked {
    // Each number chooses the next object to go: buffer, module, event, stream.
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]];
    for order in orders {
        let gpu = suite.open()?;
        let stream = if suite.info.capabilities.streams {
            gpu.create_stream()?
        } else {
            StreamId::DEFAULT
        };
        let event = gpu.create_event()?;
        let kernel = gpu.load("increment")?;
        let data = gpu.buffer(256)?;
        gpu.fill(stream, data.all(), FillPattern::U32(5))?;
        let args = [Arg::Buffer(data), Arg::U32(64)];
        let block_len = gpu.block_len(&kernel, 64);
        gpu.launch_linear(stream, &kernel, block_len, 64, &args)?;
        let kept = gpu.buffer(256)?;
        gpu.copy(stream, kept.all(), data.all())?;
        gpu.record_event(event, stream)?;
        gpu.wait_event(StreamId::DEFAULT, event)?;
        for object in order {
            match object {
                0 => gpu.free(data.id)?,
                1 => gpu.unload_module(kernel.module)?,
                2 => gpu.destroy_event(event)?,
                _ if stream != StreamId::DEFAULT => gpu.destroy_stream(stream)?,
                _ => {}
            }
        }
        ensure_same(
            format_args!("words after {order:?}"),
            &gpu.download_words(kept)?,
            &[6; 64],
        )?;
    }
    Ok(())
}

fn a_context_can_be_dropped_with_live_objects(suite: &Suite) -> Checked {
    for _ in 0..5 {
        let gpu = suite.open()?;
        gpu.load("vector_add")?;
        gpu.upload(&[1; 1000])?;
        let event = gpu.create_event()?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        if suite.info.capabilities.streams {
            gpu.create_stream()?;
        }
        drop(gpu);
    }
    computes(&suite.open()?)
}

fn a_context_can_be_dropped_under_work(suite: &Suite) -> Checked {
    for _ in 0..2 {
        let gpu = suite.open()?;
        busy::start(&gpu, StreamId::DEFAULT, 1)?;
        drop(gpu);
        computes(&suite.open()?)?;
    }
    Ok(())
}

fn a_context_can_be_dropped_on_another_thread(suite: &Suite) -> Checked {
    for busy in [false, true] {
        let gpu = suite.open()?;
        gpu.upload(&[1; 1000])?;
        if busy {
            busy::start(&gpu, StreamId::DEFAULT, 1)?;
        }
        let context = gpu.into_context();
        let ended = std::thread::spawn(move || drop(context)).join();
        ensure("dropping a context panicked", ended.is_ok())?;
    }
    computes(&suite.open()?)
}
