//! Pointers, memory accesses, atomics, barriers and the parts of composites.

use rspirv::dr::Operand;
use spirv::{Capability, Decoration, MemoryAccess, Op, Scope, StorageClass};

use super::operations::variable_pointers;
use super::{Checked, Rule, Site, Type};

pub(super) fn check(site: &Site<'_, '_>) -> Checked {
    match site.op() {
        Op::Load => load(site),
        Op::Store => store(site),
        Op::CopyMemory => copy(site),
        Op::AccessChain | Op::InBoundsAccessChain => access_chain(site, 1),
        Op::PtrAccessChain => pointer_chain(site),
        Op::ArrayLength => array_length(site),
        Op::PtrEqual | Op::PtrNotEqual => compare(site),
        Op::ControlBarrier => {
            let scope = site.scope(0)?;
            let execution = matches!(scope, Scope::Workgroup | Scope::Subgroup);
            let detail = "barriers are for a workgroup or a subgroup";
            site.require(execution, Rule::Scope, site.id(0)?, detail)?;
            site.scope(1)?;
            site.semantics(2).map(|_| ())
        }
        _ => {
            site.scope(0)?;
            let semantics = site.semantics(1)?;
            let ordered = semantics.bits() & 0x1e != 0;
            site.require(
                ordered,
                Rule::Semantics,
                site.id(1)?,
                "a memory barrier orders nothing",
            )
        }
    }
}

/// What moves through memory: sized, and no pointer that only the compiler knows.
fn movable(site: &Site<'_, '_>, type_id: u32) -> Checked {
    let info = site.info(type_id)?;
    let holds = info.is_data() && !info.has_runtime_array && !info.has_logical_pointer;
    site.require(
        holds,
        Rule::MemoryAccess,
        type_id,
        "values of that type cannot be moved",
    )
}

/// Checks the memory operands from `position` on; where they end.
fn access(
    site: &Site<'_, '_>,
    position: usize,
    class: StorageClass,
    writes: bool,
) -> Checked<usize> {
    let physical = class == StorageClass::PhysicalStorageBuffer;
    let Some(Operand::MemoryAccess(access)) = site.inst.operands.get(position) else {
        let detail = "accesses to physical storage need an alignment";
        site.require(!physical, Rule::MemoryAccess, 0, detail)?;
        return Ok(position);
    };
    let mut next = position + 1;
    let visibility = MemoryAccess::MAKE_POINTER_AVAILABLE | MemoryAccess::MAKE_POINTER_VISIBLE;
    let vulkan = visibility | MemoryAccess::NON_PRIVATE_POINTER;
    let known = MemoryAccess::VOLATILE | MemoryAccess::ALIGNED | MemoryAccess::NONTEMPORAL | vulkan;
    let allowed = known.contains(*access)
        && (site.module.vulkan_memory_model || !access.intersects(vulkan))
        && (!access.intersects(visibility) || access.contains(MemoryAccess::NON_PRIVATE_POINTER));
    site.require(
        allowed,
        Rule::MemoryAccess,
        0,
        "no such combination of memory operands",
    )?;
    let aligned = access.contains(MemoryAccess::ALIGNED);
    let detail = "accesses to physical storage need an alignment";
    site.require(aligned || !physical, Rule::MemoryAccess, 0, detail)?;
    if aligned {
        let alignment = site.literal(next)?;
        let sane = alignment.is_power_of_two() && alignment <= 1 << 16;
        let detail = "alignments are powers of two up to 65536";
        site.require(sane, Rule::MemoryAccess, 0, detail)?;
        next += 1;
    }
    for (bit, for_write) in [
        (MemoryAccess::MAKE_POINTER_AVAILABLE, true),
        (MemoryAccess::MAKE_POINTER_VISIBLE, false),
    ] {
        if access.contains(bit) {
            site.require(
                for_write == writes,
                Rule::MemoryAccess,
                0,
                "for the other direction",
            )?;
            site.scope(next)?;
            next += 1;
        }
    }
    Ok(next)
}

