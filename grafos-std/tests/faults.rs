//! What goes wrong below the host: lost devices, exhausted memory, failing drivers, panics above.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpu_backend_mock::{MockDevice, Operation};
use grafos_host_abi::{DriverFault, GpuError};
use grafos_std::FabricError;
use grafos_std::affinity::{Affinity, Strength, Target};
use grafos_std::error::{CapacityFault, ErrorKind, LostFault};
use grafos_std::gpu::{FillPattern, GpuBuilder, GpuSession, KernelArgs, LaunchConfig};
use grafos_std::host::Host;
use support::{Bench, IMAGE, MIB, eventually, kind_of, launch_double, refused};

fn two_devices() -> Bench {
    Bench::new([
        MockDevice::new().name("Alpha").memory_bytes(16 * MIB),
        MockDevice::new().name("Beta").memory_bytes(16 * MIB),
    ])
}

fn on(device: &str) -> GpuBuilder {
    let target = Target::Device(device.into());
    GpuBuilder::new().affinity(Affinity::toward(Strength::Required, target))
}

#[track_caller]
fn loss(error: FabricError) -> LostFault {
    match error {
        FabricError::DeviceLost(fault) => fault,
        other => panic!("{other:?}"),
    }
}

fn driver_fault() -> DriverFault {
    DriverFault {
        api: "mock",
        entry_point: "mockCall",
        code: -7,
        code_name: "MOCK_ERROR_ODD".into(),
        detail: String::from("requested 64 bytes"),
    }
}

// A lost device.

#[test]
fn a_wild_kernel_loses_its_device_for_its_lease_alone() {
    let bench = two_devices();
    let (alpha, beta) = (bench.acquire(on("Alpha")), bench.acquire(on("Beta")));
    let beside = bench.acquire(on("Alpha"));
    let session = GpuSession::new(&alpha);
    let buffer = session.mem_alloc(16).unwrap();
    let module = session.module_load(IMAGE).unwrap();
    session
        .launch(&module, "wild", [1; 3], [1; 3], &[], &[])
        .unwrap();
    let first = loss(refused(session.sync()));
    assert!(first.reason.contains("kernel \"wild\""), "{}", first.reason);
    assert!(first.reason.contains("0x10"), "{}", first.reason);
    assert!(!first.needs_process_restart);
    // Latched: every later call tells the first cause.
    let lost = FabricError::DeviceLost(first);
    let answers = [
        session.mem_alloc(16).map(drop),
        session.mem_write(&buffer, 0, &[0; 16]),
        session.mem_read(&buffer, 0, 16).map(drop),
        session.mem_fill(&buffer, 0, 16, FillPattern::U8(1)),
        session.mem_info().map(drop),
        session.module_load(IMAGE).map(drop),
        session.kernel(&module, "double").map(drop),
        session.launch(&module, "wild", [1; 3], [1; 3], &[], &[]),
        session.create_stream().map(drop),
        session.create_event().map(drop),
        session.sync(),
        session.sync_timeout(Duration::ZERO),
        session.poll().map(drop),
    ];
    for (position, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(lost.clone()), "call {position}");
    }
    assert!(
        lost.to_string().ends_with("a new lease opens it again"),
        "{lost}"
    );
    drop((buffer, module));
    // Other leases go on, on this device and the other.
    for other in [&beside, &beta] {
        let session = GpuSession::new(other);
        let buffer = session.mem_alloc(4).unwrap();
        session.mem_write(&buffer, 0, &[1, 0, 0, 0]).unwrap();
        launch_double(&session, &buffer, 1);
        assert_eq!(session.mem_read(&buffer, 0, 4), Ok(vec![2, 0, 0, 0]));
    }
    // So does a new lease, with all of the memory.
    drop((session, alpha, beside));
    let next = bench.acquire(on("Alpha").min_vram(16 * MIB));
    GpuSession::new(&next).mem_alloc(16 * MIB).unwrap();
}

#[test]
fn with_sync_launch_the_launch_itself_fails_and_is_named() {
    let bench = Bench::default();
    let host = Host::builder()
        .backend(Arc::new(bench.backend.clone()))
        .software_devices(true)
        .sync_launch(true)
        .build();
    let lease = GpuBuilder::new().acquire_on(&host).unwrap();
    let session = GpuSession::new(&lease);
    let module = session.module_load(IMAGE).unwrap();
    let buffer = session.mem_alloc(4).unwrap();
    session.mem_write(&buffer, 0, &[3, 0, 0, 0]).unwrap();
    let args = KernelArgs::new().push_buffer(&buffer);
    session
        .launch_with_args(&module, "double", [1; 3], [1; 3], args)
        .unwrap();
    // The launch has waited for its end.
    assert_eq!(session.poll(), Ok(true));
    let fault = loss(refused(session.launch(
        &module,
        "wild",
        [1; 3],
        [1; 3],
        &[],
        &[],
    )));
    assert!(
        fault.reason.starts_with("launch of kernel \"wild\": "),
        "{}",
        fault.reason
    );
    assert_eq!(loss(refused(session.sync())), fault);
}

