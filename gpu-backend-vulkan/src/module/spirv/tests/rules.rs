//! Each rule, broken in the hand-made module.

use spirv::{Capability, Op};

use super::builder::{Builder, good, id::*, text};
use crate::module::spirv::{Rule, SpirvError, SpirvModule};

/// The rule that `change` breaks.
fn broken(name: &str, change: impl FnOnce(&mut Builder)) -> Rule {
    let mut module = good();
    change(&mut module);
    match SpirvModule::parse(&module.bytes()) {
        Err(SpirvError::Rule { rule, .. }) => rule,
        other => panic!("{name}: {other:?}"),
    }
}

/// Asserts the rule that each change breaks.
macro_rules! breaks {
    ($($test:ident { $($name:literal: $rule:ident, |$module:ident| $change:expr;)* })*) => {$(
        #[test]
        fn $test() {
            $(
                let found = broken($name, |$module| {
                    $change;
                });
                assert_eq!(found, Rule::$rule, "{}", $name);
            )*
        }
    )*};
}

breaks! {
    layout_and_ids {
        "a name among the types": Layout, |m| m.before(Op::TypeVoid, 0, (Op::Nop, &[]))
            .before(Op::Function, 0, (Op::Name, &[BUFFER, 0]));
        "a type after the functions": Layout, |m| m
            .before(Op::Function, 1, (Op::TypeInt, &[FREE, 16, 0]));
        "an id at the bound": IdBound, |m| m.set(Op::Load, 0, 2, BOUND);
        "id zero": IdBound, |m| m.set(Op::Load, 0, 2, 0);
        "an id twice": IdDefinedOnce, |m| m.set(Op::Load, 0, 1, INDEX);
        "an id that nothing defines": IdDefined, |m| m.set(Op::Load, 0, 2, FREE);
        "a decoration of nothing": IdDefined, |m| m.set(Op::Decorate, 0, 0, FREE);
        "a name of nothing": IdDefined, |m| m.set(Op::Name, 0, 0, FREE);
    }
    types {
        "no such width": Type, |m| m.set(Op::TypeInt, 1, 1, 24);
        "64 bits without the capability": Capability, |m| m.set(Op::TypeInt, 1, 1, 64);
        "signedness 2": Type, |m| m.set(Op::TypeInt, 0, 2, 2);
        "a vector of five": Type, |m| m.set(Op::TypeVector, 0, 2, 5);
        "a vector of vectors": Type, |m| m.set(Op::TypeVector, 1, 1, VEC4);
        "the same type twice": Type, |m| m.before(Op::TypeArray, 0, (Op::TypeInt, &[FREE, 32, 1]));
        "an array of no elements": Type, |m| m.set(Op::TypeArray, 0, 2, ZERO);
        "an array's length that is no constant": Type, |m| m.set(Op::TypeArray, 0, 2, FLOAT);
        "an array of functions": Type, |m| m.set(Op::TypeArray, 0, 1, VOID_FUNCTION);
        "a struct within itself": Type, |m| m.set(Op::TypeStruct, 1, 1, PUSH);
        "a member of a later type": Type, |m| m.set(Op::TypeStruct, 1, 1, ARRAY);
        "a runtime array that is not last": Type, |m| m
            .replace(Op::TypeStruct, 0, (Op::TypeStruct, &[BLOCK, RUNTIME, UINT]));
        "a pointer to no type": Type, |m| m.set(Op::TypePointer, 0, 2, GLSL);
        "a physical pointer in logical addressing": Type, |m| m.set(Op::TypePointer, 6, 1, 5349);
    }
    constants {
        "a constant of a vector type": Constant, |m| m.set(Op::Constant, 0, 0, UVEC3);
        "a boolean of an integer type": Constant, |m| m
            .before(Op::TypeArray, 0, (Op::ConstantTrue, &[UINT, FREE]));
        "a part too few": Constant, |m| m
            .before(Op::TypeArray, 0, (Op::ConstantComposite, &[UVEC3, FREE, ONE, ONE]));
        "a part of another type": Constant, |m| m
            .before(Op::TypeArray, 0, (Op::ConstantComposite, &[UVEC3, FREE, ONE, ONE, FLOAT_ONE]));
        "null of no data": Constant, |m| m
            .before(Op::TypeArray, 0, (Op::ConstantNull, &[VOID, FREE]));
    }
    declarations {
        "a nameless entry point": EntryPoint, |m| m
            .replace(Op::EntryPoint, 0, (Op::EntryPoint, &[5, MAIN, 0, INPUT]));
        "an entry point with a parameter": EntryPoint, |m| m.set(Op::EntryPoint, 0, 1, CALLEE);
        "an entry point that is no function": EntryPoint, |m| m.set(Op::EntryPoint, 0, 1, UINT);
        "two entry points of one name": EntryPoint, |m| m
            .before(Op::ExecutionMode, 0,
                (Op::EntryPoint, &[&[5, MAIN][..], &text("main")].concat()));
        "an interface of no variable": Interface, |m| m.set(Op::EntryPoint, 0, 4, UINT);
        "an input that is not listed": Interface, |m| m
            .replace(Op::EntryPoint, 0,
                (Op::EntryPoint, &[&[5, MAIN][..], &text("main")].concat()));
        "an input without a built-in": BuiltIn, |m| m.remove(Op::Decorate, 0);
        "a built-in of another type": BuiltIn, |m| m.set(Op::Decorate, 0, 2, 29);
        "a graphics built-in": BuiltIn, |m| m.set(Op::Decorate, 0, 2, 0);
        "an extent of zero": LocalSize, |m| m.set(Op::ExecutionMode, 0, 3, 0);
        "no block size": LocalSize, |m| m.remove(Op::ExecutionMode, 0);
        "a block size twice": LocalSize, |m| m
            .before(Op::Name, 0, (Op::ExecutionMode, &[MAIN, 17, 1, 1, 1]));
        "a block size of no entry point": ExecutionMode, |m| m.set(Op::ExecutionMode, 0, 0, CALLEE);
        "extents that are no constants": LocalSize, |m| m
            .replace(Op::ExecutionMode, 0, (Op::ExecutionModeId, &[MAIN, 38, INDEX, ONE, ONE]));
        "literals where ids are due": ExecutionMode, |m| m
            .replace(Op::ExecutionMode, 0, (Op::ExecutionMode, &[MAIN, 38, ONE, ONE, ONE]));
    }
    decorations {
        "a member that is not there": Decoration, |m| m.set(Op::MemberDecorate, 0, 1, 1);
        "a member of no struct": Decoration, |m| m.set(Op::MemberDecorate, 0, 0, UINT);
        "a name of no member": Decoration, |m| m.set(Op::MemberName, 0, 1, 7);
        "a block that is no struct": Decoration, |m| m
            .before(Op::Decorate, 0, (Op::Decorate, &[UINT, 2]));
        "a binding of a type": Decoration, |m| m
            .before(Op::Decorate, 0, (Op::Decorate, &[UINT, 33, 0]));
        "a SpecId on a constant": Decoration, |m| m
            .before(Op::Decorate, 0, (Op::Decorate, &[ONE, 1, 0]));
        "two offsets": Decoration, |m| m
            .before(Op::TypeVoid, 0, (Op::MemberDecorate, &[PUSH, 0, 35, 4]));
        "a block size of one number": LocalSize, |m| m
            .before(Op::Decorate, 0, (Op::Decorate, &[ONE, 11, 25]));
        "no offset": BlockLayout, |m| m.remove(Op::MemberDecorate, 1);
        "an offset out of line": BlockLayout, |m| m.set(Op::MemberDecorate, 2, 3, 6);
        "members that overlap": BlockLayout, |m| m.set(Op::MemberDecorate, 2, 3, 0);
        "no stride": BlockLayout, |m| m.remove(Op::Decorate, 1);
        "a stride below the element": BlockLayout, |m| m.set(Op::Decorate, 1, 2, 2);
        "no block": Variable, |m| m.remove(Op::Decorate, 2);
    }
    variables {
        "a type of other storage": Variable, |m| m.set(Op::Variable, 3, 2, 6);
        "Function storage in the module": Variable, |m| m
            .before(Op::Function, 0, (Op::Variable, &[LOCAL_POINTER, FREE, 7]));
        "module storage in a function": Variable, |m| m
            .before(Op::Load, 0, (Op::Variable, &[28, FREE, 4]));
        "an initializer of another type": OperandType, |m| m
            .replace(Op::Variable, 5, (Op::Variable, &[LOCAL_POINTER, LOCAL, 7, FLOAT_ONE]));
        "an initializer that is no constant": OperandKind, |m| m
            .replace(Op::Variable, 5, (Op::Variable, &[LOCAL_POINTER, LOCAL, 7, UINT]));
        "shared memory with an initializer": Variable, |m| m
            .replace(Op::Variable, 4, (Op::Variable, &[61, 62, 4, ONE]));
        "too much private memory": Limit, |m| m
            .before(Op::TypeArray, 0, (Op::Constant, &[UINT, FREE, 1 << 20]))
            .before(Op::Function, 0, (Op::TypeArray, &[91, FLOAT, FREE]))
            .before(Op::Function, 0, (Op::TypePointer, &[92, 6, 91]))
            .before(Op::Function, 0, (Op::Variable, &[92, 93, 6]));
        "too much shared memory": Limit, |m| m.set(Op::Constant, 4, 2, 1 << 30);
    }
    functions {
        "another result": Function, |m| m.set(Op::Function, 0, 0, UINT);
        "a parameter too few": Function, |m| m
            .remove(Op::FunctionParameter, 0).set(Op::FAdd, 0, 2, FLOAT_ONE);
        "a parameter of another type": Function, |m| m.set(Op::FunctionParameter, 0, 0, UINT);
        "no body": Function, |m| m
            .remove(Op::Label, 10).remove(Op::FAdd, 0).remove(Op::ReturnValue, 0);
        "no end": Function, |m| m.remove(Op::FunctionEnd, 1);
        "a value where none is due": Function, |m| m
            .replace(Op::Return, 0, (Op::ReturnValue, &[ONE]));
        "no value where one is due": Function, |m| m.replace(Op::ReturnValue, 0, (Op::Return, &[]));
        "a value of another type": OperandType, |m| m.set(Op::ReturnValue, 0, 0, ONE);
        "an argument too many": Call, |m| m
            .replace(Op::FunctionCall, 0,
                (Op::FunctionCall, &[FLOAT, 51, CALLEE, ELEMENT, ELEMENT]));
        "an argument of another type": OperandType, |m| m.set(Op::FunctionCall, 0, 3, ONE);
        "a call of no function": Call, |m| m.set(Op::FunctionCall, 0, 2, UINT);
        "a call of the entry point": Recursion, |m| m
            .replace(Op::FunctionCall, 0, (Op::FunctionCall, &[FLOAT, 51, MAIN]));
        "recursion": Recursion, |m| m
            .replace(Op::FAdd, 0, (Op::FunctionCall, &[FLOAT, 38, CALLEE, PARAMETER]));
    }
    blocks {
        "no terminator": Block, |m| m.remove(Op::Branch, 0);
        "an instruction outside": Block, |m| m.before(Op::Label, 1, (Op::Nop, &[]))
            .before(Op::Label, 1, (Op::IAdd, &[UINT, FREE, ONE, ONE]));
        "a branch to the entry": Branch, |m| m.set(Op::Branch, 0, 0, ENTRY);
        "a branch to another function": Branch, |m| m.set(Op::Branch, 1, 0, 37);
        "a branch to no label": Branch, |m| m.set(Op::Branch, 0, 0, UINT);
        "a variable past the first instruction": Variable, |m| m
            .before(Op::Store, 0, (Op::Variable, &[LOCAL_POINTER, FREE, 7]));
        "a variable outside the entry block": Block, |m| m
            .before(Op::AccessChain, 1, (Op::Variable, &[LOCAL_POINTER, FREE, 7]));
        "a merge without a branch": Block, |m| m
            .before(Op::BranchConditional, 0, (Op::IAdd, &[UINT, FREE, ONE, ONE]));
        "a condition that is no boolean": OperandType, |m| m
            .set(Op::BranchConditional, 0, 0, INDEX);
        "a phi of no predecessor": Phi, |m| m.set(Op::Phi, 0, 3, BODY);
        "a phi that lacks a predecessor": Phi, |m| m
            .replace(Op::Phi, 0, (Op::Phi, &[UINT, 53, ZERO, AFTER]));
        "a phi of another type": OperandType, |m| m.set(Op::Phi, 0, 2, FLOAT_ONE);
        "a phi after other instructions": Phi, |m| m
            .before(Op::Phi, 0, (Op::IAdd, &[UINT, FREE, ONE, ONE]));
        "a use before the definition": Dominance, |m| m.set(Op::Store, 0, 1, NEXT);
        "a use that is not always reached": Dominance, |m| m.set(Op::Store, 2, 1, ELEMENT);
        "a use in another function": Dominance, |m| m.set(Op::FAdd, 0, 2, ELEMENT);
        "a phi's value that is not there": Dominance, |m| m.set(Op::Phi, 0, 2, NEXT);
        "a literal of the switch twice": Switch, |m| m
            .replace(Op::Switch, 0, (Op::Switch, &[53, 70, 1, 69, 1, 71]));
        "a selector that is no integer": OperandType, |m| m.set(Op::Switch, 0, 0, FLOAT_ONE);
    }
    structure {
        "a branch without a merge": Structure, |m| m.remove(Op::SelectionMerge, 0)
            .set(Op::BranchConditional, 0, 2, 75)
            .before(Op::Label, 2, (Op::Label, &[75]))
            .before(Op::Label, 3, (Op::Branch, &[AFTER]));
        "a loop without a merge": Structure, |m| m.remove(Op::LoopMerge, 0);
        "a merge block that is not dominated": Structure, |m| m.set(Op::SelectionMerge, 0, 0, 71);
        "a merge block that is the header": Structure, |m| m.set(Op::LoopMerge, 0, 0, HEADER);
        "a continue target that is the merge block": Structure, |m| m
            .set(Op::LoopMerge, 0, 1, LAST);
        "a loop that never goes back": Structure, |m| m.set(Op::Branch, 3, 0, LAST)
            .replace(Op::Phi, 0, (Op::Phi, &[UINT, 53, ZERO, AFTER]));
        "a branch back to no loop": Structure, |m| m.set(Op::Branch, 5, 0, 70);
    }
    values {
        "integers of another width": OperandType, |m| m.set(Op::IAdd, 0, 3, FLOAT_ONE);
        "an operation on pointers": OperandType, |m| m.set(Op::IAdd, 0, 3, LOCAL);
        "an operation on a type": OperandKind, |m| m.set(Op::IAdd, 0, 3, UINT);
        "an operation on a label": OperandKind, |m| m.set(Op::IAdd, 0, 3, HEADER);
        "a result of no type": OperandKind, |m| m.set(Op::IAdd, 0, 0, ONE);
        "a comparison that is no boolean": OperandType, |m| m.set(Op::ULessThan, 1, 0, INT);
        "a cast of other size": OperandType, |m| m.set(Op::Bitcast, 0, 2, VECTOR);
        "a choice between others": OperandType, |m| m.set(Op::Select, 0, 3, FLOAT_ONE);
        "a condition of another count": OperandType, |m| m.set(Op::Select, 0, 2, ONE);
        "an 8-byte pointer of 4 bytes": OperandType, |m| m
            .replace(Op::Bitcast, 0, (Op::Bitcast, &[LOCAL_POINTER, 67, ONE]));
        "a conversion of the same kind": OperandType, |m| m
            .replace(Op::Bitcast, 0, (Op::ConvertSToF, &[FLOAT, 67, FLOAT_ONE]));
        "a part out of range": CompositeIndex, |m| m.set(Op::CompositeExtract, 0, 3, 3);
        "a part of a scalar": CompositeIndex, |m| m.set(Op::CompositeExtract, 0, 2, ONE);
        "a part of another type": ResultType, |m| m.set(Op::CompositeExtract, 0, 0, INT);
        "a part too many": CompositeIndex, |m| m.replace(
            Op::CompositeConstruct, 0,
            (Op::CompositeConstruct, &[VEC4, VECTOR, FLOAT_ONE, FLOAT_ONE, FLOAT_ONE]));
        "a lane out of range": CompositeIndex, |m| m.set(Op::VectorShuffle, 0, 4, 8);
        "a lane too many": OperandType, |m| m
            .replace(Op::VectorShuffle, 0,
                (Op::VectorShuffle, &[VEC4, 65, VECTOR, VECTOR, 0, 1, 2, 3, 4]));
        "an instruction that the set lacks operands for": ExtendedInstruction, |m| m
            .replace(Op::ExtInst, 0, (Op::ExtInst, &[FLOAT, 66, GLSL, 31, FLOAT_ONE, FLOAT_ONE]));
        "an instruction of another set": ExtendedInstruction, |m| m.set(Op::ExtInst, 0, 2, VOID);
        "an operand of another type": OperandType, |m| m.set(Op::ExtInst, 0, 4, ONE);
    }
    memory {
        "a load of another type": ResultType, |m| m.set(Op::Load, 1, 0, INT);
        "a load through a value": OperandType, |m| m.set(Op::Load, 1, 2, INDEX);
        "a store of another type": OperandType, |m| m.set(Op::Store, 0, 1, FLOAT_ONE);
        "a store to push constants": MemoryAccess, |m| m
            .before(Op::ULessThan, 0, (Op::Store, &[44, INDEX]));
        "an alignment of three": MemoryAccess, |m| m
            .replace(Op::Load, 1, (Op::Load, &[UINT, 45, 44, 2, 3]));
        "a member that is not there": AccessChain, |m| m.set(Op::AccessChain, 0, 3, TWO);
        "a member by a value": AccessChain, |m| m.set(Op::AccessChain, 0, 3, INDEX);
        "an index out of range": AccessChain, |m| m.set(Op::AccessChain, 2, 3, FOUR);
        "an index that is no integer": OperandType, |m| m.set(Op::AccessChain, 2, 3, FLOAT_ONE);
        "an index too many": AccessChain, |m| m
            .replace(Op::AccessChain, 2, (Op::AccessChain, &[30, 63, TILE, TWO, ZERO]));
        "a result in other storage": AccessChain, |m| m.set(Op::AccessChain, 2, 0, 21);
        "an atomic on floats": Atomic, |m| m.set(Op::AtomicIAdd, 0, 2, 63);
        "an atomic on local storage": Atomic, |m| m.set(Op::AtomicIAdd, 0, 2, LOCAL);
        "a scope that is no constant": Constant, |m| m.set(Op::AtomicIAdd, 0, 3, INDEX);
        "an unknown scope": Scope, |m| m.set(Op::AtomicIAdd, 0, 3, SEMANTICS);
        "a barrier for the device": Scope, |m| m.set(Op::ControlBarrier, 0, 0, ONE);
        "semantics of two orders": Semantics, |m| m.set(Op::Constant, 5, 2, 6 | 256);
        "semantics that order nothing": Semantics, |m| m.set(Op::Constant, 5, 2, 8);
        "a value added of another type": OperandType, |m| m.set(Op::AtomicIAdd, 0, 5, FLOAT_ONE);
        "a number of 16 bits that is only stored": Capability, |m| m
            .before(Op::MemoryModel, 0, (Op::Nop, &[]))
            .before(Op::ExtInstImport, 0, (Op::Capability, &[4433]))
            .before(Op::TypeArray, 0, (Op::TypeInt, &[FREE, 16, 0]))
            .before(Op::TypeArray, 0, (Op::Constant, &[FREE, 91, 1]))
            .before(Op::Bitcast, 0, (Op::IAdd, &[FREE, 92, 91, 91]));
        "a subgroup operation without the capability": Capability, |m| m
            .replace(Op::Bitcast, 0, (Op::GroupNonUniformElect, &[BOOL, 67, TWO]));
    }
}

