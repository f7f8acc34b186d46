//! What the suite runs on, and the short cuts that its cases share.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpu_backend_mock::MockBackend;
use grafos_kernels::Feature;
use grafos_std::FabricError;
use grafos_std::error::ErrorKind;
use grafos_std::gpu::{
    DeviceInfo, DeviceLimits, GpuBuilder, GpuKernel, GpuLease, GpuMemHandle, GpuModule, GpuSession,
    KernelArgs, LaunchConfig,
};
use grafos_std::host::Host;

/// Why a case does not apply to the target.
#[derive(Debug)]
pub(crate) struct Unsupported(pub(crate) String);

impl Unsupported {
    pub(crate) fn because<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self(reason.into()))
    }
}

/// The target: a host on one backend.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) device: DeviceInfo,
    /// The software GPU, where it is the target.
    pub(crate) mock: Option<MockBackend>,
    messages: Arc<Mutex<Vec<String>>>,
    /// How many launches of `long_running` outlast [`LEAST_BUSY`].
    busy_launches: OnceLock<u32>,
}

/// Steps of each thread of `long_running`; it takes at most 60,000.
const BUSY_ROUNDS: u32 = 50_000;
const BUSY_ELEMENTS: u32 = 256;
/// How long busy work lasts at least, measured by a wait that runs out of time.
const LEAST_BUSY: Duration = Duration::from_millis(60);
const MOST_LAUNCHES: u32 = 1 << 16;

