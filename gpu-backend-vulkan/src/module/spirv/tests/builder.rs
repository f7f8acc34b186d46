//! Modules made word by word, and a good one to break.

use spirv::Op;

/// A module under construction.
#[derive(Clone)]
pub(super) struct Builder {
    pub(super) header: [u32; 5],
    instructions: Vec<Vec<u32>>,
}

impl Builder {
    pub(super) fn new(minor: u8, bound: u32) -> Self {
        let version = 0x0001_0000 | u32::from(minor) << 8;
        Self {
            header: [spirv::MAGIC_NUMBER, version, 0, bound, 0],
            instructions: Vec::new(),
        }
    }

    /// Appends an instruction.
    pub(super) fn op(&mut self, op: Op, operands: &[u32]) -> &mut Self {
        self.instructions.push(one(op, operands));
        self
    }

    fn find(&self, op: Op, nth: usize) -> usize {
        let found = self
            .instructions
            .iter()
            .enumerate()
            .filter(|(_, words)| is(words, op));
        found
            .map(|(position, _)| position)
            .nth(nth)
            .expect("the instruction is in the module")
    }

    /// Sets a word of the `nth` instruction of that kind; word 0 is the first operand.
    pub(super) fn set(&mut self, op: Op, nth: usize, word: usize, value: u32) -> &mut Self {
        let position = self.find(op, nth);
        self.instructions[position][word + 1] = value;
        self
    }

    /// Replaces the `nth` instruction of that kind.
    pub(super) fn replace(&mut self, op: Op, nth: usize, by: (Op, &[u32])) -> &mut Self {
        let position = self.find(op, nth);
        self.instructions[position] = one(by.0, by.1);
        self
    }

    pub(super) fn remove(&mut self, op: Op, nth: usize) -> &mut Self {
        let position = self.find(op, nth);
        self.instructions.remove(position);
        self
    }

    /// Inserts an instruction before the `nth` of kind `op`.
    pub(super) fn before(&mut self, op: Op, nth: usize, new: (Op, &[u32])) -> &mut Self {
        let position = self.find(op, nth);
        self.instructions.insert(position, one(new.0, new.1));
        self
    }

    pub(super) fn words(&self) -> Vec<u32> {
        self.header
            .iter()
            .chain(self.instructions.iter().flatten())
            .copied()
            .collect()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }
}

fn one(op: Op, operands: &[u32]) -> Vec<u32> {
    let mut words = vec![(operands.len() as u32 + 1) << 16 | op as u32];
    words.extend_from_slice(operands);
    words
}

fn is(words: &[u32], op: Op) -> bool {
    words[0] & 0xffff == op as u32
}

/// A string's words, terminated.
pub(super) fn text(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() / 4 + 1) * 4, 0);
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect()
}

fn join(parts: &[&[u32]]) -> Vec<u32> {
    parts.concat()
}

/// Ids of [`good`] that tests refer to.
pub(super) mod id {
    pub(crate) const MAIN: u32 = 1;
    pub(crate) const GLSL: u32 = 2;
    pub(crate) const VOID: u32 = 3;
    pub(crate) const VOID_FUNCTION: u32 = 4;
    pub(crate) const BOOL: u32 = 5;
    pub(crate) const UINT: u32 = 6;
    pub(crate) const INT: u32 = 7;
    pub(crate) const FLOAT: u32 = 8;
    pub(crate) const VEC4: u32 = 9;
    pub(crate) const UVEC3: u32 = 10;
    pub(crate) const INPUT: u32 = 12;
    pub(crate) const ZERO: u32 = 13;
    pub(crate) const ONE: u32 = 14;
    pub(crate) const TWO: u32 = 15;
    pub(crate) const FLOAT_ONE: u32 = 16;
    pub(crate) const RUNTIME: u32 = 17;
    pub(crate) const BLOCK: u32 = 18;
    pub(crate) const BLOCK_POINTER: u32 = 19;
    pub(crate) const BUFFER: u32 = 20;
    pub(crate) const PUSH: u32 = 22;
    pub(crate) const PUSH_VARIABLE: u32 = 24;
    pub(crate) const ARRAY: u32 = 26;
    pub(crate) const FOUR: u32 = 27;
    pub(crate) const TILE: u32 = 29;
    pub(crate) const SEMANTICS: u32 = 31;
    pub(crate) const LOCAL_POINTER: u32 = 32;
    pub(crate) const CALLEE: u32 = 35;
    pub(crate) const PARAMETER: u32 = 36;
    pub(crate) const ENTRY: u32 = 40;
    pub(crate) const LOCAL: u32 = 41;
    pub(crate) const INDEX: u32 = 43;
    pub(crate) const BODY: u32 = 47;
    pub(crate) const AFTER: u32 = 48;
    pub(crate) const ELEMENT_POINTER: u32 = 49;
    pub(crate) const ELEMENT: u32 = 50;
    pub(crate) const HEADER: u32 = 52;
    pub(crate) const NEXT: u32 = 54;
    pub(crate) const CONTINUE: u32 = 56;
    pub(crate) const LAST: u32 = 57;
    pub(crate) const VECTOR: u32 = 59;
    /// Ids from here to the bound are free.
    pub(crate) const FREE: u32 = 90;
    pub(crate) const BOUND: u32 = 100;
}

