//! A GPU in software, for programs and tests on machines that have none.
//!
//! [`MockBackend`] implements the backend traits of `grafos-host-abi` with simulated devices:
//! memory with addresses that look real, streams that really run at once, events, limits,
//! capacity that runs out. Kernels are Rust closures ([`HostKernel`]) that run over the whole grid
//! on all cores. An access outside of live memory stops the kernel and loses the device, as it
//! does on hardware, with a text that says which kernel, block, thread and address it was.
//!
//! What it is not: it executes no kernel images. A loaded image is checked for its outer form and
//! then carries the registered kernels, whatever it contains. By default an unknown image loads
//! and an unknown kernel is recorded and does nothing; [strict](MockBackendBuilder::strict) mode
//! refuses both.
//!
//! ```
//! use gpu_backend_mock::{HostKernel, KernelSignature, MockBackend};
//! use grafos_host_abi::{
//!     BufferDesc, BufferRange, ContextOptions, GpuBackend, LaunchArg, LaunchDesc, StreamId,
//! };
//!
//! let double = HostKernel::new("double", KernelSignature::new().buffer(), |scope| {
//!     let data = scope.buffer::<u32>(0)?;
//!     scope.for_each_thread(|thread| {
//!         let i = thread.global_x();
//!         data.store(i, data.load(i)? * 2)
//!     })
//! });
//! let backend = MockBackend::builder().kernel(double).build();
//! let context = backend.open(0, &ContextOptions::default())?;
//!
//! let buffer = context.alloc(&BufferDesc::new(16))?;
//! let all = BufferRange { buffer: buffer.id, offset_bytes: 0, len_bytes: 16 };
//! let input: Vec<u8> = [1u32, 2, 3, 4].iter().flat_map(|value| value.to_le_bytes()).collect();
//! context.write(StreamId::DEFAULT, all, &input)?;
//!
//! let module = context.load_module(b".version 7.0\n")?;
//! let kernel = context.kernel(module.id, "double")?;
//! context.launch(&LaunchDesc {
//!     kernel: kernel.id,
//!     grid: [2, 1, 1],
//!     block: [2, 1, 1],
//!     dynamic_shared_bytes: 0,
//!     args: &[LaunchArg { bytes: &buffer.address.to_le_bytes(), buffer: None }],
//!     stream: StreamId::DEFAULT,
//! })?;
//!
//! let mut output = [0; 16];
//! context.read(StreamId::DEFAULT, all, &mut output)?;
//! assert_eq!(output, [2, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0]);
//! # Ok::<(), grafos_host_abi::GpuError>(())
//! ```

mod clock;
mod context;
mod device;
mod error;
mod fault;
mod kernel;
mod launch;
mod memory;
mod module;
mod stream;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use grafos_host_abi::{
    ContextOptions, DeviceInfo, GpuBackend, GpuContext, GpuError, HandleKind, Probe, Result,
};

pub use clock::ManualClock;
pub use device::{DeviceTiming, MockDevice};
pub use fault::{Faults, Gate, Operation};
pub use kernel::{
    AtomicElement, AtomicInteger, BlockScope, DeviceSlice, Element, HostKernel, KernelSignature,
    KernelTrap, SharedArray, Thread,
};
pub use launch::RecordedLaunch;

use context::MockContext;
use device::SimulatedDevice;
use fault::{Failure, FaultTable};
use launch::{LaunchLog, Pool};
use module::Registry;

const NAME: &str = "mock";

/// A GPU API in software. Clones share everything.
#[derive(Debug, Clone)]
pub struct MockBackend {
    shared: Arc<Shared>,
}

/// What a backend and its contexts share.
#[derive(Debug)]
pub(crate) struct Shared {
    devices: Vec<Arc<SimulatedDevice>>,
    unavailable: Option<Unavailable>,
    strict: bool,
    registry: Registry,
    faults: Arc<FaultTable>,
    launches: LaunchLog,
    pool: Pool,
    contexts: AtomicU64,
}

#[derive(Debug)]
struct Unavailable {
    reason: String,
    hint: String,
}

impl Default for MockBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl MockBackend {
    /// Makes a backend with one device, as [`MockDevice::new`] describes it, that is not strict.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins a backend of one's own making.
    #[must_use]
    pub fn builder() -> MockBackendBuilder {
        MockBackendBuilder::default()
    }

    /// Adds a kernel to every module, or replaces the one of that name for modules that have not
    /// resolved it yet.
    pub fn register_kernel(&self, kernel: HostKernel) {
        self.shared.registry.add_kernel(kernel);
    }

