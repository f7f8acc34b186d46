//! Scripted faults: calls that fail, devices that are lost, work that hangs, all on demand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use grafos_host_abi::{GpuError, LostFault};
use parking_lot::{Condvar, Mutex};

use crate::device::SimulatedDevice;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A call of the backend traits, for counting and for scripting faults.
        #[non_exhaustive]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// All operations, in the order of their declaration.
            pub const ALL: &'static [Operation] = &[$(Operation::$name,)*];
        }
    };
}

operations! {
    /// `GpuBackend::devices`.
    Devices,
    /// `GpuBackend::open`.
    Open,
    /// `GpuContext::alloc`.
    Alloc,
    /// `GpuContext::free`.
    Free,
    /// `GpuContext::write`.
    Write,
    /// `GpuContext::read`.
    Read,
    /// `GpuContext::copy`.
    Copy,
    /// `GpuContext::fill`.
    Fill,
    /// `GpuContext::memory_info`.
    MemoryInfo,
    /// `GpuContext::trim`.
    Trim,
    /// `GpuContext::load_module`.
    LoadModule,
    /// `GpuContext::unload_module`.
    UnloadModule,
    /// `GpuContext::kernel`.
    ResolveKernel,
    /// `GpuContext::kernel_names`.
    KernelNames,
    /// `GpuContext::global`.
    FindGlobal,
    /// `GpuContext::launch`.
    Launch,
    /// `GpuContext::create_stream`.
    CreateStream,
    /// `GpuContext::destroy_stream`.
    DestroyStream,
    /// `GpuContext::sync_stream`.
    SyncStream,
    /// `GpuContext::sync`.
    Sync,
    /// `GpuContext::poll`.
    Poll,
    /// `GpuContext::create_event`.
    CreateEvent,
    /// `GpuContext::destroy_event`.
    DestroyEvent,
    /// `GpuContext::record_event`.
    RecordEvent,
    /// `GpuContext::wait_event`.
    WaitEvent,
    /// `GpuContext::query_event`.
    QueryEvent,
    /// `GpuContext::sync_event`.
    SyncEvent,
    /// `GpuContext::elapsed_ns`.
    ElapsedTime,
    /// `GpuContext::with_native`.
    WithNative,
    /// `GpuContext::close`.
    Close,
}

impl Operation {
    /// Whether the operation enqueues work, so that a gate stops the work and not the call.
    pub(crate) fn is_enqueued(self) -> bool {
        matches!(
            self,
            Self::Write | Self::Read | Self::Copy | Self::Fill | Self::Launch
        )
    }
}

/// The scripted faults of a backend, shared by all its contexts. From
/// [`MockBackend::faults`](crate::MockBackend::faults).
///
/// A script names an operation and counts its calls from the moment the script is added: 1 is the
/// next call. Each script fires once. Several scripts count independently; of those that fire on
/// one call, a hang comes first, then the script that was added first.
#[derive(Debug, Clone)]
pub struct Faults {
    table: Arc<FaultTable>,
    devices: Vec<Arc<SimulatedDevice>>,
}

impl Faults {
    pub(crate) fn new(table: Arc<FaultTable>, devices: Vec<Arc<SimulatedDevice>>) -> Self {
        Self { table, devices }
    }

    /// Makes the `nth` call of an operation, counted from 1, fail with an error and do nothing
    /// else. An `nth` of 0 means the next call, as 1 does.
    pub fn fail(&self, operation: Operation, nth: u64, error: GpuError) {
        self.table.add(operation, nth, Action::Fail(error));
    }

    /// Makes the `nth` call of an operation, counted from 1, lose the device: that call and all
    /// later ones of its context answer `DeviceLost`, and all waiting threads wake.
    ///
    /// With `needs_process_restart`, every context on the device is lost and it cannot be opened
    /// again until [`clear`](Self::clear), which stands for the new process.
    pub fn lose_device(
        &self,
        operation: Operation,
        nth: u64,
        reason: impl Into<String>,
        needs_process_restart: bool,
    ) {
        let fault = LostFault {
            reason: reason.into(),
            needs_process_restart,
        };
        self.table.add(operation, nth, Action::Lose(fault));
    }

    /// Loses a device at once, as if its cable had been pulled: every context on it is lost.
    ///
    /// An index without a device does nothing.
    pub fn lose_device_now(
        &self,
        device_index: u32,
        reason: impl Into<String>,
        needs_process_restart: bool,
    ) {
        let Some(device) = self.devices.get(device_index as usize) else {
            return;
        };
        device.lose(&LostFault {
            reason: reason.into(),
            needs_process_restart,
        });
    }

    /// Makes the `nth` call of an operation, counted from 1, hang until the gate is opened.
    ///
    /// A write, copy, fill or launch is enqueued as usual and does not finish; its stream stands
    /// still, and the call returns. A read hangs in the call, as it waits for its data. Every
    /// other operation hangs in the call, before it has any effect.
    #[must_use = "dropping the gate opens it"]
    pub fn hang(&self, operation: Operation, nth: u64) -> Gate {
        let gate = Gate(Arc::new(GateState::default()));
        self.table
            .add(operation, nth, Action::Hang(Arc::clone(&gate.0)));
        gate
    }

    /// Removes the scripts that have not fired, and lets devices that were lost for this process
    /// be opened again. Contexts that are lost stay lost.
    pub fn clear(&self) {
        self.table.clear();
        for device in &self.devices {
            device.restore();
        }
    }
}

/// What holds back a call that was told to [hang](Faults::hang). Dropping it opens it.
#[derive(Debug)]
pub struct Gate(Arc<GateState>);

