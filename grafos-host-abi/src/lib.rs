//! The vocabulary that Grafos GPU's hosts, guests and backends share.
//!
//! A backend implements two object-safe traits: [`GpuBackend`] (what can be opened) and
//! [`GpuContext`] (an opened device: memory, modules, launches, streams, events). Everything else
//! here is the data that crosses those traits, and the [`wire`] codes that cross the boundary
//! between a host and a wasm guest.
//!
//! What is absent is as much a decision as what is here: no policy (which device to choose, who
//! may use it), no clock, no driver. The crate is `no_std` with `alloc`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `std` | links the standard library |
//! | `conformance` | the module `conformance`, the suite that every backend runs (implies `std`) |
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod backend;
mod context;
mod device;
mod error;
mod image;
mod launch;
mod memory;
mod module;
mod native;
mod stream;
pub mod wire;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use backend::{ContextOptions, GpuBackend, Probe};
pub use context::{CloseReport, GpuContext};
pub use device::{
    Capabilities, DeviceInfo, DeviceKind, DeviceLimits, DeviceUuid, DriverInfo, ParseUuidError,
    PciAddress, Vendor,
};
pub use error::{
    ArgumentFault, ArgumentProblem, Axis, BoundsFault, CapacityFault, DriverFault, ErrorKind,
    GpuError, HandleFault, HandleKind, KernelFault, LimitFault, LimitKind, LostFault, ModuleFault,
    TimeoutFault, UnsupportedFault,
};
pub use image::ImageFormat;
pub use launch::{LaunchArg, LaunchDesc};
pub use memory::{BufferDesc, BufferId, BufferInfo, BufferRange, FillPattern, MemoryInfo};
pub use module::{GlobalInfo, KernelId, KernelInfo, KernelParam, ModuleId, ModuleInfo, ParamKind};
pub use native::{NativeBuffer, NativeHandle, NativeObject};
pub use stream::{EventId, EventStatus, StreamId};

/// The result of every backend call.
pub type Result<T, E = GpuError> = core::result::Result<T, E>;
