//! A lease from its first second to its last: deadline, renewal, end, and what the end releases.

mod support;

use std::time::Duration;

use gpu_backend_mock::{MockBackend, MockDevice, Operation};
use grafos_std::FabricError;
use grafos_std::error::{BusyFault, ErrorKind, HandleKind};
use grafos_std::gpu::{FillPattern, GpuBuilder, GpuExclusivityClass, GpuSession, LaunchConfig};
use grafos_std::gpu::{KernelArgs, ModuleBundle};
use grafos_std::host;
use grafos_std::lease::LeaseStatus;
use support::{Bench, IMAGE, MIB, eventually, kind_of, launch_double, refused};

#[test]
fn a_fresh_lease_tells_its_times_and_is_active() {
    let bench = Bench::default();
    bench.clock.set_unix_time_secs(5_000);
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    let info = lease.info();
    assert_ne!(info.lease_id, 0);
    assert_eq!(info.lease_id, lease.lease_id());
    assert_eq!(
        (info.created_at_unix_secs, info.expires_at_unix_secs),
        (5_000, 5_060)
    );
    assert_eq!(info.status, LeaseStatus::Active);
    assert_eq!(lease.exclusivity(), GpuExclusivityClass::Shared);
    assert_eq!(lease.backend(), "mock");
    let other = bench.lease();
    assert_ne!(other.lease_id(), lease.lease_id());
    let default_secs = u64::from(GpuBuilder::DEFAULT_LEASE_SECS);
    assert_eq!(other.expires_at_unix_secs(), 5_000 + default_secs);
}

#[test]
fn a_lease_ends_at_its_deadline_and_not_before() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    bench.clock.advance(Duration::from_nanos(59_999_999_999));
    assert_eq!(lease.status(), LeaseStatus::Active);
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(lease.status(), LeaseStatus::Expired);
    assert_eq!(lease.info().status, LeaseStatus::Expired);
}

#[test]
fn zero_seconds_count_as_one() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(0));
    assert_eq!(lease.status(), LeaseStatus::Active);
    bench.advance_secs(1);
    assert_eq!(lease.status(), LeaseStatus::Expired);
}

#[test]
fn renewal_extends_from_the_present_deadline() {
    let bench = Bench::default();
    bench.clock.set_unix_time_secs(1_000);
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    bench.advance_secs(50);
    assert_eq!(lease.renew(30), Ok(()));
    assert_eq!(lease.expires_at_unix_secs(), 1_090);
    bench.advance_secs(39);
    assert_eq!(lease.status(), LeaseStatus::Active);
    bench.advance_secs(1);
    assert_eq!(lease.status(), LeaseStatus::Expired);
}

#[test]
fn renewal_by_nothing_changes_nothing() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    assert_eq!(lease.renew(0), Ok(()));
    assert_eq!(lease.expires_at_unix_secs(), 60);
}

#[test]
fn renewal_keeps_seconds_beyond_32_bits() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    let long = u64::from(u32::MAX) + 7;
    assert_eq!(lease.renew(long), Ok(()));
    assert_eq!(lease.expires_at_unix_secs(), 60 + long);
    bench.advance_secs(59 + long);
    assert_eq!(lease.status(), LeaseStatus::Active);
    bench.advance_secs(1);
    assert_eq!(lease.status(), LeaseStatus::Expired);
}

#[test]
fn renewal_stops_at_the_end_of_time() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    // The monotonic clock counts nanoseconds in 64 bits: 584 years.
    let end_secs = u64::MAX / 1_000_000_000;
    for _ in 0..3 {
        assert_eq!(lease.renew(u64::MAX), Ok(()));
        assert_eq!(lease.expires_at_unix_secs(), end_secs);
    }
    bench.advance_secs(end_secs);
    assert_eq!(lease.status(), LeaseStatus::Active);
}

#[test]
fn a_late_renewal_fails_and_changes_nothing() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    bench.advance_secs(60);
    let expired = FabricError::LeaseExpired {
        lease_id: lease.lease_id(),
    };
    assert_eq!(lease.renew(1_000), Err(expired.clone()));
    assert_eq!(lease.renew(u64::MAX), Err(expired));
    assert_eq!(lease.expires_at_unix_secs(), 60);
    assert_eq!(lease.status(), LeaseStatus::Expired);
}

