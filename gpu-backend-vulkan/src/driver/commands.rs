//! A command buffer with a pool of its own, and what is recorded into it.
//!
//! What a recording names must live until the batch has ended; see `driver`.

#![expect(unsafe_code, reason = "every Vulkan call is unsafe by nature")]

use std::sync::Arc;

use ash::vk;
use grafos_host_abi::Result;
use smallvec::SmallVec;

use super::{DescriptorPool, Device, DeviceBuffer, Pipeline, PipelineLayout, QueryPool};

/// A primary command buffer that can be recorded, submitted once, and recorded again.
pub(crate) struct Commands {
    raw: vk::CommandBuffer,
    pool: vk::CommandPool,
    device: Arc<Device>,
}

/// A storage buffer's place in a descriptor set.
#[derive(Clone, Copy)]
pub(crate) struct DescriptorWrite<'a> {
    pub(crate) binding: u32,
    pub(crate) buffer: &'a DeviceBuffer,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// A copied region, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) src_offset: u64,
    pub(crate) dst_offset: u64,
    pub(crate) len: u64,
}

/// Kernels and transfers: everything that a stream runs.
const WORK: vk::PipelineStageFlags = vk::PipelineStageFlags::from_raw(
    vk::PipelineStageFlags::COMPUTE_SHADER.as_raw() | vk::PipelineStageFlags::TRANSFER.as_raw(),
);

const WORK_ACCESS: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::SHADER_READ.as_raw()
        | vk::AccessFlags::SHADER_WRITE.as_raw()
        | vk::AccessFlags::TRANSFER_READ.as_raw()
        | vk::AccessFlags::TRANSFER_WRITE.as_raw(),
);

const WORK_WRITES: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::SHADER_WRITE.as_raw() | vk::AccessFlags::TRANSFER_WRITE.as_raw(),
);

impl Commands {
    /// Creates a pool with one command buffer.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::TRANSIENT)
            .queue_family_index(device.family().index);
        // SAFETY: `info` is valid for the call and names a family the device was created with.
        let outcome = unsafe { device.raw().create_command_pool(&info, None) };
        let mut commands = Self {
            raw: vk::CommandBuffer::null(),
            pool: device.check("vkCreateCommandPool", outcome)?,
            device: Arc::clone(device),
        };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(commands.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is live.
        let outcome = unsafe { device.raw().allocate_command_buffers(&info) };
        let buffers = device.check("vkAllocateCommandBuffers", outcome)?;
        commands.raw = buffers.first().copied().unwrap_or_default();
        Ok(commands)
    }

    pub(super) fn raw(&self) -> vk::CommandBuffer {
        self.raw
    }

