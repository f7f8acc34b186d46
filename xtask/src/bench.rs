//! `cargo xtask bench`: the benches of the session API as one table, backends side by side.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::{self, Metadata};
use crate::{process, text_table};

const PACKAGE: &str = "grafos-std";
const BENCH: &str = "session";

/// What criterion is told for `--quick`, in seconds and samples.
const QUICK: &[&str] = &[
    "--warm-up-time",
    "0.2",
    "--measurement-time",
    "0.6",
    "--sample-size",
    "10",
];

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure for a fraction of a second instead of several seconds each: rough numbers, soon
    #[arg(long)]
    quick: bool,
    /// Only benches whose name contains this
    filter: Option<String>,
}

/// Runs the benches on every backend and device that they find, and prints one table: a row for
/// each operation, a column for each device.
///
/// # Errors
/// A bench fails, or criterion's results cannot be read.
pub(crate) fn run(options: &Options) -> Result<()> {
    let metadata = Metadata::of_members()?;
    let folder = metadata.target_directory.join("criterion");
    let before = result_files(&folder)?;
    let mut command = cargo::command(&metadata.workspace_root);
    command.args(["bench", "--package", PACKAGE, "--bench", BENCH, "--"]);
    if options.quick {
        command.args(QUICK);
    }
    command.args(&options.filter);
    process::run(&mut command)?;

    // Results of earlier runs, of a device that is gone perhaps, stay in the folder.
    let written = result_files(&folder)?
        .into_iter()
        .filter(|(path, modified)| before.get(path) != Some(modified));
    let results = written
        .map(|(path, _)| Measured::load(&path))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        !results.is_empty(),
        "the bench wrote no results below {}",
        folder.display()
    );
    print!("\n{}", table(&results));
    println!("\nTimes are criterion's estimates for one operation; rates follow from them.");
    Ok(())
}

/// Finds the results below a folder of criterion's, each a `new/benchmark.json`, and when they
/// were written.
fn result_files(folder: &Path) -> Result<BTreeMap<PathBuf, SystemTime>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // There is no folder before the first run.
        let entries = fs::read_dir(&folder).into_iter().flatten();
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("new/benchmark.json") {
                let modified = fs::metadata(&path)
                    .and_then(|metadata| metadata.modified())
                    .with_context(|| format!("reading {}", path.display()))?;
                found.insert(path, modified);
            }
        }
    }
    Ok(found)
}

/// A result: an operation on a device.
#[derive(Debug, PartialEq)]
struct Measured {
    operation: String,
    device: String,
    /// Time of one operation.
    time_ns: f64,
    amount: Option<Amount>,
}

/// What one operation gets done.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
enum Amount {
    Bytes(u64),
    BytesDecimal(u64),
    Elements(u64),
}

/// Criterion's benchmark.json, as far as it matters here.
#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
    throughput: Option<serde_json::Value>,
}

/// Criterion's estimates.json, as far as it matters here.
#[derive(Deserialize)]
struct Estimates {
    mean: Estimate,
    slope: Option<Estimate>,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

impl Measured {
    fn load(benchmark: &Path) -> Result<Self> {
        let estimates = benchmark.with_file_name("estimates.json");
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
        };
        Self::parse(&read(benchmark)?, &read(&estimates)?)
            .with_context(|| format!("understanding {}", benchmark.display()))
    }

    fn parse(benchmark: &str, estimates: &str) -> Result<Self> {
        let benchmark: Benchmark = serde_json::from_str(benchmark).context("benchmark.json")?;
        let estimates: Estimates = serde_json::from_str(estimates).context("estimates.json")?;
        let (operation, device) = benchmark
            .full_id
            .rsplit_once('/')
            .with_context(|| format!("{:?} is not operation/device", benchmark.full_id))?;
        // The slope is what criterion itself prints where its sampling allows one.
        let estimate = estimates.slope.unwrap_or(estimates.mean);
        let amount = benchmark.throughput;
        Ok(Self {
            operation: operation.to_owned(),
            device: device.to_owned(),
            time_ns: estimate.point_estimate,
            // A kind of throughput that is unknown here is no reason to show nothing.
            amount: amount.and_then(|value| serde_json::from_value(value).ok()),
        })
    }

    fn cell(&self) -> String {
        let time = time(self.time_ns);
        let per_s = |count: u64| count as f64 * 1e9 / self.time_ns;
        match self.amount {
            None => time,
            Some(Amount::Bytes(bytes) | Amount::BytesDecimal(bytes)) => {
                format!("{time} ({}B/s)", scaled(per_s(bytes)))
            }
            Some(Amount::Elements(elements)) => {
                format!("{time} ({}/s)", scaled(per_s(elements)))
            }
        }
    }
}

