//! An open context, with the calls that cases make most.

use core::ops::Deref;
use std::boxed::Box;
use std::prelude::v1::*;
use std::{format, vec};

use super::check::{Checked, Stop, ensure_eq};
use super::runner::Suite;
use crate::{
    BufferDesc, BufferId, BufferInfo, BufferRange, GpuContext, KernelInfo, LaunchArg, LaunchDesc,
    ModuleId, ParamKind, StreamId,
};

/// An open context of the suite's device.
pub(super) struct Gpu<'s> {
    pub(super) suite: &'s Suite,
    context: Box<dyn GpuContext>,
}

/// A buffer, by the id and address that the backend gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) id: BufferId,
    pub(super) address: u64,
    pub(super) size_bytes: u64,
}

impl Buffer {
    pub(super) fn all(self) -> BufferRange {
        self.range(0, self.size_bytes)
    }

    pub(super) fn range(self, offset_bytes: u64, len_bytes: u64) -> BufferRange {
        BufferRange {
            buffer: self.id,
            offset_bytes,
            len_bytes,
        }
    }
}

/// A kernel, and the module that holds it.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) module: ModuleId,
    pub(super) info: KernelInfo,
}

/// An argument of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg<'a> {
    /// The address of a buffer.
    Buffer(Buffer),
    /// The address of a byte within a buffer.
    Within(Buffer, u64),
    U32(u32),
    F32(f32),
    F64(f64),
    Bytes(&'a [u8]),
}

impl Arg<'_> {
    fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Buffer(buffer) => buffer.address.to_le_bytes().to_vec(),
            Self::Within(buffer, offset_bytes) => {
                (buffer.address + offset_bytes).to_le_bytes().to_vec()
            }
            Self::U32(value) => value.to_le_bytes().to_vec(),
            Self::F32(value) => value.to_bits().to_le_bytes().to_vec(),
            Self::F64(value) => value.to_bits().to_le_bytes().to_vec(),
            Self::Bytes(bytes) => bytes.to_vec(),
        }
    }

    fn to_range(self) -> Option<BufferRange> {
        match self {
            Self::Buffer(buffer) => Some(buffer.all()),
            Self::Within(buffer, offset_bytes) => {
                Some(buffer.range(offset_bytes, buffer.size_bytes - offset_bytes))
            }
            _ => None,
        }
    }
}

impl Deref for Gpu<'_> {
    type Target = dyn GpuContext;

    fn deref(&self) -> &Self::Target {
        &*self.context
    }
}

impl<'s> Gpu<'s> {
    pub(super) fn new(suite: &'s Suite, context: Box<dyn GpuContext>) -> Self {
        Self { suite, context }
    }

    /// Allocates, and holds the answer against the request.
    #[track_caller]
    pub(super) fn buffer(&self, size_bytes: u64) -> Checked<Buffer> {
        let BufferInfo {
            id,
            address,
            size_bytes: granted_bytes,
        } = self.alloc(&BufferDesc::new(size_bytes))?;
        ensure_eq("size of a new buffer", granted_bytes, size_bytes)?;
        Ok(Buffer {
            id,
            address,
            size_bytes,
        })
    }

    /// Allocates a buffer and writes it on the default stream.
    #[track_caller]
    pub(super) fn upload(&self, bytes: &[u8]) -> Checked<Buffer> {
        let buffer = self.buffer(bytes.len() as u64)?;
        self.write(StreamId::DEFAULT, buffer.all(), bytes)?;
        Ok(buffer)
    }

    #[track_caller]
    pub(super) fn upload_words(&self, words: &[u32]) -> Checked<Buffer> {
        self.upload(&word_bytes(words))
    }

    #[track_caller]
    pub(super) fn upload_floats(&self, floats: &[f32]) -> Checked<Buffer> {
        self.upload(&float_bytes(floats))
    }

    /// Reads a whole buffer on the default stream.
    #[track_caller]
    pub(super) fn download(&self, buffer: Buffer) -> Checked<Vec<u8>> {
        self.download_range(buffer.all())
    }

    #[track_caller]
    pub(super) fn download_range(&self, range: BufferRange) -> Checked<Vec<u8>> {
        self.download_on(StreamId::DEFAULT, range)
    }

    #[track_caller]
    pub(super) fn download_on(&self, stream: StreamId, range: BufferRange) -> Checked<Vec<u8>> {
        // Neither zero nor what cases write, so that bytes that a read leaves out show.
        let mut bytes = vec![0xA7; range.len_bytes as usize];
        self.read(stream, range, &mut bytes)?;
        Ok(bytes)
    }

