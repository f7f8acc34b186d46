//! Leases, sessions, device memory, modules, kernels, streams and events.
//!
//! The way through: [`GpuBuilder`] acquires a [`GpuLease`]; [`GpuSession`] is opened on it and
//! hands out [`GpuMemHandle`]s, [`GpuModule`]s, [`GpuKernel`]s, [`GpuStream`]s and [`GpuEvent`]s.
//! All of them can be sent to and shared between threads, and all calls take `&self`.
//!
//! Handles free what they stand for when the last clone is dropped. Freeing is ordered after work
//! that has been launched, so a buffer can be dropped while a kernel still uses it. When the lease
//! ends, everything that lives in it goes with it, and later drops are silent.
//!
//! # What a kernel can do
//!
//! A kernel is code that the caller supplies, and it runs with the rights that its device gives
//! it. Arguments, dimensions and the bounds of host-side calls are checked; what a kernel does
//! with an address is not. On a device that computes on the CPU inside this process (lavapipe,
//! SwiftShader) a wild address reaches this process's memory.

mod args;
mod builder;
mod lease;
mod memory;
mod module;
mod session;
mod stream;

pub use args::KernelArgs;
pub use builder::{GpuBuilder, GpuExclusivityClass};
pub use grafos_host_abi::{
    Capabilities, DeviceInfo, DeviceKind, DeviceLimits, DeviceUuid, DriverInfo, EventStatus,
    FillPattern, ImageFormat, KernelInfo, KernelParam, MemoryInfo, NativeBuffer, NativeHandle,
    NativeObject, ParamKind, PciAddress,
};
pub use lease::GpuLease;
pub use memory::GpuMemHandle;
pub use module::{GpuKernel, GpuModule, LaunchConfig, ModuleBundle};
pub use session::GpuSession;
pub use stream::{GpuEvent, GpuStream};