#[test]
fn wall_clock_jumps_change_nothing() {
    let bench = Bench::default();
    bench.clock.set_unix_time_secs(1_000_000);
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    let session = GpuSession::new(&lease);
    for unix_secs in [1_003_600, 996_400, 0, u64::MAX] {
        bench.clock.set_unix_time_secs(unix_secs);
        assert_eq!(
            lease.status(),
            LeaseStatus::Active,
            "wall clock at {unix_secs}"
        );
        assert_eq!(lease.expires_at_unix_secs(), 1_000_060);
        assert!(session.mem_alloc(16).is_ok());
    }
    bench.clock.set_unix_time_secs(1_000_000);
    bench.advance_secs(59);
    assert_eq!(lease.renew(10), Ok(()));
    bench.clock.set_unix_time_secs(0);
    bench.advance_secs(11);
    assert_eq!(lease.status(), LeaseStatus::Expired);
}

#[test]
fn free_ends_a_lease_and_twice_is_harmless() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    session.mem_alloc(16).unwrap();
    lease.free();
    lease.free();
    assert_eq!(lease.status(), LeaseStatus::Expired);
    assert_eq!(kind_of(lease.renew(5)), ErrorKind::LeaseExpired);
    assert_eq!(kind_of(session.mem_alloc(16)), ErrorKind::LeaseExpired);
    assert_eq!(bench.backend.calls(Operation::Close), 1);
}

#[test]
fn a_dropped_lease_ends_its_sessions() {
    let bench = Bench::default();
    let lease = bench.lease();
    let lease_id = lease.lease_id();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16).unwrap();
    drop(lease);
    let expired = FabricError::LeaseExpired { lease_id };
    assert_eq!(refused(session.mem_read(&buffer, 0, 16)), expired);
    assert_eq!(session.lease_id(), lease_id);
}

#[test]
fn every_call_after_the_end_says_that_the_lease_expired() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(60));
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(64).unwrap();
    let module = session.module_load(IMAGE).unwrap();
    let kernel = session.kernel(&module, "double").unwrap();
    let stream = session.create_stream().unwrap();
    let event = session.create_event().unwrap();
    let args = KernelArgs::new().push_buffer(&buffer);
    let one = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    bench.advance_secs(60);
    let bundle = ModuleBundle::new().with_image(IMAGE);
    let answers = [
        session.mem_alloc(1).map(drop),
        session.mem_alloc(0).map(drop),
        session.mem_write(&buffer, 0, &[1]),
        session.mem_write(&buffer, 0, &[]),
        session.mem_read(&buffer, 0, 1).map(drop),
        session.mem_read_into(&buffer, 0, &mut [0]),
        session.mem_copy((&buffer, 0), (&buffer, 32), 32),
        session.mem_fill(&buffer, 0, 64, FillPattern::U8(1)),
        session.mem_info().map(drop),
        session.mem_trim().map(drop),
        session.module_load(IMAGE).map(drop),
        session.module_load_bundle(&bundle).map(drop),
        session.kernel(&module, "double").map(drop),
        session.kernel_names(&module).map(drop),
        session.module_global(&module, "table").map(drop),
        session.launch_with_args(&module, "double", [1; 3], [1; 3], args.clone()),
        kernel.launch(one, &args),
        stream.launch(&kernel, one, &args),
        stream.mem_write(&buffer, 0, &[1]),
        stream.mem_read_into(&buffer, 0, &mut [0]),
        stream.mem_copy((&buffer, 0), (&buffer, 32), 32),
        stream.mem_fill(&buffer, 0, 64, FillPattern::U8(1)),
        stream.record(&event),
        stream.wait(&event),
        stream.sync(),
        stream.sync_timeout(Duration::ZERO),
        session.create_stream().map(drop),
        session.create_event().map(drop),
        session.record(&event),
        session.wait(&event),
        session.sync(),
        session.sync_timeout(Duration::ZERO),
        session.poll().map(drop),
        session.with_native(None, &[&buffer], |_| {}),
        event.status().map(drop),
        event.sync(),
        event.sync_timeout(Duration::ZERO),
        event.elapsed_ns_since(&event).map(drop),
        session.mem_free(buffer),
        session.module_unload(module),
    ];
    let expired = FabricError::LeaseExpired {
        lease_id: lease.lease_id(),
    };
    for (position, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(expired.clone()), "call {position}");
    }
}

