//! Writes the manifest as Rust: kernels/src/table.rs.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::manifest::{Block, Kernel, Manifest, Param, ParamKind};
use crate::process;

/// Writes the table, formatted with the workspace's own settings.
///
/// # Errors
/// rustfmt is missing or refuses the text.
pub(super) fn render(manifest: &Manifest, root: &Path) -> Result<String> {
    let mut command = Command::new("rustfmt");
    command
        .args(["--edition", "2024", "--config-path"])
        .arg(root);
    process::filter(&mut command, &unformatted(manifest))
        .context("formatting the table (`rustup component add rustfmt` installs rustfmt)")
}

fn unformatted(manifest: &Manifest) -> String {
    let mut text = String::from(
        "//! The manifest as Rust. `cargo xtask kernels` writes this file: change manifest.toml.

        use crate::{Block, ElementType, Feature, Kernel, Param, Style, Target};

        pub(crate) static KERNELS: &[Kernel] = &[\n",
    );
    for kernel in &manifest.kernels {
        text.push_str(&entry(kernel));
    }
    text.push_str("];\n");
    text
}

fn entry(kernel: &Kernel) -> String {
    let Kernel {
        name,
        summary,
        image,
        style,
        block,
        needs,
        target,
        params,
        source: _,
    } = kernel;
    let image = Path::new("..").join(image);
    let block = match block {
        Block::Fixed(threads) => format!("Block::Fixed({threads:?})"),
        Block::Specialized { default, x, y, z } => format!(
            "Block::Specialized {{ default: {default:?}, constant_ids: {:?} }}",
            [x, y, z]
        ),
    };
    let needs: String = needs
        .iter()
        .map(|feature| format!("Feature::{feature:?},"))
        .collect();
    let params: String = params.iter().map(param).collect();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "Kernel {{
            name: {name:?},
            summary: {summary:?},
            spirv: include_bytes!({image:?}),
            target: Target::{target:?},
            style: Style::{style:?},
            block: {block},
            params: &[{params}],
            needs: &[{needs}],
        }},"
    );
    text
}

fn param(param: &Param) -> String {
    let constructor = match (param.kind, param.binding) {
        (ParamKind::Scalar, _) => "scalar",
        (ParamKind::Buffer, None) => "address",
        (ParamKind::Buffer, Some(_)) => "binding",
    };
    // The manifest has been checked: one of the two is there.
    let place = param.binding.or(param.offset).unwrap_or_default();
    format!(
        "Param::{constructor}({:?}, ElementType::{:?}, {place}),",
        param.name, param.element
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::manifest::tests::example;
    use crate::workspace;

    #[test]
    fn an_entry_carries_all_that_the_manifest_says() {
        let text = render(&example(), &workspace::root().unwrap()).unwrap();
        let expected = r#"
//! The manifest as Rust. `cargo xtask kernels` writes this file: change manifest.toml.

use crate::{Block, ElementType, Feature, Kernel, Param, Style, Target};

pub(crate) static KERNELS: &[Kernel] = &[Kernel {
    name: "add",
    summary: "c = a + n",
    spirv: include_bytes!("../spirv/add.spv"),
    target: Target::Vulkan12,
    style: Style::Descriptor,
    block: Block::Specialized {
        default: [8, 4, 1],
        constant_ids: [Some(0), Some(3), None],
    },
    params: &[
        Param::binding("a", ElementType::F32, 0),
        Param::scalar("n", ElementType::F32x3, 0),
    ],
    needs: &[Feature::Int64],
}];
"#;
        assert_eq!(text, expected.trim_start());
    }
}
