//! Operands and results of instructions agree in kind, width and count.

use std::collections::HashSet;

use spirv::{Capability, Op, StorageClass};

use super::{Checked, Module, Numeric, Rule, Site, Type, extended, memory, subgroup, variables};

/// Scalars in one value; larger ones make drivers' compilers run out of memory.
const MAX_VALUE_COMPONENTS: u64 = 1 << 14;

/// Checks an instruction of a function body, or the operation of an `OpSpecConstantOp`.
pub(super) fn check(site: &Site<'_, '_>) -> Checked {
    let op = site.op();
    site.module.needs_one(site, site.inst.class.capabilities)?;
    if let Some(type_id) = site.inst.result_type {
        let info = site.info(type_id)?;
        let void = matches!(
            op,
            Op::ExtInst | Op::ExtInstWithForwardRefsKHR | Op::FunctionCall
        );
        let data = info.is_data() || (void && info.shape == Type::Void);
        site.require(data, Rule::ResultType, type_id, "no value has that type")?;
        let small = info.components <= MAX_VALUE_COMPONENTS;
        site.require(small, Rule::Limit, type_id, "a value of too many scalars")?;
    }
    match op {
        Op::Label | Op::Line | Op::NoLine | Op::Nop | Op::Branch | Op::Unreachable | Op::Phi => {
            Ok(())
        }
        Op::LoopMerge | Op::SelectionMerge => loop_control(site),
        Op::Undef => variables::check_undef(site),
        Op::BranchConditional => branch(site),
        Op::Switch => switch(site),
        Op::FunctionCall => call(site),
        Op::ExtInst | Op::ExtInstWithForwardRefsKHR => extended::check(site),
        Op::Load
        | Op::Store
        | Op::CopyMemory
        | Op::AccessChain
        | Op::InBoundsAccessChain
        | Op::PtrAccessChain
        | Op::ArrayLength
        | Op::ControlBarrier
        | Op::MemoryBarrier
        | Op::PtrEqual
        | Op::PtrNotEqual => memory::check(site),
        _ if memory::is_atomic(op) => memory::check_atomic(site),
        _ if subgroup::is_subgroup(op) => subgroup::check(site),
        _ => value(site),
    }
}

fn loop_control(site: &Site<'_, '_>) -> Checked {
    use spirv::LoopControl as L;
    let Some(rspirv::dr::Operand::LoopControl(control)) = site.inst.operands.get(2) else {
        return Ok(());
    };
    let newer = L::MIN_ITERATIONS
        | L::MAX_ITERATIONS
        | L::ITERATION_MULTIPLE
        | L::PEEL_COUNT
        | L::PARTIAL_COUNT;
    let older = L::UNROLL | L::DONT_UNROLL | L::DEPENDENCY_INFINITE | L::DEPENDENCY_LENGTH;
    let known = (newer | older).contains(*control)
        && !control.contains(L::UNROLL | L::DONT_UNROLL)
        && (site.module.version_at_least(4) || !control.intersects(newer));
    site.require(
        known,
        Rule::OperandKind,
        0,
        "no such combination of loop controls",
    )
}

fn branch(site: &Site<'_, '_>) -> Checked {
    let condition = site.id(0)?;
    let numeric = site.operand_numeric(0)?;
    let holds = numeric.is_bool() && numeric.is_scalar();
    site.require(
        holds,
        Rule::OperandType,
        condition,
        "a boolean condition is expected",
    )?;
    let distinct = site.id(1)? != site.id(2)? || !site.module.version_at_least(6);
    site.require(
        distinct,
        Rule::Branch,
        condition,
        "from version 1.6 on two labels are expected",
    )?;
    let weights = site.count() == 3 || site.count() == 5;
    site.require(
        weights,
        Rule::OperandKind,
        condition,
        "branch weights come in twos",
    )
}

fn switch(site: &Site<'_, '_>) -> Checked {
    let selector = site.integer_scalar(0)?;
    let bits = site.operand_numeric(0)?.bits;
    let mut seen = HashSet::new();
    for literal in site.inst.operands.iter().skip(2).step_by(2) {
        let value = match literal {
            rspirv::dr::Operand::LiteralBit32(value) if bits <= 32 => u64::from(*value),
            rspirv::dr::Operand::LiteralBit64(value) if bits == 64 => *value,
            _ => return site.fail(Rule::Switch, selector, "a literal of another width"),
        };
        if !seen.insert(value) {
            return site.fail(Rule::Switch, selector, format!("literal {value} twice"));
        }
    }
    Ok(())
}

