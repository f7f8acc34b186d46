//! What a resolved kernel says of itself, held against a table.

use std::prelude::v1::*;

use super::check::{Checked, Stop, ensure, ensure_eq};
use super::gpu::Kernel;
use super::module::load_if_able;
use super::runner::Suite;
use crate::{KernelParam, ParamKind};

cases!("kernel_signature":
    parameters_have_the_right_count_and_sizes,
    parameters_lie_at_the_right_offsets,
    parameters_have_fitting_alignments,
    parameters_are_of_the_right_kind,
    required_blocks_are_the_declared_ones,
    limits_are_within_the_device,
    shared_memory_is_counted,
);

/// How a kernel takes a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// A buffer's address, at an offset of the parameter block.
    Address,
    /// A buffer, bound to a slot.
    Bound,
    /// A value, whose components have this many bytes each.
    Value(u32),
}

/// A parameter: how it is taken, its size and its offset in bytes.
type Param = (Taken, u32, u32);

/// A kernel's signature.
pub(super) struct Signature {
    pub(super) name: &'static str,
    params: &'static [Param],
    /// More parameters of 4 bytes each, one after another.
    words: u32,
    block: Option<[u32; 3]>,
    shared_bytes: u32,
}

const fn plain(name: &'static str, params: &'static [Param]) -> Signature {
    Signature {
        name,
        params,
        words: 0,
        block: None,
        shared_bytes: 0,
    }
}

const fn fixed(
    name: &'static str,
    params: &'static [Param],
    block: [u32; 3],
    shared_bytes: u32,
) -> Signature {
    Signature {
        block: Some(block),
        shared_bytes,
        ..plain(name, params)
    }
}

const fn words(name: &'static str, words: u32) -> Signature {
    Signature {
        words,
        ..plain(name, &[(Taken::Address, 8, 0)])
    }
}

const fn address(offset: u32) -> Param {
    (Taken::Address, 8, offset)
}

const fn word(offset: u32) -> Param {
    (Taken::Value(4), 4, offset)
}

const fn wide(offset: u32) -> Param {
    (Taken::Value(8), 8, offset)
}

const BOUND: Param = (Taken::Bound, 8, 0);

const VECTOR_ADD: &[Param] = &[address(0), address(8), address(16), word(24)];

/// The kernels that the suite launches.
pub(super) const KERNELS: &[Signature] = &[
    plain("vector_add", VECTOR_ADD),
    plain("saxpy", &[word(0), address(8), address(16), word(24)]),
    plain("fill", &[address(0), word(8), word(12)]),
    plain("stream_copy", &[address(0), address(8), word(16)]),
    plain("stream_mul", &[address(0), address(8), word(16), word(20)]),
    plain("stream_add", VECTOR_ADD),
    plain(
        "stream_triad",
        &[address(0), address(8), address(16), word(24), word(28)],
    ),
    fixed("stream_dot", VECTOR_ADD, [256, 1, 1], 1024),
    fixed(
        "reduce_sum",
        &[address(0), address(8), word(16)],
        [256, 1, 1],
        1024,
    ),
    plain("histogram", &[address(0), address(8), word(16), word(20)]),
    fixed(
        "matmul_tiled",
        &[
            address(0),
            address(8),
            address(16),
            word(24),
            word(28),
            word(32),
        ],
        [16, 16, 1],
        2048,
    ),
    plain(
        "stencil_5point",
        &[
            address(0),
            address(8),
            word(16),
            word(20),
            word(24),
            word(28),
        ],
    ),
    fixed(
        "vector_add_descriptor",
        &[BOUND, BOUND, BOUND, word(0)],
        [64, 1, 1],
        0,
    ),
    plain("vector_add_local_size_id", VECTOR_ADD),
    plain("increment", &[address(0), word(8)]),
    plain("increment_x_only", &[address(0), word(8)]),
    plain("echo_scalars", &[address(0), word(8), word(12), word(16)]),
    plain("echo_wide", &[address(0), wide(8), wide(16), wide(24)]),
    plain(
        "echo_struct",
        &[
            address(0),
            (Taken::Value(4), 12, 16),
            word(28),
            (Taken::Value(4), 16, 32),
            word(48),
        ],
    ),
    plain("write_index", &[address(0), word(8)]),
    plain("long_running", &[address(0), word(8)]),
    fixed("shared_rotate", &[address(0)], [64, 1, 1], 256),
    plain(
        "triad_f64",
        &[address(0), address(8), address(16), wide(24), word(32)],
    ),
    fixed(
        "scale_descriptor",
        &[BOUND, BOUND, word(0), word(4)],
        [64, 1, 1],
        0,
    ),
    words("push_128", 30),
    words("push_136", 32),
    words("push_264", 64),
];

impl Signature {
    fn all_params(&self) -> Vec<Param> {
        let end = self.params.iter().map(|(_, size, offset)| size + offset);
        let end = end.max().unwrap_or(0);
        let words = (0..self.words).map(|index| word(end + 4 * index));
        self.params.iter().copied().chain(words).collect()
    }
}

