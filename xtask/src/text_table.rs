//! Tables for the terminal.

/// Lays out rows under a heading: the first column to the left, the others to the right.
///
/// Short rows end with empty cells. Widths are counted in characters.
pub(crate) fn render(heading: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|&cell| cell.to_owned()).collect();
    let columns = rows
        .iter()
        .map(Vec::len)
        .chain([heading.len()])
        .max()
        .unwrap_or(0);
    let all = || std::iter::once(&heading).chain(rows);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = all().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();

    let mut text = String::new();
    for (index, row) in all().enumerate() {
        let mut line = String::new();
        for (column, &width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            if column == 0 {
                line.push_str(&format!("{cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if index == 0 {
            let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
            text.push_str(&"-".repeat(total));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_missing_cells_are_blank() {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
        let rows = [row(&["launch", "1 µs", "20 µs"]), row(&["fill", "300 µs"])];
        assert_eq!(
            render(&["operation", "mock", "gpu"], &rows),
            "operation    mock    gpu\n\
             ------------------------\n\
             launch       1 µs  20 µs\n\
             fill       300 µs\n"
        );
    }

    #[test]
    fn a_table_without_rows_is_its_heading() {
        assert_eq!(render(&["a", "b"], &[]), "a  b\n----\n");
    }
}
