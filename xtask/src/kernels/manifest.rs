//! The kernels' manifest: what each kernel is built from, and what a launch must pass.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Bytes of a buffer argument: an address or a handle.
const BUFFER_BYTES: u32 = 8;

/// The whole of kernels/manifest.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Version of the compiler that the images are built by.
    pub(crate) glslang: String,
    /// The kernels, in the order written.
    #[serde(rename = "kernel")]
    pub(crate) kernels: Vec<Kernel>,
}

/// One kernel. Paths are relative to the kernels' folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) source: PathBuf,
    pub(crate) image: PathBuf,
    pub(crate) style: Style,
    pub(crate) block: Block,
    pub(crate) needs: Vec<Feature>,
    pub(crate) target: Target,
    pub(crate) params: Vec<Param>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Style {
    Pointer,
    Descriptor,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Block {
    Fixed([u32; 3]),
    Specialized {
        default: [u32; 3],
        x: Option<u32>,
        y: Option<u32>,
        z: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Feature {
    Int64,
    Float64,
    Maintenance4,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) enum Target {
    #[serde(rename = "vulkan1.2")]
    Vulkan12,
    #[serde(rename = "vulkan1.3")]
    Vulkan13,
}

impl Target {
    /// Name of the environment for compiler and validator.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Target::Vulkan12 => "vulkan1.2",
            Target::Vulkan13 => "vulkan1.3",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) kind: ParamKind,
    #[serde(rename = "type")]
    pub(crate) element: ElementType,
    pub(crate) size: u32,
    pub(crate) offset: Option<u32>,
    pub(crate) binding: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ParamKind {
    Buffer,
    Scalar,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ElementType {
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    F32x3,
    F32x4,
}

impl ElementType {
    fn size_bytes(self) -> u32 {
        match self {
            ElementType::I32 | ElementType::U32 | ElementType::F32 => 4,
            ElementType::I64 | ElementType::U64 | ElementType::F64 => 8,
            ElementType::F32x3 => 12,
            ElementType::F32x4 => 16,
        }
    }
}

impl Manifest {
    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or contradicts itself.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let manifest: Self = toml::from_str(text)?;
        let mut names = BTreeSet::new();
        for kernel in &manifest.kernels {
            ensure!(
                names.insert(&kernel.name),
                "kernel {} is there twice",
                kernel.name
            );
            kernel
                .check()
                .with_context(|| format!("kernel {}", kernel.name))?;
        }
        Ok(manifest)
    }
}

impl Kernel {
    fn check(&self) -> Result<()> {
        let image = Path::new("spirv").join(&self.name).with_extension("spv");
        ensure!(
            self.image == image,
            "image is {}, {} expected",
            self.image.display(),
            image.display()
        );
        for param in &self.params {
            param
                .check(self.style)
                .with_context(|| format!("parameter {}", param.name))?;
        }
        Ok(())
    }
}

impl Param {
    fn check(&self, style: Style) -> Result<()> {
        let size = match self.kind {
            ParamKind::Buffer => BUFFER_BYTES,
            ParamKind::Scalar => self.element.size_bytes(),
        };
        ensure!(
            self.size == size,
            "size is {}, {size} bytes expected",
            self.size
        );
        let is_bound = style == Style::Descriptor && self.kind == ParamKind::Buffer;
        ensure!(
            self.binding.is_some() == is_bound && self.offset.is_some() != is_bound,
            "{} expected",
            if is_bound {
                "a binding and no offset"
            } else {
                "an offset and no binding"
            }
        );
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
        glslang = "1"
        [[kernel]]
        name = "add"
        summary = "c = a + n"
        source = "glsl/add.comp"
        image = "spirv/add.spv"
        style = "descriptor"
        block = { specialized = { default = [8, 4, 1], x = 0, y = 3 } }
        needs = ["int64"]
        target = "vulkan1.2"
        params = [
            { name = "a", kind = "buffer", type = "f32", size = 8, binding = 0 },
            { name = "n", kind = "scalar", type = "f32x3", size = 12, offset = 0 },
        ]
    "#;

    pub(crate) fn example() -> Manifest {
        Manifest::parse(EXAMPLE).unwrap()
    }

    fn error(from: &str, to: &str) -> String {
        assert!(EXAMPLE.contains(from));
        format!(
            "{:#}",
            Manifest::parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err()
        )
    }

    #[test]
    fn every_entry_is_read() {
        let manifest = example();
        assert_eq!(manifest.glslang, "1");
        let [kernel] = &manifest.kernels[..] else {
            panic!("{} kernels", manifest.kernels.len());
        };
        assert_eq!(kernel.name, "add");
        assert_eq!(kernel.source, Path::new("glsl/add.comp"));
        assert_eq!(kernel.style, Style::Descriptor);
        assert!(matches!(
            kernel.block,
            Block::Specialized {
                default: [8, 4, 1],
                x: Some(0),
                y: Some(3),
                z: None
            }
        ));
        assert!(matches!(kernel.needs[..], [Feature::Int64]));
        assert_eq!(kernel.target.name(), "vulkan1.2");
        assert_eq!(kernel.params[0].binding, Some(0));
        assert_eq!(kernel.params[1].element, ElementType::F32x3);
        assert_eq!(kernel.params[1].offset, Some(0));
    }

    #[test]
    fn a_contradiction_names_kernel_and_parameter() {
        assert_eq!(
            error("size = 12", "size = 16"),
            "kernel add: parameter n: size is 16, 12 bytes expected"
        );
        assert_eq!(
            error("binding = 0", "offset = 0"),
            "kernel add: parameter a: a binding and no offset expected"
        );
        assert_eq!(
            error(", offset = 0", ""),
            "kernel add: parameter n: an offset and no binding expected"
        );
        assert_eq!(
            error("descriptor", "pointer"),
            "kernel add: parameter a: an offset and no binding expected"
        );
        assert_eq!(
            error("spirv/add.spv", "spirv/sub.spv"),
            "kernel add: image is spirv/sub.spv, spirv/add.spv expected"
        );
    }

    #[test]
    fn a_second_kernel_of_a_name_is_refused() {
        let table = &EXAMPLE[EXAMPLE.find("[[kernel]]").unwrap()..];
        let error = Manifest::parse(&format!("{EXAMPLE}\n{table}")).unwrap_err();
        assert_eq!(error.to_string(), "kernel add is there twice");
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(error("summary", "sumary").contains("unknown field `sumary`"));
        assert!(error("int64", "int65").contains("unknown variant `int65`"));
        let error = error("y = 3", "w = 3");
        assert!(error.contains("unexpected keys in table: w"), "{error}");
    }
}
