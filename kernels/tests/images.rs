//! Compares each kernel's signature with its SPIR-V image, read here word by word.

use std::collections::BTreeMap;

use grafos_kernels::{
    Block, ElementType, Feature, Kernel, ParamKind, Slot, Style, Target, all, by_name,
};

#[test]
fn every_image_has_one_compute_entry_named_after_the_kernel() {
    for kernel in all() {
        let image = Image::of(kernel);
        assert_eq!(
            image.entries,
            [(GL_COMPUTE, kernel.name.to_owned())],
            "{}",
            kernel.name
        );
        let version = match kernel.target {
            Target::Vulkan12 => 0x0001_0500,
            Target::Vulkan13 => 0x0001_0600,
        };
        assert_eq!(image.version, version, "{}: SPIR-V version", kernel.name);
    }
}

#[test]
fn every_image_needs_exactly_the_features_listed() {
    for kernel in all() {
        let image = Image::of(kernel);
        let mut expected = vec![CAPABILITY_SHADER];
        if kernel.needs.contains(&Feature::Float64) {
            expected.push(CAPABILITY_FLOAT64);
        }
        if kernel.needs.contains(&Feature::Int64) {
            expected.push(CAPABILITY_INT64);
        }
        if kernel.style == Style::Pointer {
            expected.push(CAPABILITY_PHYSICAL_STORAGE_BUFFER);
        }
        assert_eq!(image.capabilities, expected, "{}", kernel.name);
        assert_eq!(
            image.local_size_ids.is_some(),
            kernel.needs.contains(&Feature::Maintenance4),
            "{}: LocalSizeId",
            kernel.name
        );
    }
}

#[test]
fn every_image_has_the_block_listed() {
    for kernel in all() {
        let image = Image::of(kernel);
        let built_in = image
            .work_group_size
            .as_ref()
            .map(|parts| image.axes(parts));
        let by_id = image.local_size_ids.as_ref().map(|parts| image.axes(parts));
        match kernel.block {
            Block::Fixed(threads) => {
                assert_eq!(image.local_size, Some(threads), "{}", kernel.name);
                assert_eq!(by_id, None, "{}", kernel.name);
                // A source that reads its block size has the built-in, then with no constant id.
                let fixed = threads.map(|count| (count, None));
                assert!(built_in.is_none_or(|axes| axes == fixed), "{}", kernel.name);
            }
            Block::Specialized {
                default,
                constant_ids,
            } => {
                let axes = [0, 1, 2].map(|axis| (default[axis], constant_ids[axis]));
                match kernel.target {
                    Target::Vulkan12 => assert_eq!(built_in, Some(axes), "{}", kernel.name),
                    Target::Vulkan13 => assert_eq!(by_id, Some(axes), "{}", kernel.name),
                }
            }
        }
    }
}

#[test]
fn every_image_has_the_parameters_listed() {
    for kernel in all() {
        let image = Image::of(kernel);
        let mut members = Vec::new();
        let mut bindings = BTreeMap::new();
        for param in kernel.params {
            let is_address = param.kind == ParamKind::Buffer && kernel.style == Style::Pointer;
            let shape = if is_address {
                Shape::AddressOf(param.element)
            } else {
                Shape::Value(param.element)
            };
            match param.slot {
                Slot::PushConstant { offset_bytes } => {
                    members.push((param.name.to_owned(), offset_bytes, shape));
                }
                Slot::Binding { binding } => {
                    assert_eq!(param.kind, ParamKind::Buffer, "{}", kernel.name);
                    bindings.insert((0, binding), param.element);
                }
            }
            let size = match param.kind {
                ParamKind::Buffer => 8,
                ParamKind::Scalar => param.element.size_bytes(),
            };
            assert_eq!(param.size_bytes, size, "{}: {}", kernel.name, param.name);
        }
        assert_eq!(image.push_constants(), members, "{}", kernel.name);
        assert_eq!(image.storage_buffers(), bindings, "{}", kernel.name);
    }
}

#[test]
fn the_kernels_that_backends_are_shown_on_are_there() {
    for name in [
        "vector_add",
        "saxpy",
        "fill",
        "stream_copy",
        "stream_mul",
        "stream_add",
        "stream_triad",
        "stream_dot",
        "reduce_sum",
        "histogram",
        "matmul_tiled",
        "stencil_5point",
        "vector_add_descriptor",
    ] {
        assert!(by_name(name).is_some(), "{name}");
    }
}

