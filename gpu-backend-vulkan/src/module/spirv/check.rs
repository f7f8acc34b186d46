//! The structural checker: what a driver takes for granted about a module, checked before it.
//!
//! Not a full validator, but a closed one: an instruction, capability, decoration or extension
//! without a rule here is refused by name.

mod annotations;
mod constants;
mod control_flow;
mod declarations;
mod extended;
mod functions;
mod layout;
mod memory;
mod operations;
mod preamble;
mod subgroup;
mod types;
mod variables;

use std::collections::{HashMap, HashSet};

use rspirv::dr::{Instruction, Operand};
use spirv::{Capability, Decoration, MemorySemantics, Op, StorageClass};

use super::parse::Parsed;
use super::{Rule, SpirvError};
pub(super) use constants::Constant;
pub(super) use declarations::{EntryPoint, LocalSize};
pub(super) use functions::Function;
pub(super) use types::{Numeric, Scalar, Type};

pub(super) type Checked<T = ()> = Result<T, SpirvError>;

/// A module that passed the checks, with the tables that reflection reads.
pub(super) struct Module<'a> {
    pub(super) parsed: &'a Parsed,
    /// For each id: the index of its defining instruction plus one, zero for none.
    definitions: Vec<u32>,
    /// As declared, sorted.
    pub(super) capabilities: Vec<Capability>,
    /// The declared ones and those they imply.
    implied: HashSet<Capability>,
    extended_sets: HashMap<u32, extended::Set>,
    physical: bool,
    vulkan_memory_model: bool,
    pub(super) entries: Vec<EntryPoint>,
    annotations: annotations::Annotations,
    /// The instructions that name ids and members.
    pub(super) names: HashMap<(u32, Option<u32>), usize>,
    types: types::Types,
    constants: HashMap<u32, Constant>,
    /// Module-scope variables in order.
    pub(super) variables: Vec<u32>,
    functions: Vec<Function>,
    function_indices: HashMap<u32, usize>,
}

impl<'a> Module<'a> {
    /// Checks a decoded module.
    pub(super) fn new(parsed: &'a Parsed) -> Checked<Self> {
        let mut module = Self {
            parsed,
            definitions: vec![0; parsed.bound as usize],
            capabilities: Vec::new(),
            implied: HashSet::new(),
            extended_sets: HashMap::new(),
            physical: false,
            vulkan_memory_model: false,
            entries: Vec::new(),
            annotations: annotations::Annotations::default(),
            names: HashMap::new(),
            types: types::Types::default(),
            constants: HashMap::new(),
            variables: Vec::new(),
            functions: Vec::new(),
            function_indices: HashMap::new(),
        };
        let sections = layout::check(&module)?;
        module.define_ids()?;
        module.preamble(&sections)?;
        module.collect_annotations(&sections)?;
        module.globals(&sections)?;
        module.check_annotations(&sections)?;
        module.collect_functions(&sections)?;
        module.entry_points(&sections)?;
        module.check_functions()?;
        module.check_interfaces()?;
        Ok(module)
    }

    fn define_ids(&mut self) -> Checked {
        for index in 0..self.parsed.instructions.len() {
            let site = self.site(index);
            let ids = site.inst.result_id.into_iter().chain(site.inst.result_type);
            for id in ids.chain(site.inst.operands.iter().filter_map(id_of)) {
                if id == 0 || id >= self.parsed.bound {
                    let bound = self.parsed.bound;
                    return site.fail(Rule::IdBound, id, format!("the id bound is {bound}"));
                }
            }
            if let Some(id) = site.inst.result_id {
                let slot = self.definitions[id as usize];
                if slot != 0 {
                    let first = slot - 1;
                    return site.fail(Rule::IdDefinedOnce, id, format!("first at {first}"));
                }
                self.definitions[id as usize] = index as u32 + 1;
            }
        }
        for index in 0..self.parsed.instructions.len() {
            let site = self.site(index);
            let operands = site.inst.operands.iter().filter_map(id_of);
            for id in site.inst.result_type.into_iter().chain(operands) {
                if self.definition(id).is_none() {
                    return site.fail(Rule::IdDefined, id, "nothing defines it");
                }
            }
            let file = match site.op() {
                Op::Source => 2,
                Op::Line => 0,
                _ => continue,
            };
            if let Some(id) = site.inst.operands.get(file).and_then(id_of) {
                let string = self
                    .defining(id)
                    .is_some_and(|inst| inst.class.opcode == Op::String);
                site.require(string, Rule::OperandKind, id, "a string is expected")?;
            }
        }
        Ok(())
    }

