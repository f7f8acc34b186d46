//! Adds two vectors of 2^20 floats on a GPU and checks every element on the CPU.
//!
//! Uses a real GPU where one is. Without one it takes a Vulkan driver that computes on the CPU,
//! and without that the software GPU, and says so. `GRAFOS_BACKEND` and `GRAFOS_DEVICE` choose.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example shows what it does"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_backend_mock::MockBackend;
use grafos_std::FabricError;
use grafos_std::gpu::{GpuBuilder, GpuLease, GpuSession, KernelArgs, LaunchConfig};
use grafos_std::host::Host;

const LEN: usize = 1 << 20;
const LEN_BYTES: u64 = (LEN * size_of::<f32>()) as u64;
const BLOCK_THREADS: u32 = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let (lease, why) = acquire()?;
    let device = lease.device();
    println!(
        "device: {} ({}, {}), backend {}",
        device.name,
        device.vendor,
        device.kind,
        lease.backend()
    );
    println!("driver: {}", device.driver);
    println!("chosen: {why}");
    if device.kind.is_software() {
        println!("notice: this device computes on the CPU; its timings say nothing about a GPU");
    }

    let a: Vec<f32> = (0..LEN).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..LEN).map(|i| 1.0 - i as f32 * 0.25).collect();

    let session = GpuSession::new(&lease);
    let kernel = grafos_kernels::by_name("vector_add").ok_or("the kernel table has vector_add")?;
    let module = session.module_load(kernel.spirv)?;
    let vector_add = session.kernel(&module, kernel.name)?;
    let buffers = [
        session.mem_alloc(LEN_BYTES)?,
        session.mem_alloc(LEN_BYTES)?,
        session.mem_alloc(LEN_BYTES)?,
    ];

    let (_, write) = timed(|| {
        session.mem_write(&buffers[0], 0, &to_bytes(&a))?;
        session.mem_write(&buffers[1], 0, &to_bytes(&b))
    })?;
    let mut args = KernelArgs::new();
    for buffer in &buffers {
        args = args.push_buffer(buffer);
    }
    let args = args.push_u32(LEN as u32);
    let config = LaunchConfig::linear(LEN as u64, BLOCK_THREADS);
    let launch_and_wait = || {
        vector_add
            .launch(config, &args)
            .and_then(|()| session.sync())
    };
    // The first launch pays for what the driver compiles.
    let (_, first) = timed(launch_and_wait)?;
    let (_, second) = timed(launch_and_wait)?;
    let mut output = vec![0u8; LEN * size_of::<f32>()];
    let (_, read) = timed(|| session.mem_read_into(&buffers[2], 0, &mut output))?;

    println!("write 2 x {LEN_BYTES} bytes: {write:?}");
    println!("launch and wait: first {first:?}, second {second:?}");
    println!("read {LEN_BYTES} bytes: {read:?}");

    for (i, element) in output.as_chunks::<4>().0.iter().enumerate() {
        let (got, expected) = (f32::from_le_bytes(*element), a[i] + b[i]);
        if got.to_bits() != expected.to_bits() {
            return Err(format!("element {i}: got {got}, expected {expected}").into());
        }
    }
    println!("checked: {LEN} of {LEN} elements equal the CPU's");
    Ok(())
}

/// Acquires a lease, and says why it is on that device.
fn acquire() -> Result<(GpuLease, String), FabricError> {
    let request = GpuBuilder::new().min_vram(3 * LEN_BYTES);
    let disconnected = match request.clone().acquire() {
        Ok(lease) if lease.backend() == "mock" => {
            // The environment asked for the software GPU, which runs kernels that it was given.
            drop(lease);
            return software_gpu(request, "GRAFOS_BACKEND asks for the software GPU");
        }
        Ok(lease) => {
            let why = match std::env::var("GRAFOS_BACKEND") {
                Ok(name) => format!("GRAFOS_BACKEND is {name:?}"),
                Err(_) => String::from("the first device that is not a software one"),
            };
            return Ok((lease, why));
        }
        Err(FabricError::Disconnected(fault)) => fault,
        Err(error) => return Err(error),
    };
    println!("no GPU: {disconnected}");
    if std::env::var_os("GRAFOS_BACKEND").is_some() {
        return Err(FabricError::Disconnected(disconnected));
    }
    let software = Host::builder()
        .compiled_backends()
        .software_devices(true)
        .build();
    match request.clone().acquire_on(&software) {
        Ok(lease) => Ok((
            lease,
            String::from("no GPU is here, but a driver that computes on the CPU"),
        )),
        Err(FabricError::Disconnected(_)) => software_gpu(
            request,
            "neither a GPU nor a driver that computes on the CPU is here",
        ),
        Err(error) => Err(error),
    }
}

/// A lease on the software GPU, with this project's kernels as Rust closures: it does not execute
/// the kernel image.
fn software_gpu(request: GpuBuilder, why: &str) -> Result<(GpuLease, String), FabricError> {
    let backend = MockBackend::builder().strict(true).build();
    grafos_kernels::host::register(&backend);
    let host = Host::builder()
        .backend(Arc::new(backend))
        .software_devices(true)
        .build();
    let why = format!("{why}; the kernel runs as a Rust closure, not from its image");
    Ok((request.acquire_on(&host)?, why))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the example shows wall-clock times"
)]
fn timed<T>(action: impl FnOnce() -> Result<T, FabricError>) -> Result<(T, Duration), FabricError> {
    let start = Instant::now();
    action().map(|value| (value, start.elapsed()))
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