#[test]
fn a_device_lost_for_the_process_says_so_to_every_lease() {
    let bench = two_devices();
    let (first, second) = (bench.acquire(on("Alpha")), bench.acquire(on("Alpha")));
    let (of_first, of_second) = (GpuSession::new(&first), GpuSession::new(&second));
    of_first.mem_alloc(16).unwrap();
    let kept = of_second.mem_alloc(16).unwrap();
    bench
        .backend
        .faults()
        .lose_device(Operation::Write, 1, "bus error", true);
    let fault = loss(refused(of_second.mem_write(&kept, 0, &[1])));
    assert_eq!(
        fault,
        LostFault {
            reason: String::from("bus error"),
            needs_process_restart: true
        }
    );
    assert_eq!(loss(refused(of_first.sync())), fault);
    // A lease that had not opened the device yet, and one that comes after.
    let text = refused(of_first.mem_alloc(16)).to_string();
    assert!(text.contains("the process must restart"), "{text}");
    assert_eq!(loss(bench.refusal(on("Alpha"))), fault);
    let other = bench.acquire(GpuBuilder::new());
    assert_eq!(other.device().name, "Beta");
    assert!(GpuSession::new(&other).mem_alloc(16).is_ok());
}

#[test]
fn a_lease_that_opens_a_device_lost_meanwhile_learns_it() {
    let bench = two_devices();
    let (first, second) = (bench.acquire(on("Alpha")), bench.acquire(on("Alpha")));
    let of_first = GpuSession::new(&first);
    bench
        .backend
        .faults()
        .lose_device(Operation::Alloc, 1, "gone", true);
    let fault = loss(refused(of_first.mem_alloc(16)));
    assert_eq!(loss(refused(GpuSession::new(&second).mem_alloc(16))), fault);
    assert_eq!(
        bench.backend.calls(Operation::Open),
        1,
        "a lost device is not opened again"
    );
}

#[test]
fn all_waiters_wake_when_the_device_is_lost() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16).unwrap();
    let stream = session.create_stream().unwrap();
    let event = session.create_event().unwrap();
    let gate = bench.backend.faults().hang(Operation::Launch, 1);
    let module = session.module_load(IMAGE).unwrap();
    let kernel = session.kernel(&module, "double").unwrap();
    let args = KernelArgs::new().push_buffer(&buffer);
    let one = LaunchConfig::new([1; 3], [1; 3]);
    stream.launch(&kernel, one, &args).unwrap();
    stream.record(&event).unwrap();
    assert!(gate.wait_until_reached(Duration::from_secs(60)));
    let waits = [
        Operation::Sync,
        Operation::SyncStream,
        Operation::SyncEvent,
        Operation::Read,
    ];
    let before = waits.map(|operation| bench.backend.calls(operation));
    thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| session.sync()),
            scope.spawn(|| stream.sync()),
            scope.spawn(|| event.sync()),
            scope.spawn(|| stream.mem_read_into(&buffer, 0, &mut [0; 16])),
        ];
        eventually("all waiters have called the backend", || {
            waits
                .iter()
                .zip(before)
                .all(|(wait, before)| bench.backend.calls(*wait) > before)
        });
        bench
            .backend
            .faults()
            .lose_device_now(0, "cable pulled", false);
        for waiter in waiters {
            let fault = loss(refused(waiter.join().unwrap()));
            assert_eq!(fault.reason, "cable pulled");
        }
    });
    // The hung launch lets nobody wait: neither the drops nor the lease's end.
    drop((stream, event, buffer, module, session));
    drop(lease);
    assert!(GpuSession::new(&bench.lease()).mem_alloc(16).is_ok());
    gate.open();
}

// Failures that leave the device alive.

#[test]
fn a_driver_failure_keeps_its_words_and_the_session() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(64).unwrap();
    let fault = driver_fault();
    bench
        .backend
        .faults()
        .fail(Operation::Write, 1, GpuError::Driver(fault.clone()));
    let error = refused(session.mem_write(&buffer, 0, &[1; 64]));
    assert_eq!(error, FabricError::GpuSessionFailed(fault));
    assert_eq!(error.kind(), ErrorKind::Driver);
    assert_eq!(
        error.to_string(),
        "gpu session failed: mock: mockCall: MOCK_ERROR_ODD (-7): requested 64 bytes"
    );
    assert_eq!(session.mem_write(&buffer, 0, &[1; 64]), Ok(()));
    assert_eq!(session.mem_read(&buffer, 63, 1), Ok(vec![1]));
}

