//! What the callbacks of feature `observe` are told.

mod support;

use std::sync::{Arc, Mutex};

use grafos_std::gpu::{GpuBuilder, GpuExclusivityClass, GpuSession};
use grafos_std::lease::LeaseStatus;
use grafos_std::observe::{self, Event, Subscription};
use support::{Bench, MIB, launch_double, refused};

/// Collects the events of one host's leases, of which each test has its own.
fn collect(lease_ids: &Arc<Mutex<Vec<u128>>>) -> (Arc<Mutex<Vec<Event>>>, Subscription) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (sink, lease_ids) = (Arc::clone(&events), Arc::clone(lease_ids));
    let subscription = observe::subscribe(move |event| {
        if lease_id_of(event).is_some_and(|id| {
            lease_ids
                .lock()
                .expect("no test has panicked")
                .contains(&id)
        }) {
            sink.lock()
                .expect("no test has panicked")
                .push(event.clone());
        }
    });
    (events, subscription)
}

fn lease_id_of(event: &Event) -> Option<u128> {
    match event {
        Event::LeaseAcquired { lease_id, .. }
        | Event::LeaseRenewed { lease_id, .. }
        | Event::LeaseEnded { lease_id, .. }
        | Event::LeaseDropped { lease_id }
        | Event::Allocated { lease_id, .. }
        | Event::Freed { lease_id, .. }
        | Event::Launched { lease_id, .. }
        | Event::Failed { lease_id, .. } => Some(*lease_id),
        _ => None,
    }
}

#[test]
fn a_leases_life_is_told_in_order() {
    let bench = Bench::default();
    let lease = bench.lease();
    let lease_id = lease.lease_id();
    let (events, _subscription) = collect(&Arc::new(Mutex::new(vec![lease_id])));
    let session = GpuSession::new(&lease);
    let buffer = session.mem_alloc(16).unwrap();
    session.mem_alloc(0).unwrap();
    launch_double(&session, &buffer, 2);
    lease.renew(7).unwrap();
    drop(buffer);
    drop(lease);
    let kernel = String::from("double");
    assert_eq!(
        *events.lock().unwrap(),
        [
            Event::Allocated {
                lease_id,
                size_bytes: 16
            },
            Event::Launched {
                lease_id,
                kernel,
                grid_blocks: [2, 1, 1],
                block_threads: [1, 1, 1]
            },
            Event::LeaseRenewed {
                lease_id,
                added_secs: 7
            },
            Event::Freed {
                lease_id,
                size_bytes: 16
            },
            Event::LeaseDropped { lease_id },
            Event::LeaseEnded {
                lease_id,
                ended_as: LeaseStatus::Expired
            },
        ]
    );
}

#[test]
fn an_acquisition_is_told_with_device_and_class() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let subscription = observe::subscribe(move |event| {
        if let Event::LeaseAcquired { .. } = event {
            sink.lock().unwrap().push(event.clone());
        }
    });
    let bench = Bench::default();
    let class = GpuExclusivityClass::DeviceExclusive;
    let lease = bench.acquire(GpuBuilder::new().exclusivity(class));
    drop(subscription);
    let unseen = Bench::default().lease();
    let seen = seen.lock().unwrap();
    let expected = Event::LeaseAcquired {
        lease_id: lease.lease_id(),
        backend: "mock",
        device: String::from("Grafos software GPU"),
        class,
    };
    assert_eq!(seen.iter().filter(|event| **event == expected).count(), 1);
    assert!(
        seen.iter()
            .all(|event| lease_id_of(event) != Some(unseen.lease_id()))
    );
}

#[test]
fn a_refused_allocation_leaves_no_trace_and_a_failed_call_does() {
    let bench = Bench::with_memory(MIB);
    let lease = bench.lease();
    let lease_id = lease.lease_id();
    let (events, _subscription) = collect(&Arc::new(Mutex::new(vec![lease_id])));
    let session = GpuSession::new(&lease);
    refused(session.mem_alloc(MIB + 1));
    assert_eq!(*events.lock().unwrap(), []);
    let error = refused(session.module_load(b""));
    assert_eq!(*events.lock().unwrap(), [Event::Failed { lease_id, error }]);
}

#[test]
fn a_callback_can_use_other_leases() {
    let bench = Arc::new(Bench::default());
    let lease = bench.lease();
    let lease_id = lease.lease_id();
    let told = Arc::new(Mutex::new(0));
    let (count, host) = (Arc::clone(&told), Arc::clone(&bench));
    let subscription = observe::subscribe(move |event| {
        let interesting = matches!(event, Event::Allocated { .. } | Event::Freed { .. });
        if interesting && lease_id_of(event) == Some(lease_id) {
            let other = host.lease();
            GpuSession::new(&other).mem_alloc(16).unwrap();
            *count.lock().unwrap() += 1;
        }
    });
    drop(GpuSession::new(&lease).mem_alloc(16).unwrap());
    assert_eq!(*told.lock().unwrap(), 2);
    drop(subscription);
    drop(GpuSession::new(&lease).mem_alloc(16).unwrap());
    assert_eq!(*told.lock().unwrap(), 2);
}
