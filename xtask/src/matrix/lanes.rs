//! The matrix as data.

use crate::cargo::GUEST_TARGET;

/// A combination of a package, its features and a target.
pub(super) struct Lane {
    pub(super) package: &'static str,
    /// Features, separated by commas; the default ones are off.
    pub(super) features: &'static str,
    /// Target triple; the machine's own if there is none.
    pub(super) target: Option<&'static str>,
    pub(super) expected: Expected,
}

/// What must come of a lane.
pub(super) enum Expected {
    /// It builds, without a warning.
    Builds,
    /// The compiler refuses it with a `compile_error!` that has this sentence.
    Refused(&'static str),
}

impl Lane {
    /// Names the lane for messages.
    pub(super) fn name(&self) -> String {
        format!(
            "{} [{}] for {}",
            self.package,
            self.features,
            self.target.unwrap_or("this machine")
        )
    }
}

/// Packages that a tree must not have.
pub(super) struct Absence {
    pub(super) package: &'static str,
    /// Features, separated by commas; the default ones are off.
    pub(super) features: &'static str,
    pub(super) target: Option<&'static str>,
    /// Names of packages; `*` at the end stands for anything.
    pub(super) forbidden: &'static [&'static str],
}

const fn native(package: &'static str, features: &'static str) -> Lane {
    Lane {
        package,
        features,
        target: None,
        expected: Expected::Builds,
    }
}

const fn guest(package: &'static str, features: &'static str) -> Lane {
    Lane {
        package,
        features,
        target: Some(GUEST_TARGET),
        expected: Expected::Builds,
    }
}

/// What is built.
pub(super) const LANES: &[Lane] = &[
    native("grafos-host-abi", ""),
    native("grafos-host-abi", "std"),
    native("grafos-host-abi", "conformance"),
    guest("grafos-host-abi", ""),
    native("grafos-kernels", ""),
    native("grafos-kernels", "mock"),
    guest("grafos-kernels", ""),
    native("gpu-backend-mock", ""),
    native("gpu-backend-vulkan", ""),
    Lane {
        package: "grafos-std",
        features: "",
        target: None,
        expected: Expected::Refused("grafos-std needs its feature `std` on native targets"),
    },
    native("grafos-std", "std"),
    native("grafos-std", "std,observe"),
    native("grafos-std", "std,vulkan"),
    native("grafos-std", "std,vulkan,observe"),
    native("grafos-std", "std,mock"),
    native("grafos-std", "std,mock,observe"),
    native("grafos-std", "std,vulkan,mock"),
    native("grafos-std", "std,vulkan,mock,observe"),
    guest("grafos-std", ""),
    guest("grafos-std", "observe"),
    guest("grafos-std", "std,vulkan,mock,observe"),
];

/// What drives a GPU, or needs an operating system: nothing of it belongs into a guest.
const NOT_IN_A_GUEST: &[&str] = &[
    "ash",
    "criterion",
    "gpu-allocator",
    "gpu-backend-*",
    "libc",
    "libloading",
    "parking_lot",
    "rspirv",
];

/// What must be absent.
pub(super) const ABSENCES: &[Absence] = &[
    Absence {
        package: "grafos-std",
        features: "",
        target: Some(GUEST_TARGET),
        forbidden: NOT_IN_A_GUEST,
    },
    Absence {
        package: "grafos-std",
        features: "std,vulkan,mock,observe",
        target: Some(GUEST_TARGET),
        forbidden: NOT_IN_A_GUEST,
    },
    Absence {
        package: "grafos-std",
        features: "std,mock,observe",
        target: None,
        forbidden: &[
            "ash",
            "criterion",
            "gpu-allocator",
            "gpu-backend-vulkan",
            "libloading",
            "rspirv",
        ],
    },
    Absence {
        package: "grafos-std",
        features: "std,vulkan,observe",
        target: None,
        forbidden: &["criterion", "gpu-backend-mock", "spirv-tools"],
    },
    // The vocabulary knows neither host nor backend, and its suite is not part of it.
    Absence {
        package: "grafos-host-abi",
        features: "std",
        target: None,
        forbidden: &[
            "gpu-backend-*",
            "grafos-std",
            "grafos-kernels",
            "libtest-mimic",
        ],
    },
    // Backends know the vocabulary, not one another, nor the host.
    Absence {
        package: "gpu-backend-mock",
        features: "",
        target: None,
        forbidden: &["ash", "gpu-backend-vulkan", "grafos-std", "libtest-mimic"],
    },
    Absence {
        package: "gpu-backend-vulkan",
        features: "",
        target: None,
        forbidden: &[
            "gpu-backend-mock",
            "grafos-std",
            "libtest-mimic",
            "spirv-tools",
        ],
    },
    // Kernels are data, unless the software GPU is to run them.
    Absence {
        package: "grafos-kernels",
        features: "",
        target: None,
        forbidden: &["gpu-backend-*", "grafos-host-abi", "grafos-std"],
    },
    // The commands must build when nothing else does.
    Absence {
        package: "xtask",
        features: "",
        target: None,
        forbidden: &["gpu-backend-*", "grafos-*"],
    },
];
