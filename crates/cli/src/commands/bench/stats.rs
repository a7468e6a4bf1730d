//! Durations and what is said of them.

use std::time::Duration;

use serde::Serialize;

use crate::output::Table;

/// Percentiles of one thing that was done many times.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) name: String,
    pub(super) count: usize,
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
}

impl Figures {
    pub(super) fn of(name: &str, mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let at = |percent: usize| {
            let index = (durations.len() * percent / 100).min(durations.len().saturating_sub(1));
            durations.get(index).map_or(f64::NAN, |duration| duration.as_secs_f64() * 1000.0)
        };
        Self {
            name: name.to_owned(),
            count: durations.len(),
            p50_ms: at(50),
            p95_ms: at(95),
            p99_ms: at(99),
        }
    }
}

/// Figures side by side.
pub(super) fn table(figures: &[Figures]) -> String {
    let mut table = Table::new(&["", "P50 MS", "P95 MS", "P99 MS", "ROUNDS"]);
    for one in figures {
        table.row([
            one.name.clone(),
            format!("{:.2}", one.p50_ms),
            format!("{:.2}", one.p95_ms),
            format!("{:.2}", one.p99_ms),
            one.count.to_string(),
        ]);
    }
    table.render(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let durations = (1..=100).rev().map(Duration::from_millis).collect();
        let figures = Figures::of("x", durations);
        assert_eq!((figures.p50_ms, figures.p95_ms, figures.p99_ms), (51.0, 96.0, 100.0));
    }
}
