//! Units of figures in words. Measures name their units in `kinds`.

use figures::text::interval_words;

/// The figures from `low` to `high` in words.
pub fn range_words((low, high): (f64, f64)) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!("from {low} to {high}"),
        (true, false) => format!("{low} or more"),
        (false, true) => format!("{high} or less"),
        (false, false) => "any number".to_owned(),
    }
}

/// An amount with its interval, if it has one.
pub fn spread(value: f64, (low, high): (f64, f64), unit: &str) -> String {
    if unit == "ms" && is_long(value) {
        return spread(value / 1000.0, (low / 1000.0, high / 1000.0), "s");
    }
    let words = amount(value, unit);
    if !(low.is_finite() && high.is_finite()) {
        return words;
    }
    let percent = if unit.contains("share") { 100.0 } else { 1.0 };
    // The words of a negative difference turn it round, and its ends with it.
    let is_turned = value < 0.0 && unit.ends_with(" more") && !unit.contains("share");
    let (sign, low, high) = if is_turned { (-1.0, high, low) } else { (1.0, low, high) };
    let [figure, low, high] = [value, low, high].map(|end| digits(sign * end * percent));
    // The interval stands behind the number and its sign of percent, before the words of the unit.
    let number = words.find(' ').unwrap_or(words.len());
    let at = if words[number..].starts_with(" %") { number + " %".len() } else { number };
    format!("{}{}{}", &words[..at], interval_words(&figure, &low, &high), &words[at..])
}

/// Whether a number of milliseconds is printed in seconds.
fn is_long(ms: f64) -> bool {
    ms.abs() >= 10_000.0
}

/// An amount with its unit.
pub fn amount(value: f64, unit: &str) -> String {
    if value.is_infinite() {
        return "without end".to_owned();
    }
    match unit {
        "ratio" => format!("×{}", digits(value)),
        "exponent" => format!("n^{}", digits(value)),
        "ms" if is_long(value) => format!("{} s", digits(value / 1000.0)),
        unit if unit.contains("share") => {
            let rest = unit.strip_suffix("share").or(unit.strip_prefix("share"));
            let of = match unit {
                "session share" => " of the session",
                "turn share" => " of a turn",
                _ => rest.filter(|rest| !rest.is_empty()).unwrap_or_default(),
            };
            format!("{} %{of}", digits(value * 100.0))
        }
        unit => {
            let unit = unit.replacen("percent", "%", 1);
            // A negative difference is one to the other side.
            let (value, unit) = match unit.strip_suffix(" more") {
                Some(kind) if value < 0.0 && ["ms", "seconds a year"].contains(&kind) => {
                    (-value, format!("{kind} less"))
                }
                Some(kind) if value < 0.0 => (-value, format!("{kind} fewer")),
                _ => (value, unit),
            };
            let number = digits(value);
            let unit = match number.as_str() {
                "1" => of_one(&unit),
                _ => unit,
            };
            format!("{number} {unit}")
        }
    }
}

/// A unit whose first word stands for one thing: `1 call more`.
fn of_one(unit: &str) -> String {
    let (word, rest) = unit.split_at(unit.find(' ').unwrap_or(unit.len()));
    let one = match word {
        word if word.len() < 4 => word.to_owned(),
        word if word.ends_with("ies") => format!("{}y", &word[..word.len() - 3]),
        word => {
            let word = word.strip_suffix("es").filter(|word| word.ends_with("ss")).unwrap_or(word);
            if word.ends_with("ss") { word.to_owned() } else { word.strip_suffix('s').unwrap_or(word).to_owned() }
        }
    };
    format!("{one}{rest}")
}

/// A number with at most three significant digits after the point, without trailing zeros.
pub fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_an_interval_only_if_its_ends_can_be_told_from_the_figure() {
        assert_eq!(spread(0.02871, (0.0287, 0.0288), "ratio"), "×0.0287 [0.0287, 0.0288]");
        assert_eq!(spread(109.0, (80.6, 149.0), "ms more"), "109 [80.6, 149] ms more");
        assert_eq!(spread(0.0, (0.0, 0.05), "share of kills"), "0 % [0, 5] of kills");
        assert_eq!(spread(53.8, (50.0, 60.0), "percent saved"), "53.8 % [50, 60] saved");
        assert_eq!(spread(0.01451, (0.014_49, 0.014_53), "ratio"), "×0.0145");
        assert_eq!(spread(5.1, (5.1, 5.1), "ms"), "5.1 ms");
        assert_eq!(spread(-4.0, (-5.0, 1.0), "lines more"), "4 [-1, 5] lines fewer");
        assert_eq!(spread(5.1, (5.1, f64::INFINITY), "ms"), "5.1 ms");
        assert_eq!(spread(160_000.0, (9_000.0, 170_000.0), "ms"), "160 [9, 170] s");
    }

    #[test]
    fn an_amount_of_one_has_a_unit_of_one() {
        for (value, unit, expected) in [
            (1.0, "calls more", "1 call more"),
            (2.0, "calls more", "2 calls more"),
            (1.0, "passes", "1 pass"),
            (1.0, "recoveries", "1 recovery"),
            (1.0, "ms", "1 ms"),
            (9_999.0, "ms", "9999 ms"),
            (160_000.0, "ms", "160 s"),
            (1.0, "per question", "1 per question"),
            (1.0, "USD", "1 USD"),
            (1.0, "seconds", "1 second"),
            (0.01, "turn share", "1 % of a turn"),
            (53.8, "percent saved", "53.8 % saved"),
            (0.5, "exponent", "n^0.5"),
            (-4.0, "lines more", "4 lines fewer"),
            (-0.532, "ms more", "0.532 ms less"),
        ] {
            assert_eq!(amount(value, unit), expected);
        }
    }
}
