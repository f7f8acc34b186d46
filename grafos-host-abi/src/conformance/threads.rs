//! One context, many threads.

use std::prelude::v1::*;
use std::sync::Barrier;
use std::{thread, vec};

use super::busy;
use super::check::{Checked, Stop, ensure_eq, ensure_same};
use super::gpu::{Arg, Gpu, word_bytes, words_of};
use super::module::computes;
use super::reference::Numbers;
use super::runner::Suite;
use crate::{FillPattern, StreamId};

cases!("threads":
    threads_share_the_default_stream,
    threads_have_streams_of_their_own,
    objects_work_on_any_thread,
    threads_allocate_and_free_at_once,
    threads_load_and_resolve_at_once,
    a_waiting_thread_does_not_hold_up_others,
    threads_wait_for_the_same_work,
    each_thread_has_its_context,
);

const THREADS: usize = 4;

/// Runs a body on several threads that start together, and gives the first failure.
fn on_threads(body: impl Fn(usize) -> Checked + Sync) -> Checked {
    let barrier = Barrier::new(THREADS);
    let (body, barrier) = (&body, &barrier);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                scope.spawn(move || {
                    barrier.wait();
                    body(index)
                })
            })
            .collect();
        let mut outcome = Ok(());
        for thread in threads {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(Stop::failed("a thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    })
}

/// Writes, launches, copies and reads on a stream, and compares.
fn compute_on(gpu: &Gpu<'_>, stream: StreamId, index: usize) -> Checked {
    let kernel = gpu.load("increment")?;
    let n = 700u32;
    let block_len = gpu.block_len(&kernel, 64);
    for round in 0..25u32 {
        let start = index as u32 * 1_000_000 + round * 1000;
        let data = gpu.buffer(u64::from(n) * 4)?;
        let copy = gpu.buffer(u64::from(n) * 4)?;
        gpu.write(stream, data.all(), &word_bytes(&vec![start; n as usize]))?;
        for _ in 0..10 {
            let args = [Arg::Buffer(data), Arg::U32(n)];
            gpu.launch_linear(stream, &kernel, block_len, n, &args)?;
        }
        gpu.copy(stream, copy.all(), data.all())?;
        gpu.fill(stream, data.all(), FillPattern::U32(0))?;
        gpu.free(data.id)?;
        ensure_same(
            format_args!("round {round} of thread {index}"),
            &words_of(&gpu.download_on(stream, copy.all())?),
            &vec![start + 10; n as usize],
        )?;
        gpu.free(copy.id)?;
    }
    gpu.unload_module(kernel.module)?;
    Ok(())
}

fn threads_share_the_default_stream(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    on_threads(|index| compute_on(&gpu, StreamId::DEFAULT, index))?;
    ensure_eq("live buffers", gpu.memory_info()?.live_buffers, 0)
}

fn threads_have_streams_of_their_own(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.streams, "streams")?;
    let gpu = suite.open()?;
    on_threads(|index| {
        let stream = gpu.create_stream()?;
        compute_on(&gpu, stream, index)?;
        gpu.destroy_stream(stream)?;
        Ok(())
    })?;
    ensure_eq("live buffers", gpu.memory_info()?.live_buffers, 0)
}

fn objects_work_on_any_thread(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("increment")?;
    let event = gpu.create_event()?;
    let data = gpu.upload_words(&[0; 64])?;
    // One thread after another, each with what the first one made.
    for round in 1..=3 {
        let used = thread::scope(|scope| {
            let used = scope.spawn(|| -> Checked {
                let args = [Arg::Buffer(data), Arg::U32(64)];
                let block_len = gpu.block_len(&kernel, 64);
                gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, 64, &args)?;
                gpu.record_event(event, StreamId::DEFAULT)?;
                gpu.sync_event(event, None)?;
                ensure_same("words", &gpu.download_words(data)?, &[round; 64])
            });
            used.join()
        });
        used.unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))?;
    }
    let freed = thread::scope(|scope| {
        let freed = scope.spawn(|| -> Checked {
            gpu.free(data.id)?;
            gpu.unload_module(kernel.module)?;
            gpu.destroy_event(event)?;
            Ok(())
        });
        freed.join()
    });
    freed.unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))?;
    ensure_eq("live buffers", gpu.memory_info()?.live_buffers, 0)
}

fn threads_allocate_and_free_at_once(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    on_threads(|index| {
        let mut numbers = Numbers::new(800 + index as u64);
        let mut live = Vec::new();
        for _ in 0..150 {
            if live.len() < 12 {
                let len = 1 + numbers.below(9000) as usize;
                let content = numbers.bytes(len);
                live.push((gpu.upload(&content)?, content));
            } else {
                let (buffer, content) = live.swap_remove(numbers.below(12) as usize);
                ensure_same("content", &gpu.download(buffer)?, &content)?;
                gpu.free(buffer.id)?;
            }
        }
        for (buffer, content) in live {
            ensure_same("content", &gpu.download(buffer)?, &content)?;
            gpu.free(buffer.id)?;
        }
        Ok(())
    })?;
    let info = gpu.memory_info()?;
    ensure_eq("live buffers", info.live_buffers, 0)?;
    ensure_eq("live bytes", info.live_bytes, 0)
}

fn threads_load_and_resolve_at_once(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let shared = gpu.load("saxpy")?;
    on_threads(|_| {
        for _ in 0..20 {
            let found = gpu.kernel(shared.module, "saxpy")?;
            ensure_eq("the shared kernel", found.id, shared.info.id)?;
            computes(&gpu)?;
        }
        Ok(())
    })
}

fn a_waiting_thread_does_not_hold_up_others(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 4)?;
    let (gpu, work) = (&gpu, &work);
    thread::scope(|scope| {
        let waiter = scope.spawn(move || -> Checked {
            gpu.sync(None)?;
            work.check(gpu)
        });
        // While the other thread waits, these are answered, whatever the device does.
        let mut outcome = Ok(());
        for _ in 0..50 {
            outcome = outcome.and_then(|()| -> Checked {
                let buffer = gpu.buffer(1000)?;
                gpu.memory_info()?;
                gpu.poll()?;
                gpu.free(buffer.id)?;
                Ok(())
            });
        }
        let waited = waiter
            .join()
            .unwrap_or_else(|_| Err(Stop::failed("the waiting thread panicked")));
        outcome.and(waited)
    })
}

fn threads_wait_for_the_same_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    on_threads(|index| {
        match index {
            0 => gpu.sync(None)?,
            1 => gpu.sync_event(event, None)?,
            2 => gpu.sync_stream(StreamId::DEFAULT, None)?,
            _ => {}
        }
        work.check(&gpu)
    })
}

fn each_thread_has_its_context(suite: &Suite) -> Checked {
    on_threads(|index| {
        let gpu = suite.open()?;
        compute_on(&gpu, StreamId::DEFAULT, index)?;
        gpu.close(None)?;
        Ok(())
    })
}
