//! What a module declares outside functions: capabilities, extensions, entry points, globals.

use std::collections::HashSet;

use spirv::{
    AddressingModel, BuiltIn, Capability, Decoration, ExecutionMode, ExecutionModel, MemoryModel,
    Op, StorageClass,
};

use super::layout::{Section, Sections};
use super::{Checked, Module, Operand, Rule, Site, SpirvError, Type, extended};

/// Entry points of one module, more than any kernel library puts in one.
const MAX_ENTRIES: usize = 1024;

/// Scalars in a variable that each invocation has for itself.
const MAX_PRIVATE_COMPONENTS: u64 = 1 << 18;

/// Bytes of one workgroup variable; devices have far less.
const MAX_WORKGROUP_BYTES: u64 = 1 << 24;

/// An entry point as declared.
pub(in crate::module::spirv) struct EntryPoint {
    pub(in crate::module::spirv) name: String,
    pub(in crate::module::spirv) function: u32,
    interface: HashSet<u32>,
    index: usize,
    pub(in crate::module::spirv) local_size: Option<LocalSize>,
}

/// What an execution mode says about the block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::module::spirv) enum LocalSize {
    Literals([u32; 3]),
    Constants([u32; 3]),
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
        for index in sections.range(Section::Extensions) {
            let site = self.site(index);
            if let Some(Operand::LiteralString(name)) = site.inst.operands.first()
                && !EXTENSIONS.contains(&name.as_str())
            {
                return site.unsupported(format!("extension {name:?}"));
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

    /// Types, constants and module-scope variables in order.
    pub(super) fn globals(&mut self, sections: &Sections) -> Checked {
        let range = sections.range(Section::Globals);
        let end = range.end;
        for index in range {
            let site = self.site(index);
            match site.op() {
                _ if site.is_spec_op() => self.declare_constant(index)?,
                Op::Line | Op::NoLine | Op::Nop => {}
                Op::ExtInst | Op::ExtInstWithForwardRefsKHR => extended::check_global(&site)?,
                Op::Variable => {
                    let id = site.result()?;
                    let class = check_variable(&site)?;
                    let local = class == StorageClass::Function;
                    site.require(
                        !local,
                        Rule::Variable,
                        id,
                        "Function storage in module scope",
                    )?;
                    self.variables.push(id);
                }
                Op::Undef => {
                    let (id, type_id) = (site.result()?, site.result_type()?);
                    let declared = self.definition(type_id).is_some_and(|def| def < index);
                    site.require(declared, Rule::Type, id, "its type is not declared before")?;
                    check_undef(&site)?;
                }
                Op::ConstantTrue
                | Op::ConstantFalse
                | Op::Constant
                | Op::ConstantComposite
                | Op::ConstantNull
                | Op::SpecConstantTrue
                | Op::SpecConstantFalse
                | Op::SpecConstant
                | Op::SpecConstantComposite => self.declare_constant(index)?,
                _ => self.declare_type(index)?,
            }
        }
        self.finish_types(end.saturating_sub(1))
    }

    /// Entry points and their execution modes.
    pub(super) fn entry_points(&mut self, sections: &Sections) -> Checked {
        let mut names = HashSet::new();
        let mut functions = HashSet::new();
        for index in sections.range(Section::EntryPoints) {
            let site = self.site(index);
            if site.op() == Op::Nop {
                continue;
            }
            let entry = self.entry_point(&site)?;
            if !names.insert(entry.name.clone()) {
                let detail = format!("a second entry point named {:?}", entry.name);
                return site.fail(Rule::EntryPoint, entry.function, detail);
            }
            // Execution modes name the function, so two entry points on one would share them.
            let fresh = functions.insert(entry.function);
            site.require(
                fresh,
                Rule::EntryPoint,
                entry.function,
                "a second entry point on it",
            )?;
            self.entries.push(entry);
            if self.entries.len() > MAX_ENTRIES {
                let detail = format!("more than {MAX_ENTRIES} entry points");
                return self.site(index).fail(Rule::Limit, 0, detail);
            }
        }
        if self.entries.is_empty() {
            return Err(SpirvError::Missing {
                what: "a GLCompute entry point",
            });
        }
        for index in sections.range(Section::ExecutionModes) {
            self.execution_mode(index)?;
        }
        Ok(())
    }

    fn entry_point(&self, site: &Site<'_, '_>) -> Checked<EntryPoint> {
        match site.inst.operands.first() {
            Some(Operand::ExecutionModel(ExecutionModel::GLCompute)) => {}
            Some(Operand::ExecutionModel(other)) => {
                return site.unsupported(format!("entry points of execution model {other:?}"));
            }
            _ => return site.fail(Rule::OperandKind, 0, "an execution model is expected"),
        }
        let function = site.id(1)?;
        let Some(Operand::LiteralString(name)) = site.inst.operands.get(2) else {
            return site.fail(Rule::OperandKind, 0, "a name is expected");
        };
        let named = !name.is_empty();
        site.require(
            named,
            Rule::EntryPoint,
            function,
            "an entry point must have a name",
        )?;
        let holds = self.function(function).is_some_and(|found| {
            found.parameters.is_empty() && self.type_of(found.result_type) == Some(&Type::Void)
        });
        let detail = "an entry point must be a function without parameters or result";
        site.require(holds, Rule::EntryPoint, function, detail)?;
        let mut interface = HashSet::new();
        for id in site.ids_from(3)? {
            let class = self.variable_class(id);
            let Some(class) = class else {
                return site.fail(
                    Rule::Interface,
                    id,
                    "interfaces list module-scope variables",
                );
            };
            let legal = self.version_at_least(4)
                || matches!(class, StorageClass::Input | StorageClass::Output);
            let detail = "before version 1.4 interfaces list only inputs and outputs";
            site.require(legal, Rule::Interface, id, detail)?;
            let fresh = interface.insert(id) || !self.version_at_least(4);
            site.require(fresh, Rule::Interface, id, "listed twice")?;
        }
        let (name, index) = (name.clone(), site.index);
        Ok(EntryPoint {
            name,
            function,
            interface,
            index,
            local_size: None,
        })
    }

    /// The storage class of a module-scope variable.
    pub(in crate::module::spirv) fn variable_class(&self, id: u32) -> Option<StorageClass> {
        let inst = self
            .defining(id)
            .filter(|inst| inst.class.opcode == Op::Variable)?;
        match inst.operands.first() {
            Some(Operand::StorageClass(StorageClass::Function)) => None,
            Some(Operand::StorageClass(class)) => Some(*class),
            _ => None,
        }
    }

    fn execution_mode(&mut self, index: usize) -> Checked {
        let site = self.site(index);
        if site.op() == Op::Nop {
            return Ok(());
        }
        let function = site.id(0)?;
        let Some(&Operand::ExecutionMode(mode)) = site.inst.operands.get(1) else {
            return site.fail(Rule::OperandKind, 0, "an execution mode is expected");
        };
        let by_id = site.op() == Op::ExecutionModeId;
        let takes_ids = mode == ExecutionMode::LocalSizeId;
        site.require(
            by_id == takes_ids,
            Rule::ExecutionMode,
            function,
            "wrong kind of operands",
        )?;
        let local_size = match mode {
            ExecutionMode::LocalSize => {
                let size = [site.literal(2)?, site.literal(3)?, site.literal(4)?];
                let positive = size.iter().all(|&extent| extent > 0);
                site.require(
                    positive,
                    Rule::LocalSize,
                    function,
                    "block extents are positive",
                )?;
                LocalSize::Literals(size)
            }
            ExecutionMode::LocalSizeId => {
                let ids = [site.id(2)?, site.id(3)?, site.id(4)?];
                for id in ids {
                    let holds = self.default_u32(id).is_some_and(|(value, _)| value > 0);
                    let detail = "block extents are positive 32-bit integer constants";
                    site.require(holds, Rule::LocalSize, id, detail)?;
                }
                LocalSize::Constants(ids)
            }
            ExecutionMode::DenormPreserve
            | ExecutionMode::DenormFlushToZero
            | ExecutionMode::SignedZeroInfNanPreserve
            | ExecutionMode::RoundingModeRTE
            | ExecutionMode::RoundingModeRTZ => {
                let needed = match mode {
                    ExecutionMode::DenormPreserve => Capability::DenormPreserve,
                    ExecutionMode::DenormFlushToZero => Capability::DenormFlushToZero,
                    ExecutionMode::RoundingModeRTE => Capability::RoundingModeRTE,
                    ExecutionMode::RoundingModeRTZ => Capability::RoundingModeRTZ,
                    _ => Capability::SignedZeroInfNanPreserve,
                };
                self.needs_one(&site, &[needed])?;
                let width = matches!(site.literal(2)?, 16 | 32 | 64);
                let entry = self.entries.iter().any(|entry| entry.function == function);
                let detail = "a float width of an entry point is expected";
                return site.require(width && entry, Rule::ExecutionMode, function, detail);
            }
            other => return site.unsupported(format!("execution mode {other:?}")),
        };
        let entries: Vec<_> = self.entries.iter().map(|entry| entry.function).collect();
        let Some(position) = entries.iter().position(|entry| *entry == function) else {
            return site.fail(
                Rule::ExecutionMode,
                function,
                "no entry point is on this function",
            );
        };
        let first = self.entries[position].local_size.is_none();
        site.require(first, Rule::LocalSize, function, "a second block size")?;
        self.entries[position].local_size = Some(local_size);
        Ok(())
    }

    /// The constant decorated as the block size of every entry point.
    pub(in crate::module::spirv) fn workgroup_size(&self) -> Option<u32> {
        self.annotations.workgroup_size
    }

    /// What entry points use is listed by them, and each has one block size.
    pub(super) fn check_interfaces(&self) -> Checked {
        for entry in &self.entries {
            let site = self.site(entry.index);
            let sized = entry.local_size.is_some() || self.workgroup_size().is_some();
            site.require(
                sized,
                Rule::LocalSize,
                entry.function,
                "no block size is declared",
            )?;
            let mut built_ins = HashSet::new();
            for function in self.reachable_functions(entry.function) {
                for &id in &function.globals {
                    let class = self.variable_class(id);
                    let must_list = self.version_at_least(4) || class == Some(StorageClass::Input);
                    if must_list && !entry.interface.contains(&id) {
                        return site.fail(Rule::Interface, id, "used but not listed");
                    }
                }
            }
            for &id in &entry.interface {
                let literal = self.decoration_literal(id, None, Decoration::BuiltIn);
                if let Some(built_in) = literal
                    && !built_ins.insert(built_in)
                {
                    return site.fail(Rule::BuiltIn, id, "a second variable for one built-in");
                }
            }
        }
        Ok(())
    }
}

/// Rules for variables of module and function scope; their storage class.
pub(super) fn check_variable(site: &Site<'_, '_>) -> Checked<StorageClass> {
    let module = site.module;
    let (id, type_id) = (site.result()?, site.result_type()?);
    let Some(&Operand::StorageClass(class)) = site.inst.operands.first() else {
        return site.fail(Rule::OperandKind, id, "a storage class is expected");
    };
    let Some((of_type, pointee)) = module.pointer(type_id) else {
        return site.fail(
            Rule::Variable,
            id,
            "its type must be a pointer declared before",
        );
    };
    site.require(
        of_type == class,
        Rule::Variable,
        id,
        "its type has another storage class",
    )?;
    let info = site.info(pointee)?;
    match class {
        StorageClass::Function | StorageClass::Private => {
            let holds = !info.has_runtime_array;
            site.require(
                holds,
                Rule::Variable,
                id,
                "a runtime array outside a buffer",
            )?;
            if info.components > MAX_PRIVATE_COMPONENTS {
                let detail = format!(
                    "{} scalars, at most {MAX_PRIVATE_COMPONENTS} are allowed",
                    info.components
                );
                return site.fail(Rule::Limit, id, detail);
            }
        }
        StorageClass::Workgroup => {
            let Some((bytes, _)) = info.natural.filter(|_| !info.has_runtime_array) else {
                return site.fail(Rule::Variable, id, "a type of no size in workgroup memory");
            };
            if bytes > MAX_WORKGROUP_BYTES {
                let detail = format!("{bytes} bytes, at most {MAX_WORKGROUP_BYTES} are allowed");
                return site.fail(Rule::Limit, id, detail);
            }
        }
        StorageClass::StorageBuffer | StorageClass::PushConstant | StorageClass::Uniform => {
            let mut element = pointee;
            // Arrays nest at most as deep as types may.
            while let Some(
                Type::Array { element: inner, .. } | Type::RuntimeArray { element: inner },
            ) = module.type_of(element)
            {
                element = *inner;
            }
            let block = match class {
                StorageClass::Uniform => {
                    module.is_decorated(element, Decoration::BufferBlock)
                        || module.is_decorated(element, Decoration::Block)
                }
                _ => module.is_decorated(element, Decoration::Block),
            };
            let holds = block && matches!(module.type_of(element), Some(Type::Struct { .. }));
            site.require(
                holds,
                Rule::Variable,
                id,
                "must be a struct decorated as a block",
            )?;
            let plain = element == pointee || class != StorageClass::PushConstant;
            site.require(
                plain,
                Rule::Variable,
                id,
                "push constants cannot be arrayed",
            )?;
        }
        StorageClass::Input => {
            let holds = built_in_input(module, id, pointee);
            let detail = "an input of a compute entry point must be a built-in";
            site.require(holds, Rule::BuiltIn, id, detail)?;
        }
        other => return site.unsupported(format!("variables of storage class {other:?}")),
    }
    if site.count() > 1 {
        let value = site.id(1)?;
        site.operand_is(1, pointee)?;
        let own = matches!(class, StorageClass::Function | StorageClass::Private);
        let holds = own && module.constant(value).is_some();
        let detail =
            "only constants initialize, and only variables of Function and Private storage";
        site.require(holds, Rule::Variable, id, detail)?;
    }
    Ok(class)
}

fn built_in_input(module: &Module<'_>, id: u32, pointee: u32) -> bool {
    let fits = |literal: Option<u32>, type_id: u32| {
        let (Some(value), Some(numeric)) = (
            literal.and_then(BuiltIn::from_u32),
            module.types.numeric(type_id),
        ) else {
            return false;
        };
        let count = match value {
            BuiltIn::NumWorkgroups
            | BuiltIn::WorkgroupId
            | BuiltIn::LocalInvocationId
            | BuiltIn::GlobalInvocationId => 3,
            BuiltIn::LocalInvocationIndex => 1,
            BuiltIn::SubgroupSize | BuiltIn::SubgroupLocalInvocationId
                if module.has(Capability::GroupNonUniform) =>
            {
                1
            }
            BuiltIn::NumSubgroups | BuiltIn::SubgroupId
                if module.has(Capability::GroupNonUniform) =>
            {
                1
            }
            BuiltIn::SubgroupEqMask
            | BuiltIn::SubgroupGeMask
            | BuiltIn::SubgroupGtMask
            | BuiltIn::SubgroupLeMask
            | BuiltIn::SubgroupLtMask
                if module.has(Capability::GroupNonUniformBallot) =>
            {
                4
            }
            _ => return false,
        };
        numeric.is_integer() && numeric.bits == 32 && numeric.count == count
    };
    fits(
        module.decoration_literal(id, None, Decoration::BuiltIn),
        pointee,
    )
}

/// Undefined values have a type that values may have.
pub(super) fn check_undef(site: &Site<'_, '_>) -> Checked {
    let id = site.result()?;
    let info = site.info(site.result_type()?)?;
    let holds = info.is_data() && !info.has_runtime_array && !info.has_logical_pointer;
    site.require(
        holds,
        Rule::ResultType,
        id,
        "no undefined value of that type",
    )?;
    let small = info.components <= MAX_PRIVATE_COMPONENTS;
    site.require(
        small,
        Rule::Limit,
        id,
        "an undefined value of too many scalars",
    )
}
