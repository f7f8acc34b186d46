//! Constants: they match their types, and integers are worked out with their default values.

use spirv::{Decoration, Op};

use super::{Checked, Module, Operand, Rule, Site, Type};

/// A constant's value as far as sizes and limits need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::module::spirv) struct Constant {
    pub(in crate::module::spirv) type_id: u32,
    /// Set by, or worked out from, a specialization constant.
    pub(in crate::module::spirv) specialized: bool,
    value: Value,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    /// The bits of a scalar, within its width.
    Bits(u64),
    /// The ids of the parts.
    Parts(Vec<u32>),
    /// Zero of any type.
    Null,
    /// Not worked out.
    Opaque,
}

impl Constant {
    /// The bits of an integer or boolean; a negative number has its width's high bits set.
    pub(in crate::module::spirv) fn integer(&self) -> Option<u64> {
        match self.value {
            Value::Bits(bits) => Some(bits),
            Value::Null => Some(0),
            _ => None,
        }
    }

    /// The ids of a composite's parts.
    pub(in crate::module::spirv) fn parts(&self) -> Option<&[u32]> {
        match &self.value {
            Value::Parts(parts) => Some(parts),
            _ => None,
        }
    }
}

fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits.clamp(1, 64))
}

fn extend_sign(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits.clamp(1, 64);
    ((value << shift) as i64) >> shift
}

