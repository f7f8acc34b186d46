//! Launches.

use alloc::format;

use grafos_host_abi::{BufferId, BufferRange, GpuError, LaunchDesc, LostFault, StreamId};

use super::super::validate;
use super::{KernelEntry, SessionCore};
use crate::error::Result;

/// Dimensions and arguments of a launch, as the caller gave them.
#[derive(Clone, Copy)]
pub(crate) struct LaunchRequest<'a> {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) args: &'a [u8],
    pub(crate) arg_sizes: &'a [u32],
}

impl SessionCore {
    pub(crate) fn launch(
        &self,
        stream: StreamId,
        kernel: &KernelEntry,
        request: LaunchRequest<'_>,
    ) -> Result<()> {
        self.ensure_usable()?;
        let _inside = self.enter_module(&kernel.module)?;
        let info = &kernel.info;
        let limits = &self.context.device().limits;
        let LaunchRequest {
            grid,
            block,
            dynamic_shared_bytes,
            args,
            arg_sizes,
        } = request;
        validate::check_dimensions(info, limits, grid, block, dynamic_shared_bytes)?;
        let mut matched = validate::LaunchArgs::new();
        let find_buffer = |address| self.find_buffer(address);
        validate::match_arguments(info, limits, args, arg_sizes, find_buffer, &mut matched)?;
        let launch = LaunchDesc {
            kernel: info.id,
            grid,
            block,
            dynamic_shared_bytes,
            args: &matched,
            stream,
        };
        let mut answer = self.context.launch(&launch);
        if answer.is_ok() && self.lease.sync_launch() {
            answer = self
                .context
                .sync_stream(stream, None)
                .map_err(|error| match error {
                    GpuError::DeviceLost(fault) => GpuError::DeviceLost(LostFault {
                        reason: format!("launch of kernel {:?}: {}", info.name, fault.reason),
                        ..fault
                    }),
                    other => other,
                });
        }
        if answer.is_ok() {
            self.lease.observe_launch(&info.name, grid, block);
        }
        self.check(answer)
    }

    /// Finds the live buffer that an address points into, from there to its end.
    fn find_buffer(&self, address: u64) -> Option<BufferRange> {
        let buffers = self.buffers.lock();
        let (start, entry) = buffers.range(..=address).next_back()?;
        let offset_bytes = address - start;
        if offset_bytes != 0 && offset_bytes >= entry.size_bytes {
            return None;
        }
        let len_bytes = entry.size_bytes - offset_bytes;
        Some(BufferRange {
            buffer: entry.id.unwrap_or(BufferId(*start)),
            offset_bytes,
            len_bytes,
        })
    }
}