    /// The index of the instruction that defines `id`.
    pub(super) fn definition(&self, id: u32) -> Option<usize> {
        let slot = *self.definitions.get(id as usize)?;
        (slot as usize).checked_sub(1)
    }

    /// The instruction that defines `id`.
    pub(super) fn defining(&self, id: u32) -> Option<&'a Instruction> {
        self.definition(id)
            .map(|index| &self.parsed.instructions[index])
    }

    fn site(&self, index: usize) -> Site<'_, 'a> {
        Site {
            module: self,
            index,
            inst: &self.parsed.instructions[index],
        }
    }

    pub(super) fn has(&self, capability: Capability) -> bool {
        self.implied.contains(&capability)
    }

    fn version_at_least(&self, minor: u8) -> bool {
        self.parsed.version >= (1, minor)
    }

    pub(super) fn type_of(&self, id: u32) -> Option<&Type> {
        self.types.get(id).map(|info| &info.shape)
    }

    pub(super) fn type_info(&self, id: u32) -> Option<&types::TypeInfo> {
        self.types.get(id)
    }

    /// A type's storage class and pointee when it is a pointer.
    pub(super) fn pointer(&self, type_id: u32) -> Option<(StorageClass, u32)> {
        match self.type_of(type_id)? {
            Type::Pointer { class, pointee } => Some((*class, *pointee)),
            _ => None,
        }
    }

    pub(super) fn constant(&self, id: u32) -> Option<&Constant> {
        self.constants.get(&id)
    }

    pub(super) fn function(&self, id: u32) -> Option<&Function> {
        self.function_indices
            .get(&id)
            .map(|&index| &self.functions[index])
    }

    pub(super) fn is_decorated(&self, id: u32, decoration: Decoration) -> bool {
        self.annotations.find(id, None, decoration).is_some()
    }

    /// The literal of a decoration that has one.
    pub(super) fn decoration_literal(
        &self,
        id: u32,
        member: Option<u32>,
        decoration: Decoration,
    ) -> Option<u32> {
        let index = self.annotations.find(id, member, decoration)?;
        match self.parsed.instructions[index].operands.last() {
            Some(Operand::LiteralBit32(value)) => Some(*value),
            Some(Operand::BuiltIn(value)) => Some(*value as u32),
            _ => None,
        }
    }

    pub(super) fn is_member_decorated(&self, id: u32, member: u32, decoration: Decoration) -> bool {
        self.annotations
            .find(id, Some(member), decoration)
            .is_some()
    }

    /// Every function reachable from `entry`, itself included.
    pub(super) fn reachable_functions(&self, entry: u32) -> Vec<&Function> {
        let mut seen = HashSet::from([entry]);
        let mut pending = vec![entry];
        let mut found = Vec::new();
        while let Some(id) = pending.pop() {
            if let Some(function) = self.function(id) {
                pending.extend(
                    function
                        .callees
                        .iter()
                        .filter(|callee| seen.insert(**callee)),
                );
                found.push(function);
            }
        }
        found
    }
}

/// One instruction within its module: what the rules look at and report.
#[derive(Clone, Copy)]
struct Site<'m, 'a> {
    module: &'m Module<'a>,
    index: usize,
    inst: &'a Instruction,
}

impl<'m, 'a> Site<'m, 'a> {
    fn op(&self) -> Op {
        self.inst.class.opcode
    }

    fn error(&self, rule: Rule, id: u32, detail: impl Into<String>) -> SpirvError {
        SpirvError::Rule {
            rule,
            instruction: self.index,
            opcode: self.inst.class.opname,
            id,
            detail: detail.into(),
        }
    }

    fn fail<T>(&self, rule: Rule, id: u32, detail: impl Into<String>) -> Checked<T> {
        Err(self.error(rule, id, detail))
    }