fn load(site: &Site<'_, '_>) -> Checked {
    let (class, pointee) = site.pointer_operand(0)?;
    let result = site.result_type()?;
    let same = pointee == result;
    site.require(
        same,
        Rule::ResultType,
        site.id(0)?,
        "it points to another type",
    )?;
    movable(site, result)?;
    access(site, 1, class, false).map(|_| ())
}

fn writable(site: &Site<'_, '_>, class: StorageClass) -> Checked {
    let holds = matches!(
        class,
        StorageClass::Function
            | StorageClass::Private
            | StorageClass::Workgroup
            | StorageClass::StorageBuffer
            | StorageClass::PhysicalStorageBuffer
            | StorageClass::Uniform
    );
    site.require(
        holds,
        Rule::MemoryAccess,
        site.id(0)?,
        "storage that cannot be written",
    )
}

fn store(site: &Site<'_, '_>) -> Checked {
    let (class, pointee) = site.pointer_operand(0)?;
    writable(site, class)?;
    site.operand_is(1, pointee)?;
    movable(site, pointee)?;
    access(site, 2, class, true).map(|_| ())
}

fn copy(site: &Site<'_, '_>) -> Checked {
    let (to_class, to) = site.pointer_operand(0)?;
    let (from_class, from) = site.pointer_operand(1)?;
    writable(site, to_class)?;
    let same = to == from;
    site.require(
        same,
        Rule::OperandType,
        site.id(1)?,
        "it points to another type",
    )?;
    movable(site, to)?;
    let physical = StorageClass::PhysicalStorageBuffer;
    let either = if from_class == physical {
        from_class
    } else {
        to_class
    };
    let volatile_only = |position: usize| match site.inst.operands.get(position) {
        Some(Operand::MemoryAccess(access)) => !access
            .intersects(MemoryAccess::MAKE_POINTER_AVAILABLE | MemoryAccess::MAKE_POINTER_VISIBLE),
        _ => true,
    };
    let next = access(site, 2, either, true)?;
    site.require(
        volatile_only(2),
        Rule::MemoryAccess,
        0,
        "visibility is not supported on copies",
    )?;
    if next < site.count() {
        access(site, next, either, false)?;
    }
    Ok(())
}

/// The type that `index` selects within `type_id`.
fn step(site: &Site<'_, '_>, type_id: u32, position: usize) -> Checked<u32> {
    let index = site.integer_scalar(position)?;
    let fixed = site
        .module
        .constant(index)
        .filter(|constant| !constant.specialized);
    let value = fixed.and_then(|constant| constant.integer());
    let (limit, element) = match site.shape(type_id)? {
        Type::Struct { members } => {
            let member = value.and_then(|value| members.get(usize::try_from(value).ok()?));
            return match member {
                Some(member) => Ok(*member),
                None => {
                    let detail = format!("a constant member below {} is expected", members.len());
                    site.fail(Rule::AccessChain, index, detail)
                }
            };
        }
        Type::Array {
            element, length, ..
        } => (*length, *element),
        Type::RuntimeArray { element } => (1 << 31, *element),
        Type::Vector { component, count } => (u64::from(*count), *component),
        Type::Matrix { column, count } => (u64::from(*count), *column),
        _ => return site.fail(Rule::AccessChain, index, "nothing to index"),
    };
    if let Some(value) = value.filter(|value| *value >= limit) {
        let detail = format!("index {value} of {limit}");
        return site.fail(Rule::AccessChain, index, detail);
    }
    Ok(element)
}

