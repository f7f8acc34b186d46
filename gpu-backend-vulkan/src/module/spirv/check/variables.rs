//! Variables and undefined values fit their storage.

use spirv::{BuiltIn, Capability, Decoration, StorageClass};

use super::{Checked, Module, Operand, Rule, Site, Type};

/// Scalars in a variable that each invocation has for itself.
const MAX_PRIVATE_COMPONENTS: u64 = 1 << 18;

/// Bytes of one workgroup variable; devices have far less.
const MAX_WORKGROUP_BYTES: u64 = 1 << 24;

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
