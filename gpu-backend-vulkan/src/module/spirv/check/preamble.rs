//! The first sections: capabilities, extensions, instruction sets and the memory model.

use std::collections::HashSet;

use spirv::{AddressingModel, Capability, MemoryModel, Op};

use super::layout::{Section, Sections};
use super::{Checked, Module, Operand, Rule, SpirvError, extended};

impl Module<'_> {
    /// Capabilities, extensions, instruction sets and the memory model.
    pub(super) fn preamble(&mut self, sections: &Sections) -> Checked {
        for index in sections.range(Section::Capabilities) {
            let site = self.site(index);
            if let Some(&Operand::Capability(capability)) = site.inst.operands.first() {
                if !is_supported(capability) {
                    return site.unsupported(format!("capability {capability:?}"));
                }
                self.capabilities.push(capability);
            }
        }
        self.capabilities.sort_unstable();
        self.capabilities.dedup();
        for &capability in &self.capabilities {
            let mut current = Some(capability);
            while let Some(next) = current {
                self.implied.insert(next);
                current = implied_by(next);
            }
        }
        let mut extensions = HashSet::new();
        for index in sections.range(Section::Extensions) {
            let site = self.site(index);
            if let Some(Operand::LiteralString(name)) = site.inst.operands.first() {
                if !EXTENSIONS.contains(&name.as_str()) {
                    return site.unsupported(format!("extension {name:?}"));
                }
                extensions.insert(name.as_str());
            }
        }
        for &capability in &self.capabilities {
            let Some((minor, names)) = extension_for(capability) else {
                continue;
            };
            if !self.version_at_least(minor) && !names.iter().any(|name| extensions.contains(name))
            {
                let names = names.join(" or ");
                let detail = format!("{capability:?} needs a later version or extension {names}");
                return self.site(0).fail(Rule::Capability, 0, detail);
            }
        }
        for index in sections.range(Section::ExtendedSets) {
            let site = self.site(index);
            if let Some(Operand::LiteralString(name)) = site.inst.operands.first() {
                let Some(set) = extended::Set::named(name) else {
                    return site.unsupported(format!("extended instruction set {name:?}"));
                };
                let id = site.result()?;
                self.extended_sets.insert(id, set);
            }
        }
        self.memory_model(sections)?;
        if !self.has(Capability::Shader) {
            return Err(SpirvError::Missing {
                what: "capability Shader",
            });
        }
        Ok(())
    }

    fn memory_model(&mut self, sections: &Sections) -> Checked {
        let range = sections.range(Section::MemoryModel);
        if range.is_empty() {
            return Err(SpirvError::Missing {
                what: "OpMemoryModel",
            });
        }
        for index in range.clone() {
            let site = self.site(index);
            if site.op() == Op::Nop {
                continue;
            }
            if index != range.start {
                return site.fail(Rule::Layout, 0, "a second memory model");
            }
            let (Some(Operand::AddressingModel(addressing)), Some(Operand::MemoryModel(memory))) =
                (site.inst.operands.first(), site.inst.operands.get(1))
            else {
                return site.fail(Rule::OperandKind, 0, "two models are expected");
            };
            let physical = match addressing {
                AddressingModel::Logical => false,
                AddressingModel::PhysicalStorageBuffer64 => {
                    self.needs_one(&site, &[Capability::PhysicalStorageBufferAddresses])?;
                    true
                }
                other => return site.unsupported(format!("addressing model {other:?}")),
            };
            let vulkan = match memory {
                MemoryModel::GLSL450 => false,
                MemoryModel::Vulkan => {
                    self.needs_one(&site, &[Capability::VulkanMemoryModel])?;
                    true
                }
                other => return site.unsupported(format!("memory model {other:?}")),
            };
            (self.physical, self.vulkan_memory_model) = (physical, vulkan);
        }
        Ok(())
    }
}

fn is_supported(capability: Capability) -> bool {
    use Capability as C;
    matches!(
        capability,
        C::Matrix
            | C::Shader
            | C::Float16
            | C::Float64
            | C::Int64
            | C::Int64Atomics
            | C::Int16
            | C::Int8
            | C::GroupNonUniform
            | C::GroupNonUniformVote
            | C::GroupNonUniformArithmetic
            | C::GroupNonUniformBallot
            | C::GroupNonUniformShuffle
            | C::GroupNonUniformShuffleRelative
            | C::GroupNonUniformClustered
            | C::GroupNonUniformQuad
            | C::StorageBuffer16BitAccess
            | C::UniformAndStorageBuffer16BitAccess
            | C::StoragePushConstant16
            | C::StorageBuffer8BitAccess
            | C::UniformAndStorageBuffer8BitAccess
            | C::StoragePushConstant8
            | C::VariablePointersStorageBuffer
            | C::VariablePointers
            | C::PhysicalStorageBufferAddresses
            | C::VulkanMemoryModel
            | C::VulkanMemoryModelDeviceScope
            | C::DenormPreserve
            | C::DenormFlushToZero
            | C::SignedZeroInfNanPreserve
            | C::RoundingModeRTE
            | C::RoundingModeRTZ
            | C::AtomicFloat16AddEXT
            | C::AtomicFloat32AddEXT
            | C::AtomicFloat64AddEXT
            | C::AtomicFloat16MinMaxEXT
            | C::AtomicFloat32MinMaxEXT
            | C::AtomicFloat64MinMaxEXT
    )
}