fn access_chain(site: &Site<'_, '_>, first: usize) -> Checked {
    let (class, pointee) = site.pointer_operand(0)?;
    let mut current = pointee;
    if site.count() - first > 255 {
        return site.fail(Rule::Limit, site.id(0)?, "more than 255 indices");
    }
    for position in first..site.count() {
        current = step(site, current, position)?;
    }
    let result = site.result_type()?;
    let fits = site.module.pointer(result) == Some((class, current));
    let detail = "the result must point to what the indices lead to, in the same storage";
    site.require(fits, Rule::AccessChain, result, detail)?;
    let base = site.id(0)?;
    let bound = matches!(
        site.module.type_of(pointee),
        Some(Type::Array { .. } | Type::RuntimeArray { .. })
    );
    let arrayed = bound
        && matches!(class, StorageClass::StorageBuffer | StorageClass::Uniform)
        && site.module.variable_class(base).is_some();
    if arrayed {
        return site.unsupported("arrays of bindings");
    }
    Ok(())
}

fn pointer_chain(site: &Site<'_, '_>) -> Checked {
    let (class, _) = site.pointer_operand(0)?;
    let base = site.operand_type(0)?;
    let pointers = match class {
        StorageClass::PhysicalStorageBuffer => true,
        StorageClass::StorageBuffer => variable_pointers(site.module),
        StorageClass::Workgroup => site.module.has(Capability::VariablePointers),
        _ => false,
    };
    let detail = "no steps from pointers to that storage";
    site.require(pointers, Rule::AccessChain, site.id(0)?, detail)?;
    let strided = class == StorageClass::Workgroup
        || site
            .module
            .decoration_literal(base, None, Decoration::ArrayStride)
            .is_some();
    site.require(
        strided,
        Rule::AccessChain,
        base,
        "the pointer's type has no stride",
    )?;
    site.integer_scalar(1)?;
    access_chain(site, 2)
}

fn array_length(site: &Site<'_, '_>) -> Checked {
    let result = site.result_numeric()?;
    let unsigned = result.is_unsigned() && result.is_scalar() && result.bits == 32;
    site.require(
        unsigned,
        Rule::ResultType,
        site.result()?,
        "an unsigned 32-bit integer",
    )?;
    let (class, pointee) = site.pointer_operand(0)?;
    let member = site.literal(1)?;
    let last = match site.shape(pointee)? {
        Type::Struct { members } => {
            let array = members
                .get(member as usize)
                .and_then(|id| site.module.type_of(*id));
            matches!(array, Some(Type::RuntimeArray { .. }))
        }
        _ => false,
    };
    let bound = matches!(class, StorageClass::StorageBuffer | StorageClass::Uniform);
    let detail = "a runtime array of a bound buffer is expected";
    site.require(last && bound, Rule::AccessChain, site.id(0)?, detail)
}

fn compare(site: &Site<'_, '_>) -> Checked {
    let result = site.result_numeric()?;
    let boolean = result.is_bool() && result.is_scalar();
    site.require(boolean, Rule::ResultType, site.result()?, "a boolean")?;
    let (class, _) = site.pointer_operand(0)?;
    site.operand_is(1, site.operand_type(0)?)?;
    let allowed = class != StorageClass::PhysicalStorageBuffer && variable_pointers(site.module);
    site.require(
        allowed,
        Rule::OperandType,
        site.id(0)?,
        "pointers that cannot be compared",
    )
}

pub(super) fn is_atomic(op: Op) -> bool {
    matches!(
        op,
        Op::AtomicLoad
            | Op::AtomicStore
            | Op::AtomicExchange
            | Op::AtomicCompareExchange
            | Op::AtomicIIncrement
            | Op::AtomicIDecrement
            | Op::AtomicIAdd
            | Op::AtomicISub
            | Op::AtomicSMin
            | Op::AtomicUMin
            | Op::AtomicSMax
            | Op::AtomicUMax
            | Op::AtomicAnd
            | Op::AtomicOr
            | Op::AtomicXor
            | Op::AtomicFAddEXT
            | Op::AtomicFMinEXT
            | Op::AtomicFMaxEXT
    )
}

