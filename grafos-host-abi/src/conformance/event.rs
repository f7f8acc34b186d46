//! Events: marks in streams, order between streams, and time.

use std::collections::BTreeSet;
use std::prelude::v1::*;
use std::vec;

use super::busy::{self, while_busy};
use super::check::{Checked, Stop, ensure, ensure_eq, ensure_kind, ensure_same};
use super::gpu::{Arg, Gpu, words_of};
use super::runner::Suite;
use crate::{ErrorKind, EventId, EventStatus, FillPattern, StreamId};

cases!("event":
    a_new_event_is_not_recorded,
    waits_for_an_unrecorded_event_end_at_once,
    an_event_is_pending_then_complete,
    an_event_is_complete_only_after_its_work,
    work_starts_without_another_call,
    sync_event_waits_for_the_work_before_it,
    recording_again_moves_the_mark,
    a_stream_waits_for_an_event_of_another,
    a_chain_of_events_orders_two_streams,
    a_stream_waits_for_an_event_of_its_own,
    a_thousand_events_complete,
    ids_are_not_reused,
    destroying_an_unknown_event_is_refused,
    an_event_can_be_destroyed_while_pending,
    time_without_the_ability_is_unsupported,
    time_needs_recorded_events,
    time_of_pending_events_is_not_ready,
    time_adds_up,
);

fn a_new_event_is_not_recorded(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    let other = gpu.create_event()?;
    gpu.record_event(other, StreamId::DEFAULT)?;
    gpu.sync(None)?;
    ensure_eq("status", gpu.query_event(event)?, EventStatus::NotRecorded)?;
    ensure_eq(
        "status of the other",
        gpu.query_event(other)?,
        EventStatus::Complete,
    )
}

fn waits_for_an_unrecorded_event_end_at_once(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    gpu.sync_event(event, None)?;
    gpu.sync_event(event, Some(core::time::Duration::ZERO))?;
    gpu.wait_event(StreamId::DEFAULT, event)?;
    let buffer = gpu.upload(&[5; 16])?;
    ensure_same("bytes", &gpu.download(buffer)?, &[5; 16])?;
    ensure_eq("status", gpu.query_event(event)?, EventStatus::NotRecorded)
}

fn an_event_is_pending_then_complete(suite: &Suite) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        let event = gpu.create_event()?;
        let work = busy::start(&gpu, StreamId::DEFAULT, factor)?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        let early = gpu.query_event(event)?;
        gpu.sync(None)?;
        let late = gpu.query_event(event)?;
        ensure_eq("status after the work", late, EventStatus::Complete)?;
        work.check(&gpu)?;
        match early {
            EventStatus::Pending => Ok(Some(())),
            EventStatus::Complete => Ok(None),
            EventStatus::NotRecorded => Err(Stop::failed("a recorded event is not recorded")),
        }
    })
}

/// Asks until the event is complete; the runner gives up on a case that never ends.
fn query_until_complete(gpu: &Gpu<'_>, event: EventId) -> Checked {
    loop {
        match gpu.query_event(event)? {
            EventStatus::Complete => return Ok(()),
            EventStatus::Pending => std::thread::yield_now(),
            EventStatus::NotRecorded => {
                return Err(Stop::failed("a recorded event is not recorded"));
            }
        }
    }
}

/// The stream that an observer reads on: one that no work waits on, where there is one.
fn observer(gpu: &Gpu<'_>) -> Checked<StreamId> {
    if gpu.suite.info.capabilities.streams {
        Ok(gpu.create_stream()?)
    } else {
        Ok(StreamId::DEFAULT)
    }
}

fn an_event_is_complete_only_after_its_work(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let observer = observer(&gpu)?;
    let event = gpu.create_event()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    query_until_complete(&gpu, event)?;
    work.check_on(&gpu, observer)
}

fn work_starts_without_another_call(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let kernel = gpu.load("fill")?;
    let observer = observer(&gpu)?;
    let event = gpu.create_event()?;
    for round in 1..=20u32 {
        let buffer = gpu.buffer(64)?;
        gpu.sync(None)?;
        let args = [Arg::Buffer(buffer), Arg::U32(round), Arg::U32(16)];
        let block_len = gpu.block_len(&kernel, 16);
        gpu.launch_linear(StreamId::DEFAULT, &kernel, block_len, 16, &args)?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        query_until_complete(&gpu, event)?;
        let found = words_of(&gpu.download_on(observer, buffer.all())?);
        ensure_same(format_args!("round {round}"), &found, &[round; 16])?;
    }
    Ok(())
}

