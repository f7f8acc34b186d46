//! What the trials share: an open context with shorthands, and comparisons.

use std::sync::Arc;

use gpu_backend_vulkan::VulkanBackend;
use grafos_host_abi::{
    BufferDesc, BufferInfo, BufferRange, ContextOptions, GpuBackend, GpuContext, GpuError,
    KernelInfo, LaunchArg, LaunchDesc, StreamId,
};
use libtest_mimic::Failed;

pub(crate) type Outcome = Result<(), Failed>;

pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(what().into()) }
}

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    ensure(found == expected, || {
        format!("{what}: found {found:?}, expected {expected:?}")
    })
}

/// An open context with shorthands.
pub(crate) struct Device {
    pub(crate) context: Box<dyn GpuContext>,
    backend: Arc<VulkanBackend>,
}

pub(crate) enum Arg<'a> {
    Buffer(&'a BufferInfo),
    Bytes(&'a [u8]),
}

impl Device {
    pub(crate) fn open(backend: &Arc<VulkanBackend>) -> Result<Self, Failed> {
        Ok(Self {
            context: backend.open(0, &ContextOptions::default())?,
            backend: Arc::clone(backend),
        })
    }

    pub(crate) fn again(&self) -> Result<Self, Failed> {
        Self::open(&self.backend)
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<KernelInfo, GpuError> {
        let image = grafos_kernels::by_name(name).map_or(&[][..], |kernel| kernel.spirv);
        let module = self.context.load_module(image)?;
        self.context.kernel(module.id, name)
    }

    pub(crate) fn buffer(&self, size_bytes: u64) -> Result<BufferInfo, GpuError> {
        self.context.alloc(&BufferDesc::new(size_bytes))
    }

    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<BufferInfo, GpuError> {
        let buffer = self.buffer(bytes.len() as u64)?;
        self.context.write(StreamId::DEFAULT, all(&buffer), bytes)?;
        Ok(buffer)
    }

    pub(crate) fn download(&self, buffer: &BufferInfo) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; buffer.size_bytes as usize];
        self.context
            .read(StreamId::DEFAULT, all(buffer), &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn launch(
        &self,
        kernel: &KernelInfo,
        grid: u32,
        block: [u32; 3],
        args: &[Arg<'_>],
    ) -> Result<(), GpuError> {
        let addresses: Vec<[u8; 8]> = args
            .iter()
            .map(|arg| match arg {
                Arg::Buffer(buffer) => buffer.address.to_le_bytes(),
                Arg::Bytes(_) => [0; 8],
            })
            .collect();
        let args: Vec<LaunchArg<'_>> = args
            .iter()
            .zip(&addresses)
            .map(|(arg, address)| match arg {
                Arg::Buffer(buffer) => LaunchArg {
                    bytes: address,
                    buffer: Some(all(buffer)),
                },
                Arg::Bytes(bytes) => LaunchArg {
                    bytes,
                    buffer: None,
                },
            })
            .collect();
        self.context.launch(&LaunchDesc {
            kernel: kernel.id,
            grid: [grid, 1, 1],
            block,
            dynamic_shared_bytes: 0,
            args: &args,
            stream: StreamId::DEFAULT,
        })
    }

    /// Enqueues work that takes a second or so on a CPU.
    pub(crate) fn keep_busy(&self) -> Result<BufferInfo, GpuError> {
        let kernel = self.kernel("long_running")?;
        let elements = 1u32 << 16;
        let buffer = self.buffer(u64::from(elements) * 4)?;
        for _ in 0..8 {
            self.launch(
                &kernel,
                elements / 256,
                [256, 1, 1],
                &[Arg::Buffer(&buffer), Arg::Bytes(&60_000u32.to_le_bytes())],
            )?;
        }
        Ok(buffer)
    }
}

pub(crate) fn all(buffer: &BufferInfo) -> BufferRange {
    BufferRange {
        buffer: buffer.id,
        offset_bytes: 0,
        len_bytes: buffer.size_bytes,
    }
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect()
}
