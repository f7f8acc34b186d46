//! Full validation by SPIRV-Tools, after our own checks and before the driver.

use ash::vk;
use spirv_tools::TargetEnv;
use spirv_tools::val::{self, Validator, ValidatorOptions};

use crate::driver::Abilities;

/// Validates a module for the environment that the device offers; an error is the validator's own
/// sentence.
pub(super) fn validate(
    words: &[u32],
    api_version: u32,
    abilities: &Abilities,
) -> Result<(), String> {
    let environment = if api_version >= vk::API_VERSION_1_3 {
        TargetEnv::Vulkan_1_3
    } else if abilities.maintenance4 {
        // The environment of Vulkan 1.2 refuses `LocalSizeId`, which this device takes.
        TargetEnv::Universal_1_5
    } else {
        TargetEnv::Vulkan_1_2
    };
    let options = ValidatorOptions {
        scalar_block_layout: abilities.scalar_block_layout,
        uniform_buffer_standard_layout: abilities.uniform_standard_layout,
        ..ValidatorOptions::default()
    };
    val::create(Some(environment))
        .validate(words, Some(options))
        .map_err(|failure| format!("spirv-val: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str) -> Vec<u32> {
        let (words, _) = grafos_kernels::by_name(name)
            .unwrap()
            .spirv
            .as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[test]
    fn shipped_kernels_are_valid_in_their_environment() {
        let abilities = Abilities::default();
        for kernel in grafos_kernels::all() {
            let outcome = validate(&words(kernel.name), vk::API_VERSION_1_3, &abilities);
            assert_eq!(outcome, Ok(()), "{}", kernel.name);
        }
    }

    #[test]
    fn what_the_environment_lacks_is_refused() {
        let newer = words("vector_add_local_size_id");
        let abilities = Abilities::default();
        let refusal = validate(&newer, vk::API_VERSION_1_2, &abilities).unwrap_err();
        assert!(refusal.starts_with("spirv-val: "), "{refusal}");
    }

    #[test]
    fn a_broken_module_is_refused() {
        let mut broken = words("vector_add");
        // The id of the entry point's function: the instruction after capabilities and imports.
        let entry = broken.iter().position(|word| word & 0xFFFF == 15).unwrap();
        broken[entry + 2] = 1;
        let abilities = Abilities::default();
        assert!(validate(&broken, vk::API_VERSION_1_3, &abilities).is_err());
    }
}
