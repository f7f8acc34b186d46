//! The session API on every backend and device of this machine, the software GPU included.
//!
//! A group for each operation, a function in it for each device; `cargo xtask bench` prints them as
//! one table. The same code runs on every device, one device after the other within an operation,
//! so that what else the machine does falls on all of them. What a kernel computes is compared with
//! the CPU once before it is measured.
#![expect(
    clippy::print_stderr,
    reason = "a bench says which devices it leaves out"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use gpu_backend_mock::MockBackend;
use grafos_kernels::reference;
use grafos_std::FabricError;
use grafos_std::gpu::{
    GpuBuilder, GpuKernel, GpuLease, GpuMemHandle, GpuModule, GpuSession, KernelArgs, LaunchConfig,
};
use grafos_std::host::{Host, HostDevice};

type Result<T> = std::result::Result<T, FabricError>;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Elements of each BabelStream array.
const STREAM_LEN: usize = 1 << 22;
const STREAM_BYTES: usize = STREAM_LEN * size_of::<f32>();
const STREAM_SCALAR: f32 = 0.4;
const STREAM_BLOCK_THREADS: u32 = 256;
/// Blocks of the dot product, and partial sums that it leaves. A thread takes 64 steps.
const DOT_BLOCKS: u32 = 256;
/// Launches that are enqueued before a wait.
const LAUNCHES: u64 = 256;
/// Elements that a launch works on where the launch itself is measured.
const LAUNCH_LEN: u32 = 64;

fn main() -> ExitCode {
    let targets = match Target::all() {
        Ok(targets) => targets,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut bench = Bench {
        criterion: Criterion::default().configure_from_args(),
        targets: &targets,
    };
    bench.leases();
    bench.memory();
    bench.launches();
    bench.streams();
    bench.criterion.final_summary();
    ExitCode::SUCCESS
}

/// A device to measure on.
struct Target {
    /// Backend and name of the device: the column of the table.
    label: String,
    host: Host,
    session: GpuSession,
    /// What the session is on.
    _lease: GpuLease,
}

impl Target {
    /// Finds every device that can be used, and opens it.
    fn all() -> Result<Vec<Self>> {
        let compiled = || Host::builder().compiled_backends().software_devices(true);
        let drivers = compiled().build();
        for report in drivers.unavailable_backends() {
            eprintln!("left out: {}: {}", report.backend, report.reason);
        }
        let mut targets = Vec::new();
        for device in drivers.devices() {
            // A host of its own, so that every lease of the target is on this device.
            let host = compiled().device(device.index.to_string()).build();
            match Self::open(&device, host) {
                Ok(target) => targets.push(target),
                Err(error) => eprintln!("left out: {}: {error}", label(&device)),
            }
        }
        let backend = MockBackend::builder().strict(true).build();
        grafos_kernels::host::register(&backend);
        let software = Host::builder()
            .backend(Arc::new(backend))
            .software_devices(true)
            .build();
        for device in software.devices() {
            targets.push(Self::open(&device, software.clone())?);
        }
        for index in 1..targets.len() {
            let (before, rest) = targets.split_at_mut(index);
            let twins = before
                .iter()
                .filter(|target| target.label == rest[0].label)
                .count();
            if twins > 0 {
                rest[0].label = format!("{} #{}", rest[0].label, index + 1);
            }
        }
        Ok(targets)
    }

    fn open(device: &HostDevice, host: Host) -> Result<Self> {
        let lease = GpuBuilder::new().lease_secs(24 * 3600).acquire_on(&host)?;
        let session = GpuSession::new(&lease);
        // Opens the device: what fails there fails here.
        session.sync()?;
        Ok(Self {
            label: label(device),
            host,
            session,
            _lease: lease,
        })
    }

    fn kernel(&self, name: &str) -> Result<(GpuModule, GpuKernel)> {
        let image = grafos_kernels::by_name(name).map_or(&[][..], |kernel| kernel.spirv);
        let module = self.session.module_load(image)?;
        let kernel = self.session.kernel(&module, name)?;
        Ok((module, kernel))
    }

    fn upload(&self, values: &[f32]) -> Result<GpuMemHandle> {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let buffer = self.session.mem_alloc(bytes.len() as u64)?;
        self.session.mem_write(&buffer, 0, &bytes)?;
        Ok(buffer)
    }
}

/// Names a device. A slash would end the operation's name for whoever reads the results.
fn label(device: &HostDevice) -> String {
    format!("{} {}", device.backend, device.info.name).replace('/', "-")
}

struct Bench<'t> {
    criterion: Criterion,
    targets: &'t [Target],
}

