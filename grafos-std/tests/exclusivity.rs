//! Who may stand beside whom on a card, and whose work waits.

mod support;

use std::time::Duration;

use gpu_backend_mock::{MockDevice, Operation};
use grafos_std::FabricError;
use grafos_std::error::{BusyFault, ErrorKind};
use grafos_std::gpu::{GpuBuilder, GpuExclusivityClass, GpuLease, GpuSession};
use support::{Bench, MIB, eventually, launch_double, refused};

use GpuExclusivityClass::{DeviceExclusive, PartitionExclusive, SessionExclusive, Shared};

fn of(class: GpuExclusivityClass) -> GpuBuilder {
    GpuBuilder::new().exclusivity(class)
}

#[track_caller]
fn assert_busy(error: FabricError, holder: &GpuLease) {
    match error {
        FabricError::DeviceBusy(BusyFault {
            device,
            holder_lease_id,
            holder_class,
            ..
        }) => {
            assert_eq!(holder_lease_id, holder.lease_id());
            assert_eq!(holder_class, holder.exclusivity().to_string());
            assert_eq!(device, holder.device().name);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_matrix_of_classes_holds_on_a_partition() {
    let classes = [
        Shared,
        SessionExclusive,
        DeviceExclusive,
        PartitionExclusive,
    ];
    for first in classes {
        for second in classes {
            let bench = Bench::new([MockDevice::new().hardware_partition(true)]);
            let holder = bench.acquire(of(first));
            let answer = of(second).acquire_on(&bench.host);
            let beside = first == second && matches!(first, Shared | SessionExclusive);
            match answer {
                Ok(lease) => {
                    assert!(beside, "{second} was let in beside {first}");
                    assert_eq!(lease.exclusivity(), second);
                }
                Err(error) => {
                    assert!(!beside, "{second} was not let in beside {first}: {error}");
                    assert_busy(error, &holder);
                    drop(holder);
                    assert_eq!(bench.acquire(of(second)).exclusivity(), second);
                }
            }
        }
    }
}

#[test]
fn a_class_that_the_device_does_not_have_is_refused_not_weakened() {
    let bench = Bench::default();
    match bench.refusal(of(PartitionExclusive)) {
        FabricError::Unsupported(fault) => {
            assert!(fault.what.contains("partition-exclusive"), "{}", fault.what);
            assert!(
                fault.reason.contains("not a hardware partition"),
                "{}",
                fault.reason
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_busy_error_says_what_was_asked_for_and_who_holds() {
    let bench = Bench::default();
    let holder = bench.acquire(of(DeviceExclusive));
    let text = bench.refusal(of(Shared)).to_string();
    let id = format!("{:#034x}", holder.lease_id());
    for part in [
        id.as_str(),
        "device-exclusive",
        "shared",
        "Grafos software GPU",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn an_expired_exclusive_lease_excludes_nobody() {
    let bench = Bench::default();
    let first = bench.acquire(of(DeviceExclusive).lease_secs(10));
    assert_busy(bench.refusal(of(DeviceExclusive)), &first);
    bench.advance_secs(10);
    let second = bench.acquire(of(DeviceExclusive).lease_secs(10));
    assert_ne!(second.lease_id(), first.lease_id());
}

// Exclusive for the life of a session.

#[test]
fn work_of_others_is_refused_while_the_session_lives() {
    let bench = Bench::default();
    let (first, second) = (
        bench.acquire(of(SessionExclusive)),
        bench.acquire(of(SessionExclusive)),
    );
    let of_first = GpuSession::new(&first);
    let of_second = GpuSession::new(&second);
    // Who works first has the card.
    let buffer = of_first.mem_alloc(16).unwrap();
    assert_busy(refused(of_second.mem_alloc(16)), &first);
    assert_busy(refused(of_second.sync()), &first);
    assert!(of_first.mem_write(&buffer, 0, &[1; 16]).is_ok());
    drop(of_first);
    let other = of_second.mem_alloc(16).unwrap();
    let again = GpuSession::new(&first);
    assert_busy(refused(again.mem_read(&buffer, 0, 16)), &second);
    drop((other, of_second));
    assert_eq!(again.mem_read(&buffer, 0, 16), Ok(vec![1; 16]));
}

#[test]
fn a_session_that_has_not_worked_excludes_nobody() {
    let bench = Bench::default();
    let (first, second) = (
        bench.acquire(of(SessionExclusive)),
        bench.acquire(of(SessionExclusive)),
    );
    let _idle = GpuSession::new(&first);
    assert!(GpuSession::new(&second).mem_alloc(16).is_ok());
}

#[test]
fn all_sessions_of_the_lease_have_the_card_together() {
    let bench = Bench::default();
    let (first, second) = (
        bench.acquire(of(SessionExclusive)),
        bench.acquire(of(SessionExclusive)),
    );
    let (one, two) = (GpuSession::new(&first), GpuSession::new(&first));
    one.mem_alloc(16).unwrap();
    two.mem_alloc(16).unwrap();
    let other = GpuSession::new(&second);
    drop(one);
    assert_busy(refused(other.mem_alloc(16)), &first);
    drop(two);
    assert!(other.mem_alloc(16).is_ok());
}

#[test]
fn the_end_of_the_lease_frees_the_card() {
    let bench = Bench::default();
    let (first, second) = (
        bench.acquire(of(SessionExclusive)),
        bench.acquire(of(SessionExclusive)),
    );
    let (of_first, of_second) = (GpuSession::new(&first), GpuSession::new(&second));
    of_first.mem_alloc(16).unwrap();
    assert_busy(refused(of_second.mem_alloc(16)), &first);
    first.free();
    assert!(of_second.mem_alloc(16).is_ok());
    drop(of_first);
    assert!(of_second.mem_alloc(16).is_ok());
}

#[test]
fn the_deadline_of_the_lease_frees_the_card_without_being_asked() {
    let bench = Bench::default();
    let first = bench.acquire(of(SessionExclusive).lease_secs(10));
    let second = bench.acquire(of(SessionExclusive).lease_secs(20));
    let (of_first, of_second) = (GpuSession::new(&first), GpuSession::new(&second));
    of_first.mem_alloc(16).unwrap();
    assert_busy(refused(of_second.mem_alloc(16)), &first);
    bench.advance_secs(10);
    // Nobody has touched the first lease since.
    assert!(of_second.mem_alloc(16).is_ok());
}

#[test]
fn work_that_still_runs_keeps_the_card_from_the_next_session() {
    let bench = Bench::with_memory(16 * MIB);
    let (first, second) = (
        bench.acquire(of(SessionExclusive)),
        bench.acquire(of(SessionExclusive)),
    );
    let of_first = GpuSession::new(&first);
    let buffer = of_first.mem_alloc(16).unwrap();
    let gate = bench.backend.faults().hang(Operation::Launch, 1);
    launch_double(&of_first, &buffer, 4);
    assert!(gate.wait_until_reached(Duration::from_secs(60)));
    drop(of_first);
    let of_second = GpuSession::new(&second);
    assert_busy(refused(of_second.mem_alloc(16)), &first);
    gate.open();
    eventually("the card is free when the work has ended", || {
        of_second.mem_alloc(16).is_ok()
    });
}

#[test]
fn a_refused_free_still_uses_the_handle_up() {
    let bench = Bench::default();
    let (first, second) = (
        bench.acquire(of(SessionExclusive)),
        bench.acquire(of(SessionExclusive)),
    );
    let of_first = GpuSession::new(&first);
    let buffer = of_first.mem_alloc(16).unwrap();
    drop(of_first);
    let of_second = GpuSession::new(&second);
    of_second.mem_alloc(16).unwrap();
    let again = GpuSession::new(&first);
    assert_eq!(refused(again.mem_free(buffer)).kind(), ErrorKind::Busy);
    drop(of_second);
    assert_eq!(again.mem_info().unwrap().live_buffers, 0);
}