/// Shows each kernel that the device can run to `look`.
fn each_kernel(suite: &Suite, look: impl Fn(&Signature, &Kernel) -> Checked) -> Checked {
    let gpu = suite.open()?;
    let mut looked = 0;
    for signature in KERNELS {
        if suite.fixture.image(signature.name).is_none() {
            continue;
        }
        if let Some(kernel) = load_if_able(&gpu, signature.name)? {
            look(signature, &kernel)?;
            looked += 1;
        }
    }
    ensure("no kernel could be looked at", looked > 0)
}

/// Shows the parameters of each kernel to `look`, beside the table's.
fn each_signature(
    suite: &Suite,
    look: impl Fn(&str, &[Param], &[KernelParam]) -> Checked,
) -> Checked {
    let told = std::cell::Cell::new(0);
    each_kernel(suite, |signature, kernel| {
        let Some(params) = &kernel.info.params else {
            return Ok(());
        };
        told.set(told.get() + 1);
        look(signature.name, &signature.all_params(), params)
    })?;
    if told.get() == 0 {
        return Err(Stop::unsupported(
            "neither the images nor the driver tell the kernels' parameters",
        ));
    }
    Ok(())
}

fn parameters_have_the_right_count_and_sizes(suite: &Suite) -> Checked {
    each_signature(suite, |name, expected, found| {
        let expected: Vec<u32> = expected.iter().map(|(_, size, _)| *size).collect();
        let found: Vec<u32> = found.iter().map(|param| param.size_bytes).collect();
        ensure_eq(format_args!("sizes of {name}"), found, expected)
    })
}

fn parameters_lie_at_the_right_offsets(suite: &Suite) -> Checked {
    each_signature(suite, |name, expected, found| {
        let expected: Vec<u32> = expected.iter().map(|(_, _, offset)| *offset).collect();
        let found: Vec<u32> = found.iter().map(|param| param.offset_bytes).collect();
        ensure_eq(format_args!("offsets of {name}"), found, expected)
    })
}

fn parameters_have_fitting_alignments(suite: &Suite) -> Checked {
    each_signature(suite, |name, expected, found| {
        for (index, ((taken, _, _), param)) in expected.iter().zip(found).enumerate() {
            let align = param.align_bytes;
            let least = match taken {
                Taken::Address | Taken::Bound => 8,
                Taken::Value(component) => *component,
            };
            ensure(
                format_args!("parameter {index} of {name} is aligned to {align}"),
                align.is_power_of_two()
                    && align >= least
                    && param.offset_bytes.is_multiple_of(align),
            )?;
        }
        Ok(())
    })
}

fn parameters_are_of_the_right_kind(suite: &Suite) -> Checked {
    each_signature(suite, |name, expected, found| {
        for (index, ((taken, _, _), param)) in expected.iter().zip(found).enumerate() {
            let fits = match taken {
                Taken::Bound => param.kind == ParamKind::BoundBuffer,
                // Where the image does not tell an address from a number.
                Taken::Address => matches!(param.kind, ParamKind::Address | ParamKind::Value),
                Taken::Value(_) => param.kind == ParamKind::Value,
            };
            ensure(
                format_args!("parameter {index} of {name} is of kind {:?}", param.kind),
                fits,
            )?;
        }
        Ok(())
    })
}

fn required_blocks_are_the_declared_ones(suite: &Suite) -> Checked {
    each_kernel(suite, |signature, kernel| {
        match (kernel.info.required_block, signature.block) {
            // An image need not tell.
            (None, _) => Ok(()),
            (found, expected) => ensure_eq(
                format_args!("required block of {}", signature.name),
                found,
                expected,
            ),
        }
    })
}

fn limits_are_within_the_device(suite: &Suite) -> Checked {
    let limits = &suite.info.limits;
    each_kernel(suite, |signature, kernel| {
        let info = &kernel.info;
        let least = signature.block.map_or(1, |block| block.iter().product());
        ensure(
            format_args!(
                "{} can have {} threads per block, the device {}",
                signature.name, info.max_threads_per_block, limits.max_threads_per_block
            ),
            (least..=limits.max_threads_per_block).contains(&info.max_threads_per_block),
        )?;
        let most = u64::from(info.static_shared_bytes) + u64::from(info.max_dynamic_shared_bytes);
        ensure(
            format_args!(
                "{} can have {most} bytes of shared memory, the device {}",
                signature.name, limits.max_shared_memory_bytes
            ),
            most <= u64::from(limits.max_shared_memory_bytes),
        )?;
        ensure(
            format_args!(
                "{} can have dynamic shared memory, the device cannot",
                signature.name
            ),
            suite.info.capabilities.dynamic_shared_memory || info.max_dynamic_shared_bytes == 0,
        )
    })
}

fn shared_memory_is_counted(suite: &Suite) -> Checked {
    each_kernel(suite, |signature, kernel| {
        let found = kernel.info.static_shared_bytes;
        let expected = signature.shared_bytes;
        ensure(
            format_args!(
                "{} declares {expected} bytes of shared memory, {found} are reported",
                signature.name
            ),
            // A compiler may round what is there, and adds none where there is none.
            if expected == 0 {
                found == 0
            } else {
                (expected..=expected + 1024).contains(&found)
            },
        )
    })
}
