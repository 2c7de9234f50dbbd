//! Figures as text: money, numbers, shares and charts.

/// Width of the chart in columns.
const CHART: usize = 32;
/// Characters for heights of a column, from nothing to the highest.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of the bar that shows a share.
const BAR: usize = 10;

/// Formats US dollars: with cents, or with more decimals if cents would show nothing.
pub(super) fn money(cost: f64) -> String {
    let decimals = if cost == 0.0 || cost.abs() >= 1.0 { 2 } else { 6 };
    format!("${}", grouped(cost, decimals))
}

/// Formats a number with separators between thousands.
pub(super) fn grouped(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut spaced = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    format!("{sign}{spaced}{rest}")
}

/// Formats a share as a bar and in percent.
pub(super) fn bar(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * BAR as f64).round() as usize;
    format!("{}{} {:>3.0}%", "█".repeat(filled), "░".repeat(BAR - filled), share * 100.0)
}

/// Draws costs over time. If there are more steps than columns, several steps share a column and
/// are added up.
pub(super) fn chart(costs: &[f64]) -> String {
    let columns = costs.len().clamp(1, CHART);
    let mut sums = vec![0.0; columns];
    for (index, cost) in costs.iter().enumerate() {
        if let Some(sum) = sums.get_mut(index * columns / costs.len()) {
            *sum += cost.max(0.0);
        }
    }
    let highest = sums.iter().copied().fold(0.0, f64::max);
    let height = |sum: f64| if highest > 0.0 { (sum / highest * 8.0).ceil() as usize } else { 0 };
    sums.into_iter().filter_map(|sum| HEIGHTS.get(height(sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chart_is_as_high_as_its_highest_step() {
        assert_eq!(chart(&[0.0, 1.0, 4.0, 8.0]), " ▁▄█");
        assert_eq!(chart(&[0.0, 0.0]), "  ");
        assert_eq!(chart(&[]), " ");
        assert_eq!(chart(&[1.0; 3200]).chars().count(), CHART);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [money(0.0), money(0.000_012), money(1_234_567.891)],
            ["$0.00", "$0.000012", "$1,234,567.89"]
        );
        assert_eq!(grouped(-1234.5, 1), "-1,234.5");
        assert_eq!(bar(1.0, 4.0), "███░░░░░░░  25%");
        assert_eq!(bar(0.0, 0.0), "░░░░░░░░░░   0%");
    }

    proptest! {
        #[test]
        fn any_course_is_drawn(costs in proptest::collection::vec(-1e12..1e12_f64, 0..400)) {
            prop_assert_eq!(chart(&costs).chars().count(), costs.len().clamp(1, CHART));
        }
    }
}
