//! Owners of the device's smaller objects.

#![expect(unsafe_code, reason = "every Vulkan call is unsafe by nature")]

use std::ffi::CStr;
use std::sync::Arc;

use ash::vk;
use grafos_host_abi::Result;
use smallvec::SmallVec;

use super::Device;

/// A timeline semaphore.
///
/// It is never destroyed before its device: some drivers' own threads look at the semaphores of a
/// submission once more after they have told that it ended. The device keeps a dropped one for the
/// next who needs one.
pub(crate) struct Semaphore {
    raw: vk::Semaphore,
    device: Arc<Device>,
}

impl Semaphore {
    /// Takes one that was dropped, or creates one that stands at 0 (`vkCreateSemaphore`).
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let raw = match device.take_semaphore() {
            Some(raw) => raw,
            None => {
                let mut kind = vk::SemaphoreTypeCreateInfo::default()
                    .semaphore_type(vk::SemaphoreType::TIMELINE)
                    .initial_value(0);
                let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
                // SAFETY: `info` is valid for the call.
                let outcome = unsafe { device.raw().create_semaphore(&info, None) };
                device.check("vkCreateSemaphore", outcome)?
            }
        };
        let device = Arc::clone(device);
        Ok(Self { raw, device })
    }

    pub(super) fn raw(&self) -> vk::Semaphore {
        self.raw
    }

    /// The value reached so far (`vkGetSemaphoreCounterValue`).
    pub(crate) fn value(&self) -> Result<u64> {
        self.device.ensure_alive()?;
        // SAFETY: the semaphore is live and is a timeline semaphore.
        let outcome = unsafe { self.device.raw().get_semaphore_counter_value(self.raw) };
        self.device.check("vkGetSemaphoreCounterValue", outcome)
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.device.keep_semaphore(self.raw);
    }
}

/// A shader module.
pub(crate) struct ShaderModule {
    raw: vk::ShaderModule,
    device: Arc<Device>,
}

impl ShaderModule {
    /// Creates one from checked words (`vkCreateShaderModule`).
    pub(crate) fn new(device: &Arc<Device>, words: &[u32]) -> Result<Self> {
        device.ensure_alive()?;
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the words passed the structural checker.
        let outcome = unsafe { device.raw().create_shader_module(&info, None) };
        Ok(Self {
            raw: device.check("vkCreateShaderModule", outcome)?,
            device: Arc::clone(device),
        })
    }
}

impl Drop for ShaderModule {
    fn drop(&mut self) {
        // SAFETY: created from this device; pipelines do not need it any more.
        unsafe { self.device.raw().destroy_shader_module(self.raw, None) };
    }
}

/// A pipeline layout: at most one set of storage buffers, and a range of push constants.
pub(crate) struct PipelineLayout {
    raw: vk::PipelineLayout,
    set: vk::DescriptorSetLayout,
    device: Arc<Device>,
}

impl PipelineLayout {
    /// Creates the layouts. `bindings` are storage buffers of set 0; `pushed` says that their
    /// descriptors are pushed rather than allocated.
    pub(crate) fn new(
        device: &Arc<Device>,
        bindings: &[u32],
        pushed: bool,
        push_constant_bytes: u32,
    ) -> Result<Self> {
        device.ensure_alive()?;
        let mut layout = Self {
            raw: vk::PipelineLayout::null(),
            set: vk::DescriptorSetLayout::null(),
            device: Arc::clone(device),
        };
        let mut sets: SmallVec<[vk::DescriptorSetLayout; 1]> = SmallVec::new();
        if !bindings.is_empty() {
            let bindings: Vec<_> = bindings
                .iter()
                .map(|binding| {
                    vk::DescriptorSetLayoutBinding::default()
                        .binding(*binding)
                        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                        .descriptor_count(1)
                        .stage_flags(vk::ShaderStageFlags::COMPUTE)
                })
                .collect();
            let flags = if pushed {
                vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR
            } else {
                vk::DescriptorSetLayoutCreateFlags::empty()
            };
            let info = vk::DescriptorSetLayoutCreateInfo::default()
                .flags(flags)
                .bindings(&bindings);
            // SAFETY: `info` is valid for the call.
            let outcome = unsafe { device.raw().create_descriptor_set_layout(&info, None) };
            layout.set = device.check("vkCreateDescriptorSetLayout", outcome)?;
            sets.push(layout.set);
        }
        let range = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(push_constant_bytes)];
        let mut info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        if push_constant_bytes > 0 {
            info = info.push_constant_ranges(&range);
        }
        // SAFETY: `info` is valid for the call and the set layout is live.
        let outcome = unsafe { device.raw().create_pipeline_layout(&info, None) };
        layout.raw = device.check("vkCreatePipelineLayout", outcome)?;
        Ok(layout)
    }

    pub(super) fn raw(&self) -> vk::PipelineLayout {
        self.raw
    }
}

