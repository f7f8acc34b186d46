//! Blocks, dominance and structured control flow.

mod dominators;
mod structure;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use rspirv::grammar::reflect::is_block_terminator;
use spirv::{Capability, Op};

use self::dominators::Dominators;
use super::{Checked, Module, Rule, Site};

/// A basic block.
pub(super) struct Block {
    pub(super) label: u32,
    start: usize,
    end: usize,
    merge: Option<Merge>,
    /// Labels the terminator may go to.
    targets: Vec<u32>,
    terminator: Option<Op>,
    past_phis: bool,
    past_variables: bool,
}

/// A merge instruction's labels.
#[derive(Clone, Copy)]
struct Merge {
    block: u32,
    /// The continue target of a loop; none for a selection.
    continues: Option<u32>,
}

impl Block {
    pub(super) fn new(label: u32, start: usize) -> Self {
        Self {
            label,
            start,
            end: start + 1,
            merge: None,
            targets: Vec::new(),
            terminator: None,
            past_phis: false,
            past_variables: false,
        }
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    pub(super) fn is_closed(&self) -> bool {
        self.terminator.is_some()
    }

    /// Takes the next instruction in.
    pub(super) fn take(&mut self, site: &Site<'_, '_>) -> Checked {
        let op = site.op();
        self.end = site.index + 1;
        if let Some(merge) = self.merge {
            let fits = match merge.continues {
                Some(_) => matches!(op, Op::Branch | Op::BranchConditional),
                None => matches!(op, Op::BranchConditional | Op::Switch),
            };
            let detail = "a merge instruction must stand right before the branch it is for";
            site.require(fits, Rule::Block, self.label, detail)?;
        }
        match op {
            Op::Phi => {
                let first = !self.past_phis;
                site.require(
                    first,
                    Rule::Phi,
                    self.label,
                    "phis must come first in a block",
                )?;
            }
            Op::Variable => {
                let first = !self.past_variables;
                site.require(
                    first,
                    Rule::Variable,
                    self.label,
                    "variables must come first",
                )?;
            }
            Op::ExtInst if super::extended::is_non_semantic(site) => {}
            _ => (self.past_phis, self.past_variables) = (true, true),
        }
        match op {
            Op::SelectionMerge => {
                self.merge = Some(Merge {
                    block: site.id(0)?,
                    continues: None,
                });
            }
            Op::LoopMerge => {
                self.merge = Some(Merge {
                    block: site.id(0)?,
                    continues: Some(site.id(1)?),
                });
            }
            Op::Branch => self.close(op, vec![site.id(0)?]),
            Op::BranchConditional => self.close(op, vec![site.id(1)?, site.id(2)?]),
            Op::Switch => {
                let cases = (1..site.count()).filter(|position| position % 2 == 1);
                let targets = cases
                    .map(|position| site.id(position))
                    .collect::<Checked<_>>()?;
                self.close(op, targets);
            }
            _ if is_block_terminator(op) => self.close(op, Vec::new()),
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, terminator: Op, targets: Vec<u32>) {
        self.terminator = Some(terminator);
        self.targets = targets;
    }
}

/// A function's blocks as a graph, by position.
pub(super) struct Graph {
    by_label: HashMap<u32, usize>,
    predecessors: Vec<Vec<usize>>,
    successors: Vec<Vec<usize>>,
    plain: Dominators,
}

impl Graph {
    pub(super) fn new(module: &Module<'_>, blocks: &[Block]) -> Checked<Self> {
        let by_label: HashMap<u32, usize> = blocks
            .iter()
            .enumerate()
            .map(|(position, block)| (block.label, position))
            .collect();
        let mut graph = Self {
            by_label,
            predecessors: vec![Vec::new(); blocks.len()],
            successors: vec![Vec::new(); blocks.len()],
            plain: Dominators::default(),
        };
        for (position, block) in blocks.iter().enumerate() {
            let site = module.site(block.end - 1);
            let mut seen = HashSet::new();
            for &label in &block.targets {
                let target = graph.resolve(&site, label)?;
                let detail = "the entry block is no branch target";
                site.require(target != 0, Rule::Branch, label, detail)?;
                if seen.insert(target) {
                    graph.successors[position].push(target);
                    graph.predecessors[target].push(position);
                }
            }
            for index in block.range() {
                let site = module.site(index);
                let op = site.op();
                let misplaced =
                    (op == Op::Variable && position != 0) || (op == Op::Phi && position == 0);
                let detail = "variables stand in the entry block, phis in the others";
                site.require(!misplaced, Rule::Block, block.label, detail)?;
            }
        }
        let Some(plain) = Dominators::new(&graph.successors, &graph.predecessors) else {
            let site = module.site(blocks[0].start);
            return site.fail(Rule::Limit, blocks[0].label, "control flow too intricate");
        };
        graph.plain = plain;
        graph.check_order(module, blocks)?;
        Ok(graph)
    }

    fn resolve(&self, site: &Site<'_, '_>, label: u32) -> Checked<usize> {
        match self.by_label.get(&label) {
            Some(position) => Ok(*position),
            None => site.fail(Rule::Branch, label, "a label of this function is expected"),
        }
    }

    /// Blocks stand after the blocks that dominate them.
    fn check_order(&self, module: &Module<'_>, blocks: &[Block]) -> Checked {
        for (position, block) in blocks.iter().enumerate() {
            if self
                .plain
                .parent(position)
                .is_some_and(|parent| parent > position)
            {
                let site = module.site(block.start);
                return site.fail(Rule::Block, block.label, "stands before what dominates it");
            }
        }
        Ok(())
    }

    /// Whether every path to `block` goes through `by`; true where there is none.
    pub(super) fn dominates(&self, by: usize, block: usize) -> bool {
        self.plain.dominates(by, block)
    }

    /// Phis name each predecessor once, with a value that is there at its end.
    pub(super) fn check_phis(&self, module: &Module<'_>, blocks: &[Block]) -> Checked {
        for (position, block) in blocks.iter().enumerate() {
            for index in block.range() {
                let site = module.site(index);
                if site.op() != Op::Phi {
                    continue;
                }
                let (id, type_id) = (site.result()?, site.result_type()?);
                let info = site.info(type_id)?;
                let variable = module.has(Capability::VariablePointers)
                    || module.has(Capability::VariablePointersStorageBuffer);
                let holds = info.is_data() && (!info.has_logical_pointer || variable);
                site.require(holds, Rule::ResultType, id, "no phi of that type")?;
                let mut parents = HashSet::new();
                for at in (0..site.count()).step_by(2) {
                    site.operand_is(at, type_id)?;
                    let (value, label) = (site.id(at)?, site.id(at + 1)?);
                    let parent = self.resolve(&site, label)?;
                    let listed = self.predecessors[position].contains(&parent);
                    site.require(listed, Rule::Phi, label, "not a predecessor of this block")?;
                    site.require(parents.insert(parent), Rule::Phi, label, "named twice")?;
                    let arrives = match module.defined_in(blocks, value) {
                        Some(from) => self.dominates(from, parent),
                        None => true,
                    };
                    let detail = "the value is not there at the end of its predecessor";
                    site.require(arrives, Rule::Dominance, value, detail)?;
                }
                let all = parents.len() == self.predecessors[position].len();
                site.require(all, Rule::Phi, id, "a predecessor is missing")?;
            }
        }
        Ok(())
    }
}
