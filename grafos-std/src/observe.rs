//! Callbacks for what happens to leases, memory, launches and errors.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use grafos_std::gpu::GpuBuilder;
//! use grafos_std::observe::{self, Event};
//!
//! # grafos_std::host::reset_mock();
//! let acquired = Arc::new(AtomicU64::new(0));
//! let count = Arc::clone(&acquired);
//! let subscription = observe::subscribe(move |event| {
//!     if matches!(event, Event::LeaseAcquired { .. }) {
//!         count.fetch_add(1, Ordering::Relaxed);
//!     }
//! });
//! let lease = GpuBuilder::new().acquire()?;
//! assert_eq!(acquired.load(Ordering::Relaxed), 1);
//! drop(subscription);
//! # Ok::<(), grafos_std::FabricError>(())
//! ```

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::FabricError;
use crate::gpu::GpuExclusivityClass;
use crate::lease::LeaseStatus;
use crate::sync::Mutex;

/// Something that happened, in any host of the process.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A lease was granted.
    LeaseAcquired {
        /// The lease.
        lease_id: u128,
        /// The backend of its device.
        backend: &'static str,
        /// The name of its device.
        device: String,
        /// How it shares the device.
        class: GpuExclusivityClass,
    },
    /// A lease's deadline was moved.
    LeaseRenewed {
        /// The lease.
        lease_id: u128,
        /// How much further, in seconds.
        added_secs: u64,
    },
    /// A lease has ended.
    LeaseEnded {
        /// The lease.
        lease_id: u128,
        /// Expired (which a free is as well) or revoked.
        ended_as: LeaseStatus,
    },
    /// The owner has dropped a lease.
    LeaseDropped {
        /// The lease.
        lease_id: u128,
    },
    /// Device memory was counted against a lease, before the device was asked for it.
    Allocated {
        /// The lease.
        lease_id: u128,
        /// How much, in bytes.
        size_bytes: u64,
    },
    /// Device memory was taken off a lease.
    Freed {
        /// The lease.
        lease_id: u128,
        /// How much, in bytes.
        size_bytes: u64,
    },
    /// A kernel was enqueued.
    Launched {
        /// The lease.
        lease_id: u128,
        /// The kernel's name.
        kernel: String,
        /// Blocks, x y z.
        grid_blocks: [u32; 3],
        /// Threads per block, x y z.
        block_threads: [u32; 3],
    },
    /// A backend call failed.
    Failed {
        /// The lease.
        lease_id: u128,
        /// What the caller was told.
        error: FabricError,
    },
}

type Callback = dyn Fn(&Event) + Send + Sync;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
static CALLBACKS: Mutex<Vec<(u64, Arc<Callback>)>> = Mutex::new(Vec::new());

/// Calls back for every event until the subscription is dropped.
///
/// The callback runs on the thread that caused the event, inside the call that caused it: it
/// should be short, and it must not use the session or lease that the event is about.
pub fn subscribe(callback: impl Fn(&Event) + Send + Sync + 'static) -> Subscription {
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let mut callbacks = CALLBACKS.lock();
    callbacks.push((id, Arc::from(Box::new(callback) as Box<Callback>)));
    COUNT.store(callbacks.len(), Ordering::Release);
    Subscription { id }
}

/// Ends a subscription when it is dropped.
#[derive(Debug)]
#[must_use = "dropping the subscription ends it"]
pub struct Subscription {
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut callbacks = CALLBACKS.lock();
        if let Some(position) = callbacks.iter().position(|(id, _)| *id == self.id) {
            let removed = callbacks.swap_remove(position);
            COUNT.store(callbacks.len(), Ordering::Release);
            // What the callback captured is dropped without the lock held.
            drop(callbacks);
            drop(removed);
        }
    }
}

/// Tells the subscribers. Without any, the event is not even made.
pub(crate) fn emit(event: impl FnOnce() -> Event) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let callbacks: Vec<_> = CALLBACKS
        .lock()
        .iter()
        .map(|(_, call)| Arc::clone(call))
        .collect();
    let event = event();
    for callback in callbacks {
        callback(&event);
    }
}
