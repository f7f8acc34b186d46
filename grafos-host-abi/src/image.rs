//! Kernel images, recognized by their first bytes.

use core::fmt;

/// What a kernel image is.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageFormat {
    /// PTX assembly text.
    Ptx,
    /// An ELF file for NVIDIA devices (cubin).
    Cubin,
    /// NVIDIA's container of several images (fatbin).
    Fatbin,
    /// An ELF file for AMD devices (hsaco).
    AmdCodeObject,
    /// clang's container of several images, plain or compressed.
    OffloadBundle,
    /// SPIR-V, in either byte order.
    SpirV,
    /// None of these.
    Unknown,
}

const ELF_MACHINE_CUDA: u16 = 190;
const ELF_MACHINE_AMDGPU: u16 = 224;
const SPIRV_MAGIC: u32 = 0x0723_0203;
const FATBIN_MAGIC: u32 = 0xBA55_ED50;
const FATBIN_WRAPPER_MAGIC: u32 = 0x4662_43B1;

impl ImageFormat {
    /// Recognizes an image by its first bytes. What is recognized can still be malformed.
    ///
    /// PTX is text whose first statement, after blanks and comments, is `.version`.
    #[must_use]
    pub fn recognize(image: &[u8]) -> Self {
        if let Some((head, _)) = image.split_first_chunk::<4>() {
            match u32::from_le_bytes(*head) {
                SPIRV_MAGIC => return Self::SpirV,
                FATBIN_MAGIC | FATBIN_WRAPPER_MAGIC => return Self::Fatbin,
                word if word.swap_bytes() == SPIRV_MAGIC => return Self::SpirV,
                _ => {}
            }
        }
        if image.starts_with(b"\x7fELF") {
            return match image.get(18..20) {
                Some(&[low, high]) => match u16::from_le_bytes([low, high]) {
                    ELF_MACHINE_CUDA => Self::Cubin,
                    ELF_MACHINE_AMDGPU => Self::AmdCodeObject,
                    _ => Self::Unknown,
                },
                _ => Self::Unknown,
            };
        }
        if image.starts_with(b"__CLANG_OFFLOAD_BUNDLE__") || image.starts_with(b"CCOB") {
            return Self::OffloadBundle;
        }
        if skip_ptx_blanks(image).starts_with(b".version") {
            return Self::Ptx;
        }
        Self::Unknown
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ptx => "PTX",
            Self::Cubin => "cubin",
            Self::Fatbin => "fatbin",
            Self::AmdCodeObject => "AMD code object",
            Self::OffloadBundle => "offload bundle",
            Self::SpirV => "SPIR-V",
            Self::Unknown => "unknown format",
        })
    }
}

/// Passes over white space, `//` and `/* */` comments, and a byte order mark.
fn skip_ptx_blanks(mut text: &[u8]) -> &[u8] {
    text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    loop {
        text = text.trim_ascii_start();
        if let Some(rest) = text.strip_prefix(b"//") {
            let end = rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len());
            text = &rest[end..];
        } else if let Some(rest) = text.strip_prefix(b"/*") {
            let Some(end) = rest.windows(2).position(|pair| pair == b"*/") else {
                return &[];
            };
            text = &rest[end + 2..];
        } else {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16) -> [u8; 64] {
        let mut image = [0u8; 64];
        image[..4].copy_from_slice(b"\x7fELF");
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image
    }

    #[test]
    fn each_format_is_recognized() {
        let cases: [(&[u8], ImageFormat); 11] = [
            (
                b"\n// nvcc\n/* x */ .version 7.0\n.target sm_75",
                ImageFormat::Ptx,
            ),
            (b"\xEF\xBB\xBF.version 7.0", ImageFormat::Ptx),
            (&elf(190), ImageFormat::Cubin),
            (&elf(224), ImageFormat::AmdCodeObject),
            (&elf(62), ImageFormat::Unknown),
            (&[0x50, 0xED, 0x55, 0xBA, 1, 0], ImageFormat::Fatbin),
            (b"__CLANG_OFFLOAD_BUNDLE__\0\0", ImageFormat::OffloadBundle),
            (b"CCOB\x02\0", ImageFormat::OffloadBundle),
            (&[0x03, 0x02, 0x23, 0x07, 0, 0], ImageFormat::SpirV),
            (&[0x07, 0x23, 0x02, 0x03, 0, 0], ImageFormat::SpirV),
            (b"#version 450", ImageFormat::Unknown),
        ];
        for (image, format) in cases {
            assert_eq!(ImageFormat::recognize(image), format, "{image:?}");
        }
    }

    #[test]
    fn short_images_are_unknown() {
        let unknown: [&[u8]; 6] = [
            b"",
            b"\x7f",
            b"\x7fELF",
            b"/* never closed",
            b"// only a comment",
            &[0u8; 8],
        ];
        for image in unknown {
            assert_eq!(
                ImageFormat::recognize(image),
                ImageFormat::Unknown,
                "{image:?}"
            );
        }
    }
}