const MAGIC: u32 = 0x0723_0203;
const GL_COMPUTE: u32 = 5;
const CAPABILITY_SHADER: u32 = 1;
const CAPABILITY_FLOAT64: u32 = 10;
const CAPABILITY_INT64: u32 = 11;
const CAPABILITY_PHYSICAL_STORAGE_BUFFER: u32 = 5347;
const STORAGE_PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;
const STORAGE_PHYSICAL: u32 = 5349;
const BUILT_IN_WORK_GROUP_SIZE: u32 = 25;

/// What a member or a buffer's element is.
#[derive(Debug, PartialEq)]
enum Shape {
    Value(ElementType),
    AddressOf(ElementType),
}

/// The parts of a SPIR-V type that a signature depends on.
#[derive(Debug)]
enum Type {
    Int { bits: u32, signed: bool },
    Float { bits: u32 },
    Vector { component: u32, count: u32 },
    RuntimeArray { element: u32 },
    Struct { members: Vec<u32> },
    Pointer { storage: u32, pointee: u32 },
}

/// The parts of a SPIR-V module that a signature depends on.
#[derive(Default)]
struct Image {
    version: u32,
    capabilities: Vec<u32>,
    entries: Vec<(u32, String)>,
    local_size: Option<[u32; 3]>,
    local_size_ids: Option<Vec<u32>>,
    work_group_size: Option<Vec<u32>>,
    types: BTreeMap<u32, Type>,
    constants: BTreeMap<u32, u32>,
    composites: BTreeMap<u32, Vec<u32>>,
    variables: Vec<(u32, u32, u32)>,
    member_names: BTreeMap<(u32, u32), String>,
    member_offsets: BTreeMap<(u32, u32), u32>,
    array_strides: BTreeMap<u32, u32>,
    spec_ids: BTreeMap<u32, u32>,
    sets: BTreeMap<u32, u32>,
    bindings: BTreeMap<u32, u32>,
    built_ins: BTreeMap<u32, u32>,
}

impl Image {
    fn of(kernel: &Kernel) -> Self {
        let (words, rest) = kernel.spirv.as_chunks::<4>();
        assert_eq!(rest.len(), 0, "{}", kernel.name);
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(words[0], MAGIC, "{}", kernel.name);
        let mut image = Image {
            version: words[1],
            ..Image::default()
        };
        let mut rest = &words[5..];
        while let Some(&first) = rest.first() {
            let (instruction, tail) = rest.split_at((first >> 16) as usize);
            image.read(first & 0xFFFF, &instruction[1..]);
            rest = tail;
        }
        let is_size = |(id, built_in): (&u32, &u32)| {
            (*built_in == BUILT_IN_WORK_GROUP_SIZE).then(|| image.composites[id].clone())
        };
        image.work_group_size = image.built_ins.iter().find_map(is_size);
        image
    }

    fn read(&mut self, opcode: u32, operands: &[u32]) {
        match (opcode, operands) {
            // OpMemberName
            (6, [id, member, name @ ..]) => {
                self.member_names.insert((*id, *member), text(name));
            }
            // OpEntryPoint
            (15, [model, _, name @ ..]) => self.entries.push((*model, text(name))),
            // OpExecutionMode LocalSize
            (16, [_, 17, x, y, z]) => self.local_size = Some([*x, *y, *z]),
            // OpExecutionModeId LocalSizeId
            (331, [_, 38, ids @ ..]) => self.local_size_ids = Some(ids.to_vec()),
            // OpCapability
            (17, [capability]) => self.capabilities.push(*capability),
            // OpTypeInt, OpTypeFloat, OpTypeVector, OpTypeRuntimeArray, OpTypeStruct, OpTypePointer
            (21, [id, bits, signed]) => {
                self.types.insert(
                    *id,
                    Type::Int {
                        bits: *bits,
                        signed: *signed == 1,
                    },
                );
            }
            (22, [id, bits]) => {
                self.types.insert(*id, Type::Float { bits: *bits });
            }
            (23, [id, component, count]) => {
                self.types.insert(
                    *id,
                    Type::Vector {
                        component: *component,
                        count: *count,
                    },
                );
            }
            (29, [id, element]) => {
                self.types
                    .insert(*id, Type::RuntimeArray { element: *element });
            }
            (30, [id, members @ ..]) => {
                self.types.insert(
                    *id,
                    Type::Struct {
                        members: members.to_vec(),
                    },
                );
            }
            (32, [id, storage, pointee]) => {
                self.types.insert(
                    *id,
                    Type::Pointer {
                        storage: *storage,
                        pointee: *pointee,
                    },
                );
            }
            // OpConstant, OpSpecConstant
            (43 | 50, [_, id, value, ..]) => {
                self.constants.insert(*id, *value);
            }
            // OpConstantComposite, OpSpecConstantComposite
            (44 | 51, [_, id, parts @ ..]) => {
                self.composites.insert(*id, parts.to_vec());
            }
            // OpVariable
            (59, [pointer, id, storage, ..]) => self.variables.push((*pointer, *id, *storage)),
            // OpDecorate SpecId, ArrayStride, BuiltIn, Binding, DescriptorSet
            (71, [id, 1, value]) => {
                self.spec_ids.insert(*id, *value);
            }
            (71, [id, 6, value]) => {
                self.array_strides.insert(*id, *value);
            }
            (71, [id, 11, value]) => {
                self.built_ins.insert(*id, *value);
            }
            (71, [id, 33, value]) => {
                self.bindings.insert(*id, *value);
            }
            (71, [id, 34, value]) => {
                self.sets.insert(*id, *value);
            }
            // OpMemberDecorate Offset
            (72, [id, member, 35, offset]) => {
                self.member_offsets.insert((*id, *member), *offset);
            }
            _ => {}
        }
    }

