//! Streams, and events between and on them.

use grafos_std::error::ErrorKind;
use grafos_std::gpu::{EventStatus, FillPattern, KernelArgs, LaunchConfig};

use crate::target::{Must, Target, Unsupported, download, ensure_kind, ensure_same, upload};

crate::cases!("streams":
    streams_exist_or_are_unsupported,
    an_event_orders_two_streams,
    events_tell_their_status,
    an_event_that_was_never_recorded_is_complete,
    elapsed_time_is_measured_or_unsupported,
    all_memory_calls_work_on_a_stream,
    a_dropped_stream_finishes_its_work,
    many_streams_and_events_come_and_go,
);

fn need_streams(target: &Target) -> Result<(), Unsupported> {
    if target.device.capabilities.streams {
        return Ok(());
    }
    Unsupported::because("the device has the default stream only")
}

fn streams_exist_or_are_unsupported(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    if need_streams(target).is_err() {
        ensure_kind("a stream", session.create_stream(), ErrorKind::Unsupported);
        return need_streams(target);
    }
    let stream = session.create_stream().must();
    let buffer = upload(&session, &[0u32; 100]);
    session.sync().must();
    let (_module, kernel) = target.kernel(&session, "increment")?;
    let args = KernelArgs::new().push_buffer(&buffer).push_u32(100);
    for _ in 0..20 {
        stream
            .launch(&kernel, LaunchConfig::linear(100, 64), &args)
            .must();
    }
    stream.sync().must();
    assert_eq!(download::<u32>(&session, &buffer), [20; 100]);
    Ok(())
}

fn an_event_orders_two_streams(target: &Target) -> Result<(), Unsupported> {
    need_streams(target)?;
    let (_lease, session) = target.session();
    let (first, second) = (
        session.create_stream().must(),
        session.create_stream().must(),
    );
    let (_module, increment) = target.kernel(&session, "increment")?;
    let event = session.create_event().must();
    for round in 1..=5u32 {
        let busy = target.start_busy(&session, 1);
        // The default stream, then the first, then the second, then the default one again.
        session.record(&event).must();
        first.wait(&event).must();
        let data = session.mem_alloc(busy.buffer.size_bytes()).must();
        first
            .mem_copy((&data, 0), (&busy.buffer, 0), data.size_bytes())
            .must();
        first.record(&event).must();
        second.wait(&event).must();
        let len = (data.size_bytes() / 4) as u32;
        let args = KernelArgs::new().push_buffer(&data).push_u32(len);
        second
            .launch(&increment, LaunchConfig::linear(len.into(), 64), &args)
            .must();
        second.record(&event).must();
        session.wait(&event).must();
        let expected: Vec<u32> = crate::target::busy_values()
            .iter()
            .map(|value| value.wrapping_add(1))
            .collect();
        let what = format!("round {round}");
        ensure_same(&what, &download::<u32>(&session, &data), &expected);
    }
    Ok(())
}

fn events_tell_their_status(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let event = session.create_event().must();
    assert_eq!(event.status().must(), EventStatus::NotRecorded);
    target.while_busy(|factor| {
        let _busy = target.start_busy(&session, factor);
        session.record(&event).must();
        let seen = event.status().must();
        event.sync().must();
        assert_eq!(event.status().must(), EventStatus::Complete);
        (seen == EventStatus::Pending).then_some(())
    });
    Ok(())
}

fn an_event_that_was_never_recorded_is_complete(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let event = session.create_event().must();
    event.sync().must();
    session.wait(&event).must();
    let buffer = upload(&session, &[3u32]);
    assert_eq!(download::<u32>(&session, &buffer), [3]);
    Ok(())
}

fn elapsed_time_is_measured_or_unsupported(target: &Target) -> Result<(), Unsupported> {
    let (_lease, session) = target.session();
    let (start, end) = (session.create_event().must(), session.create_event().must());
    session.record(&start).must();
    if !target.device.capabilities.event_timing {
        session.record(&end).must();
        session.sync().must();
        ensure_kind("time", end.elapsed_ns_since(&start), ErrorKind::Unsupported);
        return Unsupported::because("the device does not time events");
    }
    session.sync().must();
    ensure_kind(
        "never recorded",
        end.elapsed_ns_since(&start),
        ErrorKind::InvalidArgument,
    );
    target.while_busy(|factor| {
        session.record(&start).must();
        let _busy = target.start_busy(&session, factor);
        session.record(&end).must();
        let early = end.elapsed_ns_since(&start);
        session.sync().must();
        let elapsed = end.elapsed_ns_since(&start).must();
        // The work outlasts tens of milliseconds on purpose.
        assert!(elapsed > 1_000_000, "{elapsed} ns");
        assert!(elapsed < 600_000_000_000, "{elapsed} ns");
        assert_eq!(start.elapsed_ns_since(&end).must(), 0);
        match early {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotReady, "{error}");
                Some(())
            }
            Ok(_) => None,
        }
    });
    Ok(())
}

fn all_memory_calls_work_on_a_stream(target: &Target) -> Result<(), Unsupported> {
    need_streams(target)?;
    let (_lease, session) = target.session();
    let stream = session.create_stream().must();
    let (a, b) = (session.mem_alloc(64).must(), session.mem_alloc(64).must());
    stream.mem_fill(&a, 0, 64, FillPattern::U16(0x0102)).must();
    stream.mem_write(&a, 3, &[9; 10]).must();
    stream.mem_fill(&b, 0, 64, FillPattern::U8(0)).must();
    stream.mem_copy((&b, 8), (&a, 0), 56).must();
    stream.mem_copy((&b, 0), (&b, 8), 8).must();
    let mut out = [0; 64];
    stream.mem_read_into(&b, 0, &mut out).must();
    let mut model_a = [2, 1].repeat(32);
    model_a[3..13].fill(9);
    let mut expected = vec![0; 64];
    expected[8..].copy_from_slice(&model_a[..56]);
    expected.copy_within(8..16, 0);
    ensure_same("b", &out, &expected);
    let outside = stream.mem_write(&a, 60, &[0; 5]);
    ensure_kind("outside", outside, ErrorKind::OutOfBounds);
    Ok(())
}

fn a_dropped_stream_finishes_its_work(target: &Target) -> Result<(), Unsupported> {
    need_streams(target)?;
    let (_lease, session) = target.session();
    let (_module, increment) = target.kernel(&session, "increment")?;
    let data = upload(&session, &[0u32; 64]);
    session.sync().must();
    let args = KernelArgs::new().push_buffer(&data).push_u32(64);
    for _ in 0..10 {
        let stream = session.create_stream().must();
        stream
            .launch(&increment, LaunchConfig::linear(64, 64), &args)
            .must();
        drop(stream);
        session.sync().must();
    }
    assert_eq!(download::<u32>(&session, &data), [10; 64]);
    Ok(())
}

fn many_streams_and_events_come_and_go(target: &Target) -> Result<(), Unsupported> {
    need_streams(target)?;
    let (_lease, session) = target.session();
    let data = upload(&session, &[7u32; 16]);
    session.sync().must();
    for _ in 0..100 {
        let (stream, event) = (
            session.create_stream().must(),
            session.create_event().must(),
        );
        stream.mem_fill(&data, 0, 64, FillPattern::U32(7)).must();
        stream.record(&event).must();
        session.wait(&event).must();
    }
    assert_eq!(download::<u32>(&session, &data), [7; 16]);
    Ok(())
}