impl Target {
    /// Sets the target up; an error is the reason why there is none on this machine.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let backend = backend_name();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let mut mock = None;
        let builder = Host::builder().software_devices(true);
        let builder = match backend.as_str() {
            "mock" => {
                let software = MockBackend::builder().strict(true).build();
                grafos_kernels::host::register(&software);
                mock = Some(software.clone());
                builder.backend(Arc::new(software))
            }
            #[cfg(feature = "vulkan")]
            "vulkan" => builder.backend(Arc::new(vulkan_backend(&messages))),
            other => return Err(format!("{other}: not compiled in")),
        };
        let builder = match std::env::var("GRAFOS_DEVICE") {
            Ok(text) if !text.trim().is_empty() => builder.device(text),
            _ => builder,
        };
        let host = builder.build();
        let device = match GpuBuilder::new().acquire_on(&host) {
            Ok(lease) => lease.device().clone(),
            Err(error) => return Err(error.to_string()),
        };
        let name = std::env::var("GRAFOS_SUITE_TARGET").unwrap_or(backend);
        Ok(Self {
            name,
            host,
            device,
            mock,
            messages,
            busy_launches: OnceLock::new(),
        })
    }

    pub(crate) fn limits(&self) -> &DeviceLimits {
        &self.device.limits
    }

    pub(crate) fn lease(&self) -> GpuLease {
        GpuBuilder::new().acquire_on(&self.host).must()
    }

    pub(crate) fn session(&self) -> (GpuLease, GpuSession) {
        let lease = self.lease();
        let session = GpuSession::new(&lease);
        (lease, session)
    }

    /// Makes the target's backend the one that the host calls by lease id use.
    pub(crate) fn make_current(&self) {
        if let Some(mock) = &self.mock {
            grafos_std::host::reset_mock_with(mock.clone());
        }
    }

    /// What the validation layer has said so far.
    pub(crate) fn validation_messages(&self) -> Vec<String> {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Loads a module and resolves its kernel. It can only be unsupported where the manifest says
    /// that it needs more than every device has, and the device lacks that.
    #[track_caller]
    pub(crate) fn kernel(
        &self,
        session: &GpuSession,
        name: &str,
    ) -> Result<(GpuModule, GpuKernel), Unsupported> {
        let loaded = session.module_load(image(name)).and_then(|module| {
            let kernel = session.kernel(&module, name)?;
            Ok((module, kernel))
        });
        match loaded {
            Ok(loaded) => Ok(loaded),
            Err(FabricError::Unsupported(fault)) => {
                let capabilities = &self.device.capabilities;
                let lacks = |feature: &Feature| match feature {
                    Feature::Int64 => !capabilities.int64,
                    Feature::Float64 => !capabilities.float64,
                    // No capability tells.
                    Feature::Maintenance4 => true,
                };
                assert!(
                    kernel(name).needs.iter().any(lacks),
                    "{name} is unsupported, and the device has what it needs: {fault}"
                );
                Unsupported::because(fault.to_string())
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// Enqueues work on the default stream that lasts at least some tens of milliseconds, times a
    /// factor, and leaves `long_running`'s values in a buffer.
    #[track_caller]
    pub(crate) fn start_busy(&self, session: &GpuSession, factor: u32) -> Busy {
        let launches = *self.busy_launches.get_or_init(|| self.measure_busy());
        self.enqueue_busy(session, launches.saturating_mul(factor))
    }

    #[track_caller]
    fn enqueue_busy(&self, session: &GpuSession, launches: u32) -> Busy {
        let buffer = session.mem_alloc(u64::from(BUSY_ELEMENTS) * 4).must();
        let (module, kernel) = match self.kernel(session, "long_running") {
            Ok(loaded) => loaded,
            Err(Unsupported(reason)) => panic!("long_running needs nothing special: {reason}"),
        };
        let args = KernelArgs::new().push_buffer(&buffer).push_u32(BUSY_ROUNDS);
        let block = 64.min(kernel.info().max_threads_per_block);
        for _ in 0..launches {
            kernel
                .launch(LaunchConfig::linear(BUSY_ELEMENTS.into(), block), &args)
                .must();
        }
        Busy {
            buffer,
            module,
            kernel,
        }
    }

    fn measure_busy(&self) -> u32 {
        let (_lease, session) = self.session();
        // The first launch can take long for other reasons, such as compilation.
        let _warm = self.enqueue_busy(&session, 1);
        session.sync().must();
        let mut launches = 1;
        while launches <= MOST_LAUNCHES {
            let _busy = self.enqueue_busy(&session, launches);
            match session.sync_timeout(LEAST_BUSY) {
                Err(FabricError::Timeout(_)) => {
                    session.sync().must();
                    return launches * 2;
                }
                Err(error) => panic!("{error}"),
                Ok(()) => launches *= 4,
            }
        }
        panic!("{MOST_LAUNCHES} launches of long_running ended within {LEAST_BUSY:?}");
    }

    /// Lets a case look at a busy device. `look` gets a factor for [`start_busy`], and gives
    /// `None` when the work had ended before it could look; it is called again with more work.
    ///
    /// [`start_busy`]: Self::start_busy
    #[track_caller]
    pub(crate) fn while_busy<T>(&self, mut look: impl FnMut(u32) -> Option<T>) -> T {
        for factor in [1, 4, 16] {
            if let Some(seen) = look(factor) {
                return seen;
            }
        }
        panic!("work was enqueued three times, ever more, and looked complete at once each time");
    }
}

/// Work under way.
pub(crate) struct Busy {
    pub(crate) buffer: GpuMemHandle,
    pub(crate) module: GpuModule,
    pub(crate) kernel: GpuKernel,
}

/// What busy work leaves in its buffer.
pub(crate) fn busy_values() -> &'static [u32] {
    static VALUES: OnceLock<Vec<u32>> = OnceLock::new();
    VALUES.get_or_init(|| {
        let value = |index| grafos_kernels::reference::long_running(index, BUSY_ROUNDS);
        (0..BUSY_ELEMENTS).map(value).collect()
    })
}

/// The backend that the environment names.
pub(crate) fn backend_name() -> String {
    let named = std::env::var("GRAFOS_BACKEND")
        .unwrap_or_default()
        .trim()
        .to_lowercase();
    if named.is_empty() {
        String::from("mock")
    } else {
        named
    }
}

/// Ends the run where there is no target: a failure where it is required.
#[expect(clippy::print_stdout, reason = "this is the end of a test program")]
pub(crate) fn skip(reason: &str) -> ExitCode {
    let backend = backend_name();
    let required = std::env::var("GRAFOS_REQUIRE").unwrap_or_default();
    if required.split(',').any(|name| name.trim() == backend) {
        println!("failed: GRAFOS_REQUIRE names {backend}, but {reason}");
        return ExitCode::FAILURE;
    }
    println!("skipped: {reason}");
    ExitCode::SUCCESS
}

#[cfg(feature = "vulkan")]
fn vulkan_backend(messages: &Arc<Mutex<Vec<String>>>) -> gpu_backend_vulkan::VulkanBackend {
    let builder = gpu_backend_vulkan::VulkanBackend::builder();
    if std::env::var("GRAFOS_VULKAN_VALIDATION").is_ok_and(|value| value == "1") {
        let sink = Arc::clone(messages);
        let receive = move |message: gpu_backend_vulkan::ValidationMessage| {
            let line = format!("{}: {}", message.id, message.text);
            sink.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        };
        return builder.validation(receive).build();
    }
    builder.build()
}

// Short cuts.

/// Unwraps what must succeed.
pub(crate) trait Must<T> {
    fn must(self) -> T;
}

impl<T> Must<T> for Result<T, FabricError> {
    #[track_caller]
    fn must(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("unexpected {:?}: {error}", error.kind()),
        }
    }
}

/// The error of a call that must fail.
#[track_caller]
pub(crate) fn refused<T: Debug>(answer: Result<T, FabricError>) -> FabricError {
    match answer {
        Ok(value) => panic!("succeeded with {value:?}"),
        Err(error) => error,
    }
}

/// Asks for a failure of one kind.
#[track_caller]
pub(crate) fn ensure_kind<T: Debug>(
    what: &str,
    answer: Result<T, FabricError>,
    kind: ErrorKind,
) -> FabricError {
    let error = refused(answer);
    assert_eq!(error.kind(), kind, "{what}: {error}");
    error
}

/// Compares two slices and tells where they differ first.
#[track_caller]
pub(crate) fn ensure_same<T: PartialEq + Debug>(what: &str, found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    let different = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected);
    if let Some(index) = different {
        panic!(
            "{what}: element {index} is {:?}, expected {:?}",
            found[index], expected[index]
        );
    }
}