fn call(site: &Site<'_, '_>) -> Checked {
    let callee = site.id(0)?;
    let result = site.result_type()?;
    let Some(function) = site.module.function(callee) else {
        return site.fail(Rule::Call, callee, "a function is expected");
    };
    let same = function.result_type == result;
    site.require(same, Rule::Call, callee, "it returns another type")?;
    let given = site.count() - 1;
    if given != function.parameters.len() {
        let expected = function.parameters.len();
        let detail = format!("{given} arguments where it has {expected} parameters");
        return site.fail(Rule::Call, callee, detail);
    }
    for (position, &parameter) in function.parameters.iter().enumerate() {
        let expected = site.value_type(parameter)?;
        site.operand_is(position + 1, expected)?;
        if let Some((class, _)) = site.module.pointer(expected) {
            let allowed = match class {
                StorageClass::Function
                | StorageClass::Private
                | StorageClass::Workgroup
                | StorageClass::PhysicalStorageBuffer => true,
                StorageClass::StorageBuffer => variable_pointers(site.module),
                _ => false,
            };
            let detail = "pointers to that storage cannot be passed";
            site.require(allowed, Rule::Call, callee, detail)?;
        }
    }
    Ok(())
}

pub(super) fn variable_pointers(module: &Module<'_>) -> bool {
    module.has(Capability::VariablePointers)
        || module.has(Capability::VariablePointersStorageBuffer)
}

/// Requires a numeric relation, naming the first operand where it fails.
fn agree(site: &Site<'_, '_>, holds: bool, expected: &str) -> Checked {
    let id = site
        .inst
        .operands
        .first()
        .and_then(super::id_of)
        .unwrap_or(0);
    site.require(holds, Rule::OperandType, id, expected)
}

/// Numbers of 8 and 16 bits that only storage capabilities allow can be moved and converted.
fn narrow(site: &Site<'_, '_>) -> Checked {
    if matches!(
        site.op(),
        Op::UConvert | Op::SConvert | Op::FConvert | Op::CopyObject | Op::CopyLogical
    ) {
        return Ok(());
    }
    let operands = site.inst.operands.iter().filter_map(super::id_of);
    let types = operands.filter_map(|id| site.value_type(id).ok());
    for type_id in types.chain(site.inst.result_type) {
        let needed = match site.module.types.numeric(type_id) {
            Some(numeric) if numeric.bits == 8 => Capability::Int8,
            Some(numeric) if numeric.bits == 16 && numeric.is_float() => Capability::Float16,
            Some(numeric) if numeric.bits == 16 => Capability::Int16,
            _ => continue,
        };
        site.module.needs_one(site, &[needed])?;
    }
    Ok(())
}

