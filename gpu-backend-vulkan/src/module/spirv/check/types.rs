//! Types: their shapes, what they contain, and the bytes they take.

use std::collections::{HashMap, HashSet};

use spirv::{Capability, Decoration, Op, StorageClass};

use super::{Checked, Module, Operand, Rule, Site};

/// Types within types, not counting pointers.
const MAX_DEPTH: u32 = 64;

/// Struct members; the specification's universal limit.
const MAX_MEMBERS: usize = 16_383;

/// The kind of a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::module::spirv) enum Scalar {
    Bool,
    Int { signed: bool },
    Float,
}

/// A scalar or vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::module::spirv) struct Numeric {
    pub(in crate::module::spirv) scalar: Scalar,
    /// Bits of a component; 1 for a boolean.
    pub(in crate::module::spirv) bits: u32,
    /// Components: 1 for a scalar.
    pub(in crate::module::spirv) count: u32,
    /// The component's type; the type itself for a scalar.
    pub(in crate::module::spirv) component: u32,
}

impl Numeric {
    pub(super) fn is_scalar(self) -> bool {
        self.count == 1
    }

    pub(super) fn is_bool(self) -> bool {
        self.scalar == Scalar::Bool
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self.scalar, Scalar::Int { .. })
    }

    pub(super) fn is_unsigned(self) -> bool {
        self.scalar == Scalar::Int { signed: false }
    }

    pub(super) fn is_float(self) -> bool {
        self.scalar == Scalar::Float
    }

    /// Same component kind up to signedness, same width, same count.
    pub(super) fn like(self, other: Self) -> bool {
        self.bits == other.bits
            && self.count == other.count
            && (self.scalar == other.scalar || (self.is_integer() && other.is_integer()))
    }
}

/// A type's own shape, with the ids of the types in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::module::spirv) enum Type {
    Void,
    Scalar {
        scalar: Scalar,
        bits: u32,
    },
    Vector {
        component: u32,
        count: u32,
    },
    Matrix {
        column: u32,
        count: u32,
    },
    Array {
        element: u32,
        length: u64,
        length_id: u32,
    },
    RuntimeArray {
        element: u32,
    },
    Struct {
        members: Vec<u32>,
    },
    Pointer {
        class: StorageClass,
        pointee: u32,
    },
    Function {
        result: u32,
        parameters: Vec<u32>,
    },
}

/// A type and what was worked out when it was declared.
#[derive(Clone, Debug)]
pub(in crate::module::spirv) struct TypeInfo {
    pub(in crate::module::spirv) shape: Type,
    depth: u32,
    /// Scalars in a value of the type; saturates.
    pub(super) components: u64,
    /// Size and alignment in bytes without layout decorations, as for workgroup memory.
    pub(in crate::module::spirv) natural: Option<(u64, u64)>,
    /// Size in bytes under Offset and ArrayStride; none where the type is not laid out.
    pub(in crate::module::spirv) explicit: Option<u64>,
    /// Alignment in bytes of the widest scalar, 1 for none.
    pub(in crate::module::spirv) alignment: u64,
    pub(super) has_runtime_array: bool,
    pub(super) has_bool: bool,
    /// Holds a pointer other than to physical storage.
    pub(super) has_logical_pointer: bool,
    /// An array length in it depends on a specialization constant.
    pub(in crate::module::spirv) specialized: bool,
}

impl TypeInfo {
    fn new(shape: Type) -> Self {
        Self {
            shape,
            depth: 0,
            components: 0,
            natural: None,
            explicit: None,
            alignment: 1,
            has_runtime_array: false,
            has_bool: false,
            has_logical_pointer: false,
            specialized: false,
        }
    }

    fn scalar(scalar: Scalar, bits: u32) -> Self {
        let bytes = if scalar == Scalar::Bool {
            4
        } else {
            u64::from(bits) / 8
        };
        Self {
            components: 1,
            natural: Some((bytes, bytes)),
            explicit: (scalar != Scalar::Bool).then_some(bytes),
            alignment: bytes,
            has_bool: scalar == Scalar::Bool,
            ..Self::new(Type::Scalar { scalar, bits })
        }
    }

