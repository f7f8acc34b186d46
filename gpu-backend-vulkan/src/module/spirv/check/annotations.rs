//! Names and decorations: their targets exist and fit, and blocks are laid out.

use std::collections::HashMap;

use spirv::{BuiltIn, Decoration, Op, StorageClass};

use super::layout::{Section, Sections};
use super::types::TypeInfo;
use super::{Checked, Module, Operand, Rule, Site, Type};

/// The decorations of a module by target, member and kind.
#[derive(Default)]
pub(super) struct Annotations {
    by_target: HashMap<(u32, Option<u32>, Decoration), usize>,
    pub(super) workgroup_size: Option<u32>,
}

impl Annotations {
    pub(super) fn find(&self, id: u32, member: Option<u32>, kind: Decoration) -> Option<usize> {
        self.by_target.get(&(id, member, kind)).copied()
    }
}

impl Module<'_> {
    /// Collects the decorations before the types that read them.
    pub(super) fn collect_annotations(&mut self, sections: &Sections) -> Checked {
        for index in sections.range(Section::Annotations) {
            let site = self.site(index);
            if site.op() == Op::Nop {
                continue;
            }
            let target = site.id(0)?;
            let members = matches!(site.op(), Op::MemberDecorate | Op::MemberDecorateString);
            let member = if members {
                Some(site.literal(1)?)
            } else {
                None
            };
            let position = 1 + usize::from(members);
            let Some(&Operand::Decoration(decoration)) = site.inst.operands.get(position) else {
                return site.fail(Rule::OperandKind, target, "a decoration is expected");
            };
            if site.op() == Op::DecorateId {
                return site.unsupported(format!("decoration {decoration:?} by id"));
            }
            let string = matches!(site.op(), Op::DecorateString | Op::MemberDecorateString);
            let takes_string = matches!(
                decoration,
                Decoration::UserSemantic | Decoration::UserTypeGOOGLE
            );
            if string != takes_string {
                return site.fail(Rule::Decoration, target, "wrong kind of operands");
            }
            if takes_string {
                continue;
            }
            let first = self
                .annotations
                .by_target
                .insert((target, member, decoration), index);
            if first.is_some() && self.parsed.instructions[index].operands.len() > position + 1 {
                let detail = format!("a second {decoration:?}");
                return self.site(index).fail(Rule::Decoration, target, detail);
            }
        }
        Ok(())
    }

    /// Requires names and decorations to fit what they are on.
    pub(super) fn check_annotations(&mut self, sections: &Sections) -> Checked {
        for index in sections.range(Section::Names) {
            let site = self.site(index);
            match site.op() {
                Op::MemberName => {
                    let (id, member) = (site.id(0)?, site.literal(1)?);
                    self.member_type(&site, id, member)?;
                    self.names.insert((id, Some(member)), index);
                }
                Op::Name => {
                    let id = site.id(0)?;
                    self.names.insert((id, None), index);
                }
                _ => {}
            }
        }
        for index in sections.range(Section::Annotations) {
            let site = self.site(index);
            let target = match site.op() {
                Op::Nop => continue,
                _ => site.id(0)?,
            };
            match site.op() {
                Op::MemberDecorate => {
                    let member = site.literal(1)?;
                    let type_id = self.member_type(&site, target, member)?;
                    self.member_decoration(&site, target, type_id)?;
                }
                Op::MemberDecorateString => {
                    self.member_type(&site, target, site.literal(1)?)?;
                }
                Op::Decorate if self.decoration(&site, target)? => {
                    let first = self.annotations.workgroup_size.is_none();
                    let site = self.site(index);
                    site.require(first, Rule::LocalSize, target, "a second block size")?;
                    self.annotations.workgroup_size = Some(target);
                }
                _ => {}
            }
        }
        self.check_blocks()
    }

    fn member_type(&self, site: &Site<'_, '_>, id: u32, member: u32) -> Checked<u32> {
        let Some(Type::Struct { members }) = self.type_of(id) else {
            return site.fail(Rule::Decoration, id, "a struct type is expected");
        };
        match members.get(member as usize) {
            Some(type_id) => Ok(*type_id),
            None => {
                let detail = format!("member {member} of {}", members.len());
                site.fail(Rule::Decoration, id, detail)
            }
        }
    }

    fn member_decoration(&self, site: &Site<'_, '_>, target: u32, member: u32) -> Checked {
        let Some(Operand::Decoration(decoration)) = site.inst.operands.get(2) else {
            return site.fail(Rule::OperandKind, target, "a decoration is expected");
        };
        match decoration {
            Decoration::Offset
            | Decoration::NonWritable
            | Decoration::NonReadable
            | Decoration::Coherent
            | Decoration::Volatile
            | Decoration::Restrict
            | Decoration::Aliased
            | Decoration::RelaxedPrecision => Ok(()),
            Decoration::MatrixStride | Decoration::RowMajor | Decoration::ColMajor => {
                let matrix = self.matrix_within(member).is_some();
                let stride = *decoration != Decoration::MatrixStride
                    || matches!(site.literal(3)?, 1..=0xffff);
                let detail = "a matrix and a stride in range are expected";
                site.require(matrix && stride, Rule::Decoration, target, detail)
            }
            other => site.unsupported(format!("member decoration {other:?}")),
        }
    }

    /// Checks a decoration of a whole id; whether it declares the block size.
    fn decoration(&self, site: &Site<'_, '_>, target: u32) -> Checked<bool> {
        let Some(Operand::Decoration(decoration)) = site.inst.operands.get(1) else {
            return site.fail(Rule::OperandKind, target, "a decoration is expected");
        };
        let Some(defining) = self.defining(target) else {
            return site.fail(Rule::IdDefined, target, "nothing defines it");
        };
        let op = defining.class.opcode;
        let class = match defining.operands.first() {
            Some(Operand::StorageClass(class)) if op == Op::Variable => Some(*class),
            _ => None,
        };
        let resource = matches!(
            class,
            Some(
                StorageClass::StorageBuffer | StorageClass::Uniform | StorageClass::UniformConstant
            )
        );
        let holds = match decoration {
            Decoration::SpecId => {
                !self.site_is_wrapped(target)
                    && matches!(
                        op,
                        Op::SpecConstant | Op::SpecConstantTrue | Op::SpecConstantFalse
                    )
            }
            Decoration::Block => op == Op::TypeStruct,
            Decoration::BufferBlock => op == Op::TypeStruct && !self.version_at_least(4),
            Decoration::ArrayStride => {
                let kind = matches!(op, Op::TypeArray | Op::TypeRuntimeArray | Op::TypePointer);
                kind && site.literal(2)? > 0
            }
            Decoration::DescriptorSet | Decoration::Binding => resource,
            Decoration::BuiltIn => match site.inst.operands.get(2) {
                Some(Operand::BuiltIn(BuiltIn::WorkgroupSize)) => {
                    let ids = self.constant(target).and_then(|constant| constant.parts());
                    let sane = ids.is_some_and(|ids| {
                        ids.len() == 3
                            && ids
                                .iter()
                                .all(|id| self.default_u32(*id).is_some_and(|(value, _)| value > 0))
                    });
                    let detail = "a block size is a constant vector of three positive integers";
                    site.require(sane, Rule::LocalSize, target, detail)?;
                    return Ok(true);
                }
                _ => class == Some(StorageClass::Input),
            },
            Decoration::NonWritable
            | Decoration::NonReadable
            | Decoration::Coherent
            | Decoration::Volatile
            | Decoration::Restrict
            | Decoration::Aliased => op == Op::Variable || op == Op::FunctionParameter,
            Decoration::RestrictPointer | Decoration::AliasedPointer => {
                op == Op::Variable || op == Op::FunctionParameter
            }
            Decoration::RelaxedPrecision
            | Decoration::NoContraction
            | Decoration::NoSignedWrap
            | Decoration::NoUnsignedWrap
            | Decoration::Invariant => defining.result_type.is_some(),
            Decoration::FPRoundingMode => op == Op::FConvert,
            other => return site.unsupported(format!("decoration {other:?}")),
        };
        if !holds {
            let detail = format!("{decoration:?} does not fit Op{}", defining.class.opname);
            return site.fail(Rule::Decoration, target, detail);
        }
        Ok(false)
    }

    fn site_is_wrapped(&self, id: u32) -> bool {
        self.definition(id)
            .is_some_and(|index| self.parsed.specialized[index])
    }

    /// Requires structs that buffers are seen through to have a sane layout.
    fn check_blocks(&self) -> Checked {
        let mut seen = std::collections::HashSet::new();
        for (index, inst) in self.parsed.instructions.iter().enumerate() {
            if inst.class.opcode != Op::TypePointer {
                continue;
            }
            let site = self.site(index);
            let Some((class, pointee)) = inst.result_id.and_then(|id| self.pointer(id)) else {
                continue;
            };
            let laid_out = matches!(
                class,
                StorageClass::StorageBuffer
                    | StorageClass::PhysicalStorageBuffer
                    | StorageClass::PushConstant
                    | StorageClass::Uniform
            );
            if laid_out {
                self.laid_out(&site, pointee, &mut seen)?;
            }
        }
        Ok(())
    }

    /// Checks a type and all within it, each type once.
    fn laid_out(
        &self,
        site: &Site<'_, '_>,
        type_id: u32,
        seen: &mut std::collections::HashSet<u32>,
    ) -> Checked {
        let mut pending = vec![type_id];
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                continue;
            }
            let info = site.info(id)?;
            site.require(
                !info.has_bool,
                Rule::BlockLayout,
                id,
                "booleans have no layout",
            )?;
            match &info.shape {
                Type::Array { element, .. } | Type::RuntimeArray { element } => {
                    pending.push(*element);
                    let inner = site.info(*element)?;
                    let stride = self.decoration_literal(id, None, Decoration::ArrayStride);
                    let block = self.is_decorated(*element, Decoration::Block)
                        || self.is_decorated(*element, Decoration::BufferBlock);
                    // An array of blocks is an array of bindings, which has no stride.
                    let holds = match stride.map(u64::from) {
                        Some(stride) => {
                            stride.is_multiple_of(inner.alignment)
                                && stride >= inner.explicit.unwrap_or(0)
                        }
                        None => block,
                    };
                    let detail = "an array needs a stride that its elements fit in";
                    site.require(holds, Rule::BlockLayout, id, detail)?;
                }
                Type::Struct { members } => {
                    self.struct_layout(site, id, members)?;
                    pending.extend(
                        members
                            .iter()
                            .filter(|member| self.pointer(**member).is_none()),
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Matrices have a stride that their vectors fit in, and one of the two orders.
    fn matrix_layout(&self, site: &Site<'_, '_>, id: u32, position: u32, member: u32) -> Checked {
        let Some((column, count)) = self.matrix_within(member) else {
            return Ok(());
        };
        let column = site.numeric(column)?;
        let row_major = self.is_member_decorated(id, position, Decoration::RowMajor);
        let column_major = self.is_member_decorated(id, position, Decoration::ColMajor);
        let least = if row_major { count } else { column.count } * column.bits / 8;
        let stride = self.decoration_literal(id, Some(position), Decoration::MatrixStride);
        let strided =
            stride.is_some_and(|stride| stride >= least && stride.is_multiple_of(column.bits / 8));
        let detail = "a matrix needs one order and a stride that its vectors fit in";
        site.require(
            strided && row_major != column_major,
            Rule::BlockLayout,
            id,
            detail,
        )
    }

    /// The column type and column count of a matrix, or of the matrices in arrays.
    fn matrix_within(&self, type_id: u32) -> Option<(u32, u32)> {
        let mut current = type_id;
        loop {
            match self.type_of(current)? {
                Type::Array { element, .. } | Type::RuntimeArray { element } => current = *element,
                Type::Matrix { column, count } => return Some((*column, *count)),
                _ => return None,
            }
        }
    }

    fn struct_layout(&self, site: &Site<'_, '_>, id: u32, members: &[u32]) -> Checked {
        let mut spans = Vec::with_capacity(members.len());
        for (position, &member) in members.iter().enumerate() {
            let position = position as u32;
            let info: &TypeInfo = site.info(member)?;
            let offset = self.decoration_literal(id, Some(position), Decoration::Offset);
            let size = self.member_size(id, position, member, info);
            let (Some(offset), Some(size)) = (offset, size) else {
                let detail = format!("member {position} is not laid out");
                return site.fail(Rule::BlockLayout, id, detail);
            };
            let (start, end) = (u64::from(offset), u64::from(offset).saturating_add(size));
            self.matrix_layout(site, id, position, member)?;
            if !start.is_multiple_of(info.alignment) {
                let detail = format!(
                    "member {position} at offset {offset}, its alignment is {}",
                    info.alignment
                );
                return site.fail(Rule::BlockLayout, id, detail);
            }
            // A runtime array has at least room for being there: nothing may follow it.
            let open = matches!(info.shape, Type::RuntimeArray { .. });
            spans.push((start, if open { u64::MAX } else { end }, position));
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if pair[0].1 > pair[1].0 {
                let detail = format!("members {} and {} overlap", pair[0].2, pair[1].2);
                return site.fail(Rule::BlockLayout, id, detail);
            }
        }
        Ok(())
    }
}
