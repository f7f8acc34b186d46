//! The kernels as Rust closures, for the software GPU.
//!
//! Signatures, blocks and argument orders are those of [`all`](crate::all), and so are the results,
//! to the bit: sums are taken in the order that [`reference`](mod@crate::reference) describes.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use gpu_backend_mock::{BlockScope, HostKernel, KernelTrap, MockBackend};
use grafos_host_abi::KernelParam;

use crate::{Block, ElementType, Kernel, ParamKind, Slot};

type Done = Result<(), KernelTrap>;
type Body = fn(&mut BlockScope<'_>) -> Done;

/// Threads in a block of `stream_dot` and `reduce_sum`.
const REDUCTION_THREADS: usize = 256;
/// Threads in a block of `shared_rotate`.
const ROTATE_THREADS: usize = 64;
/// Rows and columns of a tile of `matmul_tiled`.
const TILE: usize = 16;
/// Steps that `long_running` takes at most.
const LONG_RUNNING_STEPS: u32 = 60_000;

/// Adds every kernel to a backend.
///
/// ```
/// let backend = gpu_backend_mock::MockBackend::builder().strict(true).build();
/// grafos_kernels::host::register(&backend);
/// ```
pub fn register(backend: &MockBackend) {
    for kernel in all() {
        backend.register_kernel(kernel);
    }
}

/// Lists every kernel, in the order of [`all`](crate::all).
pub fn all() -> Vec<HostKernel> {
    crate::all().iter().filter_map(host_kernel).collect()
}

/// Joins a kernel's entry in the table with its closure.
fn host_kernel(kernel: &Kernel) -> Option<HostKernel> {
    let (body, shared_bytes) = body(kernel.name)?;
    let params: Vec<KernelParam> = kernel.params.iter().map(param).collect();
    let made = HostKernel::new(kernel.name, params, body).static_shared_bytes(shared_bytes);
    Some(match kernel.block {
        Block::Fixed(block) => made.required_block(block),
        Block::Specialized { .. } => made,
    })
}

fn param(param: &crate::Param) -> KernelParam {
    let (kind, offset_bytes) = match (param.kind, param.slot) {
        (ParamKind::Buffer, Slot::PushConstant { offset_bytes }) => {
            (grafos_host_abi::ParamKind::Address, offset_bytes)
        }
        (ParamKind::Buffer, Slot::Binding { .. }) => (grafos_host_abi::ParamKind::BoundBuffer, 0),
        (ParamKind::Scalar, Slot::PushConstant { offset_bytes }) => {
            (grafos_host_abi::ParamKind::Value, offset_bytes)
        }
        (ParamKind::Scalar, Slot::Binding { .. }) => (grafos_host_abi::ParamKind::Value, 0),
    };
    let align_bytes = match (param.kind, param.element) {
        (ParamKind::Buffer, _) => 8,
        (ParamKind::Scalar, ElementType::F32x3 | ElementType::F32x4) => 16,
        (ParamKind::Scalar, element) => element.size_bytes(),
    };
    KernelParam {
        name: Some(param.name.to_string()),
        kind,
        size_bytes: param.size_bytes,
        align_bytes,
        offset_bytes,
    }
}

/// Gives a kernel's closure, and the shared memory that it declares, in bytes.
fn body(name: &str) -> Option<(Body, u32)> {
    const REDUCTION_BYTES: u32 = REDUCTION_THREADS as u32 * 4;
    Some(match name {
        "vector_add" | "vector_add_descriptor" | "vector_add_local_size_id" | "stream_add" => {
            (vector_add, 0)
        }
        "saxpy" => (saxpy, 0),
        "fill" => (fill, 0),
        "stream_copy" => (stream_copy, 0),
        "stream_mul" => (stream_mul, 0),
        "stream_triad" => (stream_triad, 0),
        "stream_dot" => (stream_dot, REDUCTION_BYTES),
        "reduce_sum" => (reduce_sum, REDUCTION_BYTES),
        "histogram" => (histogram, 0),
        "matmul_tiled" => (matmul_tiled, (2 * TILE * TILE * 4) as u32),
        "stencil_5point" => (stencil_5point, 0),
        "increment" | "increment_x_only" => (increment, 0),
        "echo_scalars" | "echo_wide" | "echo_struct" => (echo, 0),
        "write_index" => (write_index, 0),
        "long_running" => (long_running, 0),
        "shared_rotate" => (shared_rotate, ROTATE_THREADS as u32 * 4),
        "triad_f64" => (triad_f64, 0),
        "scale_descriptor" => (scale_descriptor, 0),
        "push_128" | "push_136" | "push_264" => (push_sum, 0),
        _ => return None,
    })
}

/// Runs `element` for each thread whose index on axis x is below `len`.
fn each_element(scope: &BlockScope<'_>, len: u32, mut element: impl FnMut(usize) -> Done) -> Done {
    scope.for_each_thread(|thread| {
        let index = thread.global_x();
        if index < len as usize {
            element(index)
        } else {
            Ok(())
        }
    })
}

fn vector_add(scope: &mut BlockScope<'_>) -> Done {
    let (a, b, c) = (
        scope.buffer::<f32>(0)?,
        scope.buffer::<f32>(1)?,
        scope.buffer::<f32>(2)?,
    );
    each_element(scope, scope.arg(3)?, |i| {
        c.store(i, a.load(i)? + b.load(i)?)
    })
}

fn saxpy(scope: &mut BlockScope<'_>) -> Done {
    let alpha = scope.arg::<f32>(0)?;
    let (x, y) = (scope.buffer::<f32>(1)?, scope.buffer::<f32>(2)?);
    each_element(scope, scope.arg(3)?, |i| {
        y.store(i, alpha * x.load(i)? + y.load(i)?)
    })
}

fn fill(scope: &mut BlockScope<'_>) -> Done {
    let target = scope.buffer::<u32>(0)?;
    let value = scope.arg::<u32>(1)?;
    each_element(scope, scope.arg(2)?, |i| target.store(i, value))
}

fn stream_copy(scope: &mut BlockScope<'_>) -> Done {
    let (a, c) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
    each_element(scope, scope.arg(2)?, |i| c.store(i, a.load(i)?))
}

fn stream_mul(scope: &mut BlockScope<'_>) -> Done {
    let (b, c) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
    let scalar = scope.arg::<f32>(2)?;
    each_element(scope, scope.arg(3)?, |i| b.store(i, scalar * c.load(i)?))
}

fn stream_triad(scope: &mut BlockScope<'_>) -> Done {
    let (a, b, c) = (
        scope.buffer::<f32>(0)?,
        scope.buffer::<f32>(1)?,
        scope.buffer::<f32>(2)?,
    );
    let scalar = scope.arg::<f32>(3)?;
    each_element(scope, scope.arg(4)?, |i| {
        a.store(i, b.load(i)? + scalar * c.load(i)?)
    })
}

fn triad_f64(scope: &mut BlockScope<'_>) -> Done {
    let (a, b, c) = (
        scope.buffer::<f64>(0)?,
        scope.buffer::<f64>(1)?,
        scope.buffer::<f64>(2)?,
    );
    let scalar = scope.arg::<f64>(3)?;
    each_element(scope, scope.arg(4)?, |i| {
        a.store(i, b.load(i)? + scalar * c.load(i)?)
    })
}

fn scale_descriptor(scope: &mut BlockScope<'_>) -> Done {
    let (source, target) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
    let factor = scope.arg::<f32>(2)?;
    each_element(scope, scope.arg(3)?, |i| {
        target.store(i, factor * source.load(i)?)
    })
}

fn increment(scope: &mut BlockScope<'_>) -> Done {
    let data = scope.buffer::<u32>(0)?;
    each_element(scope, scope.arg(1)?, |i| {
        data.store(i, data.load(i)?.wrapping_add(1))
    })
}

fn stream_dot(scope: &mut BlockScope<'_>) -> Done {
    let (a, b) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
    reduce(scope, 2, |i| Ok(a.load(i)? * b.load(i)?))
}

fn reduce_sum(scope: &mut BlockScope<'_>) -> Done {
    let source = scope.buffer::<f32>(0)?;
    reduce(scope, 1, |i| source.load(i))
}

/// Writes the block's share of a sum. `partials` is the index of the argument that takes it; the
/// count comes next.
fn reduce(
    scope: &mut BlockScope<'_>,
    partials: usize,
    term: impl Fn(usize) -> Result<f32, KernelTrap>,
) -> Done {
    let n = scope.arg::<u32>(partials + 1)? as usize;
    let partials = scope.buffer::<f32>(partials)?;
    let stride = scope.grid()[0] as usize * REDUCTION_THREADS;
    let mut sums = scope.shared_mut::<f32>(REDUCTION_THREADS)?;
    scope.for_each_thread(|thread| {
        let mut sum = 0.0;
        for i in (thread.global_x()..n).step_by(stride) {
            sum += term(i)?;
        }
        sums[thread.linear_index()] = sum;
        Ok(())
    })?;
    let mut width = REDUCTION_THREADS / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    partials.store(scope.block_index()[0] as usize, sums[0])
}

fn histogram(scope: &mut BlockScope<'_>) -> Done {
    let (source, bins) = (scope.buffer::<u32>(0)?, scope.buffer::<u32>(1)?);
    let bin_count = scope.arg::<u32>(3)?;
    each_element(scope, scope.arg(2)?, |i| {
        let bin = source.load(i)?;
        if bin < bin_count {
            bins.atomic_add(bin as usize, 1)?;
        }
        Ok(())
    })
}

fn matmul_tiled(scope: &mut BlockScope<'_>) -> Done {
    let (a, b, c) = (
        scope.buffer::<f32>(0)?,
        scope.buffer::<f32>(1)?,
        scope.buffer::<f32>(2)?,
    );
    let size = |index| scope.arg::<u32>(index).map(|size| size as usize);
    let (m, n, k) = (size(3)?, size(4)?, size(5)?);
    let mut a_tile = scope.shared_mut::<f32>(TILE * TILE)?;
    let mut b_tile = scope.shared_mut::<f32>(TILE * TILE)?;
    let mut sums = vec![0.0_f32; TILE * TILE];
    for first in (0..k).step_by(TILE) {
        scope.for_each_thread(|thread| {
            let [column, row, _] = thread.global();
            let [x, y, _] = thread.index().map(|axis| axis as usize);
            let (a_column, b_row) = (first + x, first + y);
            let lane = thread.linear_index();
            let a_inside = row < m && a_column < k;
            let b_inside = b_row < k && column < n;
            a_tile[lane] = if a_inside {
                a.load(row * k + a_column)?
            } else {
                0.0
            };
            b_tile[lane] = if b_inside {
                b.load(b_row * n + column)?
            } else {
                0.0
            };
            Ok(())
        })?;
        scope.for_each_thread(|thread| {
            let [x, y, _] = thread.index().map(|axis| axis as usize);
            for step in 0..TILE {
                sums[thread.linear_index()] += a_tile[y * TILE + step] * b_tile[step * TILE + x];
            }
            Ok(())
        })?;
    }
    scope.for_each_thread(|thread| {
        let [column, row, _] = thread.global();
        if row < m && column < n {
            c.store(row * n + column, sums[thread.linear_index()])?;
        }
        Ok(())
    })
}

fn stencil_5point(scope: &mut BlockScope<'_>) -> Done {
    let (source, target) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
    let size = |index| scope.arg::<u32>(index).map(|size| size as usize);
    let (width, height) = (size(2)?, size(3)?);
    let (center, neighbor) = (scope.arg::<f32>(4)?, scope.arg::<f32>(5)?);
    scope.for_each_thread(|thread| {
        let [x, y, _] = thread.global();
        if x >= width || y >= height {
            return Ok(());
        }
        let i = y * width + x;
        if x == 0 || y == 0 || x + 1 == width || y + 1 == height {
            return target.store(i, source.load(i)?);
        }
        let mut around = source.load(i - width)? + source.load(i + width)?;
        around += source.load(i - 1)?;
        around += source.load(i + 1)?;
        target.store(i, center * source.load(i)? + neighbor * around)
    })
}

/// Writes the bytes of all arguments but the first, one after another, to the first.
fn echo(scope: &mut BlockScope<'_>) -> Done {
    let words = scope.buffer::<u32>(0)?;
    first_thread(scope, |scope| {
        let mut next = 0;
        for index in 1..scope.arg_count() {
            let (chunks, _) = scope.arg_bytes(index)?.as_chunks::<4>();
            for chunk in chunks {
                words.store(next, u32::from_le_bytes(*chunk))?;
                next += 1;
            }
        }
        Ok(())
    })
}

/// Adds all arguments but the first, and writes the sum to the first.
fn push_sum(scope: &mut BlockScope<'_>) -> Done {
    let target = scope.buffer::<u32>(0)?;
    first_thread(scope, |scope| {
        let mut sum = 0_u32;
        for index in 1..scope.arg_count() {
            sum = sum.wrapping_add(scope.arg(index)?);
        }
        target.store(0, sum)
    })
}

/// Runs `work` once in the whole grid.
fn first_thread(scope: &BlockScope<'_>, work: impl FnOnce(&BlockScope<'_>) -> Done) -> Done {
    if scope.block_index() == [0, 0, 0] {
        work(scope)
    } else {
        Ok(())
    }
}

