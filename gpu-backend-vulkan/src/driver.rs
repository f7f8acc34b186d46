//! The Vulkan driver: loading it, checked calls, and owners of its objects.
//!
//! All calls into the driver are here and in the modules below. What they hand out is safe to use
//! under one rule that the rest of the crate keeps: **an object that a command buffer refers to
//! lives until the batch that the buffer belongs to has ended** (see `stream`).
//!
//! Each driver object has one owner, which destroys it on drop and holds its parent: buffers,
//! pools, pipelines and semaphores hold the device, the device holds the instance, the instance
//! holds the library. So the order of teardown is right whatever is dropped first.

mod builder;
mod commands;
mod device;
mod exit;
mod instance;
mod memory;
mod objects;
mod physical;
mod validation;

pub use builder::VulkanBackendBuilder;
pub(crate) use commands::{Commands, DescriptorWrite, Region};
pub(crate) use device::{Device, SubmitBatch, WaitEnd};
pub(crate) use exit::ExitGuard;
pub(crate) use instance::{Instance, InstanceOptions, LoadFailure, call_failure};
pub(crate) use memory::{Allocator, DeviceBuffer};
pub(crate) use objects::{
    DescriptorPool, Pipeline, PipelineCache, PipelineDesc, PipelineLayout, QueryPool, Semaphore,
    ShaderModule,
};
pub(crate) use physical::{Abilities, HeapBudget, MemoryType, Physical, PhysicalInfo, QueueFamily};
pub use validation::ValidationMessage;
