//! What a module declares outside functions: types and globals, entry points, interfaces.

use std::collections::HashSet;

use spirv::{Capability, Decoration, ExecutionMode, ExecutionModel, Op, StorageClass};

use super::layout::{Section, Sections};
use super::{Checked, Module, Operand, Rule, Site, SpirvError, Type, extended};

/// Entry points of one module, more than any kernel library puts in one.
const MAX_ENTRIES: usize = 1024;

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

impl Module<'_> {
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
                    let class = super::variables::check_variable(&site)?;
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
                    super::variables::check_undef(&site)?;
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
