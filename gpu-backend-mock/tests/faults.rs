//! Scripted faults, kernels that do what they must not, and devices that are lost.
#![expect(clippy::unwrap_used, reason = "tests, their helpers included")]

mod common;

use common::{LONG, Launch, SHORT, alloc, buffer_u32, kernel, open, read, read_u32, whole};
use gpu_backend_mock::{
    HostKernel, KernelSignature, KernelTrap, MockBackend, MockDevice, Operation,
};
use grafos_host_abi::{
    BufferDesc, ContextOptions, ErrorKind, EventStatus, FillPattern, GpuBackend, GpuContext,
    GpuError, LostFault, Probe, StreamId,
};

fn lost(reason: &str, needs_process_restart: bool) -> GpuError {
    GpuError::DeviceLost(LostFault {
        reason: reason.to_owned(),
        needs_process_restart,
    })
}

#[test]
fn the_scripted_call_fails_and_no_other() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let error = GpuError::NotReady {
        what: "scripted".into(),
    };
    backend.faults().fail(Operation::Alloc, 2, error.clone());
    backend.faults().fail(Operation::Sync, 1, error.clone());
    alloc(&*context, 8);
    assert_eq!(context.alloc(&BufferDesc::new(8)), Err(error.clone()));
    assert_eq!(context.memory_info().unwrap().live_buffers, 1);
    alloc(&*context, 8);
    assert_eq!(context.sync(None), Err(error.clone()));
    assert_eq!(context.sync(None), Ok(()));
    assert_eq!(backend.calls(Operation::Alloc), 3);

    backend.faults().fail(Operation::Open, 1, error.clone());
    let options = ContextOptions::default();
    assert_eq!(backend.open(0, &options).err(), Some(error.clone()));
    backend.faults().fail(Operation::Devices, 1, error.clone());
    assert_eq!(backend.devices(), Err(error.clone()));

    backend.faults().fail(Operation::Launch, 1, error.clone());
    let kernel = kernel(&*context, "k");
    assert_eq!(
        Launch::new(kernel, 1, 1, &[]).run(&*context),
        Err(error.clone())
    );
    assert_eq!(backend.launches(), []);
    backend.faults().fail(Operation::Free, 1, error);
    backend.faults().clear();
    let buffer = alloc(&*context, 8);
    assert_eq!(context.free(buffer.id), Ok(()));
}

#[test]
fn a_lost_context_stays_lost_and_tears_down_in_silence() {
    let backend = MockBackend::new();
    let (context, other) = (open(&backend), open(&backend));
    let buffer = buffer_u32(&*context, &[1]);
    let stream = context.create_stream().unwrap();
    let event = context.create_event().unwrap();
    let module = context.load_module(&[0; 8]).unwrap().id;
    let kernel = kernel(&*context, "k");
    backend
        .faults()
        .lose_device(Operation::Poll, 1, "unplugged", false);
    let gone = lost("unplugged", false);
    assert_eq!(context.poll(), Err(gone.clone()));
    // The first cause stays.
    backend.faults().lose_device_now(0, "again", false);

    let all = whole(buffer);
    assert_eq!(context.alloc(&BufferDesc::new(1)), Err(gone.clone()));
    assert_eq!(context.alloc(&BufferDesc::new(0)), Err(gone.clone()));
    assert_eq!(context.write(stream, all, &[0; 4]), Err(gone.clone()));
    assert_eq!(context.read(stream, all, &mut [0; 4]), Err(gone.clone()));
    assert_eq!(context.copy(stream, all, all), Err(gone.clone()));
    assert_eq!(
        context.fill(stream, all, FillPattern::U8(0)),
        Err(gone.clone())
    );
    assert_eq!(context.memory_info(), Err(gone.clone()));
    assert_eq!(context.trim(), Err(gone.clone()));
    assert_eq!(context.load_module(&[0; 8]), Err(gone.clone()));
    assert_eq!(context.kernel(module, "k"), Err(gone.clone()));
    assert_eq!(context.kernel_names(module), Err(gone.clone()));
    assert_eq!(context.global(module, "g"), Err(gone.clone()));
    assert_eq!(
        Launch::new(kernel, 1, 1, &[]).run(&*context),
        Err(gone.clone())
    );
    assert_eq!(context.create_stream(), Err(gone.clone()));
    assert_eq!(context.create_event(), Err(gone.clone()));
    assert_eq!(context.record_event(event, stream), Err(gone.clone()));
    assert_eq!(context.wait_event(stream, event), Err(gone.clone()));
    assert_eq!(context.query_event(event), Err(gone.clone()));
    assert_eq!(context.sync_event(event, None), Err(gone.clone()));
    assert_eq!(context.elapsed_ns(event, event), Err(gone.clone()));
    assert_eq!(context.sync_stream(stream, None), Err(gone.clone()));
    assert_eq!(context.sync(Some(LONG)), Err(gone.clone()));
    assert_eq!(context.poll(), Err(gone));

    assert_eq!(context.free(buffer.id), Ok(()));
    assert_eq!(context.free(buffer.id), Ok(()));
    assert_eq!(context.unload_module(module), Ok(()));
    assert_eq!(context.destroy_stream(stream), Ok(()));
    assert_eq!(context.destroy_stream(stream), Ok(()));
    assert_eq!(context.destroy_event(event), Ok(()));
    let report = context.close(None).unwrap();
    assert_eq!(
        (report.live_buffers, report.live_streams, report.live_events),
        (0, 0, 0)
    );

    // The other one was open when the whole device went.
    assert_eq!(other.poll(), Err(lost("again", false)));
    assert_eq!(open(&backend).poll(), Ok(true));
}

