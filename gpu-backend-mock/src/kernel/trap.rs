//! The end of a kernel that did what it must not.

use std::fmt;

/// Why a kernel stops: an access outside its memory, or a reason of its own.
///
/// A trap loses the device, as an illegal access on a GPU does: the context's later calls answer
/// `DeviceLost` with the kernel, block and thread and with this text.
#[derive(Clone, PartialEq, Eq)]
pub struct KernelTrap(Box<Detail>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Detail {
    reason: String,
    thread: Option<[u32; 3]>,
}

impl KernelTrap {
    /// Stops the kernel for a reason: lower case, no final period.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(Box::new(Detail {
            reason: reason.into(),
            thread: None,
        }))
    }

    /// The reason, without kernel, block and thread.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The thread within its block that trapped, x y z; `None` outside of
    /// [`for_each_thread`](crate::BlockScope::for_each_thread).
    #[must_use]
    pub fn thread(&self) -> Option<[u32; 3]> {
        self.0.thread
    }

    pub(crate) fn in_thread(mut self, thread: [u32; 3]) -> Self {
        self.0.thread.get_or_insert(thread);
        self
    }
}

impl fmt::Debug for KernelTrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTrap")
            .field("reason", &self.0.reason)
            .field("thread", &self.0.thread)
            .finish()
    }
}

impl fmt::Display for KernelTrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([x, y, z]) = self.0.thread {
            write!(f, "thread ({x}, {y}, {z}): ")?;
        }
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for KernelTrap {}
