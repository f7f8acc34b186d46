//! What is worked out about kernels.

use spirv::Op;

use super::builder::{good, id, text};
use crate::module::spirv::{
    SpirvBinding, SpirvEntry, SpirvError, SpirvLocalSize, SpirvMember, SpirvMemberKind,
    SpirvModule, SpirvScalar, SpirvStyle,
};

fn shipped(name: &str) -> SpirvEntry {
    let kernel = grafos_kernels::by_name(name).expect("a shipped kernel");
    let module = SpirvModule::parse(kernel.spirv).expect("a good image");
    module.entry(name).expect("its entry point").clone()
}

fn member(name: &str, offset: u32, size: u32, kind: SpirvMemberKind) -> SpirvMember {
    SpirvMember {
        name: Some(name.to_owned()),
        offset_bytes: offset,
        size_bytes: size,
        alignment_bytes: size.min(8),
        kind,
    }
}

#[test]
fn descriptor_style_of_the_hand_made_module() {
    let module = SpirvModule::parse(&good().bytes()).expect("a good module");
    let entry = module.entry("main").expect("its entry point");
    assert_eq!(entry.local_size, SpirvLocalSize::Fixed([8, 4, 2]));
    let binding = SpirvBinding {
        name: Some("values".to_owned()),
        binding: 3,
        writable: true,
    };
    assert_eq!(
        entry.style,
        SpirvStyle::Descriptors {
            bindings: vec![binding]
        }
    );
    assert_eq!(entry.push_constants.size_bytes, 12);
    let scale = SpirvScalar::Float { bits: 32 };
    assert_eq!(
        entry.push_constants.members[1],
        member("scale", 8, 4, SpirvMemberKind::Scalar(scale))
    );
    assert_eq!(entry.push_constants.members[0].name, None);
    // Four floats and one word.
    assert_eq!(entry.shared_memory_bytes, 20);
    assert!(!entry.shared_memory_specialized);
}

#[test]
fn pointer_style_of_a_shipped_kernel() {
    let entry = shipped("saxpy");
    assert_eq!(entry.style, SpirvStyle::Pointers);
    let (float, uint) = (
        SpirvMemberKind::Scalar(SpirvScalar::Float { bits: 32 }),
        SpirvMemberKind::Scalar(SpirvScalar::Integer {
            bits: 32,
            signed: false,
        }),
    );
    assert_eq!(
        entry.push_constants.members,
        [
            member("alpha", 0, 4, float),
            member("x", 8, 8, SpirvMemberKind::Buffer),
            member("y", 16, 8, SpirvMemberKind::Buffer),
            member("n", 24, 4, uint),
        ]
    );
    assert_eq!(entry.push_constants.size_bytes, 28);
}

#[test]
fn parameters_of_every_shipped_kernel_match_its_table() {
    for kernel in grafos_kernels::all() {
        let entry = shipped(kernel.name);
        let bindings = match &entry.style {
            SpirvStyle::Pointers => 0,
            SpirvStyle::Descriptors { bindings } => bindings.len(),
        };
        let found = bindings + entry.push_constants.members.len();
        assert_eq!(found, kernel.params.len(), "{}", kernel.name);
        let bytes = entry.push_constants.size_bytes as usize;
        assert_eq!(
            bytes,
            kernel.push_constant_bytes() as usize,
            "{}",
            kernel.name
        );
    }
}

#[test]
fn bindings_are_sorted_and_know_what_is_read_only() {
    let SpirvStyle::Descriptors { bindings } = shipped("vector_add_descriptor").style else {
        panic!("descriptor style is expected");
    };
    let found: Vec<_> = bindings
        .iter()
        .map(|one| (one.binding, one.writable))
        .collect();
    assert_eq!(found, [(0, false), (1, false), (2, true)]);
}

