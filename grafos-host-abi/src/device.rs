//! What a device is and can do.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::ImageFormat;

/// A device, as its driver describes it.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Position in [`GpuBackend::devices`](crate::GpuBackend::devices); of meaning in this
    /// process only.
    pub index: u32,
    /// The driver's name for it.
    pub name: String,
    /// Who made it.
    pub vendor: Vendor,
    /// What it is made of.
    pub kind: DeviceKind,
    /// The driver's UUID. Different APIs can give one card different UUIDs.
    pub uuid: Option<DeviceUuid>,
    /// Where it sits on the PCI bus, where the driver tells: one key whichever API sees the card.
    pub pci: Option<PciAddress>,
    /// The NUMA node that it is attached to, where the system tells.
    pub numa_node: Option<u32>,
    /// Whether this is a part of a card that the hardware keeps apart from the others (MIG).
    pub hardware_partition: bool,
    /// The architecture in the vendor's notation (`sm_90`, `gfx90a`); empty where there is none.
    pub architecture: String,
    /// The driver behind it.
    pub driver: DriverInfo,
    /// Device memory in bytes: the memory that buffers are made of.
    pub memory_bytes: u64,
    /// The device's limits.
    pub limits: DeviceLimits,
    /// The device's abilities.
    pub capabilities: Capabilities,
    /// The image formats that it can load.
    pub image_formats: Vec<ImageFormat>,
}

impl DeviceInfo {
    /// Describes a device by what every one has. The fields are public: set what is known.
    #[must_use]
    pub fn new(
        index: u32,
        name: impl Into<String>,
        vendor: Vendor,
        kind: DeviceKind,
        driver: DriverInfo,
        memory_bytes: u64,
        limits: DeviceLimits,
    ) -> Self {
        Self {
            index,
            name: name.into(),
            vendor,
            kind,
            uuid: None,
            pci: None,
            numa_node: None,
            hardware_partition: false,
            architecture: String::new(),
            driver,
            memory_bytes,
            limits,
            capabilities: Capabilities::default(),
            image_formats: Vec::new(),
        }
    }
}

/// Above the 16 bits of a PCI id and the range that Khronos gives out.
const SIMULATED_VENDOR_ID: u32 = 0x5349_4D00;

/// Who made a device.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// Advanced Micro Devices.
    Amd,
    /// Intel.
    Intel,
    /// Apple.
    Apple,
    /// Arm.
    Arm,
    /// Qualcomm.
    Qualcomm,
    /// Imagination Technologies.
    Imagination,
    /// A driver of Mesa's that runs on the CPU (lavapipe).
    Mesa,
    /// Google (SwiftShader).
    Google,
    /// A device that exists in this process only.
    Simulated,
    /// Any other, by its PCI or Khronos vendor id.
    Other(u32),
}

impl Vendor {
    /// Translates a PCI or Khronos vendor id, as `VkPhysicalDeviceProperties::vendorID` has it.
    #[must_use]
    pub fn from_id(id: u32) -> Self {
        match id {
            0x10DE => Self::Nvidia,
            0x1002 | 0x1022 => Self::Amd,
            0x8086 => Self::Intel,
            0x106B => Self::Apple,
            0x13B5 => Self::Arm,
            0x5143 => Self::Qualcomm,
            0x1010 => Self::Imagination,
            0x1_0005 => Self::Mesa,
            0x1AE0 => Self::Google,
            SIMULATED_VENDOR_ID => Self::Simulated,
            other => Self::Other(other),
        }
    }

    /// The vendor's PCI or Khronos id, as [`from_id`](Self::from_id) takes it.
    ///
    /// Simulated devices have a number that no registry gives out.
    #[must_use]
    pub fn id(self) -> u32 {
        match self {
            Self::Nvidia => 0x10DE,
            Self::Amd => 0x1002,
            Self::Intel => 0x8086,
            Self::Apple => 0x106B,
            Self::Arm => 0x13B5,
            Self::Qualcomm => 0x5143,
            Self::Imagination => 0x1010,
            Self::Mesa => 0x1_0005,
            Self::Google => 0x1AE0,
            Self::Simulated => SIMULATED_VENDOR_ID,
            Self::Other(id) => id,
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Apple => "Apple",
            Self::Arm => "Arm",
            Self::Qualcomm => "Qualcomm",
            Self::Imagination => "Imagination",
            Self::Mesa => "Mesa",
            Self::Google => "Google",
            Self::Simulated => "simulated",
            Self::Other(id) => return write!(f, "vendor {id:#06x}"),
        })
    }
}

/// What a device is made of.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    DiscreteGpu,
    /// A GPU that shares the host's memory.
    IntegratedGpu,
    /// A GPU that a hypervisor passes on.
    VirtualGpu,
    /// A driver that computes on the CPU.
    Cpu,
    /// A device that exists in this process only.
    Simulated,
    /// The driver does not say.
    Unknown,
}

impl DeviceKind {
    /// Whether the device computes on the CPU: such a device is used only when asked for.
    #[must_use]
    pub fn is_software(self) -> bool {
        matches!(self, Self::Cpu | Self::Simulated)
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiscreteGpu => "discrete GPU",
            Self::IntegratedGpu => "integrated GPU",
            Self::VirtualGpu => "virtual GPU",
            Self::Cpu => "software, on the CPU",
            Self::Simulated => "software, simulated",
            Self::Unknown => "unknown kind",
        })
    }
}

