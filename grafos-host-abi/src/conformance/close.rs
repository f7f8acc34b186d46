//! The end of a context.

use core::time::Duration;
use std::prelude::v1::*;

use super::busy::{self, while_busy};
use super::check::{Checked, ensure_eq, ensure_kind};
use super::gpu::{Gpu, Kernel};
use super::module::computes;
use super::runner::Suite;
use crate::{BufferDesc, CloseReport, ErrorKind, FillPattern, GpuError, LaunchDesc, StreamId};

cases!("close":
    a_clean_context_reports_nothing,
    live_objects_are_reported,
    closing_waits_for_the_work,
    closing_again_is_harmless,
    calls_after_close_are_refused,
    close_times_out_under_work_and_can_be_repeated,
);

fn a_clean_context_reports_nothing(suite: &Suite) -> Checked {
    let untouched = suite.open()?;
    ensure_eq("untouched", untouched.close(None)?, CloseReport::default())?;

    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let buffer = gpu.upload(&[1; 100])?;
    let event = gpu.create_event()?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    if suite.info.capabilities.streams {
        let stream = gpu.create_stream()?;
        gpu.destroy_stream(stream)?;
    }
    gpu.destroy_event(event)?;
    gpu.unload_module(kernel.module)?;
    gpu.free(buffer.id)?;
    ensure_eq("used", gpu.close(None)?, CloseReport::default())
}

fn live_objects_are_reported(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    for size_bytes in [1, 1000, 70_001] {
        gpu.buffer(size_bytes)?;
    }
    let freed = gpu.buffer(5000)?;
    gpu.free(freed.id)?;
    gpu.load("fill")?;
    gpu.load("fill")?;
    let unloaded = gpu.load("saxpy")?;
    gpu.unload_module(unloaded.module)?;
    for _ in 0..5 {
        gpu.create_event()?;
    }
    let mut live_streams = 0;
    if suite.info.capabilities.streams {
        for _ in 0..3 {
            gpu.create_stream()?;
        }
        live_streams = 3;
    }
    let expected = CloseReport {
        live_buffers: 3,
        live_bytes: 71_002,
        live_modules: 2,
        live_streams,
        live_events: 5,
    };
    ensure_eq("report", gpu.close(None)?, expected)
}

fn closing_waits_for_the_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    let expected = CloseReport {
        live_buffers: 1,
        live_bytes: work.buffer.size_bytes,
        live_modules: 1,
        ..CloseReport::default()
    };
    ensure_eq("report", gpu.close(None)?, expected)?;
    computes(&suite.open()?)
}

fn closing_again_is_harmless(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    gpu.buffer(10)?;
    gpu.close(None)?;
    for timeout in [None, Some(Duration::ZERO)] {
        ensure_eq("report", gpu.close(timeout)?, CloseReport::default())?;
    }
    Ok(())
}

fn calls_after_close_are_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let image = suite.image("fill")?;
    let kernel = gpu.load("fill")?;
    let buffer = gpu.buffer(16)?;
    let event = gpu.create_event()?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    let stream = if suite.info.capabilities.streams {
        Some(gpu.create_stream()?)
    } else {
        None
    };
    gpu.close(None)?;

    let refused = |what: &str, result: Result<(), GpuError>| {
        ensure_kind(what, result, ErrorKind::InvalidHandle).map(drop)
    };
    let default = StreamId::DEFAULT;
    refused("alloc", gpu.alloc(&BufferDesc::new(16)).map(drop))?;
    refused("free", gpu.free(buffer.id))?;
    refused("write", gpu.write(default, buffer.all(), &[0; 16]))?;
    refused("read", gpu.read(default, buffer.all(), &mut [0; 16]))?;
    refused(
        "copy",
        gpu.copy(default, buffer.range(0, 8), buffer.range(8, 8)),
    )?;
    refused("fill", gpu.fill(default, buffer.all(), FillPattern::U8(1)))?;
    refused("memory_info", gpu.memory_info().map(drop))?;
    refused("trim", gpu.trim().map(drop))?;
    refused("load_module", gpu.load_module(&image).map(drop))?;
    refused("unload_module", gpu.unload_module(kernel.module))?;
    refused("kernel", gpu.kernel(kernel.module, "fill").map(drop))?;
    refused("kernel_names", gpu.kernel_names(kernel.module).map(drop))?;
    refused("launch", launch(&gpu, &kernel))?;
    if let Some(stream) = stream {
        refused("create_stream", gpu.create_stream().map(drop))?;
        refused("destroy_stream", gpu.destroy_stream(stream))?;
    }
    refused("sync", gpu.sync(None))?;
    refused("sync_stream", gpu.sync_stream(default, None))?;
    refused("poll", gpu.poll().map(drop))?;
    refused("create_event", gpu.create_event().map(drop))?;
    refused("destroy_event", gpu.destroy_event(event))?;
    refused("record_event", gpu.record_event(event, default))?;
    refused("wait_event", gpu.wait_event(default, event))?;
    refused("query_event", gpu.query_event(event).map(drop))?;
    refused("sync_event", gpu.sync_event(event, None))?;
    if suite.info.capabilities.native_handle {
        let mut lent = 0;
        let result = gpu.with_native(default, &[], &mut |_| lent += 1);
        refused("with_native", result)?;
        ensure_eq("calls of the callback", lent, 0)?;
    }
    ensure_eq("the device is still described", gpu.device(), &suite.info)
}

/// A launch that a host would let through; the arguments of `fill` are 8, 4 and 4 bytes.
fn launch(gpu: &Gpu<'_>, kernel: &Kernel) -> Result<(), GpuError> {
    let bytes: [&[u8]; 3] = [&[0; 8], &[0; 4], &[0; 4]];
    let args = bytes.map(|bytes| crate::LaunchArg {
        bytes,
        buffer: None,
    });
    gpu.launch(&LaunchDesc {
        kernel: kernel.info.id,
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared_bytes: 0,
        args: &args,
        stream: StreamId::DEFAULT,
    })
}

fn close_times_out_under_work_and_can_be_repeated(suite: &Suite) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        let work = busy::start(&gpu, StreamId::DEFAULT, factor)?;
        let early = match gpu.close(Some(Duration::ZERO)) {
            Ok(_) => None,
            Err(GpuError::Timeout(_)) => Some(()),
            Err(error) => return Err(error.into()),
        };
        if early.is_some() {
            let expected = CloseReport {
                live_buffers: 1,
                live_bytes: work.buffer.size_bytes,
                live_modules: 1,
                ..CloseReport::default()
            };
            ensure_eq("report of the second close", gpu.close(None)?, expected)?;
        }
        computes(&suite.open()?)?;
        Ok(early)
    })
}
