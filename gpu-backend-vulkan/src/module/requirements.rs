//! What a module needs of the device.

use ash::vk;
use grafos_host_abi::{GpuError, Result, UnsupportedFault};
use spirv::Capability;

use super::spirv::SpirvModule;
use crate::driver::Abilities;

/// What modules are checked against.
pub(crate) struct Provided<'a> {
    pub(crate) abilities: &'a Abilities,
    pub(crate) api_version: u32,
    pub(crate) device_name: &'a str,
}

/// Refuses a module that needs what the device lacks.
pub(crate) fn check(module: &SpirvModule, provided: &Provided<'_>) -> Result<()> {
    let (major, minor) = module.version;
    let newest = if provided.api_version >= vk::API_VERSION_1_3 {
        (1, 6)
    } else {
        (1, 5)
    };
    if (major, minor) > newest {
        return Err(lacks(
            format!("SPIR-V {major}.{minor}"),
            format!(
                "{} takes SPIR-V up to {}.{}",
                provided.device_name, newest.0, newest.1
            ),
        ));
    }
    if !provided.abilities.maintenance4 && uses_local_size_id(&module.words) {
        return Err(lacks(
            "execution mode LocalSizeId".into(),
            format!("{} lacks maintenance4", provided.device_name),
        ));
    }
    for &capability in &module.capabilities {
        let lacking = match provision(capability, provided.abilities) {
            Some(true) => continue,
            Some(false) => format!("{} lacks it", provided.device_name),
            None => "this backend does not enable it on any device".to_owned(),
        };
        return Err(lacks(format!("SPIR-V capability {capability:?}"), lacking));
    }
    Ok(())
}

pub(super) fn lacks(what: String, reason: String) -> GpuError {
    GpuError::Unsupported(UnsupportedFault { what, reason })
}

/// Whether an entry point takes its block from ids. The words are those of a checked module.
fn uses_local_size_id(words: &[u32]) -> bool {
    let mode = spirv::ExecutionMode::LocalSizeId as u32;
    // Behind the header; an instruction begins with its length and opcode.
    let mut rest = words.get(5..).unwrap_or_default();
    while let Some(&first) = rest.first() {
        if first & 0xFFFF == spirv::Op::ExecutionModeId as u32 && rest.get(2) == Some(&mode) {
            return true;
        }
        let len = (first >> 16) as usize;
        rest = rest.get(len.max(1)..).unwrap_or_default();
    }
    false
}