    fn pointer(class: StorageClass, pointee: u32) -> Self {
        let physical = class == StorageClass::PhysicalStorageBuffer;
        Self {
            components: 1,
            natural: physical.then_some((8, 8)),
            explicit: physical.then_some(8),
            alignment: if physical { 8 } else { 1 },
            has_logical_pointer: !physical,
            ..Self::new(Type::Pointer { class, pointee })
        }
    }

    fn contain(&mut self, inner: &Self, times: u64) {
        self.depth = self.depth.max(inner.depth + 1);
        self.components = self
            .components
            .saturating_add(inner.components.saturating_mul(times));
        self.alignment = self.alignment.max(inner.alignment);
        self.has_runtime_array |= inner.has_runtime_array;
        self.has_bool |= inner.has_bool;
        self.has_logical_pointer |= inner.has_logical_pointer;
        self.specialized |= inner.specialized;
    }

    /// Whether values of the type can be held by instructions and variables.
    pub(super) fn is_data(&self) -> bool {
        !matches!(self.shape, Type::Void | Type::Function { .. })
    }
}

/// Every type of a module by id.
#[derive(Default)]
pub(super) struct Types {
    by_id: HashMap<u32, TypeInfo>,
    /// Forward-declared pointers to physical storage that are not yet defined.
    forward: HashSet<u32>,
    /// Non-aggregate types seen, which must be unique.
    unique: HashSet<(Op, Vec<u32>)>,
}

impl Types {
    pub(super) fn get(&self, id: u32) -> Option<&TypeInfo> {
        self.by_id.get(&id)
    }

    pub(super) fn numeric(&self, id: u32) -> Option<Numeric> {
        match self.get(id)?.shape {
            Type::Scalar { scalar, bits } => Some(Numeric {
                scalar,
                bits,
                count: 1,
                component: id,
            }),
            Type::Vector { component, count } => Some(Numeric {
                count,
                ..self.numeric(component)?
            }),
            _ => None,
        }
    }
}

pub(super) fn align_up(value: u64, alignment: u64) -> Option<u64> {
    value.checked_next_multiple_of(alignment.max(1))
}

