//! Extended instruction sets: GLSL.std.450 and the non-semantic ones.

use spirv::{Op, StorageClass};

use super::{Checked, Numeric, Rule, Site, Type};

/// A set whose instructions have rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Set {
    Glsl,
    /// Carries information only; drivers skip its instructions.
    NonSemantic,
}

impl Set {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "GLSL.std.450" => Some(Self::Glsl),
            _ if name.starts_with("NonSemantic.") => Some(Self::NonSemantic),
            _ => None,
        }
    }
}

/// Whether the instruction only carries information.
pub(super) fn is_non_semantic(site: &Site<'_, '_>) -> bool {
    matches!(site.op(), Op::ExtInst | Op::ExtInstWithForwardRefsKHR)
        && site
            .id(0)
            .is_ok_and(|set| site.module.extended_sets.get(&set) == Some(&Set::NonSemantic))
}

/// Outside function bodies only non-semantic instructions may stand.
pub(super) fn check_global(site: &Site<'_, '_>) -> Checked {
    let id = site.result()?;
    let holds = is_non_semantic(site);
    site.require(
        holds,
        Rule::Layout,
        id,
        "an extended instruction outside a function",
    )?;
    check(site)
}

pub(super) fn check(site: &Site<'_, '_>) -> Checked {
    let set = site.id(0)?;
    let number = site.literal(1)?;
    match site.module.extended_sets.get(&set) {
        Some(Set::NonSemantic) => {
            let void = site.shape(site.result_type()?)? == &Type::Void;
            site.require(
                void,
                Rule::ResultType,
                site.result()?,
                "a void result is expected",
            )?;
            let later = site.ids_from(2)?.into_iter().find(|id| {
                let definition = site.module.definition(*id);
                site.op() == Op::ExtInst && definition.is_none_or(|at| at > site.index)
            });
            match later {
                Some(id) => site.fail(Rule::Dominance, id, "defined later"),
                None => Ok(()),
            }
        }
        Some(Set::Glsl) if site.op() == Op::ExtInst => glsl(site, number),
        _ => site.fail(
            Rule::ExtendedInstruction,
            set,
            "no instruction set is imported there",
        ),
    }
}

/// What operands an instruction takes, by relation to the result.
enum Shape {
    /// So many floats of the result's type, 16 or 32 bits only where narrow.
    Floats {
        operands: usize,
        narrow: bool,
    },
    /// So many integers like the result.
    Integers {
        operands: usize,
    },
    Other,
}

fn shape(number: u32) -> Option<Shape> {
    Some(match number {
        1..=4 | 6 | 8..=10 | 31 | 32 | 69 => Shape::Floats {
            operands: 1,
            narrow: false,
        },
        11..=24 | 27..=30 => Shape::Floats {
            operands: 1,
            narrow: true,
        },
        25 | 26 => Shape::Floats {
            operands: 2,
            narrow: true,
        },
        37 | 40 | 48 | 71 | 79 | 80 => Shape::Floats {
            operands: 2,
            narrow: false,
        },
        43 | 46 | 49 | 50 | 70 | 81 => Shape::Floats {
            operands: 3,
            narrow: false,
        },
        5 | 7 => Shape::Integers { operands: 1 },
        38 | 39 | 41 | 42 => Shape::Integers { operands: 2 },
        44 | 45 => Shape::Integers { operands: 3 },
        33..=36 | 51..=68 | 72..=75 => Shape::Other,
        _ => return None,
    })
}

fn glsl(site: &Site<'_, '_>, number: u32) -> Checked {
    let Some(shape) = shape(number) else {
        return site.unsupported(format!("instruction {number} of GLSL.std.450"));
    };
    match shape {
        Shape::Floats { operands, narrow } => {
            let result = site.result_numeric()?;
            count(site, operands)?;
            let kind = result.is_float() && (!narrow || result.bits <= 32);
            expect(site, kind, "a float result")?;
            (0..operands).try_for_each(|at| site.operand_is(at + 2, site.result_type()?))
        }
        Shape::Integers { operands } => {
            let result = site.result_numeric()?;
            count(site, operands)?;
            let mut holds = result.is_integer();
            for at in 0..operands {
                holds &= site.operand_numeric(at + 2)?.like(result);
            }
            expect(site, holds, "like integers")
        }
        Shape::Other => other(site, number),
    }
}

fn count(site: &Site<'_, '_>, operands: usize) -> Checked {
    if site.count() == operands + 2 {
        return Ok(());
    }
    let detail = format!(
        "{} operands where {operands} are expected",
        site.count() - 2
    );
    site.fail(Rule::ExtendedInstruction, site.result()?, detail)
}