/// Whether the device provides a capability; `None` for one that no device is asked for.
fn provision(capability: Capability, abilities: &Abilities) -> Option<bool> {
    let subgroup = |flag: vk::SubgroupFeatureFlags| {
        vk::SubgroupFeatureFlags::from_raw(abilities.subgroup_operations).contains(flag)
    };
    Some(match capability {
        // What every Vulkan 1.2 device with compute has.
        Capability::Matrix
        | Capability::Shader
        | Capability::DeviceGroup
        | Capability::PhysicalStorageBufferAddresses => true,
        Capability::Int8 => abilities.int8,
        Capability::Int16 => abilities.int16,
        Capability::Int64 => abilities.int64,
        Capability::Float16 => abilities.float16,
        Capability::Float64 => abilities.float64,
        Capability::StorageBuffer8BitAccess => abilities.storage_8bit,
        Capability::UniformAndStorageBuffer8BitAccess => abilities.uniform_8bit,
        Capability::StoragePushConstant8 => abilities.push_constant_8bit,
        Capability::StorageBuffer16BitAccess => abilities.storage_16bit,
        Capability::UniformAndStorageBuffer16BitAccess => abilities.uniform_16bit,
        Capability::StoragePushConstant16 => abilities.push_constant_16bit,
        // The capability stands for buffers and shared memory alike: buffers decide.
        Capability::Int64Atomics => abilities.buffer_int64_atomics,
        Capability::AtomicFloat32AddEXT => abilities.float32_atomic_add,
        Capability::AtomicFloat64AddEXT => abilities.float64_atomic_add,
        Capability::VariablePointers => abilities.variable_pointers,
        Capability::VariablePointersStorageBuffer => abilities.variable_pointers_storage_buffer,
        Capability::VulkanMemoryModel => abilities.vulkan_memory_model,
        Capability::VulkanMemoryModelDeviceScope => abilities.vulkan_memory_model_device_scope,
        Capability::WorkgroupMemoryExplicitLayoutKHR => abilities.explicit_shared_layout,
        Capability::DotProduct
        | Capability::DotProductInputAll
        | Capability::DotProductInput4x8Bit
        | Capability::DotProductInput4x8BitPacked => abilities.integer_dot_product,
        Capability::GroupNonUniform => subgroup(vk::SubgroupFeatureFlags::BASIC),
        Capability::GroupNonUniformVote => subgroup(vk::SubgroupFeatureFlags::VOTE),
        Capability::GroupNonUniformArithmetic => subgroup(vk::SubgroupFeatureFlags::ARITHMETIC),
        Capability::GroupNonUniformBallot => subgroup(vk::SubgroupFeatureFlags::BALLOT),
        Capability::GroupNonUniformShuffle => subgroup(vk::SubgroupFeatureFlags::SHUFFLE),
        Capability::GroupNonUniformShuffleRelative => {
            subgroup(vk::SubgroupFeatureFlags::SHUFFLE_RELATIVE)
        }
        Capability::GroupNonUniformClustered => subgroup(vk::SubgroupFeatureFlags::CLUSTERED),
        Capability::GroupNonUniformQuad => subgroup(vk::SubgroupFeatureFlags::QUAD),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use grafos_host_abi::ErrorKind;

    use super::*;

    fn module(version: (u8, u8), capabilities: &[Capability]) -> SpirvModule {
        SpirvModule {
            words: Vec::new(),
            version,
            capabilities: capabilities.to_vec(),
            entries: Vec::new(),
        }
    }

    fn provided(abilities: &Abilities) -> Provided<'_> {
        Provided {
            abilities,
            api_version: vk::API_VERSION_1_2,
            device_name: "Toaster",
        }
    }

    #[test]
    fn a_lacking_capability_is_named_with_the_device() {
        let abilities = Abilities {
            int64: true,
            ..Abilities::default()
        };
        let needs = module((1, 5), &[Capability::Shader, Capability::Int64]);
        assert_eq!(check(&needs, &provided(&abilities)), Ok(()));
        let needs = module((1, 5), &[Capability::Shader, Capability::Float64]);
        let refusal = check(&needs, &provided(&abilities)).unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::Unsupported);
        assert_eq!(
            refusal.to_string(),
            "unsupported: SPIR-V capability Float64: Toaster lacks it"
        );
    }

    #[test]
    fn a_capability_without_a_rule_is_refused() {
        let abilities = Abilities::default();
        let refusal = check(
            &module((1, 0), &[Capability::Kernel]),
            &provided(&abilities),
        );
        assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_version_needs_the_vulkan_that_brings_it() {
        let abilities = Abilities::default();
        let new = module((1, 6), &[]);
        let refusal = check(&new, &provided(&abilities)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "unsupported: SPIR-V 1.6: Toaster takes SPIR-V up to 1.5"
        );
        let newer_device = Provided {
            api_version: vk::API_VERSION_1_3,
            ..provided(&abilities)
        };
        assert_eq!(check(&new, &newer_device), Ok(()));
    }

    #[test]
    fn a_block_from_ids_needs_maintenance4() {
        let refusal = |kernel: &str, maintenance4| {
            let image = grafos_kernels::by_name(kernel).unwrap().spirv;
            let (words, _) = image.as_chunks::<4>();
            let mut needs = module((1, 5), &[Capability::Shader]);
            needs.words = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let abilities = Abilities {
                maintenance4,
                ..Abilities::default()
            };
            check(&needs, &provided(&abilities)).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(
            refusal("vector_add_local_size_id", false),
            Err("unsupported: execution mode LocalSizeId: Toaster lacks maintenance4".into())
        );
        assert_eq!(refusal("vector_add_local_size_id", true), Ok(()));
        // The same block by a built-in constant needs nothing.
        assert_eq!(refusal("vector_add", false), Ok(()));
    }

    #[test]
    fn subgroup_operations_are_each_asked_for() {
        let abilities = Abilities {
            subgroup_operations: (vk::SubgroupFeatureFlags::BASIC | vk::SubgroupFeatureFlags::VOTE)
                .as_raw(),
            ..Abilities::default()
        };
        let voting = module((1, 3), &[Capability::GroupNonUniformVote]);
        assert_eq!(check(&voting, &provided(&abilities)), Ok(()));
        let shuffling = module((1, 3), &[Capability::GroupNonUniformShuffle]);
        assert!(check(&shuffling, &provided(&abilities)).is_err());
    }
}
