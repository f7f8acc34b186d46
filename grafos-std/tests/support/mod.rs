//! What several test programs share.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use gpu_backend_mock::{HostKernel, KernelSignature, ManualClock, MockBackend, MockDevice};
use grafos_host_abi::{ContextOptions, GpuBackend, GpuContext, GpuError, Probe};
use grafos_std::FabricError;
use grafos_std::error::{ErrorKind, Result};
use grafos_std::gpu::{DeviceInfo, GpuBuilder, GpuLease, GpuSession};
use grafos_std::host::Host;

pub(crate) const MIB: u64 = 1 << 20;

/// An image that the software GPU takes, strict or not. It carries the registered kernels.
pub(crate) const IMAGE: &[u8] = b".version 7.0\n";

/// A host on a software GPU, with a clock that moves when it is told to.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) backend: MockBackend,
    pub(crate) clock: ManualClock,
}

impl Bench {
    /// A strict backend with the kernels of [`kernels`] and these devices.
    pub(crate) fn new(devices: impl IntoIterator<Item = MockDevice>) -> Self {
        let mut builder = MockBackend::builder().strict(true);
        for device in devices {
            builder = builder.device(device);
        }
        for kernel in kernels() {
            builder = builder.kernel(kernel);
        }
        Self::on(builder.build())
    }

    /// One device of this much memory.
    pub(crate) fn with_memory(bytes: u64) -> Self {
        Self::new([MockDevice::new().memory_bytes(bytes)])
    }

    pub(crate) fn on(backend: MockBackend) -> Self {
        let clock = ManualClock::new();
        let host = Host::builder()
            .backend(Arc::new(backend.clone()))
            .software_devices(true)
            .clock(Arc::new(clock.clone()))
            .build();
        Self {
            host,
            backend,
            clock,
        }
    }

    #[track_caller]
    pub(crate) fn lease(&self) -> GpuLease {
        self.acquire(GpuBuilder::new())
    }

    #[track_caller]
    pub(crate) fn acquire(&self, builder: GpuBuilder) -> GpuLease {
        builder.acquire_on(&self.host).expect("a lease")
    }

    #[track_caller]
    pub(crate) fn refusal(&self, builder: GpuBuilder) -> FabricError {
        refused(builder.acquire_on(&self.host))
    }

    pub(crate) fn advance_secs(&self, secs: u64) {
        self.clock.advance(Duration::from_secs(secs));
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::with_memory(64 * MIB)
    }
}

/// `double` doubles each `u32` of its buffer, `wild` stores outside of all memory.
pub(crate) fn kernels() -> [HostKernel; 2] {
    let double = HostKernel::new("double", KernelSignature::new().buffer(), |scope| {
        let data = scope.buffer::<u32>(0)?;
        scope.for_each_thread(|thread| {
            let index = thread.global_x();
            data.store(index, data.load(index)?.wrapping_mul(2))
        })
    });
    let wild = HostKernel::new("wild", KernelSignature::new(), |scope| {
        scope.memory::<u32>(0x10).map(drop)
    });
    [double, wild]
}

/// Loads the image and launches `double` over the first `threads` elements of a buffer.
#[track_caller]
pub(crate) fn launch_double(
    session: &GpuSession,
    buffer: &grafos_std::gpu::GpuMemHandle,
    threads: u32,
) {
    let module = session.module_load(IMAGE).expect("the image loads");
    let args = grafos_std::gpu::KernelArgs::new().push_buffer(buffer);
    session
        .launch_with_args(&module, "double", [threads, 1, 1], [1, 1, 1], args)
        .expect("the launch is accepted");
}

/// The error of a call that must fail.
#[track_caller]
pub(crate) fn refused<T: Debug>(result: Result<T>) -> FabricError {
    result.expect_err("the call must be refused")
}

/// The kind of the error of a call that must fail.
#[track_caller]
pub(crate) fn kind_of<T: Debug>(result: Result<T>) -> ErrorKind {
    refused(result).kind()
}

/// Asks again until the answer is yes. Fails after a minute, so that a broken host shows as a
/// failure and not as a test that never ends.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within a minute: {what}");
}

/// A third party's backend: the software GPU under another name.
pub(crate) struct Renamed {
    pub(crate) name: &'static str,
    pub(crate) inner: MockBackend,
}

impl GpuBackend for Renamed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn probe(&self) -> Probe {
        self.inner.probe()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, GpuError> {
        self.inner.devices()
    }

    fn open(
        &self,
        device_index: u32,
        options: &ContextOptions,
    ) -> Result<Box<dyn GpuContext>, GpuError> {
        self.inner.open(device_index, options)
    }
}

/// A third party's backend that finds nothing on this machine.
pub(crate) struct Absent;

impl GpuBackend for Absent {
    fn name(&self) -> &'static str {
        "absent"
    }

    fn probe(&self) -> Probe {
        Probe::Unavailable {
            reason: String::from("libabsent.so.1 not found"),
            hint: String::from("install the absent driver"),
        }
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, GpuError> {
        Err(GpuError::Unavailable {
            backend: "absent",
            reason: String::from("libabsent.so.1 not found"),
        })
    }

    fn open(&self, _: u32, _: &ContextOptions) -> Result<Box<dyn GpuContext>, GpuError> {
        Err(GpuError::Unavailable {
            backend: "absent",
            reason: String::from("libabsent.so.1 not found"),
        })
    }
}