pub(super) fn check_atomic(site: &Site<'_, '_>) -> Checked {
    let op = site.op();
    let (class, pointee) = site.pointer_operand(0)?;
    let shared = matches!(
        class,
        StorageClass::Workgroup
            | StorageClass::StorageBuffer
            | StorageClass::PhysicalStorageBuffer
            | StorageClass::Uniform
    );
    site.require(
        shared,
        Rule::Atomic,
        site.id(0)?,
        "atomics are for shared storage",
    )?;
    let numeric = site.numeric(pointee)?;
    let float = matches!(
        op,
        Op::AtomicFAddEXT | Op::AtomicFMinEXT | Op::AtomicFMaxEXT
    );
    let either = matches!(op, Op::AtomicLoad | Op::AtomicStore | Op::AtomicExchange);
    let kind = numeric.is_scalar()
        && (if float {
            numeric.is_float()
        } else {
            numeric.is_integer()
        } || (either && numeric.is_float()));
    site.require(
        kind,
        Rule::Atomic,
        site.id(0)?,
        "no such atomic on that type",
    )?;
    let needed: &[Capability] = match (numeric.is_float(), numeric.bits, op) {
        (false, 32, _) => &[],
        (false, 64, _) => &[Capability::Int64Atomics],
        (true, 16, Op::AtomicFAddEXT) => &[Capability::AtomicFloat16AddEXT],
        (true, 32, Op::AtomicFAddEXT) => &[Capability::AtomicFloat32AddEXT],
        (true, 64, Op::AtomicFAddEXT) => &[Capability::AtomicFloat64AddEXT],
        (true, 16, Op::AtomicFMinEXT | Op::AtomicFMaxEXT) => &[Capability::AtomicFloat16MinMaxEXT],
        (true, 32, Op::AtomicFMinEXT | Op::AtomicFMaxEXT) => &[Capability::AtomicFloat32MinMaxEXT],
        (true, 64, Op::AtomicFMinEXT | Op::AtomicFMaxEXT) => &[Capability::AtomicFloat64MinMaxEXT],
        (true, 32 | 64, _) => &[],
        (_, bits, _) => {
            return site.fail(
                Rule::Atomic,
                site.id(0)?,
                format!("no atomics of {bits} bits"),
            );
        }
    };
    site.module.needs_one(site, needed)?;
    site.scope(1)?;
    let semantics = site.semantics(2)?.bits() & 0x1e;
    let (acquire, release, both) = (0x2, 0x4, 0x8);
    let ordered = match op {
        Op::AtomicLoad => semantics & (release | both) == 0,
        Op::AtomicStore => semantics & (acquire | both) == 0,
        _ => true,
    };
    site.require(
        ordered,
        Rule::Semantics,
        site.id(2)?,
        "an order for the other direction",
    )?;
    let mut next = 3;
    if op == Op::AtomicCompareExchange {
        let unequal = site.semantics(3)?.bits() & 0x1e;
        let sane = unequal & (release | both) == 0;
        site.require(
            sane,
            Rule::Semantics,
            site.id(3)?,
            "no release where nothing is stored",
        )?;
        next = 4;
    }
    for position in next..site.count() {
        site.operand_is(position, pointee)?;
    }
    match site.inst.result_type {
        Some(result) if result != pointee => {
            site.fail(Rule::ResultType, result, "the pointer is to another type")
        }
        _ => Ok(()),
    }
}

/// Walks literal indices from operand `first` into `type_id`.
fn walk(site: &Site<'_, '_>, type_id: u32, first: usize) -> Checked<u32> {
    let indices = site.literals_from(first)?;
    if indices.is_empty() || indices.len() > 255 {
        let detail = format!("{} indices where 1 to 255 are expected", indices.len());
        return site.fail(Rule::CompositeIndex, type_id, detail);
    }
    let mut current = type_id;
    for index in indices {
        let (count, inner) = match site.shape(current)? {
            Type::Struct { members } => {
                (members.len() as u64, members.get(index as usize).copied())
            }
            Type::Array {
                element, length, ..
            } => (*length, Some(*element)),
            Type::Vector { component, count } => (u64::from(*count), Some(*component)),
            Type::Matrix { column, count } => (u64::from(*count), Some(*column)),
            _ => return site.fail(Rule::CompositeIndex, current, "nothing to index"),
        };
        current = match inner {
            Some(inner) if u64::from(index) < count => inner,
            _ => {
                let detail = format!("index {index} of {count}");
                return site.fail(Rule::CompositeIndex, current, detail);
            }
        };
    }
    Ok(current)
}