    /// Value and specialization id of each of three constants.
    fn axes(&self, ids: &[u32]) -> [(u32, Option<u32>); 3] {
        let axis = |index: usize| {
            let id = ids[index];
            (self.constants[&id], self.spec_ids.get(&id).copied())
        };
        [axis(0), axis(1), axis(2)]
    }

    /// Name, offset and shape of each member of the push-constant block.
    fn push_constants(&self) -> Vec<(String, u32, Shape)> {
        let mut blocks = self
            .variables
            .iter()
            .filter(|variable| variable.2 == STORAGE_PUSH_CONSTANT);
        let Some((pointer, ..)) = blocks.next() else {
            return Vec::new();
        };
        assert_eq!(blocks.next(), None, "a second push-constant block");
        let (block, members) = self.pointed_struct(*pointer, STORAGE_PUSH_CONSTANT);
        let member = |(index, id): (u32, &u32)| {
            let key = (block, index);
            let shape = match &self.types[id] {
                Type::Pointer { .. } => {
                    Shape::AddressOf(self.buffer_element(*id, STORAGE_PHYSICAL))
                }
                _ => Shape::Value(self.value_type(*id)),
            };
            (
                self.member_names[&key].clone(),
                self.member_offsets[&key],
                shape,
            )
        };
        (0..).zip(members).map(member).collect()
    }

    /// Element type of each storage buffer, by set and binding.
    fn storage_buffers(&self) -> BTreeMap<(u32, u32), ElementType> {
        let buffers = self
            .variables
            .iter()
            .filter(|variable| variable.2 == STORAGE_BUFFER);
        let place = |id: &u32| (self.sets[id], self.bindings[id]);
        buffers
            .map(|(pointer, id, _)| (place(id), self.buffer_element(*pointer, STORAGE_BUFFER)))
            .collect()
    }

    /// Element type of a buffer that is one tightly packed runtime array.
    fn buffer_element(&self, pointer: u32, storage: u32) -> ElementType {
        let (block, members) = self.pointed_struct(pointer, storage);
        let [array] = members else {
            panic!("a buffer of {} members", members.len());
        };
        assert_eq!(self.member_offsets[&(block, 0)], 0);
        let Type::RuntimeArray { element } = self.types[array] else {
            panic!("a buffer of {:?}", self.types[array]);
        };
        let element = self.value_type(element);
        assert_eq!(self.array_strides[array], element.size_bytes());
        element
    }

    fn pointed_struct(&self, pointer: u32, expected: u32) -> (u32, &[u32]) {
        let Type::Pointer { storage, pointee } = self.types[&pointer] else {
            panic!("not a pointer: {:?}", self.types[&pointer]);
        };
        assert_eq!(storage, expected);
        match &self.types[&pointee] {
            Type::Struct { members } => (pointee, members),
            other => panic!("not a struct: {other:?}"),
        }
    }

    fn value_type(&self, id: u32) -> ElementType {
        match self.types[&id] {
            Type::Int {
                bits: 32,
                signed: true,
            } => ElementType::I32,
            Type::Int {
                bits: 32,
                signed: false,
            } => ElementType::U32,
            Type::Int {
                bits: 64,
                signed: true,
            } => ElementType::I64,
            Type::Int {
                bits: 64,
                signed: false,
            } => ElementType::U64,
            Type::Float { bits: 32 } => ElementType::F32,
            Type::Float { bits: 64 } => ElementType::F64,
            Type::Vector { component, count } => match (self.value_type(component), count) {
                (ElementType::F32, 3) => ElementType::F32x3,
                (ElementType::F32, 4) => ElementType::F32x4,
                other => panic!("a vector of {other:?}"),
            },
            ref other => panic!("a value of {other:?}"),
        }
    }
}

/// The text of a literal string, which ends at its first zero byte.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