#[test]
fn a_device_that_needs_a_restart_takes_all_its_contexts_along() {
    let backend = MockBackend::builder()
        .device(MockDevice::new())
        .device(MockDevice::new())
        .build();
    let options = ContextOptions::default();
    let (context, sibling) = (open(&backend), open(&backend));
    let bystander = backend.open(1, &options).unwrap();
    backend
        .faults()
        .lose_device(Operation::Launch, 1, "fell off the bus", true);
    let gone = lost("fell off the bus", true);
    let kernel = kernel(&*context, "k");
    assert_eq!(
        Launch::new(kernel, 1, 1, &[]).run(&*context),
        Err(gone.clone())
    );
    assert_eq!(sibling.poll(), Err(gone.clone()));
    assert_eq!(backend.open(0, &options).err(), Some(gone));
    assert_eq!(bystander.poll(), Ok(true));
    backend.faults().clear();
    assert_eq!(backend.open(0, &options).unwrap().poll(), Ok(true));
    assert!(sibling.poll().is_err());
}

#[test]
fn losing_the_device_wakes_every_waiting_thread() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let context: &dyn GpuContext = &*context;
    let buffer = buffer_u32(context, &[1]);
    let event = context.create_event().unwrap();
    let gate = backend.faults().hang(Operation::Fill, 1);
    context
        .fill(StreamId::DEFAULT, whole(buffer), FillPattern::U8(1))
        .unwrap();
    context.record_event(event, StreamId::DEFAULT).unwrap();
    assert!(gate.wait_until_reached(LONG));
    assert_eq!(context.query_event(event), Ok(EventStatus::Pending));
    std::thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| context.sync(None).unwrap_err()),
            scope.spawn(|| context.sync(Some(LONG)).unwrap_err()),
            scope.spawn(|| context.sync_stream(StreamId::DEFAULT, None).unwrap_err()),
            scope.spawn(|| context.sync_event(event, None).unwrap_err()),
            scope.spawn(|| read(context, buffer).unwrap_err()),
            scope.spawn(|| read(context, buffer).unwrap_err()),
        ];
        // All six have called, so each waits or is about to; none may miss the loss.
        common::eventually("six waits", || {
            let waits = [Operation::Sync, Operation::SyncStream, Operation::SyncEvent];
            let reads = backend.calls(Operation::Read);
            waits.iter().map(|wait| backend.calls(*wait)).sum::<u64>() + reads == 6
        });
        backend.faults().lose_device_now(0, "hung", false);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), lost("hung", false));
        }
    });
    // The work still hangs; nothing waits for it.
    assert_eq!(context.free(buffer.id), Ok(()));
    assert_eq!(context.close(None).map(|report| report.live_events), Ok(1));
    drop(gate);
}