pub(super) fn composite(site: &Site<'_, '_>) -> Checked {
    let result = site.result_type()?;
    match site.op() {
        Op::CompositeExtract => {
            let found = walk(site, site.operand_type(0)?, 1)?;
            site.require(
                found == result,
                Rule::ResultType,
                result,
                "the part has another type",
            )
        }
        Op::CompositeInsert => {
            site.operand_is(1, result)?;
            let found = walk(site, result, 2)?;
            site.operand_is(0, found)
        }
        Op::CompositeConstruct => construct(site, result),
        Op::VectorShuffle => {
            let to = site.result_numeric()?;
            let (a, b) = (site.operand_numeric(0)?, site.operand_numeric(1)?);
            let literals = site.literals_from(2)?;
            let fits = [a, b]
                .iter()
                .all(|from| from.component == to.component && from.count > 1)
                && to.count > 1
                && literals.len() == to.count as usize;
            site.require(
                fits,
                Rule::OperandType,
                result,
                "vectors of one kind are expected",
            )?;
            let count = a.count + b.count;
            match literals
                .iter()
                .find(|literal| **literal >= count && **literal != u32::MAX)
            {
                Some(literal) => {
                    let detail = format!("component {literal} of {count}");
                    site.fail(Rule::CompositeIndex, result, detail)
                }
                None => Ok(()),
            }
        }
        Op::VectorExtractDynamic => {
            let from = site.operand_numeric(0)?;
            let fits = from.count > 1 && from.component == result;
            site.require(
                fits,
                Rule::OperandType,
                result,
                "a vector of the result is expected",
            )?;
            site.integer_scalar(1).map(|_| ())
        }
        _ => {
            let to = site.result_numeric()?;
            site.require(
                to.count > 1,
                Rule::ResultType,
                result,
                "a vector is expected",
            )?;
            site.operand_is(0, result)?;
            site.operand_is(1, to.component)?;
            site.integer_scalar(2).map(|_| ())
        }
    }
}

fn construct(site: &Site<'_, '_>, result: u32) -> Checked {
    let parts = site.ids_from(0)?;
    let wrong = |found: u64, expected: u64| {
        let detail = format!("{found} parts where the result has {expected}");
        site.fail(Rule::CompositeIndex, result, detail)
    };
    let (count, element) = match site.shape(result)? {
        Type::Vector { component, count } => {
            let mut total = 0_u64;
            for &part in &parts {
                let numeric = site.numeric(site.value_type(part)?)?;
                let same = numeric.component == *component;
                site.require(same, Rule::OperandType, part, "of another component")?;
                total += u64::from(numeric.count);
            }
            if total != u64::from(*count) || parts.len() < 2 {
                return wrong(total, u64::from(*count));
            }
            return Ok(());
        }
        Type::Matrix { column, count } => (u64::from(*count), *column),
        Type::Array {
            element, length, ..
        } => (*length, *element),
        Type::Struct { members } => {
            if members.len() != parts.len() {
                return wrong(parts.len() as u64, members.len() as u64);
            }
            for (position, &member) in members.iter().enumerate() {
                site.operand_is(position, member)?;
            }
            return Ok(());
        }
        _ => return site.fail(Rule::ResultType, result, "a composite is expected"),
    };
    if count != parts.len() as u64 {
        return wrong(parts.len() as u64, count);
    }
    for position in 0..parts.len() {
        site.operand_is(position, element)?;
    }
    Ok(())
}
