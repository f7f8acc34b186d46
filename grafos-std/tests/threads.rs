//! Hosts, leases, sessions and handles across threads.

mod support;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use gpu_backend_mock::Operation;
use grafos_std::FabricError;
use grafos_std::error::{ErrorKind, HandleFault, HandleKind};
use grafos_std::gpu::{
    GpuBuilder, GpuEvent, GpuExclusivityClass, GpuKernel, GpuLease, GpuMemHandle, GpuModule,
    GpuSession, GpuStream, KernelArgs, ModuleBundle,
};
use grafos_std::host::{self, Host, HostBuilder, HostDevice};
use grafos_std::lease::{LeaseInfo, LeaseStatus};
use support::{Bench, IMAGE, MIB, eventually, kind_of, launch_double};

/// Checked by the compiler.
const fn is_send_and_sync<T: Send + Sync>() {}
const _: () = {
    is_send_and_sync::<GpuBuilder>();
    is_send_and_sync::<GpuLease>();
    is_send_and_sync::<GpuSession>();
    is_send_and_sync::<GpuMemHandle>();
    is_send_and_sync::<GpuModule>();
    is_send_and_sync::<GpuKernel>();
    is_send_and_sync::<GpuStream>();
    is_send_and_sync::<GpuEvent>();
    is_send_and_sync::<KernelArgs>();
    is_send_and_sync::<ModuleBundle>();
    is_send_and_sync::<Host>();
    is_send_and_sync::<HostBuilder>();
    is_send_and_sync::<HostDevice>();
    is_send_and_sync::<LeaseInfo>();
    is_send_and_sync::<FabricError>();
};

#[test]
fn each_thread_has_its_own_software_gpu() {
    host::reset_mock();
    let lease = GpuBuilder::new().acquire().unwrap();
    let id = lease.lease_id();
    GpuSession::new(&lease).mem_alloc(16).unwrap();
    let frees = host::test_mock::_gpu_session_mem_free_count();
    assert_eq!(frees, 1);
    thread::spawn(move || {
        host::reset_mock();
        assert_eq!(host::test_mock::_gpu_session_mem_free_count(), 0);
        assert_eq!(kind_of(host::gpu_lease_query(id)), ErrorKind::InvalidHandle);
        host::mock_advance_time_secs(1_000_000);
        let own = GpuBuilder::new().acquire().unwrap();
        let session = GpuSession::new(&own);
        session.mem_alloc(16).unwrap();
        session.mem_alloc(16).unwrap();
        assert_eq!(host::test_mock::_gpu_session_mem_free_count(), 2);
    })
    .join()
    .unwrap();
    assert_eq!(host::test_mock::_gpu_session_mem_free_count(), frees);
    assert_eq!(
        lease.status(),
        LeaseStatus::Active,
        "another thread's clock is another clock"
    );
}

#[test]
fn reset_gives_a_fresh_host_and_leaves_the_old_objects_alive() {
    host::reset_mock();
    host::mock_set_unix_time_secs(77);
    let lease = GpuBuilder::new().acquire().unwrap();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(4).unwrap();
    session.mem_write(&buffer, 0, &[1, 2, 3, 4]).unwrap();
    let old_backend = host::mock_backend();
    host::reset_mock();
    assert_eq!(host::unix_time_secs(), 0);
    assert_eq!(
        kind_of(host::gpu_lease_query(lease.lease_id())),
        ErrorKind::InvalidHandle
    );
    assert_eq!(session.mem_read(&buffer, 0, 4), Ok(vec![1, 2, 3, 4]));
    drop(buffer);
    assert_eq!(old_backend.calls(Operation::Free), 1);
    assert_eq!(host::test_mock::_gpu_session_mem_free_count(), 0);
    assert_eq!(host::mock_backend().calls(Operation::Open), 0);
}

#[test]
fn objects_stay_bound_to_the_host_that_made_them() {
    host::reset_mock();
    let backend = host::mock_backend();
    let lease = GpuBuilder::new().acquire().unwrap();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(4).unwrap();
    let backend_there = thread::spawn(move || {
        host::reset_mock();
        session.mem_write(&buffer, 0, &[9, 8, 7, 6]).unwrap();
        assert_eq!(session.mem_read(&buffer, 0, 4), Ok(vec![9, 8, 7, 6]));
        drop((buffer, session, lease));
        host::mock_backend()
    })
    .join()
    .unwrap();
    let calls = [
        Operation::Alloc,
        Operation::Write,
        Operation::Read,
        Operation::Free,
    ];
    assert_eq!(calls.map(|call| backend.calls(call)), [1; 4]);
    assert_eq!(calls.map(|call| backend_there.calls(call)), [0; 4]);
    assert_eq!(host::test_mock::_gpu_session_mem_free_count(), 1);
}

