//! Instructions that subgroups execute together.

use rspirv::dr::Operand;
use spirv::{Capability, GroupOperation, Op, Scope};

use super::{Checked, Numeric, Rule, Site};

pub(super) fn is_subgroup(op: Op) -> bool {
    use Op as O;
    is_reduction(op)
        || matches!(
            op,
            O::GroupNonUniformElect
                | O::GroupNonUniformAll
                | O::GroupNonUniformAny
                | O::GroupNonUniformAllEqual
                | O::GroupNonUniformBroadcast
                | O::GroupNonUniformBroadcastFirst
                | O::GroupNonUniformBallot
                | O::GroupNonUniformInverseBallot
                | O::GroupNonUniformBallotBitExtract
                | O::GroupNonUniformBallotBitCount
                | O::GroupNonUniformBallotFindLSB
                | O::GroupNonUniformBallotFindMSB
                | O::GroupNonUniformShuffle
                | O::GroupNonUniformShuffleXor
                | O::GroupNonUniformShuffleUp
                | O::GroupNonUniformShuffleDown
                | O::GroupNonUniformQuadBroadcast
                | O::GroupNonUniformQuadSwap
        )
}

fn is_reduction(op: Op) -> bool {
    use Op as O;
    matches!(
        op,
        O::GroupNonUniformIAdd
            | O::GroupNonUniformFAdd
            | O::GroupNonUniformIMul
            | O::GroupNonUniformFMul
            | O::GroupNonUniformSMin
            | O::GroupNonUniformUMin
            | O::GroupNonUniformFMin
            | O::GroupNonUniformSMax
            | O::GroupNonUniformUMax
            | O::GroupNonUniformFMax
            | O::GroupNonUniformBitwiseAnd
            | O::GroupNonUniformBitwiseOr
            | O::GroupNonUniformBitwiseXor
            | O::GroupNonUniformLogicalAnd
            | O::GroupNonUniformLogicalOr
            | O::GroupNonUniformLogicalXor
    )
}

pub(super) fn check(site: &Site<'_, '_>) -> Checked {
    let op = site.op();
    let scope = site.scope(0)?;
    let subgroup = scope == Scope::Subgroup;
    site.require(
        subgroup,
        Rule::Scope,
        site.id(0)?,
        "the subgroup's scope is expected",
    )?;
    let result = site.result_numeric()?;
    let boolean = result.is_bool() && result.is_scalar();
    let word = result.is_unsigned() && result.is_scalar() && result.bits == 32;
    if is_reduction(op) {
        return reduction(site, result);
    }
    match op {
        Op::GroupNonUniformElect => fits(site, boolean, "a boolean result"),
        Op::GroupNonUniformAll | Op::GroupNonUniformAny => {
            site.operand_is(1, site.result_type()?)?;
            fits(site, boolean, "a boolean result")
        }
        Op::GroupNonUniformAllEqual => {
            site.operand_numeric(1)?;
            fits(site, boolean, "a boolean result")
        }
        Op::GroupNonUniformBallot => {
            let predicate = site.operand_numeric(1)?;
            let holds = predicate.is_bool() && predicate.is_scalar() && is_ballot(result);
            fits(site, holds, "a boolean and a vector of four words")
        }
        Op::GroupNonUniformInverseBallot => {
            let holds = boolean && is_ballot(site.operand_numeric(1)?);
            fits(site, holds, "a vector of four words")
        }
        Op::GroupNonUniformBallotBitExtract => {
            site.integer_scalar(2)?;
            let holds = boolean && is_ballot(site.operand_numeric(1)?);
            fits(site, holds, "a vector of four words")
        }
        Op::GroupNonUniformBallotBitCount => {
            let operation = matches!(
                site.inst.operands.get(1),
                Some(Operand::GroupOperation(
                    GroupOperation::Reduce
                        | GroupOperation::InclusiveScan
                        | GroupOperation::ExclusiveScan
                ))
            );
            let holds = operation && word && is_ballot(site.operand_numeric(2)?);
            fits(site, holds, "a vector of four words")
        }
        Op::GroupNonUniformBallotFindLSB | Op::GroupNonUniformBallotFindMSB => {
            let holds = word && is_ballot(site.operand_numeric(1)?);
            fits(site, holds, "a vector of four words")
        }
        Op::GroupNonUniformBroadcastFirst => site.operand_is(1, site.result_type()?),
        _ => {
            site.operand_is(1, site.result_type()?)?;
            let lane = site.integer_scalar(2)?;
            let numeric = site.operand_numeric(2)?;
            let holds = numeric.is_unsigned() && numeric.bits == 32;
            site.require(holds, Rule::OperandType, lane, "an unsigned 32-bit integer")?;
            let swap = op == Op::GroupNonUniformQuadSwap;
            let fixed = swap
                || matches!(
                    op,
                    Op::GroupNonUniformBroadcast | Op::GroupNonUniformQuadBroadcast
                ) && !site.module.version_at_least(5);
            if fixed {
                let constant = site.module.constant(lane);
                site.require(
                    constant.is_some(),
                    Rule::Constant,
                    lane,
                    "a constant is expected",
                )?;
            }
            if swap {
                let direction = site.fixed_u32(2)?;
                site.require(direction < 3, Rule::Constant, lane, "no such direction")?;
            }
            Ok(())
        }
    }
}

fn fits(site: &Site<'_, '_>, holds: bool, detail: &str) -> Checked {
    site.require(holds, Rule::OperandType, site.result()?, detail)
}

fn is_ballot(numeric: Numeric) -> bool {
    numeric.is_unsigned() && numeric.bits == 32 && numeric.count == 4
}

fn reduction(site: &Site<'_, '_>, result: Numeric) -> Checked {
    use Op as O;
    let kind = match site.op() {
        O::GroupNonUniformFAdd
        | O::GroupNonUniformFMul
        | O::GroupNonUniformFMin
        | O::GroupNonUniformFMax => result.is_float(),
        O::GroupNonUniformLogicalAnd
        | O::GroupNonUniformLogicalOr
        | O::GroupNonUniformLogicalXor => result.is_bool(),
        O::GroupNonUniformUMin | O::GroupNonUniformUMax => result.is_unsigned(),
        _ => result.is_integer(),
    };
    fits(site, kind, "no such reduction of that type")?;
    site.operand_is(2, site.result_type()?)?;
    let clustered = match site.inst.operands.get(1) {
        Some(Operand::GroupOperation(GroupOperation::ClusteredReduce)) => true,
        Some(Operand::GroupOperation(
            GroupOperation::Reduce | GroupOperation::InclusiveScan | GroupOperation::ExclusiveScan,
        )) => false,
        _ => return fits(site, false, "no such group operation"),
    };
    fits(
        site,
        clustered == (site.count() == 4),
        "a cluster size where clustered",
    )?;
    if clustered {
        site.module
            .needs_one(site, &[Capability::GroupNonUniformClustered])?;
        let size = site.fixed_u32(3)?;
        let sane = size.is_power_of_two() && size <= 128;
        return site.require(
            sane,
            Rule::Constant,
            site.id(3)?,
            "a power of two up to 128",
        );
    }
    site.module
        .needs_one(site, &[Capability::GroupNonUniformArithmetic])
}