#[test]
fn other_calls_hang_before_they_have_an_effect() {
    let backend = MockBackend::new();
    let context = open(&backend);
    let gate = backend.faults().hang(Operation::Alloc, 1);
    std::thread::scope(|scope| {
        let allocating = scope.spawn(|| alloc(&*context, 8));
        assert!(gate.wait_until_reached(LONG));
        // No lock is held meanwhile.
        assert_eq!(context.memory_info().unwrap().live_buffers, 0);
        alloc(&*context, 8);
        gate.open();
        allocating.join().unwrap();
    });
    assert_eq!(context.memory_info().unwrap().live_buffers, 2);

    let buffer = buffer_u32(&*context, &[5]);
    let gate = backend.faults().hang(Operation::Read, 1);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_u32(&*context, buffer));
        assert!(gate.wait_until_reached(LONG));
        let error = context.sync(Some(SHORT)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        gate.open();
        assert_eq!(reading.join().unwrap(), [5]);
    });
    assert_eq!(context.sync(None), Ok(()));
}

/// Launches a kernel over two blocks of two threads and gives the reason of the loss.
fn reason_of(backend: &MockBackend, context: &dyn GpuContext, name: &str, address: u64) -> String {
    let kernel = kernel(context, name);
    Launch::new(kernel, 2, 2, &[&address.to_le_bytes()])
        .run(context)
        .unwrap();
    let error = context.sync(None).unwrap_err();
    assert_eq!(context.poll(), Err(error.clone()), "the loss is latched");
    assert_eq!(open(backend).poll(), Ok(true), "a new context works");
    match error {
        GpuError::DeviceLost(fault) => {
            assert!(!fault.needs_process_restart);
            fault.reason
        }
        other => panic!("{other}"),
    }
}

/// One thread, block 1 thread 1, stores element 4.
fn stray() -> HostKernel {
    HostKernel::new("stray", KernelSignature::new().buffer(), |scope| {
        let data = scope.buffer::<u32>(0)?;
        scope.for_each_thread(|thread| {
            if thread.global_x() == 3 {
                data.store(4, 1)?;
            }
            Ok(())
        })
    })
}

#[test]
fn a_store_past_the_end_is_explained_down_to_the_thread() {
    let backend = MockBackend::builder().kernel(stray()).build();
    let context = open(&backend);
    let (buffer, bystander) = (alloc(&*context, 16), open(&backend));
    assert_eq!(
        reason_of(&backend, &*context, "stray", buffer.address),
        format!(
            "kernel \"stray\": block (1, 0, 0): thread (1, 0, 0): store of 4 bytes at address \
             {:#x} ends 4 bytes past the end of buffer {:#x} (16 bytes at {:#x})",
            buffer.address + 16,
            buffer.id.0,
            buffer.address
        )
    );
    assert_eq!(bystander.poll(), Ok(true));
}

#[test]
fn addresses_without_live_memory_are_explained() {
    let kernel = || {
        HostKernel::new("touch", KernelSignature::new().buffer(), |scope| {
            scope.buffer::<u32>(0)?.load(0).map(drop)
        })
    };
    let backend = MockBackend::builder()
        .worker_threads(1)
        .kernel(kernel())
        .build();
    let at = "kernel \"touch\": block (0, 0, 0): argument 0: address";

    let context = open(&backend);
    let buffer = alloc(&*context, 16);
    let (id, address) = (buffer.id.0, buffer.address);
    assert_eq!(
        reason_of(&backend, &*context, "touch", address + 2),
        format!(
            "{at} {:#x} is not a multiple of 4, as its elements need",
            address + 2
        )
    );

    let context = open(&backend);
    let buffer = alloc(&*context, 16);
    let past = buffer.address + 20;
    assert_eq!(
        reason_of(&backend, &*context, "touch", past),
        format!(
            "{at} {past:#x} is 4 bytes past the end of buffer {:#x} (16 bytes at {:#x})",
            buffer.id.0, buffer.address
        )
    );

    let context = open(&backend);
    let buffer = alloc(&*context, 16);
    context.free(buffer.id).unwrap();
    let (freed, freed_address) = (buffer.id.0, buffer.address);
    assert_eq!(
        reason_of(&backend, &*context, "touch", freed_address),
        format!(
            "{at} {freed_address:#x} is in buffer {freed:#x} (16 bytes at {freed_address:#x}), \
             which was freed"
        )
    );

    // Another context's live buffer is as far away as no buffer at all.
    let owner = open(&backend);
    let foreign = alloc(&*owner, 16).address;
    let context = open(&backend);
    assert_eq!(
        reason_of(&backend, &*context, "touch", foreign),
        format!("{at} {foreign:#x} is in no memory of this context")
    );
    let context = open(&backend);
    assert_eq!(
        reason_of(&backend, &*context, "touch", 0),
        format!("{at} 0x0 is in no memory of this context")
    );
    assert_ne!(id, freed);
}

