//! Whatever serves the SDK: natively a host in this process, in a wasm guest its imports.
//!
//! Natively, [`Host`] owns the backends, the lease table and the choice of a device. Most programs
//! never name it: [`GpuBuilder::acquire`](crate::gpu::GpuBuilder::acquire) uses the calling
//! thread's current host, which is the process's default one ([`Host::ambient`]) unless
//! [`reset_mock`] has given the thread a software GPU of its own.
//!
//! # Environment
//!
//! The default host reads these once:
//!
//! | variable | value | effect |
//! |---|---|---|
//! | `GRAFOS_BACKEND` | `auto`, `vulkan` or `mock` | the backends to use; a backend that is named also offers devices that compute on the CPU |
//! | `GRAFOS_DEVICE` | index, UUID, PCI address or part of a name | the devices to use |
//! | `GRAFOS_SYNC_LAUNCH` | `1` | waits after each launch and names the kernel in what goes wrong |
//!
//! The drivers honor their own variables (`VK_ICD_FILENAMES`, ...).
//!
//! The `gpu_*` functions are the host calls behind the SDK's types, by lease id and raw handle, on
//! the calling thread's current host.

#[cfg(not(target_arch = "wasm32"))]
mod ambient;
mod calls;
#[cfg(not(target_arch = "wasm32"))]
mod clock;
#[cfg(not(target_arch = "wasm32"))]
mod core;
#[cfg(not(target_arch = "wasm32"))]
mod devices;
#[cfg(not(target_arch = "wasm32"))]
mod fork;
mod gate;
#[cfg(target_arch = "wasm32")]
mod guest;
#[cfg(not(target_arch = "wasm32"))]
mod lease;
#[cfg(all(feature = "mock", not(target_arch = "wasm32")))]
mod mock;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(not(target_arch = "wasm32"))]
mod reaper;
mod request;
#[cfg(not(target_arch = "wasm32"))]
mod select;
mod session;
#[cfg(not(target_arch = "wasm32"))]
mod table;
mod validate;

pub use calls::{
    gpu_lease_alloc, gpu_lease_free, gpu_lease_query, gpu_lease_renew, gpu_session_launch,
    gpu_session_mem_alloc, gpu_session_mem_free, gpu_session_mem_read, gpu_session_mem_write,
    gpu_session_module_load, gpu_session_module_unload, gpu_session_sync, unix_time_secs,
};
#[cfg(not(target_arch = "wasm32"))]
pub use clock::{Clock, SystemClock};
#[cfg(all(feature = "mock", not(target_arch = "wasm32")))]
pub use mock::{
    mock_advance_time_secs, mock_backend, mock_set_unix_time_secs, reset_mock, reset_mock_with,
    test_mock,
};
#[cfg(not(target_arch = "wasm32"))]
pub use native::{Host, HostBuilder, HostDevice, HostLease};

#[cfg(target_arch = "wasm32")]
use guest as lease;

#[cfg(target_arch = "wasm32")]
pub(crate) use guest::{LeaseCore, LeaseEnd};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use lease::{LeaseCore, LeaseEnd};
pub(crate) use request::LeaseRequest;
pub(crate) use session::{BufferEntry, KernelEntry, LaunchRequest, ModuleEntry, SessionCore};