#[test]
fn parts_that_every_module_has() {
    for (op, what) in [
        (Op::MemoryModel, "OpMemoryModel"),
        (Op::EntryPoint, "a GLCompute entry point"),
        (Op::Capability, "capability Shader"),
    ] {
        let mut module = good();
        if op == Op::EntryPoint {
            module.remove(Op::ExecutionMode, 0);
        }
        module.remove(op, 0);
        assert_eq!(
            SpirvModule::parse(&module.bytes()),
            Err(SpirvError::Missing { what }),
            "{what}"
        );
    }
}

#[test]
fn what_has_no_rule_is_refused_by_name() {
    let unsupported = |change: &dyn Fn(&mut Builder)| {
        let mut module = good();
        change(&mut module);
        match SpirvModule::parse(&module.bytes()) {
            Err(SpirvError::Unsupported { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    let found = unsupported(&|m| {
        m.set(Op::Capability, 0, 0, Capability::Geometry as u32);
    });
    assert_eq!(found, "capability Geometry");
    let found = unsupported(&|m| {
        m.set(Op::EntryPoint, 0, 0, 4);
    });
    assert_eq!(found, "entry points of execution model Fragment");
    let found = unsupported(&|m| {
        m.before(Op::Decorate, 0, (Op::Decorate, &[INPUT, 30, 0]));
    });
    assert_eq!(found, "decoration Location");
    let found = unsupported(&|m| {
        m.replace(Op::Return, 0, (Op::Kill, &[]));
    });
    assert_eq!(found, "instruction OpKill");
    let found = unsupported(&|m| {
        m.set(Op::ExtInst, 0, 3, 76);
    });
    assert_eq!(found, "instruction 76 of GLSL.std.450");
}

#[test]
fn word_streams_that_the_parser_must_not_see() {
    let parse = |change: &dyn Fn(&mut Builder)| {
        let mut module = good();
        change(&mut module);
        SpirvModule::parse(&module.bytes()).expect_err("a malformed stream")
    };
    let error = parse(&|m| {
        m.before(Op::Name, 0, (Op::Name, &[BUFFER, 0x4141_4141]));
    });
    assert!(
        matches!(error, SpirvError::Decode { instruction: 5, .. }),
        "{error}"
    );
    // Operations whose operands the parser has no reading for.
    for operation in [
        Op::Constant,
        Op::SpecConstantOp,
        Op::Switch,
        Op::AccessChain,
    ] {
        let error = parse(&|m| {
            m.before(
                Op::Function,
                0,
                (Op::SpecConstantOp, &[UINT, FREE, operation as u32, ONE]),
            );
        });
        let opcode = operation as u32;
        assert!(
            matches!(error, SpirvError::SpecConstantOp { opcode: found, .. } if found == opcode),
            "{error}"
        );
    }
    let mut bytes = good().bytes();
    bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let error = SpirvModule::parse(&bytes).expect_err("an unknown opcode past the end");
    assert!(
        matches!(
            error,
            SpirvError::WordCount {
                count: 0xffff,
                left: 1,
                ..
            }
        ),
        "{error}"
    );
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&0_u32.to_le_bytes());
    let error = SpirvModule::parse(&bytes).expect_err("an instruction of no words");
    assert!(
        matches!(error, SpirvError::WordCount { count: 0, .. }),
        "{error}"
    );
    bytes[at..].copy_from_slice(&0x0001_fffe_u32.to_le_bytes());
    let error = SpirvModule::parse(&bytes).expect_err("an unknown opcode");
    assert!(
        matches!(error, SpirvError::Opcode { opcode: 0xfffe, .. }),
        "{error}"
    );
}

#[test]
fn operations_on_specialization_constants_are_worked_out() {
    // The length of the shared array, whose third element the kernel writes.
    for (operation, a, b, expected) in [
        (Op::IAdd, 6, 2, 8_u32),
        (Op::ISub, 6, 2, 4),
        (Op::IMul, 6, 2, 12),
        (Op::UDiv, 7, 2, 3),
        (Op::UMod, 7, 4, 3),
        (Op::ShiftLeftLogical, 3, 2, 12),
        (Op::ShiftRightLogical, 12, 2, 3),
        (Op::BitwiseXor, 12, 5, 9),
    ] {
        let mut module = good();
        module.before(Op::TypeArray, 0, (Op::SpecConstant, &[UINT, 90, a]));
        module.before(Op::TypeArray, 0, (Op::Constant, &[UINT, 91, b]));
        let words: &[u32] = &[UINT, 92, operation as u32, 90, 91];
        module.before(Op::TypeArray, 0, (Op::SpecConstantOp, words));
        module.set(Op::TypeArray, 0, 2, 92);
        let entry = &SpirvModule::parse(&module.bytes())
            .expect("a good module")
            .entries[0];
        assert_eq!(
            entry.shared_memory_bytes,
            u64::from(expected) * 4 + 4,
            "{operation:?}"
        );
        assert!(entry.shared_memory_specialized);
    }
}

/// The good module with its second function's body replaced.
fn with_body(bound: u32, body: impl FnOnce(&mut Builder)) -> Builder {
    let mut module = good();
    module.header[3] = bound;
    for op in [Op::ReturnValue, Op::FAdd] {
        module.remove(op, 0);
    }
    module.remove(Op::Label, 10);
    module.remove(Op::FunctionEnd, 1);
    body(&mut module);
    module
        .op(Op::ReturnValue, &[PARAMETER])
        .op(Op::FunctionEnd, &[]);
    module
}

fn limit_of(module: &Builder) -> String {
    match SpirvModule::parse(&module.bytes()) {
        Err(SpirvError::Rule {
            rule: Rule::Limit,
            detail,
            ..
        }) => detail,
        other => panic!("{:?}", other.map(|module| module.entries)),
    }
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: u32| {
        with_body(BOUND + 2 * depth + 2, |m| {
            m.before(Op::Function, 0, (Op::ConstantTrue, &[BOOL, FREE]));
            // Selections within selections, then their merge blocks from the inside out.
            for level in 0..depth {
                m.op(Op::Label, &[BOUND + level]);
                m.op(Op::SelectionMerge, &[BOUND + 2 * depth - level, 0]);
                let (inner, merge) = (BOUND + level + 1, BOUND + 2 * depth - level);
                m.op(Op::BranchConditional, &[FREE, inner, merge]);
            }
            for level in 0..depth {
                m.op(Op::Label, &[BOUND + depth + level]);
                m.op(Op::Branch, &[BOUND + depth + level + 1]);
            }
            m.op(Op::Label, &[BOUND + 2 * depth]);
        })
    };
    assert!(SpirvModule::parse(&nested(256).bytes()).is_ok());
    assert_eq!(limit_of(&nested(257)), "control flow nests deeper than 256");

    let structs = |depth: u32| {
        let mut module = good();
        module.header[3] = BOUND + depth;
        let mut inner = FLOAT;
        for level in 0..depth {
            module.before(Op::Function, 0, (Op::TypeStruct, &[BOUND + level, inner]));
            inner = BOUND + level;
        }
        module
    };
    assert!(SpirvModule::parse(&structs(64).bytes()).is_ok());
    assert_eq!(limit_of(&structs(65)), "types nest deeper than 64");
}

#[test]
fn blocks_are_limited_and_many_of_them_are_quick() {
    let chain = |count: u32| {
        with_body(BOUND + count, |m| {
            for level in 0..count - 1 {
                m.op(Op::Label, &[BOUND + level]);
                m.op(Op::Branch, &[BOUND + level + 1]);
            }
            m.op(Op::Label, &[BOUND + count - 1]);
        })
    };
    assert!(SpirvModule::parse(&chain(1 << 15).bytes()).is_ok());
    assert_eq!(limit_of(&chain((1 << 15) + 1)), "more than 32768 blocks");
    // Branches to and fro between all blocks: the dominators take many rounds to find.
    let count = 1 << 14;
    let tangle = with_body(BOUND + count, |m| {
        m.before(Op::Function, 0, (Op::ConstantTrue, &[BOOL, FREE]));
        for level in 0..count - 1 {
            m.op(Op::Label, &[BOUND + level]);
            let back = BOUND + (level * 7919 % count).max(1);
            m.op(Op::BranchConditional, &[FREE, BOUND + level + 1, back]);
        }
        m.op(Op::Label, &[BOUND + count - 1]);
    });
    let rule = match SpirvModule::parse(&tangle.bytes()) {
        Err(SpirvError::Rule { rule, .. }) => rule,
        other => panic!("{:?}", other.map(|module| module.entries)),
    };
    assert!(
        matches!(rule, Rule::Limit | Rule::Structure | Rule::Block),
        "{rule:?}"
    );
}

#[test]
fn sizes_that_grow_without_end_are_counted_without_overflow() {
    // Each type holds the one before 2^31 times.
    let mut module = good();
    module.header[3] = BOUND + 41;
    module.before(Op::Function, 0, (Op::Constant, &[UINT, FREE, 1 << 31]));
    let mut inner = FLOAT;
    for level in 0..40 {
        module.before(
            Op::Function,
            0,
            (Op::TypeArray, &[BOUND + level, inner, FREE]),
        );
        inner = BOUND + level;
    }
    module.before(Op::Function, 0, (Op::TypePointer, &[91, 6, inner]));
    module.before(Op::Function, 0, (Op::Variable, &[91, 92, 6]));
    let found = limit_of(&module);
    assert_eq!(
        found,
        format!("{} scalars, at most 262144 are allowed", u64::MAX)
    );
}