    fn require(&self, holds: bool, rule: Rule, id: u32, detail: &str) -> Checked {
        if holds {
            Ok(())
        } else {
            self.fail(rule, id, detail)
        }
    }

    fn unsupported<T>(&self, what: impl Into<String>) -> Checked<T> {
        Err(SpirvError::Unsupported {
            what: what.into(),
            instruction: self.index,
        })
    }

    fn result(&self) -> Checked<u32> {
        self.inst
            .result_id
            .ok_or_else(|| self.error(Rule::OperandKind, 0, "a result id is expected"))
    }

    fn result_type(&self) -> Checked<u32> {
        self.inst
            .result_type
            .ok_or_else(|| self.error(Rule::OperandKind, 0, "a result type is expected"))
    }

    fn count(&self) -> usize {
        self.inst.operands.len()
    }

    /// Operand `position` (after result type and result) as an id.
    fn id(&self, position: usize) -> Checked<u32> {
        self.inst
            .operands
            .get(position)
            .and_then(id_of)
            .ok_or_else(|| {
                self.error(
                    Rule::OperandKind,
                    0,
                    format!("operand {position} must be an id"),
                )
            })
    }

    /// Operand `position` as a one-word literal.
    fn literal(&self, position: usize) -> Checked<u32> {
        match self.inst.operands.get(position) {
            Some(Operand::LiteralBit32(value) | Operand::LiteralExtInstInteger(value)) => {
                Ok(*value)
            }
            _ => self.fail(
                Rule::OperandKind,
                0,
                format!("operand {position} must be a literal"),
            ),
        }
    }

    fn ids_from(&self, first: usize) -> Checked<Vec<u32>> {
        (first..self.count())
            .map(|position| self.id(position))
            .collect()
    }

    fn literals_from(&self, first: usize) -> Checked<Vec<u32>> {
        (first..self.count())
            .map(|position| self.literal(position))
            .collect()
    }