    /// Starts a recording.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the buffer is in its initial state: new, or its pool was reset.
        let outcome = unsafe { self.device.raw().begin_command_buffer(self.raw, &info) };
        self.device.check("vkBeginCommandBuffer", outcome)
    }

    /// Ends a recording.
    pub(crate) fn end(&mut self) -> Result<()> {
        // SAFETY: the buffer is being recorded.
        let outcome = unsafe { self.device.raw().end_command_buffer(self.raw) };
        self.device.check("vkEndCommandBuffer", outcome)
    }

    /// Forgets a recording. The batch must have ended.
    pub(crate) fn reset(&mut self) -> Result<()> {
        // SAFETY: the pool's only buffer is not in use any more.
        let outcome = unsafe {
            self.device
                .raw()
                .reset_command_pool(self.pool, vk::CommandPoolResetFlags::empty())
        };
        self.device.check("vkResetCommandPool", outcome)
    }

    /// Makes later kernels and transfers wait for, and see, earlier ones.
    pub(crate) fn order_work(&mut self) {
        self.barrier(WORK, WORK_WRITES, WORK, WORK_ACCESS);
    }

    /// Makes the writes of kernels and transfers visible to the host, once it has waited.
    pub(crate) fn order_host_reads(&mut self) {
        self.barrier(
            WORK,
            WORK_WRITES,
            vk::PipelineStageFlags::HOST,
            vk::AccessFlags::HOST_READ,
        );
    }

    /// Orders everything before against everything after, whatever it is.
    pub(crate) fn order_everything(&mut self) {
        self.barrier(
            vk::PipelineStageFlags::ALL_COMMANDS,
            vk::AccessFlags::MEMORY_WRITE,
            vk::PipelineStageFlags::ALL_COMMANDS,
            vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE,
        );
    }

    fn barrier(
        &mut self,
        src_stages: vk::PipelineStageFlags,
        src_access: vk::AccessFlags,
        dst_stages: vk::PipelineStageFlags,
        dst_access: vk::AccessFlags,
    ) {
        let barriers = [vk::MemoryBarrier::default()
            .src_access_mask(src_access)
            .dst_access_mask(dst_access)];
        // SAFETY: the buffer is being recorded.
        unsafe {
            self.device.raw().cmd_pipeline_barrier(
                self.raw,
                src_stages,
                dst_stages,
                vk::DependencyFlags::empty(),
                &barriers,
                &[],
                &[],
            );
        }
    }

    /// Binds a compute pipeline.
    pub(crate) fn bind_pipeline(&mut self, pipeline: &Pipeline) {
        // SAFETY: the buffer is being recorded and the pipeline outlives the batch.
        unsafe {
            self.device.raw().cmd_bind_pipeline(
                self.raw,
                vk::PipelineBindPoint::COMPUTE,
                pipeline.raw(),
            );
        }
    }

    /// Sets all push constants of a layout. `bytes` is as long as the layout's range.
    pub(crate) fn push_constants(&mut self, layout: &PipelineLayout, bytes: &[u8]) {
        // SAFETY: the buffer is being recorded and the range is the layout's own.
        unsafe {
            self.device.raw().cmd_push_constants(
                self.raw,
                layout.raw(),
                vk::ShaderStageFlags::COMPUTE,
                0,
                bytes,
            );
        }
    }

    /// Sets the storage buffers of set 0 by pushing them. The device has push descriptors.
    pub(crate) fn push_descriptors(
        &mut self,
        layout: &PipelineLayout,
        writes: &[DescriptorWrite<'_>],
    ) {
        let Some(functions) = self.device.push_descriptor() else {
            return;
        };
        with_writes(vk::DescriptorSet::null(), writes, |writes| {
            // SAFETY: the buffer is being recorded; the layout's set takes pushed descriptors;
            // the buffers outlive the batch.
            unsafe {
                functions.cmd_push_descriptor_set(
                    self.raw,
                    vk::PipelineBindPoint::COMPUTE,
                    layout.raw(),
                    0,
                    writes,
                );
            }
        });
    }

    /// Sets the storage buffers of set 0 through a set from `pool`; false when it is exhausted.
    pub(crate) fn bind_descriptors(
        &mut self,
        pool: &mut DescriptorPool,
        layout: &PipelineLayout,
        writes: &[DescriptorWrite<'_>],
    ) -> Result<bool> {
        let Some(set) = pool.allocate(layout)? else {
            return Ok(false);
        };
        with_writes(set, writes, |writes| {
            // SAFETY: the set is new, so no work uses it; the buffers outlive the batch.
            unsafe { self.device.raw().update_descriptor_sets(writes, &[]) };
        });
        // SAFETY: the buffer is being recorded and the set outlives the batch.
        unsafe {
            self.device.raw().cmd_bind_descriptor_sets(
                self.raw,
                vk::PipelineBindPoint::COMPUTE,
                layout.raw(),
                0,
                &[set],
                &[],
            );
        }
        Ok(true)
    }

    /// Runs the bound pipeline over a grid of blocks.
    pub(crate) fn dispatch(&mut self, grid: [u32; 3]) {
        // SAFETY: the buffer is being recorded, a pipeline is bound with all it needs, and the
        // grid is within the device's limits.
        unsafe {
            self.device
                .raw()
                .cmd_dispatch(self.raw, grid[0], grid[1], grid[2]);
        }
    }

    /// Copies a region between two buffers, or two regions of one that do not overlap.
    pub(crate) fn copy(&mut self, dst: &DeviceBuffer, src: &DeviceBuffer, region: Region) {
        let regions = [vk::BufferCopy {
            src_offset: region.src_offset,
            dst_offset: region.dst_offset,
            size: region.len,
        }];
        // SAFETY: the buffer is being recorded, the regions are inside the buffers, and these
        // outlive the batch.
        unsafe {
            self.device
                .raw()
                .cmd_copy_buffer(self.raw, src.raw(), dst.raw(), &regions);
        }
    }

    /// Fills with a word; offset and length are multiples of 4.
    pub(crate) fn fill(&mut self, dst: &DeviceBuffer, offset: u64, len: u64, word: u32) {
        // SAFETY: the buffer is being recorded, the range is inside `dst`, which outlives the
        // batch.
        unsafe {
            self.device
                .raw()
                .cmd_fill_buffer(self.raw, dst.raw(), offset, len, word);
        }
    }

    /// Writes the time when everything before has ended.
    pub(crate) fn timestamp(&mut self, pool: &QueryPool, index: u32) {
        // SAFETY: the buffer is being recorded, and nobody else uses this query.
        unsafe {
            self.device
                .raw()
                .cmd_reset_query_pool(self.raw, pool.raw(), index, 1);
        }
        // SAFETY: as above; the pool outlives the batch.
        unsafe {
            self.device.raw().cmd_write_timestamp(
                self.raw,
                vk::PipelineStageFlags::BOTTOM_OF_PIPE,
                pool.raw(),
                index,
            );
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: created from this device; its buffer is not in use any more.
        unsafe { self.device.raw().destroy_command_pool(self.pool, None) };
    }
}

fn with_writes(
    set: vk::DescriptorSet,
    writes: &[DescriptorWrite<'_>],
    use_writes: impl FnOnce(&[vk::WriteDescriptorSet<'_>]),
) {
    let infos: SmallVec<[[vk::DescriptorBufferInfo; 1]; 8]> = writes
        .iter()
        .map(|write| {
            [vk::DescriptorBufferInfo {
                buffer: write.buffer.raw(),
                offset: write.offset_bytes,
                range: write.len_bytes,
            }]
        })
        .collect();
    let writes: SmallVec<[vk::WriteDescriptorSet<'_>; 8]> = writes
        .iter()
        .zip(&infos)
        .map(|(write, info)| {
            vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(write.binding)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(info)
        })
        .collect();
    use_writes(&writes);
}
