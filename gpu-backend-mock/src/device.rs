//! Simulated devices.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use grafos_host_abi::{
    Capabilities, DeviceInfo, DeviceKind, DeviceLimits, DeviceUuid, DriverInfo, GpuError,
    ImageFormat, LostFault, PciAddress, Result, Vendor,
};
use parking_lot::Mutex;

use crate::clock::ManualClock;
use crate::context::Core;
use crate::error::{lost, out_of_memory};

/// A simulated device, as it will be built into a backend.
///
/// What is not set is what a current discrete GPU has: see [`DEFAULT_LIMITS`](Self::DEFAULT_LIMITS)
/// and [`default_capabilities`](Self::default_capabilities). Memory is simulated: the host's own is
/// committed only where a program writes.
#[derive(Debug, Clone)]
pub struct MockDevice {
    name: String,
    vendor: Vendor,
    architecture: String,
    memory_bytes: u64,
    limits: DeviceLimits,
    capabilities: Capabilities,
    uuid: Option<DeviceUuid>,
    pci: Option<PciAddress>,
    numa_node: Option<u32>,
    hardware_partition: bool,
    timing: DeviceTiming,
}

/// Where the times of events come from.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum DeviceTiming {
    /// The machine's monotonic clock.
    #[default]
    Real,
    /// A clock that a test moves, so that elapsed times are exact.
    Manual(ManualClock),
}

impl Default for MockDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl MockDevice {
    /// The limits of a device that is not told otherwise. An allocation can have as many bytes as
    /// the device has memory.
    pub const DEFAULT_LIMITS: DeviceLimits = DeviceLimits {
        max_grid: [i32::MAX as u32, 65_535, 65_535],
        max_block: [1024, 1024, 64],
        max_threads_per_block: 1024,
        max_shared_memory_bytes: 64 << 10,
        max_argument_bytes: 4096,
        max_allocation_bytes: u64::MAX,
    };

    /// Makes a device with 8 GiB of memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: "Grafos software GPU".to_owned(),
            vendor: Vendor::Simulated,
            architecture: String::new(),
            memory_bytes: 8 << 30,
            limits: Self::DEFAULT_LIMITS,
            capabilities: Self::default_capabilities(),
            uuid: None,
            pci: None,
            numa_node: None,
            hardware_partition: false,
            timing: DeviceTiming::Real,
        }
    }

    /// The capabilities of a device that is not told otherwise: all but 16-bit floats (Rust has
    /// none yet), stream-ordered allocation and native handles.
    #[must_use]
    pub fn default_capabilities() -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.int8 = true;
        capabilities.int16 = true;
        capabilities.int64 = true;
        capabilities.float64 = true;
        capabilities.int64_atomics = true;
        capabilities.float32_atomic_add = true;
        capabilities.device_addresses = true;
        capabilities.dynamic_shared_memory = true;
        capabilities.module_globals = true;
        capabilities.streams = true;
        capabilities.event_timing = true;
        capabilities.unified_memory = true;
        capabilities.subgroup_size_min = 1;
        capabilities.subgroup_size_max = 1;
        capabilities
    }

    /// Sets the name; `Grafos software GPU` by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the vendor; [`Vendor::Simulated`] by default.
    #[must_use]
    pub fn vendor(mut self, vendor: Vendor) -> Self {
        self.vendor = vendor;
        self
    }

    /// Sets the architecture; empty by default.
    #[must_use]
    pub fn architecture(mut self, architecture: impl Into<String>) -> Self {
        self.architecture = architecture.into();
        self
    }

    /// Sets how much memory all contexts on the device share, in bytes.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Sets the limits. One allocation never exceeds the memory, whatever they say.
    #[must_use]
    pub fn limits(mut self, limits: DeviceLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the capabilities. Without streams, module globals or event timing the calls for them
    /// answer `Unsupported`; without dynamic shared memory no kernel takes any. The others are
    /// for the host to respect.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Sets the UUID; by default each device of a backend has one of its own, the same in every
    /// process.
    #[must_use]
    pub fn uuid(mut self, uuid: DeviceUuid) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Sets the place on the PCI bus; none by default.
    #[must_use]
    pub fn pci(mut self, pci: PciAddress) -> Self {
        self.pci = Some(pci);
        self
    }

    /// Sets the NUMA node; none by default.
    #[must_use]
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// Sets whether the device is a hardware partition of a card; false by default.
    #[must_use]
    pub fn hardware_partition(mut self, partition: bool) -> Self {
        self.hardware_partition = partition;
        self
    }

    /// Sets where the times of events come from; the machine's clock by default.
    #[must_use]
    pub fn timing(mut self, timing: DeviceTiming) -> Self {
        self.timing = timing;
        self
    }

    pub(crate) fn build(self, index: u32, strict: bool) -> SimulatedDevice {
        let limits = DeviceLimits {
            max_allocation_bytes: self.limits.max_allocation_bytes.min(self.memory_bytes),
            ..self.limits
        };
        let mut info = DeviceInfo::new(
            index,
            self.name,
            self.vendor,
            DeviceKind::Simulated,
            driver_info(),
            self.memory_bytes,
            limits,
        );
        info.uuid = Some(self.uuid.unwrap_or_else(|| default_uuid(index)));
        info.pci = self.pci;
        info.numa_node = self.numa_node;
        info.hardware_partition = self.hardware_partition;
        info.architecture = self.architecture;
        info.capabilities = self.capabilities;
        info.image_formats = vec![
            ImageFormat::Ptx,
            ImageFormat::Cubin,
            ImageFormat::Fatbin,
            ImageFormat::AmdCodeObject,
            ImageFormat::OffloadBundle,
            ImageFormat::SpirV,
        ];
        if !strict {
            info.image_formats.push(ImageFormat::Unknown);
        }
        SimulatedDevice {
            info,
            timing: self.timing,
            started: now(),
            used_bytes: Mutex::new(0),
            lost: Mutex::new(None),
            contexts: Mutex::new(Vec::new()),
        }
    }
}

