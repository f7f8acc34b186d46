//! The in-process host.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::ffi::OsString;

use grafos_host_abi::{DeviceInfo, GpuBackend};

use super::clock::{Clock, SystemClock};
use super::core::{HostConfig, HostCore};
use super::lease::{LeaseCore, LeaseEnd};
use crate::error::{BackendReport, FabricError, Result};
use crate::gpu::GpuExclusivityClass;
use crate::lease::LeaseInfo;

/// The backends that can be named, best first, and whether this build has them.
const KNOWN_BACKENDS: [(&str, bool); 2] = [
    ("vulkan", cfg!(feature = "vulkan")),
    ("mock", cfg!(feature = "mock")),
];

/// The backend that is a GPU in software: never used without being named.
const SOFTWARE_GPU: &str = "mock";

/// Backends, a lease table and the choice of a device. Clones share everything.
///
/// A process can have several hosts; they do not know of each other's leases.
///
/// ```
/// use std::sync::Arc;
///
/// use gpu_backend_mock::MockBackend;
/// use grafos_std::gpu::GpuBuilder;
/// use grafos_std::host::Host;
///
/// let host = Host::builder()
///     .backend(Arc::new(MockBackend::new()))
///     .software_devices(true)
///     .build();
/// let lease = GpuBuilder::new().min_vram(1 << 20).acquire_on(&host)?;
/// assert_eq!(lease.backend(), "mock");
/// # Ok::<(), grafos_std::FabricError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Host {
    core: Arc<HostCore>,
}

impl Host {
    /// Starts a host without backends.
    pub fn builder() -> HostBuilder {
        HostBuilder::new()
    }

    /// The process's default host: all compiled backends, set up from the environment on first
    /// use (see [`host`](crate::host)).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when an environment variable has a value that means nothing.
    pub fn ambient() -> Result<Self> {
        super::ambient::ambient()
    }

    /// The calling thread's current host: the one that [`reset_mock`](super::reset_mock) made for
    /// it, else [`ambient`](Self::ambient).
    ///
    /// # Errors
    ///
    /// As [`ambient`](Self::ambient).
    pub fn current() -> Result<Self> {
        super::ambient::current()
    }

    /// Sets up a host from the environment, without keeping it as the process's default.
    ///
    /// # Errors
    ///
    /// As [`ambient`](Self::ambient).
    pub fn from_environment() -> Result<Self> {
        Ok(HostBuilder::from_variables(|name| std::env::var_os(name))?.build())
    }

    /// Lists all devices of all backends, those included that this host does not lease out.
    ///
    /// The drivers are asked once; a card that is plugged in later is not seen.
    #[must_use]
    pub fn devices(&self) -> Vec<HostDevice> {
        let slots = &self.core.devices().slots;
        slots
            .iter()
            .map(|slot| HostDevice {
                index: slot.index(),
                backend: slot.backend_name(),
                info: slot.info().clone(),
                usable: self.core.may_use(slot),
            })
            .collect()
    }

    /// Tells for each backend that has no device for this host why that is, and what to do.
    #[must_use]
    pub fn unavailable_backends(&self) -> Vec<BackendReport> {
        self.core.reports()
    }

    /// Lists the leases that live, and those that have ended and whose work still runs; oldest
    /// first.
    #[must_use]
    pub fn leases(&self) -> Vec<HostLease> {
        let now_ns = self.core.clock().monotonic_ns();
        let of_lease = |lease: Arc<LeaseCore>| {
            let (reserved_bytes, allocated_bytes) = self.core.table().holdings(lease.id());
            HostLease {
                info: lease.info(),
                age_secs: now_ns.saturating_sub(lease.created_ns()) / 1_000_000_000,
                device_index: lease.device_index(),
                device: lease.device().name.clone(),
                backend: lease.backend_name(),
                class: lease.class(),
                reserved_bytes,
                allocated_bytes,
            }
        };
        self.core.live_leases().into_iter().map(of_lease).collect()
    }

    /// Takes a lease back. New work is refused at once with `LeaseRevoked` and the reason; what
    /// runs is left to end, then what the lease holds is released.
    ///
    /// # Errors
    ///
    /// `LeaseExpired` or `LeaseRevoked` for a lease that has ended, `InvalidHandle` for an unknown
    /// id.
    pub fn revoke(&self, lease_id: u128, reason: &str) -> Result<()> {
        let lease = self.core.lease(lease_id)?;
        lease.ensure_active()?;
        lease.end(LeaseEnd::Revoked(reason.into()));
        Ok(())
    }

    /// Ends the leases that are past their deadline, and tells how many those were.
    ///
    /// A host does this by itself where its [`Clock`] follows real time.
    pub fn end_expired_leases(&self) -> usize {
        self.core.end_expired()
    }

    pub(super) fn from_core(core: Arc<HostCore>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<HostCore> {
        &self.core
    }
}

/// A device of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostDevice {
    /// Position in the host's list.
    pub index: u32,
    /// The backend that it belongs to.
    pub backend: &'static str,
    /// What it is and can do.
    pub info: DeviceInfo,
    /// Whether the host leases it out: a device that computes on the CPU only when asked for.
    pub usable: bool,
}