/// A module in descriptor style with a branch, a loop, a call, a barrier and shared memory.
pub(super) fn good() -> Builder {
    use id::*;
    let mut m = Builder::new(3, BOUND);
    m.op(Op::Capability, &[spirv::Capability::Shader as u32]);
    m.op(Op::ExtInstImport, &join(&[&[GLSL], &text("GLSL.std.450")]));
    m.op(Op::MemoryModel, &[0, 1]);
    m.op(
        Op::EntryPoint,
        &join(&[&[5, MAIN], &text("main"), &[INPUT]]),
    );
    m.op(Op::ExecutionMode, &[MAIN, 17, 8, 4, 2]);
    m.op(Op::Name, &join(&[&[BUFFER], &text("values")]));
    m.op(Op::MemberName, &join(&[&[PUSH, 1], &text("scale")]));
    m.op(Op::Decorate, &[INPUT, 11, 28]);
    m.op(Op::Decorate, &[RUNTIME, 6, 4]);
    m.op(Op::Decorate, &[BLOCK, 2]);
    m.op(Op::MemberDecorate, &[BLOCK, 0, 35, 0]);
    m.op(Op::Decorate, &[BUFFER, 34, 0]);
    m.op(Op::Decorate, &[BUFFER, 33, 3]);
    m.op(Op::Decorate, &[PUSH, 2]);
    m.op(Op::MemberDecorate, &[PUSH, 0, 35, 0]);
    m.op(Op::MemberDecorate, &[PUSH, 1, 35, 8]);
    m.op(Op::TypeVoid, &[VOID]);
    m.op(Op::TypeFunction, &[VOID_FUNCTION, VOID]);
    m.op(Op::TypeBool, &[BOOL]);
    m.op(Op::TypeInt, &[UINT, 32, 0]);
    m.op(Op::TypeInt, &[INT, 32, 1]);
    m.op(Op::TypeFloat, &[FLOAT, 32]);
    m.op(Op::TypeVector, &[VEC4, FLOAT, 4]);
    m.op(Op::TypeVector, &[UVEC3, UINT, 3]);
    m.op(Op::TypePointer, &[11, 1, UVEC3]);
    m.op(Op::Variable, &[11, INPUT, 1]);
    m.op(Op::Constant, &[UINT, ZERO, 0]);
    m.op(Op::Constant, &[UINT, ONE, 1]);
    m.op(Op::Constant, &[UINT, TWO, 2]);
    m.op(Op::Constant, &[FLOAT, FLOAT_ONE, 1.0_f32.to_bits()]);
    m.op(Op::TypeRuntimeArray, &[RUNTIME, FLOAT]);
    m.op(Op::TypeStruct, &[BLOCK, RUNTIME]);
    m.op(Op::TypePointer, &[BLOCK_POINTER, 12, BLOCK]);
    m.op(Op::Variable, &[BLOCK_POINTER, BUFFER, 12]);
    m.op(Op::TypePointer, &[21, 12, FLOAT]);
    m.op(Op::TypeStruct, &[PUSH, UINT, FLOAT]);
    m.op(Op::TypePointer, &[23, 9, PUSH]);
    m.op(Op::Variable, &[23, PUSH_VARIABLE, 9]);
    m.op(Op::TypePointer, &[25, 9, UINT]);
    m.op(Op::Constant, &[UINT, FOUR, 4]);
    m.op(Op::TypeArray, &[ARRAY, FLOAT, FOUR]);
    m.op(Op::TypePointer, &[28, 4, ARRAY]);
    m.op(Op::Variable, &[28, TILE, 4]);
    m.op(Op::TypePointer, &[30, 4, FLOAT]);
    m.op(Op::Constant, &[UINT, SEMANTICS, 264]);
    m.op(Op::TypePointer, &[LOCAL_POINTER, 7, UINT]);
    m.op(Op::TypePointer, &[61, 4, UINT]);
    m.op(Op::Variable, &[61, 62, 4]);
    m.op(Op::TypeFunction, &[34, FLOAT, FLOAT]);
    m.op(Op::Function, &[VOID, MAIN, 0, VOID_FUNCTION]);
    m.op(Op::Label, &[ENTRY]);
    m.op(Op::Variable, &[LOCAL_POINTER, LOCAL, 7]);
    m.op(Op::Load, &[UVEC3, 42, INPUT]);
    m.op(Op::CompositeExtract, &[UINT, INDEX, 42, 0]);
    m.op(Op::Store, &[LOCAL, INDEX]);
    m.op(Op::AccessChain, &[25, 44, PUSH_VARIABLE, ZERO]);
    m.op(Op::Load, &[UINT, 45, 44]);
    m.op(Op::ULessThan, &[BOOL, 46, INDEX, 45]);
    m.op(Op::SelectionMerge, &[AFTER, 0]);
    m.op(Op::BranchConditional, &[46, BODY, AFTER]);
    m.op(Op::Label, &[BODY]);
    m.op(Op::AccessChain, &[21, ELEMENT_POINTER, BUFFER, ZERO, INDEX]);
    m.op(Op::Load, &[FLOAT, ELEMENT, ELEMENT_POINTER]);
    m.op(Op::FunctionCall, &[FLOAT, 51, CALLEE, ELEMENT]);
    m.op(Op::Store, &[ELEMENT_POINTER, 51]);
    m.op(Op::Branch, &[AFTER]);
    m.op(Op::Label, &[AFTER]);
    m.op(Op::AccessChain, &[30, 63, TILE, TWO]);
    m.op(Op::Store, &[63, FLOAT_ONE]);
    m.op(Op::AtomicIAdd, &[UINT, 64, 62, ONE, ZERO, INDEX]);
    m.op(Op::ControlBarrier, &[TWO, TWO, SEMANTICS]);
    m.op(Op::Branch, &[HEADER]);
    m.op(Op::Label, &[HEADER]);
    m.op(Op::Phi, &[UINT, 53, ZERO, AFTER, NEXT, CONTINUE]);
    m.op(Op::LoopMerge, &[LAST, CONTINUE, 0]);
    m.op(Op::Branch, &[55]);
    m.op(Op::Label, &[55]);
    m.op(Op::ULessThan, &[BOOL, 58, 53, TWO]);
    m.op(Op::BranchConditional, &[58, CONTINUE, LAST]);
    m.op(Op::Label, &[CONTINUE]);
    m.op(Op::IAdd, &[UINT, NEXT, 53, ONE]);
    m.op(Op::Branch, &[HEADER]);
    m.op(Op::Label, &[LAST]);
    m.op(
        Op::CompositeConstruct,
        &[VEC4, VECTOR, FLOAT_ONE, FLOAT_ONE, FLOAT_ONE, FLOAT_ONE],
    );
    m.op(Op::VectorShuffle, &[VEC4, 65, VECTOR, VECTOR, 0, 5, 2, 7]);
    m.op(Op::ExtInst, &[FLOAT, 66, GLSL, 31, FLOAT_ONE]);
    m.op(Op::Bitcast, &[UINT, 67, FLOAT_ONE]);
    m.op(Op::Select, &[UINT, 68, 58, ONE, TWO]);
    m.op(Op::SelectionMerge, &[71, 0]);
    m.op(Op::Switch, &[53, 70, 1, 69]);
    m.op(Op::Label, &[69]);
    m.op(Op::Branch, &[71]);
    m.op(Op::Label, &[70]);
    m.op(Op::Branch, &[71]);
    m.op(Op::Label, &[71]);
    m.op(Op::Return, &[]);
    m.op(Op::FunctionEnd, &[]);
    m.op(Op::Function, &[FLOAT, CALLEE, 0, 34]);
    m.op(Op::FunctionParameter, &[FLOAT, PARAMETER]);
    m.op(Op::Label, &[37]);
    m.op(Op::FAdd, &[FLOAT, 38, PARAMETER, FLOAT_ONE]);
    m.op(Op::ReturnValue, &[38]);
    m.op(Op::FunctionEnd, &[]);
    m
}