#[test]
fn many_threads_share_a_session() {
    const THREADS: u8 = 8;
    const ROUNDS: u8 = 40;
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let barrier = Barrier::new(THREADS.into());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (session, barrier) = (&session, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..ROUNDS {
                    let word = u32::from_le_bytes([number, round, 1, 2]);
                    let buffer = session.mem_alloc(64).unwrap();
                    let bytes = word.to_le_bytes().repeat(16);
                    session.mem_write(&buffer, 0, &bytes).unwrap();
                    launch_double(session, &buffer, 16);
                    let doubled = (word * 2).to_le_bytes().repeat(16);
                    assert_eq!(session.mem_read(&buffer, 0, 64).unwrap(), doubled);
                    if round % 2 == 0 {
                        session.mem_free(buffer).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(bench.backend.calls(Operation::Open), 1);
    assert_eq!(session.mem_info().unwrap().live_buffers, 0);
    let frees = u64::from(THREADS) * u64::from(ROUNDS);
    assert_eq!(bench.backend.calls(Operation::Free), frees);
}

#[test]
fn one_of_many_threads_frees_and_the_others_learn_it() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    for _ in 0..50 {
        let buffer = session.mem_alloc(16).unwrap();
        let address = buffer.raw();
        let answers = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (session, clone) = (&session, buffer.clone());
                    scope.spawn(move || session.mem_free(clone))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        let fault = HandleFault {
            kind: HandleKind::Buffer,
            id: address,
        };
        for answer in answers.into_iter().filter(Result::is_err) {
            assert_eq!(answer, Err(FabricError::InvalidHandle(fault)));
        }
        let late = session.mem_read(&buffer, 0, 16);
        assert_eq!(late, Err(FabricError::InvalidHandle(fault)));
    }
    assert_eq!(bench.backend.calls(Operation::Free), 50);
}

#[test]
fn a_free_does_not_wait_for_a_read_that_is_under_way() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(4).unwrap();
    session.mem_write(&buffer, 0, &[5, 6, 7, 8]).unwrap();
    let gate = bench.backend.faults().hang(Operation::Read, 1);
    thread::scope(|scope| {
        let reader = scope.spawn(|| session.mem_read(&buffer, 0, 4));
        assert!(gate.wait_until_reached(Duration::from_secs(60)));
        assert_eq!(session.mem_free(buffer.clone()), Ok(()));
        assert_eq!(
            kind_of(session.mem_read(&buffer, 0, 4)),
            ErrorKind::InvalidHandle
        );
        assert_eq!(
            bench.backend.calls(Operation::Free),
            0,
            "the reader still has the buffer"
        );
        gate.open();
        assert_eq!(reader.join().unwrap(), Ok(vec![5, 6, 7, 8]));
    });
    assert_eq!(bench.backend.calls(Operation::Free), 1);
    assert_eq!(session.mem_info().unwrap().live_buffers, 0);
}

#[test]
fn the_last_clone_frees_on_whatever_thread() {
    let bench = Bench::default();
    let lease = bench.lease();
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16).unwrap();
    let module = session.module_load(IMAGE).unwrap();
    let clones = (buffer.clone(), module.clone());
    drop((buffer, module));
    assert_eq!(bench.backend.calls(Operation::Free), 0);
    assert_eq!(bench.backend.calls(Operation::UnloadModule), 0);
    thread::spawn(move || drop(clones)).join().unwrap();
    assert_eq!(bench.backend.calls(Operation::Free), 1);
    assert_eq!(bench.backend.calls(Operation::UnloadModule), 1);
}

#[test]
fn one_of_many_threads_gets_the_device_alone() {
    let bench = Bench::default();
    for _ in 0..20 {
        let barrier = Barrier::new(6);
        let leases = thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let class = GpuExclusivityClass::DeviceExclusive;
                        GpuBuilder::new().exclusivity(class).acquire_on(&bench.host)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        let winners = leases
            .iter()
            .flatten()
            .map(GpuLease::lease_id)
            .collect::<Vec<_>>();
        assert_eq!(winners.len(), 1);
        for refusal in leases.iter().filter_map(|lease| lease.as_ref().err()) {
            match refusal {
                FabricError::DeviceBusy(fault) => assert_eq!(fault.holder_lease_id, winners[0]),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn reservations_of_many_threads_never_exceed_the_card() {
    let bench = Bench::with_memory(10 * MIB);
    let barrier = Barrier::new(8);
    let leases = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    GpuBuilder::new().min_vram(3 * MIB).acquire_on(&bench.host)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(leases.iter().flatten().count(), 3);
    let refused = leases.into_iter().filter_map(Result::err);
    assert!(
        refused
            .map(|error| error.kind())
            .all(|kind| kind == ErrorKind::CapacityExceeded)
    );
}

#[test]
fn ending_a_lease_under_working_threads_is_clean() {
    for _ in 0..20 {
        let bench = Bench::default();
        let lease = bench.lease();
        let session = GpuSession::new(&lease);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let ended = session
                            .mem_alloc(64)
                            .and_then(|buffer| session.mem_write(&buffer, 0, &[1; 64]));
                        match ended {
                            Ok(()) => {}
                            Err(FabricError::LeaseExpired { lease_id }) => {
                                assert_eq!(lease_id, session.lease_id());
                                return;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            eventually("the threads are at work", || {
                bench.backend.calls(Operation::Alloc) > 20
            });
            lease.free();
        });
        eventually("the share is offered again", || {
            GpuBuilder::new()
                .min_vram(64 * MIB)
                .acquire_on(&bench.host)
                .is_ok()
        });
    }
}
