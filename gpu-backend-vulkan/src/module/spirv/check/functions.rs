//! Functions: their parts in order, calls, and the uses that must be dominated by definitions.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use spirv::{FunctionControl, Op, StorageClass};

use super::control_flow::{Block, Graph};
use super::layout::{Section, Sections};
use super::{Checked, Module, Operand, Rule, Type, id_of, operations, variables};

/// Blocks in one function, and instructions between them: far above what compilers emit, low
/// enough that a graph made to be slow stays fast.
const MAX_BLOCKS: usize = 1 << 15;

/// A function with what it refers to.
pub(in crate::module::spirv) struct Function {
    pub(in crate::module::spirv) id: u32,
    pub(super) result_type: u32,
    pub(super) parameters: Vec<u32>,
    range: Range<usize>,
    /// Functions it calls, each once.
    pub(super) callees: Vec<u32>,
    /// Module-scope variables it uses, each once.
    pub(in crate::module::spirv) globals: Vec<u32>,
    blocks: Vec<Block>,
}

impl Module<'_> {
    /// Splits the last section into functions and blocks.
    pub(super) fn collect_functions(&mut self, sections: &Sections) -> Checked {
        let section = sections.range(Section::Functions);
        let mut at = section.start;
        while at < section.end {
            let op = self.site(at).op();
            if matches!(op, Op::Line | Op::NoLine | Op::Nop | Op::ExtInst)
                && !self.functions.is_empty()
            {
                self.between_functions(at)?;
                at += 1;
                continue;
            }
            let function = self.function_at(at, section.end)?;
            at = function.range.end;
            self.function_indices
                .insert(function.id, self.functions.len());
            self.functions.push(function);
        }
        Ok(())
    }

    fn between_functions(&self, index: usize) -> Checked {
        let site = self.site(index);
        match site.op() {
            Op::ExtInst => super::extended::check_global(&site),
            _ => Ok(()),
        }
    }

    fn function_at(&self, start: usize, end: usize) -> Checked<Function> {
        let site = self.site(start);
        if site.op() != Op::Function {
            return site.fail(Rule::Function, 0, "outside any function");
        }
        let (id, result_type) = (site.result()?, site.result_type()?);
        let type_id = site.id(1)?;
        let Type::Function {
            result,
            parameters: expected,
        } = site.shape(type_id)?
        else {
            return site.fail(Rule::Function, id, "a function type is expected");
        };
        let same = *result == result_type;
        site.require(same, Rule::Function, id, "its type returns another type")?;
        let control = FunctionControl::INLINE
            | FunctionControl::DONT_INLINE
            | FunctionControl::PURE
            | FunctionControl::CONST;
        if !matches!(site.inst.operands.first(),
            Some(Operand::FunctionControl(found)) if control.contains(*found))
        {
            return site.unsupported("that function control");
        }
        let mut function = Function {
            id,
            result_type,
            parameters: Vec::new(),
            range: start..start,
            callees: Vec::new(),
            globals: Vec::new(),
            blocks: Vec::new(),
        };
        let mut block: Option<Block> = None;
        let mut seen = HashSet::new();
        for index in start + 1..end {
            let site = self.site(index);
            let op = site.op();
            self.note_uses(&mut function, &mut seen, index);
            match op {
                Op::FunctionEnd => {
                    site.require(block.is_none(), Rule::Block, id, "a block without an end")?;
                    let bodied = !function.blocks.is_empty();
                    site.require(bodied, Rule::Function, id, "a function without a body")?;
                    let count = function.parameters.len() == expected.len();
                    site.require(count, Rule::Function, id, "too few parameters")?;
                    function.range.end = index + 1;
                    return Ok(function);
                }
                Op::FunctionParameter => {
                    let parameter = site.result()?;
                    let place = function.parameters.len();
                    let fits = function.blocks.is_empty()
                        && block.is_none()
                        && expected.get(place) == site.inst.result_type.as_ref();
                    site.require(fits, Rule::Function, parameter, "does not fit the type")?;
                    function.parameters.push(parameter);
                }
                Op::Label => {
                    let label = site.result()?;
                    site.require(block.is_none(), Rule::Block, label, "within another block")?;
                    block = Some(Block::new(label, index));
                    if function.blocks.len() >= MAX_BLOCKS {
                        let detail = format!("more than {MAX_BLOCKS} blocks");
                        return site.fail(Rule::Limit, id, detail);
                    }
                }
                Op::Line | Op::NoLine | Op::Nop => {}
                _ => match block.take() {
                    Some(mut open) => {
                        open.take(&site)?;
                        if open.is_closed() {
                            function.blocks.push(open);
                        } else {
                            block = Some(open);
                        }
                    }
                    None if op == Op::ExtInst && function.blocks.is_empty() => {
                        super::extended::check_global(&site)?;
                    }
                    None => return site.fail(Rule::Block, id, "outside any block"),
                },
            }
        }
        site.fail(Rule::Function, id, "no end of the function")
    }

    fn note_uses(&self, function: &mut Function, seen: &mut HashSet<u32>, index: usize) {
        let site = self.site(index);
        if super::extended::is_non_semantic(&site) {
            return;
        }
        if site.op() == Op::FunctionCall {
            if let Ok(callee) = site.id(0)
                && seen.insert(callee)
            {
                function.callees.push(callee);
            }
            return self.note_globals(function, seen, &site.inst.operands[1..]);
        }
        self.note_globals(function, seen, &site.inst.operands);
    }

    fn note_globals(&self, function: &mut Function, seen: &mut HashSet<u32>, ids: &[Operand]) {
        for id in ids.iter().filter_map(id_of) {
            if self.variable_class(id).is_some() && seen.insert(id) {
                function.globals.push(id);
            }
        }
    }

    /// Checks every function's instructions and control flow, and that none recurses.
    pub(super) fn check_functions(&self) -> Checked {
        self.no_recursion()?;
        let entries: HashSet<u32> = self.entries.iter().map(|entry| entry.function).collect();
        for function in &self.functions {
            let start = self.site(function.range.start);
            if let Some(&called) = function.callees.iter().find(|id| entries.contains(*id)) {
                return start.fail(Rule::Call, called, "an entry point is called");
            }
            let graph = Graph::new(self, &function.blocks)?;
            self.dominated_uses(function, &graph)?;
            for index in function.range.clone() {
                let site = self.site(index);
                match site.op() {
                    Op::Function | Op::FunctionParameter | Op::FunctionEnd => {}
                    Op::Return | Op::ReturnValue => self.check_return(function, index)?,
                    Op::Variable => {
                        let id = site.result()?;
                        let local = variables::check_variable(&site)? == StorageClass::Function;
                        site.require(local, Rule::Variable, id, "Function storage is expected")?;
                    }
                    _ => operations::check(&site)?,
                }
            }
            graph.check_phis(self, &function.blocks)?;
            graph.check_structure(self, &function.blocks)?;
        }
        Ok(())
    }

    fn check_return(&self, function: &Function, index: usize) -> Checked {
        let site = self.site(index);
        let void = self.type_of(function.result_type) == Some(&Type::Void);
        if site.op() == Op::Return {
            return site.require(
                void,
                Rule::Function,
                function.id,
                "a value must be returned",
            );
        }
        site.require(
            !void,
            Rule::Function,
            function.id,
            "no value can be returned",
        )?;
        site.operand_is(0, function.result_type)
    }

    /// Every callee is a function, and calls form no cycle.
    fn no_recursion(&self) -> Checked {
        let mut state: HashMap<u32, bool> = HashMap::new();
        for function in &self.functions {
            if state.contains_key(&function.id) {
                continue;
            }
            state.insert(function.id, false);
            let mut stack = vec![(function, 0)];
            while let Some((current, next)) = stack.pop() {
                let Some(&callee) = current.callees.get(next) else {
                    state.insert(current.id, true);
                    continue;
                };
                stack.push((current, next + 1));
                let site = self.site(current.range.start);
                let Some(called) = self.function(callee) else {
                    return site.fail(Rule::Call, callee, "no function is called by it");
                };
                match state.get(&callee) {
                    Some(true) => {}
                    Some(false) => return site.fail(Rule::Recursion, callee, "it calls itself"),
                    None => {
                        state.insert(callee, false);
                        stack.push((called, 0));
                    }
                }
                if stack.len() > 256 {
                    return site.fail(Rule::Limit, callee, "calls nest deeper than 256");
                }
            }
        }
        Ok(())
    }

    /// Every use is dominated by its definition.
    fn dominated_uses(&self, function: &Function, graph: &Graph) -> Checked {
        // Which block an instruction of this function stands in; none: before the first.
        let mut place: HashMap<usize, usize> = HashMap::new();
        for (position, block) in function.blocks.iter().enumerate() {
            for index in block.range() {
                place.insert(index, position);
            }
        }
        for index in function.range.clone() {
            let site = self.site(index);
            let op = site.op();
            let forward_allowed = super::extended::is_non_semantic(&site)
                || matches!(op, Op::Line | Op::FunctionCall | Op::Phi);
            let labels = matches!(
                op,
                Op::Branch
                    | Op::BranchConditional
                    | Op::Switch
                    | Op::LoopMerge
                    | Op::SelectionMerge
            );
            let ids = site
                .inst
                .operands
                .iter()
                .enumerate()
                .filter_map(|(at, o)| Some((at, id_of(o)?)));
            for (at, id) in ids.chain(site.inst.result_type.map(|id| (usize::MAX, id))) {
                let Some(definition) = self.definition(id) else {
                    return site.fail(Rule::IdDefined, id, "nothing defines it");
                };
                let target = &self.parsed.instructions[definition];
                let label = target.class.opcode == Op::Label;
                if label {
                    let own = function.range.contains(&definition);
                    let expected = labels || (op == Op::Phi && at % 2 == 1);
                    if !own || !(expected || forward_allowed) {
                        return site.fail(Rule::OperandKind, id, "a label is not expected");
                    }
                    continue;
                }
                if definition < index && !function.range.contains(&definition) {
                    let other = definition > self.functions[0].range.start
                        && target.class.opcode != Op::Function
                        && !super::extended::is_non_semantic(&self.site(definition));
                    if other {
                        return site.fail(Rule::Dominance, id, "belongs to another function");
                    }
                    continue;
                }
                if op == Op::Phi {
                    // Checked against the predecessor by `check_phis`.
                    continue;
                }
                let dominates = match (place.get(&definition), place.get(&index)) {
                    (None, _) => definition < index,
                    (Some(from), Some(to)) if from == to => definition < index,
                    (Some(from), Some(to)) => graph.dominates(*from, *to),
                    (Some(_), None) => false,
                };
                let call = op == Op::FunctionCall && at == 0;
                if !dominates && !call && (!forward_allowed || op == Op::FunctionCall) {
                    return site.fail(Rule::Dominance, id, "its definition is not always reached");
                }
            }
        }
        Ok(())
    }

    /// The block that holds the definition of `id`, and where; none outside `blocks`.
    pub(super) fn defined_in(&self, blocks: &[Block], id: u32) -> Option<usize> {
        let definition = self.definition(id)?;
        let position = blocks.partition_point(|block| block.range().end <= definition);
        blocks
            .get(position)
            .filter(|block| block.range().contains(&definition))
            .map(|_| position)
    }
}
