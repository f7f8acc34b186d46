//! Kernels that are Rust closures.

mod scope;
mod slice;
mod trap;

use std::fmt;
use std::sync::Arc;

use grafos_host_abi::{KernelParam, ParamKind};

pub use scope::{BlockScope, SharedArray, Thread};
pub use slice::{AtomicElement, AtomicInteger, DeviceSlice, Element};
pub use trap::KernelTrap;

type Body = dyn Fn(&mut BlockScope<'_>) -> Result<(), KernelTrap> + Send + Sync;

/// A kernel that runs as a Rust closure, once per block of the grid.
///
/// ```
/// use gpu_backend_mock::{HostKernel, KernelSignature, MockBackend};
///
/// let saxpy = HostKernel::new(
///     "saxpy",
///     KernelSignature::new().buffer().buffer().value::<f32>().value::<u32>(),
///     |scope| {
///         let (x, y) = (scope.buffer::<f32>(0)?, scope.buffer::<f32>(1)?);
///         let (a, n) = (scope.arg::<f32>(2)?, scope.arg::<u32>(3)?);
///         scope.for_each_thread(|thread| {
///             let i = thread.global_x();
///             if i < n as usize {
///                 y.store(i, a * x.load(i)? + y.load(i)?)?;
///             }
///             Ok(())
///         })
///     },
/// );
/// let backend = MockBackend::builder().kernel(saxpy).build();
/// # let _ = backend;
/// ```
#[derive(Clone)]
pub struct HostKernel {
    name: String,
    params: Option<Vec<KernelParam>>,
    required_block: Option<[u32; 3]>,
    static_shared_bytes: u32,
    body: Arc<Body>,
}

impl HostKernel {
    /// Makes a kernel of a name, its parameters (a [`KernelSignature`] or the list itself) and
    /// what it does for one block.
    ///
    /// Blocks run on several threads at once and in no particular order. A trap or a panic in the
    /// closure loses the device, as a fault in a kernel does on a GPU.
    pub fn new(
        name: impl Into<String>,
        params: impl Into<KernelSignature>,
        body: impl Fn(&mut BlockScope<'_>) -> Result<(), KernelTrap> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            params: params.into().params,
            required_block: None,
            static_shared_bytes: 0,
            body: Arc::new(body),
        }
    }

    /// Allows one block only, in threads x y z, as `LocalSize` and `.reqntid` do.
    #[must_use]
    pub fn required_block(mut self, block: [u32; 3]) -> Self {
        self.required_block = Some(block);
        self
    }

    /// Declares shared memory, in bytes per block, for [`BlockScope::shared_mut`].
    #[must_use]
    pub fn static_shared_bytes(mut self, bytes: u32) -> Self {
        self.static_shared_bytes = bytes;
        self
    }

    /// The kernel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn params(&self) -> Option<&[KernelParam]> {
        self.params.as_deref()
    }

    pub(crate) fn only_block(&self) -> Option<[u32; 3]> {
        self.required_block
    }

    pub(crate) fn static_shared(&self) -> u32 {
        self.static_shared_bytes
    }

    pub(crate) fn run(&self, scope: &mut BlockScope<'_>) -> Result<(), KernelTrap> {
        (self.body)(scope)
    }
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel")
            .field("name", &self.name)
            .field("params", &self.params)
            .field("required_block", &self.required_block)
            .field("static_shared_bytes", &self.static_shared_bytes)
            .finish_non_exhaustive()
    }
}

/// The parameters of a kernel, in order, laid out as a C compiler lays out a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSignature {
    params: Option<Vec<KernelParam>>,
    end_bytes: u32,
}

impl Default for KernelSignature {
    fn default() -> Self {
        Self::new()
    }
}

impl KernelSignature {
    /// A kernel without parameters; the methods add them.
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Some(Vec::new()),
            end_bytes: 0,
        }
    }

    /// A kernel whose parameters nobody knows: the host passes any arguments on.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            params: None,
            end_bytes: 0,
        }
    }

    /// Adds a buffer, given as its 64-bit device address.
    #[must_use]
    pub fn buffer(self) -> Self {
        self.laid_out(ParamKind::Address, 8, 8)
    }

    /// Adds a buffer that the host must recognize as a live one ([`ParamKind::BoundBuffer`]).
    #[must_use]
    pub fn bound_buffer(self) -> Self {
        self.add(KernelParam {
            name: None,
            kind: ParamKind::BoundBuffer,
            size_bytes: 8,
            align_bytes: 8,
            offset_bytes: 0,
        })
    }

    /// Adds a number by value.
    #[must_use]
    pub fn value<T: Element>(self) -> Self {
        let size = T::SIZE_BYTES as u32;
        self.laid_out(ParamKind::Value, size, size)
    }

    /// Adds a value of a size and an alignment (a power of two, 0 meaning 1), such as a struct.
    #[must_use]
    pub fn bytes(self, size_bytes: u32, align_bytes: u32) -> Self {
        self.laid_out(ParamKind::Value, size_bytes, align_bytes.max(1))
    }

    /// Names the parameter that was added last.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        if let Some(last) = self.params.as_mut().and_then(|params| params.last_mut()) {
            last.name = Some(name.into());
        }
        self
    }

    fn laid_out(mut self, kind: ParamKind, size_bytes: u32, align_bytes: u32) -> Self {
        let offset_bytes = self.end_bytes.next_multiple_of(align_bytes);
        self.end_bytes = offset_bytes.saturating_add(size_bytes);
        self.add(KernelParam {
            name: None,
            kind,
            size_bytes,
            align_bytes,
            offset_bytes,
        })
    }

    fn add(mut self, param: KernelParam) -> Self {
        self.params.get_or_insert_default().push(param);
        self
    }
}

impl From<Vec<KernelParam>> for KernelSignature {
    fn from(params: Vec<KernelParam>) -> Self {
        let end_bytes = params
            .iter()
            .filter(|param| param.kind != ParamKind::BoundBuffer)
            .map(|param| param.offset_bytes.saturating_add(param.size_bytes))
            .max()
            .unwrap_or(0);
        Self {
            params: Some(params),
            end_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_laid_out_as_in_a_c_struct() {
        let signature = KernelSignature::new()
            .value::<u8>()
            .buffer()
            .value::<u16>()
            .named("n")
            .bound_buffer()
            .bytes(12, 16)
            .value::<f32>();
        let params = signature.params.unwrap();
        let layout: Vec<_> = params
            .iter()
            .map(|param| (param.kind, param.offset_bytes, param.size_bytes))
            .collect();
        assert_eq!(
            layout,
            [
                (ParamKind::Value, 0, 1),
                (ParamKind::Address, 8, 8),
                (ParamKind::Value, 16, 2),
                (ParamKind::BoundBuffer, 0, 8),
                (ParamKind::Value, 32, 12),
                (ParamKind::Value, 44, 4),
            ]
        );
        assert_eq!(params[2].name.as_deref(), Some("n"));
        assert_eq!(params[1].name, None);
    }

    #[test]
    fn an_unknown_signature_has_no_list() {
        let kernel = HostKernel::new("k", KernelSignature::unknown(), |_| Ok(()));
        assert_eq!(kernel.params(), None);
        let kernel = HostKernel::new("k", Vec::new(), |_| Ok(()));
        assert_eq!(kernel.params(), Some(&[][..]));
    }
}