impl Drop for PipelineLayout {
    fn drop(&mut self) {
        // SAFETY: created from this device, or null; no work uses it any more.
        unsafe { self.device.raw().destroy_pipeline_layout(self.raw, None) };
        // SAFETY: as above.
        unsafe {
            self.device
                .raw()
                .destroy_descriptor_set_layout(self.set, None);
        }
    }
}

/// What a compute pipeline is made of.
pub(crate) struct PipelineDesc<'a> {
    pub(crate) module: &'a ShaderModule,
    /// The name of an entry point that the module has: drivers crash on any other.
    pub(crate) entry: &'a CStr,
    pub(crate) layout: &'a PipelineLayout,
    /// Specialization constants: id and value.
    pub(crate) constants: &'a [(u32, u32)],
}

/// A cache that makes equal pipelines cheap to create again.
pub(crate) struct PipelineCache {
    raw: vk::PipelineCache,
    device: Arc<Device>,
}

impl PipelineCache {
    /// Creates an empty cache (`vkCreatePipelineCache`).
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let info = vk::PipelineCacheCreateInfo::default();
        // SAFETY: `info` is valid for the call.
        let outcome = unsafe { device.raw().create_pipeline_cache(&info, None) };
        Ok(Self {
            raw: device.check("vkCreatePipelineCache", outcome)?,
            device: Arc::clone(device),
        })
    }
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        // SAFETY: created from this device; no pipeline is being created with it.
        unsafe { self.device.raw().destroy_pipeline_cache(self.raw, None) };
    }
}

/// A compute pipeline.
pub(crate) struct Pipeline {
    raw: vk::Pipeline,
    device: Arc<Device>,
}

impl Pipeline {
    /// Compiles a pipeline (`vkCreateComputePipelines`).
    pub(crate) fn new(
        device: &Arc<Device>,
        cache: &PipelineCache,
        desc: &PipelineDesc<'_>,
    ) -> Result<Self> {
        device.ensure_alive()?;
        let entries: SmallVec<[vk::SpecializationMapEntry; 3]> = (0u32..)
            .zip(desc.constants)
            .map(|(position, (id, _))| vk::SpecializationMapEntry {
                constant_id: *id,
                offset: position * 4,
                size: 4,
            })
            .collect();
        let data: SmallVec<[u8; 12]> = desc
            .constants
            .iter()
            .flat_map(|(_, value)| value.to_ne_bytes())
            .collect();
        let specialization = vk::SpecializationInfo::default()
            .map_entries(&entries)
            .data(&data);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(desc.module.raw)
            .name(desc.entry)
            .specialization_info(&specialization);
        let info = [vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(desc.layout.raw)];
        // SAFETY: module, layout and cache are live, and the module has the entry point.
        let outcome = unsafe {
            device
                .raw()
                .create_compute_pipelines(cache.raw, &info, None)
        };
        let raw = match outcome {
            Ok(pipelines) => pipelines.first().copied().unwrap_or_default(),
            Err((_, result)) => {
                return Err(device.failure("vkCreateComputePipelines", result, 0));
            }
        };
        Ok(Self {
            raw,
            device: Arc::clone(device),
        })
    }