/// A lease, as its host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLease {
    /// Id, times and status. A lease that has ended is listed while its work still runs.
    pub info: LeaseInfo,
    /// Seconds since it was acquired.
    pub age_secs: u64,
    /// The device's position in the host's list.
    pub device_index: u32,
    /// The device's name.
    pub device: String,
    /// The device's backend.
    pub backend: &'static str,
    /// How it shares the device.
    pub class: GpuExclusivityClass,
    /// Memory that is kept for it, in bytes.
    pub reserved_bytes: u64,
    /// Memory that it has allocated, in bytes.
    pub allocated_bytes: u64,
}

/// Sets up a [`Host`].
#[must_use]
pub struct HostBuilder {
    config: HostConfig,
}

impl HostBuilder {
    fn new() -> Self {
        Self {
            config: HostConfig {
                backends: Vec::new(),
                absent: Vec::new(),
                clock: Arc::new(SystemClock::new()),
                software_devices: false,
                device: None,
                sync_launch: false,
            },
        }
    }

    /// Adds a backend, ours or a third party's. Earlier ones are preferred.
    pub fn backend(mut self, backend: Arc<dyn GpuBackend>) -> Self {
        self.config.backends.push(backend);
        self
    }

    /// Adds every backend that is compiled in and made for real devices, best first. The
    /// software GPU is added by [`backend`](Self::backend) only.
    pub fn compiled_backends(mut self) -> Self {
        for (name, _) in KNOWN_BACKENDS
            .into_iter()
            .filter(|(name, _)| *name != SOFTWARE_GPU)
        {
            self.add_compiled(name);
        }
        self
    }

    /// Leases out devices that compute on the CPU as well (default: no).
    pub fn software_devices(mut self, allowed: bool) -> Self {
        self.config.software_devices = allowed;
        self
    }

    /// Leases out only devices that this text names: an index in the host's list, a UUID, a PCI
    /// address or a part of the name.
    pub fn device(mut self, text: impl Into<String>) -> Self {
        self.config.device = Some(text.into());
        self
    }

    /// Waits after every launch and names the kernel in what goes wrong (default: no).
    pub fn sync_launch(mut self, enabled: bool) -> Self {
        self.config.sync_launch = enabled;
        self
    }

    /// Takes time from another clock than the system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.config.clock = clock;
        self
    }

    /// Makes the host. No driver is loaded before the first lease or the first listing.
    #[must_use]
    pub fn build(self) -> Host {
        Host::from_core(Arc::new(HostCore::new(self.config)))
    }

    /// Adds a backend by name, or notes that this build does not have it.
    fn add_compiled(&mut self, name: &str) {
        match name {
            #[cfg(feature = "vulkan")]
            "vulkan" => {
                self.config
                    .backends
                    .push(Arc::new(gpu_backend_vulkan::VulkanBackend::new()));
            }
            #[cfg(feature = "mock")]
            "mock" => self
                .config
                .backends
                .push(Arc::new(gpu_backend_mock::MockBackend::new())),
            _ => self.config.absent.push(BackendReport {
                backend: name.to_string(),
                reason: String::from("not compiled in"),
                hint: format!("build grafos-std with feature {name:?}"),
            }),
        }
    }

    /// Reads the environment through a function, so that tests can give their own.
    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let text = |name: &str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) if text.trim().is_empty() => Ok(None),
            Some(Ok(text)) => Ok(Some(text.trim().to_string())),
            Some(Err(_)) => Err(FabricError::invalid_argument(format!(
                "{name} is not UTF-8"
            ))),
        };
        let mut builder = Self::new();
        let wanted = text("GRAFOS_BACKEND")?.map(|wanted| wanted.to_lowercase());
        match wanted.as_deref() {
            None | Some("auto") => {
                // That a backend was left out of the build is no news to somebody who named none.
                for (name, compiled) in KNOWN_BACKENDS
                    .into_iter()
                    .filter(|(name, _)| *name != SOFTWARE_GPU)
                {
                    if compiled {
                        builder.add_compiled(name);
                    }
                }
            }
            Some(name) if KNOWN_BACKENDS.iter().any(|(known, _)| *known == name) => {
                builder.add_compiled(name);
                builder.config.software_devices = true;
            }
            Some(name) => {
                return Err(FabricError::invalid_argument(format!(
                    "GRAFOS_BACKEND is {name:?}, it can be auto, vulkan or mock"
                )));
            }
        }
        builder.config.device = text("GRAFOS_DEVICE")?;
        builder.config.sync_launch = match text("GRAFOS_SYNC_LAUNCH")?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => {
                return Err(FabricError::invalid_argument(format!(
                    "GRAFOS_SYNC_LAUNCH is {other:?}, it can be 0 or 1"
                )));
            }
        };
        Ok(builder)
    }
}

impl core::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let backends = self
            .config
            .backends
            .iter()
            .map(|backend| backend.name())
            .collect::<Vec<_>>();
        f.debug_struct("HostBuilder")
            .field("backends", &backends)
            .finish_non_exhaustive()
    }
}