impl<'t> Bench<'t> {
    /// Measures `step` on every device. `prepare` runs once for each, and only where a filter on
    /// the command line lets the operation through.
    fn operation<P>(
        &mut self,
        name: &str,
        throughput: Option<Throughput>,
        prepare: impl Fn(&'t Target) -> Result<P>,
        step: impl Fn(&mut P) -> Result<()>,
    ) {
        let mut group = self.criterion.benchmark_group(name);
        if let Some(throughput) = throughput {
            group.throughput(throughput);
        }
        for target in self.targets {
            let mut prepared = None;
            group.bench_function(&target.label, |bencher| {
                let prepared = prepared.get_or_insert_with(|| must(prepare(target)));
                bencher.iter(|| must(step(prepared)));
            });
        }
        group.finish();
    }

    fn leases(&mut self) {
        self.operation("lease/acquire and free", None, Ok, |target| {
            GpuBuilder::new().acquire_on(&target.host)?.free();
            Ok(())
        });
        // What the driver takes to open and close a device is in this one.
        self.operation("lease/acquire, first call and free", None, Ok, |target| {
            let lease = GpuBuilder::new().acquire_on(&target.host)?;
            GpuSession::new(&lease).sync()?;
            lease.free();
            Ok(())
        });
    }

    fn memory(&mut self) {
        for (size_name, size) in [("4 KiB", 4 * KIB), ("1 MiB", MIB)] {
            let name = format!("alloc and free/{size_name}");
            self.operation(&name, None, Ok, |target| {
                let buffer = target.session.mem_alloc(size as u64)?;
                target.session.mem_free(black_box(buffer))
            });
        }
        for (size_name, size) in [("4 KiB", 4 * KIB), ("1 MiB", MIB), ("64 MiB", 64 * MIB)] {
            let bytes = Some(Throughput::Bytes(size as u64));
            let name = format!("write and wait/{size_name}");
            let transfer = |target| Transfer::new(target, size);
            self.operation(&name, bytes.clone(), transfer, Transfer::write);
            let name = format!("read/{size_name}");
            self.operation(&name, bytes, transfer, Transfer::read);
        }
    }

    fn launches(&mut self) {
        self.operation("launch/1, then wait", None, Launch::new, |launch| {
            launch.enqueue()?;
            launch.target.session.sync()
        });
        let name = format!("launch/{LAUNCHES}, then wait");
        let launches = Some(Throughput::Elements(LAUNCHES));
        self.operation(&name, launches, Launch::new, |launch| {
            for _ in 0..LAUNCHES {
                launch.enqueue()?;
            }
            launch.target.session.sync()
        });
    }

    fn streams(&mut self) {
        for kernel in [
            StreamKernel::Copy,
            StreamKernel::Mul,
            StreamKernel::Add,
            StreamKernel::Triad,
        ] {
            self.operation(
                kernel.operation(),
                Some(kernel.throughput()),
                |target| Stream::checked(target, kernel),
                |stream| stream.run(),
            );
        }
        let dot = StreamKernel::Dot;
        self.operation(
            dot.operation(),
            Some(dot.throughput()),
            |target| Stream::checked(target, dot),
            |stream| {
                stream.run()?;
                black_box(stream.output()?.iter().sum::<f32>());
                Ok(())
            },
        );
    }
}

/// A buffer, and as many bytes of the host's.
struct Transfer<'t> {
    target: &'t Target,
    buffer: GpuMemHandle,
    bytes: Vec<u8>,
}

impl<'t> Transfer<'t> {
    /// Writes every byte on both sides once, so that no page is new later.
    fn new(target: &'t Target, len_bytes: usize) -> Result<Self> {
        let buffer = target.session.mem_alloc(len_bytes as u64)?;
        let bytes: Vec<u8> = (0..len_bytes).map(|index| (index % 251) as u8).collect();
        target.session.mem_write(&buffer, 0, &bytes)?;
        let mut found = vec![0; len_bytes];
        target.session.mem_read_into(&buffer, 0, &mut found)?;
        assert!(found == bytes, "{}: the bytes come back", target.label);
        Ok(Self {
            target,
            buffer,
            bytes,
        })
    }

    fn write(&mut self) -> Result<()> {
        self.target
            .session
            .mem_write(&self.buffer, 0, &self.bytes)?;
        self.target.session.sync()
    }

    fn read(&mut self) -> Result<()> {
        self.target
            .session
            .mem_read_into(&self.buffer, 0, &mut self.bytes)?;
        black_box(&self.bytes);
        Ok(())
    }
}

/// A kernel that is next to nothing.
struct Launch<'t> {
    target: &'t Target,
    kernel: GpuKernel,
    _module: GpuModule,
    config: LaunchConfig,
    args: KernelArgs,
    _buffer: GpuMemHandle,
}

impl<'t> Launch<'t> {
    fn new(target: &'t Target) -> Result<Self> {
        let (module, kernel) = target.kernel("increment")?;
        let buffer = target.upload(&[0.0; LAUNCH_LEN as usize])?;
        let launch = Self {
            target,
            kernel,
            _module: module,
            config: LaunchConfig::linear(LAUNCH_LEN.into(), LAUNCH_LEN),
            args: KernelArgs::new().push_buffer(&buffer).push_u32(LAUNCH_LEN),
            _buffer: buffer.clone(),
        };
        for _ in 0..LAUNCHES {
            launch.enqueue()?;
        }
        let counts = target.session.mem_read(&buffer, 0, 4 * LAUNCH_LEN)?;
        let expected = (LAUNCHES as u32).to_le_bytes();
        let right = counts.as_chunks().0.iter().all(|count| *count == expected);
        assert!(right, "{}: every launch counts", target.label);
        Ok(launch)
    }