    #[track_caller]
    pub(super) fn download_words(&self, buffer: Buffer) -> Checked<Vec<u32>> {
        Ok(words_of(&self.download(buffer)?))
    }

    /// Loads a module by its logical name, and resolves the kernel of that name.
    #[track_caller]
    pub(super) fn load(&self, name: &str) -> Checked<Kernel> {
        let image = self.suite.image(name)?;
        let module = self.load_module(&image)?.id;
        let info = self.kernel(module, name)?;
        Ok(Kernel { module, info })
    }

    /// Launches on the default stream.
    #[track_caller]
    pub(super) fn launch_default(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[Arg<'_>],
    ) -> Checked {
        self.launch_on(StreamId::DEFAULT, kernel, grid, block, args)
    }

    /// Launches enough blocks on axis x for `len` threads.
    #[track_caller]
    pub(super) fn launch_linear(
        &self,
        stream: StreamId,
        kernel: &Kernel,
        block_len: u32,
        len: u32,
        args: &[Arg<'_>],
    ) -> Checked {
        let grid = [len.div_ceil(block_len), 1, 1];
        self.launch_on(stream, kernel, grid, [block_len, 1, 1], args)
    }

    #[track_caller]
    pub(super) fn launch_on(
        &self,
        stream: StreamId,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[Arg<'_>],
    ) -> Checked {
        self.launch_with_shared(stream, kernel, grid, block, 0, args)
    }

    #[track_caller]
    pub(super) fn launch_with_shared(
        &self,
        stream: StreamId,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: u32,
        args: &[Arg<'_>],
    ) -> Checked {
        let bytes: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_bytes()).collect();
        let args = bind(&kernel.info, args, &bytes)?;
        self.launch(&LaunchDesc {
            kernel: kernel.info.id,
            grid,
            block,
            dynamic_shared_bytes,
            args: &args,
            stream,
        })?;
        Ok(())
    }

    /// A block on axis x for a kernel: the one that it requires, or the wanted length as far as
    /// the kernel and the device allow.
    pub(super) fn block_len(&self, kernel: &Kernel, wanted: u32) -> u32 {
        match kernel.info.required_block {
            Some([x, _, _]) => x,
            None => wanted
                .min(kernel.info.max_threads_per_block)
                .min(self.device().limits.max_block[0]),
        }
    }

    /// A stream beside the default one.
    #[track_caller]
    pub(super) fn stream(&self) -> Checked<StreamId> {
        self.suite
            .need(self.device().capabilities.streams, "streams")?;
        Ok(self.create_stream()?)
    }

    pub(super) fn into_context(self) -> Box<dyn GpuContext> {
        self.context
    }
}

/// Joins arguments with what the kernel says of its parameters, as a host does, and refuses what
/// a host would refuse.
#[track_caller]
fn bind<'a>(
    info: &KernelInfo,
    args: &[Arg<'_>],
    bytes: &'a [Vec<u8>],
) -> Checked<Vec<LaunchArg<'a>>> {
    let Some(params) = &info.params else {
        let unbound = |bytes: &'a Vec<u8>| LaunchArg {
            bytes,
            buffer: None,
        };
        return Ok(bytes.iter().map(unbound).collect());
    };
    let sizes: Vec<u32> = params.iter().map(|param| param.size_bytes).collect();
    let given: Vec<u32> = bytes.iter().map(|bytes| bytes.len() as u32).collect();
    if sizes != given {
        return Err(Stop::failed(format!(
            "kernel {:?} reports parameters of {sizes:?} bytes, and takes {given:?}",
            info.name
        )));
    }
    Ok(params
        .iter()
        .zip(args)
        .zip(bytes)
        .map(|((param, arg), bytes)| LaunchArg {
            bytes,
            buffer: (param.kind == ParamKind::BoundBuffer)
                .then(|| arg.to_range())
                .flatten(),
        })
        .collect())
}

/// Words in little-endian bytes.
pub(super) fn word_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The bits of floats in little-endian bytes.
pub(super) fn float_bytes(floats: &[f32]) -> Vec<u8> {
    floats
        .iter()
        .flat_map(|float| float.to_bits().to_le_bytes())
        .collect()
}

/// Words from little-endian bytes; bytes after the last whole word are left out.
pub(super) fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// The bits of floats, so that they compare exactly.
pub(super) fn bits_of(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|float| float.to_bits()).collect()
}
