//! How a checked module's kernels are called: block size, parameters, shared memory.

use spirv::{Decoration, Op, StorageClass};

use rspirv::dr::Operand;

use super::check::{EntryPoint, LocalSize, Module, Scalar, Type};
use super::{
    SpirvBinding, SpirvEntry, SpirvError, SpirvLocalSize, SpirvMember, SpirvMemberKind,
    SpirvPushConstants, SpirvScalar, SpirvStyle,
};

/// The one descriptor set that buffer arguments come from.
const SET: u32 = 0;

/// Drivers make tables as long as the largest binding.
const MAX_BINDING: u32 = 1023;

/// Describes every entry point.
pub(super) fn entries(module: &Module<'_>) -> Result<Vec<SpirvEntry>, SpirvError> {
    module
        .entries
        .iter()
        .map(|entry| describe(module, entry))
        .collect()
}

fn describe(module: &Module<'_>, entry: &EntryPoint) -> Result<SpirvEntry, SpirvError> {
    let mut used: Vec<u32> = module
        .reachable_functions(entry.function)
        .iter()
        .flat_map(|function| function.globals.iter().copied())
        .collect();
    used.sort_unstable();
    used.dedup();
    let mut bindings: Vec<SpirvBinding> = Vec::new();
    let mut push_constants = None;
    let mut shared_memory_bytes = 0_u64;
    let mut shared_memory_specialized = false;
    for id in used {
        let interface = |what: String| SpirvError::Interface {
            entry: entry.name.clone(),
            variable: id,
            what,
        };
        let pointee = pointee(module, id);
        match module.variable_class(id) {
            Some(StorageClass::StorageBuffer | StorageClass::Uniform) => {
                let binding = binding(module, id, pointee).map_err(interface)?;
                if bindings
                    .iter()
                    .any(|other| other.binding == binding.binding)
                {
                    return Err(interface(format!(
                        "a second buffer at binding {}",
                        binding.binding
                    )));
                }
                bindings.push(binding);
            }
            Some(StorageClass::PushConstant) => {
                let block = push_constant_block(module, pointee).map_err(interface)?;
                if push_constants.replace(block).is_some() {
                    return Err(interface("a second push-constant block".to_owned()));
                }
            }
            Some(StorageClass::Workgroup) => {
                let info = module.type_info(pointee);
                let (size, alignment) = info.and_then(|info| info.natural).unwrap_or((0, 1));
                shared_memory_specialized |= info.is_some_and(|info| info.specialized);
                shared_memory_bytes = shared_memory_bytes
                    .checked_next_multiple_of(alignment.max(1))
                    .and_then(|bytes| bytes.checked_add(size))
                    .ok_or_else(|| {
                        interface("more shared memory than can be counted".to_owned())
                    })?;
            }
            Some(StorageClass::Input | StorageClass::Private) => {}
            other => return Err(interface(format!("variables of storage class {other:?}"))),
        }
    }
    bindings.sort_by_key(|binding| binding.binding);
    Ok(SpirvEntry {
        name: entry.name.clone(),
        local_size: local_size(module, entry)?,
        style: if bindings.is_empty() {
            SpirvStyle::Pointers
        } else {
            SpirvStyle::Descriptors { bindings }
        },
        push_constants: push_constants.unwrap_or_default(),
        shared_memory_bytes,
        shared_memory_specialized,
    })
}

fn pointee(module: &Module<'_>, variable: u32) -> u32 {
    module
        .defining(variable)
        .and_then(|inst| inst.result_type)
        .and_then(|type_id| module.pointer(type_id))
        .map_or(0, |(_, pointee)| pointee)
}

fn binding(module: &Module<'_>, id: u32, pointee: u32) -> Result<SpirvBinding, String> {
    let Some(Type::Struct { members }) = module.type_of(pointee) else {
        return Err("an array of bindings".to_owned());
    };
    let uniform = module.variable_class(id) == Some(StorageClass::Uniform);
    if uniform && !module.is_decorated(pointee, Decoration::BufferBlock) {
        return Err("a uniform buffer".to_owned());
    }
    let literal = |kind| module.decoration_literal(id, None, kind);
    let set = literal(Decoration::DescriptorSet).ok_or("a buffer without a descriptor set")?;
    let binding = literal(Decoration::Binding).ok_or("a buffer without a binding")?;
    if binding > MAX_BINDING {
        return Err(format!("binding {binding}, above {MAX_BINDING},"));
    }
    if set != SET {
        return Err(format!(
            "a buffer in descriptor set {set}, only set {SET} is supported"
        ));
    }
    let all = |kind| {
        module.is_decorated(id, kind)
            || (0..members.len() as u32)
                .all(|member| module.is_member_decorated(pointee, member, kind))
    };
    Ok(SpirvBinding {
        name: name(module, id, None).or_else(|| name(module, pointee, None)),
        binding,
        writable: !all(Decoration::NonWritable),
    })
}