impl Module<'_> {
    /// Takes the type declared at `index` into the table.
    pub(super) fn declare_type(&mut self, index: usize) -> Checked {
        let site = self.site(index);
        if site.op() == Op::TypeForwardPointer {
            let id = site.id(0)?;
            let class = site.inst.operands.get(1);
            let physical = class == Some(&Operand::StorageClass(physical_class()));
            site.require(
                physical,
                Rule::Type,
                id,
                "only physical storage has forward pointers",
            )?;
            let fresh = self.types.get(id).is_none() && self.types.forward.insert(id);
            return self
                .site(index)
                .require(fresh, Rule::Type, id, "declared before");
        }
        let id = site.result()?;
        let info = self.type_at(&site)?;
        if info.depth > MAX_DEPTH {
            return site.fail(
                Rule::Limit,
                id,
                format!("types nest deeper than {MAX_DEPTH}"),
            );
        }
        if let Some(key) = unique_key(&info.shape)
            && !self.types.unique.insert((self.site(index).op(), key))
        {
            return self
                .site(index)
                .fail(Rule::Type, id, "the same type was declared before");
        }
        if self.types.forward.remove(&id)
            && !matches!(info.shape, Type::Pointer { class, .. } if class == physical_class())
        {
            let detail = "declared forward as a pointer to physical storage";
            return self.site(index).fail(Rule::Type, id, detail);
        }
        self.types.by_id.insert(id, info);
        Ok(())
    }

    /// Requires every forward-declared pointer to have been defined.
    pub(super) fn finish_types(&self, index: usize) -> Checked {
        match self.types.forward.iter().min() {
            Some(&id) => self
                .site(index)
                .fail(Rule::Type, id, "forward pointer never defined"),
            None => Ok(()),
        }
    }

    fn type_at(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        Ok(match site.op() {
            Op::TypeVoid => TypeInfo::new(Type::Void),
            Op::TypeBool => TypeInfo::scalar(Scalar::Bool, 1),
            Op::TypeInt => self.integer_type(site)?,
            Op::TypeFloat => self.float_type(site)?,
            Op::TypeVector => self.vector_type(site)?,
            Op::TypeMatrix => self.matrix_type(site)?,
            Op::TypeArray | Op::TypeRuntimeArray => self.array_type(site)?,
            Op::TypeStruct => self.struct_type(site)?,
            Op::TypePointer => self.pointer_type(site)?,
            Op::TypeFunction => self.function_type(site)?,
            _ => return site.unsupported(format!("type Op{}", site.inst.class.opname)),
        })
    }

    fn integer_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let (bits, signedness) = (site.literal(0)?, site.literal(1)?);
        let id = site.result()?;
        site.require(signedness <= 1, Rule::Type, id, "signedness must be 0 or 1")?;
        let needs: &[Capability] = match bits {
            32 => &[],
            64 => &[Capability::Int64],
            16 => &[
                Capability::Int16,
                Capability::StorageBuffer16BitAccess,
                Capability::UniformAndStorageBuffer16BitAccess,
                Capability::StoragePushConstant16,
                Capability::WorkgroupMemoryExplicitLayout16BitAccessKHR,
            ],
            8 => &[
                Capability::Int8,
                Capability::StorageBuffer8BitAccess,
                Capability::UniformAndStorageBuffer8BitAccess,
                Capability::StoragePushConstant8,
                Capability::WorkgroupMemoryExplicitLayout8BitAccessKHR,
            ],
            _ => return site.fail(Rule::Type, id, format!("no integers of {bits} bits")),
        };
        self.needs_one(site, needs)?;
        Ok(TypeInfo::scalar(
            Scalar::Int {
                signed: signedness == 1,
            },
            bits,
        ))
    }

    fn float_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let bits = site.literal(0)?;
        let id = site.result()?;
        if site.count() > 1 {
            return site.unsupported("floating-point encodings other than IEEE 754");
        }
        let needs: &[Capability] = match bits {
            32 => &[],
            64 => &[Capability::Float64],
            16 => &[
                Capability::Float16,
                Capability::StorageBuffer16BitAccess,
                Capability::UniformAndStorageBuffer16BitAccess,
                Capability::StoragePushConstant16,
                Capability::WorkgroupMemoryExplicitLayout16BitAccessKHR,
            ],
            _ => return site.fail(Rule::Type, id, format!("no floats of {bits} bits")),
        };
        self.needs_one(site, needs)?;
        Ok(TypeInfo::scalar(Scalar::Float, bits))
    }

    /// Requires one of `capabilities`, unless none is listed.
    pub(super) fn needs_one(&self, site: &Site<'_, '_>, capabilities: &[Capability]) -> Checked {
        if capabilities.is_empty() || capabilities.iter().any(|needed| self.has(*needed)) {
            return Ok(());
        }
        let names: Vec<_> = capabilities
            .iter()
            .map(|needed| format!("{needed:?}"))
            .collect();
        let id = site.inst.result_id.unwrap_or(0);
        site.fail(
            Rule::Capability,
            id,
            format!("needs capability {}", names.join(" or ")),
        )
    }

    fn vector_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let (component, count) = (site.id(0)?, site.literal(1)?);
        let id = site.result()?;
        let inner = self.known_type(site, component)?;
        let scalar = matches!(inner.shape, Type::Scalar { .. });
        site.require(
            scalar,
            Rule::Type,
            id,
            "a vector's component must be a scalar",
        )?;
        if !(2..=4).contains(&count) {
            return site.fail(Rule::Type, id, format!("no vectors of {count} components"));
        }
        let mut info = TypeInfo::new(Type::Vector { component, count });
        info.contain(inner, count.into());
        info.natural = inner
            .natural
            .map(|(size, align)| (size * u64::from(count), align));
        info.explicit = inner.explicit.map(|size| size * u64::from(count));
        Ok(info)
    }

    fn matrix_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let (column, count) = (site.id(0)?, site.literal(1)?);
        let id = site.result()?;
        let inner = self.known_type(site, column)?;
        let float = matches!(inner.shape, Type::Vector { .. })
            && self.types.numeric(column).is_some_and(Numeric::is_float);
        site.require(
            float,
            Rule::Type,
            id,
            "a matrix's column must be a vector of floats",
        )?;
        if !(2..=4).contains(&count) {
            return site.fail(Rule::Type, id, format!("no matrices of {count} columns"));
        }
        let mut info = TypeInfo::new(Type::Matrix { column, count });
        info.contain(inner, count.into());
        info.natural = inner
            .natural
            .map(|(size, align)| (size * u64::from(count), align));
        Ok(info)
    }

    fn array_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let element = site.id(0)?;
        let id = site.result()?;
        let inner = self.known_type(site, element)?;
        let holds = inner.is_data() && !inner.has_runtime_array;
        site.require(holds, Rule::Type, id, "arrays cannot hold that type")?;
        let stride = self
            .decoration_literal(id, None, Decoration::ArrayStride)
            .map(u64::from);
        if site.op() == Op::TypeRuntimeArray {
            let mut info = TypeInfo::new(Type::RuntimeArray { element });
            info.contain(inner, 1);
            info.has_runtime_array = true;
            info.explicit = stride.map(|_| 0);
            return Ok(info);
        }
        let length_id = site.id(1)?;
        let Some(constant) = self.constant(length_id) else {
            return site.fail(Rule::Type, id, "an array's length must be a constant");
        };
        let length = match constant.integer() {
            Some(value) if value > 0 && value <= i64::MAX as u64 => value,
            _ => {
                let detail = format!("length %{length_id} must be a positive integer");
                return site.fail(Rule::Type, id, detail);
            }
        };
        let specialized = constant.specialized;
        let mut info = TypeInfo::new(Type::Array {
            element,
            length,
            length_id,
        });
        info.contain(inner, length);
        info.specialized |= specialized;
        info.natural = inner
            .natural
            .and_then(|(size, align)| Some((align_up(size, align)?.checked_mul(length)?, align)));
        info.explicit = stride.and_then(|stride| stride.checked_mul(length));
        Ok(info)
    }

    fn struct_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let id = site.result()?;
        let members = site.ids_from(0)?;
        if members.len() > MAX_MEMBERS {
            return site.fail(Rule::Limit, id, format!("more than {MAX_MEMBERS} members"));
        }
        let forward = TypeInfo::pointer(physical_class(), 0);
        let mut info = TypeInfo::new(Type::Void);
        let mut natural = Some((0_u64, 1_u64));
        let mut explicit = Some(0_u64);
        for (position, &member) in members.iter().enumerate() {
            let inner = match self.types.get(member) {
                Some(inner) => inner,
                None if self.types.forward.contains(&member) => &forward,
                None => {
                    let detail = format!("member {position} is no type declared before");
                    return site.fail(Rule::Type, id, detail);
                }
            };
            site.require(
                inner.is_data(),
                Rule::Type,
                id,
                "structs cannot hold that type",
            )?;
            let nested = matches!(inner.shape, Type::Struct { .. } | Type::Array { .. });
            let last = position + 1 == members.len();
            if inner.has_runtime_array && (nested || !last) {
                let detail = "a runtime array must be the last member of the outermost struct";
                return site.fail(Rule::Type, id, detail);
            }
            info.contain(inner, 1);
            natural = natural
                .zip(inner.natural)
                .and_then(|((size, most), (inner, align))| {
                    Some((align_up(size, align)?.checked_add(inner)?, most.max(align)))
                });
            let offset = self.decoration_literal(id, Some(position as u32), Decoration::Offset);
            let end = self
                .member_size(id, position as u32, member, inner)
                .zip(offset);
            explicit = explicit.zip(end).and_then(|(size, (inner, offset))| {
                Some(size.max(u64::from(offset).checked_add(inner)?))
            });
        }
        info.natural = natural
            .and_then(|(size, align)| Some((align_up(size, align)?, align)))
            .filter(|_| !members.is_empty());
        info.explicit = explicit.filter(|_| !members.is_empty());
        info.shape = Type::Struct { members };
        Ok(info)
    }

    /// A member's size in bytes under its layout decorations.
    pub(in crate::module::spirv) fn member_size(
        &self,
        owner: u32,
        position: u32,
        member: u32,
        info: &TypeInfo,
    ) -> Option<u64> {
        let mut times = 1_u64;
        let mut current = member;
        let mut shape = &info.shape;
        // Arrays nest at most `MAX_DEPTH` deep.
        while let Type::Array {
            element, length, ..
        } = shape
        {
            let stride = self.decoration_literal(current, None, Decoration::ArrayStride)?;
            if !matches!(
                self.type_of(*element)?,
                Type::Array { .. } | Type::Matrix { .. }
            ) {
                return info.explicit;
            }
            // The outermost array's stride covers all within it.
            if current == member {
                times = u64::from(stride).checked_mul(*length)?;
            }
            current = *element;
            shape = self.type_of(current)?;
        }
        let Type::Matrix { column, count } = shape else {
            return info.explicit;
        };
        let literal = Decoration::MatrixStride;
        let stride = self.decoration_literal(owner, Some(position), literal)?;
        if current != member {
            return Some(times);
        }
        let column = self.types.numeric(*column)?;
        let row_major = self.is_member_decorated(owner, position, Decoration::RowMajor);
        let vectors = if row_major { column.count } else { *count };
        u64::from(stride).checked_mul(vectors.into())
    }

    fn pointer_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let Some(Operand::StorageClass(class)) = site.inst.operands.first() else {
            return site.fail(Rule::OperandKind, 0, "a storage class is expected");
        };
        let pointee = site.id(1)?;
        let id = site.result()?;
        match class {
            StorageClass::PhysicalStorageBuffer => {
                let detail = "needs the PhysicalStorageBuffer64 addressing model";
                site.require(self.physical, Rule::Type, id, detail)?;
            }
            StorageClass::Input
            | StorageClass::Output
            | StorageClass::Uniform
            | StorageClass::UniformConstant
            | StorageClass::StorageBuffer
            | StorageClass::PushConstant
            | StorageClass::Workgroup
            | StorageClass::Private
            | StorageClass::Function => {}
            other => return site.unsupported(format!("storage class {other:?}")),
        }
        let inner = self.known_type(site, pointee)?;
        let holds = inner.is_data() && !inner.has_logical_pointer;
        site.require(
            holds,
            Rule::Type,
            id,
            "pointers to that type are not supported",
        )?;
        Ok(TypeInfo::pointer(*class, pointee))
    }

    fn function_type(&self, site: &Site<'_, '_>) -> Checked<TypeInfo> {
        let id = site.result()?;
        let result = site.id(0)?;
        let parameters = site.ids_from(1)?;
        let function = matches!(self.known_type(site, result)?.shape, Type::Function { .. });
        site.require(
            !function,
            Rule::Type,
            id,
            "functions cannot return functions",
        )?;
        for &parameter in &parameters {
            let data = self.known_type(site, parameter)?.is_data();
            site.require(data, Rule::Type, id, "parameters cannot have that type")?;
        }
        if parameters.len() > 255 {
            return site.fail(Rule::Limit, id, "more than 255 parameters");
        }
        Ok(TypeInfo::new(Type::Function { result, parameters }))
    }

    fn known_type(&self, site: &Site<'_, '_>, id: u32) -> Checked<&TypeInfo> {
        match self.types.get(id) {
            Some(info) => Ok(info),
            None => site.fail(Rule::Type, id, "a type declared before is expected"),
        }
    }
}

fn physical_class() -> StorageClass {
    StorageClass::PhysicalStorageBuffer
}

/// What makes a non-aggregate, non-pointer type the same as another; none for the others.
fn unique_key(shape: &Type) -> Option<Vec<u32>> {
    Some(match shape {
        Type::Void => vec![],
        Type::Scalar { scalar, bits } => {
            vec![*bits, u32::from(*scalar == Scalar::Int { signed: true })]
        }
        Type::Vector { component, count } => vec![*component, *count],
        Type::Matrix { column, count } => vec![*column, *count],
        Type::Function { result, parameters } => {
            let mut key = vec![*result];
            key.extend(parameters);
            key
        }
        _ => return None,
    })
}
