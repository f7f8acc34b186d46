//! Kernels, and a pipeline for each block that one is launched with.

use std::ffi::CString;
use std::sync::Arc;

use grafos_host_abi::{
    Axis, CapacityFault, DeviceLimits, GpuError, KernelId, KernelInfo, KernelParam, LimitFault,
    LimitKind, ParamKind, Result,
};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use super::requirements::lacks;
use super::spirv::{SpirvEntry, SpirvLocalSize, SpirvMemberKind, SpirvStyle};
use crate::context::Shared;
use crate::driver::{Pipeline, PipelineDesc, PipelineLayout, ShaderModule};

/// Blocks that one kernel can have pipelines for.
const MOST_PIPELINES: usize = 1024;

/// Pipelines by block.
type Pipelines = SmallVec<[([u32; 3], Arc<Pipeline>); 2]>;

/// A resolved kernel.
pub(crate) struct Kernel {
    info: KernelInfo,
    entry: CString,
    shader: Arc<ShaderModule>,
    layout: PipelineLayout,
    /// Bindings of set 0, in the order of the buffer arguments.
    bindings: SmallVec<[u32; 8]>,
    /// Whether descriptors are pushed rather than allocated.
    pushed: bool,
    /// Offset and size of each push-constant member, in the order of the scalar arguments.
    members: SmallVec<[(u32, u32); 8]>,
    /// The layout's push-constant range.
    push_constant_bytes: u32,
    block: SpirvLocalSize,
    shared_bytes: u64,
    shared_specialized: bool,
    pipelines: RwLock<Pipelines>,
    /// Held while a pipeline is compiled, so that no two threads compile the same.
    compiling: Mutex<()>,
}

impl Kernel {
    /// Prepares a kernel, compiled for its own block where that is within the limits.
    pub(super) fn new(
        shared: &Shared,
        entry: &SpirvEntry,
        shader: Arc<ShaderModule>,
    ) -> Result<Self> {
        let limits = &shared.info.limits;
        let limit = |what, axis, requested, limit| {
            GpuError::LaunchLimits(LimitFault {
                kernel: entry.name.clone(),
                what,
                axis,
                requested,
                limit,
            })
        };
        // Ranges are whole words.
        let push_constant_bytes = entry.push_constants.size_bytes.next_multiple_of(4);
        if push_constant_bytes > limits.max_argument_bytes {
            return Err(limit(
                LimitKind::ArgumentBytes,
                None,
                push_constant_bytes.into(),
                limits.max_argument_bytes.into(),
            ));
        }
        if entry.shared_memory_bytes > limits.max_shared_memory_bytes.into() {
            return Err(limit(
                LimitKind::SharedMemory,
                None,
                entry.shared_memory_bytes,
                limits.max_shared_memory_bytes.into(),
            ));
        }
        let required_block = match entry.local_size {
            SpirvLocalSize::Fixed(block) => {
                check_block(&entry.name, block, limits)?;
                Some(block)
            }
            SpirvLocalSize::Specialized { .. } => None,
        };
        let bindings: SmallVec<[u32; 8]> = match &entry.style {
            SpirvStyle::Pointers => SmallVec::new(),
            SpirvStyle::Descriptors { bindings } => {
                bindings.iter().map(|binding| binding.binding).collect()
            }
        };
        if bindings.len() as u64 > u64::from(shared.max_bindings) {
            return Err(lacks(
                format!(
                    "kernel {:?} with {} storage buffers",
                    entry.name,
                    bindings.len()
                ),
                format!("{} takes up to {}", shared.info.name, shared.max_bindings),
            ));
        }
        let pushed = bindings.len() <= shared.max_push_descriptors as usize;
        let layout = PipelineLayout::new(&shared.device, &bindings, pushed, push_constant_bytes)?;

        let mut info = KernelInfo::new(KernelId(0), &*entry.name, limits.max_threads_per_block);
        info.params = Some(params(entry));
        info.required_block = required_block;
        // Checked above to be below a 32-bit limit.
        info.static_shared_bytes = entry.shared_memory_bytes as u32;
        let kernel = Self {
            info,
            // The parser reads names up to their NUL, so there is none inside.
            entry: CString::new(&*entry.name).unwrap_or_default(),
            shader,
            layout,
            bindings,
            pushed,
            members: entry
                .push_constants
                .members
                .iter()
                .map(|member| (member.offset_bytes, member.size_bytes))
                .collect(),
            push_constant_bytes,
            block: entry.local_size,
            shared_bytes: entry.shared_memory_bytes,
            shared_specialized: entry.shared_memory_specialized,
            pipelines: RwLock::new(SmallVec::new()),
            compiling: Mutex::new(()),
        };
        // Errors of the compiler belong here rather than to the first launch.
        let own = match entry.local_size {
            SpirvLocalSize::Fixed(block) => block,
            SpirvLocalSize::Specialized { default, .. } => default,
        };
        if check_block(&entry.name, own, limits).is_ok() {
            kernel.pipeline(shared, own)?;
        }
        Ok(kernel)
    }

    /// Gives the kernel the id that it is known by.
    pub(super) fn with_id(mut self, id: KernelId) -> Self {
        self.info.id = id;
        self
    }

    pub(crate) fn info(&self) -> &KernelInfo {
        &self.info
    }

    pub(crate) fn layout(&self) -> &PipelineLayout {
        &self.layout
    }

    pub(crate) fn bindings(&self) -> &[u32] {
        &self.bindings
    }

    pub(crate) fn pushed(&self) -> bool {
        self.pushed
    }

    pub(crate) fn members(&self) -> &[(u32, u32)] {
        &self.members
    }

    pub(crate) fn push_constant_bytes(&self) -> u32 {
        self.push_constant_bytes
    }

