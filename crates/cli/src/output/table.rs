//! Columns of text.

/// A table with a heading. Cells are made inert, so a name from a sandbox cannot disturb a terminal.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// Between columns.
const GAP: usize = 2;

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        let cells = cells.into_iter().map(|cell| one_line(cell.as_ref())).collect();
        self.rows.push(cells);
    }

    /// The table, with `indent` spaces before each line.
    pub(crate) fn render(&self, indent: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}{}", " ".repeat(GAP)));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn one_line(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    cell.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["ID", "NAME"]);
        table.row(["n001abcd", "web"]);
        table.row(["n1", ""]);
        table.row(["é\n", "x"]);
        let expected = "  ID        NAME\n  n001abcd  web\n  n1        -\n  é\u{fffd}        x\n";
        assert_eq!(table.render(2), expected);
    }
}