    /// Adds a global variable to every module, those that are loaded included. Each module has
    /// a copy of its own.
    ///
    /// The variable begins with `initial`, of which at most `size_bytes` bytes count; the rest of
    /// it is 0. Registering a name again changes it for modules that are loaded afterwards.
    pub fn register_global(&self, name: impl Into<String>, size_bytes: u64, initial: &[u8]) {
        self.shared
            .registry
            .add_global(name.into(), size_bytes, initial);
    }

    /// The launches that were accepted, oldest first: the last 4096 of all contexts.
    #[must_use]
    pub fn launches(&self) -> Vec<RecordedLaunch> {
        self.shared.launches.all()
    }

    /// Forgets the launches so far.
    pub fn clear_launches(&self) {
        self.shared.launches.clear();
    }

    /// How many calls of an operation have reached this backend, over all contexts; those that
    /// failed are counted too.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        self.shared.faults.calls(operation)
    }

    /// The scripted faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults::new(Arc::clone(&self.shared.faults), self.shared.devices.clone())
    }
}

impl GpuBackend for MockBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probe(&self) -> Probe {
        match &self.shared.unavailable {
            Some(Unavailable { reason, hint }) => Probe::Unavailable {
                reason: reason.clone(),
                hint: hint.clone(),
            },
            None => Probe::Available {
                driver: device::driver_info(),
                device_count: self.shared.devices.len() as u32,
            },
        }
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.shared.begin(Operation::Devices, None)?;
        let devices = self.shared.devices.iter();
        Ok(devices.map(|device| device.info().clone()).collect())
    }

    fn open(&self, device_index: u32, _options: &ContextOptions) -> Result<Box<dyn GpuContext>> {
        let device = self.shared.devices.get(device_index as usize);
        self.shared.begin(Operation::Open, device)?;
        let device = device
            .ok_or_else(|| error::invalid_handle(HandleKind::Device, u64::from(device_index)))?;
        device.check()?;
        let id = self.shared.contexts.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(MockContext::open(&self.shared, device, id)))
    }
}

impl Shared {
    /// Counts a call of the backend itself and applies what is scripted for it.
    fn begin(&self, operation: Operation, device: Option<&Arc<SimulatedDevice>>) -> Result<()> {
        let verdict = self.faults.count(operation);
        if let Some(gate) = verdict.gate {
            gate.pass();
        }
        if let Some(unavailable) = &self.unavailable {
            return Err(GpuError::Unavailable {
                backend: NAME,
                reason: unavailable.reason.clone(),
            });
        }
        match verdict.failure {
            None => Ok(()),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Lost(fault)) => {
                if let Some(device) = device {
                    device.lose(&fault);
                }
                Err(GpuError::DeviceLost(fault))
            }
        }
    }
}

/// A backend in the making. From [`MockBackend::builder`].
#[derive(Debug, Default)]
pub struct MockBackendBuilder {
    devices: Vec<MockDevice>,
    unavailable: Option<Unavailable>,
    strict: bool,
    worker_threads: Option<usize>,
    kernels: Vec<HostKernel>,
}

impl MockBackendBuilder {
    /// Adds a device. A backend that is given none has one of [`MockDevice::new`].
    #[must_use]
    pub fn device(mut self, device: MockDevice) -> Self {
        self.devices.push(device);
        self
    }

    /// Sets whether images of no known format and kernels that are not registered are refused.
    /// By default the first are loaded, and the second are recorded and do nothing.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Sets how many threads run the blocks of a launch; the machine's parallelism by default.
    /// The smallest number is 1.
    #[must_use]
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.worker_threads = Some(threads);
        self
    }

    /// Adds a kernel to every module.
    #[must_use]
    pub fn kernel(mut self, kernel: HostKernel) -> Self {
        self.kernels.push(kernel);
        self
    }

    /// Makes the backend say that it cannot be used, as one without its driver does.
    #[must_use]
    pub fn unavailable(mut self, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        self.unavailable = Some(Unavailable {
            reason: reason.into(),
            hint: hint.into(),
        });
        self
    }

    /// Makes the backend.
    #[must_use]
    pub fn build(mut self) -> MockBackend {
        if self.devices.is_empty() {
            self.devices.push(MockDevice::new());
        }
        let registry = Registry::default();
        for kernel in self.kernels {
            registry.add_kernel(kernel);
        }
        let threads = self
            .worker_threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
        let devices = (0..)
            .zip(self.devices)
            .map(|(index, device)| Arc::new(device.build(index, self.strict)));
        MockBackend {
            shared: Arc::new(Shared {
                devices: devices.collect(),
                unavailable: self.unavailable,
                strict: self.strict,
                registry,
                faults: Arc::new(FaultTable::new()),
                launches: LaunchLog::default(),
                pool: Pool::new(threads),
                contexts: AtomicU64::new(0),
            }),
        }
    }
}

// The README's example compiles as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
