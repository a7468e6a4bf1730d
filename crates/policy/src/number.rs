//! Decimal numbers with a unit, as people write limits: `1.5g`, `0.5`, `90s`.
//!
//! Exact: no floating point, so a limit never becomes another by rounding.

/// Digits after the point that are read; more are refused.
const FRACTION_DIGITS: usize = 9;
const ONE: u128 = 1_000_000_000;

/// A non-negative decimal, kept as billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decimal(u128);

impl Decimal {
    /// Times `unit`, rounded down. `None` where the result does not fit.
    pub(crate) fn times(self, unit: u64) -> Option<u64> {
        u64::try_from(self.0.checked_mul(u128::from(unit))? / ONE).ok()
    }

    /// Times `unit`, only if that is a whole number.
    pub(crate) fn times_exactly(self, unit: u64) -> Option<u64> {
        let product = self.0.checked_mul(u128::from(unit))?;
        if product % ONE != 0 {
            return None;
        }
        u64::try_from(product / ONE).ok()
    }
}

/// Splits `text` into a number and the unit after it (lower-cased, possibly empty). `None` if it does not begin with
/// a number; a sign is not part of a number here, because no limit is negative.
pub(crate) fn split(text: &str) -> Option<(Decimal, String)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_lowercase();
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || fraction.len() > FRACTION_DIGITS || fraction.contains('.') {
        return None;
    }
    if digits.ends_with('.') {
        return None;
    }
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let fraction: u128 = format!("{fraction:0<FRACTION_DIGITS$}").parse().ok()?;
    Some((Decimal(whole * ONE + fraction), unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_split_from_their_unit() {
        let check = |text: &str, expected: Option<(u128, &str)>| {
            let expected = expected.map(|(n, unit)| (Decimal(n), unit.to_owned()));
            assert_eq!(split(text), expected, "{text}");
        };
        check("60", Some((60 * ONE, "")));
        check("1.5g", Some((ONE * 3 / 2, "g")));
        check("64 MiB", Some((64 * ONE, "mib")));
        check("0.000000001", Some((1, "")));
        check("0.0000000001", None);
        check("-1", None);
        check("+1", None);
        check("", None);
        check("g", None);
        check(".5", None);
        check("5.", None);
        check("1.2.3", None);
        check("99999999999999999999999", None);
        check("٣", None);
    }

    #[test]
    fn products_are_exact_or_absent() {
        let (number, _) = split("1.5").unwrap();
        assert_eq!(number.times(1000), Some(1500));
        assert_eq!(number.times(1), Some(1));
        assert_eq!(number.times_exactly(1), None);
        let (largest, _) = split("18446744073709551615").unwrap();
        assert_eq!(largest.times(1), Some(u64::MAX));
        assert_eq!(largest.times(2), None);
    }
}
