//! Streams, events and waits.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LONG, Launch, SHORT, alloc, buffer_u32, kernel, open, read_u32, whole};
use gpu_backend_mock::{
    DeviceTiming, HostKernel, KernelSignature, ManualClock, MockBackend, MockDevice, Operation,
};
use grafos_host_abi::{
    ErrorKind, EventId, EventStatus, FillPattern, GpuError, StreamId, TimeoutFault,
};

fn fill(value: u32) -> FillPattern {
    FillPattern::U32(value)
}

#[test]
fn streams_do_not_wait_for_one_another() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let (held, free) = (
        context.create_stream().unwrap(),
        context.create_stream().unwrap(),
    );
    let (first, second) = (alloc(&*context, 4), alloc(&*context, 4));
    let gate = backend.faults().hang(Operation::Fill, 1);
    context.fill(held, whole(first), fill(1)).unwrap();
    assert!(gate.wait_until_reached(LONG));

    context.fill(free, whole(second), fill(2)).unwrap();
    context.sync_stream(free, None).unwrap();
    assert_eq!(read_u32(&*context, second), [2]);
    assert_eq!(context.poll(), Ok(false));
    let waited = TimeoutFault {
        waited_ns: SHORT.as_nanos() as u64,
    };
    assert_eq!(
        context.sync_stream(held, Some(SHORT)),
        Err(GpuError::Timeout(waited))
    );
    assert_eq!(context.sync(Some(SHORT)), Err(GpuError::Timeout(waited)));

    gate.open();
    context.sync(None).unwrap();
    assert_eq!(context.poll(), Ok(true));
    assert_eq!(read_u32(&*context, first), [1]);
}

#[test]
fn work_of_one_stream_keeps_the_order_of_the_calls() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let target = Arc::clone(&log);
    let note = HostKernel::new(
        "note",
        KernelSignature::new().value::<u32>(),
        move |scope| {
            target.lock().unwrap().push(scope.arg::<u32>(0)?);
            Ok(())
        },
    );
    let context = open(&MockBackend::builder().kernel(note).build());
    let note = kernel(&*context, "note");
    for number in 0..200u32 {
        Launch::new(note, 1, 1, &[&number.to_le_bytes()])
            .run(&*context)
            .unwrap();
    }
    context.sync_stream(StreamId::DEFAULT, None).unwrap();
    assert_eq!(*log.lock().unwrap(), (0..200).collect::<Vec<u32>>());
}

#[test]
fn a_write_behind_held_work_has_taken_its_data_when_it_returns() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let buffer = buffer_u32(&*context, &[1, 1]);
    let gate = backend.faults().hang(Operation::Fill, 1);
    context
        .fill(StreamId::DEFAULT, whole(buffer), fill(5))
        .unwrap();
    let mut data = [7, 0, 0, 0];
    let first = common::range(buffer, 0, 4);
    context.write(StreamId::DEFAULT, first, &data).unwrap();
    data = [9; 4];
    drop(gate);
    // The read waits for both.
    assert_eq!(read_u32(&*context, buffer), [7, 5]);
    assert_eq!(data, [9; 4]);
}