/// Words a time with three digits that count.
fn time(time_ns: f64) -> String {
    let (value, unit) = match time_ns {
        t if t < 1e3 => (t, "ns"),
        t if t < 1e6 => (t / 1e3, "µs"),
        t if t < 1e9 => (t / 1e6, "ms"),
        t => (t / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Words a number with three digits that count and a decimal prefix: `12.3 M`.
fn scaled(value: f64) -> String {
    let (value, prefix) = match value {
        v if v < 1e3 => (v, ""),
        v if v < 1e6 => (v / 1e3, "k"),
        v if v < 1e9 => (v / 1e6, "M"),
        v if v < 1e12 => (v / 1e9, "G"),
        v => (v / 1e12, "T"),
    };
    format!("{} {prefix}", three_digits(value))
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn table(results: &[Measured]) -> String {
    // Sorted so that sizes within a name follow their value: 4 KiB before 64 KiB before 1 MiB.
    let operations: BTreeMap<Vec<Part>, &str> = results
        .iter()
        .map(|result| (parts(&result.operation), result.operation.as_str()))
        .collect();
    let mut devices: Vec<&str> = results
        .iter()
        .map(|result| result.device.as_str())
        .collect();
    devices.sort_unstable();
    devices.dedup();
    let rows: Vec<Vec<String>> = operations
        .values()
        .map(|operation| {
            let cells = devices.iter().map(|device| {
                let found = results
                    .iter()
                    .find(|result| result.operation == *operation && result.device == *device);
                found.map_or("-".to_owned(), Measured::cell)
            });
            std::iter::once((*operation).to_owned())
                .chain(cells)
                .collect()
        })
        .collect();
    let heading: Vec<&str> = std::iter::once("operation").chain(devices).collect();
    text_table::render(&heading, &rows)
}

/// A piece of a name, for sorting.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

/// Cuts a name into words and numbers; a unit of bytes is part of its number.
fn parts(name: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for word in name.split([' ', '/', '_']).filter(|word| !word.is_empty()) {
        let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = word.split_at(digits);
        let factor = match unit {
            "" | "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            _ => None,
        };
        match (number.parse::<u64>(), factor, parts.last_mut()) {
            (Ok(number), Some(factor), _) => {
                parts.push(Part::Number(number.saturating_mul(factor)));
            }
            (Err(_), Some(factor), Some(Part::Number(number))) => {
                *number = number.saturating_mul(factor);
            }
            _ => parts.push(Part::Text(word.to_owned())),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const ESTIMATES: &str = r#"{
        "mean": {"confidence_interval": {"confidence_level": 0.95, "lower_bound": 1.0,
            "upper_bound": 3.0}, "point_estimate": 2000.0, "standard_error": 0.1},
        "slope": null
    }"#;

    fn benchmark(full_id: &str, throughput: &str) -> String {
        format!(
            r#"{{"group_id": "g", "function_id": null, "value_str": null,
                "throughput": {throughput}, "full_id": "{full_id}", "directory_name": "d",
                "title": "t"}}"#
        )
    }

    fn measured(operation: &str, device: &str, time_ns: f64) -> Measured {
        Measured {
            operation: operation.into(),
            device: device.into(),
            time_ns,
            amount: None,
        }
    }

    #[test]
    fn results_are_read_with_their_rate() {
        let text = benchmark("write/64 MiB/vulkan llvmpipe", r#"{"Bytes": 1000000}"#);
        let found = Measured::parse(&text, ESTIMATES).unwrap();
        assert_eq!(
            found,
            Measured {
                amount: Some(Amount::Bytes(1_000_000)),
                ..measured("write/64 MiB", "vulkan llvmpipe", 2000.0)
            }
        );
        // 1 MB in 2 µs.
        assert_eq!(found.cell(), "2.00 µs (500 GB/s)");
    }

    #[test]
    fn the_slope_comes_before_the_mean() {
        let estimates = r#"{"mean": {"point_estimate": 5.0}, "slope": {"point_estimate": 4.0}}"#;
        let found = Measured::parse(&benchmark("a/b", "null"), estimates).unwrap();
        assert_eq!(found, measured("a", "b", 4.0));
    }

    #[test]
    fn a_name_without_a_device_is_refused() {
        let error = Measured::parse(&benchmark("alone", "null"), ESTIMATES)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "\"alone\" is not operation/device");
    }

    #[test]
    fn times_and_rates_have_three_digits() {
        assert_eq!(time(0.5), "0.50 ns");
        assert_eq!(time(12_345.0), "12.3 µs");
        assert_eq!(time(123_456_789.0), "123 ms");
        assert_eq!(time(2.5e9), "2.50 s");
        assert_eq!(scaled(52_100.0), "52.1 k");
        assert_eq!(scaled(7.0), "7.00 ");
    }

    #[test]
    fn the_table_has_devices_side_by_side_and_sizes_in_order() {
        let results = [
            measured("write/1 MiB", "vulkan", 300.0),
            measured("write/64 KiB", "vulkan", 20.0),
            measured("write/4 KiB", "vulkan", 1.0),
            measured("alloc", "mock", 5.0),
            measured("write/4 KiB", "mock", 2.0),
        ];
        assert_eq!(
            table(&results),
            "operation        mock   vulkan\n\
             -----------------------------\n\
             alloc         5.00 ns        -\n"
                .replace("-----------------------------", &"-".repeat(30))
                + "write/4 KiB   2.00 ns  1.00 ns\n\
                   write/64 KiB        -  20.0 ns\n\
                   write/1 MiB         -   300 ns\n"
        );
    }

    #[test]
    fn only_new_results_are_found() {
        let scratch = Scratch::new().unwrap();
        for path in ["launch/mock/new", "launch/mock/base", "report"] {
            let folder = scratch.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("benchmark.json"), "{}").unwrap();
        }
        let found = result_files(scratch.path()).unwrap();
        let expected = scratch.path().join("launch/mock/new/benchmark.json");
        assert_eq!(found.into_keys().collect::<Vec<_>>(), [expected]);
        assert!(
            result_files(&scratch.path().join("missing"))
                .unwrap()
                .is_empty()
        );
    }
}
