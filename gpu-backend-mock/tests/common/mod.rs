//! What the tests of this crate share.
#![allow(dead_code, reason = "no test file uses all of it")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use gpu_backend_mock::{HostKernel, KernelSignature, MockBackend};
use grafos_host_abi::{
    BufferDesc, BufferInfo, BufferRange, ContextOptions, GpuBackend, GpuContext, GpuError,
    KernelId, LaunchArg, LaunchDesc, StreamId,
};

/// Long enough for anything that is going to happen at all.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A wait that is not going to be satisfied.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// A lenient backend with some kernels, which run on `threads` threads.
pub(crate) fn backend(
    threads: usize,
    kernels: impl IntoIterator<Item = HostKernel>,
) -> MockBackend {
    let builder = MockBackend::builder().worker_threads(threads);
    kernels
        .into_iter()
        .fold(builder, |builder, kernel| builder.kernel(kernel))
        .build()
}

/// c = a + b for n floats.
pub(crate) fn vector_add() -> HostKernel {
    let signature = KernelSignature::new()
        .buffer()
        .buffer()
        .buffer()
        .value::<u32>();
    HostKernel::new("vector_add", signature, |scope| {
        let (a, b) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
        let (c, n) = (scope.buffer::<f32>(2)?, scope.arg::<u32>(3)?);
        scope.for_each_thread(|thread| {
            let i = thread.global_x();
            if i < n as usize {
                c.store(i, a.load(i)? + b.load(i)?)?;
            }
            Ok(())
        })
    })
}

pub(crate) fn open(backend: &MockBackend) -> Box<dyn GpuContext> {
    backend.open(0, &ContextOptions::default()).unwrap()
}

pub(crate) fn alloc(context: &dyn GpuContext, size_bytes: u64) -> BufferInfo {
    context.alloc(&BufferDesc::new(size_bytes)).unwrap()
}

pub(crate) fn range(buffer: BufferInfo, offset_bytes: u64, len_bytes: u64) -> BufferRange {
    BufferRange {
        buffer: buffer.id,
        offset_bytes,
        len_bytes,
    }
}

pub(crate) fn whole(buffer: BufferInfo) -> BufferRange {
    range(buffer, 0, buffer.size_bytes)
}

pub(crate) fn write(context: &dyn GpuContext, buffer: BufferInfo, data: &[u8]) {
    let target = range(buffer, 0, data.len() as u64);
    context.write(StreamId::DEFAULT, target, data).unwrap();
}

pub(crate) fn read(context: &dyn GpuContext, buffer: BufferInfo) -> Result<Vec<u8>, GpuError> {
    let mut out = vec![0; buffer.size_bytes as usize];
    context.read(StreamId::DEFAULT, whole(buffer), &mut out)?;
    Ok(out)
}

pub(crate) fn read_u32(context: &dyn GpuContext, buffer: BufferInfo) -> Vec<u32> {
    let bytes = read(context, buffer).unwrap();
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

pub(crate) fn read_f32(context: &dyn GpuContext, buffer: BufferInfo) -> Vec<f32> {
    let words = read_u32(context, buffer);
    words.into_iter().map(f32::from_bits).collect()
}

/// Allocates a buffer with these values in it.
pub(crate) fn buffer_u32(context: &dyn GpuContext, values: &[u32]) -> BufferInfo {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let buffer = alloc(context, bytes.len() as u64);
    write(context, buffer, &bytes);
    buffer
}

/// Allocates a buffer with these values in it.
pub(crate) fn buffer_f32(context: &dyn GpuContext, values: &[f32]) -> BufferInfo {
    let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    buffer_u32(context, &words)
}

/// Loads a module and resolves a kernel of it.
pub(crate) fn kernel(context: &dyn GpuContext, name: &str) -> KernelId {
    let module = context.load_module(b".version 7.0\n").unwrap();
    context.kernel(module.id, name).unwrap().id
}

pub(crate) struct Launch<'a> {
    pub(crate) kernel: KernelId,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) args: &'a [&'a [u8]],
    pub(crate) stream: StreamId,
}

impl<'a> Launch<'a> {
    /// One-dimensional, on the default stream.
    pub(crate) fn new(kernel: KernelId, blocks: u32, threads: u32, args: &'a [&'a [u8]]) -> Self {
        Self {
            kernel,
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared_bytes: 0,
            args,
            stream: StreamId::DEFAULT,
        }
    }

    pub(crate) fn run(&self, context: &dyn GpuContext) -> Result<(), GpuError> {
        let args: Vec<_> = self
            .args
            .iter()
            .map(|bytes| LaunchArg {
                bytes,
                buffer: None,
            })
            .collect();
        context.launch(&LaunchDesc {
            kernel: self.kernel,
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            args: &args,
            stream: self.stream,
        })
    }
}

/// Waits for what another thread is about to do.
#[expect(
    clippy::disallowed_methods,
    reason = "bounds the wait when the test fails"
)]
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "{what} never happened");
        std::thread::yield_now();
    }
}
