//! Bytes to instructions: the word stream is validated here before rspirv's parser reads it, so
//! that the inputs on which that parser panics never reach it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rspirv::binary::{Consumer, ParseAction, ParseState, parse_bytes};
use rspirv::dr::{Instruction, ModuleHeader};
use spirv::Op;

use super::SpirvError;

/// Words before the first instruction: magic, version, generator, bound, schema.
const HEADER_WORDS: usize = 5;

/// The specification's universal limit for the id bound.
pub(super) const MAX_BOUND: u32 = 0x3f_ffff;

/// More than any compiler emits for one module; keeps the checker's memory in proportion.
pub(super) const MAX_BYTES: usize = 64 << 20;

/// The versions this crate understands.
const OLDEST: (u8, u8) = (1, 0);
const NEWEST: (u8, u8) = (1, 6);

/// A module's words with its instructions decoded.
pub(super) struct Parsed {
    /// The module in this machine's byte order, header included.
    pub(super) words: Vec<u32>,
    /// Major and minor version.
    pub(super) version: (u8, u8),
    /// Every id is below this.
    pub(super) bound: u32,
    /// Instructions in order, with `OpSpecConstantOp` unfolded: the entry carries the operation's
    /// own opcode and operands, and `specialized` tells it apart.
    pub(super) instructions: Vec<Instruction>,
    /// For each instruction: whether it was wrapped in `OpSpecConstantOp`.
    pub(super) specialized: Vec<bool>,
}

impl Parsed {
    /// Decodes a module in either byte order.
    pub(super) fn new(bytes: &[u8]) -> Result<Self, SpirvError> {
        let words = to_words(bytes)?;
        let version = version(words[1])?;
        let bound = words[3];
        if bound == 0 || bound > MAX_BOUND {
            return Err(SpirvError::Bound {
                bound,
                limit: MAX_BOUND,
            });
        }
        if words[4] != 0 {
            return Err(SpirvError::Schema { schema: words[4] });
        }
        let (unfolded, specialized) = unfold(&words)?;
        let instructions = decode(&unfolded, specialized.len())?;
        Ok(Self {
            words,
            version,
            bound,
            instructions,
            specialized,
        })
    }
}

fn to_words(bytes: &[u8]) -> Result<Vec<u32>, SpirvError> {
    let len_bytes = bytes.len();
    if len_bytes < HEADER_WORDS * 4 || !len_bytes.is_multiple_of(4) || len_bytes > MAX_BYTES {
        return Err(SpirvError::Size {
            len_bytes,
            least_bytes: HEADER_WORDS * 4,
            most_bytes: MAX_BYTES,
        });
    }
    let (chunks, _) = bytes.as_chunks::<4>();
    let mut words: Vec<u32> = chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect();
    if words[0] == spirv::MAGIC_NUMBER.swap_bytes() {
        for word in &mut words {
            *word = word.swap_bytes();
        }
    }
    if words[0] != spirv::MAGIC_NUMBER {
        return Err(SpirvError::Magic { word: words[0] });
    }
    Ok(words)
}

fn version(word: u32) -> Result<(u8, u8), SpirvError> {
    let [reserved_low, minor, major, reserved_high] = word.to_le_bytes();
    let version = (major, minor);
    if reserved_low != 0 || reserved_high != 0 || version < OLDEST || version > NEWEST {
        return Err(SpirvError::Version {
            word,
            major,
            minor,
            oldest: format!("{}.{}", OLDEST.0, OLDEST.1),
            newest: format!("{}.{}", NEWEST.0, NEWEST.1),
        });
    }
    Ok(version)
}