#[test]
fn drops_after_the_end_are_silent_and_make_no_call() {
    let bench = Bench::default();
    let lease = bench.acquire(GpuBuilder::new().lease_secs(5));
    let session = GpuSession::new(&lease);
    let handles = (
        session.mem_alloc(16).unwrap(),
        session.mem_alloc(0).unwrap(),
        session.module_load(IMAGE).unwrap(),
        session.create_stream().unwrap(),
        session.create_event().unwrap(),
    );
    bench.advance_secs(5);
    drop(handles);
    drop(session);
    drop(lease);
    for operation in [
        Operation::Free,
        Operation::UnloadModule,
        Operation::DestroyStream,
        Operation::DestroyEvent,
    ] {
        assert_eq!(bench.backend.calls(operation), 0, "{operation:?}");
    }
    assert_eq!(bench.backend.calls(Operation::Close), 1);
}

#[test]
fn an_expired_lease_makes_room_without_being_asked() {
    let bench = Bench::with_memory(16 * MIB);
    let first = bench.acquire(GpuBuilder::new().min_vram(16 * MIB).lease_secs(60));
    let buffer = GpuSession::new(&first).mem_alloc(16 * MIB).unwrap();
    let refusal = bench.refusal(GpuBuilder::new().min_vram(1));
    assert_eq!(refusal.kind(), ErrorKind::CapacityExceeded);
    bench.advance_secs(60);
    // Nobody has touched the first lease since.
    let second = bench.acquire(GpuBuilder::new().min_vram(16 * MIB));
    let session = GpuSession::new(&second);
    assert!(session.mem_alloc(16 * MIB).is_ok());
    drop(buffer);
    assert_eq!(first.status(), LeaseStatus::Expired);
    assert_eq!(second.status(), LeaseStatus::Active);
}

#[test]
fn a_device_is_offered_again_only_when_its_work_has_ended() {
    let bench = Bench::with_memory(16 * MIB);
    let exclusive = || {
        GpuBuilder::new()
            .exclusivity(GpuExclusivityClass::DeviceExclusive)
            .min_vram(16 * MIB)
    };
    let lease = bench.acquire(exclusive().lease_secs(60));
    let lease_id = lease.lease_id();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16 * MIB).unwrap();
    let gate = bench.backend.faults().hang(Operation::Launch, 1);
    launch_double(&session, &buffer, 4);
    assert!(gate.wait_until_reached(Duration::from_secs(60)));
    drop((buffer, session));
    bench.advance_secs(60);
    // The end does not wait for the work, and the device is not given away under it.
    assert_eq!(lease.status(), LeaseStatus::Expired);
    for _ in 0..3 {
        match bench.refusal(exclusive()) {
            FabricError::DeviceBusy(BusyFault {
                holder_lease_id,
                holder_class,
                ..
            }) => {
                assert_eq!(
                    (holder_lease_id, holder_class),
                    (lease_id, "device-exclusive")
                );
            }
            other => panic!("{other:?}"),
        }
    }
    drop(lease);
    assert_eq!(bench.refusal(exclusive()).kind(), ErrorKind::Busy);
    gate.open();
    let mut next = None;
    eventually("the drained device is offered again", || {
        next = exclusive().acquire_on(&bench.host).ok();
        next.is_some()
    });
    let session = GpuSession::new(next.as_ref().unwrap());
    assert!(session.mem_alloc(16 * MIB).is_ok());
}

#[test]
fn a_lease_without_work_is_offered_again_at_once() {
    let bench = Bench::default();
    for _ in 0..100 {
        let class = GpuExclusivityClass::DeviceExclusive;
        let lease = bench.acquire(GpuBuilder::new().exclusivity(class));
        GpuSession::new(&lease).mem_alloc(1).unwrap();
    }
    assert_eq!(bench.backend.calls(Operation::Close), 100);
}

