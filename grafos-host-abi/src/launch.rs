//! Kernel launches.

use crate::{BufferRange, KernelId, StreamId};

/// A launch whose arguments and dimensions the host has checked.
#[derive(Debug, Clone, Copy)]
pub struct LaunchDesc<'a> {
    /// The kernel, resolved by [`GpuContext::kernel`](crate::GpuContext::kernel).
    pub kernel: KernelId,
    /// Blocks per axis, x y z; each at least one.
    pub grid: [u32; 3],
    /// Threads per block and axis, x y z; each at least one.
    pub block: [u32; 3],
    /// Shared memory per block beyond what the kernel declares itself, in bytes. Zero where
    /// [`Capabilities::dynamic_shared_memory`](crate::Capabilities::dynamic_shared_memory) is
    /// false.
    pub dynamic_shared_bytes: u32,
    /// The arguments, in the order of [`KernelInfo::params`](crate::KernelInfo::params) where
    /// that is known, else as the caller gave them.
    pub args: &'a [LaunchArg<'a>],
    /// Where the launch is enqueued.
    pub stream: StreamId,
}

/// One argument of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchArg<'a> {
    /// The argument's bytes, little-endian, as many as the parameter has.
    pub bytes: &'a [u8],
    /// For a parameter of kind [`BoundBuffer`](crate::ParamKind::BoundBuffer): the live buffer
    /// that the address in `bytes` points into, from that address to the buffer's end.
    pub buffer: Option<BufferRange>,
}