fn sync_event_waits_for_the_work_before_it(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let observer = observer(&gpu)?;
    let event = gpu.create_event()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    gpu.sync_event(event, None)?;
    ensure_eq("status", gpu.query_event(event)?, EventStatus::Complete)?;
    work.check_on(&gpu, observer)
}

fn recording_again_moves_the_mark(suite: &Suite) -> Checked {
    while_busy(|factor| {
        let gpu = suite.open()?;
        let observer = observer(&gpu)?;
        let event = gpu.create_event()?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        gpu.sync(None)?;
        ensure_eq("at first", gpu.query_event(event)?, EventStatus::Complete)?;
        let work = busy::start(&gpu, StreamId::DEFAULT, factor)?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        let again = gpu.query_event(event)?;
        gpu.sync_event(event, None)?;
        work.check_on(&gpu, observer)?;
        Ok((again == EventStatus::Pending).then_some(()))
    })
}

fn a_stream_waits_for_an_event_of_another(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let other = gpu.stream()?;
    // Both ways, since one of the streams may run ahead of the other by its nature.
    for (first, second) in [(StreamId::DEFAULT, other), (other, StreamId::DEFAULT)] {
        let event = gpu.create_event()?;
        let work = busy::start(&gpu, first, 1)?;
        gpu.record_event(event, first)?;
        gpu.wait_event(second, event)?;
        work.check_on(&gpu, second)?;
        gpu.free(work.buffer.id)?;
    }
    Ok(())
}

fn a_chain_of_events_orders_two_streams(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let streams = [StreamId::DEFAULT, gpu.stream()?];
    let kernel = gpu.load("increment")?;
    let block_len = gpu.block_len(&kernel, 64);
    let n = 4096u32;
    let data = gpu.upload_words(&vec![0; n as usize])?;
    gpu.sync(None)?;
    let args = [Arg::Buffer(data), Arg::U32(n)];
    let event = gpu.create_event()?;
    // The addition is not atomic: two launches that overlap lose counts.
    for round in 0..200 {
        let (here, there) = (streams[round % 2], streams[1 - round % 2]);
        gpu.launch_linear(here, &kernel, block_len, n, &args)?;
        gpu.record_event(event, here)?;
        gpu.wait_event(there, event)?;
    }
    ensure_same("words", &gpu.download_words(data)?, &vec![200; n as usize])
}

fn a_stream_waits_for_an_event_of_its_own(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    let buffer = gpu.upload(&[1; 64])?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    gpu.wait_event(StreamId::DEFAULT, event)?;
    gpu.fill(StreamId::DEFAULT, buffer.range(0, 32), FillPattern::U8(2))?;
    let mut expected = [1u8; 64];
    expected[..32].fill(2);
    ensure_same("bytes", &gpu.download(buffer)?, &expected)
}

fn a_thousand_events_complete(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let buffer = gpu.buffer(1000)?;
    let mut events = Vec::new();
    for index in 0..1000u64 {
        let pattern = FillPattern::U8(index as u8);
        gpu.fill(StreamId::DEFAULT, buffer.range(index, 1), pattern)?;
        let event = gpu.create_event()?;
        gpu.record_event(event, StreamId::DEFAULT)?;
        events.push(event);
    }
    gpu.sync_stream(StreamId::DEFAULT, None)?;
    for (index, event) in events.into_iter().enumerate() {
        ensure_eq(
            format_args!("status of event {index}"),
            gpu.query_event(event)?,
            EventStatus::Complete,
        )?;
        gpu.destroy_event(event)?;
    }
    let expected: Vec<u8> = (0..1000u32).map(|index| index as u8).collect();
    ensure_same("bytes", &gpu.download(buffer)?, &expected)
}

fn ids_are_not_reused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let mut seen = BTreeSet::new();
    for round in 0..100 {
        let event = gpu.create_event()?;
        ensure(
            format_args!("round {round}: {event:?} was given out before"),
            seen.insert(event),
        )?;
        gpu.destroy_event(event)?;
    }
    Ok(())
}

fn destroying_an_unknown_event_is_refused(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    gpu.destroy_event(event)?;
    for unknown in [event, EventId(event.0 + 1000), EventId(u64::MAX)] {
        ensure_kind(
            format_args!("destroy of {unknown:?}"),
            gpu.destroy_event(unknown),
            ErrorKind::InvalidHandle,
        )?;
    }
    Ok(())
}