#[test]
fn an_event_orders_work_across_streams() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let (producer, consumer) = (
        context.create_stream().unwrap(),
        context.create_stream().unwrap(),
    );
    let (source, copy) = (buffer_u32(&*context, &[1]), buffer_u32(&*context, &[0]));
    let event = context.create_event().unwrap();
    assert_eq!(context.query_event(event), Ok(EventStatus::NotRecorded));

    let gate = backend.faults().hang(Operation::Fill, 1);
    context.fill(producer, whole(source), fill(42)).unwrap();
    context.record_event(event, producer).unwrap();
    // Later work on the producer is not part of what the event marks.
    let later = backend.faults().hang(Operation::Fill, 1);
    context.fill(producer, whole(source), fill(43)).unwrap();
    context.wait_event(consumer, event).unwrap();
    context.copy(consumer, whole(copy), whole(source)).unwrap();

    assert_eq!(context.query_event(event), Ok(EventStatus::Pending));
    let error = context.sync_event(event, Some(SHORT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let error = context.sync_stream(consumer, Some(SHORT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);

    gate.open();
    context.sync_event(event, None).unwrap();
    assert_eq!(context.query_event(event), Ok(EventStatus::Complete));
    context.sync_stream(consumer, None).unwrap();
    assert_eq!(read_u32(&*context, copy), [42]);
    assert!(later.wait_until_reached(LONG));
    assert_eq!(context.poll(), Ok(false));
    later.open();
    context.sync(None).unwrap();
    assert_eq!(read_u32(&*context, source), [43]);
}

#[test]
fn a_chain_of_events_carries_a_value_through_many_streams() {
    let signature = KernelSignature::new().buffer().buffer();
    let step = HostKernel::new("step", signature, |scope| {
        let (from, to) = (scope.buffer::<u32>(0)?, scope.buffer::<u32>(1)?);
        to.store(0, from.load(0)?.wrapping_mul(3).wrapping_add(1))
    });
    let context = open(&MockBackend::builder().kernel(step).build());
    let step = kernel(&*context, "step");
    let streams: Vec<_> = (0..8).map(|_| context.create_stream().unwrap()).collect();
    let buffers: Vec<_> = (0..101).map(|_| buffer_u32(&*context, &[0])).collect();
    let event = context.create_event().unwrap();
    let mut expected = 0u32;
    for (number, pair) in buffers.windows(2).enumerate() {
        let stream = streams[number % streams.len()];
        let args = [pair[0].address.to_le_bytes(), pair[1].address.to_le_bytes()];
        // The wait means the record before it; recording again must not move it.
        context.wait_event(stream, event).unwrap();
        Launch {
            stream,
            ..Launch::new(step, 1, 1, &[&args[0], &args[1]])
        }
        .run(&*context)
        .unwrap();
        context.record_event(event, stream).unwrap();
        expected = expected.wrapping_mul(3).wrapping_add(1);
    }
    context.sync_event(event, None).unwrap();
    assert_eq!(read_u32(&*context, buffers[100]), [expected]);
}

#[test]
fn an_event_that_nobody_recorded_counts_as_complete() {
    let context = open(&MockBackend::new());
    let event = context.create_event().unwrap();
    assert_eq!(context.sync_event(event, Some(Duration::ZERO)), Ok(()));
    context.wait_event(StreamId::DEFAULT, event).unwrap();
    assert_eq!(context.sync(Some(LONG)), Ok(()));
    let error = context.elapsed_ns(event, event).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn elapsed_time_is_what_the_device_clock_says() {
    let clock = ManualClock::new();
    let device = MockDevice::new().timing(DeviceTiming::Manual(clock.clone()));
    let backend = MockBackend::builder().device(device).build();
    let context = open(&backend);
    let buffer = alloc(&*context, 4);
    let (start, end) = (
        context.create_event().unwrap(),
        context.create_event().unwrap(),
    );
    clock.advance(Duration::from_secs(5));
    context.record_event(start, StreamId::DEFAULT).unwrap();
    let gate = backend.faults().hang(Operation::Fill, 1);
    context
        .fill(StreamId::DEFAULT, whole(buffer), fill(0))
        .unwrap();
    context.record_event(end, StreamId::DEFAULT).unwrap();
    let error = context.elapsed_ns(start, end).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReady);
    clock.advance(Duration::from_nanos(1_234_567));
    clock.set_unix_time_secs(0);
    gate.open();
    context.sync_event(end, None).unwrap();
    assert_eq!(context.elapsed_ns(start, end), Ok(1_234_567));
    assert_eq!(context.elapsed_ns(end, start), Ok(0));
    // Recording again moves the mark.
    clock.advance(Duration::from_nanos(3));
    context.record_event(end, StreamId::DEFAULT).unwrap();
    assert_eq!(context.elapsed_ns(start, end), Ok(1_234_570));
}

#[test]
fn real_time_passes_between_events() {
    let pause = Duration::from_millis(3);
    let sleep = HostKernel::new("sleep", KernelSignature::new(), move |_| {
        std::thread::sleep(pause);
        Ok(())
    });
    let context = open(&MockBackend::builder().kernel(sleep).build());
    let sleep = kernel(&*context, "sleep");
    let (start, end) = (
        context.create_event().unwrap(),
        context.create_event().unwrap(),
    );
    context.record_event(start, StreamId::DEFAULT).unwrap();
    Launch::new(sleep, 1, 1, &[]).run(&*context).unwrap();
    context.record_event(end, StreamId::DEFAULT).unwrap();
    context.sync(None).unwrap();
    assert!(context.elapsed_ns(start, end).unwrap() >= pause.as_nanos() as u64);
}

#[test]
fn a_destroyed_stream_ends_its_work_first() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let stream = context.create_stream().unwrap();
    let buffer = buffer_u32(&*context, &[0]);
    let event = context.create_event().unwrap();
    let gate = backend.faults().hang(Operation::Fill, 1);
    context.fill(stream, whole(buffer), fill(8)).unwrap();
    context.record_event(event, stream).unwrap();
    context.wait_event(StreamId::DEFAULT, event).unwrap();
    context.destroy_stream(stream).unwrap();
    context.destroy_event(event).unwrap();
    for error in [
        context.fill(stream, whole(buffer), fill(9)).unwrap_err(),
        context.sync_stream(stream, None).unwrap_err(),
        context.destroy_stream(stream).unwrap_err(),
        context.query_event(event).unwrap_err(),
        context.destroy_event(event).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidHandle);
    }
    let error = context.sync(Some(SHORT)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    gate.open();
    // The default stream waits for the event, though both have been destroyed.
    assert_eq!(read_u32(&*context, buffer), [8]);
}

#[test]
fn handles_that_never_were_are_refused() {
    let context = open(&MockBackend::new());
    let buffer = alloc(&*context, 4);
    let (stream, event) = (StreamId(buffer.id.0), EventId(buffer.id.0));
    let mark = context.create_event().unwrap();
    for error in [
        context.fill(stream, whole(buffer), fill(0)).unwrap_err(),
        context.write(stream, whole(buffer), &[0; 4]).unwrap_err(),
        context
            .read(stream, whole(buffer), &mut [0; 4])
            .unwrap_err(),
        context.sync_stream(stream, None).unwrap_err(),
        context.record_event(mark, stream).unwrap_err(),
        context.wait_event(stream, mark).unwrap_err(),
        context.record_event(event, StreamId::DEFAULT).unwrap_err(),
        context.wait_event(StreamId::DEFAULT, event).unwrap_err(),
        context.sync_event(event, None).unwrap_err(),
        context.elapsed_ns(event, mark).unwrap_err(),
        context.destroy_event(event).unwrap_err(),
        context.destroy_stream(stream).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidHandle);
    }
    let error = context.destroy_stream(StreamId::DEFAULT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(context.query_event(mark), Ok(EventStatus::NotRecorded));
}

#[test]
fn a_wait_without_time_answers_at_once() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let buffer = alloc(&*context, 4);
    assert_eq!(context.sync(Some(Duration::ZERO)), Ok(()));
    let gate = backend.faults().hang(Operation::Fill, 1);
    context
        .fill(StreamId::DEFAULT, whole(buffer), fill(0))
        .unwrap();
    let nothing = TimeoutFault { waited_ns: 0 };
    assert_eq!(
        context.sync(Some(Duration::ZERO)),
        Err(GpuError::Timeout(nothing))
    );
    gate.open();
    assert_eq!(context.sync(Some(Duration::MAX)), Ok(()));
}
