//! The host that a call uses when none is named.

use std::cell::RefCell;
use std::sync::OnceLock;

use super::native::Host;
use crate::error::Result;

static AMBIENT: OnceLock<Result<Host>> = OnceLock::new();

std::thread_local! {
    static CURRENT: RefCell<Option<Host>> = const { RefCell::new(None) };
}

pub(super) fn ambient() -> Result<Host> {
    AMBIENT.get_or_init(Host::from_environment).clone()
}

pub(super) fn current() -> Result<Host> {
    // During a thread's teardown its own host is gone, and the process's is the current one.
    let own = CURRENT
        .try_with(|current| current.borrow().clone())
        .ok()
        .flatten();
    match own {
        Some(host) => Ok(host),
        None => ambient(),
    }
}

/// Makes a host the calling thread's current one.
#[cfg(feature = "mock")]
pub(super) fn set_current(host: Host) {
    let previous = CURRENT.with(|current| current.borrow_mut().replace(host));
    // Dropped outside the borrow: its leases may end here.
    drop(previous);
}