    /// The pipeline for a block, compiled if need be.
    pub(crate) fn pipeline(&self, shared: &Shared, block: [u32; 3]) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = self.find(block) {
            return Ok(pipeline);
        }
        let _compiling = self.compiling.lock();
        if let Some(pipeline) = self.find(block) {
            return Ok(pipeline);
        }
        let constants = self.constants(block, &shared.info.limits)?;
        let known = self.pipelines.read().len();
        if known >= MOST_PIPELINES {
            return Err(GpuError::OutOfMemory(CapacityFault {
                resource: "pipelines of one kernel",
                requested: known as u64 + 1,
                available: Some(0),
                unit: "block sizes",
                cause: None,
            }));
        }
        let desc = PipelineDesc {
            module: &self.shader,
            entry: &self.entry,
            layout: &self.layout,
            constants: &constants,
        };
        let pipeline = Arc::new(Pipeline::new(
            &shared.device,
            &shared.pipeline_cache,
            &desc,
        )?);
        self.pipelines.write().push((block, Arc::clone(&pipeline)));
        Ok(pipeline)
    }

    fn find(&self, block: [u32; 3]) -> Option<Arc<Pipeline>> {
        self.pipelines
            .read()
            .iter()
            .find(|(known, _)| *known == block)
            .map(|(_, pipeline)| Arc::clone(pipeline))
    }

    /// The specialization constants that make the kernel one for `block`.
    fn constants(
        &self,
        block: [u32; 3],
        limits: &DeviceLimits,
    ) -> Result<SmallVec<[(u32, u32); 3]>> {
        let name = &self.info.name;
        check_block(name, block, limits)?;
        let (own, ids) = match self.block {
            SpirvLocalSize::Fixed(own) => (own, [None; 3]),
            SpirvLocalSize::Specialized { default, spec_ids } => (default, spec_ids),
        };
        let mut constants: SmallVec<[(u32, u32); 3]> = SmallVec::new();
        let mut conflict = None;
        for (((axis, id), threads), own) in Axis::ALL.into_iter().zip(ids).zip(block).zip(own) {
            match id {
                Some(id) => {
                    // One constant can stand for several axes.
                    match constants.iter().find(|(known, _)| *known == id) {
                        None => constants.push((id, threads)),
                        Some((_, value)) if *value == threads => {}
                        Some((_, value)) => conflict = Some((axis, threads, *value)),
                    }
                }
                None if threads == own => {}
                None => conflict = conflict.or(Some((axis, threads, own))),
            }
        }
        if let Some((axis, requested, required)) = conflict {
            return Err(GpuError::LaunchLimits(LimitFault {
                kernel: name.clone(),
                what: LimitKind::RequiredBlock,
                axis: Some(axis),
                requested: requested.into(),
                limit: required.into(),
            }));
        }
        let shared = self.shared_bytes_for(block, own);
        if shared > limits.max_shared_memory_bytes.into() {
            return Err(GpuError::LaunchLimits(LimitFault {
                kernel: name.clone(),
                what: LimitKind::SharedMemory,
                axis: None,
                requested: shared,
                limit: limits.max_shared_memory_bytes.into(),
            }));
        }
        Ok(constants)
    }

    /// Shared memory for a block. Where specialization changes it, it is taken to grow with each
    /// axis of the block.
    fn shared_bytes_for(&self, block: [u32; 3], own: [u32; 3]) -> u64 {
        if !self.shared_specialized {
            return self.shared_bytes;
        }
        block
            .into_iter()
            .zip(own)
            .fold(self.shared_bytes, |bytes, (threads, own)| {
                let growth = u64::from(threads.max(1)).div_ceil(u64::from(own.max(1)));
                bytes.saturating_mul(growth)
            })
    }
}

/// Refuses a block that the device cannot run. Drivers may run it nevertheless, and wrongly.
fn check_block(kernel: &str, block: [u32; 3], limits: &DeviceLimits) -> Result<()> {
    let fault = |what, axis, requested, limit| {
        Err(GpuError::LaunchLimits(LimitFault {
            kernel: kernel.to_owned(),
            what,
            axis,
            requested,
            limit,
        }))
    };
    for ((axis, threads), limit) in Axis::ALL.into_iter().zip(block).zip(limits.max_block) {
        if threads == 0 || threads > limit {
            return fault(
                LimitKind::BlockThreads,
                Some(axis),
                threads.into(),
                limit.into(),
            );
        }
    }
    let total = block
        .into_iter()
        .fold(1u64, |total, threads| total.saturating_mul(threads.into()));
    if total > limits.max_threads_per_block.into() {
        return fault(
            LimitKind::ThreadsPerBlock,
            None,
            total,
            limits.max_threads_per_block.into(),
        );
    }
    Ok(())
}

/// A kernel's parameters: bound buffers in binding order, then push-constant members by offset.
fn params(entry: &SpirvEntry) -> Vec<KernelParam> {
    let bindings = match &entry.style {
        SpirvStyle::Pointers => &[][..],
        SpirvStyle::Descriptors { bindings } => bindings,
    };
    let bound = bindings.iter().map(|binding| KernelParam {
        name: binding.name.clone(),
        kind: ParamKind::BoundBuffer,
        size_bytes: 8,
        align_bytes: 8,
        offset_bytes: 0,
    });
    let members = entry
        .push_constants
        .members
        .iter()
        .map(|member| KernelParam {
            name: member.name.clone(),
            kind: match member.kind {
                SpirvMemberKind::Buffer => ParamKind::Address,
                _ => ParamKind::Value,
            },
            size_bytes: member.size_bytes,
            align_bytes: member.alignment_bytes,
            offset_bytes: member.offset_bytes,
        });
    bound.chain(members).collect()
}