fn an_event_can_be_destroyed_while_pending(suite: &Suite) -> Checked {
    let gpu = suite.open()?;
    let event = gpu.create_event()?;
    let work = busy::start(&gpu, StreamId::DEFAULT, 1)?;
    gpu.record_event(event, StreamId::DEFAULT)?;
    if suite.info.capabilities.streams {
        let other = gpu.create_stream()?;
        gpu.wait_event(other, event)?;
        gpu.destroy_event(event)?;
        // The wait stands, though the event is gone.
        work.check_on(&gpu, other)
    } else {
        gpu.destroy_event(event)?;
        work.check(&gpu)
    }
}

fn time_without_the_ability_is_unsupported(suite: &Suite) -> Checked {
    if suite.info.capabilities.event_timing {
        return Err(Stop::unsupported("the device has the ability"));
    }
    let gpu = suite.open()?;
    let (start, end) = (gpu.create_event()?, gpu.create_event()?);
    gpu.record_event(start, StreamId::DEFAULT)?;
    gpu.record_event(end, StreamId::DEFAULT)?;
    gpu.sync(None)?;
    ensure_kind("time", gpu.elapsed_ns(start, end), ErrorKind::Unsupported)?;
    Ok(())
}

fn time_needs_recorded_events(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.event_timing, "event timing")?;
    let gpu = suite.open()?;
    let (recorded, not) = (gpu.create_event()?, gpu.create_event()?);
    gpu.record_event(recorded, StreamId::DEFAULT)?;
    gpu.sync(None)?;
    for (start, end) in [(recorded, not), (not, recorded), (not, not)] {
        ensure_kind(
            "time of an event that was never recorded",
            gpu.elapsed_ns(start, end),
            ErrorKind::InvalidArgument,
        )?;
    }
    ensure_eq("time to itself", gpu.elapsed_ns(recorded, recorded)?, 0)
}

fn time_of_pending_events_is_not_ready(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.event_timing, "event timing")?;
    while_busy(|factor| {
        let gpu = suite.open()?;
        let (start, end) = (gpu.create_event()?, gpu.create_event()?);
        gpu.record_event(start, StreamId::DEFAULT)?;
        busy::start(&gpu, StreamId::DEFAULT, factor)?;
        gpu.record_event(end, StreamId::DEFAULT)?;
        let early = gpu.elapsed_ns(start, end);
        gpu.sync(None)?;
        let late = gpu.elapsed_ns(start, end)?;
        ensure("work of many milliseconds took no time", late > 0)?;
        match early {
            Err(error) if error.kind() == ErrorKind::NotReady => Ok(Some(())),
            Err(error) => Err(error.into()),
            Ok(early) => {
                ensure_eq("time, asked twice", early, late)?;
                Ok(None)
            }
        }
    })
}

fn time_adds_up(suite: &Suite) -> Checked {
    suite.need(suite.info.capabilities.event_timing, "event timing")?;
    let gpu = suite.open()?;
    let events = (0..4)
        .map(|_| Ok(gpu.create_event()?))
        .collect::<Checked<Vec<_>>>()?;
    gpu.record_event(events[0], StreamId::DEFAULT)?;
    for event in &events[1..] {
        busy::start(&gpu, StreamId::DEFAULT, 1)?;
        gpu.record_event(*event, StreamId::DEFAULT)?;
    }
    gpu.sync(None)?;
    let time = |start: usize, end: usize| gpu.elapsed_ns(events[start], events[end]);
    let whole = time(0, 3)?;
    let parts = time(0, 1)? + time(1, 2)? + time(2, 3)?;
    // Each of the four figures can be off by the resolution, which no device has coarser.
    ensure(
        format_args!("the parts take {parts} ns together, the whole {whole} ns"),
        whole.abs_diff(parts) <= 8_000,
    )?;
    for (start, end) in [(0, 1), (1, 2), (2, 3)] {
        ensure(
            format_args!("no time between events {start} and {end}"),
            time(start, end)? > 0,
        )?;
        ensure_eq(
            format_args!("time from event {end} back to {start}"),
            time(end, start)?,
            0,
        )?;
        ensure(
            format_args!("less time from 0 to {end} than from 0 to {start}"),
            time(0, end)? > time(0, start)?,
        )?;
    }
    Ok(())
}