    fn enqueue(&self) -> Result<()> {
        self.kernel.launch(self.config, &self.args)
    }
}

/// The kernels of BabelStream.
#[derive(Debug, Clone, Copy)]
enum StreamKernel {
    Copy,
    Mul,
    Add,
    Triad,
    Dot,
}

impl StreamKernel {
    fn operation(self) -> &'static str {
        match self {
            Self::Copy => "stream/copy",
            Self::Mul => "stream/mul",
            Self::Add => "stream/add",
            Self::Triad => "stream/triad",
            Self::Dot => "stream/dot",
        }
    }

    /// Bytes that are read and written, as BabelStream counts them.
    fn throughput(self) -> Throughput {
        let arrays = match self {
            Self::Copy | Self::Mul | Self::Dot => 2,
            Self::Add | Self::Triad => 3,
        };
        Throughput::Bytes((arrays * STREAM_BYTES) as u64)
    }
}

/// A BabelStream kernel with its arrays. Running it again gives the same.
struct Stream<'t> {
    target: &'t Target,
    kernel: GpuKernel,
    _module: GpuModule,
    config: LaunchConfig,
    args: KernelArgs,
    output: GpuMemHandle,
    _inputs: [GpuMemHandle; 2],
}

impl<'t> Stream<'t> {
    /// Prepares a kernel, runs it, and compares every element with the CPU's.
    fn checked(target: &'t Target, kernel: StreamKernel) -> Result<Self> {
        let values = |step: usize| -> Vec<f32> {
            (0..STREAM_LEN)
                .map(|i| (i * step % 1021) as f32 * 0.25 - 100.0)
                .collect()
        };
        let (x, y) = (values(7), values(11));
        let inputs = [target.upload(&x)?, target.upload(&y)?];
        let output_len = match kernel {
            StreamKernel::Dot => DOT_BLOCKS as usize,
            _ => STREAM_LEN,
        };
        let output = target.upload(&vec![0.0; output_len])?;
        let [x_buffer, y_buffer] = &inputs;
        let args = KernelArgs::new();
        let (name, args, expected) = match kernel {
            StreamKernel::Copy => (
                "stream_copy",
                args.push_buffer(x_buffer).push_buffer(&output),
                x,
            ),
            StreamKernel::Mul => (
                "stream_mul",
                args.push_buffer(&output)
                    .push_buffer(x_buffer)
                    .push_f32(STREAM_SCALAR),
                reference::scale(STREAM_SCALAR, &x),
            ),
            StreamKernel::Add => (
                "stream_add",
                args.push_buffer(x_buffer)
                    .push_buffer(y_buffer)
                    .push_buffer(&output),
                reference::vector_add(&x, &y),
            ),
            StreamKernel::Triad => (
                "stream_triad",
                args.push_buffer(&output)
                    .push_buffer(x_buffer)
                    .push_buffer(y_buffer)
                    .push_f32(STREAM_SCALAR),
                reference::stream_triad(&x, &y, STREAM_SCALAR),
            ),
            StreamKernel::Dot => (
                "stream_dot",
                args.push_buffer(x_buffer)
                    .push_buffer(y_buffer)
                    .push_buffer(&output),
                reference::stream_dot_partials(&x, &y, DOT_BLOCKS as usize),
            ),
        };
        let config = match kernel {
            StreamKernel::Dot => {
                LaunchConfig::new([DOT_BLOCKS, 1, 1], [STREAM_BLOCK_THREADS, 1, 1])
            }
            _ => LaunchConfig::linear(STREAM_LEN as u64, STREAM_BLOCK_THREADS),
        };
        let (module, loaded) = target.kernel(name)?;
        let stream = Self {
            target,
            kernel: loaded,
            _module: module,
            config,
            args: args.push_u32(STREAM_LEN as u32),
            output,
            _inputs: inputs,
        };
        stream.run()?;
        let found = stream.output()?;
        let wrong = found
            .iter()
            .zip(&expected)
            .position(|(found, expected)| found.to_bits() != expected.to_bits());
        assert_eq!(found.len(), expected.len());
        if let Some(index) = wrong {
            panic!(
                "{name} on {}: element {index} is {}, not {}",
                target.label, found[index], expected[index]
            );
        }
        Ok(stream)
    }

    fn run(&self) -> Result<()> {
        self.kernel.launch(self.config, &self.args)?;
        self.target.session.sync()
    }

    fn output(&self) -> Result<Vec<f32>> {
        let mut bytes = vec![0; self.output.size_bytes() as usize];
        self.target
            .session
            .mem_read_into(&self.output, 0, &mut bytes)?;
        let (chunks, _) = bytes.as_chunks();
        Ok(chunks
            .iter()
            .map(|chunk| f32::from_le_bytes(*chunk))
            .collect())
    }
}

/// A bench has nobody to hand an error to.
fn must<T>(outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{error}"))
}
