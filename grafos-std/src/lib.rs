//! Leases and sessions on a GPU, the same on every vendor's.
//!
//! An application asks for a [lease](gpu::GpuLease) on a GPU (how much memory, how exclusive, near
//! what, for how long), opens a [session](gpu::GpuSession) on it, and drives device memory,
//! modules, launches and waits. The code runs in-process on the backends that are compiled in, and
//! compiled to wasm32 it runs as a guest whose calls are imports that a host serves.
//!
//! ```
//! use grafos_std::gpu::{GpuBuilder, GpuSession};
//!
//! # grafos_std::host::reset_mock();
//! let lease = GpuBuilder::new().min_vram(1 << 20).lease_secs(60).acquire()?;
//! let session = GpuSession::new(&lease);
//! let buffer = session.mem_alloc(4)?;
//! session.mem_write(&buffer, 0, &[1, 2, 3, 4])?;
//! assert_eq!(session.mem_read(&buffer, 1, 2)?, [2, 3]);
//! # Ok::<(), grafos_std::FabricError>(())
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `std` (default) | the in-process host; required natively |
//! | `vulkan` (default) | Vulkan compute on any driver of version 1.2 or later, loaded at run time |
//! | `mock` (default) | a GPU in software and `host::reset_mock` |
//! | `observe` | callbacks for lease, memory, launch and error events |
//!
//! On wasm32 none of the backends is built, whatever the features.
#![no_std]

#[cfg(all(not(target_arch = "wasm32"), not(feature = "std")))]
compile_error!(
    "grafos-std needs its feature `std` on native targets: the in-process host uses threads, \
     environment variables and the system's clock; only wasm32 guests build without it"
);

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod affinity;
pub mod error;
pub mod gpu;
mod hook;
pub mod host;
pub mod lease;
#[cfg(feature = "observe")]
pub mod observe;
mod sync;

pub use error::FabricError;

/// The examples of the README files, which have to compile.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../README.md")]
    pub(crate) struct OfThisCrate;
    #[doc = include_str!("../../README.md")]
    pub(crate) struct OfTheProject;
}