fn push_constant_block(module: &Module<'_>, pointee: u32) -> Result<SpirvPushConstants, String> {
    let Some(Type::Struct { members }) = module.type_of(pointee) else {
        return Err("a push-constant block that is no struct".to_owned());
    };
    let mut found = Vec::with_capacity(members.len());
    for (position, &member) in members.iter().enumerate() {
        let position = position as u32;
        let unsized_member = || format!("push-constant member {position} has no fixed size");
        let offset_bytes = module
            .decoration_literal(pointee, Some(position), Decoration::Offset)
            .ok_or_else(unsized_member)?;
        let info = module.type_info(member).ok_or_else(unsized_member)?;
        let runtime = matches!(info.shape, Type::RuntimeArray { .. });
        let size = module
            .member_size(pointee, position, member, info)
            .filter(|_| !runtime);
        let size_bytes = size
            .and_then(|size| u32::try_from(size).ok())
            .ok_or_else(unsized_member)?;
        found.push(SpirvMember {
            name: name(module, pointee, Some(position)),
            offset_bytes,
            size_bytes,
            alignment_bytes: info.alignment as u32,
            kind: kind(module, member),
        });
    }
    found.sort_by_key(|member| member.offset_bytes);
    let ends = found
        .iter()
        .map(|member| member.offset_bytes.checked_add(member.size_bytes));
    let mut size_bytes = 0;
    for end in ends {
        size_bytes = size_bytes.max(end.ok_or("a push-constant block past 4 GiB")?);
    }
    Ok(SpirvPushConstants {
        size_bytes,
        members: found,
    })
}

fn kind(module: &Module<'_>, type_id: u32) -> SpirvMemberKind {
    match module.type_of(type_id) {
        Some(Type::Scalar { scalar, bits }) => SpirvMemberKind::Scalar(match scalar {
            Scalar::Float => SpirvScalar::Float { bits: *bits },
            Scalar::Int { signed } => SpirvScalar::Integer {
                bits: *bits,
                signed: *signed,
            },
            // Booleans have no layout, so no block holds one.
            Scalar::Bool => SpirvScalar::Integer {
                bits: 32,
                signed: false,
            },
        }),
        Some(Type::Vector { .. }) => SpirvMemberKind::Vector,
        Some(Type::Matrix { .. }) => SpirvMemberKind::Matrix,
        Some(Type::Array { .. } | Type::RuntimeArray { .. }) => SpirvMemberKind::Array,
        Some(Type::Pointer { .. }) => SpirvMemberKind::Buffer,
        _ => SpirvMemberKind::Struct,
    }
}

fn local_size(module: &Module<'_>, entry: &EntryPoint) -> Result<SpirvLocalSize, SpirvError> {
    // The decorated constant takes precedence over execution modes.
    let decorated = module
        .workgroup_size()
        .and_then(|id| module.constant(id))
        .and_then(|constant| <[u32; 3]>::try_from(constant.parts()?).ok());
    let ids = match (decorated, entry.local_size) {
        (Some(ids), _) | (None, Some(LocalSize::Constants(ids))) => ids,
        (None, Some(LocalSize::Literals(size))) => return Ok(SpirvLocalSize::Fixed(size)),
        (None, None) => {
            return Err(SpirvError::Missing {
                what: "a block size",
            });
        }
    };
    let mut default = [0; 3];
    let mut spec_ids = [None; 3];
    for (axis, &id) in ids.iter().enumerate() {
        let specialized = module
            .constant(id)
            .is_some_and(|constant| constant.specialized);
        (default[axis], spec_ids[axis]) = module.default_u32(id).ok_or(SpirvError::Missing {
            what: "a block size of known extents",
        })?;
        if specialized && spec_ids[axis].is_none() {
            return Err(SpirvError::Interface {
                entry: entry.name.clone(),
                variable: id,
                what: "a block extent computed from specialization constants".to_owned(),
            });
        }
    }
    Ok(match spec_ids {
        [None, None, None] => SpirvLocalSize::Fixed(default),
        _ => SpirvLocalSize::Specialized { default, spec_ids },
    })
}

/// The debug name of an id or of a struct's member; empty ones count as none.
fn name(module: &Module<'_>, id: u32, member: Option<u32>) -> Option<String> {
    module
        .names
        .get(&(id, member))
        .map(|index| &module.parsed.instructions[*index])
        .and_then(|inst| match inst.operands.last() {
            Some(Operand::LiteralString(text))
                if matches!(inst.class.opcode, Op::Name | Op::MemberName) && !text.is_empty() =>
            {
                Some(text.clone())
            }
            _ => None,
        })
}
