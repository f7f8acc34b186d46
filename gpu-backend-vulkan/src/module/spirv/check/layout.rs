//! The order of a module's sections.

use std::ops::Range;

use spirv::Op;

use super::{Checked, Module, Rule};

/// A module's sections in the order the specification gives them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Section {
    Capabilities,
    Extensions,
    ExtendedSets,
    MemoryModel,
    EntryPoints,
    ExecutionModes,
    Sources,
    Names,
    Processes,
    Annotations,
    Globals,
    Functions,
}

const COUNT: usize = Section::Functions as usize + 1;

/// The instructions of each section.
pub(super) struct Sections([Range<usize>; COUNT]);

impl Sections {
    pub(super) fn range(&self, section: Section) -> Range<usize> {
        self.0[section as usize].clone()
    }
}

/// Where an instruction belongs; none: it may stand in more than one section.
fn section(op: Op) -> Option<Section> {
    Some(match op {
        Op::Capability => Section::Capabilities,
        Op::Extension => Section::Extensions,
        Op::ExtInstImport => Section::ExtendedSets,
        Op::MemoryModel => Section::MemoryModel,
        Op::EntryPoint => Section::EntryPoints,
        Op::ExecutionMode | Op::ExecutionModeId => Section::ExecutionModes,
        Op::String | Op::SourceExtension | Op::Source | Op::SourceContinued => Section::Sources,
        Op::Name | Op::MemberName => Section::Names,
        Op::ModuleProcessed => Section::Processes,
        Op::Decorate
        | Op::MemberDecorate
        | Op::DecorateId
        | Op::DecorateString
        | Op::MemberDecorateString => Section::Annotations,
        Op::Variable
        | Op::Undef
        | Op::Line
        | Op::NoLine
        | Op::ExtInst
        | Op::ExtInstWithForwardRefsKHR
        | Op::Nop => return None,
        Op::TypeForwardPointer => Section::Globals,
        _ if op.is_type() || op.is_constant() => Section::Globals,
        _ => Section::Functions,
    })
}

/// Finds the sections and requires their order.
pub(super) fn check(module: &Module<'_>) -> Checked<Sections> {
    let mut starts = [None; COUNT];
    let mut current = Section::Capabilities;
    let total = module.parsed.instructions.len();
    for index in 0..total {
        let site = module.site(index);
        let op = site.op();
        let place = match section(op) {
            _ if site.is_spec_op() => Section::Globals,
            Some(section) => section,
            None if op == Op::Nop => current,
            None => current.max(Section::Globals),
        };
        if place < current {
            return site.fail(
                Rule::Layout,
                site.inst.result_id.unwrap_or(0),
                format!("belongs to {place:?}, found in {current:?}"),
            );
        }
        current = place;
        starts[place as usize].get_or_insert(index);
    }
    let mut sections: [Range<usize>; COUNT] = std::array::from_fn(|_| total..total);
    let mut end = total;
    for section in (0..COUNT).rev() {
        let start = starts[section].unwrap_or(end);
        sections[section] = start..end;
        end = start;
    }
    Ok(Sections(sections))
}