/// Instructions that turn values into a value.
fn value(site: &Site<'_, '_>) -> Checked {
    narrow(site)?;
    match site.op() {
        Op::IAdd
        | Op::ISub
        | Op::IMul
        | Op::SDiv
        | Op::SRem
        | Op::SMod
        | Op::BitwiseOr
        | Op::BitwiseXor
        | Op::BitwiseAnd => {
            let (result, a, b) = binary(site)?;
            agree(
                site,
                result.is_integer() && result.like(a) && result.like(b),
                "like integers",
            )
        }
        Op::UDiv | Op::UMod => {
            let (result, a, b) = binary(site)?;
            agree(
                site,
                result.is_unsigned() && a == result && b == result,
                "unsigned integers",
            )
        }
        Op::SNegate | Op::Not => {
            let (result, a) = unary(site)?;
            agree(
                site,
                result.is_integer() && result.like(a),
                "a like integer",
            )
        }
        Op::BitReverse => {
            let (result, a) = unary(site)?;
            let holds = result.is_integer() && result == a && result.bits == 32;
            agree(site, holds, "a 32-bit integer of the result's type")
        }
        Op::BitCount => {
            let (result, a) = unary(site)?;
            let both = result.is_integer() && a.is_integer() && a.bits == 32;
            agree(site, both && result.count == a.count, "a 32-bit integer")
        }
        Op::ShiftRightLogical | Op::ShiftRightArithmetic | Op::ShiftLeftLogical => {
            let (result, a, b) = binary(site)?;
            let holds = result.is_integer() && result.like(a);
            agree(
                site,
                holds && b.is_integer() && b.count == result.count,
                "integers",
            )
        }
        Op::BitFieldInsert | Op::BitFieldSExtract | Op::BitFieldUExtract => bit_field(site),
        Op::FAdd | Op::FSub | Op::FMul | Op::FDiv | Op::FRem | Op::FMod => {
            let (result, a, b) = binary(site)?;
            agree(
                site,
                result.is_float() && a == result && b == result,
                "floats of the result's type",
            )
        }
        Op::FNegate => {
            let (result, a) = unary(site)?;
            agree(
                site,
                result.is_float() && a == result,
                "a float of the result's type",
            )
        }
        Op::QuantizeToF16 => {
            let (result, a) = unary(site)?;
            agree(
                site,
                result.is_float() && result.bits == 32 && a == result,
                "a 32-bit float",
            )
        }
        Op::ConvertFToU
        | Op::ConvertFToS
        | Op::ConvertSToF
        | Op::ConvertUToF
        | Op::UConvert
        | Op::SConvert
        | Op::FConvert => convert(site),
        Op::Bitcast => bitcast(site),
        Op::ConvertPtrToU | Op::ConvertUToPtr => convert_pointer(site),
        Op::IEqual
        | Op::INotEqual
        | Op::UGreaterThan
        | Op::SGreaterThan
        | Op::UGreaterThanEqual
        | Op::SGreaterThanEqual
        | Op::ULessThan
        | Op::SLessThan
        | Op::ULessThanEqual
        | Op::SLessThanEqual => {
            let (result, a, b) = binary(site)?;
            let holds = result.is_bool() && a.is_integer() && a.like(b);
            agree(
                site,
                holds && result.count == a.count,
                "like integers and booleans as many",
            )
        }
        Op::FOrdEqual
        | Op::FUnordEqual
        | Op::FOrdNotEqual
        | Op::FUnordNotEqual
        | Op::FOrdLessThan
        | Op::FUnordLessThan
        | Op::FOrdGreaterThan
        | Op::FUnordGreaterThan
        | Op::FOrdLessThanEqual
        | Op::FUnordLessThanEqual
        | Op::FOrdGreaterThanEqual
        | Op::FUnordGreaterThanEqual => {
            let (result, a, b) = binary(site)?;
            let holds = result.is_bool() && a.is_float() && a == b && result.count == a.count;
            agree(site, holds, "floats of one type and booleans as many")
        }
        Op::LogicalEqual | Op::LogicalNotEqual | Op::LogicalOr | Op::LogicalAnd => {
            let (result, a, b) = binary(site)?;
            agree(
                site,
                result.is_bool() && a == result && b == result,
                "booleans",
            )
        }
        Op::LogicalNot => {
            let (result, a) = unary(site)?;
            agree(site, result.is_bool() && a == result, "booleans")
        }
        Op::Any | Op::All => {
            let (result, a) = unary(site)?;
            let holds = result.is_bool() && result.is_scalar() && a.is_bool() && !a.is_scalar();
            agree(site, holds, "a vector of booleans")
        }
        Op::IsNan | Op::IsInf => {
            let (result, a) = unary(site)?;
            agree(
                site,
                result.is_bool() && a.is_float() && a.count == result.count,
                "floats",
            )
        }
        Op::Select => select(site),
        Op::Dot => {
            let (result, a, b) = binary(site)?;
            let holds = result.is_float() && result.is_scalar() && a == b && !a.is_scalar();
            agree(
                site,
                holds && a.component == result.component,
                "vectors of the result's type",
            )
        }
        Op::VectorTimesScalar
        | Op::MatrixTimesScalar
        | Op::VectorTimesMatrix
        | Op::MatrixTimesVector
        | Op::MatrixTimesMatrix
        | Op::OuterProduct
        | Op::Transpose => linear(site),
        Op::IAddCarry | Op::ISubBorrow | Op::UMulExtended | Op::SMulExtended => extended_pair(site),
        Op::CopyObject => {
            site.operand_is(0, site.result_type()?)?;
            plain_result(site)
        }
        Op::CopyLogical => copy_logical(site),
        Op::VectorExtractDynamic
        | Op::VectorInsertDynamic
        | Op::VectorShuffle
        | Op::CompositeConstruct
        | Op::CompositeExtract
        | Op::CompositeInsert => memory::composite(site),
        _ => site.unsupported(format!("instruction Op{}", site.inst.class.opname)),
    }
}