#[test]
fn memory_that_the_driver_refuses_is_not_counted() {
    let bench = Bench::with_memory(16 * MIB);
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let kept = session.mem_alloc(MIB).unwrap();
    let before = session.mem_info().unwrap();
    let fault = CapacityFault {
        resource: "device memory",
        requested: 2 * MIB,
        available: Some(MIB),
        unit: "bytes",
        cause: Some(Box::new(driver_fault())),
    };
    for _ in 0..100 {
        // The driver is asked once more before the caller is told.
        for nth in 1..=2 {
            let error = GpuError::OutOfMemory(fault.clone());
            bench.backend.faults().fail(Operation::Alloc, nth, error);
        }
        assert_eq!(
            session.mem_alloc(2 * MIB),
            Err(FabricError::CapacityExceeded(fault.clone()))
        );
    }
    assert_eq!(session.mem_info().unwrap(), before);
    let rest = session.mem_alloc(15 * MIB).unwrap();
    assert_eq!(kind_of(session.mem_alloc(1)), ErrorKind::CapacityExceeded);
    drop((kept, rest));
}

#[test]
fn memory_freed_under_running_work_can_be_had_again() {
    let bench = Bench::with_memory(16 * MIB);
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let gate = bench.backend.faults().hang(Operation::Launch, 1);
    let buffer = session.mem_alloc(16 * MIB).unwrap();
    launch_double(&session, &buffer, 4);
    assert!(gate.wait_until_reached(Duration::from_secs(60)));
    drop(buffer);
    let syncs = bench.backend.calls(Operation::Sync);
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            session
                .mem_alloc(16 * MIB)
                .map(|buffer| buffer.size_bytes())
        });
        eventually("the allocation waits for the work", || {
            bench.backend.calls(Operation::Sync) > syncs
        });
        gate.open();
        assert_eq!(next.join().unwrap(), Ok(16 * MIB));
    });
}

#[test]
fn a_device_that_fails_to_open_can_be_opened_by_the_next_call() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    bench
        .backend
        .faults()
        .fail(Operation::Open, 1, GpuError::Driver(driver_fault()));
    assert_eq!(kind_of(session.mem_alloc(16)), ErrorKind::Driver);
    assert!(session.mem_alloc(16).is_ok());
    assert_eq!(bench.backend.calls(Operation::Open), 2);
}

#[test]
fn a_free_that_the_driver_fails_stays_silent_and_is_counted() {
    let bench = Bench::with_memory(16 * MIB);
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    for by_call in [true, false] {
        let buffer = session.mem_alloc(MIB).unwrap();
        bench
            .backend
            .faults()
            .fail(Operation::Free, 1, GpuError::Driver(driver_fault()));
        if by_call {
            assert_eq!(session.mem_free(buffer), Ok(()));
        } else {
            drop(buffer);
        }
    }
    assert_eq!(bench.backend.calls(Operation::Free), 2);
}

#[test]
fn a_failed_module_load_leaves_nothing_behind() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    bench
        .backend
        .faults()
        .fail(Operation::LoadModule, 1, GpuError::Driver(driver_fault()));
    assert_eq!(kind_of(session.module_load(IMAGE)), ErrorKind::Driver);
    assert!(session.module_load(IMAGE).is_ok());
    assert_eq!(bench.backend.calls(Operation::UnloadModule), 1);
}

// Panics above.

#[test]
fn unwinding_frees_what_was_held() {
    let bench = Bench::default();
    let lease = bench.lease();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let session = GpuSession::new(&lease);
        let _buffers = [
            session.mem_alloc(16).unwrap(),
            session.mem_alloc(0).unwrap(),
        ];
        let _module = session.module_load(IMAGE).unwrap();
        let _stream = session.create_stream().unwrap();
        let _event = session.create_event().unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert_eq!(
        unwound.unwrap_err().downcast_ref::<&str>(),
        Some(&"on purpose")
    );
    for operation in [
        Operation::Free,
        Operation::UnloadModule,
        Operation::DestroyStream,
        Operation::DestroyEvent,
    ] {
        assert_eq!(bench.backend.calls(operation), 1, "{operation:?}");
    }
    assert_eq!(GpuSession::new(&lease).mem_info().unwrap().live_buffers, 0);
}

#[test]
fn unwinding_over_a_lost_device_and_an_ended_lease_is_silent() {
    for ends in [false, true] {
        let bench = Bench::default();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let lease = bench.lease();
            let session = GpuSession::new(&lease);
            let _buffer = session.mem_alloc(16).unwrap();
            let _module = session.module_load(IMAGE).unwrap();
            if ends {
                lease.free();
            } else {
                bench.backend.faults().lose_device_now(0, "gone", false);
            }
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert_eq!(
            unwound.unwrap_err().downcast_ref::<&str>(),
            Some(&"on purpose")
        );
    }
}