pub(crate) fn driver_info() -> DriverInfo {
    DriverInfo {
        name: "Grafos".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// "GRAFOS" and the index, in the form of a version 8 UUID: one that its maker defines.
fn default_uuid(index: u32) -> DeviceUuid {
    let mut bytes = *b"GRAFOS\x80\0\x80\0\0\0\0\0\0\0";
    bytes[12..].copy_from_slice(&index.to_be_bytes());
    DeviceUuid(bytes)
}

#[expect(
    clippy::disallowed_methods,
    reason = "event times stand for a device's own clock; tests that need exact ones use \
              DeviceTiming::Manual"
)]
fn now() -> Instant {
    Instant::now()
}

/// A device of a backend, shared by the contexts that are open on it.
pub(crate) struct SimulatedDevice {
    info: DeviceInfo,
    timing: DeviceTiming,
    started: Instant,
    used_bytes: Mutex<u64>,
    /// Set when the device cannot be opened again by this process.
    lost: Mutex<Option<LostFault>>,
    contexts: Mutex<Vec<Weak<Core>>>,
}

impl SimulatedDevice {
    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The device's own clock, in nanoseconds.
    pub(crate) fn timestamp_ns(&self) -> u64 {
        match &self.timing {
            DeviceTiming::Real => {
                let elapsed = now().saturating_duration_since(self.started);
                u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
            }
            DeviceTiming::Manual(clock) => clock.monotonic_ns(),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.info.memory_bytes - *self.used_bytes.lock()
    }

    /// Counts memory as used, if there is as much.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        let mut used = self.used_bytes.lock();
        let free = self.info.memory_bytes - *used;
        if bytes > free.min(self.info.limits.max_allocation_bytes) {
            let available = free.min(self.info.limits.max_allocation_bytes);
            return Err(out_of_memory("device memory", bytes, available));
        }
        *used += bytes;
        Ok(())
    }

    pub(crate) fn release(&self, bytes: u64) {
        *self.used_bytes.lock() -= bytes;
    }