/// The driver behind a device or a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// The driver's name (`NVIDIA`, `llvmpipe`, ...).
    pub name: String,
    /// The driver's own version, as it writes it.
    pub version: String,
    /// The version of the API that it offers (`12.2` for CUDA, `1.3.230` for Vulkan).
    pub api_version: String,
}

impl fmt::Display for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} (API {})",
            self.name, self.version, self.api_version
        )
    }
}

/// What a launch or an allocation cannot exceed. The device's own values, per axis x y z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Blocks per grid and axis.
    pub max_grid: [u32; 3],
    /// Threads per block and axis.
    pub max_block: [u32; 3],
    /// Threads per block, all axes multiplied.
    pub max_threads_per_block: u32,
    /// Shared memory per block, declared and dynamic together, in bytes.
    pub max_shared_memory_bytes: u32,
    /// All arguments of a launch together, in bytes with their padding.
    pub max_argument_bytes: u32,
    /// One allocation, in bytes.
    pub max_allocation_bytes: u64,
}

/// What a device and its backend can do beyond the basics.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Kernels can compute with 8-bit integers.
    pub int8: bool,
    /// Kernels can compute with 16-bit integers.
    pub int16: bool,
    /// Kernels can compute with 64-bit integers.
    pub int64: bool,
    /// Kernels can compute with 16-bit floats.
    pub float16: bool,
    /// Kernels can compute with 64-bit floats.
    pub float64: bool,
    /// Kernels can operate atomically on 64-bit integers in buffers.
    pub int64_atomics: bool,
    /// Kernels can add atomically to 32-bit floats in buffers.
    pub float32_atomic_add: bool,
    /// Kernels can be given device addresses and compute with them.
    pub device_addresses: bool,
    /// A launch can add shared memory to what the kernel declares.
    pub dynamic_shared_memory: bool,
    /// Global variables of a module can be found by name.
    pub module_globals: bool,
    /// Streams beside the default one can be created.
    pub streams: bool,
    /// Time between events can be measured.
    pub event_timing: bool,
    /// Allocation and free are ordered on the device's own queue, without waiting.
    pub stream_ordered_allocation: bool,
    /// The driver's own objects can be lent out.
    pub native_handle: bool,
    /// Device memory is the host's memory: writes and reads need no staging copy.
    pub unified_memory: bool,
    /// The fewest threads that execute together (warp, wavefront, subgroup); 0 if unknown.
    pub subgroup_size_min: u32,
    /// The most threads that execute together; equal to the fewest on most devices.
    pub subgroup_size_max: u32,
}

/// A 128-bit device identifier, shown in the usual 8-4-4-4-12 form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A text that is not a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID: 32 hexadecimal digits are needed, with or without hyphens")]
pub struct ParseUuidError;

impl FromStr for DeviceUuid {
    type Err = ParseUuidError;

    /// Reads 32 hexadecimal digits; hyphens and a `GPU-` or `MIG-` in front are passed over.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text
            .strip_prefix("GPU-")
            .or_else(|| text.strip_prefix("MIG-"))
            .unwrap_or(text);
        let mut bytes = [0u8; 16];
        let mut digits = 0usize;
        for character in text.chars().filter(|character| *character != '-') {
            let digit = character.to_digit(16).ok_or(ParseUuidError)?;
            let byte = bytes.get_mut(digits / 2).ok_or(ParseUuidError)?;
            // A hexadecimal digit is below 16, so it fits a byte.
            *byte = (*byte << 4) | digit as u8;
            digits += 1;
        }
        if digits == 32 {
            Ok(Self(bytes))
        } else {
            Err(ParseUuidError)
        }
    }
}

/// A place on the PCI bus, shown as `0000:65:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device (slot).
    pub device: u8,
    /// Function.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn uuid_text_form_round_trips() {
        let uuid = DeviceUuid([
            0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8,
        ]);
        let text = "12345678-9abc-def0-0102-030405060708";
        assert_eq!(uuid.to_string(), text);
        assert_eq!(text.parse(), Ok(uuid));
        assert_eq!("GPU-12345678-9abc-def0-0102-030405060708".parse(), Ok(uuid));
        assert_eq!("123456789ABCDEF00102030405060708".parse(), Ok(uuid));
    }

    #[test]
    fn text_that_is_no_uuid_is_refused() {
        for text in [
            "",
            "12345678",
            "zz345678-9abc-def0-0102-030405060708",
            &"0".repeat(33),
        ] {
            assert_eq!(text.parse::<DeviceUuid>(), Err(ParseUuidError), "{text}");
        }
    }

    #[test]
    fn pci_addresses_are_written_as_sysfs_writes_them() {
        let address = PciAddress {
            domain: 0,
            bus: 0x65,
            device: 0x1f,
            function: 7,
        };
        assert_eq!(address.to_string(), "0000:65:1f.7");
    }

    #[test]
    fn vendor_ids_are_the_registered_ones() {
        assert_eq!(Vendor::from_id(0x10DE), Vendor::Nvidia);
        assert_eq!(Vendor::from_id(0x1002), Vendor::Amd);
        assert_eq!(Vendor::from_id(0x10005), Vendor::Mesa);
        for id in [
            0x10DE, 0x1002, 0x8086, 0x106B, 0x13B5, 0x5143, 0x1010, 0x10005, 0x1AE0, 7,
        ] {
            assert_eq!(Vendor::from_id(id).id(), id);
        }
        assert_eq!(Vendor::from_id(Vendor::Simulated.id()), Vendor::Simulated);
        assert_eq!(Vendor::from_id(0x1234), Vendor::Other(0x1234));
        assert_eq!(Vendor::from_id(0x1234).to_string(), "vendor 0x1234");
    }
}