/// Walks the instruction stream, checks word counts and opcodes, and replaces each
/// `OpSpecConstantOp` by the operation it wraps.
fn unfold(words: &[u32]) -> Result<(Vec<u32>, Vec<bool>), SpirvError> {
    let mut unfolded = Vec::with_capacity(words.len());
    unfolded.extend_from_slice(&words[..HEADER_WORDS]);
    let mut specialized = Vec::new();
    let mut at = HEADER_WORDS;
    while at < words.len() {
        let instruction = specialized.len();
        let (count, opcode) = split(words[at]);
        if count == 0 || count > words.len() - at {
            return Err(SpirvError::WordCount {
                instruction,
                opcode,
                count,
                left: words.len() - at,
            });
        }
        let body = &words[at..at + count];
        let op = Op::from_u32(opcode.into()).ok_or(SpirvError::Opcode {
            instruction,
            opcode: opcode.into(),
        })?;
        if op == Op::SpecConstantOp {
            // Opcode word, result type, result, operation, its operands.
            let operation = body.get(3).copied().unwrap_or(u32::MAX);
            if !Op::from_u32(operation).is_some_and(allowed_in_spec_constant_op) {
                return Err(SpirvError::SpecConstantOp {
                    instruction,
                    opcode: operation,
                });
            }
            // The wrapped form has one word more, so the count stays within 16 bits; the
            // operation is one of the allowed opcodes, which are below 2^16.
            unfolded.push(((count as u32 - 1) << 16) | operation);
            unfolded.extend_from_slice(&body[1..3]);
            unfolded.extend_from_slice(&body[4..]);
            specialized.push(true);
        } else {
            unfolded.extend_from_slice(body);
            specialized.push(false);
        }
        at += count;
    }
    Ok((unfolded, specialized))
}

fn split(word: u32) -> (usize, u16) {
    ((word >> 16) as usize, (word & 0xffff) as u16)
}

/// The operations the specification allows without the Kernel capability.
fn allowed_in_spec_constant_op(op: Op) -> bool {
    matches!(
        op,
        Op::SConvert
            | Op::UConvert
            | Op::FConvert
            | Op::QuantizeToF16
            | Op::SNegate
            | Op::Not
            | Op::IAdd
            | Op::ISub
            | Op::IMul
            | Op::UDiv
            | Op::SDiv
            | Op::UMod
            | Op::SRem
            | Op::SMod
            | Op::ShiftRightLogical
            | Op::ShiftRightArithmetic
            | Op::ShiftLeftLogical
            | Op::BitwiseOr
            | Op::BitwiseXor
            | Op::BitwiseAnd
            | Op::VectorShuffle
            | Op::CompositeExtract
            | Op::CompositeInsert
            | Op::LogicalOr
            | Op::LogicalAnd
            | Op::LogicalNot
            | Op::LogicalEqual
            | Op::LogicalNotEqual
            | Op::Select
            | Op::IEqual
            | Op::INotEqual
            | Op::ULessThan
            | Op::SLessThan
            | Op::UGreaterThan
            | Op::SGreaterThan
            | Op::ULessThanEqual
            | Op::SLessThanEqual
            | Op::UGreaterThanEqual
            | Op::SGreaterThanEqual
    )
}

#[derive(Default)]
struct Collector {
    instructions: Vec<Instruction>,
}

impl Consumer for Collector {
    fn initialize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn finalize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_header(&mut self, _: ModuleHeader) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_instruction(&mut self, instruction: Instruction) -> ParseAction {
        self.instructions.push(instruction);
        ParseAction::Continue
    }
}

fn decode(words: &[u32], expected: usize) -> Result<Vec<Instruction>, SpirvError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut collector = Collector::default();
    // The stream was validated above; this net is for panics that no input is known to reach.
    let outcome = catch_unwind(AssertUnwindSafe(|| parse_bytes(&bytes, &mut collector)));
    let instruction = collector.instructions.len();
    let reason = match outcome {
        Ok(Ok(())) if instruction == expected => return Ok(collector.instructions),
        Ok(Ok(())) => format!("{instruction} instructions decoded of {expected}"),
        Ok(Err(ParseState::OperandError(error))) => format!("operand: {error}"),
        Ok(Err(state)) => state.to_string(),
        Err(_) => "the parser gave up on it".to_owned(),
    };
    Err(SpirvError::Decode {
        instruction,
        reason,
    })
}
