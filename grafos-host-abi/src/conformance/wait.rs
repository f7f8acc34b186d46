//! Waits that are bounded, and calls that never wait.

use core::time::Duration;
use std::prelude::v1::*;

use super::busy::{self, while_busy};
use super::check::{Checked, Stop, ensure, ensure_eq};
use super::gpu::Gpu;
use super::runner::Suite;
use crate::{GpuError, Result, StreamId};

cases!("wait":
    sync_times_out_and_the_work_goes_on,
    sync_stream_times_out_and_the_work_goes_on,
    sync_event_times_out_and_the_work_goes_on,
    a_wait_of_no_time_does_not_wait,
    waits_on_an_idle_device_end_at_once,
    waits_can_be_repeated_until_the_work_ends,
    other_streams_are_not_waited_for,
    poll_tells_when_nothing_is_outstanding,
    poll_runs_what_was_enqueued,
);

/// Far below the length of the work.
const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(600);

/// Whether a bounded wait timed out; also holds the numbers in the error against the request.
#[track_caller]
fn timed_out(waited: Result<()>, asked: Duration) -> Checked<bool> {
    match waited {
        Ok(()) => Ok(false),
        Err(GpuError::Timeout(fault)) => {
            ensure(
                format_args!("waited {} ns of {asked:?}", fault.waited_ns),
                u128::from(fault.waited_ns) >= asked.as_nanos(),
            )?;
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

/// Waits in a bounded way while the device is busy: that times out, and the work ends well.
fn times_out(suite: &Suite, wait: impl Fn(&Gpu<'_>, Duration) -> Result<()>) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        // The events are numbered by the wait that wants one.
        let work = busy::start(&gpu, StreamId::DEFAULT, factor)?;
        let early = timed_out(wait(&gpu, SHORT), SHORT)?;
        ensure(
            format_args!("a wait of {LONG:?} timed out"),
            !timed_out(wait(&gpu, LONG), LONG)?,
        )?;
        work.check(&gpu)?;
        Ok(early.then_some(()))
    })
}

fn sync_times_out_and_the_work_goes_on(suite: &Suite) -> Checked {
    times_out(suite, |gpu, timeout| gpu.sync(Some(timeout)))
}

fn sync_stream_times_out_and_the_work_goes_on(suite: &Suite) -> Checked {
    times_out(suite, |gpu, timeout| {
        gpu.sync_stream(StreamId::DEFAULT, Some(timeout))
    })
}

fn sync_event_times_out_and_the_work_goes_on(suite: &Suite) -> Checked {
    times_out(suite, |gpu, timeout| {
        let event = gpu.create_event()?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        gpu.sync_event(event, Some(timeout))
    })
}

fn a_wait_of_no_time_does_not_wait(suite: &Suite) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        let event = gpu.create_event()?;
        let work = busy::start(&gpu, StreamId::DEFAULT, factor)?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        let zero = Duration::ZERO;
        let early = timed_out(gpu.sync(Some(zero)), zero)?
            && timed_out(gpu.sync_stream(StreamId::DEFAULT, Some(zero)), zero)?
            && timed_out(gpu.sync_event(event, Some(zero)), zero)?;
        gpu.sync(None)?;
        work.check(&gpu)?;
        Ok(early.then_some(()))
    })
}

fn waits_on_an_idle_device_end_at_once(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    gpu.sync(None)?;
    for timeout in [Some(Duration::ZERO), Some(SHORT), None, Some(Duration::MAX)] {
        gpu.sync(timeout)?;
        gpu.sync_stream(StreamId::DEFAULT, timeout)?;
        gpu.sync_event(event, timeout)?;
    }
    ensure_eq("poll", gpu.poll()?, true)
}

fn waits_can_be_repeated_until_the_work_ends(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    // The runner gives up on a case that never ends.
    while timed_out(gpu.sync(Some(SHORT)), SHORT)? {}
    work.check(&gpu)
}

fn other_streams_are_not_waited_for(suite: &Suite) -> Checked {
    // A device may run one stream after another, so that a wait takes long; the result counts.
    let gpu = suite.open()?;
    let other = gpu.stream()?;
    let buffer = gpu.buffer(8)?;
    let work = busy::start(&gpu, other, 1)?;
    gpu.write(StreamId::DEFAULT, buffer.all(), &[1, 2, 3, 4, 5, 6, 7, 8])?;
    gpu.sync_stream(StreamId::DEFAULT, None)?;
    let found = gpu.download(buffer)?;
    ensure_eq("bytes", found.as_slice(), &[1, 2, 3, 4, 5, 6, 7, 8])?;
    work.check_on(&gpu, other)
}

fn poll_tells_when_nothing_is_outstanding(suite: &Suite) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        ensure_eq("poll of a new context", gpu.poll()?, true)?;
        let work = busy::start(&gpu, StreamId::DEFAULT, factor)?;
        let early = gpu.poll()?;
        while !gpu.poll()? {
            std::thread::yield_now();
        }
        // Nothing is outstanding, so a wait of no time must succeed.
        if timed_out(gpu.sync(Some(Duration::ZERO)), Duration::ZERO)? {
            return Err(Stop::failed("poll said that all work had ended"));
        }
        work.check(&gpu)?;
        Ok((!early).then_some(()))
    })
}

fn poll_runs_what_was_enqueued(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    let buffer = gpu.buffer(1 << 16)?;
    for round in 0..100u8 {
        gpu.fill(
            StreamId::DEFAULT,
            buffer.all(),
            crate::FillPattern::U8(round),
        )?;
    }
    gpu.record_event(event, StreamId::DEFAULT)?;
    while !gpu.poll()? {
        std::thread::yield_now();
    }
    ensure_eq(
        "status of the event",
        gpu.query_event(event)?,
        crate::EventStatus::Complete,
    )?;
    ensure_eq(
        "last byte",
        gpu.download_range(buffer.range((1 << 16) - 1, 1))?
            .as_slice(),
        &[99],
    )
}