    fn shape(&self, type_id: u32) -> Checked<&'m Type> {
        match self.module.types.get(type_id) {
            Some(info) => Ok(&info.shape),
            None => self.fail(Rule::OperandKind, type_id, "a type is expected"),
        }
    }

    fn info(&self, type_id: u32) -> Checked<&'m types::TypeInfo> {
        match self.module.types.get(type_id) {
            Some(info) => Ok(info),
            None => self.fail(Rule::OperandKind, type_id, "a type is expected"),
        }
    }

    /// The type of a value: a result with a type that is not a function.
    fn value_type(&self, id: u32) -> Checked<u32> {
        let defining = self.module.defining(id);
        match defining.and_then(|inst| inst.result_type) {
            Some(type_id) if defining.is_some_and(|i| i.class.opcode != Op::Function) => {
                Ok(type_id)
            }
            _ => self.fail(Rule::OperandKind, id, "a value is expected"),
        }
    }

    /// Operand `position` as a value: its type.
    fn operand_type(&self, position: usize) -> Checked<u32> {
        self.value_type(self.id(position)?)
    }

    /// A scalar's or vector's shape.
    fn numeric(&self, type_id: u32) -> Checked<Numeric> {
        match self.module.types.numeric(type_id) {
            Some(numeric) => Ok(numeric),
            None => self.fail(Rule::OperandType, type_id, "a scalar or vector is expected"),
        }
    }

    fn operand_numeric(&self, position: usize) -> Checked<Numeric> {
        self.numeric(self.operand_type(position)?)
    }

    fn result_numeric(&self) -> Checked<Numeric> {
        self.numeric(self.result_type()?)
    }

    /// Requires operand `position` to have exactly the type `type_id`.
    fn operand_is(&self, position: usize, type_id: u32) -> Checked {
        let id = self.id(position)?;
        let found = self.value_type(id)?;
        if found == type_id {
            return Ok(());
        }
        self.fail(
            Rule::OperandType,
            id,
            format!("type %{found} where %{type_id} is expected"),
        )
    }

    fn pointer_operand(&self, position: usize) -> Checked<(StorageClass, u32)> {
        let id = self.id(position)?;
        let type_id = self.value_type(id)?;
        match self.module.pointer(type_id) {
            Some(pointer) => Ok(pointer),
            None => self.fail(Rule::OperandType, id, "a pointer is expected"),
        }
    }

    /// Operand `position` must be an integer scalar.
    fn integer_scalar(&self, position: usize) -> Checked<u32> {
        let id = self.id(position)?;
        let numeric = self.numeric(self.value_type(id)?)?;
        let holds = numeric.is_integer() && numeric.is_scalar();
        self.require(
            holds,
            Rule::OperandType,
            id,
            "an integer scalar is expected",
        )?;
        Ok(id)
    }

    /// The value of a 32-bit integer constant that no specialization changes.
    fn fixed_u32(&self, position: usize) -> Checked<u32> {
        let id = self.integer_scalar(position)?;
        match self.module.constant(id) {
            Some(constant) if !constant.specialized => match constant.integer() {
                Some(value) => Ok(value as u32),
                None => self.fail(Rule::Constant, id, "an integer constant is expected"),
            },
            _ => self.fail(Rule::Constant, id, "a constant is expected"),
        }
    }

    fn is_spec_op(&self) -> bool {
        self.module.parsed.specialized[self.index]
    }

    /// Operand `position` as a memory scope.
    fn scope(&self, position: usize) -> Checked<spirv::Scope> {
        let id = self.id(position)?;
        let value = self.fixed_u32(position)?;
        let width = self.operand_numeric(position)?.bits;
        self.require(width == 32, Rule::Scope, id, "a scope is a 32-bit integer")?;
        let device_scope = !self.module.vulkan_memory_model
            || self.module.has(Capability::VulkanMemoryModelDeviceScope);
        match spirv::Scope::from_u32(value) {
            Some(spirv::Scope::Device) if !device_scope => self.fail(
                Rule::Scope,
                id,
                "needs capability VulkanMemoryModelDeviceScope",
            ),
            Some(
                scope @ (spirv::Scope::Device
                | spirv::Scope::Workgroup
                | spirv::Scope::Subgroup
                | spirv::Scope::Invocation),
            ) => Ok(scope),
            Some(spirv::Scope::QueueFamily) if self.module.vulkan_memory_model => {
                Ok(spirv::Scope::QueueFamily)
            }
            _ => self.fail(Rule::Scope, id, format!("scope {value} is not allowed")),
        }
    }

    /// Operand `position` as memory semantics.
    fn semantics(&self, position: usize) -> Checked<MemorySemantics> {
        let id = self.id(position)?;
        let value = self.fixed_u32(position)?;
        let width = self.operand_numeric(position)?.bits;
        self.require(
            width == 32,
            Rule::Semantics,
            id,
            "semantics are a 32-bit integer",
        )?;
        let Some(semantics) = MemorySemantics::from_bits(value) else {
            return self.fail(Rule::Semantics, id, format!("unknown bits in {value:#x}"));
        };
        let orders = MemorySemantics::ACQUIRE
            | MemorySemantics::RELEASE
            | MemorySemantics::ACQUIRE_RELEASE
            | MemorySemantics::SEQUENTIALLY_CONSISTENT;
        let order = semantics & orders;
        let places = MemorySemantics::UNIFORM_MEMORY
            | MemorySemantics::WORKGROUP_MEMORY
            | MemorySemantics::IMAGE_MEMORY
            | MemorySemantics::OUTPUT_MEMORY;
        let visibility = MemorySemantics::MAKE_AVAILABLE | MemorySemantics::MAKE_VISIBLE;
        let vulkan_only = visibility | MemorySemantics::VOLATILE | MemorySemantics::OUTPUT_MEMORY;
        let holds = order.bits().count_ones() <= 1
            && (order.is_empty() || semantics.intersects(places))
            && !semantics.contains(MemorySemantics::SEQUENTIALLY_CONSISTENT)
            && (self.module.vulkan_memory_model || !semantics.intersects(vulkan_only))
            && (!semantics.intersects(visibility) || !order.is_empty());
        self.require(
            holds,
            Rule::Semantics,
            id,
            "no such combination of memory semantics",
        )?;
        Ok(semantics)
    }
}

/// An operand's id, where it is one.
fn id_of(operand: &Operand) -> Option<u32> {
    match operand {
        Operand::IdRef(id) | Operand::IdScope(id) | Operand::IdMemorySemantics(id) => Some(*id),
        _ => None,
    }
}