impl Gate {
    /// Lets the call go on. Opening twice is harmless.
    pub fn open(&self) {
        self.0.open();
    }

    /// Waits until the call, or the work that it enqueued, stands before the gate; false when that
    /// has not happened within `timeout`.
    #[must_use]
    pub fn wait_until_reached(&self, timeout: Duration) -> bool {
        let mut phase = self.0.phase.lock();
        self.0
            .changed
            .wait_while_for(&mut phase, |phase| !phase.reached, timeout);
        phase.reached
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[derive(Default)]
pub(crate) struct GateState {
    phase: Mutex<GatePhase>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GatePhase {
    reached: bool,
    open: bool,
}

impl GateState {
    fn open(&self) {
        self.phase.lock().open = true;
        self.changed.notify_all();
    }

    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let mut phase = self.phase.lock();
        phase.reached = true;
        self.changed.notify_all();
        self.changed.wait_while(&mut phase, |phase| !phase.open);
    }
}

impl fmt::Debug for GateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.phase.lock().fmt(f)
    }
}

/// Counters and scripts of one backend.
#[derive(Debug)]
pub(crate) struct FaultTable {
    calls: Vec<AtomicU64>,
    /// How many scripts wait, so that a call without any takes no lock.
    waiting: AtomicUsize,
    scripts: Mutex<Vec<Script>>,
}

#[derive(Debug)]
struct Script {
    operation: Operation,
    calls_left: u64,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Fail(GpuError),
    Lose(LostFault),
    Hang(Arc<GateState>),
}

/// What the scripts want of one call.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) gate: Option<Arc<GateState>>,
    pub(crate) failure: Option<Failure>,
}

/// How a call is to fail.
#[derive(Debug)]
pub(crate) enum Failure {
    Error(GpuError),
    Lost(LostFault),
}

impl FaultTable {
    pub(crate) fn new() -> Self {
        Self {
            calls: Operation::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            waiting: AtomicUsize::new(0),
            scripts: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize].load(Ordering::Relaxed)
    }

    /// Counts a call and tells what the scripts want of it.
    pub(crate) fn count(&self, operation: Operation) -> Verdict {
        self.calls[operation as usize].fetch_add(1, Ordering::Relaxed);
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Verdict::default();
        }
        let mut verdict = Verdict::default();
        let mut scripts = self.scripts.lock();
        scripts.retain_mut(|script| {
            if script.operation != operation {
                return true;
            }
            script.calls_left -= 1;
            if script.calls_left > 0 {
                return true;
            }
            match &script.action {
                Action::Hang(gate) => verdict.gate = Some(Arc::clone(gate)),
                Action::Fail(error) if verdict.failure.is_none() => {
                    verdict.failure = Some(Failure::Error(error.clone()));
                }
                Action::Lose(fault) if verdict.failure.is_none() => {
                    verdict.failure = Some(Failure::Lost(fault.clone()));
                }
                Action::Fail(_) | Action::Lose(_) => {}
            }
            false
        });
        self.waiting.store(scripts.len(), Ordering::Release);
        verdict
    }

    fn add(&self, operation: Operation, nth: u64, action: Action) {
        let mut scripts = self.scripts.lock();
        scripts.push(Script {
            operation,
            calls_left: nth.max(1),
            action,
        });
        self.waiting.store(scripts.len(), Ordering::Release);
    }

    fn clear(&self) {
        let mut scripts = self.scripts.lock();
        scripts.clear();
        self.waiting.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> GpuError {
        crate::error::invalid_argument(text)
    }

    fn failure(table: &FaultTable, operation: Operation) -> Option<GpuError> {
        match table.count(operation).failure {
            Some(Failure::Error(error)) => Some(error),
            Some(Failure::Lost(fault)) => Some(GpuError::DeviceLost(fault)),
            None => None,
        }
    }

    #[test]
    fn a_script_counts_its_own_operation_from_now_and_fires_once() {
        let table = FaultTable::new();
        assert_eq!(failure(&table, Operation::Alloc), None);
        table.add(Operation::Alloc, 2, Action::Fail(error("second")));
        assert_eq!(failure(&table, Operation::Free), None);
        assert_eq!(failure(&table, Operation::Alloc), None);
        assert_eq!(failure(&table, Operation::Alloc), Some(error("second")));
        assert_eq!(failure(&table, Operation::Alloc), None);
        assert_eq!(table.calls(Operation::Alloc), 4);
        assert_eq!(table.calls(Operation::Free), 1);
        assert_eq!(table.calls(Operation::Launch), 0);
    }

    #[test]
    fn the_script_added_first_wins_when_two_fire_on_one_call() {
        let table = FaultTable::new();
        table.add(Operation::Read, 1, Action::Fail(error("first")));
        table.add(Operation::Read, 1, Action::Fail(error("other")));
        table.add(Operation::Read, 2, Action::Fail(error("later")));
        assert_eq!(failure(&table, Operation::Read), Some(error("first")));
        assert_eq!(failure(&table, Operation::Read), Some(error("later")));
    }

    #[test]
    fn clearing_forgets_scripts() {
        let table = FaultTable::new();
        table.add(Operation::Sync, 1, Action::Fail(error("never")));
        table.clear();
        assert_eq!(failure(&table, Operation::Sync), None);
    }

    #[test]
    fn a_dropped_gate_is_open() {
        let state = Arc::new(GateState::default());
        let gate = Gate(Arc::clone(&state));
        assert!(!gate.wait_until_reached(Duration::ZERO));
        let waiter = std::thread::spawn(move || state.pass());
        assert!(gate.wait_until_reached(Duration::from_secs(60)));
        drop(gate);
        waiter.join().unwrap();
    }
}