#[test]
fn the_device_is_opened_by_the_first_call_and_once() {
    let bench = Bench::default();
    let lease = bench.lease();
    let (first, second) = (GpuSession::new(&lease), GpuSession::new(&lease));
    assert_eq!(bench.backend.calls(Operation::Open), 0);
    let buffer = first.mem_alloc(4).unwrap();
    second.mem_write(&buffer, 0, &[1, 2, 3, 4]).unwrap();
    assert_eq!(first.mem_read(&buffer, 1, 2), Ok(vec![2, 3]));
    assert_eq!(bench.backend.calls(Operation::Open), 1);
    drop((first, second));
    let third = GpuSession::new(&lease);
    assert_eq!(third.mem_read(&buffer, 3, 1), Ok(vec![4]));
    assert_eq!(bench.backend.calls(Operation::Open), 1);
}

// Leases by their id, on the calling thread's own host.

#[test]
fn a_lease_is_known_by_its_id_after_its_end() {
    host::reset_mock();
    let lease = GpuBuilder::new().acquire().unwrap();
    let id = lease.lease_id();
    assert_eq!(host::gpu_lease_query(id), Ok(0));
    lease.free();
    assert_eq!(host::gpu_lease_query(id), Ok(1));
    drop(lease);
    assert_eq!(host::gpu_lease_query(id), Ok(1));
    assert_eq!(host::gpu_lease_free(id), Ok(()));
    assert_eq!(
        host::gpu_lease_renew(id, 1),
        Err(FabricError::LeaseExpired { lease_id: id })
    );
    assert_eq!(
        kind_of(host::gpu_session_mem_alloc(id, 16)),
        ErrorKind::LeaseExpired,
        "the id of an ended lease is not the id of nothing"
    );
}

#[test]
fn an_id_that_was_never_given_out_is_no_lease() {
    host::reset_mock();
    let id = u128::from(u64::MAX) << 3;
    let answers = [
        host::gpu_lease_query(id).map(drop),
        host::gpu_lease_free(id),
        host::gpu_lease_renew(id, 5),
        host::gpu_session_mem_alloc(id, 5).map(drop),
        host::gpu_session_sync(id),
    ];
    for answer in answers {
        match answer {
            Err(FabricError::InvalidHandle(fault)) => assert_eq!(fault.kind, HandleKind::Lease),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lease_by_id_lives_until_it_is_freed_or_expires() {
    host::reset_mock_with(
        MockBackend::builder()
            .device(MockDevice::new().memory_bytes(MIB))
            .device(MockDevice::new().memory_bytes(2 * MIB))
            .build(),
    );
    let any = host::gpu_lease_alloc(0, 60).unwrap();
    let second = host::gpu_lease_alloc(2, 60).unwrap();
    assert_eq!(
        kind_of(host::gpu_lease_alloc(3, 60)),
        ErrorKind::Unsupported
    );
    assert!(host::gpu_session_mem_alloc(second, 2 * MIB).is_ok());
    assert_eq!(
        (host::gpu_lease_query(any), host::gpu_lease_query(second)),
        (Ok(0), Ok(0))
    );
    assert_eq!(host::gpu_lease_free(any), Ok(()));
    assert_eq!(
        (host::gpu_lease_query(any), host::gpu_lease_query(second)),
        (Ok(1), Ok(0))
    );
    assert_eq!(host::gpu_lease_renew(second, 60), Ok(()));
    host::mock_advance_time_secs(119);
    assert_eq!(host::gpu_lease_query(second), Ok(0));
    host::mock_advance_time_secs(1);
    assert_eq!(host::gpu_lease_query(second), Ok(1));
}

#[test]
fn the_wall_clock_that_the_host_shows_is_the_one_that_was_set() {
    host::reset_mock();
    host::mock_set_unix_time_secs(5_000);
    assert_eq!(host::unix_time_secs(), 5_000);
    host::mock_advance_time_secs(7);
    assert_eq!(host::unix_time_secs(), 5_007);
    let lease = GpuBuilder::new().lease_secs(3).acquire().unwrap();
    assert_eq!(
        (lease.created_at_unix_secs(), lease.expires_at_unix_secs()),
        (5_007, 5_010)
    );
}