fn write_index(scope: &mut BlockScope<'_>) -> Done {
    let target = scope.buffer::<u32>(0)?;
    let len = scope.arg::<u32>(1)?;
    let grid = scope.grid();
    scope.for_each_thread(|thread| {
        let id = thread.global().map(|axis| axis as u32);
        let [width, height, _] = thread.grid_threads().map(|axis| axis as u32);
        // The kernel counts in 32 bits, which wrap.
        let row = id[2].wrapping_mul(height).wrapping_add(id[1]);
        let index = row.wrapping_mul(width).wrapping_add(id[0]);
        if index < len {
            target.store(
                index as usize,
                crate::reference::write_index_value(id, grid),
            )?;
        }
        Ok(())
    })
}

fn long_running(scope: &mut BlockScope<'_>) -> Done {
    let target = scope.buffer::<u32>(0)?;
    let steps = scope.arg::<u32>(1)?.min(LONG_RUNNING_STEPS);
    scope.for_each_thread(|thread| {
        let index = thread.global_x();
        let mut state = (index as u32).wrapping_add(1);
        for _ in 0..steps {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
        }
        target.store(index, state)
    })
}

fn shared_rotate(scope: &mut BlockScope<'_>) -> Done {
    let data = scope.buffer::<u32>(0)?;
    let mut values = scope.shared_mut::<u32>(ROTATE_THREADS)?;
    scope.for_each_thread(|thread| {
        values[thread.linear_index()] = data.load(thread.global_x())?;
        Ok(())
    })?;
    scope.for_each_thread(|thread| {
        let left = (thread.linear_index() + 1) % ROTATE_THREADS;
        data.store(thread.global_x(), values[left])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_closure_of_its_name() {
        let names: Vec<_> = all()
            .iter()
            .map(|kernel| kernel.name().to_string())
            .collect();
        let expected: Vec<_> = crate::all().iter().map(|kernel| kernel.name).collect();
        assert_eq!(names, expected);
    }
}
