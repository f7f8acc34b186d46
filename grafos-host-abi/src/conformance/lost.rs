//! A device that is lost.

use std::prelude::v1::*;
use std::thread;

use super::busy::{self, while_busy};
use super::check::{Checked, Stop, ensure, ensure_eq, ensure_kind};
use super::gpu::Gpu;
use super::module::computes;
use super::runner::Suite;
use crate::{BufferDesc, ErrorKind, FillPattern, GpuError, StreamId};

cases!("lost":
    later_calls_say_that_the_device_is_lost,
    the_first_cause_is_kept,
    frees_and_drops_stay_silent,
    waiting_threads_wake,
    other_contexts_go_on,
);

fn lose(gpu: &Gpu<'_>) -> Checked {
    if gpu.suite.fixture.lose_device(&**gpu) {
        Ok(())
    } else {
        Err(Stop::unsupported(
            "the target has no way to lose its device and go on",
        ))
    }
}

fn later_calls_say_that_the_device_is_lost(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let image = suite.image("fill")?;
    let kernel = gpu.load("fill")?;
    let buffer = gpu.upload(&[1; 16])?;
    let event = gpu.create_event()?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    gpu.sync(None)?;
    lose(&gpu)?;
    let lost = |what: &str, result: Result<(), GpuError>| {
        ensure_kind(what, result, ErrorKind::DeviceLost).map(drop)
    };
    let default = StreamId::DEFAULT;
    for _ in 0..2 {
        lost("alloc", gpu.alloc(&BufferDesc::new(16)).map(drop))?;
        lost("write", gpu.write(default, buffer.all(), &[0; 16]))?;
        lost("read", gpu.read(default, buffer.all(), &mut [0; 16]))?;
        lost(
            "copy",
            gpu.copy(default, buffer.range(0, 8), buffer.range(8, 8)),
        )?;
        lost("fill", gpu.fill(default, buffer.all(), FillPattern::U8(1)))?;
        lost("load_module", gpu.load_module(&image).map(drop))?;
        lost("kernel", gpu.kernel(kernel.module, "fill").map(drop))?;
        lost("sync", gpu.sync(None))?;
        lost("sync_stream", gpu.sync_stream(default, None))?;
        lost("poll", gpu.poll().map(drop))?;
        lost("create_event", gpu.create_event().map(drop))?;
        lost("record_event", gpu.record_event(event, default))?;
        lost("sync_event", gpu.sync_event(event, None))?;
    }
    Ok(())
}

fn the_first_cause_is_kept(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    lose(&gpu)?;
    let first = ensure_kind("sync", gpu.sync(None), ErrorKind::DeviceLost)?;
    lose(&gpu)?;
    for _ in 0..3 {
        let later = ensure_kind("poll", gpu.poll(), ErrorKind::DeviceLost)?;
        ensure_eq("a later error", &later, &first)?;
    }
    Ok(())
}

fn frees_and_drops_stay_silent(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let buffer = gpu.upload(&[1; 16])?;
    gpu.upload(&[2; 16])?;
    let event = gpu.create_event()?;
    let stream = if suite.info.capabilities.streams {
        Some(gpu.create_stream()?)
    } else {
        None
    };
    lose(&gpu)?;
    gpu.free(buffer.id)?;
    gpu.unload_module(kernel.module)?;
    gpu.destroy_event(event)?;
    if let Some(stream) = stream {
        gpu.destroy_stream(stream)?;
    }
    drop(gpu);
    computes(&suite.open()?)
}

fn waiting_threads_wake(suite: &Suite) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        busy::start(&gpu, StreamId::DEFAULT, factor)?;
        let gpu = &gpu;
        let (waited, lost) = thread::scope(|scope| {
            let waiters: Vec<_> = (0..3)
                .map(|_| scope.spawn(move || gpu.sync(None)))
                .collect();
            let lost = lose(gpu);
            let waited: Vec<_> = waiters.into_iter().map(|waiter| waiter.join()).collect();
            (waited, lost)
        });
        lost?;
        for result in waited {
            match result.map_err(|_| Stop::failed("a waiting thread panicked"))? {
                // The work had ended before the device was lost.
                Ok(()) => return Ok(None),
                result => ensure_kind("sync", result, ErrorKind::DeviceLost)?,
            };
        }
        Ok(Some(()))
    })
}

fn other_contexts_go_on(suite: &Suite) -> Checked {
    let (survivor, gpu) = (suite.open()?, suite.open()?);
    let kept = survivor.upload(&[7; 32])?;
    lose(&gpu)?;
    ensure_kind("sync", gpu.sync(None), ErrorKind::DeviceLost)?;
    ensure(
        "the other context's bytes changed",
        survivor.download(kept)? == [7; 32],
    )?;
    computes(&survivor)?;
    computes(&suite.open()?)
}
