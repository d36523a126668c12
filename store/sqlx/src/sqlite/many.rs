//! Statements for several records at once. They are those for one with the line of VALUES repeated, in a few sizes: each
//! connection prepares each statement once.

use std::sync::LazyLock;

use super::sql;

/// The most records in one statement.
pub(super) const MOST: usize = 64;

/// For 1, 2, 4 and so on to [`MOST`] records.
pub(super) struct Sizes([String; MOST.ilog2() as usize + 1]);

pub(super) static READ_RECORDS: LazyLock<Sizes> =
    LazyLock::new(|| Sizes::of(sql::READ_RECORD, READ_ONE, |place| format!("({place}, ?, ?)")));

pub(super) static BEGIN_AND_READ_RECORDS: LazyLock<Sizes> =
    LazyLock::new(|| Sizes::of(sql::BEGIN_AND_READ_RECORD, READ_ONE, |place| format!("({place}, ?, ?)")));

pub(super) static WRITE_RECORDS: LazyLock<Sizes> =
    LazyLock::new(|| Sizes::of(sql::WRITE_RECORD, WRITE_ONE, |_| WRITE_ONE.into()));

impl Sizes {
    fn of(statement: &str, line: &str, nth_line: fn(usize) -> String) -> Self {
        Self(std::array::from_fn(|size| repeated(statement, line, nth_line, 1 << size)))
    }

    /// The smallest for so many records, [`MOST`] at most.
    pub(super) fn for_at_least(&self, records: usize) -> &str {
        let size = records.max(1).next_power_of_two().ilog2() as usize;
        &self.0[size.min(self.0.len() - 1)]
    }
}

/// The largest size that so many records fill; zero for none.
pub(super) const fn filled_by(records: usize) -> usize {
    if records >= MOST {
        MOST
    } else if records == 0 {
        0
    } else {
        1 << records.ilog2()
    }
}

/// The statements of a transaction that carries out so many claims and completions, and how many lines it has for each: none, or a few
/// more than that.
pub(super) fn claims_and_completions(claims: usize, completions: usize) -> (&'static str, (usize, usize)) {
    let [claims, completions] = [claims, completions].map(|count| LINES.iter().position(|lines| count <= *lines));
    let (claims, completions) = (claims.unwrap_or(LINES.len() - 1), completions.unwrap_or(LINES.len() - 1));
    (&CLAIMS_AND_COMPLETIONS[claims][completions], (LINES[claims], LINES[completions]))
}

/// Few, because there is a statement for any two of them. A line more is cheap.
const LINES: [usize; 5] = [0, 1, 4, 16, MOST];

static CLAIMS_AND_COMPLETIONS: LazyLock<[[String; LINES.len()]; LINES.len()]> = LazyLock::new(|| {
    let [claims, completions] = [(sql::CLAIM, CLAIM_ONE), (sql::COMPLETE, COMPLETE_ONE)].map(|(statement, line)| {
        LINES.map(|lines| if lines == 0 { String::new() } else { repeated(statement, line, |_| line.into(), lines) })
    });
    claims.map(|claims| {
        completions.each_ref().map(|completions| [sql::BEGIN, &claims, completions, sql::COMMIT].concat())
    })
});

fn repeated(statement: &str, line: &str, nth_line: impl Fn(usize) -> String, lines: usize) -> String {
    let lines: Vec<String> = (0..lines).map(nth_line).collect();
    statement.replace(line, &lines.join(",\n    "))
}

const READ_ONE: &str = "(0, ?, ?)";

const WRITE_ONE: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const CLAIM_ONE: &str = "(?, ?, ?, ?, ?, ?, ?, ?)";
pub(super) const CLAIM_COLUMNS: usize = 8;

const COMPLETE_ONE: &str = "(?, ?, ?, ?, ?, ?)";
pub(super) const COMPLETION_COLUMNS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_the_statement_itself() {
        assert_eq!(READ_RECORDS.for_at_least(1), sql::READ_RECORD);
        assert_eq!(BEGIN_AND_READ_RECORDS.for_at_least(0), sql::BEGIN_AND_READ_RECORD);
        assert_eq!(WRITE_RECORDS.for_at_least(1), sql::WRITE_RECORD);
    }

    #[test]
    fn every_further_record_has_a_line_of_its_own() {
        assert!(READ_RECORDS.for_at_least(2).contains("(0, ?, ?),\n    (1, ?, ?)\n"));
        assert!(READ_RECORDS.for_at_least(MOST).contains("(63, ?, ?)\n"));
        assert_eq!(READ_RECORDS.for_at_least(33), READ_RECORDS.for_at_least(64));
        assert_eq!(WRITE_RECORDS.for_at_least(MOST).matches('?').count(), 23 * MOST);
    }

    #[test]
    fn there_is_a_line_for_each_claim_and_completion() {
        for (claims, completions) in (0..=MOST).flat_map(|claims| (0..=MOST - claims).map(move |more| (claims, more))) {
            let (statements, lines) = claims_and_completions(claims, completions);
            assert!(lines.0 >= claims && lines.1 >= completions, "{claims} and {completions} in {lines:?}");
            let (of_claims, of_completions) = (3 + CLAIM_COLUMNS * lines.0, 2 + COMPLETION_COLUMNS * lines.1);
            let parameters = of_claims * usize::from(lines.0 > 0) + of_completions * usize::from(lines.1 > 0);
            let text: String = statements.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
            assert_eq!(text.matches('?').count(), parameters, "{claims} and {completions}");
        }
    }

    #[test]
    fn any_number_is_made_of_sizes() {
        for records in 0..=2 * MOST {
            let filled = filled_by(records);
            assert!(filled <= records && (records == 0 || filled > records.min(MOST) / 2), "{records}");
        }
    }
}