pub(crate) fn kernel(name: &str) -> &'static grafos_kernels::Kernel {
    grafos_kernels::by_name(name).unwrap_or_else(|| panic!("there is no kernel {name}"))
}

pub(crate) fn image(name: &str) -> &'static [u8] {
    kernel(name).spirv
}

/// A kind of element that buffers hold.
pub(crate) trait Element: Copy + PartialEq + Debug {
    const SIZE: usize;
    fn bytes(self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($name:ident),*) => {$(
        impl Element for $name {
            const SIZE: usize = size_of::<$name>();
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn from_bytes(bytes: &[u8]) -> Self {
                let bytes = bytes.try_into().unwrap_or_default();
                <$name>::from_le_bytes(bytes)
            }
        }
    )*};
}
elements!(u32, f32, f64);

/// Puts values into a buffer of just their size.
#[track_caller]
pub(crate) fn upload<T: Element>(session: &GpuSession, values: &[T]) -> GpuMemHandle {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
    let buffer = session.mem_alloc(bytes.len() as u64).must();
    session.mem_write(&buffer, 0, &bytes).must();
    buffer
}

/// Reads a whole buffer.
#[track_caller]
pub(crate) fn download<T: Element>(session: &GpuSession, buffer: &GpuMemHandle) -> Vec<T> {
    let mut bytes = vec![0; buffer.size_bytes() as usize];
    session.mem_read_into(buffer, 0, &mut bytes).must();
    bytes.chunks_exact(T::SIZE).map(T::from_bytes).collect()
}

/// A sequence of numbers that looks random and is the same for the same seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mixed = self.0 ^ (self.0 >> 29);
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
    }

    pub(crate) fn words(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.next() as u32).collect()
    }

    /// Normal floats between -100 and 100.
    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        let mut one = || (self.next() % 2_000_001) as f32 / 10_000.0 - 100.0;
        (0..len).map(|_| one()).collect()
    }

    /// Small whole numbers: sums of thousands of them are exact in any order.
    pub(crate) fn whole_floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.next() % 16) as f32).collect()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
