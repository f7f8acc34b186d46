//! What a host does with its leases by itself: ends them in time, takes them back, lists them.

mod support;

use std::sync::Arc;

use gpu_backend_mock::{MockBackend, MockDevice, Operation};
use grafos_std::FabricError;
use grafos_std::error::ErrorKind;
use grafos_std::gpu::{GpuBuilder, GpuExclusivityClass, GpuSession};
use grafos_std::host::{self, Host};
use grafos_std::lease::LeaseStatus;
use support::{Bench, MIB, eventually, kind_of, refused};

/// A host whose clock is the system's.
fn host_in_real_time(backend: &MockBackend) -> Host {
    Host::builder()
        .backend(Arc::new(backend.clone()))
        .software_devices(true)
        .build()
}

#[test]
fn a_lease_ends_in_time_with_nobody_calling() {
    let backend = MockBackend::new();
    let host = host_in_real_time(&backend);
    let lease = GpuBuilder::new().lease_secs(1).acquire_on(&host).unwrap();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16).unwrap();
    assert_eq!(host.leases().len(), 1);
    // The context's end is seen at the backend: the test asks neither lease nor host for it.
    eventually("the context is closed", || {
        backend.calls(Operation::Close) == 1
    });
    assert_eq!(lease.status(), LeaseStatus::Expired);
    assert_eq!(
        kind_of(session.mem_read(&buffer, 0, 16)),
        ErrorKind::LeaseExpired
    );
    drop(buffer);
    assert_eq!(backend.calls(Operation::Free), 0);
}

#[test]
fn a_renewed_lease_outlives_the_deadline_that_it_had() {
    let backend = MockBackend::new();
    let host = host_in_real_time(&backend);
    let renewed = GpuBuilder::new().lease_secs(1).acquire_on(&host).unwrap();
    let witness = GpuBuilder::new().lease_secs(1).acquire_on(&host).unwrap();
    renewed.renew(3_600).unwrap();
    GpuSession::new(&renewed).sync().unwrap();
    GpuSession::new(&witness).sync().unwrap();
    // The witness was acquired later, so the renewed one's first deadline has passed as well.
    eventually("the witness ends", || backend.calls(Operation::Close) == 1);
    assert_eq!(witness.status(), LeaseStatus::Expired);
    assert_eq!(renewed.status(), LeaseStatus::Active);
    GpuSession::new(&renewed).sync().unwrap();
}

#[test]
fn leases_end_in_the_order_of_their_deadlines() {
    let backend = MockBackend::new();
    let host = host_in_real_time(&backend);
    // The later deadline is known first: the shorter lease has to wake whoever waits for it.
    let long = GpuBuilder::new()
        .lease_secs(3_600)
        .acquire_on(&host)
        .unwrap();
    let short = GpuBuilder::new().lease_secs(1).acquire_on(&host).unwrap();
    GpuSession::new(&short).sync().unwrap();
    eventually("the short lease ends", || {
        backend.calls(Operation::Close) == 1
    });
    assert_eq!(short.status(), LeaseStatus::Expired);
    assert_eq!(long.status(), LeaseStatus::Active);
}

#[test]
fn a_host_goes_while_its_thread_waits() {
    let backend = MockBackend::new();
    let host = host_in_real_time(&backend);
    let lease = GpuBuilder::new().acquire_on(&host).unwrap();
    GpuSession::new(&lease).sync().unwrap();
    let weak = {
        let backend: Arc<MockBackend> = Arc::new(MockBackend::new());
        let weak = Arc::downgrade(&backend);
        let other = Host::builder()
            .backend(backend)
            .software_devices(true)
            .build();
        drop(GpuBuilder::new().acquire_on(&other).unwrap());
        weak
    };
    eventually("nothing keeps the host", || weak.upgrade().is_none());
    drop((lease, host));
    assert_eq!(backend.calls(Operation::Close), 1);
}

#[test]
fn time_that_a_test_lets_pass_ends_leases() {
    host::reset_mock();
    let lease = GpuBuilder::new().lease_secs(5).acquire().unwrap();
    let session = GpuSession::new(&lease);
    session.mem_alloc(16).unwrap();
    let backend = host::mock_backend();
    host::mock_advance_time_secs(4);
    assert_eq!(backend.calls(Operation::Close), 0);
    host::mock_advance_time_secs(1);
    assert_eq!(backend.calls(Operation::Close), 1);
}

#[test]
fn a_revoked_lease_says_why_and_gives_everything_back() {
    let bench = Bench::with_memory(16 * MIB);
    let lease = bench.acquire(GpuBuilder::new().min_vram(16 * MIB));
    let id = lease.lease_id();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16 * MIB).unwrap();
    bench.host.revoke(id, "maintenance at noon").unwrap();
    assert_eq!(lease.status(), LeaseStatus::Revoked);
    let expected = FabricError::LeaseRevoked {
        lease_id: id,
        reason: String::from("maintenance at noon"),
    };
    assert!(
        expected.to_string().contains("maintenance at noon"),
        "{expected}"
    );
    for answer in [
        session.mem_write(&buffer, 0, &[1]),
        session.sync(),
        lease.renew(10),
        bench.host.revoke(id, "again"),
    ] {
        assert_eq!(refused(answer), expected);
    }
    assert_eq!(bench.backend.calls(Operation::Close), 1);
    // All of the memory is there for the next, while the revoked lease's owner still has it.
    let next = bench.acquire(GpuBuilder::new().min_vram(16 * MIB));
    let _all = GpuSession::new(&next).mem_alloc(16 * MIB).unwrap();
    drop((buffer, session, lease));
    assert_eq!(bench.backend.calls(Operation::Free), 0);
    assert_eq!(
        kind_of(bench.host.revoke(1, "unknown")),
        ErrorKind::InvalidHandle
    );
}

#[test]
fn the_list_shows_who_holds_what() {
    let bench = Bench::new([
        MockDevice::new().name("Alpha").memory_bytes(64 * MIB),
        MockDevice::new().name("Beta").memory_bytes(64 * MIB),
    ]);
    assert_eq!(bench.host.leases(), []);
    let first = bench.acquire(GpuBuilder::new().min_vram(40 * MIB));
    bench.advance_secs(7);
    let second = bench.acquire(
        GpuBuilder::new()
            .min_vram(30 * MIB)
            .exclusivity(GpuExclusivityClass::DeviceExclusive),
    );
    let _kept = GpuSession::new(&second).mem_alloc(5 * MIB).unwrap();
    let listed = bench.host.leases();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].info, first.info());
    assert_eq!(listed[1].info, second.info());
    let rows: Vec<_> = listed
        .iter()
        .map(|lease| {
            let held = (lease.reserved_bytes / MIB, lease.allocated_bytes / MIB);
            (
                lease.device_index,
                lease.device.as_str(),
                lease.class,
                lease.age_secs,
                held,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (0, "Alpha", GpuExclusivityClass::Shared, 7, (40, 0)),
            (1, "Beta", GpuExclusivityClass::DeviceExclusive, 0, (30, 5)),
        ]
    );
    drop(first);
    assert_eq!(bench.host.leases().len(), 1);
}

#[test]
fn an_ended_lease_is_listed_while_its_work_runs() {
    let bench = Bench::default();
    let gate = bench.backend.faults().hang(Operation::Launch, 1);
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16).unwrap();
    support::launch_double(&session, &buffer, 1);
    lease.free();
    let listed = bench.host.leases();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].info.status, LeaseStatus::Expired);
    gate.open();
    eventually("the work ends", || bench.host.leases().is_empty());
}