/// The capability that declaring `capability` declares too.
fn implied_by(capability: Capability) -> Option<Capability> {
    use Capability as C;
    Some(match capability {
        C::Shader => C::Matrix,
        C::Int64Atomics => C::Int64,
        C::GroupNonUniformVote
        | C::GroupNonUniformArithmetic
        | C::GroupNonUniformBallot
        | C::GroupNonUniformShuffle
        | C::GroupNonUniformShuffleRelative
        | C::GroupNonUniformClustered
        | C::GroupNonUniformQuad => C::GroupNonUniform,
        C::UniformAndStorageBuffer16BitAccess => C::StorageBuffer16BitAccess,
        C::UniformAndStorageBuffer8BitAccess => C::StorageBuffer8BitAccess,
        C::VariablePointers => C::VariablePointersStorageBuffer,
        _ => return None,
    })
}

/// Extensions whose instructions and capabilities have rules here, or that only name what the
/// core has taken in since.
const EXTENSIONS: &[&str] = &[
    "SPV_KHR_16bit_storage",
    "SPV_KHR_8bit_storage",
    "SPV_KHR_storage_buffer_storage_class",
    "SPV_KHR_variable_pointers",
    "SPV_KHR_physical_storage_buffer",
    "SPV_EXT_physical_storage_buffer",
    "SPV_KHR_vulkan_memory_model",
    "SPV_KHR_float_controls",
    "SPV_KHR_non_semantic_info",
    "SPV_KHR_relaxed_extended_instruction",
    "SPV_KHR_no_integer_wrap_decoration",
    "SPV_EXT_shader_atomic_float_add",
    "SPV_EXT_shader_atomic_float_min_max",
    "SPV_EXT_shader_atomic_float16_add",
    "SPV_GOOGLE_decorate_string",
    "SPV_GOOGLE_hlsl_functionality1",
    "SPV_GOOGLE_user_type",
];

/// Capabilities that need an extension before the minor version that took them in; those that
/// need one in every version have version 255.
fn extension_for(capability: Capability) -> Option<(u8, &'static [&'static str])> {
    use Capability as C;
    Some(match capability {
        C::StorageBuffer16BitAccess
        | C::UniformAndStorageBuffer16BitAccess
        | C::StoragePushConstant16 => (3, &["SPV_KHR_16bit_storage"]),
        C::StorageBuffer8BitAccess
        | C::UniformAndStorageBuffer8BitAccess
        | C::StoragePushConstant8 => (5, &["SPV_KHR_8bit_storage"]),
        C::VariablePointers | C::VariablePointersStorageBuffer => {
            (3, &["SPV_KHR_variable_pointers"])
        }
        C::PhysicalStorageBufferAddresses => (
            5,
            &[
                "SPV_KHR_physical_storage_buffer",
                "SPV_EXT_physical_storage_buffer",
            ],
        ),
        C::VulkanMemoryModel | C::VulkanMemoryModelDeviceScope => {
            (5, &["SPV_KHR_vulkan_memory_model"])
        }
        C::DenormPreserve
        | C::DenormFlushToZero
        | C::SignedZeroInfNanPreserve
        | C::RoundingModeRTE
        | C::RoundingModeRTZ => (4, &["SPV_KHR_float_controls"]),
        C::AtomicFloat32AddEXT | C::AtomicFloat64AddEXT => {
            (u8::MAX, &["SPV_EXT_shader_atomic_float_add"])
        }
        C::AtomicFloat16AddEXT => (u8::MAX, &["SPV_EXT_shader_atomic_float16_add"]),
        C::AtomicFloat16MinMaxEXT | C::AtomicFloat32MinMaxEXT | C::AtomicFloat64MinMaxEXT => {
            (u8::MAX, &["SPV_EXT_shader_atomic_float_min_max"])
        }
        C::GroupNonUniform
        | C::GroupNonUniformVote
        | C::GroupNonUniformArithmetic
        | C::GroupNonUniformBallot
        | C::GroupNonUniformShuffle
        | C::GroupNonUniformShuffleRelative
        | C::GroupNonUniformClustered
        | C::GroupNonUniformQuad => (3, &[]),
        _ => return None,
    })
}