fn unary(site: &Site<'_, '_>) -> Checked<(Numeric, Numeric)> {
    Ok((site.result_numeric()?, site.operand_numeric(0)?))
}

fn binary(site: &Site<'_, '_>) -> Checked<(Numeric, Numeric, Numeric)> {
    Ok((
        site.result_numeric()?,
        site.operand_numeric(0)?,
        site.operand_numeric(1)?,
    ))
}

/// A pointer made without memory access needs a capability, except to physical storage.
fn plain_result(site: &Site<'_, '_>) -> Checked {
    let type_id = site.result_type()?;
    let logical = site.info(type_id)?.has_logical_pointer && !variable_pointers(site.module);
    let detail = "no pointers to that storage from here";
    let exempt = site.op() == Op::CopyObject;
    site.require(!logical || exempt, Rule::ResultType, type_id, detail)
}

fn bit_field(site: &Site<'_, '_>) -> Checked {
    let result = site.result_numeric()?;
    let holds = result.is_integer() && result.bits == 32 && site.operand_numeric(0)? == result;
    agree(site, holds, "a 32-bit integer of the result's type")?;
    let mut next = 1;
    if site.op() == Op::BitFieldInsert {
        site.operand_is(1, site.result_type()?)?;
        next = 2;
    }
    site.integer_scalar(next)?;
    site.integer_scalar(next + 1)?;
    Ok(())
}

fn convert(site: &Site<'_, '_>) -> Checked {
    let (result, a) = unary(site)?;
    let holds = match site.op() {
        Op::ConvertFToU => result.is_unsigned() && a.is_float(),
        Op::ConvertFToS => result.is_integer() && a.is_float(),
        Op::ConvertSToF | Op::ConvertUToF => result.is_float() && a.is_integer(),
        Op::UConvert => result.is_unsigned() && a.is_integer() && a.bits != result.bits,
        Op::SConvert => result.is_integer() && a.is_integer() && a.bits != result.bits,
        _ => result.is_float() && a.is_float() && a.bits != result.bits,
    };
    agree(
        site,
        holds && a.count == result.count,
        "another kind or width, and as many",
    )
}

/// A physical pointer's or a number's bits: width of one component and their count.
fn bits_of(site: &Site<'_, '_>, type_id: u32) -> Checked<(bool, u32)> {
    if let Some((class, _)) = site.module.pointer(type_id) {
        let physical = class == StorageClass::PhysicalStorageBuffer;
        site.require(
            physical,
            Rule::OperandType,
            type_id,
            "a physical pointer is expected",
        )?;
        return Ok((true, 64));
    }
    let numeric = site.numeric(type_id)?;
    site.require(
        !numeric.is_bool(),
        Rule::OperandType,
        type_id,
        "booleans have no bits",
    )?;
    Ok((false, numeric.bits * numeric.count))
}

fn bitcast(site: &Site<'_, '_>) -> Checked {
    let (to, from) = (site.result_type()?, site.operand_type(0)?);
    let ((to_pointer, to_bits), (from_pointer, from_bits)) =
        (bits_of(site, to)?, bits_of(site, from)?);
    agree(site, to_bits == from_bits, "as many bits as the result")?;
    if to_pointer != from_pointer {
        let number = site.numeric(if to_pointer { from } else { to })?;
        let fits = number.is_integer() && number.count <= 2;
        agree(site, fits, "pointers are cast to and from integers")?;
    }
    Ok(())
}

fn convert_pointer(site: &Site<'_, '_>) -> Checked {
    let (to, from) = (site.result_type()?, site.operand_type(0)?);
    let (pointer, number) = if site.op() == Op::ConvertPtrToU {
        (from, to)
    } else {
        (to, from)
    };
    let physical = site
        .module
        .pointer(pointer)
        .is_some_and(|(class, _)| class == StorageClass::PhysicalStorageBuffer);
    let number = site.numeric(number)?;
    let fits = number.is_unsigned() && number.is_scalar() && number.bits == 64;
    agree(
        site,
        physical && fits,
        "a physical pointer and an unsigned 64-bit integer",
    )
}

