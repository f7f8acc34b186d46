//! A batch: a command buffer that is being recorded, and what it keeps alive.

use std::sync::Arc;

use grafos_host_abi::Result;
use smallvec::SmallVec;

use crate::driver::{
    Commands, DescriptorPool, DescriptorWrite, Device, DeviceBuffer, Pipeline, PipelineLayout,
    QueryPool, Region, Semaphore,
};
use crate::memory::Staging;

/// Sets in a descriptor pool, and storage buffers in all of them.
const POOL_SETS: u32 = 256;
const POOL_DESCRIPTORS: u32 = 1024;

/// The longest single copy or fill: some drivers count in 32 bits.
const LONGEST_REGION_BYTES: u64 = 1 << 30;

/// Work that is recorded together and ends together.
pub(crate) struct Batch {
    commands: Commands,
    /// The value that the stream's semaphore reaches when the batch has ended.
    value: u64,
    /// Other streams' values that must be reached before the batch starts.
    waits: SmallVec<[(Arc<Semaphore>, u64); 2]>,
    operations: u32,
    /// The pipeline bound last, by its address: binding it again is skipped. What a batch uses
    /// lives as long as the batch, so the address is not used again meanwhile.
    bound: Option<usize>,
    descriptor_pools: Vec<DescriptorPool>,
    pools_used: usize,
    /// Staging memory that the batch reads or writes.
    staging: SmallVec<[Arc<DeviceBuffer>; 2]>,
    /// The staging memory that small writes share, and how much of it is taken.
    shared_staging: Option<(Arc<DeviceBuffer>, u64)>,
    device: Arc<Device>,
}

impl Batch {
    /// Creates a batch that is not being recorded.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        Ok(Self {
            commands: Commands::new(device)?,
            value: 0,
            waits: SmallVec::new(),
            operations: 0,
            bound: None,
            descriptor_pools: Vec::new(),
            pools_used: 0,
            staging: SmallVec::new(),
            shared_staging: None,
            device: Arc::clone(device),
        })
    }

    /// Starts a recording that ends at `value`, ordered after everything before it on the queue.
    pub(crate) fn begin(&mut self, value: u64) -> Result<()> {
        self.commands.begin()?;
        self.value = value;
        Ok(())
    }

    /// Ends the recording.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.commands.order_host_reads();
        self.commands.end()
    }

    /// Makes the batch usable again. It must have ended.
    pub(crate) fn reset(&mut self, staging: &Staging) -> Result<()> {
        self.waits.clear();
        self.operations = 0;
        self.bound = None;
        self.shared_staging = None;
        for chunk in self.staging.drain(..) {
            staging.give_back(chunk);
        }
        for pool in &mut self.descriptor_pools[..self.pools_used] {
            pool.reset()?;
        }
        self.pools_used = 0;
        self.commands.reset()
    }

    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    pub(crate) fn operations(&self) -> u32 {
        self.operations
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }

    pub(crate) fn waits(&self) -> &[(Arc<Semaphore>, u64)] {
        &self.waits
    }

    /// Makes the whole batch wait for another stream.
    pub(crate) fn wait_for(&mut self, semaphore: Arc<Semaphore>, value: u64) {
        self.waits.push((semaphore, value));
    }

    /// Orders the next operation after all before it, on this stream.
    fn next_operation(&mut self) {
        // The first of a batch too: what is before it on the queue is this stream's last batch.
        self.commands.order_work();
        self.operations += 1;
    }

    /// Records a launch.
    pub(crate) fn launch(
        &mut self,
        pipeline: &Pipeline,
        layout: &PipelineLayout,
        push_constants: &[u8],
        descriptors: &[DescriptorWrite<'_>],
        pushed: bool,
        grid: [u32; 3],
    ) -> Result<()> {
        if !descriptors.is_empty() {
            if pushed {
                self.commands.push_descriptors(layout, descriptors);
            } else {
                self.bind_descriptors(layout, descriptors)?;
            }
        }
        let address = std::ptr::from_ref(pipeline).addr();
        if self.bound != Some(address) {
            self.commands.bind_pipeline(pipeline);
            self.bound = Some(address);
        }
        if !push_constants.is_empty() {
            self.commands.push_constants(layout, push_constants);
        }
        self.next_operation();
        self.commands.dispatch(grid);
        Ok(())
    }

    fn bind_descriptors(
        &mut self,
        layout: &PipelineLayout,
        descriptors: &[DescriptorWrite<'_>],
    ) -> Result<()> {
        loop {
            if self.pools_used > 0 {
                let pool = &mut self.descriptor_pools[self.pools_used - 1];
                if self.commands.bind_descriptors(pool, layout, descriptors)? {
                    return Ok(());
                }
            }
            if self.pools_used == self.descriptor_pools.len() {
                // Large enough for the set, so the next round cannot fail for want of room.
                let count = POOL_DESCRIPTORS.max(descriptors.len() as u32);
                self.descriptor_pools
                    .push(DescriptorPool::new(&self.device, POOL_SETS, count)?);
            }
            self.pools_used += 1;
        }
    }

    /// Records a copy.
    pub(crate) fn copy(&mut self, dst: &DeviceBuffer, src: &DeviceBuffer, region: Region) {
        self.next_operation();
        let mut done = 0;
        while done < region.len {
            let len = (region.len - done).min(LONGEST_REGION_BYTES);
            self.commands.copy(
                dst,
                src,
                Region {
                    src_offset: region.src_offset + done,
                    dst_offset: region.dst_offset + done,
                    len,
                },
            );
            done += len;
        }
    }

    /// Records a fill with a word; offset and length are multiples of 4.
    pub(crate) fn fill(&mut self, dst: &DeviceBuffer, offset: u64, len: u64, word: u32) {
        self.next_operation();
        let mut done = 0;
        while done < len {
            let part = (len - done).min(LONGEST_REGION_BYTES);
            self.commands.fill(dst, offset + done, part, word);
            done += part;
        }
    }

    /// Records a write of a few bytes through staging memory that the batch's small writes share.
    pub(crate) fn write_small(
        &mut self,
        staging: &Staging,
        dst: &DeviceBuffer,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let len = data.len() as u64;
        let (chunk, at) = match self.shared_staging.take() {
            Some((chunk, used)) if chunk.size_bytes() - used >= len => (chunk, used),
            _ => {
                let chunk = staging.small()?;
                self.keep(Arc::clone(&chunk));
                (chunk, 0)
            }
        };
        let written = chunk.write(at, data);
        debug_assert!(written, "staging memory is mapped and large enough");
        self.copy(
            dst,
            &chunk,
            Region {
                src_offset: at,
                dst_offset: offset,
                len,
            },
        );
        self.shared_staging = Some((chunk, at + len));
        Ok(())
    }

    /// Keeps staging memory until the batch has ended.
    pub(crate) fn keep(&mut self, chunk: Arc<DeviceBuffer>) {
        self.staging.push(chunk);
    }

    /// Records a timestamp.
    pub(crate) fn timestamp(&mut self, pool: &QueryPool, index: u32) {
        self.commands.timestamp(pool, index);
        self.operations += 1;
    }

    /// Orders whatever else is submitted to the queue after this batch's work.
    pub(crate) fn order_everything(&mut self) {
        self.commands.order_everything();
        self.operations += 1;
    }
}