fn expect(site: &Site<'_, '_>, holds: bool, detail: &str) -> Checked {
    site.require(holds, Rule::ExtendedInstruction, site.result()?, detail)
}

fn other(site: &Site<'_, '_>, number: u32) -> Checked {
    let operands = match number {
        35 | 51 | 53 | 67 | 68 => 2,
        72 => 3,
        _ => 1,
    };
    count(site, operands)?;
    let result_type = site.result_type()?;
    let operand_type = site.operand_type(2)?;
    let fixed = |numeric: Numeric, float: bool, bits: u32, count: u32| {
        let kind = if float {
            numeric.is_float()
        } else {
            numeric.is_integer()
        };
        kind && numeric.bits == bits && numeric.count == count
    };
    match number {
        33 | 34 => {
            let Type::Matrix { column, count } = site.shape(operand_type)? else {
                return expect(site, false, "a matrix");
            };
            let rows = site.numeric(*column)?;
            expect(site, rows.count == *count, "a square matrix")?;
            let result = if number == 33 {
                rows.component
            } else {
                operand_type
            };
            expect(site, result == result_type, "a result of the matrix's type")
        }
        35 | 51 => {
            let result = site.result_numeric()?;
            let (class, pointee) = site.pointer_operand(3)?;
            let local = matches!(
                class,
                StorageClass::Function | StorageClass::Private | StorageClass::Workgroup
            );
            let whole = site.numeric(pointee)?;
            let fits = if number == 35 {
                pointee == result_type
            } else {
                whole.is_integer() && whole.bits == 32 && whole.count == result.count
            };
            let holds = result.is_float() && operand_type == result_type && local && fits;
            expect(site, holds, "a float and a pointer for the other part")
        }
        36 | 52 => {
            let of = site.numeric(operand_type)?;
            let Type::Struct { members } = site.shape(result_type)? else {
                return expect(site, false, "a struct of two");
            };
            let (Some(&first), Some(&second), 2) = (members.first(), members.get(1), members.len())
            else {
                return expect(site, false, "a struct of two");
            };
            let whole = site.numeric(second)?;
            let fits = if number == 36 {
                second == operand_type
            } else {
                whole.is_integer() && whole.bits == 32 && whole.count == of.count
            };
            expect(
                site,
                of.is_float() && first == operand_type && fits,
                "a struct of two",
            )
        }
        53 => {
            let result = site.result_numeric()?;
            let exponent = site.operand_numeric(3)?;
            let holds = result.is_float()
                && operand_type == result_type
                && exponent.is_integer()
                && exponent.bits == 32
                && exponent.count == result.count;
            expect(site, holds, "a float and an exponent")
        }
        54..=58 => {
            let lanes = if number <= 55 { 4 } else { 2 };
            let holds = fixed(site.result_numeric()?, false, 32, 1)
                && fixed(site.numeric(operand_type)?, true, 32, lanes);
            expect(site, holds, "a vector of floats to pack")
        }
        59 => {
            let holds = fixed(site.result_numeric()?, true, 64, 1)
                && fixed(site.numeric(operand_type)?, false, 32, 2);
            expect(site, holds, "two words to pack")
        }
        60..=64 => {
            let lanes = if number >= 63 { 4 } else { 2 };
            let holds = fixed(site.result_numeric()?, true, 32, lanes)
                && fixed(site.numeric(operand_type)?, false, 32, 1);
            expect(site, holds, "a word to unpack")
        }
        65 => {
            let holds = fixed(site.result_numeric()?, false, 32, 2)
                && fixed(site.numeric(operand_type)?, true, 64, 1);
            expect(site, holds, "a double to unpack")
        }
        66 | 67 => {
            let of = site.numeric(operand_type)?;
            if number == 67 {
                site.operand_is(3, operand_type)?;
            }
            expect(site, of.is_float() && of.component == result_type, "floats")
        }
        68 => {
            site.operand_is(2, result_type)?;
            site.operand_is(3, result_type)?;
            let result = site.result_numeric()?;
            expect(
                site,
                result.is_float() && result.count == 3,
                "vectors of three floats",
            )
        }
        72 => {
            site.operand_is(2, result_type)?;
            site.operand_is(3, result_type)?;
            let ratio = site.operand_numeric(4)?;
            let holds = site.result_numeric()?.is_float()
                && ratio.is_float()
                && ratio.is_scalar()
                && ratio.component == site.result_numeric()?.component;
            expect(site, holds, "floats and a scalar ratio")
        }
        _ => {
            let (result, of) = (site.result_numeric()?, site.numeric(operand_type)?);
            let holds = result.is_integer() && of.bits == 32 && result.like(of);
            expect(site, holds, "32-bit integers")
        }
    }
}