    /// Fails when the device was lost for this process.
    pub(crate) fn check(&self) -> Result<(), GpuError> {
        match &*self.lost.lock() {
            Some(fault) => Err(lost(fault)),
            None => Ok(()),
        }
    }

    pub(crate) fn register(&self, context: &Arc<Core>) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|context| context.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }

    /// Loses every context that is open on the device.
    pub(crate) fn lose(&self, fault: &LostFault) {
        if fault.needs_process_restart {
            self.lost.lock().get_or_insert_with(|| fault.clone());
        }
        let contexts: Vec<_> = self
            .contexts
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for context in contexts {
            context.lose(fault);
        }
    }

    pub(crate) fn restore(&self) {
        *self.lost.lock() = None;
    }
}

impl fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDevice")
            .field("index", &self.info.index)
            .field("name", &self.info.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grafos_host_abi::CapacityFault;

    #[test]
    fn memory_is_counted_exactly() {
        let device = MockDevice::new().memory_bytes(100).build(0, false);
        device.reserve(60).unwrap();
        assert_eq!(device.free_bytes(), 40);
        let refused = device.reserve(41);
        assert_eq!(
            refused,
            Err(GpuError::OutOfMemory(CapacityFault {
                resource: "device memory",
                requested: 41,
                available: Some(40),
                unit: "bytes",
                cause: None,
            }))
        );
        assert!(device.reserve(u64::MAX).is_err());
        device.reserve(40).unwrap();
        assert_eq!(device.free_bytes(), 0);
        device.release(100);
        assert_eq!(device.free_bytes(), 100);
    }

    #[test]
    fn one_allocation_never_exceeds_the_limit() {
        let limits = DeviceLimits {
            max_allocation_bytes: 10,
            ..MockDevice::DEFAULT_LIMITS
        };
        let device = MockDevice::new().limits(limits).build(0, false);
        assert!(device.reserve(11).is_err());
        device.reserve(10).unwrap();
        let device = MockDevice::new().memory_bytes(7).build(0, false);
        assert_eq!(device.info().limits.max_allocation_bytes, 7);
    }

    #[test]
    fn devices_have_uuids_of_their_own() {
        let uuid = |index| MockDevice::new().build(index, false).info().uuid.unwrap();
        assert_eq!(uuid(0).to_string(), "47524146-4f53-8000-8000-000000000000");
        assert_eq!(uuid(1).to_string(), "47524146-4f53-8000-8000-000000000001");
    }
    #[test]
    fn a_device_is_described_as_it_was_set_up() {
        let pci = PciAddress {
            domain: 0,
            bus: 0x65,
            device: 1,
            function: 0,
        };
        let device = MockDevice::new()
            .name("card")
            .vendor(Vendor::Nvidia)
            .architecture("sm_90")
            .memory_bytes(4096)
            .uuid(DeviceUuid([7; 16]))
            .pci(pci)
            .numa_node(1)
            .hardware_partition(true)
            .build(3, true);
        let info = device.info();
        assert_eq!((info.index, info.name.as_str()), (3, "card"));
        assert_eq!(
            (info.vendor, info.kind),
            (Vendor::Nvidia, DeviceKind::Simulated)
        );
        assert_eq!(
            (info.architecture.as_str(), info.memory_bytes),
            ("sm_90", 4096)
        );
        assert_eq!(
            (info.uuid, info.pci),
            (Some(DeviceUuid([7; 16])), Some(pci))
        );
        assert_eq!((info.numa_node, info.hardware_partition), (Some(1), true));
        assert_eq!(info.limits.max_grid, [0x7FFF_FFFF, 65_535, 65_535]);
        assert!(!info.image_formats.contains(&ImageFormat::Unknown));
        let plain = MockDevice::new().build(0, false);
        assert!(plain.info().image_formats.contains(&ImageFormat::Unknown));
        assert_eq!(
            (plain.info().pci, plain.info().vendor),
            (None, Vendor::Simulated)
        );
    }
}