fn select(site: &Site<'_, '_>) -> Checked {
    let type_id = site.result_type()?;
    let condition = site.operand_numeric(0)?;
    site.operand_is(1, type_id)?;
    site.operand_is(2, type_id)?;
    let fits = match site.module.types.numeric(type_id) {
        Some(result) if !result.is_scalar() => {
            condition.count == result.count
                || (condition.is_scalar() && site.module.version_at_least(4))
        }
        Some(_) => condition.is_scalar(),
        None if site.module.pointer(type_id).is_some() => condition.is_scalar(),
        None => condition.is_scalar() && site.module.version_at_least(4),
    };
    agree(
        site,
        condition.is_bool() && fits,
        "a boolean condition that fits the result",
    )?;
    plain_result(site)
}

/// A matrix as its component and its columns and rows; a vector as one column.
fn matrix(site: &Site<'_, '_>, type_id: u32) -> Checked<(u32, u32, u32)> {
    match site.shape(type_id)? {
        Type::Matrix { column, count } => {
            let column = site.numeric(*column)?;
            Ok((column.component, *count, column.count))
        }
        _ => site.fail(Rule::OperandType, type_id, "a matrix is expected"),
    }
}

fn linear(site: &Site<'_, '_>) -> Checked {
    let result = site.result_type()?;
    let a = site.operand_type(0)?;
    let b = if site.op() == Op::Transpose {
        a
    } else {
        site.operand_type(1)?
    };
    let vector = |type_id: u32| -> Checked<(u32, u32)> {
        let numeric = site.numeric(type_id)?;
        agree(site, numeric.is_float(), "floats")?;
        Ok((numeric.component, numeric.count))
    };
    let holds = match site.op() {
        Op::VectorTimesScalar => {
            let (component, count) = vector(result)?;
            a == result && count > 1 && b == component
        }
        Op::MatrixTimesScalar => a == result && b == matrix(site, result)?.0,
        Op::VectorTimesMatrix => {
            let ((of, columns, rows), row, to) = (matrix(site, b)?, vector(a)?, vector(result)?);
            row == (of, rows) && to == (of, columns)
        }
        Op::MatrixTimesVector => {
            let ((of, columns, rows), column, to) = (matrix(site, a)?, vector(b)?, vector(result)?);
            column == (of, columns) && to == (of, rows)
        }
        Op::MatrixTimesMatrix => {
            let (left, right) = (matrix(site, a)?, matrix(site, b)?);
            left.1 == right.2
                && left.0 == right.0
                && matrix(site, result)? == (left.0, right.1, left.2)
        }
        Op::OuterProduct => {
            let (left, right) = (vector(a)?, vector(b)?);
            left.0 == right.0 && matrix(site, result)? == (left.0, right.1, left.1)
        }
        _ => {
            let (of, columns, rows) = matrix(site, a)?;
            matrix(site, result)? == (of, rows, columns)
        }
    };
    agree(site, holds, "sizes that fit")
}

fn extended_pair(site: &Site<'_, '_>) -> Checked {
    let type_id = site.result_type()?;
    let Type::Struct { members } = site.shape(type_id)? else {
        return site.fail(Rule::ResultType, type_id, "a struct of two is expected");
    };
    let (Some(&first), Some(&second), 2) = (members.first(), members.get(1), members.len()) else {
        return site.fail(Rule::ResultType, type_id, "a struct of two is expected");
    };
    let numeric = site.numeric(first)?;
    let signed = site.op() == Op::SMulExtended;
    let kind = numeric.is_unsigned() || (signed && numeric.is_integer());
    site.require(
        first == second && kind,
        Rule::ResultType,
        type_id,
        "two like integers",
    )?;
    site.operand_is(0, first)?;
    site.operand_is(1, first)
}

fn copy_logical(site: &Site<'_, '_>) -> Checked {
    let (to, from) = (site.result_type()?, site.operand_type(0)?);
    let mut pending = vec![(to, from)];
    let mut seen = HashSet::new();
    agree(site, to != from, "another type of the same parts")?;
    while let Some((a, b)) = pending.pop() {
        if a == b || !seen.insert((a, b)) {
            continue;
        }
        match (site.shape(a)?, site.shape(b)?) {
            (
                Type::Array {
                    element: a,
                    length: left,
                    ..
                },
                Type::Array {
                    element: b,
                    length: right,
                    ..
                },
            ) if left == right => pending.push((*a, *b)),
            (Type::Struct { members: a }, Type::Struct { members: b }) if a.len() == b.len() => {
                pending.extend(a.iter().copied().zip(b.iter().copied()));
            }
            _ => return agree(site, false, "another type of the same parts"),
        }
    }
    Ok(())
}
