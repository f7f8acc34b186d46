//! The mutex of the target: `parking_lot` natively, a spin lock in a guest, which has one thread.

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use parking_lot::Mutex;
#[cfg(target_arch = "wasm32")]
pub(crate) use spin::Mutex;