    pub(super) fn raw(&self) -> vk::Pipeline {
        self.raw
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: created from this device; no work uses it any more.
        unsafe { self.device.raw().destroy_pipeline(self.raw, None) };
    }
}

/// A pool of timestamps.
pub(crate) struct QueryPool {
    raw: vk::QueryPool,
    device: Arc<Device>,
}

impl QueryPool {
    /// Creates a pool of `count` timestamps (`vkCreateQueryPool`).
    pub(crate) fn new(device: &Arc<Device>, count: u32) -> Result<Self> {
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(count);
        // SAFETY: `info` is valid for the call.
        let outcome = unsafe { device.raw().create_query_pool(&info, None) };
        Ok(Self {
            raw: device.check("vkCreateQueryPool", outcome)?,
            device: Arc::clone(device),
        })
    }

    pub(super) fn raw(&self) -> vk::QueryPool {
        self.raw
    }

    /// Reads a timestamp; `None` when it has not been written (`vkGetQueryPoolResults`).
    pub(crate) fn timestamp(&self, index: u32) -> Result<Option<u64>> {
        self.device.ensure_alive()?;
        let mut value = [0u64; 1];
        // SAFETY: the pool is live, and `index` is one that it was made with.
        let outcome = unsafe {
            self.device.raw().get_query_pool_results(
                self.raw,
                index,
                &mut value,
                vk::QueryResultFlags::TYPE_64,
            )
        };
        match outcome {
            Ok(()) => Ok(Some(value[0])),
            Err(vk::Result::NOT_READY) => Ok(None),
            Err(result) => Err(self.device.failure("vkGetQueryPoolResults", result, 0)),
        }
    }
}

impl Drop for QueryPool {
    fn drop(&mut self) {
        // SAFETY: created from this device; no work writes to it any more.
        unsafe { self.device.raw().destroy_query_pool(self.raw, None) };
    }
}

/// A pool of sets of storage-buffer descriptors.
pub(crate) struct DescriptorPool {
    raw: vk::DescriptorPool,
    device: Arc<Device>,
}

impl DescriptorPool {
    /// Creates a pool for `sets` sets with `descriptors` storage buffers in all.
    pub(crate) fn new(device: &Arc<Device>, sets: u32, descriptors: u32) -> Result<Self> {
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(descriptors)];
        let info = vk::DescriptorPoolCreateInfo::default()
            .max_sets(sets)
            .pool_sizes(&sizes);
        // SAFETY: `info` is valid for the call.
        let outcome = unsafe { device.raw().create_descriptor_pool(&info, None) };
        Ok(Self {
            raw: device.check("vkCreateDescriptorPool", outcome)?,
            device: Arc::clone(device),
        })
    }

    /// Allocates a set and writes its descriptors; `None` when the pool is exhausted.
    pub(super) fn allocate(
        &mut self,
        layout: &PipelineLayout,
    ) -> Result<Option<vk::DescriptorSet>> {
        let layouts = [layout.set];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.raw)
            .set_layouts(&layouts);
        // SAFETY: pool and layout are live; `&mut self` keeps other threads out.
        match unsafe { self.device.raw().allocate_descriptor_sets(&info) } {
            Ok(sets) => Ok(sets.first().copied()),
            Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL) => {
                Ok(None)
            }
            Err(result) => Err(self.device.failure("vkAllocateDescriptorSets", result, 0)),
        }
    }

    /// Takes all sets back (`vkResetDescriptorPool`). No work may use them any more.
    pub(crate) fn reset(&mut self) -> Result<()> {
        // SAFETY: the batch that used the sets has ended.
        let outcome = unsafe {
            self.device
                .raw()
                .reset_descriptor_pool(self.raw, vk::DescriptorPoolResetFlags::empty())
        };
        self.device.check("vkResetDescriptorPool", outcome)
    }
}

impl Drop for DescriptorPool {
    fn drop(&mut self) {
        // SAFETY: created from this device; no work uses its sets any more.
        unsafe { self.device.raw().destroy_descriptor_pool(self.raw, None) };
    }
}
