//! What outlives what: frees under running work, closing, dropping.
#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{LONG, Launch, SHORT, alloc, buffer_u32, eventually, kernel, open, read_u32, whole};
use gpu_backend_mock::{HostKernel, KernelSignature, MockBackend, MockDevice, Operation};
use grafos_host_abi::{
    BufferDesc, CloseReport, ErrorKind, FillPattern, GpuContext, GpuError, StreamId,
};

/// Copies one number and adds the module's `bias`.
fn biased_copy() -> HostKernel {
    let signature = KernelSignature::new().buffer().buffer();
    HostKernel::new("biased_copy", signature, |scope| {
        let bias = scope.global::<u32>("bias")?.load(0)?;
        let (from, to) = (scope.buffer::<u32>(0)?, scope.buffer::<u32>(1)?);
        to.store(0, from.load(0)? + bias)
    })
}

fn backend() -> MockBackend {
    let backend = MockBackend::builder()
        .device(MockDevice::new().memory_bytes(1 << 20))
        .kernel(biased_copy())
        .build();
    backend.register_global("bias", 4, &[100]);
    backend
}

fn error_kind<T: std::fmt::Debug>(result: Result<T, GpuError>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn what_a_running_launch_uses_is_released_after_it() {
    let backend = backend();
    let context = open(&backend);
    let module = context.load_module(&[0; 8]).unwrap().id;
    let copy = context.kernel(module, "biased_copy").unwrap().id;
    let stream = context.create_stream().unwrap();
    let (from, to) = (buffer_u32(&*context, &[23]), buffer_u32(&*context, &[0]));
    let gate = backend.faults().hang(Operation::Launch, 1);
    let args = [from.address.to_le_bytes(), to.address.to_le_bytes()];
    Launch {
        stream,
        ..Launch::new(copy, 1, 1, &[&args[0], &args[1]])
    }
    .run(&*context)
    .unwrap();
    assert!(gate.wait_until_reached(LONG));

    // None of these waits, and none takes anything from the launch.
    context.free(from.id).unwrap();
    context.unload_module(module).unwrap();
    context.destroy_stream(stream).unwrap();
    assert_eq!(error_kind(context.free(from.id)), ErrorKind::InvalidHandle);
    assert_eq!(
        error_kind(context.kernel_names(module)),
        ErrorKind::InvalidHandle
    );
    let launched = Launch::new(copy, 1, 1, &[&args[0], &args[1]]).run(&*context);
    assert_eq!(error_kind(launched), ErrorKind::InvalidHandle);
    let info = context.memory_info().unwrap();
    assert_eq!((info.live_buffers, info.live_bytes), (1, 4));
    assert_eq!(info.reserved_bytes, 12, "two buffers and a global");

    gate.open();
    assert_eq!(context.sync(None), Ok(()));
    assert_eq!(read_u32(&*context, to), [123]);
    let info = context.memory_info().unwrap();
    assert_eq!((info.reserved_bytes, info.free_bytes), (4, (1 << 20) - 4));
}

#[test]
fn freed_memory_counts_until_all_streams_have_passed_the_free() {
    let backend = backend();
    let context = open(&backend);
    let (held, big) = (buffer_u32(&*context, &[0]), alloc(&*context, (1 << 20) - 4));
    let gate = backend.faults().hang(Operation::Fill, 1);
    let target = whole(held);
    context
        .fill(StreamId::DEFAULT, target, FillPattern::U8(1))
        .unwrap();
    context.free(big.id).unwrap();
    // Another stream is idle, but the free waits for every stream.
    let stream = context.create_stream().unwrap();
    context.sync_stream(stream, None).unwrap();
    assert_eq!(
        error_kind(context.alloc(&BufferDesc::new(1))),
        ErrorKind::CapacityExceeded
    );
    gate.open();
    context.sync(None).unwrap();
    alloc(&*context, (1 << 20) - 4);
}

#[test]
fn a_launch_after_the_free_does_not_get_the_memory() {
    let touch = HostKernel::new("touch", KernelSignature::new().buffer(), |scope| {
        scope.buffer::<u32>(0)?.store(0, 1)
    });
    let backend = MockBackend::builder().kernel(touch).build();
    let context = open(&backend);
    let touch = kernel(&*context, "touch");
    let (held, freed) = (alloc(&*context, 4), alloc(&*context, 4));
    let stream = context.create_stream().unwrap();
    let gate = backend.faults().hang(Operation::Fill, 1);
    context
        .fill(StreamId::DEFAULT, whole(held), FillPattern::U8(1))
        .unwrap();
    context.free(freed.id).unwrap();
    // The memory is still there, held back by the other stream.
    let address = freed.address.to_le_bytes();
    Launch {
        stream,
        ..Launch::new(touch, 1, 1, &[&address])
    }
    .run(&*context)
    .unwrap();
    let error = context.sync_stream(stream, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    let text = error.to_string();
    assert!(text.contains("which was freed before the launch"), "{text}");
    drop(gate);
}

#[test]
fn closing_reports_what_was_left_and_returns_it() {
    let backend = backend();
    let context = open(&backend);
    alloc(&*context, 1000);
    let freed = alloc(&*context, 50);
    context.free(freed.id).unwrap();
    alloc(&*context, 24);
    context.load_module(&[0; 8]).unwrap();
    let unloaded = context.load_module(&[0; 8]).unwrap();
    context.unload_module(unloaded.id).unwrap();
    context.create_stream().unwrap();
    context.create_stream().unwrap();
    let destroyed = context.create_stream().unwrap();
    context.destroy_stream(destroyed).unwrap();
    let event = context.create_event().unwrap();
    assert_eq!(
        context.close(None),
        Ok(CloseReport {
            live_buffers: 2,
            live_bytes: 1024,
            live_modules: 1,
            live_streams: 2,
            live_events: 1,
        })
    );
    assert_eq!(open(&backend).memory_info().unwrap().free_bytes, 1 << 20);
    assert_eq!(context.close(None), Ok(CloseReport::default()));
    for kind in [
        error_kind(context.alloc(&BufferDesc::new(1))),
        error_kind(context.memory_info()),
        error_kind(context.sync(None)),
        error_kind(context.destroy_event(event)),
        error_kind(context.free(freed.id)),
    ] {
        assert_eq!(kind, ErrorKind::InvalidHandle);
    }
}

#[test]
fn closing_waits_for_work_and_can_be_tried_again() {
    let backend = backend();
    let context = open(&backend);
    let buffer = alloc(&*context, 4);
    let gate = backend.faults().hang(Operation::Fill, 1);
    context
        .fill(StreamId::DEFAULT, whole(buffer), FillPattern::U8(1))
        .unwrap();
    assert_eq!(error_kind(context.close(Some(SHORT))), ErrorKind::Timeout);
    // Nothing has happened to the context.
    assert_eq!(context.memory_info().unwrap().live_buffers, 1);
    gate.open();
    assert_eq!(read_u32(&*context, buffer), [0x0101_0101]);
    assert_eq!(context.close(Some(LONG)).unwrap().live_buffers, 1);
}

#[test]
fn dropping_leaves_running_work_alone_and_never_waits() {
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    let signature = KernelSignature::new().buffer();
    let late = HostKernel::new("late", signature, move |scope| {
        scope.buffer::<u32>(0)?.store(0, 1)?;
        flag.store(true, Ordering::SeqCst);
        Ok(())
    });
    let backend = MockBackend::builder()
        .device(MockDevice::new().memory_bytes(1000))
        .kernel(late)
        .build();
    let (context, witness) = (open(&backend), open(&backend));
    let buffer = alloc(&*context, 600);
    let late = kernel(&*context, "late");
    let gate = backend.faults().hang(Operation::Launch, 1);
    let address = buffer.address.to_le_bytes();
    Launch::new(late, 1, 1, &[&address]).run(&*context).unwrap();
    drop(context);
    assert_eq!(witness.memory_info().unwrap().free_bytes, 400);
    gate.open();
    eventually("the release", || {
        witness.memory_info().unwrap().free_bytes == 1000
    });
    assert!(ran.load(Ordering::SeqCst));
}

#[test]
fn a_context_outlives_its_backend_and_moves_between_threads() {
    let context: Box<dyn GpuContext> = open(&backend());
    let context = std::thread::spawn(move || {
        buffer_u32(&*context, &[3]);
        context
    })
    .join()
    .unwrap();
    let copy = kernel(&*context, "biased_copy");
    let (from, to) = (buffer_u32(&*context, &[1]), buffer_u32(&*context, &[0]));
    let args = [from.address.to_le_bytes(), to.address.to_le_bytes()];
    Launch::new(copy, 1, 1, &[&args[0], &args[1]])
        .run(&*context)
        .unwrap();
    assert_eq!(read_u32(&*context, to), [101]);
    // Dropping during unwinding must not panic a second time.
    let unwound = std::thread::spawn(move || {
        let _context = context;
        std::panic::resume_unwind(Box::new(5));
    })
    .join();
    assert_eq!(unwound.unwrap_err().downcast_ref::<i32>(), Some(&5));
}

#[test]
fn opening_and_dropping_many_contexts_returns_everything() {
    let backend = backend();
    let witness = open(&backend);
    for _ in 0..200 {
        let context = open(&backend);
        let buffer = alloc(&*context, 1 << 19);
        context
            .fill(StreamId::DEFAULT, whole(buffer), FillPattern::U8(1))
            .unwrap();
        context.sync(None).unwrap();
        drop(context);
        assert_eq!(witness.memory_info().unwrap().free_bytes, 1 << 20);
    }
    assert_eq!(backend.calls(Operation::Open), 201);
}