#[test]
fn block_sizes_come_from_specialization_constants() {
    // Both ways that compilers write it.
    let [decorated, by_id] = [false, true].map(|by_id| {
        let mut module = good();
        module.before(Op::Decorate, 0, (Op::Decorate, &[90, 1, 7]));
        module.before(Op::Function, 0, (Op::SpecConstant, &[id::UINT, 90, 64]));
        if by_id {
            module.header[1] = 0x0001_0300;
            let mode: &[u32] = &[id::MAIN, 38, 90, id::ONE, id::TWO];
            module.replace(Op::ExecutionMode, 0, (Op::ExecutionModeId, mode));
        } else {
            module.before(Op::Decorate, 0, (Op::Decorate, &[91, 11, 25]));
            let parts: &[u32] = &[id::UVEC3, 91, 90, id::ONE, id::TWO];
            module.before(Op::Function, 0, (Op::SpecConstantComposite, parts));
        }
        SpirvModule::parse(&module.bytes())
            .expect("a good module")
            .entries[0]
            .local_size
    });
    let expected = SpirvLocalSize::Specialized {
        default: [64, 1, 2],
        spec_ids: [Some(7), None, None],
    };
    assert_eq!(decorated, expected);
    assert_eq!(by_id, expected);
}

#[test]
fn shared_memory_says_when_it_can_be_specialized() {
    let mut module = good();
    module.replace(
        Op::Constant,
        4,
        (Op::SpecConstant, &[id::UINT, id::FOUR, 6]),
    );
    let module = SpirvModule::parse(&module.bytes()).expect("a good module");
    assert_eq!(module.entries[0].shared_memory_bytes, 28);
    assert!(module.entries[0].shared_memory_specialized);
}

#[test]
fn unused_variables_are_no_parameters() {
    let mut module = good();
    module.remove(Op::Store, 1);
    module.remove(Op::FunctionCall, 0);
    module.remove(Op::Load, 2);
    module.remove(Op::AccessChain, 1);
    let module = SpirvModule::parse(&module.bytes()).expect("a good module");
    assert_eq!(module.entries[0].style, SpirvStyle::Pointers);
}

#[test]
fn buffers_of_the_older_storage_class_are_bindings_too() {
    let mut module = good();
    module
        .set(Op::TypePointer, 1, 1, 2)
        .set(Op::Variable, 1, 2, 2)
        .set(Op::TypePointer, 2, 1, 2)
        .set(Op::Decorate, 2, 1, 3);
    let older = SpirvModule::parse(&module.bytes()).expect("a good module");
    let newer = SpirvModule::parse(&good().bytes()).expect("a good module");
    assert_eq!(older.entries, newer.entries);
}

fn refused(module: &super::builder::Builder) -> String {
    match SpirvModule::parse(&module.bytes()) {
        Err(SpirvError::Interface { what, .. } | SpirvError::Unsupported { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_resources_are_refused_by_name() {
    let mut module = good();
    module.set(Op::Decorate, 3, 2, 1);
    assert_eq!(
        refused(&module),
        "a buffer in descriptor set 1, only set 0 is supported"
    );

    let mut module = good();
    module.remove(Op::Decorate, 4);
    assert_eq!(refused(&module), "a buffer without a binding");

    let mut module = good();
    module
        .set(Op::TypePointer, 1, 1, 2)
        .set(Op::Variable, 1, 2, 2)
        .set(Op::TypePointer, 2, 1, 2);
    assert_eq!(refused(&module), "a uniform buffer");

    let mut module = good();
    module.set(Op::Decorate, 4, 2, 1024);
    assert_eq!(refused(&module), "binding 1024, above 1023,");

    let mut module = good();
    module.before(Op::TypeVoid, 0, (Op::TypeSampler, &[90]));
    assert_eq!(refused(&module), "type OpTypeSampler");

    let mut module = good();
    module.before(Op::Function, 0, (Op::Variable, &[23, 90, 9]));
    module.before(Op::Load, 0, (Op::AccessChain, &[25, 91, 90, id::ZERO]));
    assert_eq!(refused(&module), "a second push-constant block");

    let mut module = good();
    module.set(Op::Capability, 0, 0, spirv::Capability::Kernel as u32);
    assert_eq!(refused(&module), "capability Kernel");

    let mut module = good();
    let extension = text("SPV_KHR_ray_query");
    module.before(Op::ExtInstImport, 0, (Op::Extension, &extension));
    assert_eq!(refused(&module), "extension \"SPV_KHR_ray_query\"");
}