#[test]
fn a_panic_or_a_trap_of_its_own_loses_the_device_with_its_text() {
    let panicking = HostKernel::new("panicking", KernelSignature::new().buffer(), |scope| {
        let len = scope.threads();
        let mut tile = scope.shared_mut::<u32>(len)?;
        scope.for_each_thread(|thread| {
            tile[thread.linear_index() * 2] = 1;
            Ok(())
        })
    })
    .static_shared_bytes(8);
    let trapping = HostKernel::new("trapping", KernelSignature::new().buffer(), |scope| {
        if scope.block_index() == [1, 0, 0] {
            return Err(KernelTrap::new("assertion failed: 1 < 0"));
        }
        Ok(())
    });
    let greedy = HostKernel::new("greedy", KernelSignature::new().buffer(), |scope| {
        scope.dynamic_shared_mut::<u8>(1).map(drop)
    });
    let backend = MockBackend::builder()
        .worker_threads(1)
        .kernel(panicking)
        .kernel(trapping)
        .kernel(greedy)
        .build();
    let reason = |name| reason_of(&backend, &*open(&backend), name, 0);
    assert_eq!(
        reason("panicking"),
        "kernel \"panicking\": block (0, 0, 0): the host kernel panicked: index out of bounds: \
         the len is 2 but the index is 2"
    );
    assert_eq!(
        reason("trapping"),
        "kernel \"trapping\": block (1, 0, 0): assertion failed: 1 < 0"
    );
    assert_eq!(
        reason("greedy"),
        "kernel \"greedy\": block (0, 0, 0): dynamic shared memory exhausted: requested 1 \
         elements of 1 bytes, 0 bytes left"
    );
}

#[test]
fn arguments_of_the_wrong_kind_trap() {
    let unknown = KernelSignature::unknown();
    let missing = HostKernel::new("missing", unknown.clone(), |scope| {
        scope.arg::<u32>(1).map(drop)
    });
    let narrow = HostKernel::new("narrow", unknown.clone(), |scope| {
        scope.arg::<u32>(0).map(drop)
    });
    let global = HostKernel::new("global", unknown, |scope| {
        scope.global::<u32>("g").map(drop)
    });
    let backend = MockBackend::builder()
        .worker_threads(1)
        .kernel(missing)
        .kernel(narrow)
        .kernel(global)
        .build();
    let reason = |name| reason_of(&backend, &*open(&backend), name, 0);
    assert!(reason("missing").ends_with("argument 1 does not exist: the launch has 1"));
    assert!(reason("narrow").ends_with("argument 0 has 8 bytes, the kernel reads 4"));
    assert!(reason("global").ends_with("the module has no global variable \"g\""));
}

#[test]
fn a_trap_stops_the_work_behind_it() {
    let backend = MockBackend::builder().kernel(stray()).build();
    let context = open(&backend);
    let (small, kept) = (alloc(&*context, 16), buffer_u32(&*context, &[7]));
    let stray = kernel(&*context, "stray");
    let gate = backend.faults().hang(Operation::Launch, 1);
    let address = small.address.to_le_bytes();
    Launch::new(stray, 2, 2, &[&address])
        .run(&*context)
        .unwrap();
    context
        .fill(StreamId::DEFAULT, whole(kept), FillPattern::U32(9))
        .unwrap();
    drop(gate);
    let error = read(&*context, kept).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert_eq!(context.free(kept.id), Ok(()));
}

#[test]
fn a_backend_can_say_that_it_is_unavailable() {
    let backend = MockBackend::builder()
        .unavailable("libmock.so not found", "install the mock driver")
        .build();
    assert_eq!(
        backend.probe(),
        Probe::Unavailable {
            reason: "libmock.so not found".into(),
            hint: "install the mock driver".into(),
        }
    );
    let unavailable = GpuError::Unavailable {
        backend: "mock",
        reason: "libmock.so not found".into(),
    };
    assert_eq!(backend.devices(), Err(unavailable.clone()));
    let options = ContextOptions::default();
    assert_eq!(backend.open(0, &options).err(), Some(unavailable));
    let available = MockBackend::new();
    assert!(matches!(
        available.probe(),
        Probe::Available {
            device_count: 1,
            ..
        }
    ));
    let error = available.open(1, &options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidHandle);
}