impl Module<'_> {
    /// Checks the constant declared at `index` and takes it into the table.
    pub(super) fn declare_constant(&mut self, index: usize) -> Checked {
        let site = self.site(index);
        let id = site.result()?;
        let constant = if site.is_spec_op() {
            self.spec_operation(&site)?
        } else {
            self.plain_constant(&site)?
        };
        self.constants.insert(id, constant);
        Ok(())
    }

    fn plain_constant(&self, site: &Site<'_, '_>) -> Checked<Constant> {
        let id = site.result()?;
        let type_id = site.result_type()?;
        let shape = match self.types.get(type_id) {
            Some(info) => &info.shape,
            None => return site.fail(Rule::Constant, id, "its type is not declared before"),
        };
        let op = site.op();
        let own = matches!(
            op,
            Op::SpecConstant | Op::SpecConstantTrue | Op::SpecConstantFalse
        );
        let (value, specialized) = match op {
            Op::ConstantTrue | Op::ConstantFalse | Op::SpecConstantTrue | Op::SpecConstantFalse => {
                let holds = self
                    .types
                    .numeric(type_id)
                    .is_some_and(|n| n.is_bool() && n.count == 1);
                site.require(holds, Rule::Constant, id, "a boolean type is expected")?;
                (
                    Value::Bits(matches!(op, Op::ConstantTrue | Op::SpecConstantTrue).into()),
                    own,
                )
            }
            Op::Constant | Op::SpecConstant => {
                let numeric = self
                    .types
                    .numeric(type_id)
                    .filter(|n| n.count == 1 && !n.is_bool());
                let Some(numeric) = numeric else {
                    return site.fail(Rule::Constant, id, "a scalar number type is expected");
                };
                let bits = match site.inst.operands.first() {
                    Some(Operand::LiteralBit32(bits)) if numeric.bits <= 32 => u64::from(*bits),
                    Some(Operand::LiteralBit64(bits)) if numeric.bits == 64 => *bits,
                    _ => {
                        return site.fail(Rule::Constant, id, "its literal has another width");
                    }
                };
                (Value::Bits(bits & mask(numeric.bits)), own)
            }
            Op::ConstantComposite | Op::SpecConstantComposite => {
                let parts = site.ids_from(0)?;
                let mut specialized = false;
                self.each_part(site, shape, &parts)?;
                for &part in &parts {
                    match self.constants.get(&part) {
                        Some(constant) => specialized |= constant.specialized,
                        None if self.declared_before(site, part, Op::Undef) => {}
                        None => return site.fail(Rule::Constant, part, "a constant is expected"),
                    }
                }
                (
                    Value::Parts(parts),
                    specialized && op == Op::SpecConstantComposite,
                )
            }
            Op::ConstantNull => {
                let info = self.types.get(type_id);
                let holds = info.is_some_and(|info| {
                    info.is_data() && !info.has_runtime_array && !info.has_logical_pointer
                });
                site.require(holds, Rule::Constant, id, "no null of that type")?;
                (Value::Null, false)
            }
            _ => return site.unsupported(format!("constant Op{}", site.inst.class.opname)),
        };
        Ok(Constant {
            type_id,
            specialized,
            value,
        })
    }

    fn declared_before(&self, site: &Site<'_, '_>, id: u32, op: Op) -> bool {
        self.definition(id).is_some_and(|index| {
            index < site.index && self.parsed.instructions[index].class.opcode == op
        })
    }

    /// Requires the parts of a composite of `shape` to be as many and of the types it has.
    fn each_part(&self, site: &Site<'_, '_>, shape: &Type, parts: &[u32]) -> Checked {
        let id = site.result()?;
        let (count, same): (u64, Option<u32>) = match shape {
            Type::Vector { component, count } => (u64::from(*count), Some(*component)),
            Type::Matrix { column, count } => (u64::from(*count), Some(*column)),
            Type::Array {
                element, length, ..
            } => (*length, Some(*element)),
            Type::Struct { members } => (members.len() as u64, None),
            _ => return site.fail(Rule::Constant, id, "a composite type is expected"),
        };
        if count != parts.len() as u64 {
            let detail = format!("{} parts where the type has {count}", parts.len());
            return site.fail(Rule::Constant, id, detail);
        }
        for (position, &part) in parts.iter().enumerate() {
            let expected = match shape {
                Type::Struct { members } => members[position],
                _ => same.unwrap_or_default(),
            };
            let found = self.defining(part).and_then(|inst| inst.result_type);
            if found != Some(expected) {
                let detail = format!("part {position} must have type %{expected}");
                return site.fail(Rule::Constant, part, detail);
            }
        }
        Ok(())
    }

    fn spec_operation(&self, site: &Site<'_, '_>) -> Checked<Constant> {
        let type_id = site.result_type()?;
        for operand in site.inst.operands.iter().filter_map(super::id_of) {
            if !self.constants.contains_key(&operand)
                && !self.declared_before(site, operand, Op::Undef)
            {
                return site.fail(Rule::Constant, operand, "a constant is expected");
            }
        }
        super::operations::check(site)?;
        let specialized = site
            .inst
            .operands
            .iter()
            .filter_map(super::id_of)
            .any(|id| {
                self.constants
                    .get(&id)
                    .is_some_and(|constant| constant.specialized)
            });
        let value = self.work_out(site).unwrap_or(Value::Opaque);
        Ok(Constant {
            type_id,
            specialized,
            value,
        })
    }

    /// The operation's result on default values, for scalars of integers and booleans.
    fn work_out(&self, site: &Site<'_, '_>) -> Option<Value> {
        let operand = |position: usize| {
            let constant = self.constants.get(&site.id(position).ok()?)?;
            Some((constant.integer()?, self.types.numeric(constant.type_id)?))
        };
        if site.op() == Op::CompositeExtract {
            let mut constant = self.constants.get(&site.id(0).ok()?)?;
            for position in 1..site.count() {
                let index = site.literal(position).ok()? as usize;
                constant = self.constants.get(constant.parts()?.get(index)?)?;
            }
            return Some(constant.value.clone());
        }
        let result = self.types.numeric(site.inst.result_type?)?;
        if !result.is_scalar() || result.is_float() {
            return None;
        }
        let (a, first) = operand(0)?;
        if !first.is_scalar() || first.is_float() {
            return None;
        }
        if site.op() == Op::Select {
            let chosen = if a != 0 { 1 } else { 2 };
            return Some(Value::Bits(operand(chosen)?.0));
        }
        let signed = |value| extend_sign(value, first.bits);
        let one = match site.op() {
            Op::UConvert => Some(a),
            Op::SConvert => Some(signed(a) as u64),
            Op::SNegate => Some(a.wrapping_neg()),
            Op::Not => Some(!a),
            Op::LogicalNot => Some(u64::from(a == 0)),
            _ => None,
        };
        if let Some(bits) = one {
            return Some(Value::Bits(bits & mask(result.bits)));
        }
        let (b, second) = operand(1)?;
        if second.is_float() {
            return None;
        }
        let shift = u32::try_from(b).ok().filter(|shift| *shift < first.bits);
        let bits = match site.op() {
            Op::IAdd => a.wrapping_add(b),
            Op::ISub => a.wrapping_sub(b),
            Op::IMul => a.wrapping_mul(b),
            Op::UDiv => a.checked_div(b)?,
            Op::UMod => a.checked_rem(b)?,
            Op::SDiv => signed(a).checked_div(signed(b))? as u64,
            Op::SRem => signed(a).checked_rem(signed(b))? as u64,
            Op::SMod => {
                let (a, b) = (signed(a), signed(b));
                let rest = a.checked_rem(b)?;
                (if rest != 0 && (rest < 0) != (b < 0) {
                    rest + b
                } else {
                    rest
                }) as u64
            }
            Op::ShiftLeftLogical => a << shift?,
            Op::ShiftRightLogical => a >> shift?,
            Op::ShiftRightArithmetic => (signed(a) >> shift?) as u64,
            Op::BitwiseOr => a | b,
            Op::BitwiseXor => a ^ b,
            Op::BitwiseAnd => a & b,
            Op::LogicalOr => a | b,
            Op::LogicalAnd => a & b,
            Op::LogicalEqual | Op::IEqual => u64::from(a == b),
            Op::LogicalNotEqual | Op::INotEqual => u64::from(a != b),
            Op::ULessThan => u64::from(a < b),
            Op::UGreaterThan => u64::from(a > b),
            Op::ULessThanEqual => u64::from(a <= b),
            Op::UGreaterThanEqual => u64::from(a >= b),
            Op::SLessThan => u64::from(signed(a) < signed(b)),
            Op::SGreaterThan => u64::from(signed(a) > signed(b)),
            Op::SLessThanEqual => u64::from(signed(a) <= signed(b)),
            Op::SGreaterThanEqual => u64::from(signed(a) >= signed(b)),
            _ => return None,
        };
        Some(Value::Bits(bits & mask(result.bits)))
    }

    /// A 32-bit integer constant's default value and, where it is one, its SpecId.
    pub(in crate::module::spirv) fn default_u32(&self, id: u32) -> Option<(u32, Option<u32>)> {
        let constant = self.constants.get(&id)?;
        let numeric = self.types.numeric(constant.type_id)?;
        if !numeric.is_integer() || !numeric.is_scalar() || numeric.bits != 32 {
            return None;
        }
        let value = u32::try_from(constant.integer()?).ok()?;
        Some((value, self.decoration_literal(id, None, Decoration::SpecId)))
    }
}
